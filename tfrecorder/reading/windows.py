"""Records of a bucket in the order "blocks": one request per block, a window ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import TypeVar

import numpy as np

from tfrecorder.reading.order import WINDOW, Order
from tfrecorder.reading.record_bytes import RecordReader

T = TypeVar("T")

#: Windows to keep behind the current one, because threads may be that far behind.
_KEPT = 1


class WindowReader:
    """The records of an order of blocks, by number.

    Args:
        reader: reads a block.
        order: with the `mode` "blocks".
        pool: its threads wait for the requests.
    """

    def __init__(self, reader: RecordReader, order: Order, pool: Executor) -> None:
        self._reader, self._order, self._pool = reader, order, pool
        self._blocks: dict[int, Future[list[bytes]]] = {}
        self._last: dict[int, int] = {}  # the last window of each of them
        self._next = 0  # the first window that was not fetched yet

    def fetch(self, place: int) -> None:
        """Start reading the window of a place and the next one, and forget those long past."""
        size = self._order.block * WINDOW
        now = place // size
        for window in range(max(now, self._next), now + 2):
            places = np.arange(window * size, min((window + 1) * size, self._order.records))
            for block in np.unique(self._order.numbers(places) // self._order.block).tolist():
                self._last[block] = window
                if block not in self._blocks:
                    self._blocks[block] = self._pool.submit(self._read_block, block)
        self._next = now + 2
        for block in [block for block, last in self._last.items() if last < now - _KEPT]:
            del self._last[block], self._blocks[block]

    def read(self, numbers: Sequence[int], use: Callable[[bytes, int], T]) -> list[T]:
        """As `RecordReader.read`."""
        return self._reader.read(numbers, use, [self._held(number) for number in numbers])

    def _held(self, number: int) -> bytes | None:
        block, within = divmod(number, self._order.block)
        fetched = self._blocks.get(block)
        # None if it was forgotten, because this thread is far behind.
        return None if fetched is None else fetched.result()[within]

    def _read_block(self, block: int) -> list[bytes]:
        first = block * self._order.block
        end = min(first + self._order.block, self._order.records)
        return self._reader.read(range(first, end), lambda data, _: data)
