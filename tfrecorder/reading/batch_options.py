"""The options of `batches`: one frozen value that validates itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfrecorder.core.checks import OneOf, Whole
from tfrecorder.core.option import Fault, option
from tfrecorder.errors import OptionError
from tfrecorder.options.read import EpochOptions
from tfrecorder.reading.position import Share


def _check_shuffle(value: Any) -> str | None:
    if isinstance(value, bool) or value in ("exact", "blocks"):
        return None
    return "give True, False, 'exact' or 'blocks'."


@dataclass(frozen=True, kw_only=True)
class BatchOptions(EpochOptions):
    """How records become batches; `tfrecorder.batches` explains each.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not go together.
    """

    batch_size: int = option(64, Whole(1))
    drop_remainder: bool | None = option(None, OneOf(None, True, False))
    shuffle: bool | str | None = option(None, _check_shuffle)
    num_threads: int | None = option(None, Whole(1))
    layout: str = option("NHWC", OneOf("NHWC", "NCHW"))

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
        yield from super()._conflicts()
