"""Records of a bucket in an order that is known: requests for those that come next."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool
from tfrecorder.reading.record_bytes import RecordReader

T = TypeVar("T")


class AheadReader:
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
