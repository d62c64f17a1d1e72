"""For PyTorch: batches as tensors, and batches of numbers for a `DataLoader` of `Records`.

Only this file imports torch, and only when tensors are asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrecorder.core.checks import Whole
from tfrecorder.errors import OptionError, missing_explained
from tfrecorder.options.keywords import BatchKeywords
from tfrecorder.options.option import require
from tfrecorder.options.signature import takes
from tfrecorder.reading import batches as of_arrays
from tfrecorder.reading.batch_options import BatchOptions
from tfrecorder.reading.order import Order
from tfrecorder.reading.position import Position
from tfrecorder.reading.records import NumberInEpoch, Records

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes(BatchKeywords, BatchOptions)
def batches(
    directory: str | os.PathLike[str], split: str, **options: Unpack[BatchKeywords]
) -> TensorBatches:
    """`tfrecorder.batches` with torch tensors in place of NumPy arrays.

    The tensors share the arrays' memory.  With CUDA they are in pinned memory, so that
    `images.to("cuda", non_blocking=True)` copies while the GPU works.  Texts and bytes are lists.

    Args:
        directory: as for `tfrecorder.batches`.
        split: as for `tfrecorder.batches`.
        **options: those of `tfrecorder.batches`, with the same defaults; most PyTorch models want
            `layout="NCHW"`.

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
    _torch()
    return TensorBatches(directory, split, chosen)


class TensorBatches(of_arrays.Batches):
    """What `batches` returns: the batches of `tfrecorder.batches`, as tensors."""

    def __iter__(self) -> Iterator[Any]:
        """The batches from the position to the end of its epoch."""
        torch = _torch()
        pinned = torch.cuda.is_available()
        for batch in super().__iter__():
            yield _tensors(torch, batch, pinned)


class BatchSampler:
    """Which records make each batch of a `DataLoader`, with a position.

    Each `for` over the loader is one epoch, and the next `for` is the next epoch.  The order is
    that of `tfrecorder.batches` with the same options.

    In torchdata's `StatefulDataLoader`, whose `state_dict` includes this sampler's, training
    continues exactly after the last batch that its loop took.  A plain `DataLoader` does not say
    what its loop took, so the position is this sampler's: with workers it is ahead by the batches
    that they hold, at most `num_workers * prefetch_factor`.

    Args:
        records: those of the loader, or those that the loader's dataset is made from.
        batch_size: records per batch; with `shard`, on each host.
        shuffle: as for `tfrecorder.batches`: "exact", the default of TRAIN, "blocks" or False.
        seed: for the order, 0 to 2**32 - 1; None takes that of the records.
        shard: (rank, world): this host's number and the number of hosts.  All need the same seed.
        drop_remainder: as for `tfrecorder.batches`; but a `DataLoader` cannot make an empty batch,
            so with False the last step is left out too if it has fewer records than hosts.

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
    ) -> None:
        if not isinstance(records, Records):
            raise OptionError.of("records", records, "give the tfrecorder.Records to read.")
        options = self._options = BatchOptions(
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            shard=shard,
            drop_remainder=drop_remainder,
        )
        self._block, self._since = records.block, records.since
        self._share = options.share(len(records))
        chosen = records.seed if seed is None else int(seed)
        order = (records.split, options.mode(records.split), chosen)
        # The position of the next loop, and of what was drawn last.  They can differ because a
        # loader draws ahead, starts again where its loop stopped, and asks for iterators that it
        # does not use.
        self._begin = Position(records.fingerprint, *order, generation=records.generation)
        self._drawn = self._begin
        self._is_loaded = False

    @property
    def epoch(self) -> int:
        return self._begin.epoch

    def set_epoch(self, epoch: int) -> None:
        """Read this epoch in the next loop, to skip epochs or to repeat one.

        A loaded state that is in this epoch is kept.

        Raises:
            OptionError: the value is not a whole number from 0.
        """
        require(Whole(0), epoch=epoch)
        if epoch != self._begin.epoch:
            self._begin = self._drawn = replace(self._begin, epoch=int(epoch), next=0)

    def __len__(self) -> int:
        """The number of batches in a whole epoch, wherever the position is."""
        return self._steps(0)

    @property
    def remaining(self) -> int:
        """The number of batches in the next loop, up to the end of its epoch."""
        return self._steps(self._begin.next)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was drawn, as JSON values.

        It is the same on every host, and any `batch_size` and `shard` continue from it, here and
        in `tfrecorder.batches`.
        """
        return self._drawn.to_json()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a `state_dict` was taken, with the next loop.

        Raises:
            OptionError: it belongs to another dataset, split, shuffle or seed.
        """
        takes_seed, records = self._options.seed is None, self._share.records
        found = self._begin.with_saved(state, records, since=self._since, takes_seed=takes_seed)
        self._begin = self._drawn = found
        self._is_loaded = True

    def __iter__(self) -> Iterator[list[int]]:
        """The numbers of each batch, from the position to the end of its epoch."""
        self._share = self._options.share(self._share.records)  # as `Batches`
        # If nothing is left of a loaded epoch, torchdata's loader discards the empty rest and asks
        # again for the next epoch.  With workers it has drawn that rest by then, otherwise not.
        if not self._is_loaded and not self.remaining:
            self._begin = self._begin.next_epoch()
        self._is_loaded = False
        self._drawn = self._begin
        return self._draw(self._begin)

    def _draw(self, position: Position) -> Iterator[list[int]]:
        order = Order(
            self._share.records, position.mode, position.seed, position.epoch, self._block
        )
        start, steps = position.next, self._steps(position.next)
        for step in range(1, steps + 1):
            numbers = order.numbers(np.array(self._share.places(start))).tolist()
            # What is dropped after the last step stays dropped, whatever steps come later.
            start = self._share.after(start) if step < steps else self._share.records
            self._drawn = replace(position, next=start)
            if step == steps:  # Lightning does not ask for more than the last batch
                self._begin = position.next_epoch()
            yield [NumberInEpoch(one, position.epoch) for one in numbers]
        if not steps:
            self._begin = position.next_epoch()

    def _steps(self, start: int) -> int:
        """The steps from a place to the end of the epoch in which every host has a record."""
        share = self._share
        last = (share.records - start) % (share.batch_size * share.world)
        some_have_none = not share.drop_remainder and 0 < last < share.world
        return share.steps(start) - some_have_none


def _torch() -> Any:
    with missing_explained():
        import torch
    return torch


def _tensors(torch: Any, values: Any, pinned: bool) -> Any:
    """A batch of arrays as a batch of tensors, with the same structure."""
    if isinstance(values, Mapping):
        return {key: _tensors(torch, value, pinned) for key, value in values.items()}
    if isinstance(values, tuple):
        return tuple(_tensors(torch, value, pinned) for value in values)
    if values.dtype == object:  # texts and bytes
        return values.tolist()
    if values.dtype.name == "bfloat16":  # from a package that extends NumPy
        found = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    else:
        found = torch.from_numpy(values)
    return found.pin_memory() if pinned else found
