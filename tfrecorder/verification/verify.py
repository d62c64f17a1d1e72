"""`verify`: is every byte of a dataset directory as written and as planned?

It can also prove that no file names some uris, as after a removal.  For that every file is
searched, whatever it is for: its name, its bytes, and the texts in a table, whose pages are
compressed.  A record holds the uris of its images: what is not named has no record.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.core.threads import cores, map_at_once
from tfrecorder.display.bars import Advance, bar_class, is_shown, stage_line
from tfrecorder.errors import DatasetError, refuse_missing
from tfrecorder.format import layout
from tfrecorder.format.documents import unseal
from tfrecorder.format.example import varint
from tfrecorder.format.layout import RECORD_OF, Shard
from tfrecorder.options.keywords import Path
from tfrecorder.reading.dataset import image_shape
from tfrecorder.reading.shard_tables import each_table, joined, those_of
from tfrecorder.schema.fields import file_fields
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.sources.path_source import uri_list
from tfrecorder.verification.expectation import (
    LISTS,
    Expectation,
    changed,
    common_files,
    faults_of_replaced,
    read_expectation,
    read_or_fault,
    unread,
)
from tfrecorder.verification.faults import Fault, VerificationReport, at_most
from tfrecorder.verification.shard import Decode, ShardCheck, ShardFindings
from tfrecorder.verification.sources import COUNTED, other_sources

if TYPE_CHECKING:
    from tqdm import tqdm


def verify(
    directory: Path,
    decode: bool = False,
    progress: bool | None = None,
    *,
    records: bool = False,
    sources: bool = False,
    absent: Iterable[str] | Path | None = None,
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
        records: also read every record, and compare its row, uri, classes and values with those of
            its table; no two records may be of one row.  Boxes are compared where they are stored
            as they were given.  This takes several times as long.
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
            shards, faults = check_all(expected, expected.shards, decoder, bar.update, records)
        if records and not faults:
            faults += at_most(_doubles(expected))
        compared = _compare_sources(expected, faults, is_shown(progress)) if sources else None
        with stage_line(is_shown(progress)) as say:
            say("searching for names")
            faults += at_most(naming_faults(where, gone))
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
        compared=records,
        without_frame_sums=sum(not of.beside_bytes for of in expected.done.values()),
    )


def _doubles(expected: Expectation) -> Iterator[Fault]:
    """Find rows that have more than one record."""
    chosen = those_of([SOURCE_ID, RECORD_OF.size])
    rows = joined([table for _, table in each_table(expected.directory, expected.shards, chosen)])
    of_records = rows.filter(pc.greater_equal(rows.column(RECORD_OF.size), 0))
    for of in of_records.column(SOURCE_ID).value_counts().to_pylist():
        if of["counts"] > 1:
            words = f"{of['counts']:,} records are of row {of['values']}"
            yield Fault(layout.TABLES, "differs", words)


def _compare_sources(
    expected: Expectation,
    faults: list[Fault],
    shown: bool,
) -> dict[str, int]:
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
    from tfrecorder.loading import decoding  # imports TensorFlow, so only if asked for

    shapes = (of for record in expected.done.values() for of in record.shapes.values())
    return decoding.shape_decoder(image_shape(itertools.chain.from_iterable(shapes)))


def check_all(
    expected: Expectation,
    shards: Sequence[Shard],
    decode: Decode | None = None,
    advance: Advance = lambda size: None,
    records: bool = False,
) -> tuple[list[ShardFindings], list[Fault]]:
    """Check some shards in parallel, and what all share; the faults are grouped by file."""
    threads = cores() if storage.is_local(expected.directory) else storage.REMOTE_THREADS
    checks = [ShardCheck(expected, shard, decode, records, advance) for shard in shards]
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
        faults += changed(expected.directory, file, sums.bytes, sums.crc32c)
    marks = {commit.plan.carried.marks for commit in expected.commits.values()}
    for file in sorted(filter(None, marks)):
        read_or_fault(expected.directory, file, unseal, faults)
    if expected.pending is None:  # otherwise what an update replaced may not be kept yet
        faults += faults_of_replaced(expected.directory, expected.last)
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


def _bar(
    shown: bool,
    total: int,
    unit: str,
    unit_scale: bool = False,
) -> tqdm[int]:
    return bar_class()(
        total=total,
        disable=not shown,
        dynamic_ncols=True,
        unit=unit,
        unit_scale=unit_scale,
    )


#: Bytes of a file that are searched together, and how many uris are searched at once.
_SEARCHED_BYTES = 2**24
_SEARCHED_URIS = 50

#: A prime; four bytes in a row have their remainder by it for a number.
_FOURS = 67_108_859

#: What stands before and after a name; a folder may stand before it.
_AROUND = r"[^\w.\-]"


def naming_faults(directory: str, uris: Sequence[str]) -> Iterator[Fault]:
    """A fault for each file and each uri that it names."""
    longest = max((len(text) for uri in uris for text in _spellings(uri)), default=0) + 12
    for file in storage.files_below(directory) if uris else ():
        try:
            with storage.local_copy(os.path.join(directory, file)) as copy:
                values = _searched_values(file, copy, longest)
                named_uris = {uri for some in values for uri in _named_in(some, uris)}
        except (storage.UnreadableError, OSError) as error:
            yield unread(file, error)
        except pa.ArrowException as error:
            yield Fault(file, "unreadable", f"nobody can tell what it names: {error}")
        else:
            for uri in uris:
                if uri in named_uris:
                    yield Fault(file, "named", f"it names {uri!r}, which must be absent")


def _searched_values(
    file: str,
    copy: str,
    longest: int,
) -> Iterator[pa.Array]:
    """All that a file may name something in, each with a byte before and after it."""
    yield _framed(pa.array([file.encode()], pa.large_binary()))
    with storage.open_seekable(copy) as opened:
        before = b"\n"
        while data := opened.read(_SEARCHED_BYTES):
            yield _framed(pa.array([before + data], pa.large_binary()))
            before = data[-longest:]
    if file.endswith(".parquet"):
        with pq.ParquetFile(copy) as table:
            for batch in table.iter_batches():
                for column in batch.columns:
                    while pa.types.is_nested(column.type):
                        column = column.flatten()
                    if not pa.types.is_primitive(column.type):
                        yield _framed(column.cast(pa.large_binary()))


def _framed(values: pa.Array) -> pa.Array:
    ends = pa.scalar(b"\n", pa.large_binary())
    return pc.binary_join_element_wise(ends, values, ends, pa.scalar(b"", pa.large_binary()))


def _likely(values: pa.Array, uris: Sequence[str]) -> list[str]:
    """Those of many uris of which any four bytes in a row stand in some values too."""
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8).astype(np.uint32)
    fours = data[:-3] | data[1:-2] << 8 | data[2:-1] << 16 | data[3:] << 24
    there = np.zeros(_FOURS, bool)
    there[fours % _FOURS] = True

    def is_likely(text: bytes) -> bool:
        fours = (int.from_bytes(text[at : at + 4], "little") for at in range(len(text) - 3))
        return all(there[four % _FOURS] for four in fours)

    return [uri for uri in uris if any(map(is_likely, _spellings(uri)))]


def _named_in(values: pa.Array, uris: Sequence[str]) -> Iterator[str]:
    if len(uris) > _SEARCHED_URIS:
        uris = _likely(values, uris)
    for start in range(0, len(uris), _SEARCHED_URIS):
        group = uris[start : start + _SEARCHED_URIS]
        if _is_named(values, group):
            yield from (uri for uri in group if _is_named(values, [uri]))


def _is_named(values: pa.Array, uris: Sequence[str]) -> bool:
    names = {text for uri in uris for text in _spellings(uri)}
    whole = {b"\n" + varint(len(uri.encode())) + uri.encode() for uri in uris}
    texts, stored = ("|".join(map(_literal, some)) for some in (names, whole))
    pattern = f"(?s){_AROUND}({texts}){_AROUND}|{stored}"
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


@lru_cache(100_000)
def _spellings(uri: str) -> set[bytes]:
    """A uri as texts, JSON, JSON in JSON, and the cells of a CSV have it."""
    once = json.dumps(uri)[1:-1]
    texts = (uri, once, json.dumps(once)[1:-1], uri.replace('"', '""'))
    return {text.encode(errors="surrogatepass") for text in texts}


def _literal(text: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text)
