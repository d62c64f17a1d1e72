"""Forms of other tools: where each image goes in one, and the files that annotate all of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tfrecorder.errors import OptionError
from tfrecorder.format import layout
from tfrecorder.options.forms import COCO, CSV, FOLDER
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import one_row_a_box
from tfrecorder.schema.fields import (
    Field,
    class_field,
    file_fields,
    of_kind,
    primary_file,
    primary_image,
    with_validators,
)
from tfrecorder.schema.kinds import Boxes, Bytes, Kind, Label, Number, Schema, Split, columns_of
from tfrecorder.schema.schema_file import write_schema

#: Arrays and numbers of NumPy are lists and numbers.
_JSON = json.JSONEncoder(ensure_ascii=False, default=lambda array: array.tolist())

#: Paths that every file system and every tool takes.
_SAFE = re.compile(r"(?:\w[\w ()+,=@.-]*/)*\w[\w ()+,=@.-]*")


#: What COCO says of a box, by the names of our columns, as its source has them.
_OF_BOXES = {"area": "area", "is_crowd": "iscrowd"}


class Written(NamedTuple):
    """What was written of one record.

    Attributes:
        files: the path of each image, below the folder of images, by the name of its column.
        height, width: of the first one; 0 without any.
    """

    files: Mapping[str, str]
    height: int
    width: int


#: The columns of the records of each split, as `table_of` gives them.
Tables = Mapping[str, pd.DataFrame]


def boxes_in(stored: StoredDataset) -> Field | None:
    return next(iter(of_kind(stored.fields, Boxes)), None)


def left_out(stored: StoredDataset, to: str) -> list[str]:
    """The columns that a form has no place for.

    Raises:
        OptionError: it has no place for what this dataset is.
    """
    image = primary_file(stored.fields)
    boxes = boxes_in(stored)
    label = class_field(stored.fields)
    if to == COCO and boxes is None:
        raise OptionError.of("to", to, "it holds boxes, and this dataset has none; give 'csv'.")
    is_label = label is not None and isinstance(label.kind, Label) and not label.is_unlabelled
    if to == FOLDER and not is_label:
        raise OptionError.of(
            "to",
            to,
            "its folders are labels, and this dataset has not one column of them; give 'csv'.",
        )
    kept = {COCO: (image, boxes), FOLDER: (image, label)}.get(to)
    if kept is None:
        return [field.column for field in of_kind(stored.fields, Bytes)]
    of_boxes = _kept_of_boxes(stored) if to == COCO else set()
    return [f.column for f in stored.fields if f not in kept and f.column not in of_boxes]


def file_names(stored: StoredDataset, tables: Tables, to: str) -> dict[str, list[str]]:
    """The path of each record's first file, its ending aside, by split.

    They are the uris, as far as these are paths that differ, else numbers.

    Raises:
        OptionError: a label is no name of a folder.
    """
    image = primary_file(stored.fields)
    label = class_field(stored.fields)
    numbers = {
        split: [f"{split.lower()}/{number:08d}" for number in table.index]
        for split, table in tables.items()
    }
    if to == FOLDER and label is not None:
        labels = {split: table[label.column].astype(str) for split, table in tables.items()}
        for name in {name for of_split in labels.values() for name in of_split.unique()}:
            if "/" in name or not _SAFE.fullmatch(name):
                raise OptionError.of("to", to, f"{name!r} is no name of a folder; give 'csv'.")
        made = {}
        for split, of_split in labels.items():
            pairs = zip(numbers[split], of_split, strict=True)
            made[split] = [path.replace("/", f"/{name}/") for path, name in pairs]
        return made
    if image is None or any(image.column not in table for table in tables.values()):
        return numbers
    uris = {split: table[image.column].tolist() for split, table in tables.items()}
    names = [uri for of_split in uris.values() for uri in of_split]
    different = {name.lower() for name in names} | {f"{name.lower()}.png" for name in names}
    # The folders of the export itself, and of the other images of a record.
    others = {layout.PRIVATE, *(field.column for field in file_fields(stored.fields))}
    is_fit = all(map(_SAFE.fullmatch, names)) and len(different) == 2 * len(names)
    is_fit = is_fit and others.isdisjoint(name.partition("/")[0] for name in names)
    return uris if is_fit else numbers


def annotation_files(
    stored: StoredDataset, tables: Tables, images: Sequence[Written], to: str
) -> dict[str, bytes]:
    """The files that say what the images of all records are, by their paths."""
    if to == CSV:
        return _csv(stored, pd.concat(tables.values(), ignore_index=True), images)
    left = iter(images if to == COCO else ())
    return {
        f"annotations/instances_{split.lower()}.json": as_json(
            _coco(stored, table, list(itertools.islice(left, len(table))))
        )
        for split, table in tables.items()
        if to == COCO
    }


def as_json(value: Any) -> bytes:
    """A value as JSON."""
    return _JSON.encode(value).encode()


def _coco(stored: StoredDataset, table: pd.DataFrame, records: Sequence[Written]) -> dict[str, Any]:
    """COCO's instances of one split; images and annotations count from 1."""
    field = boxes_in(stored)
    image = primary_image(stored.fields)
    assert field is not None
    assert image is not None
    kind: Any = field.kind
    start = 0 if kind.background_class else 1
    names = field.class_names or () if kind.label else ("object",)
    ids = {name: number + start for number, name in enumerate(names) if number + start}
    images = []
    made = list[dict[str, Any]]()
    columns = [table[name] for name in kind.columns]
    labels = table[kind.label] if kind.label else [["object"] * len(boxes) for boxes in columns[0]]
    for number, (record, *edges, of_boxes) in enumerate(
        zip(records, *columns, labels, strict=True), 1
    ):
        size = {"width": record.width, "height": record.height}
        images.append({"id": number, "file_name": record.files[image.column], **size})
        unit = (record.width, record.height) * 2 if kind.unit == "fraction" else (1, 1, 1, 1)
        corners = np.round(np.array(edges, float).T * unit, 3)
        for (x, y, right, lower), label in zip(corners.tolist(), of_boxes, strict=True):
            box = [x, y, round(right - x, 3), round(lower - y, 3)]
            where = {"id": len(made) + 1, "image_id": number, "category_id": ids[str(label)]}
            made.append({**where, "bbox": box, "area": box[2] * box[3], "iscrowd": 0})
    if kind.masks:
        masks = (cell for of_record in table[kind.masks] for cell in of_record)
        for annotation, cell in zip(made, masks, strict=True):
            annotation["segmentation"] = json.loads(cell)
    for name in _kept_of_boxes(stored):
        values = (value for of_record in table[name] for value in np.asarray(of_record).tolist())
        for annotation, value in zip(made, values, strict=True):
            annotation[_OF_BOXES[name]] = value
    categories = [{"id": number, "name": name} for name, number in ids.items()]
    return {"images": images, "annotations": made, "categories": categories}


def _kept_of_boxes(stored: StoredDataset) -> set[str]:
    """Those of `_OF_BOXES` that this dataset has."""
    fields = (field for field in stored.fields if field.column in _OF_BOXES)
    return {f.column for f in fields if isinstance(f.kind, Number) and f.kind.of}


def _csv(stored: StoredDataset, frame: pd.DataFrame, images: Sequence[Written]) -> dict[str, bytes]:
    """A table as `convert` reads it, and the schema to read it with."""
    others = {name for field in stored.fields for name in columns_of(field.column, field.kind)}
    split = next(name for name in frame if name not in others)
    files = pd.DataFrame([record.files for record in images])
    fields = [f for f in stored.fields if not (isinstance(f.kind, Bytes) or f.is_unlabelled)]
    fields = [*with_validators(fields)]
    kinds: dict[str, Kind] = {str(split): Split(), **{f.column: _named(f) for f in fields}}
    names = [name for kind in kinds.items() for name in columns_of(*kind)]
    frame = frame.assign(**{str(name): files[name] for name in files})[names]
    # A CSV has a row for each box, also where the source had lists.
    long = (dataclasses.replace(f, gathered=isinstance(f.kind, Boxes)) for f in stored.fields)
    frame = one_row_a_box(frame, [*long])
    for name, column in frame.items():
        if any(isinstance(cell, (list, np.ndarray)) for cell in column):
            frame = frame.assign(**{str(name): [as_json(cell).decode() for cell in column]})
    text = frame.to_csv(index=False)
    return {"dataset.csv": text.encode(), "schema.yaml": write_schema(Schema(kinds)).encode()}


def _named(field: Field) -> Any:
    """The kind of a column with the names of its classes, which keep their integers so."""
    kind: Any = field.kind
    return dataclasses.replace(kind, names=field.names) if field.names else kind
