"""Memory that forked workers and the process that trains share, for the images of batches.

A worker fills a slot, and the next batch takes it once nobody in that process holds the one before.
torch alone would copy each batch to a new piece of shared memory.  Each page of it costs a fault in
both processes, together more than decoding does.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrecorder.reading.collate import each

#: Arrays begin at multiples of this, as those of NumPy and torch do.
_ALIGNED = 64


@dataclass(frozen=True)
class _InSlot:
    """Where an array of a batch is in its slot."""

    begin: int
    shape: tuple[int, ...]
    dtype: np.dtype


class _SlotMemory:
    """Gives parts of a slot, one after the other; other memory where the slot is too small."""

    def __init__(self, slot: np.ndarray) -> None:
        self._slot = slot
        self._end = 0

    def empty(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> np.ndarray:
        """An unfilled array."""
        begin = -(-self._end // _ALIGNED) * _ALIGNED
        end = begin + math.prod(shape) * dtype.itemsize
        if end > len(self._slot):
            return np.empty(shape, dtype)
        self._end = end
        # Each array gets its own base, by which `collate` tells it from the others.
        return np.frombuffer(self._slot.data[begin:end], dtype).reshape(shape)


class Slots:
    """Shared memory, in slots for the images of a batch each.

    Args:
        count: how many there are.  Only those that are used take memory.
        images: arrays as large as those of a batch; without any there are no slots.
    """

    def __init__(self, count: int, images: Iterable[np.ndarray]) -> None:
        size = sum(array.nbytes + _ALIGNED for array in images)
        self._slots: list[np.ndarray] = []
        with contextlib.suppress(OSError):  # a limit: torch's own memory then serves
            for _ in range(count if size else 0):
                self._slots.append(np.frombuffer(mmap.mmap(-1, size), np.uint8))
        self._under_way: set[int] = set()
        self._unused = self._references(0) if self._slots else 0

    def take(self) -> int | None:
        """A slot that no worker fills and nobody here holds; None if there is none."""
        for slot in range(len(self._slots)):
            if slot not in self._under_way and self._references(slot) == self._unused:
                self._under_way.add(slot)
                return slot
        return None

    def memory(self, slot: int) -> _SlotMemory:
        """For a worker to fill."""
        return _SlotMemory(self._slots[slot])

    def place(self, slot: int, values: np.ndarray) -> _InSlot | None:
        """Where an array is in a slot; None if it is not there, or not row after row."""
        whole = self._slots[slot]
        begin = values.ctypes.data - whole.ctypes.data
        is_here = 0 <= begin <= len(whole) - values.nbytes and values.flags.c_contiguous
        return _InSlot(begin, values.shape, values.dtype) if is_here else None

    def received(self, slot: int | None, batch: Any) -> Any:
        """A batch with its arrays; its slot is free once they are gone."""
        if slot is None:
            return batch
        whole = self._slots[slot]

        def found(values: Any) -> Any:
            if not isinstance(values, _InSlot):
                return values
            end = values.begin + math.prod(values.shape) * values.dtype.itemsize
            return whole[values.begin : end].view(values.dtype).reshape(values.shape)

        arrays = each(found, batch)
        self._under_way.remove(slot)
        return arrays

    def _references(self, slot: int) -> int:
        return sys.getrefcount(self._slots[slot])
