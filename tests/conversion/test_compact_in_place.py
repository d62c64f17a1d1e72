"""`compact` in place: small shards are merged, large ones stay the files that they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.growing_cases import QUIET, drawn, table
from helpers.public_types import ConversionResult
from support import shards

import tfrecorder


def compact(**options: object) -> ConversionResult:
    result = tfrecorder.compact("out", **{**QUIET, **options})
    assert isinstance(result, ConversionResult)
    return result


def grown(first: int = 16) -> None:
    """Large shards of TRAIN, then small ones; all shards of TEST are small."""
    tfrecorder.convert(table(0, first), "out", num_shards=2, **QUIET)
    for number in range(3):
        rows = table(0, 6).assign(image_uri=drawn(f"more{number}", 6, (60, 40)))
        rows.loc[4:, "split"] = "TEST"
        tfrecorder.append(rows, "out", num_shards=1, **QUIET)


def inodes(split: str) -> set[int]:
    return {Path(shard).stat().st_ino for shard in shards("out", split)}


def test_large_shards_stay_and_small_ones_are_merged() -> None:
    grown()
    size = min(Path(shard).stat().st_size for shard in shards("out", "TRAIN")[:2])
    before, first = tfrecorder.to_frame("out").sort_index(), inodes("TRAIN")
    lists = {name: Path("out", name).read_bytes() for name in ("rejects.csv", "suspects.csv")}
    result = compact(shard_size=size)
    assert [Path(shard).name for shard in shards("out", "TRAIN")] == [
        *(f"train-r2-0000{number}.tfrecord" for number in range(len(shards("out", "TRAIN"))))
    ]
    assert len(inodes("TRAIN") & first) == 2
    assert result.splits["TRAIN"].records == 28
    assert not any(Path("out").glob("train-0*"))
    assert tfrecorder.to_frame("out").sort_index().equals(before)
    assert {name: Path("out", name).read_bytes() for name in lists} == lists
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
def test_what_is_compacted_is_not_written_again() -> None:
    grown()
    compact()
    standing = inodes("")
    again = compact()
    assert again.was_finished
    assert inodes("") == standing
    tfrecorder.append(table(40, 4), "out", **QUIET)
    assert not compact().was_finished


def test_a_dataset_of_large_shards_is_left_alone() -> None:
    tfrecorder.convert(table(0, 16), "out", num_shards=2, **QUIET)
    size = min(Path(shard).stat().st_size for shard in shards("out"))
    assert compact(shard_size=size).was_finished
    assert tfrecorder.generations("out") == [0]


@pytest.mark.slow
def test_positions_and_the_next_append_go_on_from_it() -> None:
    grown()
    compact(num_shards=1)
    known = tfrecorder.append(table(0, 18), "out", **QUIET)
    assert isinstance(known, ConversionResult)
    assert (known.rows_there, known.records) == (16, 2)
    assert Path("out/train-r2-00001.tfrecord").exists()
    assert int(tfrecorder.to_frame("out").index.max()) == 35
    with pytest.raises(tfrecorder.errors.DatasetError, match="replaced what was there before"):
        tfrecorder.to_frame("out", at=0)
