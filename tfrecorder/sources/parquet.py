"""Parquet files: images as uris, or as bytes in the form of Hugging Face, read when needed."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import FILE_NAME
from tfrecorder.schema.kinds import DEFAULT_SCHEMA, FILES
from tfrecorder.sources.hugging_face import OBJECTS, PIECE, arrow_frame, columns_by_type
from tfrecorder.sources.path_source import PathSource, common_folder, refuse_form, with_named_splits
from tfrecorder.sources.table import RawTable

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
    classes = _class_names(head.metadata or {})
    of_objects = classes.pop(OBJECTS, ())
    types = {field.name: "Image" if _is_image(field.type) else "" for field in head}
    types |= dict.fromkeys({*types} & {*classes}, "ClassLabel")
    columns = columns_by_type(types, options.schema, options.columns)
    ours = {name: columns.get(name, name) for name in head.names}
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
    tables = []
    groups = list[_Group]()
    counts = []
    for path in paths:
        with _opened(path) as file:
            if {*file.schema_arrow.names} != {*ours}:
                raise SourceError(
                    f"{path} has the columns {file.schema_arrow.names}, {paths[0]} has "
                    f"{head.names}; give files of one form."
                )
            tables.append(file.read(columns=plain, use_threads=False))
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
    columns_of_frame = {name: whole.column(name) for name in plain}
    frame = arrow_frame([*ours], images, columns_of_frame, classes, sum(counts))
    named = {ours[name]: names for name, names in classes.items()}
    return RawTable(
        with_named_splits(frame, paths, counts),
        common_folder([storage.parent(path) for path in paths]),
        columns=columns,
        cells={ours[name]: ParquetCells(groups, name) for name in images},
        classes={**named, OBJECTS: of_objects} if of_objects else named,
    )


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
    return may_be_bytes and (pa.types.is_binary(of) or pa.types.is_large_binary(of))


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

    def __init__(self, groups: Sequence[_Group], column: str) -> None:
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
