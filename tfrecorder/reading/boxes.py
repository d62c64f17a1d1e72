"""Boxes as stored in records, in NumPy: both this package's and other tools'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrecorder.schema.fields import Field


def stored_corners(field: Field, values: Mapping[str, Any]) -> np.ndarray:
    """Boxes in the unit of the record: float32 of [n, 4], ymin, xmin, ymax, xmax.

    Raises:
        ValueError: the four edges differ in number.
    """
    if field.box_key is not None:
        return np.asarray(values.get(field.box_key, ()), np.float32).reshape(-1, 4)
    xmin, ymin, xmax, ymax = (np.asarray(values.get(key, ()), np.float32) for key in field.edges)
    if not len(xmin) == len(ymin) == len(xmax) == len(ymax):
        raise ValueError("its boxes do not have four sides each")
    return np.stack([ymin, xmin, ymax, xmax], -1)


def corners_of(
    field: Field, values: Mapping[str, Any], shape: tuple[int, int] | None
) -> np.ndarray:
    """Boxes as fractions of the stored image: float32 of [n, 4], ymin, xmin, ymax, xmax.

    Args:
        shape: height and width of the image, needed for boxes in pixels.

    Raises:
        ValueError: the four edges differ in number.
    """
    corners = stored_corners(field, values)
    if not field.in_pixels:
        return corners
    assert shape is not None
    return corners / np.tile(np.array(shape, np.float32), 2)
