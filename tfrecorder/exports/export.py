"""`export`: a dataset in a form of other tools, with its images byte for byte unless asked.

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
import sys
import tarfile
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import OneOf, spelled
from tfrecorder.core.text import read_json
from tfrecorder.core.threads import cores, map_at_once
from tfrecorder.display.bars import is_shown, record_bar
from tfrecorder.display.tables import Report, counted, counts_in_words
from tfrecorder.errors import OptionError, OutputError
from tfrecorder.exports import yolo
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import csv_of, to_csv
from tfrecorder.images.boxes_and_masks import area_of, in_pixels, stored_plane
from tfrecorder.images.check import check_image, format_of
from tfrecorder.images.pixels import orientation_of, shape_of
from tfrecorder.images.transform import Transform, transform_image, without_metadata
from tfrecorder.inspection.record_values import encoded_of
from tfrecorder.options.keywords import (
    COCO,
    CSV,
    FOLDER,
    FORMS,
    IMAGE_FORMATS,
    WEBDATASET,
    YOLO,
    Path,
)
from tfrecorder.options.option import require
from tfrecorder.reading.dataset import ShardFile, StoredDataset
from tfrecorder.reading.frame import one_row_a_box, read_rows, record_rows, table_of
from tfrecorder.reading.info import info
from tfrecorder.reading.record_set import open_stored
from tfrecorder.schema import keys
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
    Image,
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

#: A part of a path that every file system and every tool takes: no name of a device of Windows, no
#: dot or space at its end, and of the signs of ASCII only these.
_PART = (
    r"(?!(?:con|prn|aux|nul|com\d|lpt\d)(?![^./]))"
    r"[\w\xa1-\U0010ffff][\w ()+,=@.\xa1-\U0010ffff-]*(?<![ .])"
)
_SAFE = re.compile(f"(?:{_PART}/)*{_PART}", re.IGNORECASE)

#: File systems take parts of 255 bytes; an ending may follow.
_MOST_BYTES = 240

#: The file that says which image has a name of its own, and the tables of a CSV and of a folder.
_NAMES = "names.csv"
_CSV_FILES = ("dataset.csv", "schema.yaml")
_METADATA = "metadata.parquet"

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
        notes: what else is not as in the dataset, or not as a reader expects it, in sentences.
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
        return [words, *self.notes] if self.left_out else [*self.notes]


@dataclass(frozen=True)
class _Part:
    """A shard to write.

    Attributes:
        number: of the shard in its split.
        first: the number of its first record.
        names: of its records, with their uris.
        columns: of files, as `file_columns`.
        form: the format of its images; "keep" leaves them as they are.
    """

    stored: StoredDataset
    split: str
    shard: ShardFile
    number: int
    first: int
    table: pd.DataFrame
    names: Mapping[str, str]
    columns: Mapping[str, str]
    form: str

    def records(self) -> Iterator[tuple[str, dict[str, bytes]]]:
        """The name of each record, and its images by their columns."""
        stored = self.stored
        fields = [field for field in file_fields(stored.fields) if field.column in self.columns]
        wanted = {key for field in fields for key in (field.encoded_key, *field.size_keys)}
        record = tuple(feature for feature in stored.record if feature.key in wanted)
        alone = dataclasses.replace(stored, splits={self.split: (self.shard,)}, record=record)
        rows = read_rows(alone, [self.split], "bytes")
        for name, (_, row) in zip(self.names, rows, strict=True):
            images = {}
            for field in fields:
                if data := encoded_of(row, field.encoded_key, stored):
                    is_image = isinstance(field.kind, Image)
                    images[field.column] = in_format(data, self.form) if is_image else data
            yield name, images


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


def export(
    directory: Path,
    output_dir: Path,
    to: str,
    *,
    image_format: str = "keep",
    at: int | None = None,
    progress: bool | None = None,
) -> Exported:
    """Write a dataset in a form of other tools; images stay byte for byte as they are stored.

    To continue an interrupted export, repeat the call: what is complete is not written again.

    Args:
        directory: what `convert` wrote.
        output_dir: a new or empty folder.
        to: "coco": `annotations/instances_SPLIT.json` over `images/`; "csv": `dataset.csv` with
            `schema.yaml`, which `convert` reads back; "folder": `split/label/file`, with a table
            for Hugging Face's `imagefolder`; "webdataset": an archive for each shard, with the
            members `jpg` or `png`, `json` and `cls`; "yolo": `data.yaml` over `images/` and
            `labels/`, as Ultralytics reads it.
        image_format: "jpeg" or "png" encodes images of another format in it, for readers that want
            one; "keep" leaves all as they are.
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
    require(OneOf(*IMAGE_FORMATS), image_format=image_format)
    out = storage.given_path(output_dir)
    stored = open_stored(directory, at)
    without = left_out(stored, to)
    moved = _are_moved(stored)
    tables = {split: table_of(stored, split, on_pixels=moved) for split in stored.splits}
    if image_format == "jpeg" and any(field.depth == 16 for field in stored.fields):
        words = "it holds 8 bits a channel, and this dataset has images of 16; give 'png'."
        raise OptionError.of("image_format", image_format, words)
    names = file_names(stored, tables, to)
    columns = file_columns(stored, without)
    of = storage.absolute(stored.directory)
    records = sum(map(len, tables.values()))
    with (
        storage.failing_writes(out),
        storage.failing_as(OutputError, out),
        record_bar(is_shown(progress)) as stage,
    ):
        asked = {"to": to, "image_format": image_format, "at": at}
        _begin(out, {**asked, "of": of, "commit": stored.note})
        written = {*storage.files_below(out)}
        advance = stage("writing", records)

        def work(part: _Part) -> list[Written]:
            made = (_archive if to == WEBDATASET else _place)(part, out, to, written)
            advance(len(part.names))
            return made

        parts = _parts(stored, tables, names, columns, image_format)
        images = list(itertools.chain.from_iterable(map_at_once(work, parts, cores())))
        notes = list[str]()
        files = annotation_files(stored, tables, images, to, notes)
        if to == WEBDATASET:
            notes += _of_archives(images)
        elif own := [image for image in images if image.uri]:
            pairs = [(next(iter(image.files.values())), image.uri) for image in own]
            files[_NAMES] = to_csv([("file", "uri"), *pairs]).encode()
            count = counted(len(own), "image")
            notes.append(f"named otherwise than their uris: {count}; {_NAMES} has both")
        storage.publish_all(out, files)
        storage.remove(out, layout.PRIVATE)
    return Exported(out, to, records, tuple(without), tuple(notes))


def _are_moved(stored: StoredDataset) -> bool:
    """Whether the source's boxes may be of other pixels than those that are written."""
    boxes = [field for field in stored.fields if isinstance(field.kind, Boxes)]
    if any(getattr(field.kind, "upright", False) for field in boxes):
        return True
    tables = (record_rows(stored, split, [], [*layout.STATED_OF]) for split in stored.splits)
    if not boxes or all(table is None for table in tables):
        return False
    about = info(stored.directory, stored.commit)
    return bool(about.oriented) or "scaled" in about.reduced


def _parts(
    stored: StoredDataset,
    tables: Tables,
    names: Mapping[str, Mapping[str, str]],
    columns: Mapping[str, str],
    form: str,
) -> Iterator[_Part]:
    for split, shards in stored.splits.items():
        ends = itertools.accumulate((shard.records or 0 for shard in shards), initial=0)
        places = zip(shards, itertools.pairwise(ends), strict=True)
        of_split = [*names[split].items()]
        for number, (shard, (first, end)) in enumerate(places):
            rows = tables[split].iloc[first:end]
            of_part = dict(of_split[first:end])
            yield _Part(
                stored,
                split,
                shard,
                number,
                first=first,
                table=rows,
                names=of_part,
                columns=columns,
                form=form,
            )


def _begin(out: str, mark: dict[str, Any]) -> None:
    """Mark a folder as that of an export; refuse one that holds something else."""
    with contextlib.suppress(storage.UnreadableError, ValueError):
        if read_json(storage.read_bytes(os.path.join(out, _MARK))) == mark:
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
            folder_of = part.columns[column]
            files[column] = path = f"{folder_of}/{path}" if folder_of else path
            if f"{folder}{path}" not in written:
                storage.publish_bytes(out, f"{folder}{path}", data)
        uri = part.names[name]
        images.append(Written(files, *seen, uri=uri if files and name != uri else ""))
    return images


def in_format(data: bytes, form: str) -> bytes:
    """An image in a format, its pixels as they are stored, with its orientation."""
    if form in ("keep", format_of("", data)):
        return data
    image = check_image(data, "header", sys.maxsize)
    wanted = Transform(size=None, resize="stretch", format=form, quality=95, upright=False)
    return without_metadata(transform_image(image, wanted)[0]).data


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
    name = f"{part.split.lower()}-{part.number:05d}.tar"
    if name in written:
        with open(os.devnull, "wb") as nowhere:
            return _write_archive(part, nowhere)
    made = list[Written]()
    storage.publish_by(out, name, lambda file: made.extend(_write_archive(part, file)))
    return made


def _write_archive(part: _Part, file: BinaryIO) -> list[Written]:
    buffered = io.BufferedWriter(file, 2**20)
    labels = class_field(part.stored.fields)
    without = left_out(part.stored, WEBDATASET)
    rows = part.table.drop(columns=without, errors="ignore").to_dict("records")
    column = labels.column if labels and isinstance(labels.kind, Label) else ""
    classes = {name: number for number, name in enumerate((labels and labels.names) or ())}
    records = zip(rows, part.records(), strict=True)
    made = []
    for number, (values, (_, pictures)) in enumerate(records, part.first):
        files = dict[str, str]()
        members = {}
        for name, data in pictures.items():
            ending = _endings(data)[0][1:]
            word = part.columns[name]
            files[name] = f"{word}.{ending}" if word else ending
            members[files[name]] = data
        members["json"] = as_json(values)
        if column in values:
            members["cls"] = str(classes.get(values[column], values[column])).encode()
        for ending, data in members.items():
            head = _tar_header(f"{number:08d}.{ending}", len(data))
            buffered.writelines((head, data, bytes(-len(data) % tarfile.BLOCKSIZE)))
        made.append(Written(files))
    buffered.write(bytes(2 * tarfile.BLOCKSIZE))
    buffered.flush()
    buffered.detach()
    return made


def _of_archives(images: Sequence[Written]) -> list[str]:
    """What a reader of archives must know of their members."""
    kinds = Counter(" and ".join(image.files.values()) for image in images)
    if len(kinds) < 2:
        return []
    words = f"members differ: {counts_in_words(kinds, 4)}; readers want the same of each record"
    is_format = len({len(image.files) for image in images}) == 1
    return [f"{words}: {spelled('image_format', 'png')}" if is_format else words]


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


class Names:
    """Names of files below a folder, of which no two are one file on any machine.

    Neither case nor the form of an accent tells two names apart, nor does a last ending, which may
    come or go; and no file has the name of a folder.
    """

    def __init__(self, *reserved: str) -> None:
        self._files = {*map(_same, reserved)}
        self._near = {*self._files}

    def choose(self, name: str, other: str) -> str:
        """This name, or the other with nothing or a number in its braces; no other file has it."""
        for number in itertools.count():
            own = _same(name)
            folders = itertools.accumulate(own.split("/")[:-1], "{}/{}".format)
            paths = {own, *folders}
            near = paths.union(os.path.splitext(path)[0] for path in paths)
            if is_safe(name) and own not in self._near and self._files.isdisjoint(near):
                break
            name = other.format(f"_{number}" if number else "")
        self._files.add(own)
        self._near |= near
        return name


def _same(name: str) -> str:
    """A name as file systems compare it that know no case."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def is_safe(name: str) -> bool:
    """Whether every file system and every tool takes this path."""
    longest = max(name.encode().split(b"/"), key=len)
    return len(longest) <= _MOST_BYTES and name.isprintable() and bool(_SAFE.fullmatch(name))


def file_columns(stored: StoredDataset, without: Sequence[str] = ()) -> dict[str, str]:
    """A word for each column of files, for a folder or a member of an archive; all differ.

    The one that gives the records their names has none.
    """
    names = Names()
    first = primary_file(stored.fields)
    words = {}
    for field in file_fields(stored.fields):
        if field.column not in without:
            word = re.sub(r"[^\w-]+", "_", field.column)
            words[field.column] = "" if field == first else names.choose(word, "column{}")
    return words


def file_names(
    stored: StoredDataset,
    tables: Tables,
    to: str,
) -> dict[str, dict[str, str]]:
    """The path of each record's first file, its ending aside, with its uri, by split.

    It is the uri, as far as that is a safe path and differs from all others, else a number.  Of
    absolute uris it is what follows their common folder, below a label the last part of it.

    Raises:
        OptionError: a label cannot name a folder.
    """
    image = primary_file(stored.fields)
    label = class_field(stored.fields) if to == FOLDER else None
    uris = {split: _texts_of(table, image) for split, table in tables.items()}
    labels = {split: _texts_of(table, label) for split, table in tables.items()}
    every = [*itertools.chain.from_iterable(uris.values())]
    # It is cut at a slash.
    common = os.path.commonprefix((min(every, default=""), max(every, default="")))  # noqa: RUF071
    common = common[: common.rfind("/") + 1]
    is_absolute = common.startswith("/") or "://" in common
    # The folders of the export itself, and of the other images of a record.
    words = filter(None, file_columns(stored).values())
    names = Names(layout.PRIVATE, _NAMES, *_CSV_FILES, *words)
    made = dict[str, dict[str, str]]()
    for split, of_split in uris.items():
        made[split] = {}
        folder = split.lower()
        if label is not None:
            _refuse_labels({*labels[split]})
        for number, (name, uri) in enumerate(zip(labels[split], of_split, strict=True)):
            path = uri.removeprefix(common) if is_absolute else uri
            other = f"{folder}{{0}}/{number:08d}{{0}}"
            if to == YOLO:
                path = yolo.name_of(split, path)
                other = f"{yolo.folder_of(split)}/{number:08d}{{}}"
            if label is not None:
                path = f"{folder}/{name}/{os.path.basename(path)}"
                other = f"{folder}/{name}/{number:08d}{{}}"
            made[split][names.choose(path, other)] = uri
    return made


def _texts_of(table: pd.DataFrame, field: Field | None) -> list[str]:
    """The values of a column of a split, as text; empty where the table has none."""
    is_there = field is not None and field.column in table
    return [*map(str, table[field.column])] if field and is_there else [""] * len(table)


def _refuse_labels(labels: Iterable[str]) -> None:
    """Raise an OptionError for a label that is no name of a folder, or that of another one."""
    known = Counter(map(_same, (_METADATA, *labels)))
    for name in labels:
        if "/" in name or not is_safe(name) or known[_same(name)] > 1:
            words = f"{name!r} is no name of a folder of its own on every machine; give 'csv'."
            raise OptionError.of("to", FOLDER, words)


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
        pixels = in_pixels(mask, stored_plane((width, height)), kind.unit)
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


def _metadata(images: Sequence[Written]) -> dict[str, bytes]:
    """The table of each split for readers that want one: file and label."""
    paths = [path.split("/", 2) for image in images for path in image.files.values()]
    frame = pd.DataFrame(paths, columns=["split", "label", "name"])
    frame[keys.FILE_NAME] = frame["label"] + "/" + frame["name"]
    files = {}
    for split, rows in frame.groupby("split"):
        # No CSV: who reads that makes 7 of 007, and nothing of NA.
        table = rows[[keys.FILE_NAME, "label"]].to_parquet(index=False)
        files[f"{split}/{_METADATA}"] = table
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
    return dict(zip(_CSV_FILES, map(str.encode, texts), strict=True))


def _named(field: Field) -> Any:
    """The kind of a column with the names of its classes, which keep their integers so."""
    kind: Any = field.kind
    if getattr(kind, "upright", None):
        kind = dataclasses.replace(kind, upright=False)  # what is written is of the stored pixels
    return dataclasses.replace(kind, names=field.names) if field.names else kind
