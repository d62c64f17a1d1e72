"""The options of `load`: one frozen value that validates itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfrecorder.core.option import Fault, Whole, above_zero, is_whole, option
from tfrecorder.options.option import Options, check_image_size, names_of, refuse_unknown
from tfrecorder.options.read import SEED, EpochOptions, check_start, path_text


def _check_shuffle(value: Any) -> str | None:
    if value == "exact" or isinstance(value, bool) or (is_whole(value) and value >= 1):
        return None
    return "give True, False, 'exact', or how many records to hold, at least 1."


def _check_cache(value: Any) -> str | None:
    path = path_text(value)
    if isinstance(path, bool) or (isinstance(path, str) and path):
        return None
    return "give True for memory, or a path for files."


@dataclass(frozen=True, kw_only=True)
class LoadOptions(EpochOptions):
    """How records become tf.data: the options of `tfrecorder.load`.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not go together.

    >>> LoadOptions(image_size=224).size
    (224, 224)
    """

    batch_size: int | None = option(None, Whole(1), "Images per batch. Default: single images.")
    drop_remainder: bool = option(
        False,
        help="Leave out the last batch of an epoch if it is not full.",
        needs=("batch_size",),
    )
    shuffle: bool | int | str | None = option(
        None,
        _check_shuffle,
        "True, False, or how many records to hold in memory to choose from. 'exact' shuffles the "
        "whole split, in the order that `tfrecorder.batches` has with the same `seed`, "
        "`batch_size` and `shard`; `augment` takes the same parts. Default: shuffle TRAIN, with a "
        "number that fits `ram_budget`, and keep the order of other splits.",
    )
    seed: int | None = option(
        None,
        SEED,
        "Seed of shuffling and of `augment`: the same batches on every run. "
        "Default: a new order on each run.",
    )
    cache: bool | str = option(
        False,
        _check_cache,
        "Keep the decoded images after the first epoch (with `augment` or `decode=False` the "
        "stored bytes): True in memory, a path in files there.",
        normal=path_text,
    )
    start: tuple[int, int] | None = option(
        None,
        check_start,
        "(epoch, step), both from 0: every iteration gives this epoch's order, without its first "
        "steps, which were trained on before an interruption. A step is a batch, or an image "
        "without `batch_size`. Needs `seed`. Begin a run to be continued with `start=(0, 0)`: "
        "without `start` the order is another, on each iteration.",
    )

    def _conflicts(self) -> Iterator[Fault]:
        if self.follow and self.cache:
            yield "follow", "a cache keeps what the first epoch read; leave out `cache`."
        if self.follow and self.is_by_number:
            yield (
                "follow",
                (
                    "load can shuffle a growing dataset only with a buffer, and chooses none of "
                    "its records; `tfrecorder.batches` shuffles it exactly, and takes `where`."
                ),
            )
        if self.follow and self.start:
            yield (
                "follow",
                (
                    "it is no longer known which generations an epoch had, so `start` cannot "
                    "continue it; the position of `tfrecorder.batches` can."
                ),
            )
        if self.start and self.seed is None:
            yield (
                "start",
                "an epoch's order comes from the seed; give the seed of the run to continue.",
            )
        if self.is_by_number and self.cache:
            yield (
                "shuffle" if self.shuffle == "exact" else "cache",
                "a cache keeps the records in one order; leave out one of the two.",
            )
        yield from super()._conflicts()

    @property
    def epoch(self) -> int | None:
        """The epoch of `start`; None without it."""
        return None if self.start is None else int(self.start[0])

    @property
    def step(self) -> int:
        """The step of `start`; 0 without it."""
        return 0 if self.start is None else int(self.start[1])

    @property
    def is_by_number(self) -> bool:
        """True if records are read by number, in the order of `batches`."""
        return self.shuffle == "exact" or self.chooses or self.local_cache is not None

    def shuffles(self, split: str) -> bool:
        """True if the records of a split should be shuffled."""
        return split == "TRAIN" if self.shuffle is None else bool(self.shuffle)

    def is_deterministic(self, split: str) -> bool:
        """True if the order of a split must be the same on every run."""
        return self.seed is not None or not self.shuffles(split)


def _check_size_or_none(value: Any) -> str | None:
    return None if value is None else check_image_size(value)


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions(Options):
    """What `tfrecorder.benchmark` has beside the options of `load`, or with other defaults.

    Raises:
        OptionError: a value has the wrong type or is out of range.
    """

    batch_size: int = option(64, Whole(1), "Images per batch.")
    image_size: int | tuple[int, int] | None = option(
        224,
        _check_size_or_none,
        "Height and width in pixels, or one number for a square; none for the stored size.",
        metavar="N|HxW|none",
    )
    seconds: float = option(
        10.0,
        above_zero,
        "Seconds to measure, above 0, after ten batches or two seconds to warm up.",
        metavar="SECONDS",
    )
    step_ms: float | None = option(
        None,
        above_zero,
        "Simulate a training step of this many milliseconds, above 0. It shows what share of the "
        "time an accelerator would wait. Default: take batches as fast as they come.",
        metavar="MS",
    )


def benchmark_options(given: Mapping[str, Any]) -> tuple[BenchmarkOptions, LoadOptions]:
    """The options of a benchmark: its own, and those of `load`.

    >>> benchmark_options({"shuffle": False})[1].size
    (224, 224)
    """
    refuse_unknown(given, [*names_of(BenchmarkOptions), *names_of(LoadOptions)])
    others = dict(given)
    if given.get("decode") is False:
        others.setdefault("image_size", None)
    own = BenchmarkOptions.out_of(others)
    return own, LoadOptions.of(
        {"batch_size": own.batch_size, "image_size": own.image_size, **others}
    )


def caches_pixels(options: LoadOptions) -> bool:
    """True if the cache holds decoded images: only if they are the same in each epoch."""
    return bool(options.cache) and options.decode and not options.augment
