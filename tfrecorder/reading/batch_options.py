"""The options of `batches`: one frozen value that validates itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfrecorder.core.checks import OneOf, Whole, flag_or_none
from tfrecorder.core.option import Fault, option
from tfrecorder.errors import OptionError
from tfrecorder.options.read import SEED, EpochOptions, check_shard
from tfrecorder.reading.position import Share


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

    batch_size: int = option(64, Whole(1), "Records per batch; with `shard`, on each host.")
    drop_remainder: bool | None = option(
        None,
        flag_or_none,
        "Leave out the last records if they do not fill a batch on every host. With "
        "`drop_remainder=False`, hosts divide them: their batches then differ by one record at "
        "most, and some may be empty. Default: True with `shard`, else False.",
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
        "Seed of the order and of `augment`. Default: drawn at random; the position keeps it.",
    )
    shard: tuple[int, int] | None = option(
        None,
        check_shard,
        "(rank, world): this host's rank and the number of hosts, which all need the same `seed`. "
        "Default: everything, in a process that is alone.",
    )
    num_threads: int | None = option(
        None, Whole(1), "Threads that decode. Default: one for each core."
    )
    layout: str = option("NHWC", OneOf("NHWC", "NCHW"), "Axes of images and masks: NHWC or NCHW.")

    def mode(self, split: str) -> str:
        """The mode of a split's `Order`."""
        if self.shuffle is None:
            return "exact" if split == "TRAIN" else "stored"
        return self.shuffle if isinstance(self.shuffle, str) else ("stored", "exact")[self.shuffle]

    @property
    def drops(self) -> bool:
        """True if the last places are left out when they do not fill a step of all hosts."""
        return self.shard is not None if self.drop_remainder is None else self.drop_remainder

    def share(self, records: int) -> Share:
        """What this host reads of an epoch; `shard=(0, 1)` asks for all of it.

        torch states how many processes there are once they are connected.  Before that, and without
        torch, we take what torchrun and Lightning note in the environment; Lightning notes no rank.

        Raises:
            OptionError: there are several processes, and no `shard`: each would read everything.
        """
        rank, world = os.environ.get("RANK", "rank"), os.environ.get("WORLD_SIZE", "1")
        torch = sys.modules.get("torch.distributed")  # only what the program itself has loaded
        if torch and torch.is_available() and torch.is_initialized() and torch.get_world_size() > 1:
            rank, world = torch.get_rank(), torch.get_world_size()
        if self.shard is None and str(world).isdecimal() and int(world) > 1:
            words = (
                f"this is process {rank} of {world}, counted from 0, and each would read all "
                f"records. Give `shard=({rank}, {world})` here, so that each reads its part; or "
                "`shard=(0, 1)` to read all records in each."
            )
            raise OptionError.of("shard", None, words)
        host, hosts = map(int, self.shard or (0, 1))
        return Share(records, int(self.batch_size), host, hosts, self.drops)

    def _conflicts(self) -> Iterator[Fault]:
        may_shuffle = self.shuffle is not False or self.augment
        if self.shard is not None and self.shard[1] > 1 and self.seed is None and may_shuffle:
            yield "shard", "all hosts need one order; give the same `seed` to each."
        if self.layout == "NCHW" and self.map_fn is not None:
            words = "gets images as NHWC, and can transpose them itself; leave `layout` out."
            yield "layout", f"`map_fn` {words}"
        if self.layout == "NCHW" and not self.decode:
            yield "layout", "`decode=False` gives the stored bytes; leave `layout` out."
        yield from super()._conflicts()
