"""`verify` and `repair` of what was compacted, overwritten or abandoned, and beside what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.growing_cases import QUIET, table
from support import public_files

import tfrecorder
from tfrecorder.errors import RejectedError

OUT = Path("out")


def newest() -> Path:
    return sorted(OUT.glob("_tfrecorder/commits/*"))[-1]


def unfinished_append() -> None:
    """An append that was refused at its end, so that its plan is still there."""
    Path("none.jpg").write_bytes(b"no image")
    rows = table(10, 4)
    rows.loc[1:, "image_uri"] = "none.jpg"
    with pytest.raises(RejectedError):
        tfrecorder.append(rows, OUT, **QUIET)


def compacted() -> None:
    tfrecorder.convert(table(0, 10), OUT, num_shards=2, **QUIET)
    tfrecorder.append(table(10, 6).assign(split=["TRAIN", "TEST"] * 3), OUT, **QUIET)
    tfrecorder.append(table(20, 6), OUT, **QUIET)
    tfrecorder.compact(OUT, **QUIET)


def compacted_but_for_large_shards() -> None:
    tfrecorder.convert(table(0, 40), OUT, shard_size="20KB", **QUIET)
    for number in range(3):
        tfrecorder.append(table(40 + number, 1), OUT, **QUIET)
    tfrecorder.compact(OUT, shard_size="20KB", **QUIET)
    assert json.loads(newest().read_text())["kept"]


def overwritten() -> None:
    tfrecorder.convert(table(0, 10), OUT, num_shards=2, **QUIET)
    tfrecorder.convert(table(3, 9), OUT, num_shards=2, overwrite=True, **QUIET)


def abandoned() -> None:
    tfrecorder.convert(table(0, 10), OUT, num_shards=2, **QUIET)
    unfinished_append()
    tfrecorder.undo(OUT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [compacted, compacted_but_for_large_shards, overwritten, abandoned]
)
def test_what_replaced_or_abandoned_something_is_clean_and_comes_back(make) -> None:
    make()
    assert tfrecorder.verify(OUT).ok
    before, frame = public_files(OUT), tfrecorder.to_frame(OUT)
    shard = sorted(OUT.glob("*.tfrecord"))[0]
    for lost in (shard, OUT / "dataset_info.json", newest(), shard):
        lost.unlink()
        assert not tfrecorder.verify(OUT).ok
        assert tfrecorder.repair(OUT, **QUIET).files == (str(lost.relative_to(OUT)),)
        assert tfrecorder.verify(OUT).ok
        assert public_files(OUT) == before
        assert tfrecorder.to_frame(OUT).equals(frame)
    assert tfrecorder.append(table(50, 2), OUT, **QUIET).records == 2
    assert tfrecorder.verify(OUT).ok


def test_an_operation_under_way_is_left_alone() -> None:
    tfrecorder.convert(table(0, 10), OUT, num_shards=2, **QUIET)
    before = public_files(OUT)
    unfinished_append()
    private = {path: path.read_bytes() for path in OUT.rglob("_tfrecorder/*") if path.is_file()}
    assert tfrecorder.verify(OUT).ok
    for lost in ("train-00000.tfrecord", "dataset_info.json", "features.json"):
        (OUT / lost).unlink() if lost != "dataset_info.json" else (OUT / lost).write_text("{}")
        assert tfrecorder.repair(OUT, **QUIET).files == (lost,)
        assert public_files(OUT) == before
    assert {path: path.read_bytes() for path in private} == private
    tfrecorder.undo(OUT)
    assert tfrecorder.verify(OUT).ok


def test_a_split_that_the_newest_commit_left_alone_is_as_it_was() -> None:
    tfrecorder.convert(table(0, 12).assign(split=["TRAIN", "TEST"] * 6), OUT, **QUIET)
    tfrecorder.append(table(12, 3), OUT, **QUIET)
    before = public_files(OUT)
    (OUT / "dataset_info.json").unlink()
    tfrecorder.repair(OUT, **QUIET)
    assert public_files(OUT) == before
    assert tfrecorder.verify(OUT).ok
