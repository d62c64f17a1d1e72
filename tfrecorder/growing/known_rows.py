"""Which rows of a table are already in a dataset, by the uris or the contents of their images.

The plan of each generation holds the uris of its records and of its rejects.  They stay in Arrow,
where a million of them are searched in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tfrecorder.dataset import layout
from tfrecorder.dataset.earlier import URI_OF_ROWS
from tfrecorder.errors import DatasetError
from tfrecorder.schema.fields import SPOOLED
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.kinds import Image
from tfrecorder.sources.table import Source, as_objects, as_texts
from tfrecorder.stored.class_counts import rejected_rows
from tfrecorder.stored.planned import read_planned

if TYPE_CHECKING:
    import pyarrow as pa

#: Uris of the dataset that are searched together: at least this many, and this many times as many
#: as the table has, because the table's uris are put into a hash table each time.
TOGETHER, TIMES = 2**20, 4


def pass_over_known(
    table: Source, directories: Sequence[str], retry_rejects: bool
) -> tuple[Source, int]:
    """A table without the rows whose image is in the dataset, and how many these were.

    Args:
        directories: the directories of all generations.
        retry_rejects: images that are in the dataset only as rejects stay in the table.

    Raises:
        DatasetError: a plan or a list of rejects cannot be read.
    """
    images = [name for name in table.schema.of(Image) if name in table.frame]
    if not images or not len(table.frame):
        return table, 0
    there = _are_there(_texts(table.frame[images[0]]), directories, retry_rejects)
    if not there.any():
        return table, 0
    groups = None if table.groups is None else table.groups[~there]
    left = dataclasses.replace(table, frame=table.frame[~there], groups=groups)
    return left, int(there.sum())


def _texts(column: pd.Series) -> pa.LargeStringArray:
    """The uris; null where a cell has none, which validation will report."""
    import pyarrow as pa

    if (texts := as_texts(column)) is not None:
        return texts
    return pa.array(list(map(_text_or_none, as_objects(column))), pa.large_string())


def _text_or_none(cell: object) -> str | None:
    cell = os.fspath(cell) if isinstance(cell, os.PathLike) else cell
    if not isinstance(cell, str):
        return None
    try:
        cell.encode()
    except UnicodeEncodeError:
        return None
    return cell


def _are_there(uris: pa.Array, directories: Sequence[str], retry_rejects: bool) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = uris.drop_null()
    found = [pa.array([], pa.large_string())]
    for known in _in_blocks(directories, retry_rejects, max(TOGETHER, TIMES * len(wanted))):
        hits = known.filter(pc.is_in(known, value_set=wanted))
        found.append(hits.combine_chunks())
    if not sum(map(len, found)):
        return np.zeros(len(uris), dtype=bool)
    there = pc.is_in(uris, value_set=pa.concat_arrays(found), skip_nulls=True)
    return there.to_numpy(zero_copy_only=False)


def _in_blocks(
    directories: Sequence[str], retry_rejects: bool, together: int
) -> Iterator[pa.ChunkedArray]:
    """The uris of all generations, some million at a time."""
    import pyarrow as pa

    chunks: list[pa.Array] = []
    for directory in directories:
        chunks += _known_uris(directory, retry_rejects)
        if sum(map(len, chunks)) >= together:
            yield pa.chunked_array(chunks, pa.large_string())
            chunks = []
    yield pa.chunked_array(chunks, pa.large_string())


def _known_uris(directory: str, retry_rejects: bool) -> list[pa.Array]:
    """The uris of a generation's records, and of its rejects unless these are to be retried."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def chosen(schema: pa.Schema) -> list[str] | None:
        uri = (schema.metadata or {}).get(URI_OF_ROWS.encode(), b"").decode()
        row = SOURCE_ID
        if SOURCE_ID not in schema.names:  # written by an earlier version
            uri, row = "image_uri", "row"
        if not {uri, row} <= {*schema.names}:
            return None
        spool = f"{SPOOLED}{uri}"
        return [uri, row, *([spool] if spool in schema.names else [])]

    table = read_planned(directory, chosen)
    if table is None:
        raise DatasetError(
            f"{os.path.join(directory, layout.PLAN_ROWS)} is missing or names no images, so it is "
            "not known which images are already there. Copy it again, or give duplicates='keep', "
            "which adds all rows."
        )
    uris = table.column(0).cast(pa.large_string())
    if table.num_columns > 2:  # what came as bytes is known by its content, not its name
        files = table.column(2)
        uris = pc.if_else(pc.equal(files, ""), uris, files)
    if retry_rejects:
        rejected = pa.array(rejected_rows(directory), pa.int64())
        uris = uris.filter(pc.invert(pc.is_in(table.column(1), value_set=rejected)))
    return list(uris.chunks)
