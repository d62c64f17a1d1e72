"""`batches`: a split as NumPy batches, made by threads, starting at any position."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tfrecorder.core.option import Fault, OneOf, Whole, flag_or_none, is_whole, option
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.errors import OptionError
from tfrecorder.options.keywords import BatchKeywords, Datasets, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.options.ranks import COMMON_SEED, cores_of_rank, say_divided, seed_of
from tfrecorder.options.read import SEED, EpochOptions, prefetched
from tfrecorder.reading.collate import BatchMemory
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.element_spec import refuse_sizes
from tfrecorder.reading.growth import GrowingDataset, of_any_size
from tfrecorder.reading.order import WINDOW, Order
from tfrecorder.reading.parsing import Elements
from tfrecorder.reading.position import Position, Share, Step, steps_of
from tfrecorder.reading.record_bytes import PrefetchReader, RecordReader
from tfrecorder.reading.record_set import RecordSet, open_members, record_set
from tfrecorder.reading.trainers import numbers_anew


def _check_shuffle(value: Any) -> str | None:
    if isinstance(value, bool) or value in ("exact", "blocks"):
        return None
    return "give True, False, 'exact' or 'blocks'."


@dataclass(frozen=True, kw_only=True)
class BatchOptions(EpochOptions):
    """How records become batches: the options of `tfrecorder.batches`.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not go together.
    """

    batch_size: int = option(64, Whole(1), "Records per batch, in each process.")
    drop_remainder: bool | None = option(
        None,
        flag_or_none,
        "Leave out the last records if they do not fill a batch in every process. With "
        "`drop_remainder=False`, the processes divide them: all take equally many steps, and their "
        "last batches differ by one record at most. Default: True for TRAIN in several processes "
        "without `pad`, else False.",
    )
    pad: bool = option(
        False,
        help="Fill the last batch in every process with records from the beginning of the epoch. "
        "Each batch then has one value more, its last: a bool for each record, False if it is "
        "repeated.",
    )
    shuffle: bool | str | None = option(
        None,
        _check_shuffle,
        "'exact' or True shuffles the whole split. 'blocks', for buckets, shuffles blocks of "
        "neighbouring records of about 0.5 MiB, and the records within 128 blocks. False keeps the "
        "stored order. Default: 'exact' for TRAIN, False for other splits.",
    )
    seed: int | None = option(
        None,
        SEED,
        "Seed of the order, `augment` and `choose`. Default: drawn at random, and kept by the "
        "position; 0 in several processes, which all need the same.",
    )
    num_threads: int | None = option(
        None,
        Whole(1),
        "Threads that decode. Default: one for each core of the process but one.",
        idle_with={"num_workers": bool},
    )
    num_workers: int = option(
        0,
        Whole(0),
        "Worker processes of a `DataLoader` that decode, in place of threads. Default: none.",
    )
    choose: str | None = option(
        None,
        OneOf("random", None),
        "Of each list of texts, such as the captions of an image: random gives one, drawn anew in "
        "each epoch by `seed` and the record's number; an empty text if there is none. Default: "
        "whole lists, for `map_fn`.",
    )
    layout: str = option("NHWC", OneOf("NHWC", "NCHW"), "Axes of images and masks: NHWC or NCHW.")

    def share(
        self,
        records: int,
        split: str,
    ) -> Share:
        """What this process reads of an epoch."""
        rank, world, _ = self.rank
        drops = world > 1 and split == "TRAIN" and not self.pad
        if self.drop_remainder is not None:
            drops = self.drop_remainder
        return Share(records, int(self.batch_size), rank, world, drops, self.pad)

    def _conflicts(self) -> Iterator[Fault]:
        if self.pad and self.drop_remainder:
            yield (
                "pad",
                "`drop_remainder` leaves out what `pad` fills up; leave out one of the two.",
            )
        if self.layout == "NCHW" and self.map_fn is not None:
            yield (
                "layout",
                "`map_fn` gets images as NHWC, and can transpose them itself; leave `layout` out.",
            )
        if self.layout == "NCHW" and not self.decode:
            yield "layout", "`decode=False` gives the stored bytes; leave `layout` out."
        yield from super()._conflicts()


#: A batch, where in it some of its records begin, and its arrays to fill.
_Task = tuple[Step, int, dict[str, np.ndarray]]


@takes(BatchKeywords, BatchOptions)
def batches(
    directory: Datasets,
    split: str,
    **options: Unpack[BatchKeywords],
) -> Batches:
    """A split as an iterable of NumPy batches, without TensorFlow; each `for` is one epoch.

    The arrays are new for each batch and may be written to: `torch.from_numpy` and
    `jax.device_put` take them as they are. Threads of this process make them ahead of the loop.

    Args:
        directory: as for `tfrecorder.Records`.
        split: "TRAIN", "VALIDATION" or "TEST", in any usual spelling.
        **options: what an element holds, and how records become batches.

    Raises:
        OptionError: an option's name or value is wrong.
        DatasetError: the directory is not a whole dataset, or has no such split.

    Example:
        >>> train = tfrecorder.batches("out", "TRAIN", batch_size=64, image_size=224,
        ...                            seed=7)  # doctest: +SKIP
        >>> for images, labels in train:  # doctest: +SKIP
        ...     step(images, labels)
    """
    unfit = {"num_workers": "`tfrecorder.torch.batches` has worker processes; leave it out"}
    return Batches(directory, split, BatchOptions.of(options, unfit))


class Progress:
    """What goes through records epoch after epoch, and has a position."""

    _options: BatchOptions
    _records: RecordSet
    _position: Position  # where the loop stands, also after it was left
    _goes_on: bool = False  # at a position that was loaded
    _loop: object = None  # the one that runs
    _has_own_seed: bool  # which no other process knows

    @property
    def epoch(self) -> int:
        return self._position.epoch

    def __repr__(self) -> str:
        """The position, and which share of the records is read and why."""
        records = self._divide().records
        position = self._position
        parts = (
            repr(position.split),
            f"{records} records",
            f"fingerprint={position.fingerprint!r}",
            f"batch_size={self._options.batch_size}",
            f"seed={position.seed}",
            f"shard={self._options.rank!r}",
        )
        return f"{type(self).__name__}({', '.join(parts)})"

    def set_epoch(self, epoch: int) -> None:
        """Read this epoch in the next loop, from its beginning, to skip epochs or to repeat one.

        A loaded position that is in this epoch is kept.

        Raises:
            OptionError: the value is not a whole number from 0.
        """
        require(Whole(0), epoch=epoch)
        here = self._begin().epoch
        if epoch == here or numbers_anew(epoch, here):
            return
        self._stand_at(replace(self._position, epoch=int(epoch), next=0))

    def _divide(self) -> Share:
        """What this process reads of an epoch: asked each time, as processes connect or fork."""
        share = self._options.share(self._records.size, self._position.split)
        if share.world > 1 and self._has_own_seed:
            self._go_to(replace(self._position, seed=COMMON_SEED))
            self._has_own_seed = False
        return share

    def _begin(self) -> Position:
        """Where the next loop begins: at the start of an epoch, or where it was loaded to go on."""
        if self._goes_on or not self._position.next:
            return self._position
        return self._position.next_epoch()

    def _go_to(self, position: Position) -> None:
        self._position = position

    def _stand_at(self, position: Position) -> None:
        """Let the next loop begin here; one that still runs cannot go on."""
        self._go_to(position)
        self._goes_on = True
        self._loop = None

    def _order(self, position: Position) -> Order:
        """The order of a position's epoch."""
        return self._records.order(position.mode, position.seed, position.epoch)


class Batches(Progress):
    """What `tfrecorder.batches` returns: an iterable with a position.

    Each `for` begins at the start of an epoch, also if you left the one before it early.  To go on
    within an epoch, keep its iterator, or load a position.  Only one loop at a time: once another
    begins, or a position is loaded, the one before it raises an OptionError in place of its next
    batch.

    Attributes:
        epoch: the epoch of the next batch, from 0; after an epoch's last batch, the next epoch.
    """

    def __init__(
        self,
        directory: Datasets,
        split: str,
        options: BatchOptions,
    ) -> None:
        self._options = options
        self._growing = None
        self._shares = None
        if options.follow:
            self._growing = GrowingDataset(directory, options)
            members = [self._growing.look()]
        else:
            members, self._shares = open_members(directory, options)
        records = self._chosen(members, split)
        stored = records.stored
        spec = refuse_sizes(stored, options)
        seed = seed_of(options.seed, world=1)
        self._has_own_seed = options.seed is None
        any_size = of_any_size(stored, options) if self._growing else stored
        of_any = replace(records, stored=any_size)
        self._elements = Elements(of_any, options, seed, options.layout, options.choose)
        if spec.ragged - self._elements.chosen and options.map_fn is None:
            raise OptionError(
                f"elements of {stored.directory} hold lists of different lengths; give "
                "`max_boxes`, or `choose='random'` for texts, choose other columns with `inputs` "
                "and `targets`, or pad the lists in `map_fn`."
            )
        self._position = Position("", records.split, records.mode(options.shuffle), seed)
        self._ahead: tuple[PrefetchReader, Position, RecordReader, Share, int] | None = None
        self._read_from(records)
        if not self._growing:
            self._divide().refuse_empty(records.split)

    def _chosen(
        self,
        members: Sequence[StoredDataset],
        split: str,
    ) -> RecordSet:
        return record_set(
            members,
            split,
            self._options,
            self._shares,
            balance=self._options.balance,
            epoch_size=self._options.epoch_size,
        )

    def _read_from(self, records: RecordSet) -> None:
        """From now on, read these records: the position refers to them."""
        self._records = records
        self._reader = records.reader()
        self._memory: BatchMemory | None = None  # its batches may have other sizes
        self._position = self._position_in(records)

    def _position_in(self, records: RecordSet) -> Position:
        """The position, but in these records."""
        return replace(
            self._position,
            fingerprint=records.fingerprint,
            generation=records.generation,
        )

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """By integer; None if no column or several columns have classes."""
        return self._records.stored.class_names

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_ahead": None, "_memory": None}

    def __len__(self) -> int:
        """The number of batches in a whole epoch, wherever the position is.

        With `follow=True` the next epoch may have more.
        """
        return self._divide().steps(0)

    @property
    def remaining(self) -> int:
        """The number of batches from where the loop stands to the end of its epoch."""
        return self._divide().steps(self._position.next)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands, as JSON values: after the last batch it took, also if it was left.

        It is the same in every process, and any `batch_size` and `shard` can continue from it.
        """
        self._divide()  # which may decide the seed
        return self._position.to_json()

    def seek(
        self,
        epoch: int,
        step: int,
    ) -> None:
        """With the next `for`, begin at this step of an epoch, as `load` does with `start`.

        Args:
            epoch: from 0.
            step: from 0: how many batches of the epoch to leave out.

        Raises:
            OptionError: a value is not a whole number from 0, or the epoch has fewer steps.
        """
        require(Whole(0), epoch=epoch, step=step)
        share = self._divide()
        starts = [*share.starts(0), share.records]
        if step >= len(starts):
            raise OptionError.of(
                "step", step, f"an epoch has {len(self)} steps; give at most that."
            )
        self._stand_at(replace(self._position, epoch=int(epoch), next=starts[int(step)]))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """With the next `for`, and with that one alone, continue where a `state_dict` was taken.

        Raises:
            OptionError: it is from another dataset, split, shuffle or seed.
        """
        records = self._records_at(state)
        takes_seed = self._options.seed is None
        since = records.stored.since
        here = self._position_in(records)
        position = here.with_saved(state, records.size, since=since, takes_seed=takes_seed)
        self._read_from(records)
        self._stand_at(position)
        self._has_own_seed = False

    def _records_at(self, state: Mapping[str, Any]) -> RecordSet:
        """The records as of the generation that a position was saved in, if some came since."""
        generation = state.get("generation") if isinstance(state, Mapping) else None
        if self._growing is None or not is_whole(generation):
            return self._records
        return self._chosen([self._growing.look(generation)], self._position.split)

    def _go_to(self, position: Position) -> None:
        self._elements.seed = position.seed
        super()._go_to(position)

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, or from a loaded position to the end of its epoch."""
        if self._growing is not None:
            self._look(self._growing)
        share = self._divide()
        begin = self._begin()
        share.refuse_empty(begin.split, begin.next)
        say_divided(self._options.rank, share.records)
        # A loop that was left may live on: Keras on TensorFlow keeps its iterator.  So we do not
        # refuse a new loop, but the old one if it goes on: it would repeat what the new one took.
        self._loop = loop = object()
        for batch, position in self._epoch(begin, share):
            if self._loop is not loop:
                raise OptionError(
                    "another loop over these batches or `load_state_dict` has moved their "
                    "position, so this loop cannot go on. To read in two loops at once, call "
                    "`batches` twice."
                )
            # Only now: a loop that ends in an error before its first batch has moved nothing.
            self._go_to(position)
            self._goes_on = False
            yield batch

    def _look(self, growing: GrowingDataset) -> None:
        """From the next epoch on, read all records that were committed until now."""
        begin = self._begin()
        if begin.next:
            return
        newest = growing.look()
        if newest.commit != self._records.stored.commit:
            self._stand_at(begin)
            self._read_from(self._chosen([newest], begin.split))

    def _epoch(
        self,
        begin: Position,
        share: Share,
    ) -> Iterator[tuple[Any, Position]]:
        """The batches from a position to the end of its epoch, and the position after each."""
        start = begin.next
        steps = share.steps(start)
        for step, batch in enumerate(self._made(begin, share), 1):
            start = share.after(start)
            yield batch, begin.next_epoch() if step == steps else replace(begin, next=start)
        if not steps:
            self._go_to(begin.next_epoch())
            self._goes_on = False

    def _made(
        self,
        position: Position,
        share: Share,
    ) -> Generator[Any, None, None]:
        """The batches from a position to the end of its epoch, made ahead by threads."""
        # One core is left to the trainer, which makes the step in Python as they make the batches.
        threads = self._options.num_threads or max(1, cores_of_rank() - 1)
        size = self._options.batch_size
        part = -(-size // threads)
        parts = -(-size // part)  # per full batch: all threads work on the same one
        waiting = min(2 * threads, prefetched(self._batch_bytes(), self._options.budget))
        ahead = parts * waiting
        order = self._order(position)
        made = []
        with contextlib.ExitStack() as stack:
            # Those that wait, those being made, and those that the loop still has in hand.
            most = (waiting + 3) * len(self._elements.spec.decoded)
            memory = stack.enter_context(self._left_memory(most))
            reader: RecordReader | PrefetchReader = self._reader
            if position.mode != "stored" and not self._reader.is_all_kept():
                reader = stack.enter_context(self._prefetched(position, share, order.block))
            pool = stack.enter_context(ThreadPool(threads, "tfrecorder-batches"))

            def make(task: _Task) -> tuple[_Task, list[Any]]:
                step, begin, pixels = task
                some = step.numbers[begin : begin + part]
                return task, self._elements.rows(reader, some, step.epoch, pixels, begin)

            def tasks() -> Iterator[_Task]:
                for step in steps_of(order, share, position.next):
                    if isinstance(reader, PrefetchReader):
                        reader.fetch(len(step.numbers))
                    pixels = self._elements.arrays(len(step.numbers), memory)
                    for begin in range(0, len(step.numbers), part):
                        yield step, begin, pixels

            results = map_ahead(pool, make, tasks(), ahead + threads)
            for (step, _, pixels), elements in stack.enter_context(contextlib.closing(results)):
                made += elements
                if len(made) == len(step.numbers):
                    yield self._elements.batch(made, pixels, step.mask)
                    made = []

    @contextlib.contextmanager
    def _left_memory(self, most: int) -> Iterator[BatchMemory]:
        """Memory that an epoch leaves to the next one; two loops at once never have the same."""
        memory = self._memory
        self._memory = None
        if memory is None or memory.most != most:
            memory = BatchMemory(most)
        try:
            yield memory
        finally:
            self._memory = memory

    @contextlib.contextmanager
    def _prefetched(
        self,
        position: Position,
        share: Share,
        block: int,
    ) -> Iterator[PrefetchReader]:
        """A reader that an epoch leaves to the next one, if it is read to its end."""
        ahead, *is_for = self._ahead or (None,)
        self._ahead = None
        of_this = self._reader, share, os.getpid()
        if ahead is None or is_for != [position, *of_this]:
            if ahead is not None:
                ahead.close()
            together = block if position.mode == "blocks" else 1
            held = 2 * WINDOW * block // together
            ahead = PrefetchReader(self._reader, self._coming(position, share), together, held)
        try:
            yield ahead
        except BaseException:
            ahead.close()
            raise
        self._ahead = ahead, position.next_epoch(), *of_this

    def _coming(
        self,
        position: Position,
        share: Share,
    ) -> Iterator[int]:
        """The numbers of the records that are read from a position on, in all epochs."""
        while True:
            for step in steps_of(self._order(position), share, position.next):
                yield from step.numbers
            position = position.next_epoch()

    def _batch_bytes(self) -> float:
        slots = self._elements.arrays(1, BatchMemory(0))
        return self._options.batch_size * max(1, sum(some.nbytes for some in slots.values()))
