"""Arrays: their types, by what stands in them; and their rows in parts of nearly the same size."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]

#: Pixels of images of 8 bits.
Pixels = npt.NDArray[np.uint8]


def balanced_part(
    rows: int,
    index: int,
    parts: int,
) -> tuple[int, int]:
    """The rows (start, stop) of one of `parts` parts: their sizes differ by at most one.

    >>> [balanced_part(10, index, 3) for index in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    return rows * index // parts, rows * (index + 1) // parts
