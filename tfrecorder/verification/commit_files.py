"""The files of the commit: are they what the plan and the done-records produce?

Each is made again, by the functions of the commit itself, and compared byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import google_crc32c

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.output.staging import shard_row_blocks
from tfrecorder.verification.expectation import (
    Expectation,
    other_sums,
    parquet_errors,
    unread,
)
from tfrecorder.verification.faults import Fault
from tfrecorder.writing import metadata
from tfrecorder.writing.shards import REJECT_HEADER, SUSPECT_HEADER, in_order, rows_of_csv, to_csv
from tfrecorder.writing.tfds import class_files, public_files


def commit_files(expected: Expectation, done: Mapping[Shard, DoneRecord]) -> dict[str, bytes]:
    """Each file of the commit that follows from the plan and the done-records of all shards."""
    plan = expected.plan
    files = public_files(plan, done)
    if expected.staged:
        files[layout.METADATA] = metadata.metadata_json(plan, done, expected.files)
    return files


def common_files(expected: Expectation) -> int:
    """How many files are checked in addition to those of the shards."""
    others = {layout.PLAN, layout.PLAN_ROWS, layout.METADATA, layout.REJECTS, layout.SUSPECTS}
    return len(others | {layout.FEATURES, layout.COMMIT, *class_files(expected.plan)})


def check_commit(expected: Expectation, done: Mapping[Shard, DoneRecord]) -> Iterator[Fault]:
    """Find files of the commit that are not what they must be.

    Args:
        done: the done-records; nothing is compared unless all are there.
    """
    if len(done) < len(expected.plan.shards):
        return
    reported = {fault.file for fault in expected.faults}
    for file, wanted in commit_files(expected, done).items():
        try:
            found = expected.read(file)
        except storage.UnreadableError as error:
            if file not in reported:
                yield unread(file, error)
            continue
        if file not in reported and found != wanted:
            yield Fault(file, "differs", _first_difference(found, wanted))


def _first_difference(found: bytes, wanted: bytes) -> str:
    """The first line that differs between two texts, in words."""
    theirs, ours = found.split(b"\n"), wanted.split(b"\n")
    pairs = enumerate(zip(theirs, ours, strict=False), 1)
    for number, (one, other) in pairs:
        if one != other:
            return f"line {number} is {_short(one)}, but must be {_short(other)}"
    return f"it has {len(found):,} bytes, but must have {len(wanted):,}"


def _short(line: bytes, limit: int = 60) -> str:
    text = line.decode(errors="backslashreplace").strip()
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def check_gathered(expected: Expectation, damaged: frozenset[str]) -> Iterator[Fault]:
    """Find rows of rejects.csv and suspects.csv that differ from those of the shards' lists.

    Args:
        damaged: files known to be damaged; nothing is compared with them.
    """
    shards = expected.plan.shards
    proved = {file for shard in expected.done for file in shard.beside.values()}
    lists = {
        layout.REJECTS: (REJECT_HEADER, [shard.rejects for shard in shards]),
        layout.SUSPECTS: (SUSPECT_HEADER, [shard.suspects for shard in shards]),
    }
    for file, (header, parts) in lists.items():
        if _has_sums(expected, file):
            continue
        if damaged.isdisjoint(parts):
            yield from _check_list(expected, file, to_csv(header, []), parts, proved)
        elif not storage.exists(expected.path(file)):
            yield Fault(file, "missing", "it is missing")


def _has_sums(expected: Expectation, file: str) -> bool:
    """True if a file has the size and CRC32C that the commit noted."""
    known = expected.files.get(file)
    if known is None:
        return False
    try:
        return other_sums(file, *storage.sums(expected.path(file)), known) is None
    except (storage.UnreadableError, OSError):
        return False


def _check_list(
    expected: Expectation, file: str, header: bytes, parts: list[str], proved: Collection[str]
) -> Iterator[Fault]:
    try:
        found = expected.read(file)
        bodies = _bodies(expected, header, parts)
    except storage.UnreadableError as error:
        yield unread(file, error)
        return
    if not found.startswith(header):
        yield Fault(file, "damaged", f"its first line is not {header.decode().strip()!r}")
        return
    body = found[len(header) :]
    if body == in_order(bodies.values()):
        return
    try:
        rows = set(rows_of_csv(body))
    except ValueError:
        rows = set()
    for part, own in bodies.items():
        if not rows.issuperset(rows_of_csv(own)):
            words = "" if part in proved else ": one of the two is damaged"
            yield Fault(file, "differs", f"it does not hold the rows of {part}{words}")
            if part not in proved:
                yield Fault(part, "differs", f"its rows are not in {file}{words}")
            return
    yield Fault(file, "differs", "its rows are not those of the shards' lists")


def _bodies(expected: Expectation, header: bytes, parts: list[str]) -> dict[str, bytes]:
    """The rows of the shards' lists; lists with only a header need not be read."""
    empty = google_crc32c.value(header)
    filled = [part for part in parts if not expected.stands_as(part, empty)]
    found = storage.each(expected.read, filled, expected.directory)
    read = dict(zip(filled, found, strict=True))
    return {part: read.get(part, header)[len(header) :] for part in parts}


def check_names(expected: Expectation) -> Iterator[Fault]:
    """Shards in the directory that do not belong to the dataset."""
    known = {shard.file for shard in expected.plan.shards}
    for name in storage.names(expected.directory):
        if name not in known and ".tfrecord" in name and not name.startswith("."):
            words = "this dataset does not list it, but readers of *.tfrecord would include it"
            yield Fault(name, "foreign_shard", words)


def check_plan_rows(expected: Expectation) -> Iterator[Fault]:
    """Find staged rows that are not as they were written.

    If no checksum of them is known, every row group is read; its pages have checksums.
    """
    known = expected.files.get(layout.PLAN_ROWS)
    if known is None:
        yield from _check_row_groups(expected)
        return
    try:
        fault = other_sums(layout.PLAN_ROWS, *storage.sums(expected.path(layout.PLAN_ROWS)), known)
    except storage.UnreadableError as error:
        fault = unread(layout.PLAN_ROWS, error)
    except OSError as error:
        fault = Fault(layout.PLAN_ROWS, "unreadable", f"it cannot be read: {error.strerror}")
    if fault:
        yield fault


def _check_row_groups(expected: Expectation) -> Iterator[Fault]:
    plan = expected.plan
    for group, shard in enumerate(plan.shards):
        try:
            found = sum(map(len, shard_row_blocks(expected.directory, group)))
        except parquet_errors() as error:
            missing = isinstance(error, FileNotFoundError)
            words = f"row group {group} cannot be read: {_first_line(error)}"
            yield Fault(layout.PLAN_ROWS, "missing" if missing else "damaged", words)
            continue
        if found != plan.shard_rows(shard):
            words = f"row group {group} has {found:,} rows; {plan.shard_rows(shard):,} were planned"
            yield Fault(layout.PLAN_ROWS, "damaged", words)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
