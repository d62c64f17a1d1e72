"""A conversion that is stopped, however it is, is completed by the same call."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from helpers.public_types import ConversionResult
from support import (
    PHOTOS,
    TESTS,
    done_shards,
    end_by_ctrl_c,
    error_of,
    filenames,
    labelled,
    photo_frame,
    press_ctrl_c,
    public_files,
    start,
    stop,
    wait_for,
    written,
)

import tfrecorder
from tfrecorder.errors import OutputError, RejectedError

ROWS, SHARDS = 6000, 12

#: A conversion in its own process, long enough to be stopped in the middle.
CONVERT = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support import photo_frame
import tfrecorder
tfrecorder.convert(photo_frame({ROWS}), "out", num_shards={SHARDS}, num_threads=1, **%s)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a conversion in one go writes."""
    out = tmp_path_factory.mktemp("whole") / "out"
    tfrecorder.convert(photo_frame(ROWS), out, num_shards=SHARDS)
    return public_files(out)


def resume(**options: object) -> ConversionResult:
    return tfrecorder.convert(photo_frame(ROWS), "out", num_shards=SHARDS, **options)


def shards_are_whole(whole: dict[str, bytes]) -> bool:
    """True if every file under a final name is as it is to be."""
    return all(whole[name] == data for name, data in public_files("out").items())


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1, SHARDS - 1])
def test_a_killed_conversion_is_completed_to_the_same_bytes(whole, after: int) -> None:
    process = start(CONVERT % {})
    ready = (lambda: done_shards("out") >= after) if after else Path("out/_tfrecorder/tmp").exists
    wait_for(ready)
    stop(process)
    assert "dataset_info.json" not in public_files("out")
    assert shards_are_whole(whole)
    done = {path: path.stat().st_mtime_ns for path in Path("out").glob("*.tfrecord")}
    assert resume().records == ROWS
    assert public_files("out") == whole
    assert not Path("out/_tfrecorder/tmp").exists()
    if after > 1:
        kept = [path for path, changed in done.items() if path.stat().st_mtime_ns == changed]
        assert len(kept) >= after


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=str)
def test_ctrl_c_stops_at_once_and_says_how_to_go_on(whole, options: dict[str, int]) -> None:
    process = start(CONVERT % options)
    wait_for(lambda: done_shards("out") >= 1)
    children = psutil.Process(process.pid).children(recursive=True)
    # On a quiet machine it is over in one second; a busy one takes several to end the processes.
    words = end_by_ctrl_c(process, seconds=10)
    assert process.returncode != 0
    assert words.splitlines()[-1].startswith("KeyboardInterrupt: Interrupted: no partial file")
    assert len(words.splitlines()) < 25  # what the call itself went through, nothing of Beam
    assert "Run the same conversion again to continue" in words
    assert shards_are_whole(whole)
    psutil.wait_procs(children, timeout=60)
    assert not [child for child in children if child.is_running()]
    resume()
    assert public_files("out") == whole


@pytest.mark.slow
def test_ctrl_c_while_workers_start_ends_them_too() -> None:
    process = start(CONVERT % {"num_workers": 2})

    def workers() -> list[psutil.Process]:
        found = psutil.Process(process.pid).children(recursive=True)
        return [one for one in found if any("local_workers" in word for word in one.cmdline())]

    wait_for(lambda: len(workers()) == 2)
    children = workers()
    words = end_by_ctrl_c(process)
    assert words.splitlines()[-1].startswith("KeyboardInterrupt: Interrupted: no partial file")
    assert not psutil.wait_procs(children, timeout=60)[1]
    assert resume().records == ROWS


@pytest.mark.slow
def test_after_ctrl_c_nothing_goes_on_in_the_background() -> None:
    """In a notebook the process lives on after an interrupt."""
    code = CONVERT % {}
    code = code.replace("tfrecorder.convert(", "try:\n  tfrecorder.convert(")
    code += "except KeyboardInterrupt:\n  import time; print('stopped', flush=True); time.sleep(60)"
    process = start(code)
    wait_for(lambda: done_shards("out") >= 1)
    press_ctrl_c(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "stopped\n"
    time.sleep(0.5)
    before = sorted(os.listdir("out/_tfrecorder/done")), os.listdir("out/_tfrecorder/tmp")
    time.sleep(1.0)
    after = sorted(os.listdir("out/_tfrecorder/done")), os.listdir("out/_tfrecorder/tmp")
    stop(process)
    assert after == before
    assert after[1] == []


# ---------------------------------------------------------------- the rerun is another conversion


@pytest.fixture
def unfinished(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose conversion to "out" was stopped before the commit."""
    written(frame, num_shards=4)
    Path("out/_tfrecorder/done/train-00001.json").unlink()
    return frame


@pytest.mark.slow
def test_a_conversion_that_goes_on_says_what_was_there(unfinished: pd.DataFrame) -> None:
    result = tfrecorder.convert(unfinished, "out", num_shards=4)
    assert (result.records, result.shards_before, result.rows_before) == (52, 3, 39)
    assert "continued: 3 of 4 shards (39 rows) were there before" in str(result).splitlines()
    again = tfrecorder.convert(unfinished, "out", num_shards=4)
    assert (again.was_finished, "continued" in str(again)) == (True, False)
    anew = tfrecorder.convert(unfinished, "out", num_shards=4, overwrite=True)
    assert (anew.shards_before, "continued" in str(anew)) == (0, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_shards": 5}, "`num_shards` was 4 and now is 5"),
        ({"seed": 1}, "`seed` was 0 and now is 1"),
        ({"shuffle": False}, "`shuffle` was True and now is False"),
        ({"check": "header"}, "`check` was 'decode' and now is 'header'"),
        ({"schema": labelled("brick", "cat", "coffee", "gravel")}, "`schema` was not given and"),
    ],
    ids=str,
)
def test_other_options_are_refused_and_named(unfinished, options, words: str) -> None:
    message = error_of(OutputError, unfinished, **{"num_shards": 4, **options})
    assert words in message
    assert "an unfinished conversion" in message
    assert "`undo` abandons it, and `overwrite=True` starts again" in message


@pytest.mark.slow
def test_another_source_is_refused_and_named(unfinished: pd.DataFrame) -> None:
    fewer = unfinished.iloc[1:]
    assert "had 52 rows and now has 51" in error_of(OutputError, fewer, num_shards=4)
    changed = unfinished.assign(label="x")
    assert "the source's rows have changed" in error_of(OutputError, changed, num_shards=4)


@pytest.mark.slow
@pytest.mark.parametrize("option", [{"max_reject_fraction": 0}, {"max_reject_fraction": 0.5}])
def test_options_that_leave_the_files_as_they_are_may_change(unfinished, option) -> None:
    result = tfrecorder.convert(unfinished, "out", num_shards=4, num_threads=1, **option)
    assert result.records == 52
    tfrecorder.convert(unfinished, "fresh", num_shards=4)
    assert public_files("out") == public_files("fresh")


def test_overwrite_starts_an_unfinished_one_anew(unfinished: pd.DataFrame) -> None:
    assert tfrecorder.convert(unfinished, "out", overwrite=True, num_shards=2).records == 52
    assert len(list(Path("out").glob("*.tfrecord"))) == 2


def test_a_shard_that_was_cut_or_removed_is_written_again(unfinished: pd.DataFrame) -> None:
    os.truncate("out/train-00000.tfrecord", 100)
    Path("out/train-00003.tfrecord").unlink()
    tfrecorder.convert(unfinished, "out", num_shards=4)
    tfrecorder.convert(unfinished, "fresh", num_shards=4)
    assert public_files("out") == public_files("fresh")


def test_images_that_moved_with_their_csv_are_found_by_the_rerun() -> None:
    Path("disk").mkdir()
    for name, photo in (("a", PHOTOS[0]), ("b", PHOTOS[1])):
        Path(f"disk/{name}.jpg").write_bytes(photo.read_bytes())
    Path("disk/images.csv").write_text("TRAIN,a.jpg,x\nTRAIN,b.jpg,x\nTRAIN,c.jpg,x\n")
    error_of(RejectedError, "disk/images.csv")
    Path("disk").rename("other")
    Path("other/c.jpg").write_bytes(PHOTOS[2].read_bytes())
    assert tfrecorder.convert("other/images.csv", "out").records == 3


# ------------------------------------------------------------------------------------ full disk


@pytest.fixture
def small_disk() -> Path:
    """A file system of 400 KB, less than the photographs need."""
    where = Path("small")
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(where)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs root, to mount a small file system")
    yield where
    subprocess.run(["umount", str(where)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("full", ["", "nr_inodes=16"])  # then not even a note of it has room
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=str)
def test_a_full_disk_is_one_clear_error_and_a_rerun_with_room_completes(
    frame: pd.DataFrame, small_disk: Path, options: dict[str, int], full: str
) -> None:
    out = small_disk / "out"
    if full:
        subprocess.run(["mount", "-o", f"remount,{full}", str(small_disk)], check=True)
    message = error_of(OutputError, frame, out, num_shards=8, **options)
    assert f"{out} cannot be written: No space left on device" in message.replace(
        str(Path.cwd()) + "/", ""
    )
    assert not (out / "dataset_info.json").exists()
    subprocess.run(["mount", "-o", "remount,size=4m,nr_inodes=0", str(small_disk)], check=True)
    tfrecorder.convert(frame, out, num_shards=8)
    tfrecorder.convert(frame, "fresh", num_shards=8)
    assert public_files(out) == public_files("fresh")


def test_a_disk_too_full_for_the_plan(frame: pd.DataFrame, small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * 390_000)
    long = pd.concat([frame] * 100).assign(label=lambda f: [f"{n:040}" for n in range(len(f))])
    message = error_of(OutputError, long, small_disk / "out")
    assert "cannot be written: No space left on device. Free space there and repeat" in message
    (small_disk / "ballast").unlink()
    assert tfrecorder.convert(frame.iloc[:9], small_disk / "out").records == 9
    assert len(filenames(small_disk / "out")) == 9
