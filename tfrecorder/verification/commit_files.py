"""The files of the commit: are they what the plan and the done-records make of them?

Each is made once more, by the functions of the commit itself, and compared byte for byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.layout import Shard
from tfrecorder.verification.expectation import Expectation, parquet_errors, unread
from tfrecorder.verification.faults import Fault
from tfrecorder.writing import metadata
from tfrecorder.writing.done import DoneRecord
from tfrecorder.writing.shards import REJECT_HEADER, SUSPECT_HEADER, to_csv
from tfrecorder.writing.tfds import dataset_info_json, features_json, labels_files


def commit_files(expected: Expectation, done: Mapping[Shard, DoneRecord]) -> dict[str, bytes]:
    """Each file of the commit that follows from the plan and the done-records of all shards."""
    plan = expected.plan
    files = {
        layout.FEATURES: features_json(plan, done.values()),
        layout.COMMIT: dataset_info_json(plan, done),
    }
    files |= labels_files(plan)
    if expected.staged:
        sums = expected.plan_sums
        if sums is not None and not sums:  # what the list must be, only the files themselves tell
            with contextlib.suppress(storage.UnreadableError):
                sums = metadata.plan_sums(expected.directory)
        files[layout.METADATA] = metadata.metadata_json(plan, done, sums)
    return files


def common_files(expected: Expectation) -> int:
    """How many files are looked at beside those of the shards."""
    others = {layout.PLAN, layout.PLAN_ROWS, layout.METADATA, layout.REJECTS, layout.SUSPECTS}
    labels = labels_files(expected.plan)
    return len(others | {layout.FEATURES, layout.COMMIT, *labels})


def check_commit(expected: Expectation, done: Mapping[Shard, DoneRecord]) -> Iterator[Fault]:
    """Where the files of the commit are not what they must be.

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
        if found != wanted:
            yield Fault(file, "differs", _first_difference(found, wanted))


def _first_difference(found: bytes, wanted: bytes) -> str:
    """The first line in which two texts differ, in words."""
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
    """Where rejects.csv and suspects.csv are not the lists of the shards, one after the other.

    Args:
        damaged: files that are known to be; nothing is compared with them.
    """
    shards = expected.plan.shards
    lists = {
        layout.REJECTS: (REJECT_HEADER, [shard.rejects for shard in shards]),
        layout.SUSPECTS: (SUSPECT_HEADER, [shard.suspects for shard in shards]),
    }
    for file, (header, parts) in lists.items():
        if damaged.isdisjoint(parts):
            yield from _check_list(expected, file, to_csv(header, []), parts)
        elif not storage.exists(expected.path(file)):
            yield Fault(file, "missing", "it is not there")


def _check_list(
    expected: Expectation, file: str, header: bytes, parts: list[str]
) -> Iterator[Fault]:
    try:
        with storage.open_seekable(expected.path(file)) as gathered:
            if gathered.read(len(header)) != header:
                yield Fault(file, "damaged", f"its first line is not {header.decode().strip()!r}")
                return
            for part in parts:
                rows = expected.read(part)[len(header) :]
                if gathered.read(len(rows)) != rows:
                    words = "one of the two is damaged"
                    yield Fault(file, "differs", f"it does not hold the rows of {part}: {words}")
                    if rows:
                        yield Fault(part, "differs", f"its rows are not in {file}: {words}")
                    return
            if gathered.read(1):
                yield Fault(file, "differs", "it has more rows than the lists of the shards")
    except storage.UnreadableError as error:
        yield unread(file, error)
    except OSError as error:
        yield Fault(file, "unreadable", f"it cannot be read: {error.strerror}")


def check_names(expected: Expectation) -> Iterator[Fault]:
    """Shards in the directory that are not of the dataset."""
    known = {shard.file for shard in expected.plan.shards}
    for name in storage.names(expected.directory):
        if name not in known and ".tfrecord" in name and not name.startswith("."):
            words = "this dataset does not list it; whoever reads *.tfrecord would take it along"
            yield Fault(name, "foreign_shard", words)


def check_plan_files(expected: Expectation) -> Iterator[Fault]:
    """Where a file of the plan is not the one that the commit found."""
    for file, (size, crc) in (expected.plan_sums or {}).items():
        try:
            found, of_bytes = storage.sums(expected.path(file))
        except storage.UnreadableError:
            continue  # whoever reads the plan says so
        if found != size:
            yield Fault(file, "size", f"it has {found:,} bytes; {size:,} were written")
        elif of_bytes != crc:
            words = f"its CRC32C is {of_bytes:08x}; {crc:08x} was written"
            yield Fault(file, "checksum", words)


def check_plan_rows(expected: Expectation) -> Iterator[Fault]:
    """Where the staged rows are not each row of the source once; unreadable parts are passed over.

    A byte a row is all the memory it takes.
    """
    import pyarrow.parquet as pq

    plan = expected.plan
    seen = np.zeros(0, dtype=bool)
    try:
        with storage.local_copy(expected.path(layout.PLAN_ROWS)) as copy:
            file = pq.ParquetFile(copy)
            lost = plan.rows - file.metadata.num_rows
            if lost > 0:  # before memory is taken for rows that somebody only says are there
                words = f"{lost:,} of {plan.rows:,} rows of the source are in no shard"
                yield Fault(layout.PLAN_ROWS, "rows_lost", words)
                return
            seen = np.zeros(plan.source_rows, dtype=bool)
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=["row"]).column("row").to_numpy()
                inside = rows[(rows >= 0) & (rows < len(seen))]
                if len(inside) < len(rows) or seen[inside].any():
                    words = f"row group {group} has rows that others have, or the source has not"
                    yield Fault(layout.PLAN_ROWS, "duplicate_row", words)
                seen[inside] = True
    except storage.UnreadableError:
        return  # as below
    except parquet_errors():
        return  # whoever checks the shards says so, with the shard
    lost = plan.rows - int(seen.sum())
    if lost:
        words = f"{lost:,} of {plan.rows:,} rows of the source are in no shard"
        yield Fault(layout.PLAN_ROWS, "rows_lost", words)
