"""Are the source files of the records still those that were read?

What costs least is asked first.  A file with the size and the time of its reading, or with the size
and a CRC32C that its store keeps, is the same; any other is read, and its bytes decide.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.display.bars import Advance
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import BASE, RECORD_OF, source_of
from tfrecorder.images.read import read_image
from tfrecorder.images.rejects import Reject
from tfrecorder.reading.shard_tables import each_table
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.verification.faults import Fault

#: What is counted, as the report names it.
COUNTED = ("compared", "changed", "vanished", "unreadable", "from_bytes", "unknown")

#: Files whose rows are in memory together, and files of one task of a thread.
_BATCH, _TASK = 2**18, 32

#: A folder on a remote store that holds this many of them is listed, instead of asking for each.
_LISTED = 100

#: The reasons for which a file cannot be read because there is none under its name any more.
_GONE = ("not_found", "not_a_file", "bad_name")


class OtherSource(NamedTuple):
    """A source file that is not the one that was read, or cannot be read.

    Attributes:
        shard: that of the record made from it.
        row: the number of its row.
        key: of its column of images or masks.
        uri: as the source gave it.
        fault: for the report; its code is `source_changed`, `source_vanished` or
            `source_unreadable`.
    """

    shard: Shard
    row: int
    key: str
    uri: str
    fault: Fault


class _File(NamedTuple):
    """What the table of a shard knows of a file; shard and column by their places in the lists."""

    shard: int
    field: int
    record: int
    row: int
    offset: int
    base: str
    uri: str
    bytes: int
    crc32c: int
    modified: int | None


def other_sources(
    directory: str,
    shards: Sequence[Shard],
    fields: Sequence[Field],
    counts: Counter[str] | None = None,
    advance: Advance = lambda files: None,
) -> Iterator[OtherSource]:
    """The source files of some records that are not what they were when they were read.

    A local file of the same size whose time of modification is the one it had is taken for
    unchanged: only who sets that time back can deceive this.  A file that was copied, or put back
    with another time, is read.

    Args:
        shards: of the dataset.
        fields: its columns.
        counts: counts what `COUNTED` names.
        advance: called with the number of files that are done.

    Raises:
        DatasetError: a table cannot be read.
        UnreachableError: a store or a disk is away, which says nothing about its files.
    """
    counts = Counter() if counts is None else counts
    folders = storage.KnownFolders()
    with ThreadPool(storage.REMOTE_THREADS, "sources") as pool:
        for batch in _batches(directory, shards, fields, counts):
            compare = functools.partial(_others, _listings(batch), folders)
            starts = range(0, len(batch), _TASK)
            tasks = (batch.slice(start, _TASK) for start in starts)
            found = map_ahead(pool, compare, tasks, ahead=2 * storage.REMOTE_THREADS)
            for start, others in zip(starts, found, strict=True):
                for file, code, words in others:
                    shard, key = shards[file.shard], fields[file.field].key
                    counts[code.partition("_")[2]] += 1
                    message = f"row {file.row}, {file.uri!r}: {words}"
                    fault = Fault(shard.file, code, message, file.record, file.offset)
                    yield OtherSource(shard, file.row, key, file.uri, fault)
                advance(min(_TASK, len(batch) - start))


def _batches(
    directory: str, shards: Sequence[Shard], fields: Sequence[Field], counts: Counter[str]
) -> Iterator[pa.Table]:
    """The files of all records, some at a time, with a column for each attribute of `_File`."""
    files = {number: f for number, f in enumerate(fields) if isinstance(f.kind, (Image, Mask))}
    of_row = [SOURCE_ID, RECORD_OF.offset, BASE]
    of_files = [(f.uri_key, *source_of(f), f.spool_key) for f in files.values()]
    wanted = [*of_row, RECORD_OF.size, *itertools.chain.from_iterable(of_files)]

    def chosen(schema: pa.Schema) -> list[str]:
        return [name for name in wanted if name in schema.names]

    waiting: list[pa.Table] = []
    for place, (_, table) in enumerate(each_table(directory, shards, chosen) if files else ()):
        rows = table.filter(pc.greater_equal(table.column(RECORD_OF.size), 0))
        for number, field in files.items():
            known = source_of(field)
            if not {*known} <= {*rows.column_names}:  # made again from the records alone
                counts["unknown"] += len(rows)
                continue
            columns = [*of_row, field.uri_key, *known]
            places = [np.full(len(rows), value) for value in (place, number)]
            cells = [*places, np.arange(len(rows)), *rows.select(columns).columns]
            of_field = pa.table(cells, names=_File._fields)
            if field.spool_key in rows.column_names:
                of_field = of_field.filter(pc.equal(rows.column(field.spool_key), ""))
            counts["from_bytes"] += len(rows) - len(of_field)
            with_sums = of_field.filter(pc.is_valid(of_field.column("crc32c")))
            counts["unknown"] += len(of_field) - len(with_sums)
            counts["compared"] += len(with_sums)
            waiting.append(with_sums)
        if sum(map(len, waiting)) >= _BATCH:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _listings(files: pa.Table) -> dict[str, storage.Description]:
    """What the listings of remote folders say, by path: of folders with many of these files."""
    cells = zip(*(files.column(name).to_pylist() for name in ("uri", "base")), strict=True)
    paths = itertools.starmap(storage.resolve, cells)
    wanted = Counter(storage.parent(path) for path in paths if not storage.is_local(path))
    listed: dict[str, storage.Description] = {}
    for folder, count in wanted.items():
        if count >= _LISTED:
            with contextlib.suppress(storage.UnreadableError):  # then each file is asked for
                listing = storage.descriptions(folder).items()
                listed |= {f"{folder}/{name}": file for name, file in listing}
    return listed


def _others(
    listed: Mapping[str, storage.Description], folders: storage.KnownFolders, files: pa.Table
) -> list[tuple[_File, str, str]]:
    """Those of some files that are not what they were, each with a code and why in words."""
    columns = (column.to_pylist() for column in files.columns)
    compared = ((file, _fault_of(file, listed, folders)) for file in map(_File, *columns))
    return [(file, *fault) for file, fault in compared if fault is not None]


def _fault_of(
    file: _File, listed: Mapping[str, storage.Description], folders: storage.KnownFolders
) -> tuple[str, str] | None:
    path = storage.resolve(file.uri, file.base)
    with contextlib.suppress(storage.UnreadableError):  # reading it says why
        standing = listed.get(path) or storage.describe(path)
        if standing is not None and storage.is_local(path):
            folders.add(os.path.dirname(path))
        if standing is not None and standing.size == file.bytes:
            is_same_time = file.modified is not None and storage.modified(path) == file.modified
            if is_same_time or standing.crc32c == file.crc32c:
                return None
    # Also where the store says otherwise: it may keep the file packed, and unpack it to be read.
    try:
        data = read_image(file.uri, file.base, folders=folders)
    except Reject as reject:
        code = "source_vanished" if reject.code in _GONE else "source_unreadable"
        return code, f"it cannot be read: {reject.detail}"
    size, crc = len(data), google_crc32c.value(data)
    if (size, crc) == (file.bytes, file.crc32c):
        return None
    words = f"it has {size:,} bytes with the CRC32C {crc:08x}; "
    return "source_changed", f"{words}{file.bytes:,} with {file.crc32c:08x} were converted"
