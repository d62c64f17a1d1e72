"""The files of the commit: are they what the plan and the done-records produce?

Each is made again, by the functions of the commit itself, and compared byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.output.staging import shard_row_blocks
from tfrecorder.verification.expectation import (
    Expectation,
    check_sums,
    parquet_errors,
    unread,
)
from tfrecorder.verification.faults import Fault
from tfrecorder.writing import metadata
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
            data = expected.read(file)
        except storage.UnreadableError as error:
            if file not in reported:
                yield unread(file, error)
            continue
        if file not in reported and data != wanted:
            yield Fault(file, "differs", _first_difference(data, wanted))


def _first_difference(data: bytes, wanted: bytes) -> str:
    """The first line that differs between two texts, in words."""
    pairs = zip(data.split(b"\n"), wanted.split(b"\n"), strict=False)
    for number, (line, wanted_line) in enumerate(pairs, 1):
        if line != wanted_line:
            return f"line {number} is {_short(line)}, but must be {_short(wanted_line)}"
    return f"it has {len(data):,} bytes, but must have {len(wanted):,}"


def _short(line: bytes, limit: int = 60) -> str:
    text = line.decode(errors="backslashreplace").strip()
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def check_gathered(expected: Expectation) -> Iterator[Fault]:
    """Find a rejects.csv or suspects.csv that is not as it was written.

    If the commit's list is lost, nothing says what they were; a repair of it makes them again.
    """
    for file in (layout.REJECTS, layout.SUSPECTS) if expected.files else ():
        yield from check_sums(expected, file)


def check_names(expected: Expectation) -> Iterator[Fault]:
    """Shards in the directory that do not belong to the dataset."""
    shards = {shard.file for shard in expected.plan.shards}
    for name in storage.names(expected.directory):
        if name not in shards and ".tfrecord" in name and not name.startswith("."):
            words = "this dataset does not list it, but readers of *.tfrecord would include it"
            yield Fault(name, "foreign_shard", words)


def check_plan_rows(expected: Expectation) -> Iterator[Fault]:
    """Find staged rows that are not as they were written.

    If no checksum of them is known, every row group is read; its pages have checksums.
    """
    if layout.PLAN_ROWS in expected.files:
        yield from check_sums(expected, layout.PLAN_ROWS)
        return
    for group, shard in enumerate(expected.plan.shards):
        planned = expected.plan.shard_rows(shard)
        try:
            rows = sum(map(len, shard_row_blocks(expected.directory, group)))
        except parquet_errors() as error:
            code = "missing" if isinstance(error, FileNotFoundError) else "damaged"
            reason = (str(error) or type(error).__name__).splitlines()[0]
            words = f"row group {group} cannot be read: {reason}"
            yield Fault(layout.PLAN_ROWS, code, words)
            continue
        if rows != planned:
            words = f"row group {group} has {rows:,} rows; {planned:,} were planned"
            yield Fault(layout.PLAN_ROWS, "damaged", words)
