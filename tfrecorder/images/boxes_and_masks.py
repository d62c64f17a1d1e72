"""Boxes and masks placed on the stored image, whatever was done to it.

The pixels of objects as COCO states them, polygons or RLE, are drawn as PNGs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image as Pictures

from tfrecorder.core.threads import Room
from tfrecorder.images.check import CheckedImage
from tfrecorder.images.header import Reject
from tfrecorder.images.pixels import picture
from tfrecorder.images.reencode import encoded
from tfrecorder.images.transform import Geometry, transform_mask
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Boxes

#: What pycocotools takes for each pixel that the edge of a polygon crosses, in bytes.
_EDGE_BYTES = 80


def as_segmentation(cell: Any) -> str | None:
    """Polygons, or the runs of RLE or of a PNG, as JSON; None if it is nothing of this, or unsound.

    >>> as_segmentation([[0, 0, 4, 0, 4, 3]]), as_segmentation([[0, 0, 4]])
    ('[[0.0, 0.0, 4.0, 0.0, 4.0, 3.0]]', None)
    >>> as_segmentation({"size": [2, 4], "counts": b"233"})
    '{"size": [2, 4], "counts": [2, 3, 3]}'
    """
    try:
        if isinstance(cell, bytes):
            return json.dumps(rle_of(np.asarray(picture(cell)).astype(bool)))
        value = json.loads(cell) if isinstance(cell, str) else cell
        if isinstance(value, Mapping):
            height, width = value["size"]
            runs = value["counts"]
            runs = _runs(runs) if isinstance(runs, (str, bytes)) else [*map(int, runs)]
            sound = min(runs) >= 0 and sum(runs) == height * width
            value = {"size": [int(height), int(width)], "counts": runs}
        else:
            value = [[*map(float, polygon)] for polygon in value]
            sound = bool(value) and all(map(_has_corners, value))
        return json.dumps(value, allow_nan=False) if sound else None
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def _has_corners(polygon: Sequence[float]) -> bool:
    return len(polygon) >= 6 and len(polygon) % 2 == 0


def rle_of(mask: np.ndarray) -> dict[str, Any]:
    """The runs of a mask, bool of [h, w], column by column: of False, of True, and so on."""
    height, width = mask.shape
    changes = np.flatnonzero(np.diff(mask.ravel("F"), prepend=False))
    runs = np.diff(changes, prepend=0, append=mask.size)
    return {"size": [height, width], "counts": runs.tolist()}


def _runs(counts: str | bytes) -> list[int]:
    """The lengths of the runs of compressed RLE, which pycocotools reads beyond its end."""
    runs = list[int]()
    value = 0
    shift = 0
    for byte in counts.encode("ascii") if isinstance(counts, str) else counts:
        value |= (byte - 48 & 31) << shift
        shift += 5
        if not byte - 48 & 32:
            value -= (byte - 48 & 16) << (shift - 4)
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    return runs


def stored_object_masks(
    field: Field,
    segmentations: Sequence[str],
    of: Placed,
    room: Room,
) -> list[bytes]:
    """A PNG of the stored image's size for each object: 1 where it is, 0 elsewhere.

    Raises:
        Reject: a mask is of another size than the image, or a polygon far beyond it.
    """
    from pycocotools import mask as masks

    assert isinstance(field.kind, Boxes)
    height = of.source.height
    width = of.source.width
    unit = field.kind.unit
    for _, fault in segmentation_faults(segmentations, width, height, unit):
        raise Reject("check", "mask_size", f"{field.masks_key}: {fault}")
    drawn = []
    for text in segmentations:
        value = _in_pixels(text, width, height, unit)
        with room(height * width * 4 + int(_EDGE_BYTES * _length(value))):
            rle = masks.frPyObjects(value, height, width)
            rle = masks.merge(rle) if isinstance(rle, list) else rle
            mask = Pictures.fromarray(masks.decode(rle))
            if of.change is not None:
                mask = transform_mask(mask, of.change)
            drawn.append(encoded(mask, "PNG"))
    return drawn


def _in_pixels(
    text: str | None,
    width: int,
    height: int,
    unit: str,
) -> Any:
    """Polygons, whose corners have the unit of the boxes, or RLE, whose unit is the pixel."""
    value = json.loads(text or "null")
    if isinstance(value, list) and unit == "fraction":
        polygons = []
        for polygon in value:
            corners = np.reshape(polygon, (-1, 2)) * (width, height)
            polygons.append(corners.ravel().tolist())
        return polygons
    return value


def segmentation_faults(
    masks: Sequence[str | None],
    width: int,
    height: int,
    unit: str,
) -> Iterator[tuple[int, str]]:
    """Of the masks of an image's objects, those of another size: their numbers, and what is wrong.

    Args:
        masks: as `as_segmentation` gives them.
        unit: of the corners of polygons, as that of boxes.
    """
    for number, text in enumerate(masks):
        value = _in_pixels(text, width, height, unit)
        image = f"{width} x {height} pixels"
        if isinstance(value, dict) and value["size"] != [height, width]:
            size = " x ".join(map(str, reversed(value["size"])))
            yield number, f"mask {number} has {size} pixels, the image has {image}"
        if isinstance(value, list):
            farthest = max(max(map(abs, polygon)) for polygon in value)
            most_length = 4 * height * width + 8 * (height + width)
            if farthest > 4 * max(height, width) or _length(value) > most_length:
                yield number, f"the polygon of mask {number} is far beyond the image's {image}"


def _length(value: Any) -> float:
    """How many pixels the edges of polygons cross."""
    if not isinstance(value, list):
        return 0.0
    lengths = []
    for polygon in value:
        corners = np.reshape(polygon, (-1, 2))
        edges = np.abs(corners - np.roll(corners, 1, 0))
        lengths.append(float(edges.max(1).sum()))
    return sum(lengths)


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

    @property
    def change(self) -> Geometry | None:
        """The geometry, if any pixel changes by it."""
        changes = self.geometry is not None and self.geometry.changes
        return self.geometry if changes else None


def stored_mask(
    field: Field,
    mask: CheckedImage,
    of: Placed,
    room: Room,
) -> bytes:
    """The PNG of a mask: its own bytes wherever its pixels are the classes, unchanged.

    Raises:
        Reject: it is of another size than its image, or has no single number of 8 bits a pixel.
    """
    if mask.format != "png":
        raise Reject(
            "check",
            "mask_format",
            f"{field.column} is a JPEG, which changes the classes of pixels; give a PNG",
        )
    image = of.source
    if (mask.width, mask.height) != (image.width, image.height):
        raise Reject(
            "check",
            "mask_size",
            f"{field.column} has {mask.width} x {mask.height} pixels, "
            f"the image {image.width} x {image.height}",
        )
    if mask.channels == 1 and "depth" not in mask.reduced and of.change is None:
        return mask.data
    with room(mask.width * mask.height * 8):
        try:
            opened = picture(mask.data)
        except ValueError as error:
            raise Reject("convert", "damaged", f"{field.column}: {error}") from None
        if opened.mode not in ("1", "L", "P", "I;16"):
            raise Reject(
                "check",
                "mask_channels",
                f"{field.column} has pixels of the mode {opened.mode}, not one number each",
            )
        classes = _classes(opened, field)
        if of.change is not None:
            classes = transform_mask(classes, of.change)
        return encoded(classes, "PNG")


def _classes(opened: Pictures.Image, field: Field) -> Pictures.Image:
    """Pixels of 8 bits: of a palette its numbers, which decoders would turn into colours."""
    pixels = np.asarray(opened)
    if opened.mode == "1":
        pixels = pixels.astype(np.uint8) * 255  # as decoders show it
    if pixels.max(initial=0) > 255:
        raise Reject(
            "check",
            "mask_channels",
            f"{field.column} has classes beyond 255: {pixels.max()}",
        )
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
    made = {}
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


def boxes_outside(
    edges: np.ndarray,
    width: int,
    height: int,
) -> Iterator[tuple[int, str]]:
    """Of the boxes of an image, in pixels, those beyond it: their numbers, and what is wrong."""
    is_beyond = (edges[:, 2] > width) | (edges[:, 3] > height)
    for number in np.flatnonzero(is_beyond).tolist():
        shown = ", ".join(f"{edge:g}" for edge in edges[number])
        yield number, f"box {number} ({shown}) is beyond the image's {width} x {height} pixels"
