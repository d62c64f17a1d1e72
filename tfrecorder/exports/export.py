"""`export`: a dataset in a form of other tools, with its images byte for byte.

    columns, names ──► shard by shard: images, or an archive ──► annotations, written last

What is complete has its final name, so the same call continues after an interruption.  A form says
where each image goes, and which files annotate all of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import OneOf
from tfrecorder.core.threads import cores, map_at_once
from tfrecorder.display.bars import is_shown, record_bar
from tfrecorder.display.tables import Report, counted
from tfrecorder.errors import OptionError, OutputError
from tfrecorder.exports import yolo
from tfrecorder.format import layout
from tfrecorder.images.boxes_and_masks import area_of, in_pixels
from tfrecorder.images.check import format_of
from tfrecorder.images.pixels import orientation_of, shape_of
from tfrecorder.inspection.record_values import encoded_of
from tfrecorder.options.keywords import COCO, CSV, FOLDER, FORMS, WEBDATASET, YOLO, Path
from tfrecorder.options.option import require
from tfrecorder.reading.dataset import ShardFile, StoredDataset
from tfrecorder.reading.frame import one_row_a_box, read_rows, table_of
from tfrecorder.reading.record_set import open_stored
from tfrecorder.schema.fields import (
    Field,
    class_field,
    file_fields,
    of_kind,
    primary_file,
    primary_image,
    with_validators,
)
from tfrecorder.schema.kinds import (
    Boxes,
    Bytes,
    Kind,
    Label,
    Number,
    Schema,
    Split,
    Text,
    columns_of,
)
from tfrecorder.schema.schema_file import write_schema

#: What says which export is under way in a folder; removed last.
_MARK = f"{layout.PRIVATE}/export.json"

#: The header of a member of a tar that has neither a name nor a size.
_TAR_HEADER = tarfile.TarInfo().tobuf(tarfile.GNU_FORMAT)

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")

#: Arrays and numbers of NumPy are lists and numbers.
_JSON = json.JSONEncoder(ensure_ascii=False, default=lambda array: array.tolist())

#: Paths that every file system and every tool takes.
_SAFE = re.compile(r"(?:\w[\w ()+,=@.-]*/)*\w[\w ()+,=@.-]*")

#: What COCO says of a box, by the names of our columns, as its source has them.
_OF_BOXES = {"area": "area", "is_crowd": "iscrowd"}

#: The column with the ids that images had in COCO.
_IMAGE_ID = "image_id"

#: The forms that hold boxes; images are below the folder `images`.
_WITH_BOXES = (COCO, YOLO)

#: The columns of the records of each split, as `table_of` gives them.
Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Exported(Report):
    """What `export` wrote.

    Attributes:
        output_dir: the folder.
        to: the form.
        records: how many there are in it.
        left_out: the columns that the form has no place for.
        notes: what else the form holds in another way.
    """

    output_dir: str
    to: str
    records: int
    left_out: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def _headline(self) -> str:
        return f"{counted(self.records, 'record')} in {self.output_dir}, as {self.to}"

    def _notes(self) -> list[str]:
        words = f"left out, as {self.to} has no place for them: {', '.join(self.left_out)}"
        return [*([words] if self.left_out else []), *self.notes]


@dataclass(frozen=True)
class _Part:
    """A shard to write: its records from number `first` of their split on, and their names."""

    stored: StoredDataset
    split: str
    shard: ShardFile
    first: int
    table: pd.DataFrame
    names: list[str]

    def records(self) -> Iterator[tuple[str, dict[str, bytes]]]:
        """The name of each record, and its images by their columns."""
        stored = self.stored
        fields = file_fields(self.stored.fields)
        wanted = {key for field in fields for key in (field.encoded_key, *field.size_keys)}
        record = tuple(feature for feature in stored.record if feature.key in wanted)
        alone = dataclasses.replace(stored, splits={self.split: (self.shard,)}, record=record)
        rows = read_rows(alone, [self.split], "bytes")
        for name, (_, row) in zip(self.names, rows, strict=True):
            images = {f.column: encoded_of(row, f.encoded_key, stored) for f in fields}
            yield name, {column: data for column, data in images.items() if data}


class Written(NamedTuple):
    """What was written of one record.

    Attributes:
        files: the path of each image, below the folder of images, by the name of its column.
        height, width: of the first one, as it is stored; 0 where they are not needed.
        orientation: that of EXIF, likewise 1.
    """

    files: Mapping[str, str]
    height: int
    width: int
    orientation: int


def export(
    directory: Path,
    output_dir: Path,
    to: str,
    *,
    at: int | None = None,
    progress: bool | None = None,
) -> Exported:
    """Write a dataset in a form of other tools; images stay byte for byte as they are stored.

    To continue an interrupted export, repeat the call: what is complete is not written again.

    Args:
        directory: what `convert` wrote.
        output_dir: a new or empty folder.
        to: "coco": `annotations/instances_SPLIT.json` over `images/`; "csv": `dataset.csv` with
            `schema.yaml`, which `convert` reads back; "folder": `split/label/file`; "webdataset":
            an archive for each shard, with the members `jpg` or `png`, `json` and `cls`; "yolo":
            `data.yaml` over `images/` and `labels/`, as Ultralytics reads it.
        at: as for `load`.
        progress: as for `convert`.

    Raises:
        OptionError: an argument is wrong, or the form cannot hold this dataset.
        OutputError: `output_dir` holds something else, is in the dataset, or cannot be written.
        DatasetError: the directory is not a whole dataset, or a record is damaged.

    Example:
        >>> tfrecorder.export("out", "flowers_coco", to="coco")  # doctest: +SKIP
    """
    require(OneOf(*FORMS), to=to)
    out = storage.given_path(output_dir)
    stored = open_stored(directory, at)
    without = left_out(stored, to)
    tables = {split: table_of(stored, split) for split in stored.splits}
    names = file_names(stored, tables, to)
    names = yolo.names_of(names) if to == YOLO else names
    of = storage.absolute(stored.directory)
    records = sum(map(len, tables.values()))
    with (
        storage.failing_writes(out),
        storage.failing_as(OutputError, out),
        record_bar(is_shown(progress)) as stage,
    ):
        _begin(out, {"to": to, "of": of, "commit": stored.note, "at": at})
        written = {*storage.files_below(out)}
        advance = stage("writing", records)

        def work(part: _Part) -> list[Written]:
            made = (_archive if to == WEBDATASET else _place)(part, out, to, written)
            advance(len(part.names))
            return made

        every = map_at_once(work, _parts(stored, tables, names), cores())
        images = list(itertools.chain.from_iterable(every))
        notes = list[str]()
        storage.publish_all(out, annotation_files(stored, tables, images, to, notes))
        storage.remove(out, layout.PRIVATE)
    return Exported(out, to, records, tuple(without), tuple(notes))


def _parts(
    stored: StoredDataset,
    tables: Tables,
    names: dict[str, list[str]],
) -> Iterator[_Part]:
    for split, shards in stored.splits.items():
        ends = itertools.accumulate((shard.records or 0 for shard in shards), initial=0)
        for shard, (first, end) in zip(shards, itertools.pairwise(ends), strict=True):
            rows = tables[split].iloc[first:end]
            yield _Part(stored, split, shard, first, rows, names[split][first:end])


def _begin(out: str, mark: dict[str, Any]) -> None:
    """Mark a folder as that of an export; refuse one that holds something else."""
    with contextlib.suppress(storage.UnreadableError, ValueError):
        if json.loads(storage.read_bytes(os.path.join(out, _MARK))) == mark:
            return
    if f"{storage.absolute(out)}/".startswith(f"{mark['of']}/"):
        raise OutputError(f"{out} is in the dataset itself; give another folder.")
    if others := {*storage.names(out)} - layout.DESKTOP_FILES:
        raise OutputError(f"{out} holds {min(others)!r}; give a new or empty folder.")
    storage.publish_bytes(out, _MARK, as_json(mark))


def _place(
    part: _Part,
    out: str,
    to: str,
    written: set[str],
) -> list[Written]:
    """Write the images of a part that are not there."""
    folder = "images/" if to in _WITH_BOXES else ""
    images = []
    for name, pictures in part.records():
        files = dict[str, str]()
        seen = (0, 0, 1)
        for column, data in pictures.items():
            endings = _endings(data)
            is_whole = name.lower().endswith(endings) and to != YOLO
            path = name if is_whole else f"{name}{endings[0]}"
            if not files and to in _WITH_BOXES:
                seen = (*shape_of(data), orientation_of(data))
            files[column] = path = f"{column}/{path}" if files else path
            if f"{folder}{path}" not in written:
                storage.publish_bytes(out, f"{folder}{path}", data)
            if to == YOLO:
                break  # the trainer takes every image
        images.append(Written(files, *seen))
    return images


def _endings(data: bytes) -> tuple[str, ...]:
    """The usual ending of a file's name, and others that its name may have."""
    return _JPEG if (kind := format_of("", data)) == "jpeg" else (f".{kind or 'bin'}",)


def _archive(
    part: _Part,
    out: str,
    to: str,
    written: set[str],
) -> list[Written]:
    """Write a part as an archive in the form of WebDataset, unless it is there."""
    name = os.path.basename(part.shard.path).partition(".")[0] + ".tar"
    if name not in written:
        storage.publish_by(out, name, partial(_write_archive, part))
    return []


def _write_archive(part: _Part, file: BinaryIO) -> None:
    buffered = io.BufferedWriter(file, 2**20)
    labels = class_field(part.stored.fields)
    without = left_out(part.stored, WEBDATASET)
    rows = part.table.drop(columns=without, errors="ignore").to_dict("records")
    column = labels.column if labels and isinstance(labels.kind, Label) else ""
    classes = {name: number for number, name in enumerate((labels and labels.names) or ())}
    records = zip(rows, part.records(), strict=True)
    for number, (values, (_, pictures)) in enumerate(records, part.first):
        members = {
            f"{f'{name}.' if place else ''}{_endings(data)[0][1:]}": data
            for place, (name, data) in enumerate(pictures.items())
        }
        members["json"] = as_json(values)
        if column in values:
            members["cls"] = str(classes.get(values[column], values[column])).encode()
        for ending, data in members.items():
            head = _tar_header(f"{number:08d}.{ending}", len(data))
            buffered.writelines((head, data, bytes(-len(data) % tarfile.BLOCKSIZE)))
    buffered.write(bytes(2 * tarfile.BLOCKSIZE))
    buffered.flush()
    buffered.detach()


def _tar_header(name: str, size: int) -> bytes:
    """The header of a member, as `TarInfo.tobuf` makes it, which takes ten times as long."""
    encoded = name.encode()
    if len(encoded) > tarfile.LENGTH_NAME or size >= 8**11:
        member = tarfile.TarInfo(name)
        member.size = size
        return member.tobuf(tarfile.GNU_FORMAT)
    head = bytearray(_TAR_HEADER)
    head[: len(encoded)] = encoded
    head[124:136] = b"%011o\0" % size
    head[148:156] = b" " * 8  # the checksum counts itself as spaces
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


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
    if to in _WITH_BOXES and boxes is None:
        raise OptionError.of("to", to, "it holds boxes, and this dataset has none; give 'csv'.")
    is_label = label is not None and isinstance(label.kind, Label) and not label.is_unlabelled
    if to == FOLDER and not is_label:
        raise OptionError.of(
            "to",
            to,
            "its folders are labels, and this dataset has not one column of them; give 'csv'.",
        )
    kept = {COCO: (image, boxes), FOLDER: (image, label), YOLO: (image, boxes)}.get(to)
    if kept is None:
        return [field.column for field in of_kind(stored.fields, Bytes)]
    others = _kept_of_boxes(stored) if to == COCO else set()
    others |= {_IMAGE_ID} if to == COCO and _has_image_ids(stored) else set()
    return [f.column for f in stored.fields if f not in kept and f.column not in others]


def file_names(
    stored: StoredDataset,
    tables: Tables,
    to: str,
) -> dict[str, list[str]]:
    """The path of each record's first file, its ending aside, by split.

    They are the uris, as far as these are paths that differ, else numbers.

    Raises:
        OptionError: a label cannot name a folder.
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
    if to not in _WITH_BOXES:
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
    kept = [*_kept_of_boxes(stored)]
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
        pixels = in_pixels(mask, width, height, kind.unit)
        objects[place].append(yolo.Object(label, box, pixels, more))
    return objects


def _has_image_ids(stored: StoredDataset) -> bool:
    """True if the column `_IMAGE_ID` holds texts or whole numbers."""
    kinds = [field.kind for field in stored.fields if field.column == _IMAGE_ID]
    are_one = (isinstance(kind, (Number, Text)) and kind.shape == () for kind in kinds)
    return any(are_one) and getattr(kinds[0], "dtype", "int64") == "int64"


def _image_ids(
    stored: StoredDataset,
    tables: Tables,
    notes: list[str],
) -> Iterator[Any]:
    """The ids of all images: those of their source, each once, else from 1 in each split."""
    if not _has_image_ids(stored):
        return itertools.chain.from_iterable(range(1, len(one) + 1) for one in tables.values())
    given = pd.concat([table[_IMAGE_ID] for table in tables.values()])
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


def _kept_of_boxes(stored: StoredDataset) -> set[str]:
    """Those of `_OF_BOXES` that this dataset has."""
    fields = (field for field in stored.fields if field.column in _OF_BOXES)
    return {f.column for f in fields if isinstance(f.kind, Number) and f.kind.of}


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
    text = frame.to_csv(index=False)
    return {"dataset.csv": text.encode(), "schema.yaml": write_schema(Schema(kinds)).encode()}


def _named(field: Field) -> Any:
    """The kind of a column with the names of its classes, which keep their integers so."""
    kind: Any = field.kind
    return dataclasses.replace(kind, names=field.names) if field.names else kind
