"""One row: its image is read and checked, and both become a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfrecorder.dataset.example import encode_parts
from tfrecorder.dataset.tfrecord import frame
from tfrecorder.images.check import CheckedImage, check_image
from tfrecorder.images.memory import Room, unlimited
from tfrecorder.images.read import read_image
from tfrecorder.images.rejects import Reject
from tfrecorder.images.transform import Transform, transform_image, transform_of
from tfrecorder.plan.plan import Plan, PlannedRow
from tfrecorder.schema import keys


@dataclass(frozen=True)
class Loaded:
    """A row that became a record.

    Attributes:
        image: the first one; None in a record without images.
        parts: the framed record, in buffers to write one after the other.
        size: their bytes, together.
        input_bytes: of the images' files.
        retries: further attempts that reading them took.
        further: the other images, by what their keys begin with.
    """

    row: PlannedRow
    image: CheckedImage | None
    parts: list[bytes]
    size: int
    input_bytes: int
    retries: int = 0
    further: tuple[tuple[str, CheckedImage], ...] = ()


@dataclass(frozen=True)
class Rejected:
    """A row that gave no record."""

    row: PlannedRow
    reject: Reject
    retries: int = 0


#: What a worker does with a row.
LoadRow = Callable[[PlannedRow], Loaded | Rejected]


def row_loader(plan: Plan, room: Room = unlimited) -> LoadRow:
    """The function that does all the work of a row, in a thread of the pool.

    Args:
        room: of memory, for pixels.
    """
    verify, max_pixels = plan.options["verify"], plan.options["max_pixels"]
    transform = transform_of(plan.options)
    if plan.fields is not None:
        from tfrecorder.kinds.records import typed_loader

        return typed_loader(plan, room, transform)
    return lambda row: load_row(row, plan.base, verify, max_pixels, room, transform)


def load_row(
    row: PlannedRow,
    base: str,
    verify: str,
    max_pixels: int,
    room: Room = unlimited,
    transform: Transform | None = None,
) -> Loaded | Rejected:
    """Read, check and encode one image of the default schema."""
    retried: list[None] = []
    try:
        data = read_image(row.image_uri, base, lambda: retried.append(None))
        image = check_image(data, verify, max_pixels, room)
        if transform is not None:
            image, _ = transform_image(image, transform, room)
    except Reject as reject:
        return Rejected(row, reject, len(retried))
    parts = frame(encode_parts(record_features(row, image)))
    return Loaded(row, image, parts, sum(map(len, parts)), len(data), len(retried))


def record_features(row: PlannedRow, image: CheckedImage) -> dict[str, bytes | str | int]:
    """The record of the default schema."""
    return {
        keys.ENCODED: image.data,
        keys.FORMAT: image.format,
        keys.HEIGHT: image.height,
        keys.WIDTH: image.width,
        keys.CHANNELS: image.channels,
        keys.FILENAME: row.image_uri,
        keys.SOURCE_ID: str(row.row),
        keys.LABEL: row.label,
        keys.TEXT: row.text,
    }
