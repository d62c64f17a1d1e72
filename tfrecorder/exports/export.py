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
import os
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import OneOf, spelled
from tfrecorder.core.text import read_json
from tfrecorder.core.threads import cores, map_at_once
from tfrecorder.display.bars import is_shown, record_bar
from tfrecorder.display.tables import Report, counted, counts_in_words
from tfrecorder.errors import OptionError, OutputError
from tfrecorder.exports.annotation_files import (
    IMAGE_ID,
    WITH_BOXES,
    Written,
    annotation_files,
    as_json,
    boxes_in,
    has_image_ids,
    kept_of_boxes,
)
from tfrecorder.exports.names import NAMES_FILE, Tables, file_columns, file_names
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import to_csv
from tfrecorder.images.check import check_image, format_of
from tfrecorder.images.pixels import orientation_of, shape_of
from tfrecorder.images.transform import Transform, transform_image, without_metadata
from tfrecorder.inspection.record_values import encoded_of
from tfrecorder.options.keywords import COCO, FOLDER, FORMS, IMAGE_FORMATS, WEBDATASET, YOLO, Path
from tfrecorder.options.option import require
from tfrecorder.reading.dataset import ShardFile, StoredDataset
from tfrecorder.reading.frame import read_rows, record_rows, table_of
from tfrecorder.reading.info import info
from tfrecorder.reading.record_set import open_stored
from tfrecorder.schema.fields import class_field, file_fields, of_kind, primary_file
from tfrecorder.schema.kinds import Boxes, Bytes, Image, Label

#: What says which export is under way in a folder; removed last.
_MARK = f"{layout.PRIVATE}/export.json"

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")


@dataclass(frozen=True, repr=False)
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
        >>> tfrecorder.export("out", "photos_coco", to="coco")  # doctest: +SKIP
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
            files[NAMES_FILE] = to_csv([("file", "uri"), *pairs]).encode()
            count = counted(len(own), "image")
            notes.append(f"named otherwise than their uris: {count}; {NAMES_FILE} has both")
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
    folder = "images/" if to in WITH_BOXES else ""
    images = []
    for name, pictures in part.records():
        files = dict[str, str]()
        seen = (0, 0, 1)
        for column, data in pictures.items():
            endings = _endings(data)
            is_whole = name.lower().endswith(endings) and to != YOLO
            path = name if is_whole else f"{name}{endings[0]}"
            if not files and to in WITH_BOXES:
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
    made = []
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
        files = {}
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
            member = tarfile.TarInfo(f"{number:08d}.{ending}")
            member.size = len(data)
            head = member.tobuf(tarfile.GNU_FORMAT)
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


def left_out(stored: StoredDataset, to: str) -> list[str]:
    """The columns that a form has no place for.

    Raises:
        OptionError: it has no place for what this dataset is.
    """
    image = primary_file(stored.fields)
    boxes = boxes_in(stored)
    label = class_field(stored.fields)
    if to in WITH_BOXES and boxes is None:
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
    others = kept_of_boxes(stored) if to == COCO else set()
    others |= {IMAGE_ID} if to == COCO and has_image_ids(stored) else set()
    return [f.column for f in stored.fields if f not in kept and f.column not in others]
