"""One row: its image is read and checked, and both become a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tfrecorder.dataset.example import encode_parts
from tfrecorder.dataset.tfrecord import frame
from tfrecorder.images.check import CheckedImage, check_image
from tfrecorder.images.memory import Room, unlimited
from tfrecorder.images.placed import Placed, placed_boxes, stored_mask
from tfrecorder.images.rejects import Reject
from tfrecorder.images.transform import Transform, transform_image, transform_of
from tfrecorder.plan.plan import Plan, PlannedRow
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field, image_of
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import Boxes, Image, Mask


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


#: How an image is read: by its uri, and with what is called before each further attempt.
Read = Callable[[str, Callable[[], None]], bytes]

#: What a worker does with a row.
LoadRow = Callable[[PlannedRow], Loaded | Rejected]


def row_loader(plan: Plan, room: Room, read: Read) -> LoadRow:
    """The function that does all the work of a row, in a thread of the pool.

    Args:
        room: of memory, for pixels.
        read: an image, as `read_image` does.
    """
    verify, max_pixels = plan.options["verify"], plan.options["max_pixels"]
    transform = transform_of(plan.options)
    if plan.fields is not None:
        return typed_loader(plan, room, read, transform)
    return lambda row: load_row(row, read, verify, max_pixels, room, transform)


def load_row(
    row: PlannedRow,
    read: Read,
    verify: str,
    max_pixels: int,
    room: Room = unlimited,
    transform: Transform | None = None,
) -> Loaded | Rejected:
    """Read, check and encode one image of the default schema."""
    retried: list[None] = []
    try:
        data = read(row.image_uri, lambda: retried.append(None))
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


_DTYPES = {"float": np.float32, "int64": np.int64, "bool": np.int64, "label": np.int64}


def typed_loader(plan: Plan, room: Room, read: Read, transform: Transform | None) -> LoadRow:
    """The function that does all the work of a row of a plan with a stated schema."""
    fields = plan.fields
    assert fields is not None
    images = [field for field in fields if isinstance(field.kind, Image)]
    masks = [(field, image_of(field, fields)) for field in fields if isinstance(field.kind, Mask)]
    boxes = [field for field in fields if isinstance(field.kind, Boxes)]
    convert = converters(fields)
    verify, max_pixels = plan.options["verify"], plan.options["max_pixels"]

    def load(row: PlannedRow) -> Loaded | Rejected:
        retried: list[None] = []
        read_bytes = 0

        def checked(field: Field) -> CheckedImage:
            nonlocal read_bytes
            uri = values[f"{field.key}/filename"]
            try:
                data = read(uri, lambda: retried.append(None))
                read_bytes += len(data)
                return check_image(data, verify, max_pixels, room)
            except Reject as reject:
                if uri == row.image_uri:
                    raise
                # The list of rejects names the row's first image.
                detail = f"{field.column} {uri!r}: {reject.detail}"
                raise Reject(reject.stage, reject.code, detail) from None

        values = row.values or {}
        features = {key: convert[key](value) for key, value in values.items()}
        features[keys.SOURCE_ID] = str(row.row)
        placed: dict[str, Placed] = {}
        try:
            for field in images:
                source = checked(field)
                image, geometry = source, None
                if transform is not None:
                    image, geometry = transform_image(source, transform, room)
                placed[field.key] = Placed(source, image, geometry)
                features |= _image_features(field, image)
            for field, of in masks:
                data = stored_mask(field, checked(field), placed[of.key], room)
                features[f"{field.key}/encoded"] = data
                features[f"{field.key}/format"] = "png"
            for field in boxes:
                where = placed[images[0].key]
                features |= placed_boxes(field, features, where.source, where.geometry)
        except Reject as reject:
            return Rejected(row, reject, len(retried))
        parts = frame(encode_parts(features))
        stored = [(key, one.image) for key, one in placed.items()]
        complaints = [f"{key}: {one.warning}" for key, one in stored[1:] if one.warning]
        if complaints:
            key, first = stored[0]
            words = "; ".join([*filter(None, [first.warning]), *complaints])
            stored[0] = key, replace(first, warning=words)
        return Loaded(
            row=row,
            image=stored[0][1] if stored else None,
            parts=parts,
            size=sum(map(len, parts)),
            input_bytes=read_bytes,
            retries=len(retried),
            further=tuple(stored[1:]),
        )

    return load


def converters(fields: tuple[Field, ...]) -> dict[str, Callable[[Any], Any]]:
    """For each key, what makes a planned value one that an Example can hold."""
    return {feature.key: _converter(feature) for field in fields for feature in field.features}


def _converter(feature: Feature) -> Callable[[Any], Any]:
    dtype = _DTYPES.get(feature.kind)
    if feature.shape == () or dtype is None:
        return _itself
    return lambda values: np.asarray(values, dtype)


def _itself(value: Any) -> Any:
    return value


def _image_features(field: Field, image: CheckedImage) -> dict[str, Any]:
    key = field.key
    return {
        f"{key}/encoded": image.data,
        f"{key}/format": image.format,
        f"{key}/height": image.height,
        f"{key}/width": image.width,
        f"{key}/channels": image.channels,
    }
