"""The types of arrays, by what stands in them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]

#: Pixels of images of 8 bits.
Pixels = npt.NDArray[np.uint8]
