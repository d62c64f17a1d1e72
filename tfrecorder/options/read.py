"""The options that all readers share: `load`, `Records` and `batches`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from tfrecorder.core.limits import memory_limit
from tfrecorder.errors import OptionError
from tfrecorder.images.limits import RESIZES
from tfrecorder.options.checks import (
    flag,
    is_whole,
    one_of,
    parse_size,
    refuse_idle,
    refuse_unknown,
    whole,
)

DTYPES = ("uint8", "float16", "bfloat16", "float32")

Options = TypeVar("Options", bound="ReadOptions")

#: What is wrong with the value of an option, or None.
Check = Callable[[Any], str | None]


def _check_image_size(value: Any) -> str | None:
    sides = (value,) if is_whole(value) else value
    if value is None:
        return None
    if not isinstance(sides, (tuple, list)) or len(sides) > 2 or not all(map(is_whole, sides)):
        return "give (height, width) in pixels, such as (224, 224)."
    return None if min(sides) >= 1 and len(sides) + is_whole(value) == 2 else "give two sides >= 1."


def _check_value_range(value: Any) -> str | None:
    if value is None:
        return None
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        return "give (low, high), such as (-1, 1)."
    in_order = -math.inf < low < high < math.inf
    return None if in_order else "low must be less than high, both finite, such as (-1, 1)."


def _check_names(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not len(value):
        return "give a list of columns, such as ['image_uri', 'age']."
    return None if all(isinstance(name, str) for name in value) else "give names of columns."


def _check_ram_budget(value: Any) -> str | None:
    if value is None:
        return None
    try:
        size = parse_size(value)
    except (TypeError, ValueError):
        return "give bytes, or a number with a unit, such as '4GiB'."
    return None if size >= 2**20 else "give at least 1 MiB."


def _check_shard(value: Any) -> str | None:
    """What is wrong with (index, count), or None."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not all(map(is_whole, value)):
        return "give (index, count), such as (0, 4) for the first of four hosts."
    index, count = value
    return None if 0 <= index < count else "index must be from 0 to count - 1."


class NamedKeys(NamedTuple):
    """The keys of the image and the label in records of other tools; None if not named."""

    image: str | None = None
    label: str | None = None


NO_KEYS = NamedKeys()

#: The number of a generation; None means the newest.
AT = whole(0, none=True)

CHECKS: dict[str, Check] = {
    "at": AT,
    "image_size": _check_image_size,
    "resize": one_of(*RESIZES),
    "antialias": flag,
    "dtype": one_of(*DTYPES),
    "value_range": _check_value_range,
    "decode": flag,
    "seed": whole(0, 2**32 - 1, none=True),
    "map_fn": lambda value: None if value is None or callable(value) else "give a function.",
    "augment": flag,
    "features": flag,
    "inputs": _check_names,
    "targets": _check_names,
    "max_boxes": whole(1, none=True),
}


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What an element holds; `tfrecorder.LoadOptions` explains each.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not fit together.
    """

    image_size: int | tuple[int, int] | None = None
    resize: str = field(default="stretch", metadata={"needs": ("image_size",)})
    antialias: bool = field(default=True, metadata={"needs": ("image_size",)})
    dtype: str = "uint8"
    value_range: tuple[float, float] | None = None
    decode: bool = True
    seed: int | None = None
    map_fn: Callable[..., Any] | None = None
    augment: bool = False
    features: bool = False
    inputs: Sequence[str] | None = None
    targets: Sequence[str] | None = None
    max_boxes: int | None = None
    image: str | None = None
    label: str | None = None
    at: int | None = None

    def __post_init__(self) -> None:
        if hasattr(self.dtype, "name"):  # tf.float32, numpy.dtype("float32")
            object.__setattr__(self, "dtype", self.dtype.name)  # as a frozen dataclass must
        for name, check in self._checks().items():
            value = getattr(self, name)
            if fault := check(value):
                raise OptionError(f"{name}={value!r}: {fault}")
        if fault := self._conflict():
            raise OptionError(fault)
        refuse_idle(self, self._checks())

    def _checks(self) -> dict[str, Check]:
        return CHECKS

    def _conflict(self) -> str | None:
        """What is wrong with two options together, or None."""
        if self.features and (self.inputs or self.targets):
            given = "inputs" if self.inputs else "targets"
            return (
                f"{given}={list(getattr(self, given))!r}: features=True gives every column; leave "
                f"{given} out."
            )
        if not self.decode:
            pixels = [name for name in ("image_size", "augment") if getattr(self, name)]
            if pixels or self.dtype != "uint8":
                return f"decode=False gives the stored bytes; leave out {(pixels or ['dtype'])[0]}."
        if self.augment and self.image_size is None:
            return "augment=True: random parts differ in size; give image_size, such as 224."
        if self.resize == "fit" and self.image_size is not None and self.augment:
            return "resize='fit': random parts all get image_size; leave it out, or augment."
        if self.dtype == "uint8" and self.value_range not in (None, (0, 255)):
            return (
                f"value_range={self.value_range!r}: uint8 pixels are 0 to 255; give "
                "dtype='float32' for another range."
            )
        return None

    @classmethod
    def of(cls: type[Options], options: Mapping[str, Any]) -> Options:
        """Options by name; a misspelt name is an OptionError that suggests the nearest."""
        refuse_unknown(options, cls)
        return cls(**options)

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

    follow: bool = False
    shard: tuple[int, int] | None = None
    ram_budget: int | str | None = None

    @property
    def budget(self) -> int:
        """`ram_budget` in bytes; by default a quarter of what the process may use."""
        return memory_limit() // 4 if self.ram_budget is None else parse_size(self.ram_budget)

    def _checks(self) -> dict[str, Check]:
        return super()._checks() | _EPOCH_CHECKS

    def _conflict(self) -> str | None:
        if self.follow and self.at is not None:
            return f"follow=True: at={self.at} reads no newer generation; leave out one of the two."
        if self.follow and self.shard is not None and self.shard[1] > 1:
            return (
                "follow=True: each host would look for new generations at a different moment, and "
                "so divide different records. With shard, give at and a new number for each epoch."
            )
        return super()._conflict()


_EPOCH_CHECKS: dict[str, Check] = {
    "follow": flag,
    "shard": _check_shard,
    "ram_budget": _check_ram_budget,
}


def refuse_fit(options: ReadOptions, batch_size: int | None) -> str | None:
    """What is wrong with batches of images that differ in size, or None."""
    fits = options.resize == "fit" and options.image_size is not None
    if fits and batch_size and options.decode and options.map_fn is None:
        return (
            "resize='fit': images that differ in size cannot share a batch; give 'stretch', "
            "'crop' or 'pad', or leave out batch_size."
        )
    return None
