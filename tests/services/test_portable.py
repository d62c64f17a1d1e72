"""A conversion by Beam's job service, with a worker pool, both processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest
from helpers.clusters import answers, convert_and_kill, free_port, running, slow_frame
from support import CSV, public_files, run, wait_for

import tfrecorder
from tfrecorder.errors import RunnerError

pytestmark = pytest.mark.engines

SHARDS = 6


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[dict[str, object], psutil.Process]]:
    """The options that lead to a job service, and the pool that starts its worker."""
    jobs, pool = free_port(), free_port()
    with (
        running("apache_beam.runners.portability.local_job_service_main", f"--port={jobs}"),
        running("apache_beam.runners.worker.worker_pool_main", f"--service_port={pool}") as workers,
    ):
        wait_for(lambda: answers(jobs) and answers(pool))
        options = {
            "job_endpoint": f"localhost:{jobs}",
            "environment_type": "EXTERNAL",
            "environment_config": f"localhost:{pool}",
        }
        yield options, psutil.Process(workers.pid)


@pytest.fixture(scope="module")
def options(service) -> dict[str, object]:
    return service[0]


@pytest.mark.slow
def test_the_files_are_those_of_a_local_conversion(options, dataset: Path) -> None:
    shards = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    result = tfrecorder.convert(
        CSV, "out", runner="portablerunner", runner_options=options, num_shards=shards
    )
    assert result.records == 52
    assert public_files("out") == public_files(dataset)


@pytest.mark.slow
def test_what_stopped_a_worker_is_one_line_of_the_command(options, frame: pd.DataFrame) -> None:
    frame.loc[3, "image_uri"] = "nowhere.jpg"
    frame.to_csv("images.csv", index=False)
    flags = [f"--runner-option={name}={value}" for name, value in options.items()]
    ended = run(
        *("-m", "tfrecorder", "convert", "images.csv", "out", "--max-reject-fraction", "0"),
        *("--runner", "PortableRunner", *flags),
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: 1 of 52 rows (1.9%) were rejected, more than")


@pytest.mark.slow
def test_a_killed_worker_ends_the_job_and_the_same_call_completes_it(service, tmp_path) -> None:
    """Beam's own job service tries nothing again."""
    options, pool = service
    frame = slow_frame(tmp_path / "images", SHARDS)
    same = {"num_shards": SHARDS, "shuffle": False}
    there = {"runner": "PortableRunner", "runner_options": options}
    hit, ended = convert_and_kill(
        lambda: [worker.pid for worker in pool.children()], 1, frame, **there, **same
    )
    assert isinstance(ended, RunnerError)
    assert "run the same conversion again to continue" in str(ended)
    assert not Path("out/dataset_info.json").exists()
    assert not Path(f"out/{hit}.tfrecord").exists()
    assert tfrecorder.convert(frame, "out", **there, **same).records == len(frame)
    tfrecorder.convert(frame, "local", **same)
    assert public_files("out") == public_files("local")
