"""The bytes of records by number: finding them with the index, and reading them.

Of a bucket, where the order is known, the records that come next are requested ahead.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import os
import resource
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import numpy as np

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool
from tfrecorder.display.messages import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout, tfrecord
from tfrecorder.reading.dataset import ShardFile, StoredDataset
from tfrecorder.reading.dataset_files import change_of, open_shard, read_in_words
from tfrecorder.storage.cache_folder import CacheFolder
from tfrecorder.storage.local_cache import LocalCache

T = TypeVar("T")

#: Local files that one reader keeps open.  Any more are opened for each read: about 5 us.
MOST_OPEN = 256

#: Neighbouring records are read together, up to this many bytes.
MOST_TOGETHER = 2**24


class RecordReader:
    """The records of a split by number, for any number of threads.

    It can be pickled, without its open files; a forked process inherits them.

    Args:
        stored: the dataset.
        split: its name.
        chosen: which records of the split are numbered here, from 0; None is all.
        folder: keeps on this machine what is read from a bucket; None for none.

    Attributes:
        records: how many there are.
        is_local: they are on a disk.
    """

    def __init__(
        self,
        stored: StoredDataset,
        split: str,
        chosen: np.ndarray | None = None,
        folder: CacheFolder | None = None,
    ) -> None:
        self._stored = stored
        self._chosen = chosen
        self._folder = folder
        self._shards = [shard for shard in stored.splits[split] if shard.records]
        counts = [shard.records or 0 for shard in self._shards]
        self._ends = list(itertools.accumulate(counts))
        self.is_local = all(storage.is_local(shard.path) for shard in self._shards)
        self.records = sum(counts) if chosen is None else len(chosen)
        self._forget()

    def _forget(self) -> None:
        self._places: dict[int, np.ndarray] = {}
        cache = None
        if self._folder is not None and not self.is_local:
            shards = itertools.chain(*self._stored.splits.values())
            listed = {shard.path: shard.listed for shard in shards if shard.listed is not None}
            cache = LocalCache(self._folder, storage.Descriptions(listed))
        self._files = OpenFiles(cache)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_places", "_files")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def read(
        self,
        numbers: Sequence[int],
        use: Callable[[bytes, int], T],
        held: Sequence[bytes | None] = (),
    ) -> list[T]:
        """What `use` makes of each record, in the order of `numbers`.

        Args:
            numbers: from 0 to `records` - 1; in a bucket, consecutive records are read together,
                and all others at the same time.
            use: a record with its framing, and its place in `numbers` -> the result.
            held: what `fetch` gave of some of the records, and None for the others.

        Raises:
            DatasetError: a record is damaged, or `use` cannot take it (it raises ValueError); the
                message names the file and the byte where the record begins.
        """
        if self.is_local:
            return [
                self._used(number, self._files.read(*self._place(number)), use, at)
                for at, number in enumerate(numbers)
            ]
        framed = dict(enumerate(held or [None] * len(numbers)))
        missing = [at for at, data in framed.items() if data is None]
        fetched = self.fetch([numbers[at] for at in missing])
        framed.update(zip(missing, fetched, strict=True))
        return [self._used(numbers[at], cast(bytes, framed[at]), use, at) for at in framed]

    def opened(self, number: int) -> tuple[int, int, int]:
        """Of a record on a disk the number of its open file, its offset and its size.

        The number is -1 where the file does not stay open.
        """
        shard, offset, size = self._place(number)
        return self._files.number(shard), offset, size

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        """Records of a bucket with their framing, in the order of `numbers`, not checked yet."""
        framed = [b""] * len(numbers)
        runs = list(self._runs(numbers))
        for first in range(0, len(runs), storage.REMOTE_THREADS):
            some = runs[first : first + storage.REMOTE_THREADS]
            for run, data in zip(some, self._read_runs(some), strict=True):
                for place in run:
                    start = place.offset - run[0].offset
                    framed[place.at] = data[start : start + place.size]
        return framed

    def is_kept(self, number: int) -> bool:
        """Whether a record is known to be on this machine; asks nothing of a bucket."""
        if self._located(number)[0] not in self._places:
            return False
        shard, offset, size = self._place(number)
        return self._files.has(shard, offset, offset + size)

    def is_all_kept(self) -> bool:
        """Whether everything is on this machine, so that nothing has to be fetched ahead."""
        kept = (self._files.has(shard, 0, shard.bytes) for shard in self._shards)
        return self.is_local or all(kept)

    def _used(
        self,
        number: int,
        framed: bytes,
        use: Callable[[bytes, int], T],
        at: int,
    ) -> T:
        """What `use` makes of one record, once its checksums are compared."""
        try:
            tfrecord.check_frame(framed)
        except ValueError:
            shard, offset, _ = self._place(number)
            framed = self._files.read_again(shard, offset, framed)
            try:
                tfrecord.check_frame(framed)
            except ValueError as error:
                raise damaged_record(shard, offset, error, self._stored.form) from error
        try:
            return use(framed, at)
        except ValueError as error:
            shard, offset, _ = self._place(number)
            raise unreadable_record(shard, offset, error, self._stored.form) from error

    def _read_runs(self, runs: list[list[_Wanted]]) -> Iterable[bytes]:
        """The bytes of runs, which are asked for at the same time."""
        if all(self._files.has(run[0].shard, run[0].offset, run[-1].end) for run in runs):
            return map(self._read_run, runs)
        return storage.each(self._read_run, runs, runs[0][0].shard.path)

    def _read_run(self, run: list[_Wanted]) -> bytes:
        first = run[0]
        return self._files.read(first.shard, first.offset, run[-1].end - first.offset)

    def _runs(self, numbers: Sequence[int]) -> Iterator[list[_Wanted]]:
        """The places of records that touch each other and are read together."""
        run: list[_Wanted] = []
        for at in sorted(range(len(numbers)), key=numbers.__getitem__):
            place = _Wanted(at, *self._place(numbers[at]))
            if run:
                touches = place.shard is run[-1].shard and place.offset == run[-1].end
                if not touches or place.end - run[0].offset > MOST_TOGETHER:
                    yield run
                    run = []
            run.append(place)
        if run:
            yield run

    def _place(self, number: int) -> tuple[ShardFile, int, int]:
        """The shard of a record, and where it is in it: offset and size, with the framing."""
        index, number = self._located(number)
        shard = self._shards[index]
        places = self._places.get(index)
        if places is None:  # read when first needed; two threads may both read it
            places = self._places[index] = self._files.places(self._stored, shard)
        offset, size = places[number - self._ends[index] + len(places)].tolist()
        return shard, offset, size

    def _located(self, number: int) -> tuple[int, int]:
        """The place of a record's shard among the shards, and its number among all of the split."""
        if self._chosen is not None:
            number = int(self._chosen[number])
        return bisect.bisect_right(self._ends, number), number


class _Wanted(NamedTuple):
    """A record's place among the requested ones, and its place in a shard."""

    at: int
    shard: ShardFile
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class OpenFiles:
    """Shards that stay open as long as this object lives; threads share it.

    Args:
        cache: keeps what is read from a bucket.
    """

    def __init__(self, cache: LocalCache | None = None) -> None:
        self.cache = cache
        self._numbers: dict[str, int] = {}
        self._of_thread = threading.local()

    def read(
        self,
        shard: ShardFile,
        offset: int,
        size: int,
    ) -> bytes:
        number = self._numbers.get(shard.path)
        if number is not None:
            return os.pread(number, size, offset)
        if not storage.is_local(shard.path):
            with read_in_words(shard):
                if self.cache is None:
                    return read_at(self._remote(shard), offset, size)
                fetch = partial(self._fetch, shard)
                return self.cache.read(shard.path, offset, offset + size, fetch)
        with open_shard(shard) as file:
            if len(self._numbers) < MOST_OPEN:  # no lock: a fork could leave it held
                self._keep(shard.path, file)
            return os.pread(file.fileno(), size, offset)

    def number(self, shard: ShardFile) -> int:
        """The number of a shard that is open; -1 if it is not."""
        return self._numbers.get(shard.path, -1)

    def _keep(self, path: str, file: BinaryIO) -> None:
        """Keep a file open, unless the process has half of the files open that it may.

        An opened file gets the lowest number that is free.
        """
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        with contextlib.suppress(OSError):  # there are too many already
            number = os.dup(file.fileno())
            if 0 <= most <= number or self._numbers.setdefault(path, number) != number:
                os.close(number)

    def has(
        self,
        shard: ShardFile,
        start: int,
        end: int,
    ) -> bool:
        """Whether the cache has this range of a shard."""
        return self.cache is not None and self.cache.has(shard.path, start, end)

    def places(
        self,
        stored: StoredDataset,
        shard: ShardFile,
    ) -> np.ndarray:
        """As `read_places`; from the cache, if it has them."""
        read = partial(read_places, stored, shard)
        if self.cache is None:
            return read()
        return self.cache.index(shard.path, read, partial(fits, shard))

    def read_again(
        self,
        shard: ShardFile,
        offset: int,
        data: bytes,
    ) -> bytes:
        """The same bytes once more, if they may be damaged here and whole in the bucket."""
        if self.cache is None:
            return data
        self.cache.forget(shard.path, offset, offset + len(data))
        return self.read(shard, offset, len(data))

    def _fetch(
        self,
        shard: ShardFile,
        start: int,
        end: int,
    ) -> bytes:
        return read_at(self._remote(shard), start, end - start)

    def _remote(self, shard: ShardFile) -> BinaryIO:
        """One file per thread, because we seek; unbuffered, because a buffer would read more."""
        files: dict[str, BinaryIO] = vars(self._of_thread).setdefault("files", {})
        if shard.path not in files:
            files[shard.path] = storage.open_seekable(shard.path, shard.listed)
        return cast(BinaryIO, getattr(files[shard.path], "raw", files[shard.path]))

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # A default, because at the interpreter's exit this module's own names may be None.
        for number in self._numbers.values():
            try:
                close(number)
            except OSError:
                continue


def read_places(stored: StoredDataset, shard: ShardFile) -> np.ndarray:
    """Offset and size, with the framing, of each record of a shard: an int64 array of two columns.

    They come from the index of a dataset of this package, else from the records' lengths.

    Raises:
        DatasetError: the index does not match the shard.
    """
    folder, name = os.path.split(shard.path)
    path = os.path.join(folder, layout.INDEX, f"{name}.idx")
    if stored.form != "tfrecorder":
        with open_shard(shard) as file:
            every = list(tfrecord.read_places(file, shard.bytes))
        return np.array(every, dtype=np.int64).reshape(-1, 2)
    fault: Exception | None = None
    words = "it does not fit its shard"
    try:
        # Three times as fast as with `split`, and without an object for each number.
        places = np.fromstring(storage.read_bytes(path), np.int64, sep=" ").reshape(-1, 2)
        if fits(shard, places):
            return places
    except (storage.UnreadableError, ValueError) as error:
        fault = error
        words = f"it cannot be read: {error}"
    raise (change_of(shard) or DatasetError(_damaged(path, words, folder))) from fault


def fits(shard: ShardFile, places: np.ndarray) -> bool:
    """Whether these are the places of as many records as a shard has, one after the other."""
    ends = places.sum(axis=1)
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    is_whole = not len(ends) or ends[-1] == shard.bytes
    return len(places) == shard.records and np.array_equal(places[:, 0], starts) and is_whole


def _damaged(
    path: str,
    fault: str,
    directory: str,
) -> str:
    return (
        f"{path} is damaged: {fault}. `{command('verify', directory)}` checks every byte, and "
        f"`{command('repair', directory)}` writes it again."
    )


def damaged_record(
    shard: ShardFile,
    offset: int,
    fault: object,
    form: str = "tfrecorder",
) -> DatasetError:
    """The error for a record whose bytes have changed, in a dataset of this form."""
    words = f"of the record at byte {offset}, {fault}"
    if form != "tfrecorder":
        return DatasetError(f"{shard.path} is damaged: {words}. Copy the file again.")
    return DatasetError(_damaged(shard.path, words, os.path.dirname(shard.path)))


def unreadable_record(
    shard: ShardFile,
    offset: int,
    fault: object,
    form: str,
) -> DatasetError:
    """The error for a record that is as it was written, and still cannot be read."""
    remedy = "Write the file again without it"
    if form == "tfrecorder":
        verify = command("verify", os.path.dirname(shard.path), "--decode")
        remedy = f"`{verify}` lists all such records, and `tfrecorder.remove` takes them out"
    return DatasetError(
        f"{shard.path}: the record at byte {offset} is as it was written, but cannot be read: "
        f"{fault}. {remedy}."
    )


def read_at(
    file: BinaryIO,
    offset: int,
    size: int,
) -> bytes:
    """`size` bytes of a file from an offset on; fewer only at its end."""
    file.seek(offset)
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data


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

    is_local = False

    def __init__(
        self,
        reader: RecordReader,
        coming: Iterator[int],
        block: int,
        held: int,
    ) -> None:
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

    def read(
        self,
        numbers: Sequence[int],
        use: Callable[[bytes, int], T],
    ) -> list[T]:
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

    def _drop_kept(
        self,
        block: int,
        records: Future[list[bytes] | None],
    ) -> None:
        if not records.cancelled() and not records.exception() and records.result() is None:
            self._fetched.pop(block, None)
