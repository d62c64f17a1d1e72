"""Tables in Arrow and files of Parquet: which columns are images, classes and plain values.

Images are uris, or bytes in the form of Hugging Face, read when they are needed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.core.text import read_json
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import FILE_NAME, LABEL_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import DEFAULT_SCHEMA, FILES
from tfrecorder.sources.cells import Cells, Rows
from tfrecorder.sources.path_source import PathSource, common_folder, refuse_form, with_named_splits
from tfrecorder.sources.table import OBJECTS, RawTable, refuse_twice

#: How many rows of images are in memory at a time.
PIECE = 16

#: The fields of an image as Hugging Face stores it.
_IMAGE = {"bytes", "path"}


def _cells_in_memory(column: pa.ChunkedArray, rows: Rows) -> Iterator[Any]:
    return (column[int(row)].as_py() for row in rows)


def read_arrow(source: Any, options: ConvertOptions) -> RawTable | None:
    """Any table that gives its rows by Arrow's own protocol, as those of polars and DuckDB do."""
    if not hasattr(source, "__arrow_c_stream__"):
        return None
    try:
        table = pa.RecordBatchReader.from_stream(source).read_all()
    except (pa.ArrowException, TypeError, ValueError):  # one column, which has no name
        return None
    of = arrow_columns(table.schema, options)
    return arrow_table(of, table, len(table), lambda name: partial(_cells_in_memory, table[name]))


class ArrowColumns(NamedTuple):
    """What the columns of Arrow are.

    Attributes:
        ours: our name of each.
        images: those whose cells are images.
        plain: those that are needed and no images.
        renamed: the names of ours that were given, or that follow from a column's type.
        classes: the names of classes by column; of `objects`, those of Hugging Face's objects.
    """

    ours: dict[str, str]
    images: list[str]
    plain: list[str]
    renamed: dict[str, str]
    classes: dict[str, Sequence[str]]


def arrow_columns(head: pa.Schema, options: ConvertOptions) -> ArrowColumns:
    """What the columns are, by their types and by what Hugging Face notes beside them.

    Raises:
        SourceError: more than one could hold the images or the labels.
    """
    refuse_twice(head.names)
    classes = _class_names(head.metadata or {})
    stated = options.schema.source_columns() if options.schema else [*head.names]
    files = (options.schema or DEFAULT_SCHEMA).of(*FILES)
    with_images = [field.name for field in head if _is_image(field.type)]
    with_classes = [name for name in head.names if name in classes and name != OBJECTS]
    renamed = dict(options.columns or {})
    for wanted, names, noun in (
        (URI_COLUMN, with_images, "images"),
        (LABEL_COLUMN, with_classes, "class labels"),
    ):
        if options.schema:
            names = [name for name in names if name not in stated and wanted in stated]
        if wanted in (*head.names, *renamed.values()) or not names:
            continue
        if len(names) > 1:
            raise SourceError(
                f"the columns {names} of the dataset are all {noun}: rename one to {wanted!r}, or "
                "give a schema."
            )
        renamed[names[0]] = wanted
    ours = {name: renamed.get(name, name) for name in head.names}
    images = []
    for field in head:
        is_file = ours[field.name] in files and _is_bytes(field.type)
        if is_file or field.name in with_images:
            images.append(field.name)
    needed = {FILE_NAME, OBJECTS, options.split_by, *stated}
    plain = []
    for name, our in ours.items():
        if name not in images and not needed.isdisjoint({name, our}):
            plain.append(name)
    return ArrowColumns(ours, images, plain, renamed, classes)


def arrow_table(
    of: ArrowColumns,
    plain: pa.Table | Mapping[str, pa.ChunkedArray],
    rows: int,
    cells: Callable[[str], Cells],
) -> RawTable:
    """Columns in Arrow as a table whose images are read when they are needed.

    Of images its frame has empty texts, of what is not needed False.

    Args:
        plain: those that are.
        cells: those of a column of images.
    """
    frame: dict[str, Any] = {name: "" if name in of.images else False for name in of.ours}
    for name in of.plain:
        column = plain[name]
        if name in of.classes and name != OBJECTS:
            frame[name] = _class_texts(column, of.classes[name])
            continue
        if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        one = pa.chunked_array([column.combine_chunks()])
        frame[name] = one.to_pandas(integer_object_nulls=True)
    return RawTable(
        pd.DataFrame(frame, index=range(rows)),
        os.getcwd(),
        columns=of.renamed,
        cells={of.ours[name]: cells(name) for name in of.images},
        classes={of.ours[name]: names for name, names in of.classes.items()},
    )


def _class_texts(column: pa.ChunkedArray, classes: Sequence[str]) -> pd.Series:
    """A column of integers, or of lists of them, as the names of classes."""
    texts = np.array([*classes, None], dtype=object)  # -1 means no class
    if pa.types.is_integer(column.type):
        return pd.Series(texts[column.fill_null(-1).to_numpy()])
    cells = [
        None if numbers is None else [texts[number] for number in numbers]
        for numbers in column.to_pylist()
    ]
    return pd.Series(cells, dtype=object)


def _is_image(of: pa.DataType) -> bool:
    """True for the type of images in Hugging Face's form."""
    return pa.types.is_struct(of) and {field.name for field in of} == _IMAGE


def _is_bytes(of: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(is_one(of) for is_one in tests)


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, Sequence[str]]:
    """The names of classes by column, as Hugging Face states them."""
    classes = {}
    try:
        features = read_json(metadata[b"huggingface"])["info"]["features"]
        for column, feature in features.items():
            of = _inner(feature)
            inner = [*map(_inner, of.values())] if column == OBJECTS else [of]
            named = [one["names"] for one in inner if "names" in one]
            if named:
                classes[column] = named[0]
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
    return classes


def _inner(feature: Any) -> Any:
    """The feature of what a list holds, as versions of Hugging Face write it; any other itself."""
    return feature[0] if isinstance(feature, list) else feature.get("feature", feature)


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
