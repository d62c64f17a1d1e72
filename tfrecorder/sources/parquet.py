"""Parquet files: images as uris, or as bytes in the form of Hugging Face, read when needed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.sources.arrow import PIECE, arrow_columns, arrow_table
from tfrecorder.sources.cells import Rows
from tfrecorder.sources.path_source import PathSource, common_folder, refuse_form, with_named_splits
from tfrecorder.sources.table import RawTable


class _Group(NamedTuple):
    """A row group of a file."""

    path: str
    number: int
    rows: int


def read_parquet(source: Any, options: ConvertOptions) -> RawTable | None:
    """One file, or several of one form; with a schema, only its columns are read."""
    paths = source.files if isinstance(source, PathSource) else ()
    if not paths or not all(path.lower().endswith(".parquet") for path in paths):
        return None
    refuse_form(options.text_form, "Parquet has its own form")
    with _opened(paths[0]) as file:
        head: pa.Schema = file.schema_arrow
    of = arrow_columns(head, options)
    tables = []
    groups = []
    counts = []
    for path in paths:
        with _opened(path) as file:
            if {*file.schema_arrow.names} != {*head.names}:
                raise SourceError(
                    f"{path} has the columns {file.schema_arrow.names}, {paths[0]} has "
                    f"{head.names}; give files of one form."
                )
            tables.append(file.read(columns=of.plain, use_threads=False))
            about = file.metadata
            counts.append(about.num_rows)
            for number in range(about.num_row_groups):
                groups.append(_Group(path, number, about.row_group(number).num_rows))
    try:
        whole = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise SourceError(
            f"{source.path}: the types of its columns differ: {str(error).rstrip('.')}."
        ) from error
    raw = arrow_table(of, whole, sum(counts), lambda name: partial(_cells_in_files, groups, name))
    folder = common_folder([storage.parent(path) for path in paths])
    return replace(raw, frame=with_named_splits(raw.frame, paths, counts), base=folder)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """A file.

    Raises:
        SourceError: it is not sound; also if that turns out in the block.
    """
    try:
        with storage.open_seekable(path) as opened, pq.ParquetFile(opened) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        words = str(error).rstrip(".")
        raise SourceError(f"{path} is not sound Parquet: {words}.") from error


def _cells_in_files(
    groups: Sequence[_Group],
    column: str,
    rows: Rows,
) -> Iterator[Any]:
    """The cells of a column of images, of which a few are in memory at a time."""
    starts = [0, *itertools.accumulate(group.rows for group in groups)]
    within = np.searchsorted(starts, rows, "right") - 1
    pairs = zip(within.tolist(), map(int, rows), strict=True)
    for number, of_group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        group = groups[number]
        wanted = {row - starts[number] for _, row in of_group}
        with _opened(group.path) as file:
            batches = file.iter_batches(
                PIECE,
                row_groups=[group.number],
                columns=[column],
                use_threads=False,
            )
            every = itertools.chain.from_iterable(batch.column(0) for batch in batches)
            for row, cell in enumerate(itertools.islice(every, max(wanted) + 1)):
                if row in wanted:
                    yield cell.as_py()
