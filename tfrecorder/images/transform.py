"""Images shrunk, turned upright or stored in another format, with their masks and boxes.

Metadata can also be cut out of a JPEG or PNG, whose pixels stay as they are encoded.  Kept is what
says how the pixels look: sizes, colours, profile and orientation.

Source: ITU-T T.81, annex B (markers); PNG (W3C, third edition), 11.3 (ancillary chunks).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from tfrecorder.core.threads import Room, unlimited
from tfrecorder.images import pixels, png
from tfrecorder.images.check import CheckedImage
from tfrecorder.images.geometry import Placement, cut_boxes, moved, placement
from tfrecorder.images.header import Reject
from tfrecorder.images.jpeg import END, markers
from tfrecorder.images.png import chunk, chunks
from tfrecorder.images.reencode import TURNS, encoded


@dataclass(frozen=True)
class Transform:
    """What happens to each image before it is stored.

    Attributes:
        size: (height, width); None keeps the size.
        resize: how an image of other proportions gets to it: "stretch"; "crop" cuts the longer side
            about the centre; "pad" adds black; "fit" stays within, and is smaller; "short" shrinks
            the short side of larger images to it, and cuts nothing.
        format: "keep", "jpeg", "png" or "raw".
        quality: of JPEG.
        upright: turn the pixels as the EXIF orientation says.
    """

    size: tuple[int, int] | None
    resize: str
    format: str
    quality: int
    upright: bool


def transform_of(options: Mapping[str, Any]) -> Transform | None:
    """The transform in a plan's options; None if images stay as they are."""
    size = options.get("image_size")
    short = options.get("short_side")
    form = options.get("image_format", "keep")
    upright = bool(options.get("apply_exif", False))
    if size is None and short is None and form == "keep" and not upright:
        return None
    resize = options.get("resize", "stretch")
    if short is not None:
        size = (short, short)
        resize = "short"
    quality = options.get("image_quality", 95)
    return Transform(None if size is None else _pair(size), resize, form, quality, upright)


@dataclass(frozen=True)
class Geometry:
    """Where an image's pixels go.

    Attributes:
        orientation: 1 to 8; the pixels are first turned by it.
        shape: height and width of the upright image.
        where: what is done with it.
    """

    orientation: int
    shape: tuple[int, int]
    where: Placement

    @property
    def changes(self) -> bool:
        """Whether any pixel changes or moves."""
        return self.orientation != 1 or not self.shape == self.where.inner == self.where.outer

    @property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The first and the last corner of what is kept, in pixels of the upright image."""
        if self.where.part is None:
            return np.zeros(2), np.array(self.shape)
        return self.where.start, self.where.start + self.where.part

    def boxes(self, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Boxes moved to the result, and which of them are still on it.

        Args:
            boxes: rows of (ymin, xmin, ymax, xmax), fractions of the original image.

        Returns:
            The boxes that keep at least a tenth of their area, cut at the edges; and a mask that
            marks them among the given ones.
        """
        start, end = self.edges
        offset = np.zeros(2) if self.where.offset is None else self.where.offset
        boxes = turned(boxes, self.orientation)
        boxes = moved(boxes, np.array(self.shape), start, end - start)
        inner = np.array(self.where.inner)
        outer = np.array(self.where.outer)
        return cut_boxes(moved(boxes, inner, -offset, outer))


def _pair(values: Any) -> tuple[int, int]:
    return int(values[0]), int(values[1])


def turned(boxes: np.ndarray, orientation: int) -> np.ndarray:
    """Boxes on a stored image as boxes on the upright one, as fractions."""
    y = boxes[:, 0::2]
    x = boxes[:, 1::2]
    if orientation in (2, 3):
        x = 1 - x
    if orientation in (3, 4):
        y = 1 - y
    x, y = {
        5: (y, x),
        6: (1 - y, x),
        7: (1 - y, 1 - x),
        8: (y, 1 - x),
    }.get(orientation, (x, y))
    return np.stack([y.min(1), x.min(1), y.max(1), x.max(1)], 1)


def geometry_of(
    height: int,
    width: int,
    orientation: int,
    transform: Transform,
) -> Geometry:
    """What a transform does to an image stored with this height and width."""
    shape = (width, height) if orientation >= 5 else (height, width)
    if transform.size is None:
        return Geometry(orientation, shape, Placement(None, None, shape, None, shape))
    where = placement(np.array(shape), transform.size, transform.resize, writes=True)
    where = replace(where, inner=_pair(where.inner), outer=_pair(where.outer))
    return Geometry(orientation, shape, where)


def transform_image(
    image: CheckedImage,
    transform: Transform,
    room: Room = unlimited,
) -> tuple[CheckedImage, Geometry]:
    """A checked image as it will be stored, and where its pixels went.

    The bytes stay as they are if neither the pixels nor the format change.

    Raises:
        Reject: it cannot be decoded, which `check="header"` does not find.
    """
    orientation = image.orientation if transform.upright else 1
    geometry = geometry_of(image.height, image.width, orientation, transform)
    if not geometry.changes and transform.format in ("keep", image.format):
        return image, geometry
    with room(image.height * image.width * (12 if image.depth == 8 else 24)):
        try:
            decoded = pixels.decode(
                image.data,
                image.channels,
                image.depth,
                _least(image, geometry),
            )
        except ValueError as error:
            raise Reject("convert", "damaged", str(error)) from None
        stored = _encoded(_rendered(decoded, geometry), image, transform)
    return stored._replace(orientation=1 if transform.upright else image.orientation), geometry


def _least(image: CheckedImage, geometry: Geometry) -> pixels.Shape:
    """The height and width that a JPEG needs to be decoded at."""
    start, end = geometry.edges
    scale = min(1.0, *(geometry.where.inner / (end - start)))
    return math.ceil(image.height * scale), math.ceil(image.width * scale)


def _rendered(decoded: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Pixels where they go, each channel alone: Pillow would weigh colours by their alpha."""
    way = Image.Resampling.BILINEAR
    if decoded.dtype == np.uint8 and decoded.shape[2] == 3:  # which are quicker together
        return np.asarray(_render(Image.fromarray(decoded), geometry, way))
    planes = []
    for plane in np.moveaxis(decoded, 2, 0):
        if decoded.dtype == np.uint16:
            plane = plane.astype(np.float32)
        planes.append(np.asarray(_render(Image.fromarray(plane), geometry, way)))
    rendered = np.stack(planes, 2)
    return rendered if decoded.dtype == np.uint8 else np.rint(rendered).astype(decoded.dtype)


def transform_mask(mask: Image.Image, geometry: Geometry) -> Image.Image:
    """A mask whose pixels go where its image's went; classes stay classes."""
    return _render(mask, geometry, Image.Resampling.NEAREST)


def _render(
    pixels: Image.Image,
    geometry: Geometry,
    resample: Image.Resampling,
) -> Image.Image:
    if geometry.orientation in TURNS:
        pixels = pixels.transpose(TURNS[geometry.orientation])
    # The decoder may have left out detail, but `edges` are those of the full-size upright image.
    along = np.array([pixels.height, pixels.width]) / geometry.shape
    (upper, left), (lower, right) = (edge * along for edge in geometry.edges)
    # Stay within the pixels, even if a sum of floats does not.
    part = (max(left, 0), max(upper, 0), min(right, pixels.width), min(lower, pixels.height))
    height, width = geometry.where.inner
    if (width, height) != pixels.size or part != (0, 0, *pixels.size):
        pixels = pixels.resize((width, height), resample, box=part)
    if geometry.where.outer != geometry.where.inner:
        y, x = _pair(geometry.where.offset)
        rows, columns = geometry.where.outer
        pixels = ImageOps.expand(pixels, (x, y, columns - width - x, rows - height - y))
    return pixels


def _encoded(
    rendered: np.ndarray,
    image: CheckedImage,
    transform: Transform,
) -> CheckedImage:
    form = image.format if transform.format == "keep" else transform.format
    if form != "png":  # the others hold no transparency
        rendered = rendered[:, :, : 1 if rendered.shape[2] < 3 else 3]
    if form == "raw":
        rendered = np.broadcast_to(rendered, (*rendered.shape[:2], 3))
    height, width, channels = rendered.shape
    if rendered.dtype == np.uint16:
        data = png.encode_deep(rendered)
    elif form == "raw":
        data = rendered.tobytes()
    else:
        picture = Image.fromarray(rendered if channels > 1 else rendered[:, :, 0])
        data = encoded(picture, form, quality=transform.quality)  # which PNG has none of
    image = _alone(image)
    return image._replace(data=data, format=form, height=height, width=width, channels=channels)


#: How the application segments of a JPEG begin that are kept.
_KEPT_SEGMENTS = (b"JFIF\0", b"ICC_PROFILE\0", b"Adobe")
_APPLICATION_OR_COMMENT = frozenset((*range(0xE0, 0xF0), 0xFE))

#: The chunks of a PNG that are kept.  Those that begin with a capital stay too: a PNG needs them.
_KEPT_CHUNKS = frozenset(b"tRNS gAMA cHRM sRGB iCCP cICP sBIT bKGD pHYs acTL fcTL fdAT".split())

#: An EXIF block with an orientation alone, before and after its number.
_EXIF_OF_ORIENTATION = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", bytes(7)


def without_metadata(image: CheckedImage) -> CheckedImage:
    """An image without EXIF (but for its orientation), XMP, IPTC, comments, and what follows it.

    Raises:
        Reject: it ends too early, which `check="header"` does not find.
    """
    exif = bytes((image.orientation,)).join(_EXIF_OF_ORIENTATION) if image.orientation != 1 else b""
    cut = _cut_jpeg if image.format == "jpeg" else _cut_png
    return _alone(image._replace(data=cut(image.data, exif)))


def _alone(image: CheckedImage) -> CheckedImage:
    """An image that nothing follows any more."""
    return image._replace(reduced=tuple(word for word in image.reduced if word != "appended"))


def _cut_jpeg(data: bytes, exif: bytes) -> bytes:
    parts = [data[:2]]
    start = 2
    if exif:
        parts.append(b"\xff\xe1" + (len(exif) + 8).to_bytes(2, "big") + b"Exif\0\0" + exif)
    for marker, at in markers(data, 2):
        if marker == END:
            data = data[:at]
        elif marker in _APPLICATION_OR_COMMENT and not data.startswith(_KEPT_SEGMENTS, at + 2):
            parts.append(data[start : at - 2])
            start = at + max(int.from_bytes(data[at : at + 2], "big"), 2)
    return b"".join((*parts, data[start:]))


def _cut_png(data: bytes, exif: bytes) -> bytes:
    parts = [data[:8]]
    start = 8
    for kind, _, end in chunks(data):
        if kind[:1].isupper() or kind in _KEPT_CHUNKS:
            parts.append(data[start:end])
        if kind == b"IHDR" and exif:
            parts.append(chunk(b"eXIf", exif))
        if kind == b"IEND":
            break
        start = end
    return b"".join(parts)
