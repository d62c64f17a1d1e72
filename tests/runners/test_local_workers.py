"""Worker processes of this machine: the bytes of one, and what becomes of one that is killed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import psutil
import pytest
from helpers.clusters import kill_one, slow_frame
from helpers.environments import without
from support import CSV, public_files, start, wait_for

import tfrecorder
from tfrecorder.errors import OptionError

CONVERT = """
import tfrecorder
tfrecorder.convert("slow.csv", "out", num_shards=6, num_workers=2, progress=False)
"""


@pytest.fixture
def slow(tmp_path: Path) -> pd.DataFrame:
    """Six shards that take some tenths of a second each, as slow.csv."""
    frame = slow_frame(tmp_path / "images", shards=6)
    frame.to_csv("slow.csv", index=False)
    return frame


def workers_of(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@pytest.mark.slow
def test_a_killed_worker_is_an_error_and_the_same_call_goes_on(slow: pd.DataFrame) -> None:
    process = start(CONVERT)
    hit = kill_one(lambda: workers_of(process.pid), 1)
    _, words = process.communicate(timeout=60)
    assert "RunnerError: a worker process ended with -9 before its shards were done." in words
    assert not Path("out", f"{hit}.tfrecord").exists()
    tfrecorder.convert("slow.csv", "out", num_shards=6, progress=False)
    tfrecorder.convert(slow, "whole", num_shards=6, progress=False)
    assert public_files("out") == public_files("whole")


@pytest.mark.slow
@pytest.mark.usefixtures("slow")
def test_workers_end_with_a_launcher_that_is_killed() -> None:
    process = start(CONVERT)
    wait_for(lambda: list(Path("out/_tfrecorder").glob("tmp/*.tfrecord.*")))
    workers = [psutil.Process(pid) for pid in workers_of(process.pid)]
    assert len(workers) == 2
    process.kill()
    process.wait()
    assert not psutil.wait_procs(workers, timeout=60)[1]


@pytest.mark.slow
def test_they_need_no_beam(tmp_path_factory: pytest.TempPathFactory) -> None:
    plain = without(tmp_path_factory.mktemp("without"), "apache_beam")
    plain.does(
        f"import tfrecorder\ntfrecorder.convert({str(CSV)!r}, 'out', num_shards=3, num_workers=2)"
    )
    tfrecorder.convert(CSV, "whole", num_shards=3)
    assert public_files("out") == public_files("whole")


def test_beam_options_do_not_reach_them() -> None:
    with pytest.raises(OptionError, match=r"num_workers=2: these processes run without Beam"):
        tfrecorder.convert(CSV, "out", num_workers=2, runner_options={"profile_cpu": True})
    assert not Path("out").exists()
