"""Parquet files: images as uris, or as bytes in the form of Hugging Face, read when needed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import FILE_NAME
from tfrecorder.schema.kinds import DEFAULT_SCHEMA, FILES
from tfrecorder.sources.cells import Cells
from tfrecorder.sources.hugging_face import OBJECTS, PIECE, arrow_frame, columns_by_type
from tfrecorder.sources.path_source import PathSource, common_folder, refuse_form, with_named_splits
from tfrecorder.sources.table import RawTable, refuse_twice

#: The fields of an image as Hugging Face stores it.
_IMAGE = {"bytes", "path"}


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
    of = _columns(head, options)
    tables = []
    groups = list[_Group]()
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
    raw = _table(of, whole, sum(counts), lambda name: ParquetCells(groups, name))
    folder = common_folder([storage.parent(path) for path in paths])
    return replace(raw, frame=with_named_splits(raw.frame, paths, counts), base=folder)


def read_arrow(source: Any, options: ConvertOptions) -> RawTable | None:
    """Any table that gives its rows by Arrow's own protocol, as those of polars and DuckDB do."""
    if not hasattr(source, "__arrow_c_stream__"):
        return None
    refuse_form(options.text_form, "a table in memory has none")
    try:
        table = pa.RecordBatchReader.from_stream(source).read_all()
    except (pa.ArrowException, TypeError, ValueError):  # one column, which has no name
        return None
    of = _columns(table.schema, options)
    return _table(of, table, len(table), lambda name: ArrowCells(table.column(name)))


class _Columns(NamedTuple):
    """What the columns of Arrow are.

    Attributes:
        ours: our name of each.
        images: those whose cells are images.
        plain: those that are needed and no images.
        renamed: the names of ours that were given, or that follow from a column's type.
        classes: the names of classes by column.
        objects: of the classes of Hugging Face's objects.
    """

    ours: dict[str, str]
    images: list[str]
    plain: list[str]
    renamed: dict[str, str]
    classes: dict[str, Sequence[str]]
    objects: Sequence[str]


def _columns(head: pa.Schema, options: ConvertOptions) -> _Columns:
    refuse_twice(head.names)
    classes = _class_names(head.metadata or {})
    of_objects = classes.pop(OBJECTS, ())
    types = {field.name: "Image" if _is_image(field.type) else "" for field in head}
    types |= dict.fromkeys({*types} & {*classes}, "ClassLabel")
    renamed = columns_by_type(types, options.schema, options.columns)
    ours = {name: renamed.get(name, name) for name in head.names}
    files = (options.schema or DEFAULT_SCHEMA).of(*FILES)
    images = []
    for field in head:
        may_be_bytes = ours[field.name] in files
        if _is_image(field.type, may_be_bytes):
            images.append(field.name)
    wanted = options.schema.source_columns() if options.schema else ours
    needed = {FILE_NAME, OBJECTS, options.split_by, *wanted}
    plain = [
        name
        for name, our in ours.items()
        if name not in images and not needed.isdisjoint({name, our})
    ]
    return _Columns(ours, images, plain, renamed, classes, of_objects)


def _table(
    of: _Columns,
    whole: pa.Table,
    rows: int,
    cells: Callable[[str], Cells],
) -> RawTable:
    """Columns in Arrow as a table whose images are read when they are needed."""
    plain = {name: whole.column(name) for name in of.plain}
    named = {of.ours[name]: names for name, names in of.classes.items()}
    return RawTable(
        arrow_frame([*of.ours], of.images, plain, of.classes, rows),
        os.getcwd(),
        columns=of.renamed,
        cells={of.ours[name]: cells(name) for name in of.images},
        classes={**named, OBJECTS: of.objects} if of.objects else named,
    )


class ArrowCells:
    """The cells of a column of images that is in memory."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def read(self, rows: Sequence[int] | np.ndarray) -> Iterator[Any]:
        return (self._column[int(row)].as_py() for row in rows)


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


def _is_image(of: pa.DataType, may_be_bytes: bool = False) -> bool:
    """True for the type of images that are in their cells."""
    if pa.types.is_struct(of):
        return {of.field(number).name for number in range(of.num_fields)} == _IMAGE
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return may_be_bytes and any(is_one(of) for is_one in tests)


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, Sequence[str]]:
    """The names of classes by column, as Hugging Face states them."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        of_values = {name: of.get("feature", of) for name, of in features.items()}
        for of in of_values.pop(OBJECTS, {}).values():
            of = of.get("feature", of)
            of_values |= {OBJECTS: of} if "names" in of else {}
        return {name: of["names"] for name, of in of_values.items() if "names" in of}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


class ParquetCells:
    """The cells of a column of images, of which a few are in memory at a time."""

    def __init__(
        self,
        groups: Sequence[_Group],
        column: str,
    ) -> None:
        self._groups = groups
        self._column = column
        self._starts = [0, *itertools.accumulate(group.rows for group in groups)]

    def __len__(self) -> int:
        return self._starts[-1]

    def read(self, rows: Sequence[int] | np.ndarray) -> Iterator[Any]:
        within = np.searchsorted(self._starts, rows, "right") - 1
        pairs = zip(within.tolist(), map(int, rows), strict=True)
        for number, of_group in itertools.groupby(pairs, key=lambda pair: pair[0]):
            group = self._groups[number]
            wanted = {row - self._starts[number] for _, row in of_group}
            with _opened(group.path) as file:
                batches = file.iter_batches(
                    PIECE,
                    row_groups=[group.number],
                    columns=[self._column],
                    use_threads=False,
                )
                every = itertools.chain.from_iterable(batch.column(0) for batch in batches)
                for row, cell in enumerate(itertools.islice(every, max(wanted) + 1)):
                    if row in wanted:
                        yield cell.as_py()
