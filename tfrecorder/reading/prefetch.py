"""Records of a bucket in an order that is known: requests for those that come next.

In the order "blocks" there is one request per block, a window ahead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import TypeVar

import numpy as np

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool
from tfrecorder.reading.order import WINDOW, Order
from tfrecorder.reading.record_bytes import RecordReader

T = TypeVar("T")


class PrefetchReader:
    """The records of an order, by number.

    Those that a local cache keeps are fetched up to an epoch ahead; of the others, some wait in
    memory.

    Args:
        reader: reads a record.
        coming: the numbers of the records in the order in which they are read, without an end.
        held: the most records that are being fetched or wait in memory.
    """

    def __init__(self, reader: RecordReader, coming: Iterator[int], held: int) -> None:
        self._reader, self._coming, self._held = reader, coming, held
        self._pool = ThreadPool(storage.REMOTE_THREADS, "tfrecorder-ahead")
        self._process = os.getpid()
        self._fetched: dict[int, Future[bytes | None]] = {}
        self._ahead = 0  # records that were asked for and not yet taken

    def fetch(self, taken: int) -> None:
        """Start requests for the records that come next, of which so many are taken now."""
        while self._ahead < taken or (
            len(self._fetched) < self._held and self._ahead < self._reader.records
        ):
            number = next(self._coming)
            self._ahead += 1
            if number not in self._fetched and not self._reader.is_kept(number):
                self._fetched[number] = fetched = self._pool.submit(self._fetch, number)
                fetched.add_done_callback(partial(self._drop_kept, number))
        self._ahead -= taken

    def read(self, numbers: Sequence[int], use: Callable[[bytes, int], T]) -> list[T]:
        """As `RecordReader.read`."""
        waiting = [self._fetched.pop(number, None) for number in numbers]
        held = [None if fetched is None else fetched.result() for fetched in waiting]
        return self._reader.read(numbers, use, held)

    def close(self) -> None:
        """Fetch nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, number: int) -> bytes | None:
        data = self._reader.read([number], lambda data, _: data)[0]
        return None if self._reader.is_kept(number) else data

    def _drop_kept(self, number: int, fetched: Future[bytes | None]) -> None:
        if not fetched.cancelled() and not fetched.exception() and fetched.result() is None:
            self._fetched.pop(number, None)


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
