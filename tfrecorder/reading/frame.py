"""The columns of a dataset as cells: `to_frame`, and what readers choose and weigh records by.

`to_frame` turns a dataset back into the frame it was made from, each column as the source named it.
`table_of` has the columns of a split's records but for the pictures: from the tables of shards;
where there are none, or boxes were moved with the pixels since, each record is read once.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.option import OneOf
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.display.messages import command, warn
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.example import Values, parse_features, text_of
from tfrecorder.format.layout import RECORD_OF, STATED_OF, parse_shard
from tfrecorder.images.boxes_and_masks import as_segmentation
from tfrecorder.options.keywords import Path
from tfrecorder.options.option import require
from tfrecorder.options.read import NamedKeys
from tfrecorder.reading.commits import opened_commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import records_in
from tfrecorder.reading.element_spec import stored_corners
from tfrecorder.reading.misfits import expected_of
from tfrecorder.reading.open import open_dataset
from tfrecorder.reading.shard_tables import joined, read_tables, those_of
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field, file_fields, of_kind
from tfrecorder.schema.keys import NO_LABEL, SPLIT_COLUMN
from tfrecorder.schema.kinds import (
    FILES,
    Boxes,
    Image,
    Label,
    Labels,
    Number,
    Text,
    ValueKind,
    columns_of,
)
from tfrecorder.schema.schema_file import kind_of

#: Keys where tools keep an image's file name, other than the image's own key with `/filename`.
_FILENAMES = (keys.FILENAME, "filename", "file_name")

#: The values of a record by key.
Row = Mapping[str, Values]

#: The cells of each column that a field makes: a list, or a chunked array of Arrow's.
Cells = dict[str, Any]

IMAGES = ("uri", "bytes")

#: Records that are in memory together.
_TOGETHER = 64

#: The number of a record's row in the source, read as if it were a column; no column has this name.
_SOURCE_ROW = Field("", Text(), keys.SOURCE_ID)


def to_frame(
    directory: Path,
    split: str | None = None,
    images: str = "uri",
    at: int | None = None,
    image: str | None = None,
    label: str | None = None,
    features: Mapping[str, str] | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """The rows and columns that a dataset was made from, without TensorFlow.

    The frame is in memory as a whole, with images="bytes" every image too.

    Args:
        directory: what `convert` wrote; or records of other tools, as for `load`.
        split: read only this split; None reads all.
        images: "uri" gives images and masks as the source named them, "bytes" as stored.
        at: read a dataset that was appended to only up to this generation; None is the newest.
        image, label, features: as for `load`.
        progress: show what is done; None shows it only in a terminal or a notebook.

    Returns:
        The columns of the schema, split after split, with the rows of each in the order of
        `Records`: row 7 of `to_frame("out", "TRAIN")` is record 7.  A column `split` is added if
        the schema has none.  Boxes are as the source had them; beside the bytes of images, on the
        stored pixels.  The index is the number of the row in the source, which continues
        from one generation to the next: `sort_index()` restores the order of the source.  The
        column `row` repeats it, also for a CSV, by which `tfrecorder.update` and `remove` know
        each row again; beside a column `row` of your own it is `source_row`.  It makes no feature.
        If the source had a row for each box, so has the frame: one after the other, with the
        number of their image.  Arrays are NumPy arrays, lists are lists.  Rejects are missing.
        For records of other tools: every column that `info` lists, with rows numbered in file
        order, and boxes as lists in the unit of the record.

    Raises:
        DatasetError: the directory is not a whole dataset, or has no such split.
        OptionError: `images` is neither "uri" nor "bytes", or it is "uri" and records of other
            tools do not name their image files.

    Example:
        >>> tfrecorder.to_frame("out")  # doctest: +SKIP
    """
    require(OneOf(*IMAGES), images=images)
    where = storage.given_path(directory)
    stored = open_dataset(where, at, NamedKeys(image, label, features))
    for key in stored.unread.keys() - stored.features.keys():
        warn(f"{stored.unread[key]}: it makes no column.")
    chosen = [stored.split(split)] if split is not None else list(stored.splits)
    with stage_line(is_shown(progress)) as say:
        say("reading records")
        splits, cells = gather(stored, (*stored.fields, _SOURCE_ROW), chosen, images)
    for field in of_kind(stored.fields, Boxes) if images == "uri" else ():
        # Records have boxes on their stored pixels; a source may have others, or of other sizes.
        names = table_keys(field)
        names += [] if getattr(field.kind, "upright", None) else STATED_OF
        tables = [record_rows(stored, name, [field], names) for name in chosen]
        if tables and all(table is not None for table in tables):
            cells |= cells_in([field], joined(tables))
    rows = cells[_SOURCE_ROW.column][""] if stored.form == "tfrecorder" else range(len(splits))
    index = pd.Index([int(row) for row in rows], dtype=np.int64)
    frame = frame_of(stored, splits, cells, index)
    if stored.form == "tfrecorder":
        frame[keys.number_column(frame.columns)] = index.to_numpy()
    return one_row_a_box(frame, stored.fields)


def read_rows(
    stored: StoredDataset,
    splits: Sequence[str],
    images: str = "uri",
) -> Iterator[tuple[str, Row]]:
    """The split and the values of each record, without the pixels where only uris are wanted."""
    wanted = set(stored.features)
    if images == "uri":
        wanted -= {field.encoded_key for field in file_fields(stored.fields)}
    expected = expected_of(stored)
    own = f"`{command('verify', stored.directory)}` says where."
    remedy = "Copy it again." if expected else own
    for split, shard in [(name, shard) for name in splits for shard in stored.splits[name]]:
        try:
            with storage.failing_as(DatasetError, shard.path):
                for number, data in enumerate(records_in(shard)):
                    if expected is None:
                        yield split, parse_features(data, wanted, bytes)
                        continue
                    values = expected.values(data, shard.path, number)
                    yield split, {key: values[key] for key in wanted & values.keys()}
        except ValueError as error:
            raise DatasetError(f"{shard.path} is damaged: {error}. {remedy}") from error


def gather(
    stored: StoredDataset,
    fields: Sequence[Field],
    chosen: Sequence[str],
    images: str = "uri",
) -> tuple[list[str], dict[str, Cells]]:
    """The split of each record, and the cells of some columns, by the column of the field.

    Only a few records are in memory at a time: what is not in a cell is forgotten.  With uris, the
    key of an image's file name makes no column itself.
    """
    rows = read_rows(stored, chosen, images)
    names = {name_key(stored, field) for field in fields} if images == "uri" else set()
    fields = [field for field in fields if field.key not in names]
    splits = []
    cells: dict[str, Cells] = {field.column: {} for field in fields}
    batch: list[tuple[str, Row]] = []  # first none: a dataset without records has columns too
    while True:
        splits += [split for split, _ in batch]
        for field in fields:
            for column, values in cells_of(stored, images, field, [row for _, row in batch]):
                cells[field.column].setdefault(column, []).extend(values)
        if not (batch := list(itertools.islice(rows, _TOGETHER))):
            return splits, cells


def one_row_a_box(frame: pd.DataFrame, fields: Sequence[Field]) -> pd.DataFrame:
    """Lists of boxes that came one a row as rows again; an image without boxes keeps one row."""
    kind = next((field.kind for field in fields if field.gathered), None)
    if not isinstance(kind, Boxes):
        return frame
    of_boxes = [field for field in fields if field.of_boxes]
    long = frame.explode([name for of in of_boxes for name in columns_of(of.column, of.kind)])
    for name in kind.columns:
        long[name] = long[name].astype(np.float64)
    if kind.label is not None:
        long[kind.label] = long[kind.label].where(long[kind.label].notna(), None)
    return long


def table_of(
    stored: StoredDataset,
    split: str,
    names: Collection[str] | None = None,
    on_pixels: bool = False,
) -> pd.DataFrame:
    """All columns of a split's records but the pictures, in the order of the records.

    Args:
        names: of the columns that are needed, if all of them are the dataset's own.
        on_pixels: boxes and masks are those of the records, whose images are as they are stored,
            also where the source had them of turned images, or of other sizes.

    Returns:
        The columns that `to_frame` gives, without those of images that have no file names.  The
        index is the number of the record; boxes are lists, one row a record.

    Raises:
        DatasetError: a record is damaged, or the dataset was replaced since it was opened.
    """
    files = file_fields(stored.fields)
    fields = [field for field in stored.fields if field not in files or name_key(stored, field)]
    if names is not None and {*names} <= {field.column for field in fields}:
        fields = [field for field in fields if field.column in names]
    needed = [key for field in fields for key in table_keys(field)]
    rows = None if on_pixels else record_rows(stored, split, fields, needed)
    records: Sequence[object]
    if rows is None:
        records, cells = gather(stored, fields, [split])
    else:
        records = range(len(rows))
        cells = cells_in(fields, rows)
    codes = np.zeros(len(records), np.int8)
    of_one = pd.Categorical.from_codes(codes, pd.Index([split]))
    return frame_of(stored, of_one, cells, pd.RangeIndex(len(records)))


def labels_of(
    stored: StoredDataset,
    split: str,
    column: str | None = None,
) -> np.ndarray:
    """The class of each record of a split, as an integer, in the order of the records.

    Args:
        column: with the classes; None is the only one that has any.

    Returns:
        int64 of [records]; for a column with several classes a record, an array of arrays.

    Raises:
        OptionError: no column has classes, several have, or this one has none.
        DatasetError: as `table_of`.
    """
    field = class_column(stored, column)
    key = str(field.label_key)
    rows = record_rows(stored, split, [field], [key])
    if rows is not None and isinstance(field.kind, Label):
        return np.asarray(rows.column(key))
    if rows is not None:
        cells = rows.column(key).to_pylist()
    else:
        cells = [row.get(key, ()) for _, row in read_rows(stored, [split])]
    if isinstance(field.kind, Label):
        return np.array([next(iter(values), NO_LABEL) for values in cells], np.int64)
    return objects([np.array(values, np.int64) for values in cells])


def class_column(stored: StoredDataset, column: str | None) -> Field:
    """The column of this name, or the only one, that has classes.

    Raises:
        OptionError: no column has classes, several have, or this one has none.
    """
    fields = {field.column: field for field in stored.fields if field.label_key is not None}
    if column is None and len(fields) == 1:
        return next(iter(fields.values()))
    if column not in fields:
        names = ", ".join(map(repr, fields)) or "none"
        raise OptionError.of(
            "column",
            column,
            f"give a column with classes; {stored.directory} has {names}.",
        )
    return fields[column]


def record_rows(
    stored: StoredDataset,
    split: str,
    fields: Iterable[Field],
    names: list[str],
) -> pa.Table | None:
    """Values of a split's records from the tables; None if these do not have them all.

    Args:
        fields: the columns that they are of.
        names: of the columns of the tables.
    """
    if stored.commit is None:
        return None
    options = opened_commit(stored.directory, stored.commit).plan.options
    if "image_format" in options and any(field.of_boxes for field in fields):
        return None  # images were transformed, and their boxes with them
    shards = [parse_shard(os.path.basename(file.path)) for file in stored.splits[split]]
    size = RECORD_OF.size
    try:
        rows = read_tables(stored.directory, list(filter(None, shards)), those_of([*names, size]))
    except DatasetError:
        return None
    if rows is None or not {*names} <= {*rows.column_names}:
        return None
    has_record = pc.greater_equal(rows.column(size), 0)
    if not pc.all(has_record).as_py():
        rows = rows.filter(has_record)
    return rows if len(rows) == stored.records(split) else None


def frame_of(
    stored: StoredDataset,
    splits: Any,
    cells: Mapping[str, Cells],
    index: pd.Index,
) -> pd.DataFrame:
    """The frame of some records, with its columns in the order of the schema.

    Args:
        stored: the dataset.
        splits: of each record.
        cells: by the column of the field; a field without any makes no column.
        index: of the frame.
    """
    options = {}
    if stored.commit is not None:
        options = opened_commit(stored.directory, stored.commit).plan.options
    columns = {}
    schema = options.get("schema") or {}
    splits_of = (name for name, kind in schema.items() if kind_of(name, kind).word == "split")
    split_column = next(splits_of, SPLIT_COLUMN)
    order = list(schema) or [SPLIT_COLUMN, *(field.column for field in stored.fields)]
    if split_column not in order:
        order = [split_column, *order]
    by_name = {field.column: field for field in stored.fields if field.column in cells}
    for name in order:
        field = by_name.get(name)
        if field is not None and not field.is_unlabelled:
            for column, values in cells[name].items():
                columns[column] = _series(field, values, index)
        elif field is None and name == split_column:
            columns[name] = pd.Series(splits, index=index)
    return pd.DataFrame(columns, index=index)


def name_key(stored: StoredDataset, field: Field) -> str | None:
    """The key with the file name of an image, a mask or a file; None if there is none."""
    if not isinstance(field.kind, FILES):
        return None
    usual = _FILENAMES if isinstance(field.kind, Image) else ()
    names = (f"{field.encoded_key.removesuffix('/encoded')}/filename", *usual)
    return next((name for name in names if stored.features.get(name) == "text"), None)


def cells_of(
    stored: StoredDataset,
    images: str,
    field: Field,
    rows: Sequence[Row],
) -> Iterator[tuple[str, list[Any]]]:
    """The columns that a field makes, each with its cells.

    Raises:
        OptionError: images="uri", and the records do not name their image files.
    """
    kind = field.kind
    if isinstance(kind, FILES):
        is_uri = images == "uri"
        key = name_key(stored, field) if is_uri else field.encoded_key
        read: Callable[[bytes], Any] = text_of if is_uri else bytes
        if key is None:
            raise OptionError.of(
                "images",
                "uri",
                f"{stored.directory} does not say from which file its {field.column} is; "
                "give `images='bytes'`.",
            )
        yield field.column, [next(map(read, row.get(key, ())), None) for row in rows]
    elif isinstance(kind, Label):
        yield field.column, [next(iter(_classes(field, row)), None) for row in rows]
    elif isinstance(kind, Labels):
        yield from _several(field, kind, [_classes(field, row) for row in rows])
    elif isinstance(kind, Boxes):
        yield from _boxes(field, kind, rows)
    else:
        values: Iterator[Any] = (row.get(field.key, ()) for row in rows)
        if isinstance(kind, Text):
            values = (list(map(text_of, texts)) for texts in values)
        yield field.column, [_value(kind, cell) for cell in values]


def table_keys(field: Field) -> list[str]:
    """What the tables of shards hold of a column, in the order in which `cells_in` needs it."""
    if isinstance(field.kind, FILES):
        return [field.uri_key]
    classes = field.label_key if field.integer else field.text_key
    edges = field.edges if isinstance(field.kind, Boxes) else ()
    masks = field.masks_key if edges and field.held is None else None
    return [*edges, *filter(None, [classes, masks])] or [field.key]


def cells_in(fields: Iterable[Field], rows: pa.Table) -> dict[str, Cells]:
    """The cells of columns by the column of the field, from the tables of shards, without pixels.

    Those of which the tables do not hold everything are left out.
    """
    cells = {}
    for field in fields:
        names = table_keys(field)
        if {*names} <= {*rows.column_names}:
            cells[field.column] = dict(_cells_in(field, [rows.column(key) for key in names]))
    return cells


def _cells_in(field: Field, values: Sequence[pa.ChunkedArray]) -> Iterator[tuple[str, Any]]:
    kind: Any = field.kind
    if isinstance(kind, Labels):
        yield from _several(field, kind, values[0].to_pylist())
    elif isinstance(kind, Boxes):
        columns = columns_of(field.column, kind)
        for column, of_boxes in zip(columns, values, strict=True):
            lists = of_boxes.to_pylist()
            if column in kind.columns and kind.unit == "pixel":
                lists = [np.round(edges, 3).tolist() for edges in lists]
            yield column, lists
    elif isinstance(kind, ValueKind) and kind.shape != ():
        yield field.column, [_value(kind, cell) for cell in values[0].to_pylist()]
    elif isinstance(kind, Label) and not field.integer:
        yield field.column, pc.if_else(pc.equal(values[0], ""), None, values[0])
    else:
        yield field.column, values[0]


def _classes(field: Field, row: Row) -> list[Any]:
    """Classes as text if the record or the metadata has it, else as integers."""
    texts = row.get(field.text_key or "", ())
    if len(texts) and all(map(len, texts)) and not field.integer:
        return list(map(text_of, texts))
    numbers = np.asarray(row.get(field.label_key or "", ()), np.int64).tolist()
    names: tuple[str | None, ...] = () if field.integer else field.names or ()
    # The last of the names stands for -1, which is no class.
    names = (*names, None) if names else ()
    return [names[number] if -1 <= number < len(names) - 1 else number for number in numbers]


def _several(
    field: Field,
    kind: Labels,
    cells: Sequence[list[Any]],
) -> Iterator[tuple[str, list[Any]]]:
    if kind.columns is not None:
        for place, column in enumerate(kind.columns):
            yield column, [labels[place] if place < len(labels) else None for labels in cells]
    elif kind.separator is not None:
        yield field.column, [kind.separator.join(map(str, labels)) for labels in cells]
    else:
        yield field.column, list(cells)


def _boxes(
    field: Field,
    kind: Boxes,
    rows: Sequence[Row],
) -> Iterator[tuple[str, list[Any]]]:
    """Lists of edges and classes; of other tools, in the unit of the record and with masks."""
    corners = [stored_corners(field, row) for row in rows]
    if kind.unit == "pixel" and not field.in_pixels:
        # float32 does not hold fractions exactly: round to thousandths of a pixel.
        corners = [
            np.round(boxes.astype(np.float64) * _sides(row), 3)
            for boxes, row in zip(corners, rows, strict=True)
        ]
    for column, edge in zip(kind.columns, (1, 0, 3, 2), strict=True):
        yield column, [boxes[:, edge].tolist() for boxes in corners]
    if kind.label is not None:
        yield kind.label, [_classes(field, row) for row in rows]
    if field.masks_key is not None:
        masks = [list(row.get(field.masks_key, ())) for row in rows]
        if kind.masks:
            yield kind.masks, [[*map(as_segmentation, map(bytes, of_row))] for of_row in masks]
        else:
            yield field.masks_key, masks


def objects(values: Sequence[Any]) -> np.ndarray:
    """An array with each value in a cell, also where values are lists or arrays."""
    cells = np.empty(len(values), object)
    cells[:] = values
    return cells


def _sides(row: Row) -> list[int]:
    """The height and the width of an image, twice."""
    return [int(row[key][0]) for key in (keys.HEIGHT, keys.WIDTH)] * 2


def _value(kind: Any, values: Any) -> Any:
    is_number = isinstance(kind, Number)
    cells: Any = np.asarray(values, kind.dtype) if is_number else objects(values)
    if kind.shape == ():
        return cells[0] if len(cells) else None
    return cells.tolist() if None in kind.shape else cells.reshape(kind.shape)


def _series(
    field: Field,
    values: Any,
    index: pd.Index,
) -> pd.Series:
    """Numbers as their type, texts as texts, anything else as objects: a list is one cell."""
    kind: Any = field.kind
    if isinstance(values, pa.ChunkedArray):
        series = values.to_pandas().set_axis(index)
        return series.astype(kind.dtype) if isinstance(kind, Number) else series
    if not any(value is None for value in values):
        if isinstance(kind, Number) and kind.shape == ():
            return pd.Series(np.array(values, dtype=kind.dtype), index=index)
        if all(isinstance(value, str) for value in values) and not field.integer:
            return pd.Series(values, index=index)
        if isinstance(kind, Label) and all(isinstance(value, int) for value in values):
            return pd.Series(np.array(values, dtype=np.int64), index=index)
    return pd.Series(values, index=index, dtype=object)
