"""For PyTorch: batches as tensors, and batches of numbers for a `DataLoader` of `Records`.

Only this file imports torch, and only when tensors are asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.errors import OptionError, missing_explained
from tfrecorder.options.keywords import Datasets, TensorKeywords, Unpack
from tfrecorder.options.option import takes
from tfrecorder.options.ranks import say_divided
from tfrecorder.options.read import prefetched
from tfrecorder.reading import batches as of_arrays
from tfrecorder.reading.batches import BatchOptions
from tfrecorder.reading.collate import BatchMemory, each
from tfrecorder.reading.position import Position, Share, steps_of
from tfrecorder.reading.records import NumberInEpoch, Records
from tfrecorder.reading.shared_memory import Slots
from tfrecorder.reading.trainers import accelerate_told, refuse_trainer
from tfrecorder.reading.worker_batches import WorkerBatches, end_with_parent, start_method


@takes(TensorKeywords, BatchOptions)
def batches(
    directory: Datasets,
    split: str,
    **options: Unpack[TensorKeywords],
) -> TensorBatches:
    """`tfrecorder.batches` with torch tensors in place of NumPy arrays.

    The tensors share the arrays' memory.  With CUDA a thread copies them into pinned memory, so
    that `images.to("cuda", non_blocking=True)` copies while the GPU works.  Texts and bytes are
    lists.  Workers take the memory of a batch again once nobody here has it: give a process that
    you fork a copy.  A trainer takes the batches as they are, or in
    `DataLoader(batches, batch_size=None)`.

    Args:
        directory: as for `tfrecorder.batches`.
        split: as for `tfrecorder.batches`.
        **options: those of `tfrecorder.batches`, with the same defaults, and `num_workers`; most
            PyTorch models want `layout="NCHW"`.

    Raises:
        OptionError: an option's name or value is wrong.
        DatasetError: the directory is not a whole dataset, or has no such split.
        PackageError: torch is not installed.

    Example:
        >>> train = tfrecorder.torch.batches("out", "TRAIN", batch_size=64, image_size=224,
        ...                                  layout="NCHW", seed=7)  # doctest: +SKIP
        >>> for images, labels in train:  # doctest: +SKIP
        ...     step(images, labels)
    """
    chosen = BatchOptions.of(options)
    _torch().utils.data.IterableDataset.register(TensorBatches)  # so that a DataLoader takes them
    return TensorBatches(directory, split, chosen)


class TensorBatches(of_arrays.Batches):
    """What `batches` returns: the batches of `tfrecorder.batches`, as tensors."""

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, or from a loaded position to the end of its epoch."""
        refuse_trainer(self, self._options.rank)
        with accelerate_told() as epoch:
            epoch.remainder = self._divide().padded
            for batch in super().__iter__():
                epoch.end_of_dataloader = not self._position.next
                yield batch

    def _made(
        self,
        position: Position,
        share: Share,
    ) -> Generator[Any, None, None]:
        torch = _torch()
        of_workers = self._options.num_workers > 0
        make = self._made_by_workers if of_workers else super()._made
        with contextlib.closing(make(position, share)) as made:
            tensors = map(partial(each, _tensor), made)  # which keeps no batch
            if not torch.cuda.is_available():
                yield from tensors
                return
            device = torch.cuda.current_device()

            def pin(batch: Any) -> Any:
                torch.cuda.set_device(device)  # else this thread would occupy the first one too
                return each(_pinned, batch)

            with ThreadPool(1, "tfrecorder-pinning") as pool:
                yield from map_ahead(pool, pin, tensors, ahead=2)

    def _made_by_workers(
        self,
        position: Position,
        share: Share,
    ) -> Generator[Any, None, None]:
        """The batches from a position to the end of its epoch, made ahead by a `DataLoader`."""
        torch = _torch()
        options = self._options
        workers = options.num_workers
        is_read_once = self._reader.is_local or options.local_cache is not None
        if position.mode == "blocks" and not is_read_once:
            raise OptionError.of(
                "num_workers",
                workers,
                "each worker would read every block of a bucket; give another `shuffle`.",
            )
        waiting = prefetched(self._batch_bytes(), options.budget)
        ahead = max(1, min(2, waiting // workers))
        images = self._elements.arrays(options.batch_size, BatchMemory(0))
        directories = [member.directory for member in self._records.members]
        method = start_method(directories, options.map_fn)
        # Besides those under way: what the loop has in hand, and what comes next.
        slots = Slots(workers * ahead + 3 if method == "fork" else 0, images.values())
        memory = BatchMemory(2 * len(images))
        steps = steps_of(self._order(position), share, position.next)
        loader = torch.utils.data.DataLoader(
            WorkerBatches(self._elements, self._reader, _tensor, memory, slots),
            sampler=((step, slots.take()) for step in steps),
            batch_size=None,  # each of its items is a batch
            num_workers=workers,
            prefetch_factor=ahead,
            worker_init_fn=end_with_parent,
            multiprocessing_context=method,
            # By default it would draw from the random numbers of the training.
            generator=torch.Generator().manual_seed(position.seed + position.epoch),
        )
        for answer in loader:
            yield slots.received(answer.slot, answer.batch_or_error())


class BatchSampler(of_arrays.Progress):
    """Which records make each batch of a `DataLoader`, with a position.

    Each `for` over the loader is one epoch, and the next `for` is the next epoch.  The order is
    that of `tfrecorder.batches` with the same options.

    In torchdata's `StatefulDataLoader`, whose `state_dict` includes this sampler's, training
    continues exactly after the last batch that its loop took.  A plain `DataLoader` does not say
    what its loop took, so the position is this sampler's: with workers it is ahead by the batches
    that they hold, at most `num_workers * prefetch_factor`.

    Args:
        records: those of the loader, or those that the loader's dataset is made from.
        batch_size: records per batch, in each process.
        shuffle: as for `tfrecorder.batches`: "exact", the default of TRAIN, "blocks" or False.
        seed: for the order, 0 to 2**32 - 1; None takes that of the records, or 0 in several
            processes if the records were given none.
        shard: as for `tfrecorder.batches`.
        drop_remainder: as for `tfrecorder.batches`.
        balance: as for `tfrecorder.batches`.
        epoch_size: as for `tfrecorder.batches`.

    Attributes:
        epoch: the epoch that the next loop reads, from 0.

    Raises:
        OptionError: an option's value is wrong.

    Example:
        >>> records = tfrecorder.Records("out", "TRAIN", image_size=224)  # doctest: +SKIP
        >>> sampler = tfrecorder.torch.BatchSampler(records, 64, seed=7)  # doctest: +SKIP
        >>> loader = DataLoader(records, batch_sampler=sampler, num_workers=2)  # doctest: +SKIP
    """

    def __init__(
        self,
        records: Records,
        batch_size: int = 64,
        *,
        shuffle: bool | str | None = None,
        seed: int | None = None,
        shard: tuple[int, int] | None = None,
        drop_remainder: bool | None = None,
        balance: Any = None,
        epoch_size: int | None = None,
    ) -> None:
        if not isinstance(records, Records):
            raise OptionError.of("records", records, "give the tfrecorder.Records to read.")
        options = self._options = BatchOptions(
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            shard=shard,
            drop_remainder=drop_remainder,
            balance=balance,
            epoch_size=epoch_size,
        )
        self._records = sampled = records.record_set.sampled(balance, epoch_size)
        self._has_own_seed = seed is None and records.has_own_seed
        chosen = records.seed if seed is None else int(seed)
        order = (sampled.split, sampled.mode(options.shuffle), chosen)
        self._position = Position(sampled.fingerprint, *order, generation=sampled.generation)
        self._divide().refuse_empty(sampled.split)

    @property
    def batch_size(self) -> int:
        """That of a sampler that reads everything, for a trainer that will divide the batches.

        Raises:
            OptionError: this sampler divides them already.
        """
        if (rank := self._options.rank).world > 1:
            raise OptionError.of(
                "batch_size",
                self._options.batch_size,
                f"this sampler divides its records already, by {rank}, and a trainer that "
                "asks for it would divide them again. Keep it from that (Lightning: "
                "`Trainer(use_distributed_sampler=False)`; accelerate: leave the loader out of "
                "`prepare`), or give the trainer `tfrecorder.torch.batches`.",
            )
        return self._options.batch_size

    @property
    def epoch(self) -> int:
        return self._begin().epoch

    def __len__(self) -> int:
        """The number of batches in a whole epoch, wherever the position is."""
        return self._divide().steps(0)

    @property
    def remaining(self) -> int:
        """The number of batches in the next loop, up to the end of its epoch."""
        return self._divide().steps(self._begin().next)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was drawn, as JSON values.

        It is the same in every process, and any `batch_size` and `shard` continue from it, here and
        in `tfrecorder.batches`.
        """
        self._divide()  # which may decide the seed
        return self._position.to_json()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a `state_dict` was taken, with the next loop alone.

        Raises:
            OptionError: it belongs to another dataset, split, shuffle or seed.
        """
        takes_seed = self._options.seed is None
        since = self._records.stored.since
        size = self._records.size
        here = self._position
        self._stand_at(here.with_saved(state, size, since=since, takes_seed=takes_seed))
        self._has_own_seed = False

    def __iter__(self) -> Iterator[list[int]]:
        """The numbers of each batch of the next epoch, or from a loaded position to its end."""
        share = self._divide()
        begin = self._begin()
        share.refuse_empty(begin.split, begin.next)
        say_divided(self._options.rank, share.records)
        if not share.steps(begin.next):
            # torchdata's loader discards the iterator of what is left of a loaded epoch if that is
            # nothing, and asks for the next one.
            self._goes_on = False
        return self._draw(begin, share)

    def _draw(
        self,
        position: Position,
        share: Share,
    ) -> Iterator[list[int]]:
        # Only now, as loaders ask for iterators that they do not use.
        self._goes_on = False
        steps = share.steps(position.next)
        drawn = steps_of(self._order(position), share, position.next)
        for number, step in enumerate(drawn, 1):
            # What is dropped after the last step stays dropped, whatever steps come later.
            after = share.after(step.start) if number < steps else share.records
            self._position = replace(position, next=after)
            yield [NumberInEpoch(record, step.epoch) for record in step.numbers]


def _torch() -> Any:
    with missing_explained():
        import torch
    return torch


def _pinned(values: Any) -> Any:
    """A tensor in pinned memory; lists and None as they are."""
    return values.pin_memory() if hasattr(values, "pin_memory") else values


def _tensor(values: Any) -> Any:
    """An array of a batch as a tensor; texts and bytes as a list; a tensor as it is."""
    torch = _torch()
    if isinstance(values, torch.Tensor):
        return values
    if values.dtype == object:
        return values.tolist()
    if values.dtype.name == "bfloat16":  # from a package that extends NumPy
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)
