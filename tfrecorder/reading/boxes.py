"""Boxes as stored in records: both this package's and other tools'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrecorder.images.geometry import as_floats
from tfrecorder.schema.fields import Field


def stored_corners(field: Field, values: Mapping[str, Any], xp: Any = np) -> Any:
    """Boxes in the unit of the record: float32 of [n, 4], ymin, xmin, ymax, xmax.

    Args:
        field: the column.
        values: of the record, by key.
        xp: the module of the arrays, `numpy` or `tensorflow`.

    Raises:
        ValueError: the four edges differ in number.
    """
    if field.box_key is not None:
        return xp.reshape(as_floats(values.get(field.box_key, ()), xp), (-1, 4))
    xmin, ymin, xmax, ymax = (as_floats(values.get(key, ()), xp) for key in field.edges)
    try:
        return xp.stack([ymin, xmin, ymax, xmax], -1)
    except ValueError as error:
        raise ValueError("its boxes do not have four sides each") from error


def corners_of(field: Field, values: Mapping[str, Any], shape: Any, xp: Any = np) -> Any:
    """Boxes as fractions of the stored image: float32 of [n, 4], ymin, xmin, ymax, xmax.

    Args:
        field: the column.
        values: of the record, by key.
        shape: height and width of the image, needed for boxes in pixels.
        xp: the module of the arrays, `numpy` or `tensorflow`.

    Raises:
        ValueError: the four edges differ in number.
    """
    corners = stored_corners(field, values, xp)
    return corners / xp.tile(as_floats(shape, xp), [2]) if field.in_pixels else corners
