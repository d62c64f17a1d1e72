"""A Hugging Face `Dataset` or `DatasetDict` as a table whose images are read when needed.

`datasets` costs nothing here: the caller who has such a value has imported it.  Its rows are in
Arrow files mapped into memory, so columns are requested in Arrow, a few rows of images at a time,
and nothing is decoded.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import BOX_COLUMNS, COLUMNS, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Schema, Split
from tfrecorder.schema.splits import SPELLINGS, SPLITS
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.objects import as_numbers
from tfrecorder.sources.table import (
    MASK_COLUMN,
    RawTable,
    as_objects,
    in_lists,
    is_list,
    schema_of,
)

if TYPE_CHECKING:
    from datasets import Dataset

#: The column in which the objects of each image are, their boxes, and their classes.
OBJECTS = "objects"
_BOX = "bbox"
_CLASSES = ("category", "categories", "label", "labels", "category_id")

#: How many rows of images are in memory at a time.
PIECE = 16


def is_hugging_face(source: object) -> bool:
    """True for what `datasets.load_dataset` returns; others may have a module of that name too."""
    names = _names(source)
    if names & {"Dataset", "IterableDataset"}:
        return hasattr(source, "features")
    return bool(names & {"DatasetDict", "IterableDatasetDict"})


def _names(value: object) -> set[str]:
    """The names of a value's classes that belong to the package `datasets`."""
    classes = type(value).__mro__
    return {cls.__name__ for cls in classes if cls.__module__.partition(".")[0] == "datasets"}


class DatasetCells:
    """The cells of a column of images."""

    def __init__(
        self,
        dataset: Dataset,
        column: str,
    ) -> None:
        self._cells = _arrow(dataset, column)

    def __len__(self) -> int:
        return len(self._cells)

    def read(self, rows: Sequence[int] | np.ndarray) -> Iterator[Any]:
        for _, group in itertools.groupby(map(int, rows), key=lambda row: row // PIECE):
            wanted = list(group)
            (column,) = self._cells[wanted[0] : wanted[-1] + 1].columns
            for row in wanted:
                yield column[row - wanted[0]].as_py()


def _arrow(dataset: Dataset, column: str) -> Any:
    return dataset.select_columns([column]).with_format("arrow")


def read_dataset(source: Any, options: ConvertOptions) -> RawTable | None:
    """The rows of a `Dataset`, or of all splits of a `DatasetDict` one after the other.

    A column of the schema without class names gets those of the dataset, in the order of their
    integers.

    Raises:
        SourceError: it is a stream, it has a split with another name, its splits have different
            columns, or more than one column could hold the images or the labels.
    """
    if not is_hugging_face(source):
        return None
    from datasets import concatenate_datasets

    parts = _parts(source)
    schema = options.schema
    features = parts[0][1].features
    for split, part in parts:
        if part.features != features:
            raise SourceError(
                f"split {split!r} of the dataset has different features from {parts[0][0]!r}: "
                f"{dict(part.features)}, not {dict(features)}."
            )
    kinds = {name: _kind(feature) for name, feature in features.items()}
    columns = columns_by_type(kinds, schema)
    dataset = concatenate_datasets([dataset for _, dataset in parts])
    ours = {name: columns.get(name, name) for name in features}
    wanted = (
        {*COLUMNS, *BOX_COLUMNS, MASK_COLUMN, OBJECTS}
        if schema is None
        else schema.source_columns()
    )
    kept = [name for name in features if ours[name] in wanted or name == options.split_by]
    classes = {name: names for name in kept if (names := _classes(features[name]))}
    images = [name for name in kept if kinds[name] == "Image"]
    plain = {name: _arrow(dataset, name)[:].column(0) for name in kept if name not in images}
    frame = arrow_frame([*features], images, plain, classes, len(dataset))
    of_objects = _classes_of_objects(features.get(OBJECTS))
    frame, findings = with_objects(frame, ours.values(), of_objects)
    if of_objects and OBJECTS not in frame:
        classes[LABEL_COLUMN] = of_objects
        ours[LABEL_COLUMN] = LABEL_COLUMN
    schema = schema or schema_of(frame.rename(columns=ours))
    if isinstance(source, Mapping):
        split_column = next(iter(schema.of(Split)), SPLIT_COLUMN)
        if split_column in ours.values():
            raise SourceError(
                f"the splits are the keys of the DatasetDict, and it has a column {split_column!r} "
                "too; rename or remove that column."
            )
        split_names = [split for split, _ in parts]
        counts = [len(part) for _, part in parts]
        splits = np.repeat(split_names, counts)
        frame = frame.assign(**{split_column: pd.Categorical(splits)})
        if split_column not in schema.columns:
            schema = Schema({split_column: Split(), **schema.columns})
    return RawTable(
        frame,
        os.getcwd(),
        schema=schema,
        columns=columns,
        cells={ours[name]: DatasetCells(dataset, name) for name in images},
        classes={ours[name]: names for name, names in classes.items()},
        findings=findings,
    )


def with_objects(
    frame: pd.DataFrame,
    names: Collection[str],
    classes: Sequence[str] = (),
) -> tuple[pd.DataFrame, list[Finding]]:
    """A table whose column `objects` holds the boxes of each image, with a column for each edge.

    Hugging Face's boxes are COCO's: left and upper edge, width and height.  What else is said of
    the objects is in columns such as `objects.area`.

    Args:
        names: of the columns, as we call them.
        classes: the names of the classes, if the boxes have integers.

    Returns:
        The table as it is, if its objects are of another form or it has boxes already; and what
        is wrong.
    """
    if OBJECTS not in frame or not {*BOX_COLUMNS, LABEL_COLUMN}.isdisjoint(names):
        return frame, []
    cells = [_lists_of(cell) for cell in as_objects(frame[OBJECTS])]
    keys = dict.fromkeys(itertools.chain.from_iterable(filter(None, cells)))
    if _BOX not in keys:
        return frame, []
    findings = []
    lists = dict[str, list[Any]]({key: [] for key in keys})
    sizes = []
    for row, cell in enumerate(cells):
        sound = {key: values for key, values in (cell or {}).items() if is_list(values)}
        size = len(sound.get(_BOX, ()))
        if cell is None or {*map(len, sound.values())} - {size}:
            message = "its lists have different lengths, or are no lists of boxes"
            findings.append(bad_annotation(row, OBJECTS, str(cell), message))
            sound = {}
            size = 0
        sizes.append(size)
        for key, values in lists.items():
            values.extend(sound.get(key, [None] * size))
    counts = np.array(sizes, np.int64)
    starts = as_numbers(lists.pop(_BOX), 4)
    edges = np.hstack([starts[:, :2], starts[:, :2] + starts[:, 2:]])
    columns = {name: in_lists(edges[:, at], counts) for at, name in enumerate(BOX_COLUMNS)}
    for key, values in lists.items():
        name = f"{OBJECTS}.{key}"
        if key in _CLASSES and LABEL_COLUMN not in columns:
            name = LABEL_COLUMN
            values = [classes[value] if value in range(len(classes)) else value for value in values]
        columns[name] = in_lists(_as_array(values), counts)
    # Of the frame's index, whatever that is.
    of_frame = {name: column.set_axis(frame.index) for name, column in columns.items()}
    return frame.drop(columns=OBJECTS).assign(**of_frame), findings


def _as_array(values: Sequence[Any]) -> np.ndarray:
    """Any values as Python's own."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def _lists_of(cell: Any) -> Mapping[str, Any] | None:
    """The lists in a cell, by name: of a dict, of a list of dicts, or of either as JSON."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell or "{}")
        except ValueError:
            return None
    if is_list(cell) and all(isinstance(one, Mapping) for one in cell):
        keys = dict.fromkeys(itertools.chain.from_iterable(cell))
        return {key: [one.get(key) for one in cell] for key in keys}
    return cell if isinstance(cell, Mapping) else {} if cell is None else None


def _classes_of_objects(feature: Any) -> tuple[str, ...]:
    """The names of the classes of objects: of the first of their features that has some."""
    inner = getattr(feature, "feature", feature)
    if is_list(inner) and len(inner) == 1:
        inner = inner[0]
    of_features = map(_classes, inner.values()) if isinstance(inner, Mapping) else ()
    return next(filter(None, of_features), ())


def _parts(source: Any) -> list[tuple[str, Any]]:
    """The datasets with their splits."""
    several = source if isinstance(source, Mapping) else {"": source}
    if any("IterableDataset" in _names(dataset) for dataset in several.values()):
        raise SourceError(
            "source is a stream of Hugging Face, whose rows cannot be read twice; load it without "
            "`streaming=True`, or give its rows to `tfrecorder.stream`."
        )
    if not isinstance(source, Mapping):
        return [("", source)]
    for split in source:
        if SPELLINGS.get(str(split).strip().lower()) not in SPLITS:
            raise SourceError(
                f"split {split!r} of the dataset is not train, validation or test; leave it out, "
                f"or rename it: datasets.DatasetDict(train=dataset[{str(split)!r}])."
            )
    if not source:
        raise SourceError("source is a DatasetDict without a split.")
    return [(str(split), dataset) for split, dataset in source.items()]


def columns_by_type(
    kinds: Mapping[str, str],
    schema: Schema | None,
    given: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The columns that stand for ours: those that are given, and the only one of a type.

    Args:
        kinds: the name of each column's type in Hugging Face.
        schema: its columns keep their names.
        given: the source's names for our columns.
    """
    stated = schema.source_columns() if schema else []
    columns = dict(given or {})
    for wanted, kind, noun in (
        (URI_COLUMN, "Image", "images"),
        (LABEL_COLUMN, "ClassLabel", "class labels"),
    ):
        names = [name for name in kinds if kinds[name] == kind and name not in stated]
        is_wanted = schema is None or wanted in stated
        if wanted in (*kinds, *columns.values()) or not names or not is_wanted:
            continue
        if len(names) > 1:
            raise SourceError(
                f"the columns {names} of the dataset are all {noun}: rename one to {wanted!r}, or "
                "give a schema."
            )
        columns[names[0]] = wanted
    return columns


def _kind(feature: Any) -> str:
    """The name of a feature's type; "" for lists and dicts of features."""
    return type(feature).__name__ if _names(feature) else ""


def _classes(feature: Any) -> tuple[str, ...]:
    """The class names of a feature; for a list, those of its one feature."""
    if isinstance(feature, (list, tuple)) and len(feature) == 1:
        return _classes(feature[0])
    inner = getattr(feature, "feature", None)
    if inner is not None:
        return _classes(inner)
    return tuple(feature.names) if _kind(feature) == "ClassLabel" else ()


def arrow_frame(
    names: Sequence[str],
    images: Container[str],
    plain: Mapping[str, pa.ChunkedArray],
    classes: Mapping[str, Sequence[str]],
    rows: int,
) -> pd.DataFrame:
    """A frame of columns in Arrow: of images it has empty texts, of what is not needed False.

    Args:
        names: of all columns.
        plain: those that are needed and no images.
        classes: the names of classes by column.
    """
    frame: dict[str, Any] = {name: "" if name in images else False for name in names}
    for name, column in plain.items():
        if name in classes:
            frame[name] = _class_texts(column, classes[name])
            continue
        if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        whole = pa.chunked_array([column.combine_chunks()])
        frame[name] = whole.to_pandas(integer_object_nulls=True)
    return pd.DataFrame(frame, index=range(rows))


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
