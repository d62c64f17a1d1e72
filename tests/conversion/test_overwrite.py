"""`overwrite=True`: the old dataset stands until the new one is complete."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import tensorflow_datasets as tfds
from helpers.public_types import ConversionResult
from support import content_files, error_of, examples, public_files
from torture.steps import Moment, convert_until

import tfrecorder
from tfrecorder.errors import DatasetError, OutputError, RejectedError

WAITING = Path("out/_tfrecorder/waiting")
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


def overwrite(frame: pd.DataFrame, **options: object) -> ConversionResult:
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


def check_is(directory: str, fresh: str, commits: int = 1) -> None:
    """A directory holds the dataset of another one, and nothing is left of what was there."""
    assert content_files(directory) == content_files(fresh)
    assert tfrecorder.info(directory).class_counts == tfrecorder.info(fresh).class_counts
    assert tfrecorder.generations(directory) == [commits]
    assert tfrecorder.verify(directory, progress=False).ok
    count = len(list(Path(fresh).glob("*.tfrecord")))
    private = [path.relative_to(directory).parts[1:] for path in Path(directory).rglob("_tf*/**/*")]
    folders = sorted(parts[0] for parts in private if len(parts) == 2)
    assert folders == ["commits", *["index"] * count, *["tables"] * count]
    assert {parts[0] for parts in private} == {"commits", "index", "tables", "lock"}


# -------------------------------------------------------------------------- an unfinished overwrite


def test_an_overwrite_that_fails_leaves_the_old_dataset(old, broken) -> None:
    words = fail(broken)
    assert "Nothing was committed" in words
    assert "out/_tfrecorder/waiting/rejects.csv" in words
    assert Path("out/_tfrecorder/waiting/rejects.csv").exists()
    assert public_files("out") == old
    assert tfrecorder.verify("out", progress=False).ok
    assert len(list(tfrecorder.load("out", split="TRAIN", batch_size=None))) == 52


@pytest.mark.slow
def test_the_same_overwrite_goes_on_where_it_stopped(old, broken) -> None:
    fail(broken)
    done = {path.name: path.stat().st_ino for path in WAITING.glob("*.tfrecord")}
    assert len(done) == 2
    mend(broken)
    assert overwrite(broken, max_reject_fraction=0.0).records == 52
    kept = [name for name, number in done.items() if Path("out", name).stat().st_ino == number]
    assert len(kept) == 1, "the shard without the image that was missing"
    tfrecorder.convert(broken, "fresh", **NEW)
    check_is("out", "fresh")


@pytest.mark.slow
def test_another_overwrite_begins_anew(old, broken, frame) -> None:
    fail(broken)
    assert overwrite(frame, num_shards=4).records == 52
    tfrecorder.convert(frame, "fresh", **{**NEW, "num_shards": 4})
    check_is("out", "fresh", commits=2)  # the first was given up: its number does not come again


def test_the_bar_comes_to_its_end(old, frame, capfd) -> None:
    overwrite(frame, progress=True)
    assert "100%" in capfd.readouterr().err


@pytest.mark.slow
def test_over_a_finished_dataset_the_same_overwrite_begins_anew(frame) -> None:
    tfrecorder.convert(frame, "out", **NEW)
    before = Path("out/dataset_info.json").stat().st_ino
    overwrite(frame)
    assert Path("out/dataset_info.json").stat().st_ino != before
    assert not WAITING.exists()


def test_an_unfinished_one_is_left_alone_by_whatever_is_another(old, broken, frame) -> None:
    fail(broken)
    before = all_files("out")
    for options in ({}, {"seed": 3}):
        words = error_of(OutputError, frame, **{**OLD, **options})
        assert "`undo` abandons it" in words
        assert "\n" not in words
    mend(broken)
    with pytest.raises(OutputError, match="run the same conversion again"):
        tfrecorder.append(broken.iloc[3:4], "out", progress=False)
    assert all_files("out") == before
    assert tfrecorder.undo("out").kind == "conversion"
    assert tfrecorder.convert(frame, "out", **OLD).was_finished


@pytest.mark.slow
def test_status_shows_an_unfinished_overwrite(old, broken) -> None:
    assert not tfrecorder.status("out").overwrites
    words = fail(broken)
    found = tfrecorder.status("out")
    assert (found.committed, found.overwrites, found.output_dir) == (False, True, "out")
    assert (found.shards, found.shards_done, found.rejects) == (2, 2, {"read/not_found": 1})
    assert found.failure == f"RejectedError: {words}"
    assert "overwrite: the finished dataset stays until this one takes its place" in str(found)
    assert "out/_tfrecorder/waiting/rejects.csv" in str(found)
    assert found.as_dict()["overwrites"]
    mend(broken)
    overwrite(broken, max_reject_fraction=0.0)
    found = tfrecorder.status("out")
    assert (found.committed, found.overwrites, found.shards) == (True, False, 2)


# ----------------------------------------------------------------------------- nothing stands there


@pytest.mark.slow
def test_into_a_new_directory_it_writes_directly(broken) -> None:
    fail(broken)
    assert not list(WAITING.glob("*.tfrecord"))
    done = {path.stat().st_ino for path in Path("out").glob("*.tfrecord")}
    assert len(done) == 2
    mend(broken)
    overwrite(broken, max_reject_fraction=0.0)
    kept = done & {path.stat().st_ino for path in Path("out").glob("*.tfrecord")}
    assert len(kept) == 1, "it went on, and did not begin anew"


@pytest.mark.slow
def test_an_unfinished_conversion_gives_way_to_another(broken, frame) -> None:
    fail(broken)
    overwrite(frame, num_shards=4)
    tfrecorder.convert(frame, "fresh", **{**NEW, "num_shards": 4})
    assert all_files("out") == all_files("fresh")


# --------------------------------------------------------------------------------------- the commit

#: Tables that replace `frame`, by how its features and classes fit theirs.
REPLACEMENTS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "fits": lambda frame: frame.iloc[:40],
    "extends": lambda frame: frame.assign(label=[*["zebra"] * 2, *frame["label"][2:]]),
    "shrinks": lambda frame: frame[frame["label"].isin(["brick", "cat"])],
    "differs": lambda frame: frame.assign(label=[*["aardvark"] * 2, *frame["label"][2:]]),
    "has no labels": lambda frame: frame.drop(columns="label"),
}


def kill(changes: int, **options: object) -> bool:
    """Kill a conversion at so many changes after the first of the directory's own commit."""
    source, out = (str(Path(name).absolute()) for name in ("new.csv", "out"))
    return convert_until(Moment(changes, "dataset_info.json"), source, out, **options)


@pytest.fixture
def stop(frame: pd.DataFrame, old) -> Callable[..., pd.DataFrame]:
    """Kills an overwrite after so many changes from its commit on; 0 is before the first."""

    def stop(changes: int, replacement: str = "fits") -> pd.DataFrame:
        new = REPLACEMENTS[replacement](frame)
        new.to_csv("new.csv", index=False)
        assert kill(changes, overwrite=True, num_shards=2)
        tfrecorder.convert("new.csv", "fresh", **NEW)
        return new

    return stop


def by_tfds(directory: str) -> list[tuple[str, bytes]]:
    """The images of TRAIN and their class names, as TFDS reads them."""
    info = tfds.builder_from_directory(directory).info
    classes = info.features["image/class/label"]
    paths = info.splits["train"].filepaths
    found = [record for path in sorted(paths) for record in examples(path)]
    assert len(found) == info.splits["train"].num_examples
    return sorted(
        (classes.int2str(int(one["image/class/label"][0])), one["image/encoded"][0])
        if "names" in dir(classes) and classes.names
        else ("", one["image/encoded"][0])
        for one in found
    )


@pytest.mark.slow
@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_before_the_commit_a_reader_sees_the_old_dataset_or_none(
    stop, old, frame, replacement: str
) -> None:
    tfrecorder.convert(frame, "copy", **OLD)
    stands = replacement != "differs"
    stop(0 if stands else 1, replacement)
    if stands:
        assert by_tfds("out") == by_tfds("copy")
        assert tfrecorder.info("out").class_counts == tfrecorder.info("copy").class_counts
        faults = {fault.file for fault in tfrecorder.verify("out", progress=False).found}
        extended = {"features.json", "image.class.label.labels.txt"}
        assert faults == (extended if replacement == "extends" else set())
    else:
        assert not Path("out/dataset_info.json").exists()
        for read in (tfrecorder.load, tfrecorder.info, tfrecorder.to_frame):
            with pytest.raises(DatasetError, match="is not committed yet"):
                read("out")
    found = tfrecorder.status("out")
    assert (found.committed, found.overwrites) == (False, True)
    assert overwrite("new.csv").shards_before == 2
    assert by_tfds("out") == by_tfds("fresh")
    check_is("out", "fresh")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [1, 5])
@pytest.mark.parametrize("options", [{"overwrite": True}, {}], ids=str)
def test_after_the_commit_the_same_call_gives_its_result(stop, options, changes: int) -> None:
    stop(changes)
    assert tfrecorder.info("out").records == 40
    assert by_tfds("out") == by_tfds("fresh")
    assert tfrecorder.status("out").committed
    result = tfrecorder.convert("new.csv", "out", **NEW, **options)
    assert (result.records, result.splits["TRAIN"].shards, result.was_finished) == (40, 2, True)
    check_is("out", "fresh")


@pytest.mark.slow
def test_another_call_completes_it_first(stop, frame) -> None:
    stop(1)
    assert "is a finished dataset" in error_of(OutputError, frame, **{**NEW, "num_shards": 5})
    check_is("out", "fresh")
    assert overwrite(frame, num_shards=5).splits["TRAIN"].shards == 5


@pytest.mark.slow
def test_a_foreign_file_stops_an_overwrite_before_its_commit(stop, frame) -> None:
    stop(0)
    Path("out/train-r2-00002.tfrecord").write_text("mine")
    before = all_files("out")
    words = error_of(OutputError, "new.csv", **NEW, overwrite=True)
    assert "holds 'train-r2-00002.tfrecord'" in words
    assert all_files("out") == before
    Path("out/train-r2-00002.tfrecord").unlink()
    overwrite("new.csv")
    check_is("out", "fresh")


def test_a_foreign_file_that_comes_during_an_overwrite_stays(old, frame) -> None:
    tfrecorder.parts.stage(frame, "out", num_shards=2, overwrite=True)
    tfrecorder.parts.work("out", progress=False)
    mine = Path("out/train-00077.tfrecord")
    mine.write_text("mine")
    with pytest.raises(OutputError, match="train-00077"):
        tfrecorder.parts.commit("out")
    assert mine.read_text() == "mine"
    mine.unlink()
    assert public_files("out") == old


@pytest.mark.slow
def test_a_second_attempt_of_the_last_step_does_no_harm(stop) -> None:
    """A machine that is taken for lost is replaced by another, which does its work once more."""
    stop(1)
    for _ in range(2):
        tfrecorder.parts.commit("out")
    check_is("out", "fresh")


@pytest.mark.parametrize("name", ["waiting", "tables", "done"])
def test_no_link_in_the_place_of_a_folder_is_written_through(old, frame, name: str) -> None:
    tfrecorder.convert(frame, "mine", **NEW)
    before = all_files("mine")
    link = Path("out/_tfrecorder", name)
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(Path("mine").absolute())
    words = error_of(OutputError, frame, **NEW, overwrite=True)
    assert "is a link" in words
    assert all_files("mine") == before
    assert public_files("out") == old
