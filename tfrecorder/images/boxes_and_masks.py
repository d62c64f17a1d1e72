"""Boxes and masks placed on the stored image, whatever was done to it.

The pixels of objects as COCO states them, polygons or RLE, are drawn as PNGs.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image as Pictures

from tfrecorder.core.text import read_json
from tfrecorder.core.threads import Room
from tfrecorder.images import png
from tfrecorder.images.check import CheckedImage
from tfrecorder.images.header import Header, Reject
from tfrecorder.images.pixels import Encoded, decode_in_full, picture, samples_of
from tfrecorder.images.reencode import TURNS_BACK, encoded
from tfrecorder.images.transform import Geometry, transform_mask, turned
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Boxes, Mask

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
        value = read_json(cell) if isinstance(cell, str) else cell
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


#: Width and height, in pixels.
Size = tuple[int, int]


@dataclass(frozen=True)
class Plane:
    """What coordinates on an image are of: its stored pixels, or the picture as one sees it.

    Attributes:
        size: of the plane in the pixels of the coordinates, which are those of a stated size.
        pixels: of the image in this plane.
        orientation: turns the stored pixels to it; 1 if it is of these.
        words: what is to be known of it, as keys of `header.REDUCED`.
    """

    size: Size
    pixels: Size
    orientation: int
    words: tuple[str, ...]


def plane_of(
    image: CheckedImage | Header,
    upright: bool | None,
    stated: Size = (0, 0),
) -> Plane:
    """What the coordinates on an image are of; one value for all of one size.

    Args:
        upright: as of `Boxes`.  Where it is None, a stated size decides that is of the picture as
            one sees it and not of the stored one.
        stated: the size that the source states; 0 without one.

    Raises:
        Reject: that has other proportions than the image.
    """
    return _plane((image.width, image.height), image.orientation, upright, stated)


def stored_plane(size: Size) -> Plane:
    """That of an image's pixels as they are stored."""
    return Plane(size, size, 1, ())


@functools.lru_cache(maxsize=4096)
def _plane(
    stored: Size,
    orientation: int,
    upright: bool | None,
    stated: Size,
) -> Plane:
    shown = stored[::-1] if orientation >= 5 else stored
    size = stated if all(stated) else stored
    fits_stored = _is_scaled(size, stored)
    fits_shown = _is_scaled(size, shown)
    if not fits_stored and not fits_shown:
        detail = "the annotations state {} x {} pixels, and the image has {} x {}"
        raise Reject("check", "stated_size", detail.format(*size, *stored))
    words: tuple[str, ...] = () if size in (stored, shown) else ("scaled",)
    if upright is None:
        upright = not fits_stored
        if orientation != 1 and not upright:
            words += ("turned",)
    if not (fits_shown if upright else fits_stored):
        size = size[::-1]
    if upright:
        return Plane(size, shown, orientation, words)
    return Plane(size, stored, 1, words)


def _is_scaled(one: Size, other: Size) -> bool:
    """Whether two sizes have one proportion: the smaller differs by a pixel at the most."""
    (width, height), (larger_width, larger_height) = sorted((one, other), key=math.prod)
    differs = abs(width * larger_height - height * larger_width)
    return differs <= max(larger_width, larger_height)


def stored_object_masks(
    field: Field,
    segmentations: Sequence[str],
    of: Placed,
    plane: Plane,
    room: Room,
) -> list[bytes]:
    """A PNG of the stored image's size for each object: 1 where it is, 0 elsewhere.

    Args:
        plane: what they are of.

    Raises:
        Reject: a mask is of another size than the image, or a polygon far beyond it.
    """
    assert isinstance(field.kind, Boxes)
    width, height = plane.pixels
    unit = field.kind.unit
    for _, fault in segmentation_faults(segmentations, plane, unit):
        raise Reject("check", "mask_size", f"{field.masks_key}: {fault}")
    drawn = []
    for text in segmentations:
        value = in_pixels(text, plane, unit)
        with room(height * width * 4 + int(_EDGE_BYTES * _length(value))):
            mask = Pictures.fromarray(_drawn(value, height, width))
            if mask.size != plane.pixels:
                mask = mask.resize(plane.pixels, Pictures.Resampling.NEAREST)
            drawn.append(encoded(_placed_mask(mask, of, plane), "PNG"))
    return drawn


def _placed_mask(
    mask: Pictures.Image,
    of: Placed,
    plane: Plane,
) -> Pictures.Image:
    """A mask of a plane where the pixels of the image are stored."""
    if plane.orientation != 1:
        mask = mask.transpose(TURNS_BACK[plane.orientation])
    return mask if of.change is None else transform_mask(mask, of.change)


def _drawn(
    value: Any,
    height: int,
    width: int,
) -> np.ndarray:
    """The mask of polygons in pixels, or of RLE: 1 where it is, 0 elsewhere."""
    from pycocotools import mask as masks

    rle = masks.frPyObjects(value, height, width)
    drawn: np.ndarray = masks.decode(masks.merge(rle) if isinstance(rle, list) else rle)
    return drawn


def area_of(
    value: Any,
    height: int,
    width: int,
) -> int:
    """How many pixels polygons in pixels, or RLE, cover."""
    return int(_drawn(value, height, width).sum())


def in_pixels(
    text: str | None,
    plane: Plane,
    unit: str,
) -> Any:
    """Polygons, whose corners have the unit of the boxes, or RLE, whose unit is the pixel."""
    value = json.loads(text or "null")
    size = (1, 1) if unit == "fraction" else plane.size
    if isinstance(value, list) and size != plane.pixels:
        scale = np.divide(plane.pixels, size)
        polygons = []
        for polygon in value:
            corners = np.reshape(polygon, (-1, 2)) * scale
            polygons.append(corners.ravel().tolist())
        return polygons
    return value


def segmentation_faults(
    masks: Sequence[str | None],
    plane: Plane,
    unit: str,
) -> Iterator[tuple[int, str]]:
    """Of the masks of an image's objects, those of another size: their numbers, and what is wrong.

    Args:
        masks: as `as_segmentation` gives them.
        plane: what they are of.
        unit: of the corners of polygons, as that of boxes.
    """
    width, height = plane.pixels
    for number, text in enumerate(masks):
        value = in_pixels(text, plane, unit)
        image = f"{width} x {height} pixels"
        if isinstance(value, dict) and value["size"] != [*reversed(plane.size)]:
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


def mask_plane(
    field: Field,
    mask: CheckedImage,
    image: CheckedImage,
) -> Plane:
    """What the pixels of a mask are of; its own size decides where the schema does not."""
    assert isinstance(field.kind, Mask)
    upright = field.kind.upright
    plane = plane_of(image, upright)
    is_other = upright is None and plane.pixels != (mask.width, mask.height)
    return plane_of(image, True) if is_other else plane


#: How many pixels of a mask have each value, by the value as text; "" stands for those that are not
#: known.
Levels = Mapping[str, int]


class StoredMask(NamedTuple):
    """A mask as a record holds it.

    Attributes:
        data: its PNG.
        levels: of its pixels.
        is_of_colours: it came with colours, whose channels are equal.
    """

    data: bytes
    levels: Levels
    is_of_colours: bool


def stored_mask(
    field: Field,
    mask: CheckedImage,
    of: Placed,
    plane: Plane,
    room: Room,
) -> StoredMask:
    """A mask: its own bytes wherever its pixels are the classes, unchanged.

    Args:
        plane: what its pixels are of.

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
    if (mask.width, mask.height) != plane.pixels:
        raise Reject(
            "check",
            "mask_size",
            f"{field.column} has {mask.width} x {mask.height} pixels, "
            f"the image {image.width} x {image.height}",
        )
    with room(mask.width * mask.height * 8):
        try:
            samples = samples_of(mask.data)
        except ValueError as error:
            raise Reject("convert", "damaged", f"{field.column}: {error}") from None
        is_in_place = of.change is None and plane.orientation == 1
        stored = _placed_mask(Pictures.fromarray(_classes(samples, field)), of, plane)
        is_kept = is_in_place and mask.channels == 1 and mask.data[png.DEPTH_AT] == 8
        data = mask.data if is_kept else encoded(stored, "PNG")
        return StoredMask(data, _levels(stored), samples.shape[2] > 1)


def _classes(samples: np.ndarray, field: Field) -> np.ndarray:
    """Pixels of 8 bits: of colours the one number that all channels have."""
    classes = samples[:, :, 0]
    is_same = samples == classes[:, :, None]
    if samples.shape[2] % 2 == 0:  # the last channel is alpha
        is_same[:, :, -1] = samples[:, :, -1] == np.iinfo(samples.dtype).max
    fault = ""
    if not is_same.all():
        fault = (
            "has colours or transparency, not one number a pixel; save the classes as grey levels"
        )
    elif classes.max(initial=0) > 255:
        fault = f"has classes beyond 255: {classes.max()}"
    if fault:
        raise Reject("check", "mask_channels", f"{field.column} {fault}")
    return classes.astype(np.uint8)


def _levels(mask: Pictures.Image) -> Levels:
    return {str(value): count for value, count in enumerate(mask.histogram()) if count}


def levels_of(data: Encoded) -> Levels:
    """The values of a mask in a record, as readers see them."""
    try:
        return _levels(Pictures.fromarray(decode_in_full(data, 1)[:, :, 0]))
    except ValueError:
        return {"": 1}


def placed_boxes(
    field: Field,
    features: dict[str, Any],
    plane: Plane,
    geometry: Geometry | None,
    beside: Iterable[str] = (),
) -> dict[str, Any]:
    """The features of boxes as fractions of the stored image, where they are not as planned.

    Args:
        plane: what they are of.
        beside: the keys of other values, of which each box has one.

    Raises:
        Reject: a box in pixels is beyond the image.
    """
    assert isinstance(field.kind, Boxes)
    edges = np.stack([features[key] for key in field.edges], 1).astype(np.float64)
    if field.kind.unit == "pixel":
        for _, fault in boxes_outside(edges, plane.size):
            raise Reject("check", "box_outside", fault)
        edges = np.clip(edges / (plane.size * 2), 0, 1)
    elif geometry is None and field.tfds_boxes_key is None and plane.orientation == 1:
        return {}
    if plane.orientation != 1:
        back = {6: 8, 8: 6}.get(plane.orientation, plane.orientation)
        edges = turned(edges[:, _AXES_SWAPPED], back)[:, _AXES_SWAPPED]
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


def given_edges(
    edges: np.ndarray,
    kind: Boxes,
    plane: Plane,
) -> np.ndarray:
    """Edges as a source gives them, of fractions of the stored image: the way back."""
    edges = turned(edges[:, _AXES_SWAPPED], plane.orientation)[:, _AXES_SWAPPED]
    # float32 does not hold fractions exactly: round to thousandths of a pixel.
    return np.round(edges * (plane.size * 2), 3) if kind.unit == "pixel" else edges


def _kept(values: Any, kept: np.ndarray) -> Any:
    if isinstance(values, np.ndarray):
        return values[kept]
    return [value for value, stays in zip(values, kept, strict=True) if stays]


def boxes_outside(edges: np.ndarray, size: Size) -> Iterator[tuple[int, str]]:
    """Of the boxes of an image, in pixels, those beyond it: their numbers, and what is wrong.

    Less than a pixel is no matter: tools round differently, and count from 0 or 1.
    """
    width, height = size
    end = np.array(size * 2)
    is_beyond = ((edges > end + 1) | (edges < -1)).any(axis=1)
    is_beyond |= (edges[:, :2] >= end[:2]).any(axis=1)
    for number in np.flatnonzero(is_beyond).tolist():
        shown = ", ".join(f"{edge:g}" for edge in edges[number])
        yield number, f"box {number} ({shown}) is beyond the image's {width} x {height} pixels"
