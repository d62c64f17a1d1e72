"""From elements to a batch, in memory that is taken again once nobody holds the batch in it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tfrecorder.errors import OptionError


def collate(
    elements: Sequence[Any],
    pixels: Mapping[str, np.ndarray],
    mask: np.ndarray | None = None,
) -> Any:
    """One batch with the same form as each of its elements.

    Args:
        elements: at least one; tuples and dicts of arrays, numbers and bytes.
        pixels: arrays that the elements' images were written to; they are not copied.
        mask: which elements are real; it becomes the last value of the batch.

    Raises:
        OptionError: `map_fn` returned arrays of different shapes.
    """
    whole = {id(array.base): array for array in pixels.values()}
    return with_mask(_join(elements, whole), mask)


def with_mask(batch: Any, mask: np.ndarray | None) -> Any:
    """A batch with one value more, its last, if there is a mask."""
    if mask is None:
        return batch
    return (*batch, mask) if isinstance(batch, tuple) else (batch, mask)


def _join(values: Sequence[Any], whole: Mapping[int, np.ndarray]) -> Any:
    # Views of one array have the same base, whatever views they were made from.
    first = values[0]
    if isinstance(first, Mapping):
        return {key: _join([value[key] for value in values], whole) for key in first}
    if isinstance(first, tuple):
        return tuple(_join(column, whole) for column in zip(*values, strict=True))
    if isinstance(first, np.ndarray) and id(first.base) in whole:
        return whole[id(first.base)]
    if isinstance(first, (bytes, str)):
        return np.array(values, object)
    if isinstance(first, np.generic) and len({type(value) for value in values}) == 1:
        return np.array(values)  # a tenth of what `stack` takes
    try:
        return np.stack(values)
    except ValueError as error:
        shapes = sorted({np.shape(value) for value in values})
        raise OptionError(
            f"`map_fn` returned arrays of the shapes {', '.join(map(str, shapes))}, which cannot "
            "share a batch; make it pad or crop them to one shape."
        ) from error


def each(change: Callable[[Any], Any], batch: Any) -> Any:
    """A batch with each of its arrays changed, in the same form."""
    if isinstance(batch, Mapping):
        return {key: each(change, value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(each(change, value) for value in batch)
    return change(batch)


class Memory(Protocol):
    """Where the images of a batch are written to."""

    def empty(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> np.ndarray:
        """An unfilled array."""


class BatchMemory(Memory):
    """Gives arrays whose memory nobody else can reach.

    Each page of fresh memory costs a fault: together half of the CPU time of an image that is
    stored as pixels.  An array that only we refer to has lost its user, and all views and tensors
    that share its memory.

    Args:
        most: arrays to keep.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept = [np.empty(0, np.uint8)]
        self._unused = self._references(0)  # Python's versions count this in different ways

    def empty(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> np.ndarray:
        """An unfilled array."""
        size = math.prod(shape) * dtype.itemsize
        for at in range(len(self._kept)):
            if self._kept[at].nbytes == size and self._references(at) == self._unused:
                return self._kept[at].view(dtype).reshape(shape)
        fresh = np.empty(size, np.uint8)
        if len(self._kept) < self.most:
            self._kept.append(fresh)
        return fresh.view(dtype).reshape(shape)

    def _references(self, at: int) -> int:
        return sys.getrefcount(self._kept[at])
