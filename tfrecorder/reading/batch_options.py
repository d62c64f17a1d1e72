"""The options of `batches`: one frozen value that validates itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfrecorder.core.checks import OneOf, Whole, flag_or_none
from tfrecorder.core.option import Fault, option
from tfrecorder.options.read import SEED, EpochOptions
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

    batch_size: int = option(64, Whole(1), "Records per batch, in each process.")
    drop_remainder: bool | None = option(
        None,
        flag_or_none,
        "Leave out the last records if they do not fill a batch in every process. With "
        "`drop_remainder=False`, the processes divide them: their batches then differ by one "
        "record at most, and some may be empty. Default: True for TRAIN in several processes, "
        "else False.",
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

    def share(self, records: int, split: str) -> Share:
        """What this process reads of an epoch."""
        rank, world, _ = self.rank
        drops = world > 1 and split == "TRAIN"
        if self.drop_remainder is not None:
            drops = self.drop_remainder
        return Share(records, int(self.batch_size), rank, world, drops)

    def _conflicts(self) -> Iterator[Fault]:
        if self.layout == "NCHW" and self.map_fn is not None:
            yield (
                "layout",
                "`map_fn` gets images as NHWC, and can transpose them itself; leave `layout` out.",
            )
        if self.layout == "NCHW" and not self.decode:
            yield "layout", "`decode=False` gives the stored bytes; leave `layout` out."
        yield from super()._conflicts()
