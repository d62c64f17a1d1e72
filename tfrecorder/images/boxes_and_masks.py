"""Boxes and masks placed on the stored image, whatever was done to it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image as Pictures

from tfrecorder.images.check import CheckedImage
from tfrecorder.images.memory import Room
from tfrecorder.images.rejects import Reject
from tfrecorder.images.transform import Geometry, transform_mask
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Boxes

#: From (xmin, ymin, xmax, ymax) to (ymin, xmin, ymax, xmax), and back.
_AXES_SWAPPED = [1, 0, 3, 2]


@dataclass(frozen=True)
class Placed:
    """An image of a row, and where a transform put its pixels.

    Attributes:
        source: as it was read.
        image: as it is stored.
        geometry: None without a transform.
    """

    source: CheckedImage
    image: CheckedImage
    geometry: Geometry | None


def stored_mask(field: Field, mask: CheckedImage, of: Placed, room: Room) -> bytes:
    """The PNG of a mask: its own bytes wherever its pixels are the classes, unchanged.

    Raises:
        Reject: it is of another size than its image, or has no single number of 8 bits a pixel.
    """
    if mask.format != "png":
        words = f"{field.column} is a JPEG, which changes the classes of pixels; give a PNG"
        raise Reject("check", "mask_format", words)
    size, wanted = (mask.width, mask.height), (of.source.width, of.source.height)
    if size != wanted:
        words = f"{field.column} has {size[0]} x {size[1]} pixels, the image {wanted[0]} x "
        raise Reject("check", "mask_size", f"{words}{wanted[1]}")
    with Pictures.open(io.BytesIO(mask.data)) as opened:
        if opened.mode not in ("1", "L", "P", "I;16", "I"):
            words = f"{field.column} has pixels of the mode {opened.mode}, not one number each"
            raise Reject("check", "mask_channels", words)
        changes = of.geometry is not None and of.geometry.changes
        if opened.mode in ("1", "L") and not changes:
            return mask.data
        with room(mask.width * mask.height * 4):
            classes = _classes(opened, field)
            if changes:
                assert of.geometry is not None
                classes = transform_mask(classes, of.geometry)
            out = io.BytesIO()
            classes.save(out, "PNG")
    return out.getvalue()


def _classes(opened: Pictures.Image, field: Field) -> Pictures.Image:
    """Pixels of 8 bits: of a palette its numbers, which decoders would turn into colours."""
    pixels = np.asarray(opened)
    if opened.mode == "1":
        pixels = pixels.astype(np.uint8) * 255  # as decoders show it
    if pixels.max(initial=0) > 255:
        words = f"{field.column} has classes beyond 255: {pixels.max()}"
        raise Reject("check", "mask_channels", words)
    return Pictures.fromarray(pixels.astype(np.uint8))


def placed_boxes(
    field: Field,
    features: dict[str, Any],
    image: CheckedImage,
    geometry: Geometry | None,
    beside: Iterable[str] = (),
) -> dict[str, Any]:
    """The features of boxes as fractions of the stored image, where they are not as planned.

    Args:
        beside: the keys of other values, of which each box has one.

    Raises:
        Reject: a box in pixels is beyond the image.
    """
    assert isinstance(field.kind, Boxes)
    edges = np.stack([features[key] for key in field.edges], 1).astype(np.float64)
    if field.kind.unit == "pixel":
        for _, fault in boxes_outside(edges, image.width, image.height):
            raise Reject("check", "box_outside", fault)
        edges = edges / [image.width, image.height, image.width, image.height]
    elif geometry is None and field.tfds_boxes_key is None:
        return {}
    made: dict[str, Any] = {}
    if geometry is not None:
        boxes, kept = geometry.boxes(edges[:, _AXES_SWAPPED])
        edges = boxes[:, _AXES_SWAPPED]
        for key in filter(None, (field.label_key, field.text_key, *beside)):
            made[key] = _kept(features[key], kept)
    stored = edges.astype(np.float32)
    made |= zip(field.edges, stored.T, strict=True)
    if field.tfds_boxes_key is not None:
        made[field.tfds_boxes_key] = stored[:, _AXES_SWAPPED].ravel()
    return made


def _kept(values: Any, kept: np.ndarray) -> Any:
    if isinstance(values, np.ndarray):
        return values[kept]
    return [value for value, stays in zip(values, kept, strict=True) if stays]


def boxes_outside(edges: np.ndarray, width: int, height: int) -> Iterator[tuple[int, str]]:
    """Of the boxes of an image, in pixels, those beyond it: their numbers, and what is wrong."""
    for number in np.flatnonzero((edges[:, 2] > width) | (edges[:, 3] > height)).tolist():
        shown = ", ".join(f"{edge:g}" for edge in edges[number])
        yield number, f"box {number} ({shown}) is beyond the image's {width} x {height} pixels"
