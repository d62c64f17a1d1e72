"""Images shrunk, turned upright or stored in another format, with their masks and boxes."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image, ImageOps

from tfrecorder.images.check import CheckedImage
from tfrecorder.images.header import exif_orientation
from tfrecorder.images.memory import Room, unlimited
from tfrecorder.images.picture import is_left

#: How Pillow turns pixels upright, by the EXIF orientation.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Transform:
    """What happens to each image before it is stored.

    Attributes:
        size: the short side that larger images shrink to; or an exact (height, width); or None.
        resize: how an image of other proportions gets to (height, width): "stretch"; "crop" cuts
            the longer side about the centre; "pad" adds black; "fit" stays within, and is smaller.
        format: "keep", "jpeg", "png" or "raw".
        quality: of JPEG.
        upright: turn the pixels as the EXIF orientation says.
    """

    size: int | tuple[int, int] | None
    resize: str
    format: str
    quality: int
    upright: bool


def transform_of(options: Mapping[str, Any]) -> Transform | None:
    """The transform in a plan's options; None if images stay as they are."""
    size, form = options.get("image_size"), options.get("image_format", "keep")
    upright = bool(options.get("apply_exif", False))
    if size is None and form == "keep" and not upright:
        return None
    return Transform(
        tuple(size) if isinstance(size, (list, tuple)) else size,
        options.get("resize", "stretch"),
        form,
        options.get("image_quality", 95),
        upright,
    )


@dataclass(frozen=True)
class Geometry:
    """Where an image's pixels go.

    Attributes:
        orientation: 1 to 8; the pixels are first turned by it.
        part: (left, upper, right, lower) of the part that is kept, in pixels of the upright image.
        inner: (width, height) of this part in the result.
        offset: (x, y) of this part in the result.
        outer: (width, height) of the result.
        size: (width, height) of the upright image.
    """

    orientation: int
    part: tuple[float, float, float, float]
    inner: tuple[int, int]
    offset: tuple[int, int]
    outer: tuple[int, int]
    size: tuple[int, int]

    def boxes(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Boxes moved to the result, and which of them are still on it.

        Args:
            edges: rows of (xmin, ymin, xmax, ymax), fractions of the original image.

        Returns:
            The boxes that keep at least a tenth of their area, cut at the edges; and a mask that
            marks them among the given ones.
        """
        x, y = edges[:, 0::2], edges[:, 1::2]
        x, y = _turned(x, y, self.orientation)
        left, upper, right, lower = self.part
        width, height = self.size
        x = (x * width - left) / (right - left)
        y = (y * height - upper) / (lower - upper)
        x = (x * self.inner[0] + self.offset[0]) / self.outer[0]
        y = (y * self.inner[1] + self.offset[1]) / self.outer[1]
        made = np.stack([x.min(1), y.min(1), x.max(1), y.max(1)], 1)
        cut = np.clip(made, 0, 1)
        kept = is_left(_areas(cut), _areas(made))
        return cut[kept], kept


def _areas(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _turned(x: np.ndarray, y: np.ndarray, orientation: int) -> tuple[np.ndarray, np.ndarray]:
    """Fractions of a stored image as fractions of the upright one."""
    if orientation in (2, 3):
        x = 1 - x
    if orientation in (3, 4):
        y = 1 - y
    return {
        5: (y, x),
        6: (1 - y, x),
        7: (1 - y, 1 - x),
        8: (y, 1 - x),
    }.get(orientation, (x, y))


def geometry_of(width: int, height: int, orientation: int, transform: Transform) -> Geometry:
    """What a transform does to an image stored with this width and height."""
    if orientation >= 5:
        width, height = height, width
    whole = (0.0, 0.0, float(width), float(height))
    size, same = transform.size, (width, height)
    if size is None:
        return Geometry(orientation, whole, same, (0, 0), same, same)
    if isinstance(size, int):
        scale = min(1.0, size / min(width, height))
        inner = _scaled(width, height, scale)
        return Geometry(orientation, whole, inner, (0, 0), inner, same)
    outer = (size[1], size[0])
    if transform.resize == "stretch":
        return Geometry(orientation, whole, outer, (0, 0), outer, same)
    if transform.resize == "crop":
        scale = max(outer[0] / width, outer[1] / height)
        kept_width, kept_height = outer[0] / scale, outer[1] / scale
        left, upper = (width - kept_width) / 2, (height - kept_height) / 2
        part = (left, upper, left + kept_width, upper + kept_height)
        return Geometry(orientation, part, outer, (0, 0), outer, same)
    scale = min(outer[0] / width, outer[1] / height)
    if transform.resize == "fit":
        inner = _scaled(width, height, min(1.0, scale))
        return Geometry(orientation, whole, inner, (0, 0), inner, same)
    inner = _scaled(width, height, scale)
    offset = ((outer[0] - inner[0]) // 2, (outer[1] - inner[1]) // 2)
    return Geometry(orientation, whole, inner, offset, outer, same)


def _scaled(width: int, height: int, scale: float) -> tuple[int, int]:
    return max(1, round(width * scale)), max(1, round(height * scale))


def transform_image(
    image: CheckedImage, transform: Transform, room: Room = unlimited
) -> tuple[CheckedImage, Geometry]:
    """A checked image as it will be stored, and where its pixels went.

    The bytes stay as they are if neither the pixels nor the format change.
    """
    orientation = _orientation(image) if transform.upright and image.oriented else 1
    geometry = geometry_of(image.width, image.height, orientation, transform)
    same = geometry.outer == (image.width, image.height) == geometry.inner and orientation == 1
    if same and transform.format in ("keep", image.format):
        return image, geometry
    with room(image.height * image.width * 4):
        pixels = _render(_decoded(image, geometry), geometry, Image.Resampling.BILINEAR)
        return _encoded(pixels, image, transform), geometry


def transform_mask(mask: Image.Image, geometry: Geometry) -> Image.Image:
    """A mask whose pixels go where its image's went; classes stay classes."""
    return _render(mask, geometry, Image.Resampling.NEAREST)


def _orientation(image: CheckedImage) -> int:
    with Image.open(io.BytesIO(image.data)) as opened:
        if image.format == "png":
            return int(opened.getexif().get(0x0112, 1))
        exif = opened.info.get("exif", b"")
    return exif_orientation(exif.removeprefix(b"Exif\0\0"))


def _decoded(image: CheckedImage, geometry: Geometry) -> Image.Image:
    """The stored pixels; if a JPEG shrinks, with no more detail than is needed."""
    if image.format == "jpeg" and image.warning is None and image.channels in (1, 3):
        left, upper, right, lower = geometry.part
        scale = min(geometry.inner[0] / (right - left), geometry.inner[1] / (lower - upper), 1.0)
        wanted = [math.ceil(side * scale) for side in (image.height, image.width)]
        try:
            pixels = simplejpeg.decode_jpeg(
                image.data, "GRAY" if image.channels == 1 else "RGB", False, False, *wanted
            )
            return Image.fromarray(pixels[:, :, 0] if image.channels == 1 else pixels)
        except (ValueError, KeyError, RuntimeError):
            pass  # a CMYK JPEG counts 3 channels too; Pillow decodes it
    with Image.open(io.BytesIO(image.data)) as opened:
        opened.load()
        modes = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
        return opened.convert(modes.get(image.channels, "RGB"))


def _render(pixels: Image.Image, geometry: Geometry, resample: Image.Resampling) -> Image.Image:
    if geometry.orientation in _TURNS:
        pixels = pixels.transpose(_TURNS[geometry.orientation])
    # The decoder may have left out detail, but `part` is in pixels of the full-size upright image.
    along = pixels.width / geometry.size[0], pixels.height / geometry.size[1]
    left, upper, right, lower = geometry.part
    part = (left * along[0], upper * along[1], right * along[0], lower * along[1])
    # Stay within the pixels, even if a sum of floats does not.
    ends = min(part[2], pixels.width), min(part[3], pixels.height)
    part = (max(part[0], 0), max(part[1], 0), *ends)
    if geometry.inner != pixels.size or part != (0, 0, *pixels.size):
        pixels = pixels.resize(geometry.inner, resample, box=part)
    if geometry.outer != geometry.inner:
        before = geometry.offset
        after = tuple(
            o - i - b for o, i, b in zip(geometry.outer, geometry.inner, before, strict=True)
        )
        pixels = ImageOps.expand(pixels, (*before, *after))
    return pixels


def _encoded(pixels: Image.Image, image: CheckedImage, transform: Transform) -> CheckedImage:
    form = image.format if transform.format == "keep" else transform.format
    if form in ("jpeg", "raw") and pixels.mode not in ("L", "RGB"):
        pixels = pixels.convert("RGB" if pixels.mode != "LA" else "L")
    if form == "raw":
        pixels = pixels.convert("RGB")
        data = pixels.tobytes()
    else:
        out = io.BytesIO()
        if form == "jpeg":
            pixels.save(out, "JPEG", quality=transform.quality)
        else:
            pixels.save(out, "PNG")
        data = out.getvalue()
    channels = len(pixels.getbands())
    return CheckedImage(
        data,
        form,
        pixels.height,
        pixels.width,
        channels,
        image.oriented and not transform.upright,
        image.warning,
    )
