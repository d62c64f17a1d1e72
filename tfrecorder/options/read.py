"""The options that readers share: `load`, `Records`, `batches` and `preview`.

How much of the memory that this process may use reading takes follows from them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tfrecorder.core.option import (
    Fault,
    OneOf,
    Size,
    Whole,
    flag_or_none,
    is_whole,
    name_of_dtype,
    option,
    parse_size,
    seconds as check_seconds,
    spelled,
    text,
)
from tfrecorder.images.header import RESIZES
from tfrecorder.options.option import Options, check_image_size, sides
from tfrecorder.options.ranks import Rank, cores_of_rank, memory_of_rank, this_rank
from tfrecorder.storage.cache_folder import CacheFolder
from tfrecorder.storage.uris import mended, scheme

#: Batches made in advance: enough to hide a slow one, or the start of a new shard.
PREFETCH = 8

#: Share of a load's budget for elements being made, and the same again for those that wait.
ELEMENTS_SHARE = 0.25

DTYPES = ("uint8", "float16", "bfloat16", "float32")

#: Of red, green and blue, in units of 0 to 1, those with which networks are usually trained:
#: torchvision's preset `ImageClassification`, and `_transform` in OpenAI's `clip/clip.py`.
MEANS = {
    "imagenet": (0.485, 0.456, 0.406),
    "clip": (0.48145466, 0.4578275, 0.40821073),
}
DEVIATIONS = {
    "imagenet": (0.229, 0.224, 0.225),
    "clip": (0.26862954, 0.26130258, 0.27577711),
}

#: What a seed may be.
SEED = Whole(0, 2**32 - 1)

#: In place of a list of inputs: a dict of every stored feature is the element.
ALL = "all"

#: The most records of a split that a page shows.
MOST_SHOWN = 200


def _check_value_range(value: Any) -> str | None:
    try:
        low, high = map(float, value)
    except (TypeError, ValueError):
        return "give (low, high), such as `value_range=(-1, 1)`."
    in_order = -math.inf < low < high < math.inf
    return None if in_order else "low must be less than high, both finite."


def _by_channel(named: Mapping[str, tuple[float, ...]], value: Any) -> tuple[float, ...]:
    """A number for all channels, one for each, or those with a name.

    >>> _by_channel(MEANS, 0.5), _by_channel(MEANS, "imagenet")
    ((0.5,), (0.485, 0.456, 0.406))
    """
    if isinstance(value, str):
        return named[value]
    return tuple(map(float, value if hasattr(value, "__len__") else [value]))


def _check_by_channel(above: float, value: Any) -> str | None:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        numbers = _by_channel(MEANS, value)
        if numbers and all(above < number < math.inf for number in numbers):
            return None
    least = "" if above else " above 0"
    return (
        f"give a finite number{least}, or one for each channel, such as (0.5, 0.4, 0.4); or "
        "'imagenet' or 'clip'."
    )


def check_start(value: Any) -> str | None:
    """Why a value is not where an epoch begins; None if it is.

    >>> check_start((3, 120))
    """
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    if is_pair and not any(map(Whole(0), value)):
        return None
    return "give (epoch, step), both from 0, such as `start=(3, 120)`."


def _check_inputs(value: Any) -> str | None:
    if value == ALL:
        return None
    return _check_names(value) and f"{_check_names(value)} Or give 'all' for every one."


def path_text(value: Any) -> Any:
    """Any path as text."""
    return mended(os.fspath(value)) if isinstance(value, (str, os.PathLike)) else value


def _check_folder(value: Any) -> str | None:
    path = path_text(value)
    if not isinstance(path, str) or not path or scheme(path):
        return "give a folder on a local disk, such as '/mnt/ssd/cache'."
    return None


def _check_names(value: Any) -> str | None:
    if isinstance(value, str) or not isinstance(value, Sequence) or not len(value):
        return "give a list of columns, such as ['image_uri', 'age']."
    return None if all(isinstance(name, str) for name in value) else "give names of columns."


def _check_dtype(value: Any) -> str | None:
    return OneOf(*DTYPES)(name_of_dtype(value))


def check_where(value: Any) -> str | None:
    """What is wrong with a condition, or None."""
    if callable(value) or (isinstance(value, Mapping) and value):
        return None
    return "give columns with values, such as `{'label': 'cat'}`, or a function of a frame."


def _check_classes(value: Any) -> str | None:
    if value in ("by name", "equal") or (isinstance(value, Mapping) and value):
        return None
    return (
        "give 'by name', 'equal', or the classes with those that each is made of, such as "
        "{'cat': ['cat', 'kitten'], 'dog': ['dog']}."
    )


def _check_balance(value: Any) -> str | None:
    if (
        isinstance(value, str)
        or (isinstance(value, Mapping) and value)
        or hasattr(value, "__len__")
    ):
        return None
    return (
        "give the name of a column, such as 'label'; a weight for each class, such as {'cat': 2, "
        "'dog': 1}; or an array with a weight for each record."
    )


def _check_function(value: Any) -> str | None:
    return None if callable(value) else "give a function."


def check_shard(value: Any) -> str | None:
    """What is wrong with (index, count), or None."""
    if not isinstance(value, (tuple, list)) or len(value) != 2 or not all(map(is_whole, value)):
        return "give (index, count), such as `shard=(0, 4)` for the first of four hosts."
    index, count = value
    return None if 0 <= index < count else "index must be from 0 to count - 1."


#: The form of a key's values, as of the option `features`: their kind, and how many there are.
FEATURE_FORM = re.compile(r"(int64|float|text|bytes)(?:(\?)|\[(\d*)\])?")


def _check_features(value: Any) -> str | None:
    remedy = f"give the form of keys, such as {spelled('features', {'image/caption': 'text[]'})}."
    if not isinstance(value, Mapping):
        return remedy
    for key, form in value.items():
        if not (isinstance(key, str) and isinstance(form, str) and FEATURE_FORM.fullmatch(form)):
            return f"{key!r}: {form!r} is no form; {remedy}"
    return None


class NamedKeys(NamedTuple):
    """The keys of records of other tools that the user names.

    Attributes:
        image, label: that of the image, and that of the label.
        features: the form of keys, as of the option `features`.
    """

    image: str | None = None
    label: str | None = None
    features: Mapping[str, str] | None = None


NO_KEYS = NamedKeys()


@dataclass(frozen=True, kw_only=True)
class RecordOptions(Options):
    """Which records of a dataset are looked at, and by which keys.

    Raises:
        OptionError: a value has the wrong type or is out of range.
    """

    at: int | None = option(
        None,
        Whole(0),
        "The last generation of the dataset to read. Default: the newest.",
    )
    image: str | None = option(
        None,
        text,
        "Key of the image, in records of other tools. Default: by their metadata or usual names.",
        metavar="KEY",
    )
    label: str | None = option(
        None,
        text,
        "Key of the label, in records of other tools. Default: by their metadata or usual names.",
        metavar="KEY",
    )

    features: Mapping[str, str] | None = option(
        None,
        _check_features,
        "What a key holds, in records of other tools: int64, float, text or bytes, of which each "
        "record has one value; with ? at most one, with [] a list, with [16] so many. Default: as "
        "in the first and the last record of each file.",
        metavar="KEY=KIND",
    )

    @property
    def keys(self) -> NamedKeys:
        """The keys that the user names."""
        return NamedKeys(self.image, self.label, self.features)


@dataclass(frozen=True, kw_only=True)
class ReadOptions(RecordOptions):
    """What an element holds: the options of `tfrecorder.Records`, which all readers have.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not fit together.
    """

    image_size: int | tuple[int, int] | None = option(
        None,
        check_image_size,
        "Height and width in pixels, or one number for a square. Default: as each image is stored.",
    )
    resize: str = option(
        "stretch",
        OneOf(*RESIZES),
        "How to fit an image with other proportions to the image size. stretch: distort it; crop: "
        "cut the longer side, centred; pad: add black; fit: shrink it to stay within, never "
        "enlarge it, so that images differ in size.",
        needs=("image_size",),
    )
    antialias: bool = option(
        True,
        help="When an image shrinks, average all pixels that fall together. "
        "`antialias=False` is plain bilinear sampling: less work, but aliased.",
        needs=("image_size",),
    )
    dtype: str = option(
        "uint8",
        _check_dtype,
        "Type of the pixels: uint8 (uint16 where the schema has `Image(depth=16)`), float32, "
        "float16 or bfloat16.",
        normal=name_of_dtype,
    )
    value_range: tuple[float, float] | None = option(
        None,
        _check_value_range,
        "What pixels of 0 and 255 (65,535 of 16 bits) become, such as `value_range=(-1, 1)`. "
        "Default: (0, 1) for floats; whole numbers stay as they are.",
        idle_with={"mean": bool},
    )
    mean: tuple[float, ...] | None = option(
        None,
        partial(_check_by_channel, -math.inf),
        "With `std`: pixels become (x / 255 - mean) / std, or x / 65,535 for 16 bits. One number, "
        "or one for each channel; or 'imagenet' (torchvision's values) or 'clip' (OpenAI's).",
        normal=partial(_by_channel, MEANS),
        needs=("std",),
    )
    std: tuple[float, ...] | None = option(
        None,
        partial(_check_by_channel, 0),
        "The standard deviation that goes with `mean`, given in the same way.",
        normal=partial(_by_channel, DEVIATIONS),
        needs=("mean",),
    )
    decode: bool = option(
        True,
        help="Decode the images; `decode=False` gives the stored bytes of each.",
    )
    seed: int | None = option(None, SEED, "Seed of `augment`. Default: drawn at random.")
    map_fn: Callable[..., Any] | None = option(
        None,
        _check_function,
        "A function that is called on each record's `(image, label)`, or on its dict with "
        "`inputs='all'`, in parallel, after decoding and before batching. `load` lets TensorFlow "
        "trace it; `Records` and `batches` give it NumPy arrays.",
    )
    augment: bool = option(
        False,
        help="Take a random part of each image, at `image_size`, and mirror it half of the time.",
    )
    inputs: Sequence[str] | str | None = option(
        None,
        _check_inputs,
        "The columns in the first half of an element: one gives its value, several a dict. "
        "`inputs='all'` gives a dict of every stored feature in place of both halves. Default: the "
        "images or, if there are none, all numbers, texts and bytes that are not targets.",
    )
    targets: Sequence[str] | None = option(
        None,
        _check_names,
        "The columns in the second half. Default: labels, boxes, masks, and the numbers that the "
        "schema marks as targets.",
    )
    max_boxes: int | None = option(
        None,
        Whole(1),
        "Pad the boxes of each image to this many, with zeros and the class -1, and leave out any "
        "more. Default: all of them; batches of `load` are then ragged.",
    )
    where: Mapping[str, Any] | Callable[[Any], Any] | None = option(
        None,
        check_where,
        "Only records for which this holds: columns, all of which must agree, each with a value, a "
        "list of values, or a tuple of two numbers, which is a range with both ends in it, such as "
        "`where={'label': ['cat', 'dog'], 'age': (18, None)}`; or a function from a frame, as "
        "`Records.table()` gives it, to True or False for each row.",
    )
    classes: str | Mapping[Any, Any] | None = option(
        None,
        _check_classes,
        "How the classes of several datasets become one list. 'by name': each name has one "
        "integer; those of the first dataset keep theirs. 'equal': refuse other classes than "
        "those of the first. Or new names, in the order of their integers, each with the classes "
        "that it is made of, such as `classes={'cat': ['cat', 'kitten'], 'dog': ['dog']}`, also "
        "for one dataset: records of any other class are left out. Default: 'by name'.",
    )
    local_cache: str | None = option(
        None,
        _check_folder,
        "A folder on a local disk that keeps what is read from a bucket. It serves the next epochs "
        "and runs, and other processes with the same folder. Default: nothing is kept.",
        normal=path_text,
        metavar="FOLDER",
    )
    cache_bytes: int | str | None = option(
        None,
        Size((2**20, "1 MiB"), "500GiB"),
        "The most that the local cache may hold, in bytes or as text such as '500GiB'. Once it is "
        "full, everything else is read without being kept. Default: nine tenths of what its disk "
        "has left.",
        metavar="SIZE",
        needs=("local_cache",),
    )

    def _conflicts(self) -> Iterator[Fault]:
        for name in ("targets", "max_boxes"):
            if self.is_whole and getattr(self, name):
                yield name, "`inputs='all'` gives everything as it is stored; leave it out."
        if not self.decode:
            names = ("image_size", "augment", "value_range", "mean")
            pixels = [name for name in names if getattr(self, name)]
            if pixels or self.dtype != "uint8":
                name = (pixels or ["dtype"])[0]
                yield name, "`decode=False` gives the stored bytes; leave it out."
        if self.augment and self.image_size is None:
            yield "augment", "random parts differ in size; give a size, such as `image_size=224`."
        if self.resize == "fit" and self.image_size is not None and self.augment:
            yield "resize", "random parts all get `image_size`; leave it out, or `augment`."
        if self.dtype == "uint8" and self.value_range not in (None, (0, 255)):
            yield (
                "value_range",
                "uint8 pixels are 0 to 255; give `dtype='float32'` for another range.",
            )
        if self.mean and self.dtype == "uint8":
            yield "mean", "uint8 pixels are 0 to 255; give `dtype='float32'` too."

    @property
    def cache_folder(self) -> CacheFolder | None:
        """`local_cache` and its limit; None if nothing is kept."""
        if self.local_cache is None:
            return None
        limit = None if self.cache_bytes is None else parse_size(self.cache_bytes)
        return CacheFolder(os.path.abspath(self.local_cache), limit)

    @property
    def chooses(self) -> bool:
        """True if not every record is read once, as it is stored."""
        return self.where is not None or self.classes is not None

    @property
    def is_whole(self) -> bool:
        """True if an element is a dict of every stored feature, and has no halves."""
        return isinstance(self.inputs, str)

    @property
    def size(self) -> tuple[int, int] | None:
        """`image_size` as (height, width)."""
        return None if self.image_size is None else sides(self.image_size)


@dataclass(frozen=True, kw_only=True)
class EpochOptions(ReadOptions):
    """What `load` and `batches` share beyond `ReadOptions`: what an epoch reads, and its memory.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not fit together.
    """

    batch_size: int | None = option(None, Whole(1))
    follow: bool = option(
        False,
        help="Look for new generations before each epoch, not only when the dataset is opened.",
    )
    shard: tuple[int, int] | None = option(
        None,
        check_shard,
        "(index, count): only this process's part, of parts that differ by one record at most. "
        "`shard=(0, 1)` reads everything. Default: by torch.distributed or jax.distributed if one "
        "is initialized, else by RANK and WORLD_SIZE, else by the tasks of a SLURM step.",
    )
    ram_budget: int | str | None = option(
        None,
        Size((2**20, "1 MiB"), "4GiB"),
        "Memory for the buffers of one split, in bytes or as text such as '4GiB'. Default: a "
        "quarter of what the process may use; of several processes on a machine, each its part.",
    )
    balance: Any = option(
        None,
        _check_balance,
        "How often each record comes. `balance='label'` makes each class as frequent; any other "
        "column of texts each of its values, and one of numbers has the weights. Or a weight for "
        "each class, such as `{'cat': 2, 'dog': 1}`, or for each record, as an array. In each "
        "epoch a record, a class and a dataset come as often as expected, to the next whole "
        "number.",
        normal=lambda value: value,
    )
    epoch_size: int | None = option(
        None,
        Whole(1),
        "Records in an epoch. Default: as many as there are, or as are chosen.",
    )

    @property
    def budget(self) -> int:
        """`ram_budget` in bytes; by default a quarter of what the process may use."""
        return memory_of_rank() // 4 if self.ram_budget is None else parse_size(self.ram_budget)

    @property
    def rank(self) -> Rank:
        """This process among those that divide the records: now, as they may connect later.

        Raises:
            OptionError: it cannot be told, or the other options do not go together with several.
        """
        if self.shard is not None:
            return Rank(int(self.shard[0]), int(self.shard[1]))
        rank = this_rank()
        dataclasses.replace(self, shard=rank[:2])  # checks them together
        return rank

    @property
    def chooses(self) -> bool:
        return super().chooses or self.balance is not None or self.epoch_size is not None

    def _conflicts(self) -> Iterator[Fault]:
        for name in ("balance", "epoch_size"):
            if self.follow and getattr(self, name) is not None:
                yield (
                    name,
                    "`follow` adds records, and goes with `where` alone; leave out one of the two.",
                )
        if self.follow and self.at is not None:
            yield "follow", f"`at={self.at}` reads no newer generation; leave out one of the two."
        if self.follow and self.shard is not None and self.shard[1] > 1:
            yield (
                "follow",
                (
                    "each host would look for new generations at a different moment, and so divide "
                    "different records. With `shard`, give `at` and a new number for each epoch."
                ),
            )
        yield from super()._conflicts()
        fits = self.resize == "fit" and self.image_size is not None
        if fits and self.batch_size and self.decode and self.map_fn is None:
            yield (
                "resize",
                (
                    "images that differ in size cannot share a batch; give 'stretch', 'crop' or "
                    "'pad', or leave out `batch_size`."
                ),
            )


@dataclass(frozen=True, kw_only=True)
class PreviewOptions(RecordOptions):
    """What a preview looks at.

    Raises:
        OptionError: a value has the wrong type or is out of range.
    """

    num_records: int = option(
        1000,
        Whole(1),
        "How many random records of each split to decode, at most.",
    )
    per_split: int = option(24, Whole(1, MOST_SHOWN), "How many records of each split to show.")
    seconds: float = option(
        60.0,
        check_seconds,
        "Seconds, from 0, that the search for duplicates may take. It compares all records by a "
        "hash of the image's bytes, then those that may be near copies; if time runs out, the page "
        "says how many it compared.",
        metavar="SECONDS",
    )
    seed: int = option(0, Whole(0), "Seed of the choice of records.")
    progress: bool | None = option(
        None,
        flag_or_none,
        "Show a progress bar. Default: only in a terminal or a notebook.",
    )


def parallel_calls(element_bytes: float, budget: int) -> int:
    """How many elements of this size are decoded at the same time: at most one per core.

    >>> parallel_calls(2**40, 2**30)
    1
    """
    return _within(element_bytes, budget, cores_of_rank())


def prefetched(element_bytes: float, budget: int) -> int:
    """How many finished elements of this size wait in memory.

    >>> prefetched(64 * 224 * 224 * 3, 2**32), prefetched(2**28, 2**32)
    (8, 4)
    """
    return _within(element_bytes, budget, PREFETCH)


def _within(
    element_bytes: float,
    budget: int,
    most: int,
) -> int:
    return max(1, min(most, int(budget * ELEMENTS_SHARE / max(element_bytes, 1.0))))
