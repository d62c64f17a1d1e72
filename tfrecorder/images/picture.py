"""Which pixels are wanted from an image, and at what scale a JPEG is decoded for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

#: The scales at which a JPEG can be decoded without its finest detail.
RATIOS = (1, 2, 4, 8)

#: The scales at which less than half of a decoded pixel may be image.
TRIMMED = (4, 8)

#: Bounds of a random part: its share of the image's area, and its ratio of width to height.  They
#: are those of the Inception papers (Szegedy et al., 2014), which most recipes since have kept.
CROP_AREA = (0.08, 1.0)
CROP_ASPECT = (3 / 4, 4 / 3)

#: The share of a box's area that must be left after a crop for the box to stay, and the least area.
LEFT_OVER = 0.1
LEAST_AREA = 1e-12

#: How far an edge may be moved by the rounding of float32, as a fraction of the picture.
ROUNDING = 1e-6


@dataclass(frozen=True)
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
        value_range: what 0 and 255 become.
    """

    channels: int
    stored_size: tuple[int | None, int | None]
    sides: tuple[tuple[int, int], tuple[int, int]] | None
    size: tuple[int, int] | None
    resize: str
    antialias: bool
    augment: bool
    dtype: str
    value_range: tuple[float, float]

    @property
    def shape(self) -> tuple[int | None, int | None, int]:
        if self.size is not None and self.resize == "fit":
            return None, None, self.channels
        return (*(self.size or self.stored_size), self.channels)

    @property
    def fits_within(self) -> bool:
        """True if the longer side decides how much an image shrinks, not the shorter one."""
        return self.resize in ("pad", "fit")

    @property
    def scales(self) -> tuple[float, float]:
        """Bounds on how many times larger than wanted an image is, along the axis that decides."""
        assert self.size is not None
        height, width = self.stored_size
        if height is not None and width is not None:
            along = height / self.size[0], width / self.size[1]
            scale = max(along) if self.fits_within else min(along)
            return scale, scale
        if self.sides is None:
            return 0.0, math.inf
        low, high = self.sides[1] if self.fits_within else self.sides[0]
        return low / max(self.size), high / min(self.size)


def is_left(left: Any, whole: Any, slack: Any = 0.0) -> Any:
    """Which boxes stay after a crop: the one rule of writing and of both readers.

    Args:
        left: the areas that are left, an array of NumPy or of TensorFlow.
        whole: the areas of the whole boxes.
        slack: how much smaller rounding may have made the areas that are left.

    >>> is_left(0.1, 1.0), is_left(0.0999999, 1.0), is_left(0.0999999, 1.0, slack=1e-6)
    (True, False, True)
    """
    return (left >= LEFT_OVER * whole - slack) & (left >= LEAST_AREA)


def ratio_of(scale: float) -> int:
    """The ratio that decodes the fewest pixels that are still enough."""
    return max((ratio for ratio in RATIOS if scale >= ratio), default=1)
