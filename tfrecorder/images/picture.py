"""Which pixels are wanted from an image, and at what scale a JPEG is decoded for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

#: The smallest and the largest of the shorter sides of some images, and of their longer sides.
Sides = tuple[tuple[int, int], tuple[int, int]]

#: The scales at which a JPEG can be decoded without its finest detail.
RATIOS = (1, 2, 4, 8)

#: The scales at which less than half of a decoded pixel may be image.
TRIMMED = (4, 8)


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
        value_range: what 0 and the highest stored value become.
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
    value_range: tuple[float, float]
    depth: int = 8

    @property
    def highest(self) -> int:
        """The highest value of a stored channel."""
        return 2**self.depth - 1

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

    def scale_of(self, shape: Any, xp: Any = np) -> Any:
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


def ratio_of(scale: float) -> int:
    """The ratio that decodes the fewest pixels that are still enough."""
    return max((ratio for ratio in RATIOS if scale >= ratio), default=1)
