"""`batches`: a split as NumPy batches, made by threads, from any position on."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.indexed.collate import collate, emptied
from tfrecorder.indexed.elements import Elements
from tfrecorder.indexed.options import BatchOptions
from tfrecorder.indexed.order import Order, block_of
from tfrecorder.indexed.position import Position, Share
from tfrecorder.indexed.reading import RecordReader
from tfrecorder.indexed.records import fingerprint_of, open_by_number
from tfrecorder.indexed.windows import WindowReader
from tfrecorder.options.memory import prefetched
from tfrecorder.stored.columns import is_ragged, refuse_sizes
from tfrecorder.stored.dataset import StoredDataset
from tfrecorder.threads import ThreadPool, UnwantedError, cores, is_unwanted, map_ahead

#: Names of threads: those that decode, and those that wait for a bucket.
_BATCHES, _BLOCKS = "tfrecorder-batches", "tfrecorder-blocks"


def batches(directory: str | os.PathLike[str], split: str, **options: Any) -> Batches:
    """A split as an iterable of NumPy batches, without TensorFlow; each `for` is one epoch.

    The arrays are new for each batch and may be written to: `torch.from_numpy` and
    `jax.device_put` take them as they are. Threads of this process make them, ahead of the loop.

    Args:
        directory: as for `tfrecorder.Records`.
        split: "TRAIN", "VALIDATION" or "TEST", in any usual spelling.
        batch_size: records of a batch, 64 by default; with `shard`, of each host.
        drop_remainder: leave out the last records, if they do not fill a batch of every host. By
            default True with `shard`, else False. With False, hosts divide them: their batches
            then differ by one record at most, and some may be empty.
        shuffle: "exact" shuffles the whole split, the default of TRAIN; "blocks" shuffles blocks of
            neighbours of about 1 MiB and the records of 64 blocks, for buckets; False, the
            default of other splits, keeps the stored order; True is "exact".
        seed: of order and augmentation, 0 to 2**32 - 1; None draws one, which the position keeps.
        shard: (rank, world): the part of this host among so many. They all need the same seed.
        num_threads: that decode, by default one a core.
        layout: of images and masks, "NHWC" or "NCHW".
        ram_budget: bytes, or a text as "4GiB": a quarter of it is for batches that wait. None is a
            quarter of the memory that the process may use.
        **options: those of `tfrecorder.Records`.

    Raises:
        OptionError: an option's name or value is wrong.
        DatasetError: the directory is not a whole dataset, or has no such split.

    Example:
        >>> train = tfrecorder.batches("out", "TRAIN", batch_size=64, image_size=224,
        ...                            seed=7)  # doctest: +SKIP
        >>> for images, labels in train:  # doctest: +SKIP
        ...     step(images, labels)
    """
    chosen = BatchOptions.of(options)
    return Batches(open_by_number(directory, chosen.at), split, chosen)


class Batches:
    """What `tfrecorder.batches` gives: an iterable, with a position.

    A loop that is left goes on, with the next `for`, behind the last batch that it took.  One loop
    at a time.

    Attributes:
        epoch: that the next batch is of, from 0; after an epoch's last batch the next one.
    """

    def __init__(self, stored: StoredDataset, split: str, options: BatchOptions) -> None:
        name = stored.split(split)
        refuse_sizes(stored, options, options.batch_size)
        if is_ragged(stored, options) and options.map_fn is None:
            raise OptionError(
                f"batches: elements of {stored.directory} hold lists of different lengths; give "
                "max_boxes, or choose other columns by inputs and targets, or pad by map_fn."
            )
        self._options = options
        self._reader = RecordReader(stored, name)
        records, (rank, world) = self._reader.records, options.shard or (0, 1)
        self._share = Share(records, options.batch_size, int(rank), int(world), options.drops)
        self._block = block_of(records, stored.bytes(name))
        seed = secrets.randbits(32) if options.seed is None else int(options.seed)
        self._elements = Elements(stored, options, seed)
        fingerprint = fingerprint_of(stored, name)
        self._position = Position(fingerprint, name, options.mode(name), seed)
        self._begun_at = 0

    @property
    def epoch(self) -> int:
        return self._position.epoch

    def __len__(self) -> int:
        """The batches of the loop under way, or of the next: to the end of its epoch."""
        return self._share.steps(self._begun_at)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands, as JSON values: behind the last batch that it took.

        It is the same on every host, and any `batch_size` and `shard` continue from it.
        """
        return self._position.to_json()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a `state_dict` was taken, with the next `for`.

        Raises:
            OptionError: it is of another dataset, split, shuffle or seed.
        """
        takes_seed = self._options.seed is None
        self._go_to(self._position.with_saved(state, self._share.records, takes_seed=takes_seed))

    def _go_to(self, position: Position) -> None:
        if position.seed != self._position.seed:
            self._elements.seed = position.seed
        self._position, self._begun_at = position, position.next

    def __iter__(self) -> Iterator[Any]:
        """The batches from the position to the end of its epoch."""
        position = self._position
        start = self._begun_at = position.next
        following = position.next_epoch()
        steps = self._share.steps(start)
        for step, batch in enumerate(self._made(position, steps), 1):
            start = self._share.after(start)
            if step == steps:
                self._go_to(following)
            else:
                self._position = replace(position, next=start)
            yield batch
        if not steps:
            self._go_to(following)

    def _made(self, position: Position, steps: int) -> Iterator[Any]:
        """The batches of so many steps from a position on, made ahead by threads."""
        threads = self._options.num_threads or cores()
        size = self._options.batch_size
        part = -(-size // threads)
        parts = -(-size // part)  # of a full batch: all threads work at the same one
        ahead = parts * prefetched(self._batch_bytes(), self._options.budget)
        order = Order(
            self._share.records, position.mode, position.seed, position.epoch, self._block
        )
        made: list[Any] = []
        with contextlib.ExitStack() as stack:
            reader: RecordReader | WindowReader = self._reader
            if position.mode == "blocks" and not self._reader.is_local:
                waiting = stack.enter_context(ThreadPool(storage.REMOTE_THREADS, _BLOCKS))
                reader = WindowReader(self._reader, order, waiting)
            pool = stack.enter_context(ThreadPool(threads, _BATCHES))
            tasks = self._tasks(order, reader, position.next, steps, part)
            results = map_ahead(pool, self._make, tasks, ahead + threads)
            for task, elements in stack.enter_context(contextlib.closing(results)):
                made += elements
                if task.is_last:
                    batch = collate(made, task.pixels)
                    yield emptied(batch) if task.is_empty else batch
                    made = []

    def _tasks(
        self,
        order: Order,
        reader: RecordReader | WindowReader,
        start: int,
        steps: int,
        part: int,
    ) -> Iterator[_Task]:
        for _ in range(steps):
            if isinstance(reader, WindowReader):
                reader.fetch(start)
            places = self._share.places(start)
            # A batch without records has the form of one with the first.
            numbers = order.numbers(np.array(places or [0])).tolist()
            pixels = {}
            if self._options.map_fn is None:
                first = self._options.layout == "NCHW"
                pixels = self._elements.pixel_arrays(len(numbers), first)
            for begin in range(0, len(numbers), part):
                some = numbers[begin : begin + part]
                is_last = begin + part >= len(numbers)
                yield _Task(reader, some, begin, order.epoch, pixels, is_last, not places)
            start = self._share.after(start)

    def _make(self, task: _Task) -> tuple[_Task, list[Any]]:
        def make(data: bytes, at: int) -> Any:
            if is_unwanted():
                raise UnwantedError
            slots = {key: pixels[task.begin + at] for key, pixels in task.pixels.items()}
            return self._elements.make(data, task.numbers[at], task.epoch, slots)

        found = task.reader.read(task.numbers, make)
        return task, [self._elements.mapped(one) for one in found]

    def _batch_bytes(self) -> float:
        slots = self._elements.pixel_arrays(1, False) if self._options.map_fn is None else {}
        return self._options.batch_size * max(1, sum(some.nbytes for some in slots.values()))


@dataclass(frozen=True)
class _Task:
    """Some records of a batch.

    Attributes:
        reader: of the records.
        numbers: of the records.
        begin: where they begin in the batch.
        epoch: that they are read in.
        pixels: of the whole batch, to be filled, by the key of the column.
        is_last: they are the batch's last.
        is_empty: they stand for no record.
    """

    reader: RecordReader | WindowReader
    numbers: list[int]
    begin: int
    epoch: int
    pixels: dict[str, np.ndarray]
    is_last: bool
    is_empty: bool
