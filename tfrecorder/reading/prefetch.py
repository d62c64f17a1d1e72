"""Records of a bucket in an order that is known: requests for those that come next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool
from tfrecorder.reading.record_bytes import RecordReader

T = TypeVar("T")


@dataclass
class _Fetched:
    """A block that is being fetched, or waits.

    Attributes:
        records: with their framing; None if the local cache keeps them.
        awaited: how many of them come, as far as is known.
    """

    records: Future[list[bytes] | None]
    awaited: int = 1


class PrefetchReader:
    """The records of an order, by number, each block of neighbours by one request.

    Those that a local cache keeps are fetched up to an epoch ahead; of the others, some wait in
    memory.

    Args:
        reader: reads a block.
        coming: the numbers of the records in the order in which they are read, without an end.
        block: how many records are fetched together.
        held: the most blocks that are being fetched or wait in memory.
    """

    def __init__(self, reader: RecordReader, coming: Iterator[int], block: int, held: int) -> None:
        self._reader = reader
        self._coming = coming
        self._block = block
        self._held = held
        self._pool = ThreadPool(storage.REMOTE_THREADS, "tfrecorder-ahead")
        self._lock = threading.Lock()
        self._fetched: dict[int, _Fetched] = {}
        self._ahead = 0  # records that were asked for and not yet taken

    def fetch(self, taken: int) -> None:
        """Start requests for the records that come next, of which so many are taken now."""
        while self._ahead < taken or (
            len(self._fetched) < self._held and self._ahead < self._reader.records
        ):
            number = next(self._coming)
            self._ahead += 1
            block = number // self._block
            with self._lock:
                if (fetched := self._fetched.get(block)) is not None:
                    fetched.awaited += 1
            if fetched is None and not self._reader.is_kept(number):
                records = self._pool.submit(self._fetch, block)
                self._fetched[block] = _Fetched(records)
                records.add_done_callback(partial(self._drop_kept, block))
        self._ahead -= taken

    def read(self, numbers: Sequence[int], use: Callable[[bytes, int], T]) -> list[T]:
        """As `RecordReader.read`."""
        return self._reader.read(numbers, use, [self._take(number) for number in numbers])

    def close(self) -> None:
        """Fetch nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, number: int) -> bytes | None:
        """A record that was fetched; its block is forgotten with the last one that comes of it."""
        block, within = divmod(number, self._block)
        with self._lock:
            if (fetched := self._fetched.get(block)) is None:
                return None
            fetched.awaited -= 1
            if not fetched.awaited:
                del self._fetched[block]
        records = fetched.records.result()
        return None if records is None else records[within]

    def _fetch(self, block: int) -> list[bytes] | None:
        first = block * self._block
        numbers = range(first, min(first + self._block, self._reader.records))
        records = self._reader.fetch(numbers)
        return None if all(map(self._reader.is_kept, numbers)) else records

    def _drop_kept(self, block: int, records: Future[list[bytes] | None]) -> None:
        if not records.cancelled() and not records.exception() and records.result() is None:
            self._fetched.pop(block, None)
