"""`verify`: is every byte of a dataset directory as written and as planned?"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tfrecorder import storage
from tfrecorder.core.threads import cores, map_at_once
from tfrecorder.display.bars import Advance, bar_class, is_shown
from tfrecorder.errors import DatasetError, refuse_missing
from tfrecorder.format import layout
from tfrecorder.format.documents import unseal
from tfrecorder.format.layout import Shard
from tfrecorder.reading.dataset import image_shape
from tfrecorder.schema.fields import file_fields
from tfrecorder.sources.uri_list import uri_list
from tfrecorder.verification.absence import named
from tfrecorder.verification.expectation import (
    LISTS,
    Expectation,
    common_files,
    other_sums,
    read_expectation,
    read_or_fault,
    unread,
)
from tfrecorder.verification.faults import Fault, VerificationReport, at_most
from tfrecorder.verification.kept import kept_faults
from tfrecorder.verification.shard import Decode, ShardCheck, ShardFindings
from tfrecorder.verification.sources import COUNTED, other_sources

if TYPE_CHECKING:
    from tqdm import tqdm


def verify(
    directory: str | os.PathLike[str],
    decode: bool = False,
    progress: bool | None = None,
    *,
    sources: bool = False,
    absent: Iterable[str] | str | os.PathLike[str] | None = None,
) -> VerificationReport:
    """Check every byte of a dataset directory that `convert` wrote; change nothing.

    Each file must hold the bytes that were written.  Shards, their indexes and tables, and the
    lists are checked by size and CRC32C, and tables and indexes must be of the frames of their
    shards, one by one and in their order; the files of the commit are made again from the manifests
    of all commits and compared.  In a damaged shard, the two checksums of each record show where
    the damage is.  Every row must be a record or a reject.  In a bucket the CRC32Cs that it keeps
    prove the same without a download.  What an unfinished operation has written is left alone.

    Args:
        directory: the output_dir of a finished conversion.
        decode: also decode every image as `load` does; this needs TensorFlow and takes many times
            as long.
        progress: show a bar; None shows it only in a terminal or a notebook.
        sources: also compare the source file of each record's images and masks with what was read
            from it, and list those that changed, vanished or cannot be read.  On a disk, a file
            with the size and the time of modification that it had is taken for unchanged; in a
            bucket, one with the size and CRC32C.  All others are read.  Images that came as bytes
            have no file, and are only counted.
        absent: image uris, or the path of a text file with one per line, that no file below the
            directory may name any more, as after a removal: every file is read whole.

    Returns:
        The faults, each with its file and, for a shard, its record and byte offset; `.ok` is True
        if there are none.

    Raises:
        DatasetError: the directory holds no committed dataset, or one that another tool wrote, or
            cannot be read.
        PackageError: with `decode`, TensorFlow is not installed.
        UnreachableError: with `sources`, their store or disk is away, so nobody knows.

    Example:
        >>> report = tfrecorder.verify("out")  # doctest: +SKIP
        >>> report.ok  # doctest: +SKIP
        True
    """
    started = time.perf_counter()
    where = storage.given_path(directory)
    gone = uri_list("absent", absent)
    with storage.failing_as(DatasetError, where):
        expected = read_expectation(where)
        if decode:
            refuse_missing("tensorflow")
        with byte_bar(expected, is_shown(progress)) as bar:
            decoder = _decoder(expected) if decode else None
            shards, faults = check_all(expected, expected.shards, decoder, bar.update)
        compared = _compare_sources(expected, faults, is_shown(progress)) if sources else None
        faults += at_most(named(where, gone))
    common = {*common_files(expected), *LISTS}
    return VerificationReport(
        directory=where,
        files=sum(len(f.shard.files) for f in shards) + len(expected.numbers) + len(common),
        records=sum(findings.records for findings in shards),
        bytes=sum(findings.bytes for findings in shards),
        seconds=time.perf_counter() - started,
        decoded=decode,
        found=tuple(faults),
        absent=len(gone),
        sources=compared,
        without_frame_sums=sum(not of.beside_bytes for of in expected.done.values()),
    )


def _compare_sources(expected: Expectation, faults: list[Fault], shown: bool) -> dict[str, int]:
    """Add the faults of the source files; return how many there are, as `other_sources` counts.

    What a damaged table says of its files, whose fault is among the others, is not asked.
    """
    damaged = {fault.file for fault in faults}
    shards = [shard for shard in expected.shards if shard.table not in damaged]
    total = len(file_fields(expected.fields)) * sum(
        expected.done[s].records for s in shards if s in expected.done
    )
    counts = Counter(dict.fromkeys(COUNTED, 0))
    with _bar(shown, total, unit=" source files") as bar:
        others = other_sources(expected.directory, shards, expected.fields, counts, bar.update)
        faults[:] = _sorted([*faults, *at_most(fault for _, fault in others)])
    return dict(counts)


def _decoder(expected: Expectation) -> Decode:
    from tfrecorder.loading import decode_check  # imports TensorFlow, so only if asked for

    shapes = (of for record in expected.done.values() for of in record.shapes.values())
    return decode_check.decoder(image_shape(itertools.chain.from_iterable(shapes)))


def check_all(
    expected: Expectation,
    shards: Sequence[Shard],
    decode: Decode | None = None,
    advance: Advance = lambda size: None,
) -> tuple[list[ShardFindings], list[Fault]]:
    """Check some shards in parallel, and what all share; the faults are grouped by file."""
    threads = cores() if storage.is_local(expected.directory) else storage.REMOTE_THREADS
    checks = [ShardCheck(expected, shard, decode, advance) for shard in shards]
    findings = map_at_once(ShardCheck.findings, checks, threads)
    faults = [*expected.faults, *(fault for checked in findings for fault in checked.faults)]
    # Those of a shard are no more already: what stands for the others is not counted with them.
    return findings, _sorted([*faults, *at_most([*_check_common(expected), *_foreign(expected)])])


def _check_common(expected: Expectation) -> list[Fault]:
    """Find files that a dataset has once and that are not what they must be."""
    if expected.last is None:
        return []
    faults: list[Fault] = []
    reported = {fault.file for fault in expected.faults}
    for file, wanted in common_files(expected).items():
        if file not in reported:
            data = read_or_fault(expected.directory, file, bytes, faults)
            if data is not None and data != wanted:
                faults.append(Fault(file, "differs", _first_difference(data, wanted)))
    for file in LISTS:
        sums = expected.last.dataset.lists[file]
        written = sums.bytes, sums.crc32c
        try:
            fault = other_sums(file, storage.sums(expected.path(file)), written)
        except (storage.UnreadableError, OSError) as error:
            fault = unread(file, error)
        faults += [fault] if fault else []
    marks = {commit.plan.carried.marks for commit in expected.commits.values()}
    for file in sorted(filter(None, marks)):
        read_or_fault(expected.directory, file, unseal, faults)
    if expected.pending is None:  # otherwise what an update replaced may not be kept yet
        faults += kept_faults(expected.directory, expected.last)
    return faults


def _first_difference(data: bytes, wanted: bytes) -> str:
    """The first line that differs between two texts, in words."""
    texts = (text.decode(errors="backslashreplace").split("\n") for text in (data, wanted))
    for number, (line, wanted_line) in enumerate(zip(*texts, strict=False), 1):
        if line != wanted_line:
            return f"line {number} is {line.strip()[:60]!r}, not {wanted_line.strip()[:60]!r}"
    return f"it has {len(data):,} bytes, but must have {len(wanted):,}"


def _foreign(expected: Expectation) -> Iterator[Fault]:
    """Shards in the directory that belong neither to the dataset nor to what is under way."""
    shards = {shard.file for shard in expected.shards}
    if expected.pending is not None:
        shards |= {*layout.files_of(expected.pending.own)}
    for name in storage.names(expected.directory):
        if name not in shards and ".tfrecord" in name and not name.startswith("."):
            words = "this dataset does not list it, but readers of *.tfrecord would include it"
            yield Fault(name, "foreign_shard", words)


def _sorted(faults: list[Fault]) -> list[Fault]:
    """Faults, each once, by file; the files in the order of their first fault."""
    files = dict.fromkeys(fault.file for fault in faults)
    places = {file: place for place, file in enumerate(files)}
    return sorted(dict.fromkeys(faults), key=lambda fault: places[fault.file])


def byte_bar(expected: Expectation, shown: bool) -> tqdm[int]:
    """A progress bar over the bytes of all shards."""
    total = sum(expected.done[shard].bytes for shard in expected.shards if shard in expected.done)
    return _bar(shown, total, unit="B", unit_scale=True)


def _bar(shown: bool, total: int, unit: str, unit_scale: bool = False) -> tqdm[int]:
    return bar_class()(
        total=total, disable=not shown, dynamic_ncols=True, unit=unit, unit_scale=unit_scale
    )
