"""What an export says of its images: the files of COCO, YOLO and CSV, and a folder's table."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tfrecorder.display.tables import counted
from tfrecorder.exports import yolo
from tfrecorder.exports.names import CSV_FILES, METADATA, Tables
from tfrecorder.format.csv_cells import csv_of
from tfrecorder.images.boxes_and_masks import area_of, in_pixels, stored_plane
from tfrecorder.options.keywords import COCO, CSV, FOLDER, YOLO
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import one_row_a_box
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field, of_kind, primary_image, with_validators
from tfrecorder.schema.kinds import Boxes, Bytes, Kind, Number, Schema, Split, Text, columns_of
from tfrecorder.schema.schema_file import write_schema

#: Arrays and numbers of NumPy are lists and numbers.
_JSON = json.JSONEncoder(ensure_ascii=False, default=lambda array: array.tolist())

#: What COCO says of a box, by the names of our columns, as its source has them.
_OF_BOXES = {"area": "area", "is_crowd": "iscrowd"}

#: The column with the ids that images had in COCO.
IMAGE_ID = "image_id"

#: The forms that hold boxes; images are below the folder `images`.
WITH_BOXES = (COCO, YOLO)


class Written(NamedTuple):
    """What was written of one record.

    Attributes:
        files: the path of each image, below the folder of images, by the name of its column; in
            an archive what follows the number of the record.
        height, width: of the first one, as it is stored; 0 where they are not needed.
        orientation: that of EXIF, likewise 1.
        uri: of the first one, if it is not called so.
    """

    files: Mapping[str, str]
    height: int = 0
    width: int = 0
    orientation: int = 1
    uri: str = ""


def boxes_in(stored: StoredDataset) -> Field | None:
    return next(iter(of_kind(stored.fields, Boxes)), None)


def annotation_files(
    stored: StoredDataset,
    tables: Tables,
    images: Sequence[Written],
    to: str,
    notes: list[str],
) -> dict[str, bytes]:
    """The files that say what the images of all records are, by their paths.

    Args:
        notes: what they hold in another way is added.
    """
    if to == CSV:
        return _csv(stored, pd.concat(tables.values(), ignore_index=True), images)
    if to == FOLDER:
        return _metadata(images)
    if to not in WITH_BOXES:
        return {}
    left = iter(images)
    records = {split: [*itertools.islice(left, len(table))] for split, table in tables.items()}
    return (_coco_files if to == COCO else _yolo_files)(stored, tables, records, notes)


def as_json(value: Any) -> bytes:
    """A value as JSON."""
    return _JSON.encode(value).encode()


#: The records of each split.
_Records = Mapping[str, Sequence[Written]]


def _yolo_files(
    stored: StoredDataset,
    tables: Tables,
    records: _Records,
    notes: list[str],
) -> dict[str, bytes]:
    """`data.yaml`, and a text file for each image, empty for one without objects."""
    kind, names = _boxes_and_classes(stored)
    classes = {name: number for number, name in enumerate(names)}
    counts = Counter[str]()
    files = {}
    for split, table in tables.items():
        of_records = _objects(stored, table, records[split])
        for record, objects in zip(records[split], of_records, strict=True):
            (image,) = record.files.values()
            files[f"labels/{os.path.splitext(image)[0]}.txt"] = yolo.lines_of(
                objects,
                classes,
                (record.width, record.height),
                record.orientation,
                kind.masks is not None,
                counts,
            )
    notes += [f"{counted(count, 'object')} {words}" for words, count in counts.items() if count]
    if "VALIDATION" not in tables:
        notes.append("data.yaml has no images for `val`, which Ultralytics trains with")
    return {**files, "data.yaml": yolo.config(tables, names)}


def _coco_files(
    stored: StoredDataset,
    tables: Tables,
    records: _Records,
    notes: list[str],
) -> dict[str, bytes]:
    """COCO's instances of each split."""
    ids = _image_ids(stored, tables, notes)
    return {
        f"annotations/instances_{split.lower()}.json": as_json(
            _coco(stored, table, records[split], ids)
        )
        for split, table in tables.items()
    }


def _boxes_and_classes(stored: StoredDataset) -> tuple[Boxes, Sequence[str]]:
    """The boxes of a dataset that has some, and the names of their classes."""
    field = boxes_in(stored)
    assert field is not None
    assert isinstance(field.kind, Boxes)
    names = (field.class_names or ())[field.kind.background_class :]
    return field.kind, names if field.kind.label else ("object",)


def _objects(
    stored: StoredDataset,
    table: pd.DataFrame,
    records: Sequence[Written],
) -> list[list[yolo.Object]]:
    """The objects of each record of a split."""
    kind, _ = _boxes_and_classes(stored)
    edges = [*kind.columns]
    kept = [*kept_of_boxes(stored)]
    names = [*columns_of("", kind), *kept]
    flat = table[names].explode(names).dropna(subset=edges)
    sizes = np.array([(record.width, record.height) * 2 for record in records]).reshape(-1, 4)
    boxes = flat[edges].to_numpy(float) * (sizes[flat.index] if kind.unit == "fraction" else 1)
    nothing = [None] * len(flat)
    labels = flat[kind.label].astype(str) if kind.label else ["object"] * len(flat)
    masks = flat[kind.masks] if kind.masks else nothing
    given: list[Any] = flat[kept].rename(columns=_OF_BOXES).to_dict("records")
    objects: list[list[yolo.Object]] = [[] for _ in records]
    for place, label, box, mask, more in zip(flat.index, labels, boxes, masks, given, strict=True):
        width, height = sizes[place, :2].tolist()
        pixels = in_pixels(mask, stored_plane((width, height)), kind.unit)
        objects[place].append(yolo.Object(label, box, pixels, more))
    return objects


def has_image_ids(stored: StoredDataset) -> bool:
    """True if the column `IMAGE_ID` holds texts or whole numbers."""
    kinds = [field.kind for field in stored.fields if field.column == IMAGE_ID]
    are_one = (isinstance(kind, (Number, Text)) and kind.shape == () for kind in kinds)
    return any(are_one) and getattr(kinds[0], "dtype", "int64") == "int64"


def _image_ids(
    stored: StoredDataset,
    tables: Tables,
    notes: list[str],
) -> Iterator[Any]:
    """The ids of all images: those of their source, each once, else from 1 in each split."""
    if not has_image_ids(stored):
        return itertools.chain.from_iterable(range(1, len(one) + 1) for one in tables.values())
    given = pd.concat([table[IMAGE_ID] for table in tables.values()])
    again = given.duplicated()
    if again.any():
        clashes = counted(int(again.sum()), "image")
        notes.append(f"{clashes} had the id of another: they have new ids")
    taken = {*given}
    of_type = int if pd.api.types.is_integer_dtype(given) else str
    unused = (number for number in map(of_type, itertools.count(1)) if number not in taken)
    pairs = zip(given.tolist(), again, strict=True)
    return (next(unused) if is_again else number for number, is_again in pairs)


def _coco(
    stored: StoredDataset,
    table: pd.DataFrame,
    records: Sequence[Written],
    image_ids: Iterator[Any],
) -> dict[str, Any]:
    """COCO's instances of one split; categories and annotations count from 1."""
    image = primary_image(stored.fields)
    assert image is not None
    _, names = _boxes_and_classes(stored)
    ids = {name: number for number, name in enumerate(names, 1)}
    images = []
    made = list[dict[str, Any]]()
    for record, objects in zip(records, _objects(stored, table, records), strict=True):
        number = next(image_ids)
        size = {"width": record.width, "height": record.height}
        images.append({"id": number, "file_name": record.files[image.column], **size})
        for one in objects:
            x, y, right, lower = np.round(one.box, 3).tolist()
            box = [x, y, round(right - x, 3), round(lower - y, 3)]
            where = {"id": len(made) + 1, "image_id": number, "category_id": ids[one.label]}
            more = {"area": box[2] * box[3], "iscrowd": 0, **one.given}
            if one.mask is not None:
                more["segmentation"] = one.mask
                if "area" not in one.given:
                    more["area"] = area_of(one.mask, record.height, record.width)
            made.append({**where, "bbox": box, **more})
    categories = [{"id": number, "name": name} for name, number in ids.items()]
    return {"images": images, "annotations": made, "categories": categories}


def kept_of_boxes(stored: StoredDataset) -> set[str]:
    """Those of `_OF_BOXES` that this dataset has."""
    fields = (field for field in stored.fields if field.column in _OF_BOXES)
    return {f.column for f in fields if isinstance(f.kind, Number) and f.kind.of}


def _metadata(images: Sequence[Written]) -> dict[str, bytes]:
    """The table of each split for readers that want one: file and label."""
    paths = [path.split("/", 2) for image in images for path in image.files.values()]
    frame = pd.DataFrame(paths, columns=["split", "label", "name"])
    frame[keys.FILE_NAME] = frame["label"] + "/" + frame["name"]
    files = {}
    for split, rows in frame.groupby("split"):
        # No CSV: who reads that makes 7 of 007, and nothing of NA.
        table = rows[[keys.FILE_NAME, "label"]].to_parquet(index=False)
        files[f"{split}/{METADATA}"] = table
    return files


def _csv(
    stored: StoredDataset,
    frame: pd.DataFrame,
    images: Sequence[Written],
) -> dict[str, bytes]:
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
    texts = csv_of(frame, exact=True), write_schema(Schema(kinds))
    return dict(zip(CSV_FILES, map(str.encode, texts), strict=True))


def _named(field: Field) -> Any:
    """The kind of a column with the names of its classes, which keep their integers so."""
    kind: Any = field.kind
    if getattr(kind, "upright", None):
        kind = dataclasses.replace(kind, upright=False)  # what is written is of the stored pixels
    return dataclasses.replace(kind, names=field.names) if field.names else kind
