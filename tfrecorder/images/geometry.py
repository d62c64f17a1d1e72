"""Where pixels, masks and boxes go: one arithmetic for writing and for both readers.

Sizes are (height, width) and places (y, x), in pixels.  Boxes are rows of ymin, xmin, ymax, xmax,
as fractions.  `xp` is the module of the arrays: `numpy`, or `tensorflow` in its graph.  A `Picture`
says which pixels are wanted from an image, and so at what scale a JPEG is decoded for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: The smallest and the largest of the shorter sides of some images, and of their longer sides.
Sides = tuple[tuple[int, int], tuple[int, int]]

#: The scales at which a JPEG can be decoded without its finest detail.
RATIOS = (1, 2, 4, 8)

#: The scales at which less than half of a decoded pixel may be image.
TRIMMED = (4, 8)

#: Bounds of a random part: its share of the image's area, and its ratio of width to height.  They
#: are those of the Inception papers (Szegedy et al., 2014), which most recipes since have kept.
CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)

#: Random numbers per record: for area, proportions, y, x and mirroring.
DRAWS = 5

#: The share of a box's area that must be left after a crop for the box to stay, and the least area.
LEFT_OVER = 0.1
LEAST_AREA = 1e-12

#: How far an edge may be moved by the rounding of float32, as a fraction of the picture.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)  # by identity: readers look up what is known of it for each image
class Picture:
    """Which pixels are wanted.

    Attributes:
        channels: 1, 3 or 4.
        stored_size: (height, width) of every stored image, None if they differ.
        sides: (smallest, largest) of the shorter side and of the longer side of all stored
            images; None if that is not known.
        size: (height, width) wanted, or None for the stored size.
        resize: "stretch", "crop", "pad" or "fit".
        antialias: average the pixels that fall together.
        augment: take a random part, mirrored in half of the cases.
        dtype: of the pixels.
        scale, shift: a stored value times `scale` plus `shift` is a pixel of floats; each is one
            number for all channels, or one for each.
        depth: bits of a stored channel, 8 or 16.
    """

    channels: int
    stored_size: tuple[int | None, int | None]
    sides: Sides | None
    size: tuple[int, int] | None
    resize: str
    antialias: bool
    augment: bool
    dtype: str
    scale: tuple[float, ...] = (1.0,)
    shift: tuple[float, ...] = (0.0,)
    depth: int = 8

    @property
    def keeps_values(self) -> bool:
        """True if pixels are whole numbers, as they are stored."""
        return self.dtype.startswith("uint")

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        if self.size is not None and self.resize == "fit":
            return None, None, self.channels
        return (*(self.size or self.stored_size), self.channels)

    @property
    def fits_within(self) -> bool:
        """True if the longer side decides how much an image shrinks, not the shorter one."""
        return self.resize in ("pad", "fit") and not self.augment

    def scale_of(
        self,
        shape: Any,
        xp: Any = np,
    ) -> Any:
        """How many times larger than wanted an image is, along the axis that decides.

        Args:
            shape: height and width of the image, or of the part of it that is wanted.
            xp: the module of `shape`, `numpy` or `tensorflow`.
        """
        along = xp.divide(shape, self.size)
        return (xp.maximum if self.fits_within else xp.minimum)(along[0], along[1])

    @property
    def scales(self) -> tuple[float, float]:
        """Bounds on how many times larger than wanted an image is, along the axis that decides."""
        assert self.size is not None
        height, width = self.stored_size
        if height is not None and width is not None:
            scale = float(self.scale_of((height, width)))
            return scale, scale
        if self.sides is None:
            return 0.0, math.inf
        low, high = self.sides[1] if self.fits_within else self.sides[0]
        return low / max(self.size), high / min(self.size)


@dataclass(frozen=True)
class Placement:
    """Where the pixels of an image go.

    Attributes:
        start: where the part begins that is kept; None keeps the whole image.
        part: the size of this part.
        inner: its size in the result.
        offset: where it begins in the result; None if there are no borders.
        outer: the size of the result.
    """

    start: Any
    part: Any
    inner: Any
    offset: Any
    outer: Any


def ratio_of(scale: float) -> int:
    """The ratio that decodes the fewest pixels that are still enough."""
    return max((ratio for ratio in RATIOS if scale >= ratio), default=1)


def placement(
    shape: Any,
    size: tuple[int, int],
    resize: str,
    drawn: Any = None,
    xp: Any = np,
    writes: bool = False,
) -> Placement:
    """How an image of this shape gets to a size.

    Args:
        shape: of the image.
        size: that is wanted.
        resize: "stretch", "crop", "pad" or "fit"; or "short", which shrinks an image until it just
            covers the size, and cuts nothing.
        drawn: by `crop_draws`, for a random part, which is stretched; None takes the whole image.
        xp: the module of `shape` and `drawn`.
        writes: for files, whose parts may begin and end within a pixel.
    """
    if drawn is not None:
        return Placement(*random_part(shape, drawn, xp), size, None, size)
    if resize == "stretch":
        return Placement(None, None, size, None, size)
    part, inner = _scaled(shape, size, resize, xp)
    if resize == "crop":
        if writes:
            return Placement((shape - part) / 2, part, size, None, size)
        part = xp.minimum(xp.maximum(as_whole(xp.round(part), xp), 1), shape)
        return Placement((shape - part) // 2, part, size, None, size)
    inner = xp.maximum(as_whole(xp.round(inner), xp), 1)
    if resize == "pad":
        inner = xp.minimum(inner, size)
        return Placement(None, None, inner, (size - inner) // 2, size)
    return Placement(None, None, inner, None, inner)


def _scaled(
    shape: Any,
    size: tuple[int, int],
    resize: str,
    xp: Any,
) -> tuple[Any, Any]:
    """The part of an image's plane that fills `size`, and the whole image's size at its scale.

    Neither is rounded.
    """
    covers = resize in ("crop", "short")
    enlarges = resize in ("crop", "pad")
    whole = as_floats(shape, xp)
    wanted = as_floats(size, xp)
    along = whole / wanted
    scale = (xp.minimum if covers else xp.maximum)(along[0], along[1])
    scale = scale if enlarges else xp.maximum(scale, 1.0)
    return wanted * scale, whole / scale


def place(
    pixels: Any,
    where: Placement,
    resized: Callable[[Any, Any], Any],
    xp: Any = np,
) -> Any:
    """Pixels, or the classes of a mask, where a placement wants them.

    Args:
        pixels: of [height, width, channels].
        where: for an image of this shape.
        resized: pixels and a size -> pixels of this size.
        xp: the module of the pixels.
    """
    pixels = resized(cut(pixels, where), where.inner)
    if where.offset is None:
        return pixels
    after = where.outer - where.inner - where.offset
    borders = [(where.offset[axis], after[axis]) for axis in (0, 1)]
    return xp.pad(pixels, xp.stack([*borders, (0, 0)]))


def cut(pixels: Any, where: Placement) -> Any:
    """The part of an image that is kept."""
    if where.part is None:
        return pixels
    end = where.start + where.part
    return pixels[where.start[0] : end[0], where.start[1] : end[1]]


def crop_draws(uniform: Any, xp: Any) -> Any:
    """What a random part needs, from random numbers: area, ratio of its sides, y, x, mirroring.

    Args:
        uniform: float32 of [n, DRAWS], from 0 to 1, excluding 1.
        xp: their module.
    """
    area = CROP_AREA[0] + uniform[:, 0] * (CROP_AREA[1] - CROP_AREA[0])
    low, high = (math.log(bound) for bound in CROP_ASPECT)
    aspect = xp.exp(low + uniform[:, 1] * (high - low))
    return xp.stack([area, aspect, uniform[:, 2], uniform[:, 3], uniform[:, 4]], 1)


def random_part(
    shape: Any,
    drawn: Any,
    xp: Any = np,
) -> tuple[Any, Any]:
    """The start and size of a random part of an image.

    Both engines give the same pixels: IEEE 754 says how each of these steps is rounded.

    Args:
        shape: of the image.
        drawn: by `crop_draws`, of one record.
        xp: the module of both.
    """
    size = as_floats(shape, xp)
    pixels = drawn[0] * (size[0] * size[1])
    part = xp.round(xp.sqrt(xp.stack([pixels / drawn[1], pixels * drawn[1]])))
    part = xp.minimum(xp.maximum(part, 1), size)
    start = xp.minimum(xp.floor(drawn[2:4] * (size - part + 1)), size - part)
    return as_whole(start, xp), as_whole(part, xp)


def trimmed(
    decoded: Any,
    shape: Any,
    ratio: int,
    xp: Any = np,
) -> Any:
    """The size of a JPEG decoded at 1/ratio, without a last row or column mostly beyond the image.

    449 pixels are decoded as 57 pixels of eight each, which is 456.  If we resized all of that as
    image, the picture would shift by up to a pixel and differ from a full decode by several levels.

    Args:
        decoded: the size of the decoded pixels.
        shape: of the stored image.
        ratio: 1, 2, 4 or 8.
        xp: the module of the sizes.
    """
    beyond = decoded * ratio - shape
    is_less = (beyond > ratio // 2) & (beyond < ratio)  # far more for a PNG, which is decoded whole
    return xp.maximum(decoded - as_whole(is_less, xp), 1)


def is_mirrored(drawn: Any) -> Any:
    """True for half of the records: the picture is flipped left to right."""
    return drawn[4] < 0.5


def place_boxes(
    boxes: Any,
    shape: Any,
    picture: Picture,
    drawn: Any,
    xp: Any = np,
) -> tuple[Any, Any]:
    """Boxes as fractions of a picture that a reader makes, and which of them are still on it.

    Args:
        boxes: float32 of [n, 4], as fractions of the stored image.
        shape: of the stored image; None if its size does not change.
        picture: what the image becomes.
        drawn: as for the image.
        xp: the module of the arrays.

    Returns:
        The boxes that stay, cut at the edges, and for each given box a bool: whether it stays.
    """
    if picture.size is None or (picture.resize in ("stretch", "fit") and drawn is None):
        return boxes, xp.ones(xp.shape(boxes)[:1], bool)
    if drawn is not None:
        start, part = (as_floats(pixels, xp) for pixels in random_part(shape, drawn, xp))
    else:
        # Not rounded; to be padded, the part is larger than the image.
        part, _ = _scaled(shape, picture.size, picture.resize, xp)
        start = (as_floats(shape, xp) - part) / 2
    shown = moved(boxes, as_floats(shape, xp), start, part, xp)
    if drawn is not None:
        ymin, xmin, ymax, xmax = (shown[:, edge] for edge in range(4))
        mirrored = xp.stack([ymin, 1 - xmax, ymax, 1 - xmin], 1)
        shown = xp.where(is_mirrored(drawn), mirrored, shown)
    slack = ROUNDING * ((shown[:, 2] - shown[:, 0]) + (shown[:, 3] - shown[:, 1]))
    return cut_boxes(shown, slack, xp)


def moved(
    boxes: Any,
    shape: Any,
    start: Any,
    part: Any,
    xp: Any = np,
) -> Any:
    """Boxes on a plane of this shape, as fractions of a part of it."""
    shape, start, part = (xp.tile(pair, [2]) for pair in (shape, start, part))
    return (boxes * shape - start) / part


def cut_boxes(
    boxes: Any,
    slack: Any = 0.0,
    xp: Any = np,
) -> tuple[Any, Any]:
    """Boxes cut at the edges, without those of which little is left; and whether each stays.

    Args:
        boxes: rows of ymin, xmin, ymax, xmax.
        slack: how much smaller rounding may have made the areas that are left.
        xp: their module.

    >>> halves = np.array([[0, 0, 1, 10], [0, 0, 1, 10.01]])
    >>> cut_boxes(halves)[1], cut_boxes(halves, slack=0.01)[1]
    (array([ True, False]), array([ True,  True]))
    """
    cut = xp.minimum(xp.maximum(boxes, 0.0), 1.0)
    left = _areas(cut)
    stays = (left >= LEFT_OVER * _areas(boxes) - slack) & (left >= LEAST_AREA)
    return cut[stays], stays


def _areas(boxes: Any) -> Any:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def as_floats(values: Any, xp: Any) -> Any:
    """float32, in which both readers compute, so that they round the same way."""
    return xp.asarray(values, np.float32) if xp is np else xp.cast(values, xp.float32)


def as_whole(values: Any, xp: Any) -> Any:
    """Whole numbers of pixels."""
    return values.astype(np.int64) if xp is np else xp.cast(values, xp.int32)
