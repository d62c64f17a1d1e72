"""A shard that was written again and came out different: which row's source has changed?"""

from __future__ import annotations

import os
from collections.abc import Iterator

import google_crc32c

from tfrecorder import storage
from tfrecorder.format.layout import Shard
from tfrecorder.format.tfrecord import Place, walk
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.output.staging import read_shard_rows
from tfrecorder.plan.plan import PlannedRow
from tfrecorder.verification.expectation import Expectation
from tfrecorder.verification.side_files import RowList, read_index, read_rejects


def changed_row(old: Expectation, new: Expectation, group: int) -> str | None:
    """The first row found to have changed, in words; None if what is left does not show it.

    Args:
        old: the dataset.
        new: the directory in which the shard was written again.
    """
    shard = old.plan.shards[group]
    rows = read_shard_rows(new.directory, group)
    rejected = read_rejects(new, shard)
    return _other_reject(read_rejects(old, shard), rejected) or _other_record(
        old, new, shard, [row for row in rows if row.row not in set(rejected.numbers)]
    )


def _other_reject(before: RowList, now: RowList) -> str | None:
    """The first row that is a reject now and was not before, or the other way round."""
    if before.rows is None:
        return None
    then = dict(zip(before.numbers, before.rows, strict=True))
    for number, row in zip(now.numbers, now.rows or (), strict=True):
        if then.pop(number, None) is None:
            return f"row {number}, image {row[1]!r}, cannot be used now ({row[3]})"
    for number, row in then.items():
        return f"row {number}, image {row[1]!r}, was a reject ({row[3]}) and can be used now"
    return None


def _other_record(
    old: Expectation, new: Expectation, shard: Shard, rows: list[PlannedRow]
) -> str | None:
    """The first record whose size, or whose data, differs from before."""
    places = read_index(new, shard)[0] or []
    before = read_index(old, shard)[0]
    for row, was, now in zip(rows, before or (), places, strict=False):
        if was[1] != now[1]:
            return f"row {row.row}, image {row.image_uri!r}, gives {now[1] - was[1]:+,} bytes now"
    then = dict(_sums(old, shard, before or places))
    now_sums = dict(_sums(new, shard, places))
    for row, (offset, _) in zip(rows, places, strict=False):
        if offset in then and then[offset] != now_sums[offset]:
            return f"row {row.row}, image {row.image_uri!r}, has other bytes now"
    return None


def _sums(where: Expectation, shard: Shard, places: list[Place]) -> Iterator[tuple[int, int]]:
    """Offset and CRC32C of the data of each sound record."""
    path = where.path(shard.file)
    if storage.size_or_none(path) is None:
        return
    with storage.local_copy(path) as copy, open(copy, "rb") as file:
        for met in walk(file, os.path.getsize(copy), places):
            if met.data is not None:
                yield met.offset, google_crc32c.value(met.data)


def describe(old: Expectation, new: Expectation, group: int, done: DoneRecord) -> str:
    """Why a shard was not written again, with its name and, if known, the row."""
    shard = old.plan.shards[group]
    row = changed_row(old, new, group)
    words = row or (
        f"it now comes out with {done.bytes:,} bytes and the CRC32C {done.crc32c:08x}, but it is "
        "not known which row changed"
    )
    reencoded = set(done.formats) - {"jpeg"}
    pillow = " (or another version of Pillow encodes its images differently)" if reencoded else ""
    return f"{shard.file}{pillow}: {words}"
