"""The size that images get: height and width in pixels, or one number for both."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tfrecorder.core.checks import is_whole
from tfrecorder.core.wording import spelled


def check_image_size(value: Any) -> str | None:
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) == 2 and all(is_whole(side) and side >= 1 for side in pair):
        return None
    example = spelled("image_size", (192, 256))
    return f"give height and width in pixels, such as {example}, or one number for both."


def sides(value: int | Sequence[int]) -> tuple[int, int]:
    """Height and width, as Python's integers.

    >>> sides(224), sides([192, 256])
    ((224, 224), (192, 256))
    """
    height, width = value if isinstance(value, Sequence) else (value, value)
    return operator.index(height), operator.index(width)
