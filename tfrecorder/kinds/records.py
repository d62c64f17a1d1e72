"""A row of a stated schema: its images and masks are read and checked, and all becomes a record."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image as Pictures

from tfrecorder import schema as keys
from tfrecorder.dataset.example import encode_parts
from tfrecorder.dataset.tfrecord import frame
from tfrecorder.images.check import CheckedImage, check_image
from tfrecorder.images.rejects import Reject
from tfrecorder.images.room import Room
from tfrecorder.images.transform import Geometry, Transform, transform_image, transform_mask
from tfrecorder.kinds.columns import Boxes, Image, Mask
from tfrecorder.kinds.fields import Field, image_of
from tfrecorder.plan import Plan, PlannedRow
from tfrecorder.rows import Loaded, LoadRow, Rejected, read_image
from tfrecorder.schema import Feature

_DTYPES = {"float": np.float32, "int64": np.int64, "bool": np.int64, "label": np.int64}

#: Modes in which Pillow opens a PNG whose pixels are single numbers of up to 8 bits.
_MASK_MODES = ("1", "L", "P")


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


def typed_loader(plan: Plan, room: Room, transform: Transform | None) -> LoadRow:
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

        def read(field: Field) -> CheckedImage:
            nonlocal read_bytes
            uri = values[f"{field.key}/filename"]
            try:
                data = read_image(uri, plan.base, lambda: retried.append(None))
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
                source = read(field)
                image, geometry = source, None
                if transform is not None:
                    image, geometry = transform_image(source, transform, room)
                placed[field.key] = Placed(source, image, geometry)
                features |= _image_features(field, image)
            for field, of in masks:
                data = stored_mask(field, read(field), placed[of.key], room)
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
    if feature.shape == ():
        return _itself
    dtype = _DTYPES.get(feature.kind)
    if dtype is not None:
        return lambda values: np.asarray(values, dtype)
    # An empty list has no type; an empty array of bytes has.
    return lambda values: values or np.empty(0, "S1")


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
        if opened.mode not in (*_MASK_MODES, "I;16", "I"):
            words = f"{field.column} has pixels of the mode {opened.mode}, not one number each"
            raise Reject("check", "mask_channels", words)
        changes = of.geometry is not None and (
            of.geometry.inner != of.geometry.size
            or of.geometry.outer != of.geometry.inner
            or of.geometry.orientation != 1
        )
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
    field: Field, features: dict[str, Any], image: CheckedImage, geometry: Geometry | None
) -> dict[str, Any]:
    """The features of boxes as fractions of the stored image.

    Raises:
        Reject: a box in pixels is beyond the image.
    """
    assert isinstance(field.kind, Boxes)
    edges = np.stack([features[key] for key in field.edges], 1).astype(np.float64)
    if field.kind.unit == "pixel":
        for _, fault in boxes_outside(edges, image.width, image.height):
            raise Reject("check", "box_outside", fault)
        edges = edges / [image.width, image.height, image.width, image.height]
    elif geometry is None:
        return {}
    made = {}
    if geometry is not None:
        edges, kept = geometry.boxes(edges)
        if field.label_key is not None:
            for feature in field.features[len(field.edges) :]:
                made[feature.key] = _kept(features[feature.key], kept)
    pairs = zip(field.edges, edges.T, strict=True)
    return {**made, **{key: column.astype(np.float32) for key, column in pairs}}


def _kept(values: Any, kept: np.ndarray) -> Any:
    if isinstance(values, np.ndarray):
        return values[kept]
    return [value for value, stays in zip(values, kept, strict=True) if stays] or np.empty(0, "S1")


def boxes_outside(edges: np.ndarray, width: int, height: int) -> Iterator[tuple[int, str]]:
    """Of the boxes of an image, in pixels, those beyond it: their numbers, and what is wrong."""
    for number in np.flatnonzero((edges[:, 2] > width) | (edges[:, 3] > height)).tolist():
        shown = ", ".join(f"{edge:g}" for edge in edges[number])
        yield number, f"box {number} ({shown}) is beyond the image's {width} x {height} pixels"
