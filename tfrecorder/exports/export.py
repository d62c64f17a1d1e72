"""`export`: a dataset in a form of other tools, with its images byte for byte.

    columns, names ──► shard by shard: images, or an archive ──► annotations, written last

What is complete has its final name, so the same call continues after an interruption.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.checks import OneOf
from tfrecorder.core.threads import cores, map_at_once
from tfrecorder.display.bars import is_shown, record_bar
from tfrecorder.display.tables import Report, counted
from tfrecorder.errors import OutputError
from tfrecorder.exports import forms
from tfrecorder.format import layout
from tfrecorder.images.files import format_of
from tfrecorder.inspection.record_values import encoded_of
from tfrecorder.options.forms import COCO, FORMS, WEBDATASET
from tfrecorder.options.keywords import Path
from tfrecorder.options.option import require
from tfrecorder.reading.dataset import ShardFile, StoredDataset
from tfrecorder.reading.decoding import shape_of
from tfrecorder.reading.frame import read_rows, table_of
from tfrecorder.reading.stored_records import open_stored
from tfrecorder.schema.fields import class_field, file_fields
from tfrecorder.schema.kinds import Label

#: What says which export is under way in a folder; removed last.
_MARK = f"{layout.PRIVATE}/export.json"

#: The header of a member of a tar that has neither a name nor a size.
_TAR_HEADER = tarfile.TarInfo().tobuf(tarfile.GNU_FORMAT)

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")


@dataclass(frozen=True)
class Exported(Report):
    """What `export` wrote.

    Attributes:
        output_dir: the folder.
        to: the form.
        records: how many there are in it.
        left_out: the columns that the form has no place for.
    """

    output_dir: str
    to: str
    records: int
    left_out: tuple[str, ...]

    def _headline(self) -> str:
        return f"{counted(self.records, 'record')} in {self.output_dir}, as {self.to}"

    def _notes(self) -> list[str]:
        words = f"left out, as {self.to} has no place for them: {', '.join(self.left_out)}"
        return [words] if self.left_out else []


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
            an archive for each shard, with the members `jpg` or `png`, `json` and `cls`.
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
    without = forms.left_out(stored, to)
    tables = {split: table_of(stored, split) for split in stored.splits}
    names = forms.file_names(stored, tables, to)
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

        def work(part: _Part) -> list[forms.Written]:
            made = (_archive if to == WEBDATASET else _place)(part, out, to, written)
            advance(len(part.names))
            return made

        every = map_at_once(work, _parts(stored, tables, names), cores())
        images = list(itertools.chain.from_iterable(every))
        storage.publish_all(out, forms.annotation_files(stored, tables, images, to))
        storage.remove(out, layout.PRIVATE)
    return Exported(out, to, records, tuple(without))


def _parts(
    stored: StoredDataset, tables: forms.Tables, names: dict[str, list[str]]
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
    storage.publish_bytes(out, _MARK, forms.as_json(mark))


def _place(part: _Part, out: str, to: str, written: set[str]) -> list[forms.Written]:
    """Write the images of a part that are not there."""
    folder = "images/" if to == COCO else ""
    images = []
    for name, pictures in part.records():
        files = dict[str, str]()
        size = (0, 0)
        for column, data in pictures.items():
            endings = _endings(data)
            size = size if files or to != COCO else shape_of(data)
            path = name if name.lower().endswith(endings) else f"{name}{endings[0]}"
            files[column] = path = f"{column}/{path}" if files else path
            if f"{folder}{path}" not in written:
                storage.publish_bytes(out, f"{folder}{path}", data)
        images.append(forms.Written(files, *size))
    return images


def _endings(data: bytes) -> tuple[str, ...]:
    """The usual ending of a file's name, and others that its name may have."""
    return _JPEG if (kind := format_of("", data)) == "jpeg" else (f".{kind or 'bin'}",)


def _archive(part: _Part, out: str, to: str, written: set[str]) -> list[forms.Written]:
    """Write a part as an archive in the form of WebDataset, unless it is there."""
    name = os.path.basename(part.shard.path).partition(".")[0] + ".tar"
    if name not in written:
        storage.publish_by(out, name, partial(_write_archive, part))
    return []


def _write_archive(part: _Part, file: BinaryIO) -> None:
    buffered = io.BufferedWriter(file, 2**20)
    labels = class_field(part.stored.fields)
    without = forms.left_out(part.stored, WEBDATASET)
    rows = part.table.drop(columns=without, errors="ignore").to_dict("records")
    column = labels.column if labels and isinstance(labels.kind, Label) else ""
    classes = {name: number for number, name in enumerate((labels and labels.names) or ())}
    records = zip(rows, part.records(), strict=True)
    for number, (values, (_, pictures)) in enumerate(records, part.first):
        members = {
            f"{f'{name}.' if place else ''}{_endings(data)[0][1:]}": data
            for place, (name, data) in enumerate(pictures.items())
        }
        members["json"] = forms.as_json(values)
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
