"""`verify`: is every byte of a dataset directory as written and as planned?"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool, cores, map_ahead
from tfrecorder.display.bars import bar_class, is_shown
from tfrecorder.errors import DatasetError, refuse_missing
from tfrecorder.format import layout
from tfrecorder.reading.generations import committed_directories
from tfrecorder.verification.commit_files import (
    check_commit,
    check_gathered,
    check_names,
    check_plan_rows,
    common_files,
)
from tfrecorder.verification.expectation import Expectation, read_expectation, refuse
from tfrecorder.verification.faults import Fault, VerificationReport, at_most
from tfrecorder.verification.shard import Decode, ShardFindings, check_shard
from tfrecorder.writing.tfds import image_shape

#: The shard, its done-record, its index and its two lists.
FILES_OF_A_SHARD = 5

#: Called with the number of bytes that were read.
Advance = Callable[[int], None]


def no_bar(size: int) -> None:
    """An `Advance` that shows nothing."""


def verify(
    directory: str | os.PathLike[str],
    decode: bool = False,
    progress: bool | None = None,
    at: int | None = None,
) -> VerificationReport:
    """Check every byte of a dataset directory that `convert` wrote; change nothing.

    Each file must hold the bytes that were written.  Shards, indexes, lists, done-records and the
    plan are checked by size and CRC32C; the files of the commit are made again from the plan and
    the done-records and compared.  In a damaged shard, the two checksums of each record show where
    the damage is.  Every row must be a record or a reject.  In a bucket the CRC32Cs that it keeps
    prove the same without a download.  All generations of the dataset are checked.

    Args:
        directory: the output_dir of a finished conversion.
        decode: also decode every image as `load` does; this needs TensorFlow and takes many times
            as long.
        progress: show a bar; None shows it only in a terminal or a notebook.
        at: check an appended dataset only up to this generation; None means the newest.

    Returns:
        The faults, each with its file and, for a shard, its record and byte offset; `.ok` is True
        if there are none.

    Raises:
        DatasetError: the directory holds no committed dataset, or one that another tool wrote, or
            cannot be read.
        PackageError: with `decode`, TensorFlow is not installed.

    Example:
        >>> report = tfrecorder.verify("out")  # doctest: +SKIP
        >>> report.ok  # doctest: +SKIP
        True
    """
    started = time.perf_counter()
    where = storage.given_path(directory)
    shards: list[ShardFindings] = []
    faults: list[Fault] = []
    with storage.failing_as(DatasetError, where):
        refuse(where)
        every = list(map(read_expectation, committed_directories(where, at)))
        if decode:
            refuse_missing("tensorflow")
        with byte_bar(every, is_shown(progress)) as advance:
            for number, expected in enumerate(every):
                decoder = _decoder(expected) if decode else None
                checked, own_faults = check_all(expected, None, decoder, advance)
                own_faults += check_follows(every[number - 1] if number else None, expected)
                shards += checked
                faults += [of_generation(number, fault) for fault in own_faults]
    return VerificationReport(
        directory=where,
        files=FILES_OF_A_SHARD * len(shards) + sum(map(common_files, every)),
        records=sum(findings.records for findings in shards),
        bytes=sum(findings.bytes for findings in shards),
        seconds=time.perf_counter() - started,
        decoded=decode,
        found=tuple(faults),
    )


def _decoder(expected: Expectation) -> Decode:
    from tfrecorder.loading import decode_check  # imports TensorFlow, so only if asked for

    shapes = (shape for record in expected.done.values() for shape in record.shapes)
    return decode_check.decoder(image_shape(shapes))


def of_generation(number: int, fault: Fault) -> Fault:
    """A fault with its file's name below the dataset directory."""
    file = layout.generation_of("", number)
    return dataclasses.replace(fault, file=os.path.join(file, fault.file))


def check_follows(before: Expectation | None, expected: Expectation) -> Iterator[Fault]:
    """A fault if a generation was appended to a different dataset from the one it is in."""
    noted = (expected.plan.before or {}).get("plan")
    if noted != (before.plan.digest if before else None):
        words = "it was not appended to the generation before it: one of the two was replaced"
        yield Fault(layout.PLAN, "differs", words)


def check_all(
    expected: Expectation,
    groups: Iterable[int] | None = None,
    decode: Decode | None = None,
    advance: Advance = no_bar,
) -> tuple[list[ShardFindings], list[Fault]]:
    """Check shards in parallel, and what all of them share; the faults are grouped by file.

    Args:
        groups: the places of the shards in the plan; None checks all.
    """
    threads = cores() if storage.is_local(expected.directory) else storage.REMOTE_THREADS
    with ThreadPool(threads, "verify") as pool:

        def check(group: int) -> ShardFindings:
            return check_shard(expected, group, decode, advance)

        if groups is None:
            groups = range(len(expected.plan.shards))
        shards = list(map_ahead(pool, check, groups, ahead=2 * threads))
    faults = [*expected.faults, *(fault for findings in shards for fault in findings.faults)]
    damaged = {fault.file for fault in faults}
    done = {shard: done for shard, done in expected.done.items() if shard.done not in damaged}
    common = [
        *check_commit(expected, done),
        *check_gathered(expected),
        *check_names(expected),
        *check_plan_rows(expected),
    ]
    # Those of a shard are no more already: what stands for the others is not counted with them.
    return shards, _sorted([*faults, *at_most(common)])


def _sorted(faults: list[Fault]) -> list[Fault]:
    """Faults, each once, by file; the files in the order of their first fault."""
    places: dict[str, int] = {}
    for fault in faults:
        places.setdefault(fault.file, len(places))
    distinct = dict.fromkeys(faults)
    return sorted(distinct, key=lambda fault: places[fault.file])


@contextlib.contextmanager
def byte_bar(every: Iterable[Expectation], shown: bool) -> Iterator[Advance]:
    """A progress bar over the bytes of all shards; yields the function that moves it."""
    if not shown:
        yield no_bar
        return
    total = sum(map(_shard_bytes, every))
    lock = threading.Lock()
    with bar_class()(total=total, unit="B", unit_scale=True, dynamic_ncols=True) as bar:

        def advance(size: int) -> None:
            with lock:  # tqdm counts without one
                bar.update(size)

        yield advance


def _shard_bytes(expected: Expectation) -> int:
    files = [shard.file for shard in expected.plan.shards]
    listed = [expected.standing[file].size for file in files if file in expected.standing]
    others = [expected.path(file) for file in files if file not in expected.standing]
    asked = storage.each(storage.size_or_none, others, expected.directory)
    return sum(listed) + sum(size or 0 for size in asked)
