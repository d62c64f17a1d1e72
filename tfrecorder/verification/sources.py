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
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import google_crc32c
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.display.bars import Advance
from tfrecorder.format.layout import BASE, NOWHERE, RECORD_OF, Shard, source_of
from tfrecorder.images.check import read_image
from tfrecorder.images.header import Reject
from tfrecorder.reading.shard_tables import each_table, those_of
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.sources.named_files import describing, in_threads
from tfrecorder.verification.expectation import GONE
from tfrecorder.verification.faults import Fault

#: What is counted, as the report names it.
COUNTED = ("compared", "changed", "vanished", "unreadable", "from_bytes", "unknown")

#: Files that are in memory together.
_BATCH = 2**18


class SourceFile(NamedTuple):
    """What the table of a shard knows of a file.

    Attributes:
        shard: that of the record made from it.
        key: of its column of images or masks.
        record: the number of the record in the shard.
        row: the number of its row.
        offset: where the record begins.
        base: the folder that a relative uri starts from.
        uri: as the source gave it.
        bytes, crc32c, modified: as in `SourceOf`; null if nobody knows.
        spooled: the name of an image that came as bytes.
    """

    shard: Shard
    key: str
    record: int
    row: int
    offset: int
    base: str
    uri: str
    bytes: int | None
    crc32c: int | None
    modified: int | None
    spooled: str | None


#: The columns of a row that a `SourceFile` has.
_OF_ROW = (SOURCE_ID, RECORD_OF.offset, BASE)


def other_sources(
    directory: str,
    shards: Sequence[Shard],
    fields: Sequence[Field],
    counts: Counter[str] | None = None,
    advance: Advance = lambda files: None,
) -> Iterator[tuple[SourceFile, Fault]]:
    """The source files of some records that are not what they were when they were read.

    A local file of the same size whose time of modification is the one it had is taken for
    unchanged: only who sets that time back can deceive this.  A file that was copied, or put back
    with another time, is read.

    Args:
        shards: of the dataset.
        fields: its columns.
        counts: counts what `COUNTED` names.
        advance: called with the number of files that are done.

    Returns:
        Each with its fault for the report, whose code is `source_changed`, `source_vanished` or
        `source_unreadable`.

    Raises:
        DatasetError: a table cannot be read.
        UnreachableError: a store or a disk is away, which says nothing about its files.
    """
    counts = Counter() if counts is None else counts
    files = _files(directory, shards, fields, counts)
    folders = storage.FoldersRead()
    while batch := [*itertools.islice(files, _BATCH)]:
        compare = functools.partial(_difference, describing(map(_path, batch)), folders)
        differences = in_threads(compare, batch, _path)
        for file, (code, words) in zip(batch, differences, strict=True):
            advance(1)
            if code:
                counts[code.partition("_")[2]] += 1
                message = f"row {file.row}, {file.uri!r}: {words}"
                yield file, Fault(file.shard.file, code, message, file.record, file.offset)


def _files(
    directory: str,
    shards: Sequence[Shard],
    fields: Sequence[Field],
    counts: Counter[str],
) -> Iterator[SourceFile]:
    """The files of all records of which the tables know what they were."""
    names = {
        field.key: [*_OF_ROW, field.uri_key, *source_of(field)[:3], field.spool_key]
        for field in file_fields(fields)
    }
    wanted = those_of([RECORD_OF.size, *dict.fromkeys(itertools.chain(*names.values()))])
    for shard, table in each_table(directory, shards, wanted) if names else ():
        rows = table.filter(pc.greater_equal(table.column(RECORD_OF.size), 0))
        columns = {name: rows.column(name).to_pylist() for name in rows.column_names}
        missing = [None] * len(rows)
        for key, of_key in names.items():
            cells = zip(*(columns.get(name, missing) for name in of_key), strict=True)
            for record, of_row in enumerate(cells):
                file = SourceFile(shard, key, record, *of_row)
                is_known = file.crc32c is not None and not _is_nowhere(file)
                if file.spooled and file.spooled != NOWHERE:
                    counts["from_bytes"] += 1
                else:
                    counts["compared" if is_known else "unknown"] += 1
                    if is_known:
                        yield file


def _is_nowhere(file: SourceFile) -> bool:
    """True if nobody knows where a file was, as after a repair from the records alone."""
    is_relative = not (file.uri.startswith("/") or storage.scheme(file.uri))
    return file.spooled == NOWHERE or (not file.base and is_relative)


def _path(file: SourceFile) -> str:
    return storage.resolve(file.uri, file.base)


def _difference(
    describe: Callable[[str], storage.Description | None],
    folders: storage.FoldersRead,
    file: SourceFile,
) -> tuple[str, str]:
    """The code of what became of a file, and why in words; "" of one that is what it was."""
    path = _path(file)
    with contextlib.suppress(storage.UnreadableError):  # reading it says why
        standing = describe(path)
        if standing is not None and storage.is_local(path):
            folders.add(os.path.dirname(path))
        if standing is not None and standing.size == file.bytes:
            same = standing.written == str(file.modified), standing.crc32c == file.crc32c
            if any(same):
                return "", ""
    # Also where the store says otherwise: it may keep the file packed, and unpack it to be read.
    try:
        data, _ = read_image(file.uri, file.base, folders=folders)
    except Reject as reject:
        code = "source_vanished" if reject.code in GONE else "source_unreadable"
        return code, f"it cannot be read: {reject.detail}"
    size = len(data)
    crc = google_crc32c.value(data)
    if (size, crc) == (file.bytes, file.crc32c):
        return "", ""
    words = f"it has {size:,} bytes with the CRC32C {crc:08x}; "
    return "source_changed", f"{words}{file.bytes:,} with {file.crc32c:08x} were converted"
