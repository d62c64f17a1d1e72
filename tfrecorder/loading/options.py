"""The options of `load`: one frozen value that validates itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfrecorder.core.checks import Whole, is_whole
from tfrecorder.core.option import Fault, option
from tfrecorder.options.read import EpochOptions


def _check_shuffle(value: Any) -> str | None:
    if value == "exact" or isinstance(value, bool) or (is_whole(value) and value >= 1):
        return None
    return "give True, False, 'exact', or how many records to hold, at least 1."


def _path(cache: Any) -> Any:
    """Any path as text."""
    return os.fspath(cache) if isinstance(cache, os.PathLike) else cache


def _check_cache(value: Any) -> str | None:
    path = _path(value)
    if isinstance(path, bool) or (isinstance(path, str) and path):
        return None
    return "give True for memory, or a path for files."


def _check_start(value: Any) -> str | None:
    if isinstance(value, (tuple, list)) and len(value) == 2 and not any(map(Whole(0), value)):
        return None
    return "give (epoch, step), both from 0, such as `start=(3, 120)`."


@dataclass(frozen=True, kw_only=True)
class LoadOptions(EpochOptions):
    """How records become batches.  Every value is checked here, before any file is opened.

    Attributes:
        batch_size: images per batch, at least 1; None gives single images.
        drop_remainder: leave out the last batch of an epoch if it is not full.
        image_size: (height, width) in pixels, or one number for a square; None keeps each
            image's own size.
        resize: how an image of another shape gets to `image_size`.  "stretch" changes its
            proportions, "crop" cuts the longer side about the centre, and "pad" adds black borders.
            "fit" stays within `image_size` and never enlarges: the images then differ in size.
        antialias: average all pixels that fall together when an image shrinks.  False is plain
            bilinear sampling: less work, but aliased.
        dtype: of the pixels: "uint8", "float32", "float16" or "bfloat16".
        value_range: (low, high) that pixels of 0 and 255 become; None is (0, 1) for floats.
        decode: True gives pixels; False gives the stored bytes of each image.
        shuffle: True, False, or the number of records held in memory to choose from.  None
            shuffles TRAIN, with a number that fits `ram_budget`, and keeps the order of others.
            "exact" reads the whole split in the random order that `tfrecorder.batches` has with
            the same seed, batch_size and shard; with `augment`, it takes the same parts.
        seed: of shuffling and augmentation, 0 to 2**32 - 1; None gives a new order on each run.
        cache: True keeps the decoded images in memory after the first epoch (with `augment` or
            `decode=False` the stored bytes), a path keeps them in files there; False reads and
            decodes in each epoch.
        map_fn: called on each record's (image, label), or on its dict with `inputs="all"`, in
            parallel, after decoding and before batching.  TensorFlow traces it.
        augment: a random part of each image, resized, and mirrored half of the time.
        inputs: the columns for the first half of an element: one gives its value, several a dict.
            "all" gives a dict of every stored feature in place of (image, label).
            None gives the images or, if there are none, all numbers, texts and bytes that are not
            targets.
        targets: the columns for the second half. None gives labels, boxes, masks and the numbers
            that the schema marks as targets.
        max_boxes: pad the boxes of each image to this many, with zeros and the class -1, and leave
            out any more; None gives all of them, and batches are ragged.
        image, label: the keys of the image and the label, for records of other tools whose keys we
            do not know, such as image="img".  None takes the usual ones.
        at: for a dataset that was appended to, the number of the last generation to read, from 0;
            None reads all that are there when it is opened.
        follow: True looks for new generations at the beginning of each epoch.  False reads what is
            there when the dataset is opened.
        shard: (index, count): only this host's part.  The parts of all hosts are disjoint,
            complete, and differ in length by at most one record.
        ram_budget: bytes, or a text such as "4GiB", for buffers of this split; None is a quarter
            of the memory that the process may use.
        start: (epoch, step), both from 0.  Every iteration gives this epoch's order, without its
            first `step` batches (images, without batch_size), which were trained on before an
            interruption.  Needs `seed`.  None gives another order on each iteration.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not go together.

    >>> LoadOptions(image_size=224).size
    (224, 224)
    """

    drop_remainder: bool = option(False, needs=("batch_size",))
    shuffle: bool | int | str | None = option(None, _check_shuffle)
    cache: bool | str = option(False, _check_cache, normal=_path)
    start: tuple[int, int] | None = option(None, _check_start)

    def _conflicts(self) -> Iterator[Fault]:
        if self.follow and self.cache:
            yield "follow", "a cache keeps what the first epoch read; leave out `cache`."
        if self.follow and self.is_exact:
            words = (
                "load can shuffle a growing dataset only with a buffer; `tfrecorder.batches` "
                "shuffles it exactly."
            )
            yield "follow", words
        if self.follow and self.start:
            words = (
                "it is no longer known which generations an epoch had, so `start` cannot continue "
                "it; the position of `tfrecorder.batches` can."
            )
            yield "follow", words
        if self.start and self.seed is None:
            words = "an epoch's order comes from the seed; give the seed of the run to continue."
            yield "start", words
        if self.is_exact and self.cache:
            yield "shuffle", "a cache keeps the records in one order; leave out one of the two."
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
    def is_exact(self) -> bool:
        """True if records are read by number, in the order of `batches`."""
        return self.shuffle == "exact"

    def shuffles(self, split: str) -> bool:
        """True if the records of a split should be shuffled."""
        return split == "TRAIN" if self.shuffle is None else bool(self.shuffle)

    def is_deterministic(self, split: str) -> bool:
        """True if the order of a split must be the same on every run."""
        return self.seed is not None or not self.shuffles(split)


def caches_pixels(options: LoadOptions) -> bool:
    """True if the cache holds decoded images: only if they are the same in each epoch."""
    return bool(options.cache) and options.decode and not options.augment


def steps(records: int, options: LoadOptions) -> int:
    """The elements of one iteration over these records: batches, or images without batch_size.

    >>> steps(100, LoadOptions(batch_size=32)), steps(100, LoadOptions(batch_size=32, seed=1,
    ...     start=(0, 3), drop_remainder=True))
    (4, 0)
    """
    size = options.batch_size or 1
    whole = records // size if options.drop_remainder else -(-records // size)
    return max(0, whole - options.step)
