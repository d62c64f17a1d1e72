"""Records that are copied: as they are, checksums compared and nothing decoded; or, in a shard that
is written again in its place, some with other values, and without those that are left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO, NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.core.arrays import Ints
from tfrecorder.core.threads import Room
from tfrecorder.errors import SourceError
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.example import Parsed, encode_parts, parse_example
from tfrecorder.format.layout import CHANGE, COPY_OF, MADE, READ, REDUCED, SAME, VALUES
from tfrecorder.format.plan import Plan, PlanKind, PlannedRow
from tfrecorder.format.tfrecord import frame, shifted_crc, unframe
from tfrecorder.images import jpeg, png
from tfrecorder.images.boxes_and_masks import levels_of
from tfrecorder.images.check import CheckedImage
from tfrecorder.output.staging import row_blocks
from tfrecorder.reading.commits import all_done, commit_of, commits
from tfrecorder.reading.dataset import ShardFile
from tfrecorder.reading.dataset_files import read_in_words
from tfrecorder.reading.record_bytes import MOST_TOGETHER, OpenFiles, damaged_record
from tfrecorder.schema.fields import Field, of_kind, with_validators
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.kinds import FILES, File, Image, Mask
from tfrecorder.writing.rows import (
    FileReader,
    KeyedImages,
    Loaded,
    Rejected,
    RowLoader,
    planned_reject,
)


def loaded(
    row: PlannedRow,
    parts: list[bytes],
    features: Parsed,
    fields: Sequence[Field],
    warning: str,
) -> Loaded:
    """A row whose record is already written.

    Args:
        parts: the framed record.
        features: its values.
        fields: of the dataset.
        warning: of the decoder; "" if there is none.
    """
    stored = [(field.key, _image(field, features)) for field in of_kind(fields, Image)]
    levels = {}
    for field in of_kind(fields, Mask):
        levels[field.column] = levels_of(bytes(features[field.encoded_key][0]))
    if stored:
        key, first = stored[0]
        stored[0] = key, first._replace(warning=warning or None)
    return Loaded(
        row=row,
        images=as_noted(row, stored),
        parts=parts,
        size=sum(map(len, parts)),
        input_bytes=sum(len(image.data) for _, image in stored),
        levels=levels,
    )


def as_noted(row: PlannedRow, images: KeyedImages) -> KeyedImages:
    """Images from a record, the first with all that their files had and training does not see."""
    if row.values.get(REDUCED) is None:  # then what the records show is all that is known
        return [*images]
    words = tuple(filter(None, row.text(REDUCED).split(",")))
    noted = []
    for key, image in images:
        noted.append((key, image._replace(reduced=words)))
        words = ()  # the first image has them all
    return noted


def _image(field: Field, features: Parsed) -> CheckedImage:
    """An image as its record describes it; only its file's header says whether it is rotated."""
    data = bytes(features[field.encoded_key][0])
    kind = bytes(features[f"{field.key}/format"][0]).decode()
    height, width, channels = (int(features[key][0]) for key in field.size_keys)
    of_format = {"jpeg": jpeg, "png": png}.get(kind)
    if of_format is None:
        return CheckedImage(data, kind, height, width, channels, 1, None)
    *_, orientation, reduced = of_format.read_header(data, None)
    unseen = tuple(word for word in reduced if word != "depth" or field.depth == 8)
    return CheckedImage(data, kind, height, width, channels, orientation, None, reduced=unseen)


#: Bytes that are copied at a time on a disk: they are still in the core's cache when they are
#: summed and written.  `MOST_TOGETHER` take 1.6 times the CPU, but on a bucket fewer requests.
LOCAL_PIECE = 2**20


#: The endings of images that are stored as they are.
_KEPT_ENDINGS = (".jpg", ".jpeg", ".png")


class RowChanger(RowLoader):
    """Copies the record of a row, or does what the plan says of it (`CHANGE`); threads share it.

    Args:
        directory: of the dataset that has the records.
        room, reader: as for `RowLoader`.
    """

    def __init__(
        self,
        plan: Plan,
        directory: str,
        room: Room,
        reader: FileReader,
    ) -> None:
        super().__init__(plan, room, reader)
        self._directory = directory
        self._opened = OpenFiles()
        self._fields = plan.fields
        self._kept = [field for field in plan.fields if isinstance(field.kind, (Image, File))]
        # What is kept was checked before.
        unchecked = replace(plan, fields=with_validators(plan.fields))
        self._unchecked = RowLoader(unchecked, room, reader)
        plain = [f for f in plan.fields if not (f.of_boxes or isinstance(f.kind, FILES))]
        self._turns = any(getattr(field.kind, "upright", False) for field in plan.fields)
        self._keys = {feature.key for field in plain for feature in field.features}

    def load(self, row: PlannedRow) -> Loaded | Rejected:
        if not row.values[COPY_OF.file]:  # it is new
            return super().load(row)
        reject = planned_reject(row)
        if reject is not None:
            return reject
        if row.values.get(CHANGE) == READ:
            return _sound(super().load(row))
        place = (row.number(COPY_OF.offset), row.number(COPY_OF.size))
        return self.changed(row, self._opened.read(self._shard_of(row), *place))

    def changed(
        self,
        row: PlannedRow,
        framed: bytes,
    ) -> Loaded:
        """A row as the plan has it.

        Args:
            framed: its record.

        Raises:
            DatasetError: the record is damaged, or of another row.
        """
        offset = row.number(COPY_OF.offset)
        try:
            features = parse_example(unframe(framed))
        except ValueError as error:
            raise damaged_record(self._shard_of(row), offset, error) from error
        number = bytes(features[SOURCE_ID][0]).decode()
        if number != str(row.row):
            raise damaged_record(
                self._shard_of(row),
                offset,
                f"it is the record of row {number}, but its table has row {row.row} here",
            )
        how = row.values.get(CHANGE)
        if how == MADE:
            return self._made_again(row, features)
        parts = [framed]
        if how == VALUES:
            given = {key: row.values[key] for key in self._keys & row.values.keys()}
            for key, kind in self._arrays.items():
                if key in given:
                    given[key] = np.asarray(given[key], kind)
            parts = frame(encode_parts({**features, **given, SOURCE_ID: str(row.row)}))
        return loaded(row, parts, features, self._fields, row.text(COPY_OF.warning))

    def _shard_of(self, row: PlannedRow) -> ShardFile:
        return ShardFile(os.path.join(self._directory, row.text(COPY_OF.file)), None, 0)

    def _made_again(
        self,
        row: PlannedRow,
        features: Parsed,
    ) -> Loaded:
        """A row made again of the images in its record."""
        stored = {}
        for field in self._kept:
            uri = row.text(field.uri_key)
            # What was encoded again has no orientation any more, which the boxes need.
            if not self._turns or uri.lower().endswith(_KEPT_ENDINGS):
                stored[uri] = bytes(features[field.encoded_key][0])
        reader = replace(self.reader, stored=stored)
        made = _sound(self._unchecked.load_from(reader, row))
        of_kept = {field.key for field in self._kept}
        sources = {key: source for key, source in made.sources.items() if key not in of_kept}
        return made._replace(sources=sources, images=as_noted(row, made.images))


def _sound(outcome: Loaded | Rejected) -> Loaded:
    """A record made again; a reject in its place would move all records behind it."""
    if isinstance(outcome, Loaded):
        return outcome
    raise SourceError(
        f"row {outcome.row.row}, image {outcome.row.image_uri!r}, cannot be written with what the "
        f"table has for it: {outcome.reject}. Correct the row, or leave it out, and run the same "
        "call again. Nothing was changed."
    )


def done_before(output_dir: str, plan: Plan) -> dict[str, DoneRecord]:
    """The done-records of the dataset that an update changes, by the names of the shards' files."""
    if plan.kind is not PlanKind.UPDATE:
        return {}
    before = commit_of(output_dir, plan.commit - 1, plan.follows.previous)
    if before is None:  # it was committed meanwhile
        return {}
    done = all_done(commits(output_dir, before))
    return {shard.file: record for shard, record in done.items()}


class OldShard(NamedTuple):
    """A shard that is written again with all its rows, in their order.

    Attributes:
        done: its done-record.
        places: of those of its rows that have a record.
        offsets, sizes, crcs: where each record is, how long it is, and its CRC32C; by its table.
    """

    done: DoneRecord
    places: Ints
    offsets: Ints
    sizes: Ints
    crcs: Ints


def old_shard(
    plan: Plan,
    rows: pa.Table,
    done: Mapping[str, DoneRecord],
) -> OldShard | None:
    """The one shard that some rows come from, if its records can be copied together.

    None if each record must be copied by itself.  `write_again` trusts what is checked here: the
    rows are those of the shard, each is kept, and their records follow one another without a gap.
    Rows that moved in from another shard, were left out or are read again fail it, and so do those
    of a table of form 4: without checksums of frames nothing would prove their order.
    """
    if plan.kind is not PlanKind.UPDATE:
        return None
    if COPY_OF.crc32c not in rows.column_names:  # an earlier version staged them
        return None
    files = rows.column(COPY_OF.file).unique().to_pylist()
    of_shard = done.get(files[0]) if len(files) == 1 else None
    crcs = rows.column(COPY_OF.crc32c)
    if of_shard is None or of_shard.rows != len(rows) or crcs.null_count:
        return None
    # Of masks that are read again the levels may be others than those of the shard.
    read_again = [READ, MADE] if of_shard.levels else [READ]
    if np.isin(rows.column(CHANGE).to_numpy(), read_again).any():
        return None
    all_sizes = rows.column(COPY_OF.size).to_numpy()
    places = np.flatnonzero(all_sizes >= 0)
    sizes = all_sizes[places]
    offsets = rows.column(COPY_OF.offset).to_numpy()[places]
    ends = np.cumsum(sizes)
    if (of_shard.records, of_shard.bytes) != (len(places), sizes.sum()):
        return None
    if not np.array_equal(offsets, ends - sizes):
        return None
    return OldShard(of_shard, places, offsets, sizes, crcs.to_numpy()[places])


class Rewritten(NamedTuple):
    """The records of a shard that was written again, in their order.

    Attributes:
        sizes: of each, with its framing.
        crcs: the CRC32C of each.
        crc: that of the shard's file.
    """

    sizes: Ints
    crcs: Ints
    crc: int


class _OldBytes:
    """The bytes of a shard; all of a small one on a bucket come with one request."""

    def __init__(
        self,
        shard: ShardFile,
        size: int,
    ) -> None:
        self._shard = shard
        self._files = OpenFiles()
        self._whole: bytes | None = None
        self.piece = MOST_TOGETHER
        if storage.is_local(shard.path):
            self.piece = LOCAL_PIECE
        elif size <= MOST_TOGETHER:
            with read_in_words(shard):
                self._whole = storage.read_bytes(shard.path)

    def read(
        self,
        start: int,
        stop: int,
    ) -> bytes:
        """Those from `start` up to `stop`."""
        if self._whole is not None:
            return self._whole[start:stop]
        return self._files.read(self._shard, start, stop - start)


def write_again(
    rows: pa.Table,
    directory: str,
    old: OldShard,
    changer: RowChanger,
    file: BinaryIO,
) -> Rewritten:
    """Write a shard with the changed records, and the others as they are, many at a time.

    Args:
        rows: as planned, from which `old_shard` made `old`.

    Raises:
        DatasetError: the old shard is damaged, or its table is of other records.
    """
    name = rows.column(COPY_OF.file)[0].as_py()
    shard = ShardFile(os.path.join(directory, name), None, 0)
    data = _OldBytes(shard, old.done.bytes)
    at = before = now = 0

    def read(start: int, stop: int) -> bytes:
        nonlocal before
        some = data.read(start, stop)
        before = google_crc32c.extend(before, some)
        return some

    def copy(start: int, stop: int) -> None:
        nonlocal now
        differed = before ^ now
        for first in range(start, stop, data.piece):
            storage.write_all(file, read(first, min(first + data.piece, stop)))
        now = before ^ shifted_crc(differed, stop - start)

    sizes = old.sizes.copy()
    crcs = old.crcs.copy()
    numbers = np.flatnonzero(rows.column(CHANGE).to_numpy()[old.places] != SAME)
    changed = (row for block in row_blocks(rows.take(old.places[numbers])) for row in block)
    for number, row in zip(numbers.tolist(), changed, strict=True):
        offset = int(old.offsets[number])
        copy(at, offset)
        at = offset + int(sizes[number])
        outcome = changer.changed(row, read(offset, at))
        framed = b"".join(outcome.parts)
        storage.write_all(file, framed)
        now = google_crc32c.extend(now, framed)
        sizes[number] = outcome.size
        crcs[number] = google_crc32c.value(framed)
    copy(at, old.done.bytes)
    if before != old.done.crc32c:
        raise damaged_record(shard, 0, f"its CRC32C is {before:08x}, not {old.done.crc32c:08x}")
    return Rewritten(sizes, crcs, now)
