"""The options of reading: one frozen value that validates itself."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrecorder.errors import OptionError
from tfrecorder.images.limits import RESIZES
from tfrecorder.loading.memory import default_budget
from tfrecorder.options.checks import flag, is_whole, one_of, parse_size, refuse_unknown, whole

DTYPES = ("uint8", "float16", "bfloat16", "float32")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How records become batches.  Every value is checked here, before any file is opened.

    Attributes:
        batch_size: images of a batch, at least 1; None gives single images.
        drop_remainder: leave out the last batch of an epoch if it is not full.
        image_size: (height, width) in pixels, or one number for a square; None keeps each
            image's own size.
        resize: how an image of another shape gets to `image_size`.  "stretch" changes its
            proportions, "crop" cuts the longer side about the centre, "pad" adds black borders,
            "fit" stays within, and enlarges nothing: the images then differ in size.
        antialias: average all pixels that fall together when an image shrinks.  False is plain
            bilinear sampling: less work, but aliased.
        dtype: of the pixels: "uint8", "float32", "float16" or "bfloat16".
        value_range: (low, high) that a pixel of 0 and of 255 become; None is (0, 1) for floats.
        decode: True gives pixels; False gives the stored bytes of each image.
        shuffle: True, False, or the number of records held in memory to choose from.  None
            shuffles TRAIN, with a number that fits `ram_budget`, and keeps the order of others.
        seed: of shuffling and augmentation, 0 to 2**32 - 1; None is another order on each run.
        deterministic: the same batches for the same seed on every run.  None is True if there is
            a seed or no shuffling.
        cache: True keeps the decoded images in memory after the first epoch (with `augment` or
            `decode=False` the stored bytes), a path keeps them in files there; False reads and
            decodes each epoch.
        map_fn: called on (image, label), or on the dict of `features`, of each record, in
            parallel, after decoding and before batching.  TensorFlow traces it.
        augment: a random part of each image, resized, and mirrored in half of the cases.
        features: a dict of every stored feature in place of (image, label).
        inputs: the columns that make the first half of an element: one gives its value, several a
            dict. None gives the images, or where there are none all numbers and texts.
        targets: the columns that make the second half. None gives labels, boxes, masks and the
            numbers that the schema calls targets.
        max_boxes: pad the boxes of each image to this many, with zeros and the class -1, and leave
            out further ones; None gives as many as there are, in batches ragged.
        shard: (index, count): only this host's part.  The parts of all hosts are disjoint,
            complete, and differ in length by at most one record.
        ram_budget: bytes, or a text as "4GiB", for buffers of this split; None is a quarter of
            the memory that the process may use.
        start: (epoch, step), both from 0: every iteration gives this epoch's order, without its
            first `step` batches (without batch_size: images), which were trained on before an
            interruption.  Needs `seed`.  None goes on to another order with each iteration.

    Raises:
        OptionError: a value is of a wrong type or out of range, or two do not go together.

    >>> LoadOptions(image_size=224).size
    (224, 224)
    """

    batch_size: int | None = None
    drop_remainder: bool = False
    image_size: int | tuple[int, int] | None = None
    resize: str = "stretch"
    antialias: bool = True
    dtype: str = "uint8"
    value_range: tuple[float, float] | None = None
    decode: bool = True
    shuffle: bool | int | None = None
    seed: int | None = None
    deterministic: bool | None = None
    cache: bool | str = False
    map_fn: Callable[..., Any] | None = None
    augment: bool = False
    features: bool = False
    inputs: Sequence[str] | None = None
    targets: Sequence[str] | None = None
    max_boxes: int | None = None
    shard: tuple[int, int] | None = None
    ram_budget: int | str | None = None
    start: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        replace = object.__setattr__  # the way a frozen dataclass normalises what it was given
        if hasattr(self.dtype, "name"):  # tf.float32, numpy.dtype("float32")
            replace(self, "dtype", self.dtype.name)
        if isinstance(self.cache, os.PathLike):
            replace(self, "cache", os.fspath(self.cache))
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if fault := check(value):
                raise OptionError(f"{name}={value!r}: {fault}")
        if fault := _conflict(self):
            raise OptionError(fault)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> LoadOptions:
        """Options by name; a misspelt name is an OptionError that suggests the nearest."""
        refuse_unknown(options, cls)
        return cls(**options)

    @property
    def size(self) -> tuple[int, int] | None:
        """`image_size` as (height, width)."""
        if self.image_size is None:
            return None
        sides = self.image_size if isinstance(self.image_size, Sequence) else (self.image_size,) * 2
        return int(sides[0]), int(sides[1])

    @property
    def epoch(self) -> int | None:
        """The one of `start`."""
        return None if self.start is None else int(self.start[0])

    @property
    def step(self) -> int:
        """The one of `start`, 0 without it."""
        return 0 if self.start is None else int(self.start[1])

    @property
    def low_high(self) -> tuple[float, float]:
        """`value_range`, or the default of the `dtype`."""
        if self.value_range is None:
            return (0.0, 255.0) if self.dtype == "uint8" else (0.0, 1.0)
        return float(self.value_range[0]), float(self.value_range[1])

    @property
    def budget(self) -> int:
        """`ram_budget` in bytes, or the default."""
        return default_budget() if self.ram_budget is None else parse_size(self.ram_budget)

    def shuffles(self, split: str) -> bool:
        """True if the records of a split are to be shuffled."""
        return split == "TRAIN" if self.shuffle is None else bool(self.shuffle)

    def is_deterministic(self, split: str) -> bool:
        """True if the order of a split must be the same on every run."""
        if self.deterministic is not None:
            return self.deterministic
        return self.seed is not None or not self.shuffles(split)


def caches_pixels(options: LoadOptions) -> bool:
    """True if the cache holds decoded images: only where they are the same in each epoch."""
    return bool(options.cache) and options.decode and not options.augment


def steps(records: int, options: LoadOptions) -> int:
    """The elements of one iteration over so many records: batches, or images without batch_size.

    >>> steps(100, LoadOptions(batch_size=32)), steps(100, LoadOptions(batch_size=32, seed=1,
    ...     start=(0, 3), drop_remainder=True))
    (4, 0)
    """
    size = options.batch_size or 1
    whole = records // size if options.drop_remainder else -(-records // size)
    return max(0, whole - options.step)


def _conflict(options: LoadOptions) -> str | None:
    """What is wrong with two options together, or None."""
    if options.start and (options.seed is None or options.deterministic is False):
        return (
            f"start={options.start!r}: an epoch's order comes from the seed; give the seed of the "
            "run to continue, as seed=1, and leave deterministic as it is."
        )
    if options.features and (options.inputs or options.targets):
        given = "inputs" if options.inputs else "targets"
        return f"{given}={list(getattr(options, given))!r}: features=True gives every column."
    if not options.decode:
        pixels = [name for name in ("image_size", "augment") if getattr(options, name)]
        if pixels or options.dtype != "uint8":
            return f"decode=False gives the stored bytes; leave out {(pixels or ['dtype'])[0]}."
    if options.augment and options.image_size is None:
        return "augment=True: random parts differ in size; give image_size, as image_size=224."
    if options.resize == "fit" and options.image_size is not None:
        if options.augment:
            return "resize='fit': random parts all get image_size; leave it out, or augment."
        if options.batch_size and options.decode and options.map_fn is None:
            return (
                "resize='fit': images that differ in size cannot share a batch; give 'stretch', "
                "'crop' or 'pad', or leave out batch_size."
            )
    if options.dtype == "uint8" and options.value_range not in (None, (0, 255)):
        return (
            f"value_range={options.value_range!r}: uint8 pixels are 0 to 255; give "
            "dtype='float32' for another range."
        )
    if options.drop_remainder and options.batch_size is None:
        return "drop_remainder=True: there are no batches; give batch_size."
    return None


def _check_image_size(value: Any) -> str | None:
    sides = (value,) if is_whole(value) else value
    if value is None:
        return None
    if not isinstance(sides, (tuple, list)) or len(sides) > 2 or not all(map(is_whole, sides)):
        return "give (height, width) in pixels, as (224, 224)."
    return None if min(sides) >= 1 and len(sides) + is_whole(value) == 2 else "give two sides >= 1."


def _check_value_range(value: Any) -> str | None:
    if value is None:
        return None
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        return "give (low, high), as (-1, 1)."
    in_order = -math.inf < low < high < math.inf
    return None if in_order else "low must be less than high, both finite, as (-1, 1)."


def _check_shuffle(value: Any) -> str | None:
    if value is None or isinstance(value, bool) or (is_whole(value) and value >= 1):
        return None
    return "give True, False, or how many records to hold, at least 1."


def _check_cache(value: Any) -> str | None:
    if isinstance(value, bool) or (isinstance(value, str) and value):
        return None
    return "give True for memory, or a path for files."


def _check_names(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence) or not len(value):
        return "give a list of columns, as ['image_uri', 'age']."
    return None if all(isinstance(name, str) for name in value) else "give names of columns."


def _check_shard(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not all(map(is_whole, value)):
        return "give (index, count), as (0, 4) for the first of four hosts."
    index, count = value
    return None if 0 <= index < count else "index must be from 0 to count - 1."


def _check_start(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, (tuple, list)) and len(value) == 2 and not any(map(whole(0), value)):
        return None
    return "give (epoch, step), both from 0, as (3, 120)."


def _check_ram_budget(value: Any) -> str | None:
    if value is None:
        return None
    try:
        size = parse_size(value)
    except (TypeError, ValueError):
        return "give bytes, or a number with a unit, as '4GiB'."
    return None if size >= 2**20 else "give at least 1 MiB."


_CHECKS: dict[str, Callable[[Any], str | None]] = {
    "batch_size": whole(1, none=True),
    "drop_remainder": flag,
    "image_size": _check_image_size,
    "resize": one_of(*RESIZES),
    "antialias": flag,
    "dtype": one_of(*DTYPES),
    "value_range": _check_value_range,
    "decode": flag,
    "shuffle": _check_shuffle,
    "seed": whole(0, 2**32 - 1, none=True),
    "deterministic": one_of(None, True, False),
    "cache": _check_cache,
    "map_fn": lambda value: None if value is None or callable(value) else "give a function.",
    "augment": flag,
    "features": flag,
    "inputs": _check_names,
    "targets": _check_names,
    "max_boxes": whole(1, none=True),
    "shard": _check_shard,
    "ram_budget": _check_ram_budget,
    "start": _check_start,
}
