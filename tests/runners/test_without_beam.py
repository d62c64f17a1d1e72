"""Where Apache Beam is not installed, this process converts: the same bytes, errors and way on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from helpers.environments import Environment, without
from support import (
    CSV,
    PHOTOS,
    done_shards,
    end_by_ctrl_c,
    error_of,
    photo_frame,
    public_files,
    stop,
    wait_for,
)

import tfrecorder
from tfrecorder.errors import RejectedError

pytestmark = pytest.mark.slow


@pytest.fixture
def plain(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A Python that cannot import Apache Beam."""
    return without(tmp_path_factory.mktemp("without"), "apache_beam")


@pytest.fixture
def tables() -> dict[str, str]:
    """Tables of photographs by name: one with damaged images too, and one with a new class."""
    Path("cut.jpg").write_bytes(PHOTOS[0].read_bytes()[:2000])
    bad = pd.DataFrame({"split": "TRAIN", "image_uri": ["cut.jpg", "absent.jpg"], "label": "cat"})
    pd.concat([photo_frame(40), bad]).to_csv("first.csv", index=False)
    photo_frame(12).iloc[4:].assign(image_uri=_copies, label="zebra").to_csv(
        "more.csv", index=False
    )
    return {"first": os.path.abspath("first.csv"), "more": os.path.abspath("more.csv")}


def _copies(frame: pd.DataFrame) -> list[str]:
    """Some photographs under other names."""
    names = []
    for number, uri in enumerate(frame.image_uri):
        names.append(os.path.abspath(f"copy-{number}.jpg"))
        os.link(uri, names[-1])
    return names


#: What is done with and without Beam; "first" and "more" are tables.
STEPS = """
tfrecorder.convert(first, out, **options)
tfrecorder.append(more, out, num_shards=2)
mend()
tfrecorder.append(first, out, retry_rejects=True)
tfrecorder.compact(out, drop=[drop])
tfrecorder.compact(out, out + "-elsewhere", num_shards=3)
tfrecorder.convert(first, out, overwrite="all", **options | {"num_shards": 1})
""".strip().splitlines()


def test_every_call_writes_the_same_bytes(plain: Environment, tables: dict[str, str]) -> None:
    drop = os.path.abspath("copy-3.jpg")

    values = {"options": {"num_shards": 4, "max_reject_fraction": 0.5}, "drop": drop, **tables}
    here = {"tfrecorder": tfrecorder, "out": "with", **values}
    told = "".join(f"{name} = {value!r}\n" for name, value in {**values, "out": "without"}.items())
    for step in STEPS:
        if step == "mend()":
            os.link(PHOTOS[3], "absent.jpg")
            continue
        exec(step, here)
        plain.does(f"{told}{step}")
        assert public_files("without") == public_files("with"), step
        assert public_files("without")
    assert public_files("without-elsewhere") == public_files("with-elsewhere")
    assert "all is well" in plain.command("verify", "without")


def test_a_command_shows_its_bar_and_its_result(plain: Environment, dataset: Path) -> None:
    done = plain.run(
        *("-m", "tfrecorder", "convert", CSV, "out", "--progress", "--num-threads", "1"),
        *("--num-shards", "TRAIN=3,VALIDATION=2,TEST=1"),
    )
    assert done.returncode == 0, done.stderr
    assert "52 records" in done.stdout
    assert "52/52" in done.stderr
    assert public_files("out") == public_files(dataset)


ROWS, SHARDS = 3000, 10
CALL = f"tfrecorder.convert('photos.csv', 'out', num_shards={SHARDS}, num_threads=1)"


@pytest.fixture
def photos() -> None:
    photo_frame(ROWS).to_csv("photos.csv", index=False)


@pytest.mark.usefixtures("photos")
@pytest.mark.parametrize("end", [stop, end_by_ctrl_c], ids=["killed", "interrupted"])
def test_what_was_ended_is_continued(plain: Environment, end: Callable[..., object]) -> None:
    process = plain.starts(CALL)
    wait_for(lambda: done_shards("out") >= 2)
    words = end(process)
    if end is end_by_ctrl_c:
        last = str(words).splitlines()[-1]
        assert last.startswith("KeyboardInterrupt: Interrupted: no partial file is left")
        assert "Run the same conversion again to continue" in last
    before = {path: path.stat().st_mtime_ns for path in Path("out").glob("*.tfrecord")}
    assert 2 <= len(before) < SHARDS
    plain.does(f"result = {CALL}\nassert result.shards_before >= 2, result")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    tfrecorder.convert("photos.csv", "whole", num_shards=SHARDS)
    assert public_files("out") == public_files("whole")


@pytest.mark.usefixtures("photos")
def test_beam_continues_what_was_begun_without_it(plain: Environment) -> None:
    process = plain.starts(CALL)
    wait_for(lambda: done_shards("out") >= 2)
    stop(process)
    assert tfrecorder.convert("photos.csv", "out", num_shards=SHARDS).shards_before >= 2


@pytest.mark.parametrize(
    "options", [{"max_reject_fraction": 0}, {"max_reject_fraction": 0.01}], ids=str
)
def test_rejects_end_it_with_the_same_words(
    plain: Environment, tables: dict[str, str], options: dict[str, object]
) -> None:
    options = {"num_shards": 1, "num_threads": 1, **options}
    words = error_of(RejectedError, tables["first"], "out", **options)
    Path("out").rename("with-beam")
    plain.does(
        f"""
try:
    tfrecorder.convert({tables["first"]!r}, "out", **{options!r})
except tfrecorder.errors.RejectedError as error:
    assert str(error) == {words!r}, error
else:
    raise AssertionError("it was committed")
"""
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--runner", "DirectRunner"],
        ["--runner", "FlinkRunner"],
        ["--runner-option", "save_main_session=false"],
    ],
    ids=" ".join,
)
def test_what_needs_beam_says_so_before_anything_is_written(
    plain: Environment, options: list[str]
) -> None:
    line = plain.refuses("convert", CSV, "out", *options)
    assert 'run `pip install "tfrecorder-images[beam]"`' in line
    assert not Path("out").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_need_no_beam(plain: Environment, workers: int) -> None:
    assert "52 records" in plain.command("convert", CSV, "out", "--num-workers", workers)
