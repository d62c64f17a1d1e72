"""Memory for batches, taken again once nobody holds the batch that was in it."""

from __future__ import annotations

import math
import sys

import numpy as np


class BatchMemory:
    """Gives arrays whose memory nobody else can reach.

    Each page of fresh memory costs a fault: together half of the CPU time of an image that is
    stored as pixels.  An array that only we refer to has lost its user, and all views and tensors
    that share its memory.

    Args:
        most: arrays to keep.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = [np.empty(0, np.uint8)]
        self._unused = self._references(0)  # Python's versions count this in different ways

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An unfilled array."""
        size = math.prod(shape) * dtype.itemsize
        for at in range(len(self._kept)):
            if self._kept[at].nbytes == size and self._references(at) == self._unused:
                return self._kept[at].view(dtype).reshape(shape)
        fresh = np.empty(size, np.uint8)
        if len(self._kept) < self._most:
            self._kept.append(fresh)
        return fresh.view(dtype).reshape(shape)

    def _references(self, at: int) -> int:
        return sys.getrefcount(self._kept[at])
