"""The options that all readers share: `load`, `Records` and `batches`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfrecorder.core.checks import OneOf, Size, Whole, is_whole, name_of_dtype, parse_size, text
from tfrecorder.core.limits import memory_limit
from tfrecorder.core.option import Fault, option
from tfrecorder.images.limits import RESIZES
from tfrecorder.options.option import Options

DTYPES = ("uint8", "float16", "bfloat16", "float32")

#: In place of a list of inputs: a dict of every stored feature is the element.
ALL = "all"


def _check_image_size(value: Any) -> str | None:
    sides = (value,) if is_whole(value) else value
    if not isinstance(sides, (tuple, list)) or len(sides) > 2 or not all(map(is_whole, sides)):
        return "give height and width in pixels, such as `image_size=(224, 224)`."
    return None if min(sides) >= 1 and len(sides) + is_whole(value) == 2 else "give two sides >= 1."


def _check_value_range(value: Any) -> str | None:
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        return "give (low, high), such as `value_range=(-1, 1)`."
    in_order = -math.inf < low < high < math.inf
    return None if in_order else "low must be less than high, both finite."


def _check_inputs(value: Any) -> str | None:
    if value == ALL:
        return None
    return _check_names(value) and f"{_check_names(value)} Or give 'all' for every one."


def _check_names(value: Any) -> str | None:
    if isinstance(value, str) or not isinstance(value, Sequence) or not len(value):
        return "give a list of columns, such as ['image_uri', 'age']."
    return None if all(isinstance(name, str) for name in value) else "give names of columns."


def _check_dtype(value: Any) -> str | None:
    return OneOf(*DTYPES)(name_of_dtype(value))


def _check_function(value: Any) -> str | None:
    return None if callable(value) else "give a function."


def _check_shard(value: Any) -> str | None:
    """What is wrong with (index, count), or None."""
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not all(map(is_whole, value)):
        return "give (index, count), such as `shard=(0, 4)` for the first of four hosts."
    index, count = value
    return None if 0 <= index < count else "index must be from 0 to count - 1."


class NamedKeys(NamedTuple):
    """The keys of the image and the label in records of other tools; None if not named."""

    image: str | None = None
    label: str | None = None


NO_KEYS = NamedKeys()


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Options):
    """What an element holds; `tfrecorder.loading.options.LoadOptions` explains each.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not fit together.
    """

    image_size: int | tuple[int, int] | None = option(None, _check_image_size)
    resize: str = option("stretch", OneOf(*RESIZES), needs=("image_size",))
    antialias: bool = option(True, needs=("image_size",))
    dtype: str = option("uint8", _check_dtype, normal=name_of_dtype)
    value_range: tuple[float, float] | None = option(None, _check_value_range)
    decode: bool = option(True)
    seed: int | None = option(None, Whole(0, 2**32 - 1))
    map_fn: Callable[..., Any] | None = option(None, _check_function)
    augment: bool = option(False)
    inputs: Sequence[str] | str | None = option(None, _check_inputs)
    targets: Sequence[str] | None = option(None, _check_names)
    max_boxes: int | None = option(None, Whole(1))
    image: str | None = option(None, text)
    label: str | None = option(None, text)
    at: int | None = option(None, Whole(0))

    def _conflicts(self) -> Iterator[Fault]:
        if self.is_whole and self.targets:
            yield "targets", "`inputs='all'` gives every column; leave `targets` out."
        if not self.decode:
            pixels = [name for name in ("image_size", "augment") if getattr(self, name)]
            if pixels or self.dtype != "uint8":
                name = (pixels or ["dtype"])[0]
                yield None, f"`decode=False` gives the stored bytes; leave out `{name}`."
        if self.augment and self.image_size is None:
            yield "augment", "random parts differ in size; give a size, such as `image_size=224`."
        if self.resize == "fit" and self.image_size is not None and self.augment:
            yield "resize", "random parts all get `image_size`; leave it out, or `augment`."
        if self.dtype == "uint8" and self.value_range not in (None, (0, 255)):
            words = "uint8 pixels are 0 to 255; give `dtype='float32'` for another range."
            yield "value_range", words

    @property
    def is_whole(self) -> bool:
        """True if an element is a dict of every stored feature, and has no halves."""
        return isinstance(self.inputs, str)

    @property
    def keys(self) -> NamedKeys:
        """The keys that the user names."""
        return NamedKeys(self.image, self.label)

    @property
    def size(self) -> tuple[int, int] | None:
        """`image_size` as (height, width)."""
        if self.image_size is None:
            return None
        sides = self.image_size if isinstance(self.image_size, Sequence) else (self.image_size,) * 2
        return int(sides[0]), int(sides[1])

    @property
    def low_high(self) -> tuple[float, float]:
        """`value_range`, or the default of the `dtype`."""
        if self.value_range is None:
            return (0.0, 255.0) if self.dtype == "uint8" else (0.0, 1.0)
        return float(self.value_range[0]), float(self.value_range[1])


@dataclass(frozen=True, kw_only=True)
class EpochOptions(ReadOptions):
    """What `load` and `batches` share beyond `ReadOptions`: what an epoch reads, and its memory.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not fit together.
    """

    batch_size: int | None = option(None, Whole(1))
    follow: bool = option(False)
    shard: tuple[int, int] | None = option(None, _check_shard)
    ram_budget: int | str | None = option(None, Size((2**20, "1 MiB"), "4GiB"))

    @property
    def budget(self) -> int:
        """`ram_budget` in bytes; by default a quarter of what the process may use."""
        return memory_limit() // 4 if self.ram_budget is None else parse_size(self.ram_budget)

    def _conflicts(self) -> Iterator[Fault]:
        if self.follow and self.at is not None:
            yield "follow", f"`at={self.at}` reads no newer generation; leave out one of the two."
        if self.follow and self.shard is not None and self.shard[1] > 1:
            words = (
                "each host would look for new generations at a different moment, and so divide "
                "different records. With `shard`, give `at` and a new number for each epoch."
            )
            yield "follow", words
        yield from super()._conflicts()
        fits = self.resize == "fit" and self.image_size is not None
        if fits and self.batch_size and self.decode and self.map_fn is None:
            words = (
                "images that differ in size cannot share a batch; give 'stretch', 'crop' or 'pad', "
                "or leave out `batch_size`."
            )
            yield "resize", words
