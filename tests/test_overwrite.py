"""`overwrite=True`: the old dataset stands until the new one is complete."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from support import error_of, public_files
from torture.steps import Moment, convert_until

import tfrecorder
from tfrecorder import DatasetError, OptionError, OutputError, RejectedError

NEXT = Path("out/_tfrecorder/next")
OLD = {"num_shards": 3, "progress": False}
NEW = {"num_shards": 2, "progress": False}


@pytest.fixture
def old(frame: pd.DataFrame) -> dict[str, bytes]:
    """The files of a finished dataset in "out"."""
    tfrecorder.convert(frame, "out", **OLD)
    return public_files("out")


@pytest.fixture
def broken(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame whose conversion fails at its end, for one image is not there."""
    return frame.assign(image_uri=frame["image_uri"].where(frame.index != 3, "late.jpg"))


def overwrite(frame: pd.DataFrame, **options: object) -> tfrecorder.ConversionResult:
    return tfrecorder.convert(frame, "out", **{**NEW, "overwrite": True, **options})


def fail(broken: pd.DataFrame, **options: object) -> str:
    """An overwrite that stops before its commit; its words."""
    options = {**NEW, "overwrite": True, "max_reject_fraction": 0.0, **options}
    return error_of(RejectedError, broken, **options)


def mend(broken: pd.DataFrame) -> None:
    shutil.copyfile(broken["image_uri"][0], "late.jpg")


def all_files(directory: str) -> dict[str, bytes]:
    paths = [path for path in Path(directory).rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


# -------------------------------------------------------------------------- an unfinished overwrite


def test_an_overwrite_that_fails_leaves_the_old_dataset(old, broken) -> None:
    words = fail(broken)
    assert "Nothing was committed" in words
    assert "out/_tfrecorder/next/_tfrecorder/rejects" in words
    assert public_files("out") == old
    assert tfrecorder.verify("out", progress=False).ok
    assert len(list(tfrecorder.load("out", split="TRAIN", batch_size=None))) == 52


def test_the_same_overwrite_goes_on_where_it_stopped(old, broken) -> None:
    fail(broken)
    shards = sorted(NEXT.glob("*.tfrecord"))
    done = {path.name: path.stat().st_ino for path in shards}
    mend(broken)
    assert overwrite(broken, max_reject_fraction=0.0).records == 52
    kept = [name for name, number in done.items() if Path("out", name).stat().st_ino == number]
    assert len(kept) == 1, "the shard without the image that was missing"
    tfrecorder.convert(broken, "fresh", **NEW)
    assert all_files("out") == all_files("fresh"), "also those of _tfrecorder/"


@pytest.mark.slow
def test_another_overwrite_begins_anew(old, broken, frame) -> None:
    fail(broken)
    assert overwrite(frame, num_shards=4).records == 52
    tfrecorder.convert(frame, "fresh", **{**NEW, "num_shards": 4})
    assert all_files("out") == all_files("fresh")


def test_the_bar_comes_to_its_end(old, frame, capfd) -> None:
    overwrite(frame, progress=True)
    assert "100%" in capfd.readouterr().err


def test_over_a_finished_dataset_the_same_overwrite_begins_anew(frame) -> None:
    tfrecorder.convert(frame, "out", **NEW)
    before = Path("out/dataset_info.json").stat().st_ino
    overwrite(frame)
    assert Path("out/dataset_info.json").stat().st_ino != before
    assert not NEXT.exists()


def test_without_overwrite_an_unfinished_one_is_left_alone(old, broken, frame) -> None:
    fail(broken)
    before = all_files("out")
    assert tfrecorder.convert(frame, "out", **OLD).was_finished
    words = "is a finished dataset. Give `overwrite=True`"
    assert words in error_of(OutputError, frame, **{**OLD, "seed": 3})
    assert all_files("out") == before
    tfrecorder.convert(frame, "out", retry_rejects=True, **OLD)
    assert public_files("out") == old
    assert len(list(NEXT.glob("*.tfrecord"))) == 2
    assert not tfrecorder.repair("out", progress=False).files


def test_status_shows_an_unfinished_overwrite(old, broken) -> None:
    assert not tfrecorder.status("out").overwrites
    words = fail(broken)
    found = tfrecorder.status("out")
    assert (found.committed, found.overwrites, found.output_dir) == (False, True, "out")
    assert (found.shards, found.shards_done, found.rejects) == (2, 2, {"read/not_found": 1})
    assert found.failure == f"RejectedError: {words}"
    assert "overwrite: the finished dataset stays until this one takes its place" in str(found)
    assert "see out/_tfrecorder/next/_tfrecorder/rejects" in str(found)
    assert found.as_dict()["overwrites"]
    mend(broken)
    overwrite(broken, max_reject_fraction=0.0)
    found = tfrecorder.status("out")
    assert (found.committed, found.overwrites, found.shards) == (True, False, 2)


# ----------------------------------------------------------------------------- nothing stands there


def test_into_a_new_directory_it_writes_directly(broken) -> None:
    fail(broken)
    assert not NEXT.exists()
    assert len(list(Path("out").glob("*.tfrecord"))) == 2
    done = {path.stat().st_ino for path in Path("out").glob("*.tfrecord")}
    mend(broken)
    overwrite(broken, max_reject_fraction=0.0)
    kept = done & {path.stat().st_ino for path in Path("out").glob("*.tfrecord")}
    assert len(kept) == 1, "it went on, and did not begin anew"


def test_an_unfinished_conversion_gives_way_to_another(broken, frame) -> None:
    fail(broken)
    overwrite(frame, num_shards=4)
    tfrecorder.convert(frame, "fresh", **{**NEW, "num_shards": 4})
    assert all_files("out") == all_files("fresh")


def test_the_folder_of_an_overwrite_is_no_output_directory(old, frame) -> None:
    words = error_of(OptionError, frame, NEXT, progress=False)
    assert "an overwrite of " in words
    assert not NEXT.exists()


# ------------------------------------------------------------------------------------- the exchange


def kill(changes: int, **options: object) -> bool:
    """Kill a conversion at so many changes after the first of the directory's own commit."""
    source, out = (str(Path(name).absolute()) for name in ("new.csv", "out"))
    return convert_until(Moment(changes, "dataset_info.json"), source, out, **options)


@pytest.fixture
def stop(frame: pd.DataFrame, old) -> Callable[[int], None]:
    """Kills an overwrite after so many changes of its exchange; 0 is before the first."""

    def stop(changes: int) -> None:
        frame.to_csv("new.csv", index=False)
        assert kill(changes, overwrite=True, num_shards=2)

    return stop


@pytest.mark.slow
def test_a_new_dataset_that_waits_for_its_exchange_leaves_the_old_one(stop, old, frame) -> None:
    stop(0)
    assert (NEXT / "dataset_info.json").exists()
    assert public_files("out") == old
    found = tfrecorder.status("out")
    assert (found.overwrites, found.rows_through, found.rows) == (True, 52, 52)
    overwrite(frame)
    assert len(list(Path("out").glob("*.tfrecord"))) == 2
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
def test_retries_in_the_old_dataset_do_not_begin_the_exchange(stop, old) -> None:
    """They take its commit away for a while."""
    stop(0)
    assert kill(1, retry_rejects=True, num_shards=3)
    assert not Path("out/dataset_info.json").exists()
    with pytest.raises(DatasetError, match="is not committed yet"):
        tfrecorder.info("out")
    assert tfrecorder.status("out").shards == 3
    tfrecorder.convert("new.csv", "out", retry_rejects=True, **OLD)
    assert public_files("out") == old
    assert tfrecorder.status("out").overwrites


@pytest.mark.slow
def test_what_gives_way_takes_the_unfinished_overwrite_with_it(stop, frame) -> None:
    stop(0)
    assert kill(1, retry_rejects=True, num_shards=3)
    overwrite(frame, num_shards=5)
    tfrecorder.convert(frame, "fresh", **{**NEW, "num_shards": 5})
    assert all_files("out") == all_files("fresh")


def test_between_the_two_readers_name_the_command_that_completes_it(stop) -> None:
    stop(12)
    words = "a new dataset is about to take the place of the old one.*`tfrecorder repair out`"
    for read in (tfrecorder.load, tfrecorder.info, tfrecorder.verify, tfrecorder.to_frame):
        with pytest.raises(DatasetError, match=words):
            read("out")
    found = tfrecorder.status("out")
    assert (found.committed, found.overwrites) == (False, False)
    assert (found.rows_through, found.shards_done, found.shards) == (52, 2, 2)
    tfrecorder.repair("out", progress=False)
    assert tfrecorder.status("out").committed
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"overwrite": True}, {}], ids=str)
def test_the_same_call_completes_it_and_gives_its_result(stop, options) -> None:
    stop(12)
    result = tfrecorder.convert("new.csv", "out", **NEW, **options)
    assert (result.records, result.splits["TRAIN"].shards) == (52, 2)
    tfrecorder.convert("new.csv", "fresh", **NEW)
    assert all_files("out") == all_files("fresh")


@pytest.mark.slow
def test_another_call_completes_it_first(stop, frame) -> None:
    stop(12)
    assert "is a finished dataset" in error_of(OutputError, frame, **{**NEW, "num_shards": 5})
    assert len(list(Path("out").glob("*.tfrecord"))) == 2
    assert tfrecorder.verify("out", progress=False).ok
    assert overwrite(frame, num_shards=5).splits["TRAIN"].shards == 5


@pytest.mark.slow
def test_a_foreign_file_stops_the_exchange_before_it_begins(stop, old, frame) -> None:
    stop(0)
    mine = Path("out/train-00000.tfrecord")
    mine.write_text("mine")
    assert "holds 'train-00000.tfrecord'" in error_of(OutputError, "new.csv", **NEW, overwrite=True)
    mine.rename("elsewhere")
    assert public_files("out") == old
    overwrite(frame)
    assert tfrecorder.verify("out", progress=False).ok


def test_a_foreign_file_that_comes_during_an_overwrite_stays(old, frame) -> None:
    tfrecorder.stage(frame, "out", num_shards=2, overwrite=True)
    tfrecorder.work("out", progress=False)
    mine = Path("out/train-00001.tfrecord")
    mine.write_text("mine")
    with pytest.raises(OutputError, match="train-00001"):
        tfrecorder.commit("out")
    assert mine.read_text() == "mine"
    mine.unlink()
    assert public_files("out") == old


@pytest.mark.slow
def test_a_second_attempt_of_the_last_step_does_no_harm(stop, frame) -> None:
    """A machine that is taken for lost is replaced by another, which does its work once more."""
    stop(12)
    for _ in range(2):
        tfrecorder.commit("out")
    tfrecorder.convert("new.csv", "fresh", **NEW)
    assert all_files("out") == all_files("fresh")


@pytest.mark.parametrize("name", ["next", "next/_tfrecorder", "next/_tfrecorder/done"])
def test_no_link_in_the_place_of_a_folder_is_written_through(old, frame, name: str) -> None:
    tfrecorder.convert(frame, "mine", **NEW)
    before = all_files("mine")
    link = Path("out/_tfrecorder", name)
    link.parent.mkdir(parents=True, exist_ok=True)
    target = Path("mine", "" if name == "next" else name.removeprefix("next/"))
    link.symlink_to(target.absolute())
    words = error_of(OutputError, frame, **NEW, overwrite=True)
    assert "is a link" in words
    assert all_files("mine") == before
    assert public_files("out") == old
