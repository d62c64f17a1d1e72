"""One row: its image is read and checked, and both become a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import google_crc32c
import numpy as np

from tfrecorder.errors import RunnerError
from tfrecorder.format.example import encode_parts
from tfrecorder.format.plan import Plan, PlannedRow
from tfrecorder.format.plan_columns import REJECT_OF, is_fact
from tfrecorder.format.tfrecord import frame
from tfrecorder.images.boxes_and_masks import Placed, placed_boxes, stored_mask, stored_object_masks
from tfrecorder.images.check import CheckedImage, check_image
from tfrecorder.images.files import check_file, format_of
from tfrecorder.images.memory import Room
from tfrecorder.images.metadata import without_metadata
from tfrecorder.images.rejects import Reject
from tfrecorder.images.transform import transform_image, transform_of
from tfrecorder.schema import keys
from tfrecorder.schema.fields import SPOOLED, Field, image_of, primary_file
from tfrecorder.schema.kinds import Boxes, File, Image, Mask
from tfrecorder.writing.outcomes import OfFile, Sources


class Loaded(NamedTuple):
    """A row that became a record.

    Attributes:
        images: by what their keys begin with, the first one first.
        parts: the framed record, in buffers to write one after the other.
        size: their bytes, together.
        input_bytes: the size of the images' files.
        retries: how many extra attempts reading them took.
        sources: of the files that were read.
    """

    row: PlannedRow
    images: Sequence[tuple[str, CheckedImage]]
    parts: list[bytes]
    size: int
    input_bytes: int
    retries: int = 0
    sources: Sources = MappingProxyType({})


class Rejected(NamedTuple):
    """A row that gave no record."""

    row: PlannedRow
    reject: Reject
    retries: int = 0
    sources: Sources = MappingProxyType({})


#: A file, and when it was written, as `storage.read_source` gives both.
Dated = tuple[bytes, int | None]

#: How a file is read: from its uri; from its file in the spool if it came as bytes, else ""; with a
#: function to call before each further attempt; and of a column of files, with its kind.
Read = Callable[[str, str, Callable[[], None], File | None], Dated]

T = TypeVar("T")

#: The values of a row under way, by the keys of its record.
Features = dict[str, object]

#: What a worker does with a row.
LoadRow = Callable[[PlannedRow], Loaded | Rejected]


def planned_reject(row: PlannedRow) -> Rejected | None:
    """The reject that a row was planned as; None for a row to be loaded."""
    if not row.values.get(REJECT_OF.reason):
        return None
    code, _, detail = row.text(REJECT_OF.reason).partition(": ")
    return Rejected(row, Reject(row.text(REJECT_OF.stage), code, detail))


def without_facts(load: LoadRow) -> LoadRow:
    """`load` for the rows of a plan that has columns that belong to no record."""

    def load_values(row: PlannedRow) -> Loaded | Rejected:
        if (reject := planned_reject(row)) is not None:
            return reject
        of_record = (key for key in row.values if not is_fact(key) or key.startswith(SPOOLED))
        values = {key: row.values[key] for key in of_record}
        return load(row._replace(values=values))

    return load_values


#: The last part of the keys of an image, in the order of a record.
_OF_IMAGE = ("encoded", "format", "height", "width", "channels")

_DTYPES = {"float": np.float32, "int64": np.int64, "bool": np.int64, "label": np.int64}


class _Files:
    """The files of a row, each read and judged: what is known of them, and how often it was tried.

    Args:
        read: as for `row_loader`.
        first: the column whose file the list of rejects names.
    """

    def __init__(self, read: Read, first: Field | None) -> None:
        self._read, self._first = read, first
        self.retries = 0
        self.sources: dict[str, OfFile] = {}

    def accepted(self, field: Field, features: Features, judge: Callable[[bytes], T]) -> T:
        """What `judge` makes of a file's bytes.

        Args:
            features: of the row; that of the spooled file, which belongs to no record, is taken
                out.

        Raises:
            Reject: it cannot be read, or `judge` refuses it.
        """
        uri = str(features[field.uri_key])
        file = str(features.pop(field.spool_key, ""))
        kind = field.kind if isinstance(field.kind, File) else None
        try:
            data, modified = self._read(uri, file, self._note_retry, kind)
            of_file = OfFile(len(data), google_crc32c.value(data), modified)
            self.sources[field.key] = of_file
            judged = judge(data)
            if isinstance(judged, CheckedImage):
                self.sources[field.key] = of_file._replace(
                    height=judged.height, width=judged.width, look=judged.look
                )
            return judged
        except Reject as reject:
            if field is self._first:
                raise
            detail = f"{field.column} {uri!r}: {reject.detail}"
            raise Reject(reject.stage, reject.code, detail) from None

    def _note_retry(self) -> None:
        self.retries += 1


#: What adds the features of some columns to those of a row, from its files; it raises Reject.
_Step = Callable[[Features, _Files, dict[str, Placed]], None]


def row_loader(plan: Plan, room: Room, read: Read) -> LoadRow:
    """The function that does all the work of a row, in a thread of the pool.

    Everything that follows from the plan is worked out here, once: what is left for a row is 35 µs.

    Args:
        room: memory for pixels.
        read: reads an image, as `write_shard` does.
    """
    fields = plan.fields
    arrays = array_dtypes(fields)
    first = primary_file(fields)
    steps = (
        _images_step(fields, plan, room),
        _masks_step(fields, plan, room),
        _files_step(fields),
        _boxes_step(fields, room),
    )

    def load(row: PlannedRow) -> Loaded | Rejected:
        files = _Files(read, first)
        features = dict(row.values)
        features[keys.SOURCE_ID] = str(row.row)
        for key, dtype in arrays.items():
            features[key] = np.asarray(features[key], dtype)
        placed: dict[str, Placed] = {}
        try:
            for step in steps:
                step(features, files, placed)
        except Reject as reject:
            return Rejected(row, reject, files.retries, files.sources)
        except MemoryError as error:
            raise RunnerError(
                f"row {row.row}, image {row.image_uri!r}: this process's memory limit (ulimit -v) "
                "is too low to decode it. Raise that limit, or reject such images with a smaller "
                "`max_pixels`; then run the same conversion again to continue."
            ) from error
        parts = frame(encode_parts(features))
        return Loaded(
            row=row,
            images=_stored(placed),
            parts=parts,
            size=sum(map(len, parts)),
            input_bytes=sum(size or 0 for size, *_ in files.sources.values()),
            retries=files.retries,
            sources=files.sources,
        )

    return load


def _judge(plan: Plan, room: Room, depth: int = 8) -> Callable[[bytes], CheckedImage]:
    """What checks the bytes of an image whose column declares so many bits of a channel."""
    check, max_pixels = plan.options["check"], plan.options["max_pixels"]
    fingerprints = plan.options.get("fingerprints", False)
    strips = plan.options.get("strip_metadata", False)

    def judge(data: bytes) -> CheckedImage:
        image = check_image(data, check, max_pixels, room, fingerprints, depth)
        return without_metadata(image) if strips else image

    return judge


def _images_step(fields: Sequence[Field], plan: Plan, room: Room) -> _Step:
    """Images are read, checked and transformed."""
    images = [
        (field, _judge(plan, room, field.depth), [f"{field.key}/{name}" for name in _OF_IMAGE])
        for field in fields
        if isinstance(field.kind, Image)
    ]
    transform = transform_of(plan.options)

    def add(features: Features, files: _Files, placed: dict[str, Placed]) -> None:
        for field, judge, (encoded, kind, height, width, channels) in images:
            source = image = files.accepted(field, features, judge)
            geometry = None
            if transform is not None:
                image, geometry = transform_image(source, transform, room)
            placed[field.key] = Placed(source, image, geometry)
            features[encoded] = image.data
            features[kind] = image.format
            features[height] = image.height
            features[width] = image.width
            features[channels] = image.channels
            if field.depth == 16:
                features[f"{field.key}/depth"] = 16

    return add


def _masks_step(fields: Sequence[Field], plan: Plan, room: Room) -> _Step:
    """Masks are read and placed on their images."""
    judge = _judge(plan, room)
    masks = [(field, image_of(field, fields)) for field in fields if isinstance(field.kind, Mask)]

    def add(features: Features, files: _Files, placed: dict[str, Placed]) -> None:
        for field, of in masks:
            mask = files.accepted(field, features, judge)
            features[field.encoded_key] = stored_mask(field, mask, placed[of.key], room)
            features[f"{field.key}/format"] = "png"

    return add


def _files_step(fields: Sequence[Field]) -> _Step:
    """Other files are read, and validated by their columns."""
    of_kind = [(field, field.kind) for field in fields if isinstance(field.kind, File)]

    def add(features: Features, files: _Files, placed: dict[str, Placed]) -> None:
        for field, kind in of_kind:
            data = files.accepted(field, features, partial(check_file, field.column, kind))
            features[field.encoded_key] = data
            features[f"{field.key}/format"] = format_of(str(features[field.uri_key]), data)

    return add


def _boxes_step(fields: Sequence[Field], room: Room) -> _Step:
    """Boxes, and masks of objects, are placed on the image."""
    boxes = [field for field in fields if isinstance(field.kind, Boxes)]
    of_each_box = [field.key for field in fields if field.of_boxes and field not in boxes]
    of_each_box += [field.masks_key for field in boxes if field.masks_key]

    def add(features: Features, files: _Files, placed: dict[str, Placed]) -> None:
        for field in boxes:
            [image] = placed.values()  # a schema with boxes has one
            features.update(
                placed_boxes(field, features, image.source, image.geometry, of_each_box)
            )
            if (masks_key := field.masks_key) is not None:
                masks = features[masks_key]
                assert isinstance(masks, list)
                features[masks_key] = stored_object_masks(field, masks, image, room)

    return add


def _stored(placed: Mapping[str, Placed]) -> list[tuple[str, CheckedImage]]:
    """The images as they are stored; the warnings of all of them go with the first."""
    stored = [(key, of_key.image) for key, of_key in placed.items()]
    further = [f"{key}: {image.warning}" for key, image in stored[1:] if image.warning]
    if further:
        key, first = stored[0]
        warnings = [*filter(None, [first.warning]), *further]
        stored[0] = key, first._replace(warning="; ".join(warnings))
    return stored


def array_dtypes(fields: Iterable[Field]) -> dict[str, type]:
    """The type of each planned key with an array of numbers that an Example takes from NumPy."""
    return {
        feature.key: _DTYPES[feature.kind]
        for field in fields
        for feature in field.features
        if feature.shape != () and feature.kind in _DTYPES and feature.key != field.tfds_boxes_key
    }
