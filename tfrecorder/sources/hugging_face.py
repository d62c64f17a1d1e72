"""A Hugging Face `Dataset` or `DatasetDict` as a table whose images are read when needed.

`datasets` costs nothing here: the caller who has such a value has imported it.  Its rows are in
Arrow files mapped into memory, so columns are requested in Arrow, a few rows of images at a time,
and nothing is decoded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder.core.text import read_json
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import BOX_COLUMNS, COLUMNS, FILE_NAME, LABEL_COLUMN, SPLIT_COLUMN
from tfrecorder.schema.kinds import Schema, Split
from tfrecorder.schema.splits import SPELLINGS, SPLITS
from tfrecorder.sources.arrow import PIECE, arrow_columns, arrow_table
from tfrecorder.sources.cells import Rows
from tfrecorder.sources.finding import bad_annotation
from tfrecorder.sources.objects import as_numbers
from tfrecorder.sources.table import (
    MASK_COLUMN,
    OBJECTS,
    RawTable,
    as_objects,
    in_lists,
    is_list,
    schema_of,
)

if TYPE_CHECKING:
    from datasets import Dataset

#: What the boxes and the classes are called in the column of the objects of each image.
_BOX = "bbox"
_CLASSES = ("category", "categories", "label", "labels", "category_id")


#: The columns that are read if there is no schema.
_KNOWN = {*COLUMNS, *BOX_COLUMNS, FILE_NAME, MASK_COLUMN, OBJECTS}


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


def _cells_of(column: Dataset, rows: Rows) -> Iterator[Any]:
    """The cells of a column of images."""
    wanted = map(int, rows)
    while piece := list(itertools.islice(wanted, PIECE)):
        yield from column[piece].column(0).to_pylist()


def _in_arrow(dataset: Dataset, column: str) -> Any:
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
    features = parts[0][1].features
    for split, part in parts:
        if part.features != features:
            raise SourceError(
                f"split {split!r} of the dataset has different features from {parts[0][0]!r}: "
                f"{dict(part.features)}, not {dict(features)}."
            )
    dataset = concatenate_datasets([dataset for _, dataset in parts])
    of = arrow_columns(features.arrow_schema, options)
    if options.schema is None:  # others, such as vectors, may take more memory than there is
        needed = [name for name in of.plain if of.ours[name] in _KNOWN or name == options.split_by]
        of = of._replace(plain=needed)
    plain = {name: _in_arrow(dataset, name)[:][name] for name in of.plain}
    table = arrow_table(
        of,
        plain,
        len(dataset),
        lambda name: partial(_cells_of, _in_arrow(dataset, name)),
    )
    raw = with_objects(table)
    schema = options.schema or schema_of(raw.frame.rename(columns=of.renamed))
    if not isinstance(source, Mapping):
        return replace(raw, schema=schema)
    stated = schema.of(Split)
    split_column = next(iter(stated), SPLIT_COLUMN)
    if split_column in of.ours.values():
        raise SourceError(
            f"the splits are the keys of the DatasetDict, and it has a column {split_column!r} "
            "too; rename or remove that column."
        )
    if not stated:
        schema = Schema({SPLIT_COLUMN: Split(), **schema.columns})
    splits = pd.Series([split for split, _ in parts], dtype="category")
    of_rows = splits.repeat([len(part) for _, part in parts]).set_axis(raw.frame.index)
    return replace(raw, frame=raw.frame.assign(**{split_column: of_rows}), schema=schema)


def with_objects(table: RawTable) -> RawTable:
    """A table whose column `objects` holds the boxes of each image, with a column for each edge.

    Hugging Face's boxes are COCO's: left and upper edge, width and height.  What else is said of
    the objects is in columns such as `objects.area`.  A table whose objects are of another form, or
    that has boxes already, is returned as it is.
    """
    frame = table.frame
    names = {table.columns.get(name, name) for name in map(str, frame.columns)}
    is_stated = table.schema is not None and OBJECTS in table.schema.source_columns()
    if OBJECTS not in frame or is_stated or not names.isdisjoint([*BOX_COLUMNS, LABEL_COLUMN]):
        return table
    findings = [*table.findings]
    objects = list[Mapping[str, Any]]()
    counts = []
    for row, cell in enumerate(as_objects(frame[OBJECTS])):
        before = len(objects)
        try:
            objects += _objects_in(cell)
        except ValueError:
            words = "its lists have different lengths, or are no lists of boxes"
            findings.append(bad_annotation(row, OBJECTS, str(cell), words))
        counts.append(len(objects) - before)
    if not objects:
        return table
    sizes = np.array(counts)
    starts = as_numbers([one[_BOX] for one in objects], 4)
    edges = np.hstack([starts[:, :2], starts[:, :2] + starts[:, 2:]])
    columns = {name: in_lists(edges[:, at], sizes) for at, name in enumerate(BOX_COLUMNS)}
    classes = dict(table.classes)
    of_objects = classes.pop(OBJECTS, ())
    keys = dict.fromkeys(itertools.chain.from_iterable(objects))
    for key in keys:
        values = [one.get(key) for one in objects]
        if key in _CLASSES and LABEL_COLUMN not in columns:
            known: dict[Any, str] = dict(enumerate(of_objects))
            columns[LABEL_COLUMN] = in_lists([known.get(value, value) for value in values], sizes)
        elif key != _BOX:
            columns[f"{OBJECTS}.{key}"] = in_lists(values, sizes)
    if of_objects:
        classes[LABEL_COLUMN] = of_objects
    of_frame = {name: column.set_axis(frame.index) for name, column in columns.items()}
    frame = frame.drop(columns=OBJECTS).assign(**of_frame)
    return replace(table, frame=frame, classes=classes, findings=findings)


def _objects_in(cell: Any) -> list[Mapping[str, Any]]:
    """The objects in a cell: of a list of dicts, a dict of lists, or either as JSON.

    Raises:
        ValueError: it is none of them, or has an object without a box.
    """
    if isinstance(cell, str):
        cell = read_json(cell or "[]")
    if isinstance(cell, Mapping):
        lists = {key: values for key, values in cell.items() if is_list(values)}
        rows = zip(*lists.values(), strict=True)
        cell = [dict(zip(lists, values, strict=True)) for values in rows]
    if cell is None:
        return []
    if not is_list(cell) or not all(isinstance(one, Mapping) and _BOX in one for one in cell):
        raise ValueError
    return list(cell)


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
