"""Datasets of form 4 that lost a file come back to the byte, or `repair` says what did not.

`kept_datasets.py` says how they were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.damage import all_files, restore
from helpers.kept_datasets import QUIET, TO_ITS_END, Camera, Post, picture
from kept_cases import KEPT, Kept, begin, case_id, check, finished, found_in, state_of
from support import examples, public_files

import tfrecorder
from tfrecorder.errors import DatasetError, SourceError

READY = {kept.name: kept for kept in KEPT if not kept.pending}
PENDING = [kept for kept in KEPT if kept.pending]

OUT = Path("out")
COMMITS = "_tfrecorder/commits/*"
TABLES = "_tfrecorder/tables/*"
INDEXES = "_tfrecorder/index/*"

all_ready = pytest.mark.parametrize("kept", READY.values(), ids=case_id)


def each_lost(kept: Kept, *patterns: str) -> Iterator[str]:
    """The files that a pattern fits; while it has one, `out` is the dataset without it."""
    begin(kept)
    files = all_files(OUT)
    names = sorted(str(path.relative_to(OUT)) for of in patterns for path in OUT.glob(of))
    assert names
    for name in names:
        restore(OUT, files)
        Path(OUT, name).unlink()
        yield name


def is_as_kept(kept: Kept) -> bool:
    """Every file is, but for manifests, which a later version writes in its own form.

    Where an update cannot be taken back, what it replaced is not kept any more.
    """
    passing = ["_tfrecorder/commits/"]
    passing += ["_tfrecorder/before/"] if kept.undone is None else []
    now, then = (
        {name: data for name, data in all_files(out).items() if not name.startswith((*passing,))}
        for out in (OUT, kept.folder)
    )
    return now == then


def repair(kept: Kept, lost: str) -> None:
    """The file is missed and written again; every public byte is as it was, and the rest said."""
    assert not tfrecorder.verify(OUT, progress=False).ok, lost
    result = tfrecorder.repair(OUT, base=".", **QUIET)
    assert public_files(OUT) == public_files(kept.folder), lost
    if lost.startswith("_tfrecorder/commits/"):  # the newest one says all
        newest = max(OUT.glob(COMMITS))
        assert str(newest.relative_to(OUT)) in result.files
        assert result.lost, lost
        return
    assert lost in result.files
    as_before = Path(OUT, lost).read_bytes() == Path(kept.folder, lost).read_bytes()
    assert as_before or result.lost, lost


@pytest.mark.slow
@all_ready
def test_what_follows_from_other_files_comes_back(kept: Kept) -> None:
    for lost in each_lost(kept, INDEXES, "*.json", "*.txt", "*.csv"):
        repair(kept, lost)
        assert is_as_kept(kept), lost


@pytest.mark.slow
@all_ready
def test_a_shard_comes_back_from_its_sources(kept: Kept) -> None:
    without = {kept.uri(number) for number in kept.as_bytes}
    for lost in each_lost(kept, "*.tfrecord"):
        records = examples(kept.folder / lost)
        if without.isdisjoint(record["image/filename"][0].decode() for record in records):
            repair(kept, lost)
            assert is_as_kept(kept), lost
        else:
            with pytest.raises(SourceError, match="its images came as bytes"):
                tfrecorder.repair(OUT, base=".", **QUIET)


@pytest.mark.slow
@all_ready
def test_a_table_is_made_again(kept: Kept) -> None:
    state = state_of(kept)
    for lost in each_lost(kept, TABLES):
        repair(kept, lost)
        check(kept, state)


@pytest.mark.slow
@all_ready
def test_the_newest_manifest_is_made_again(kept: Kept) -> None:
    *_, newest = each_lost(kept, COMMITS)  # which `out` is without at the end
    repair(kept, newest)
    check(kept, state_of(kept))
    # The options may be lost, as is said, and the schema is one of them.
    tfrecorder.append(kept.table(kept.new), "out", schema=kept.schema, **QUIET)
    check(kept, state_of(kept, [*kept.numbers, *kept.new]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["boxes", "stream", "removal", "raw", "rejects", "compacted"])
def test_an_earlier_manifest_is_made_again(name: str) -> None:
    """Where all records were added by a commit that was not replaced since."""
    kept = READY[name]
    for lost in each_lost(kept, COMMITS):
        repair(kept, lost)
        check(kept, state_of(kept))


@pytest.mark.slow
@all_ready
def test_no_row_comes_twice_after_a_table_was_lost(kept: Kept) -> None:
    """An append either knows the rows by their places, or says that it does not."""
    numbers = [number for number in kept.numbers if number not in kept.as_bytes]
    for lost in each_lost(kept, TABLES):
        repair(kept, lost)
        known = kept.known([*numbers, *kept.stays_out])
        try:
            result = tfrecorder.append(known, "out", **QUIET)
        except DatasetError:
            continue
        assert (result.rows_there, result.removed) == (len(numbers), len(kept.stays_out))


@pytest.mark.slow
def test_a_stream_goes_on_behind_its_rows_or_says_that_it_cannot() -> None:
    kept = READY["stream"]
    refused = []
    for lost in each_lost(kept, TABLES, COMMITS):
        repair(kept, lost)
        assert tfrecorder.stream(Camera(11), "out", **TO_ITS_END).records == 2
        try:
            assert tfrecorder.stream(Post([*kept.as_bytes, 23]), "out", **TO_ITS_END).records == 1
        except DatasetError:
            refused.append(lost)
    assert len(refused) == 2  # the tables of the rows that had their positions in no manifest


@pytest.mark.slow
def test_lost_marks_are_said() -> None:
    kept = READY["removal"]
    for lost in each_lost(kept, "_tfrecorder/removed/*"):
        assert not tfrecorder.verify(OUT, progress=False).ok, lost
        assert tfrecorder.repair(OUT, **QUIET).lost
        assert public_files(OUT) == public_files(kept.folder)


@pytest.mark.slow
def test_what_undo_will_use_is_verified() -> None:
    for lost in each_lost(READY["corrections"], "_tfrecorder/before/*", COMMITS):
        assert not tfrecorder.verify(OUT, progress=False).ok, lost


@pytest.mark.slow
@pytest.mark.parametrize("kept", PENDING, ids=case_id)
def test_what_is_staged_is_completed_after_a_repair(kept: Kept) -> None:
    staged = ("_tfrecorder/done/*", "_tfrecorder/waiting/*")
    for lost in each_lost(kept, INDEXES, TABLES, COMMITS, "*.tfrecord", *staged):
        tfrecorder.repair(OUT, base=".", **QUIET)
        tfrecorder.parts.work(OUT, **QUIET)
        tfrecorder.parts.commit(OUT)
        assert found_in(OUT, kept.has_boxes) == finished(kept), lost
        assert tfrecorder.verify(OUT, progress=False).ok, lost


def test_a_shard_of_an_earlier_version_that_comes_out_different_says_so() -> None:
    """Its pixels may differ by the version alone; here a source is another, as if by that."""
    kept = READY["rejects"]
    begin(kept)
    shard = next(OUT.glob("*.tfrecord"))
    shard.unlink()
    for number in kept.numbers:
        Path(kept.uri(number)).write_bytes(picture(number + 1))
    with pytest.raises(SourceError, match=f"{shard.name}: an earlier version of tfrecorder wrote"):
        tfrecorder.repair(OUT, base=".", **QUIET)
