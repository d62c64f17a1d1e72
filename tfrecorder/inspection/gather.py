"""What a page is made of: everything that is read from a dataset, as values."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.display.bars import Advance, Stage, counting
from tfrecorder.format import layout
from tfrecorder.inspection.duplicates import Duplicates, find_duplicates
from tfrecorder.inspection.facts import (
    Box,
    boxes_of,
    filename_of,
    image_of,
    labels_of,
    mask_of,
    row_of,
)
from tfrecorder.inspection.pictures import (
    SIDE,
    SMALL_SIDE,
    UnshownError,
    large_images_allowed,
    lay_mask,
    read_picture,
    to_jpeg,
)
from tfrecorder.reading.class_counts import read_side_file
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.info import DatasetInfo, summed
from tfrecorder.reading.stored_records import Record, read_numbered

#: An image is called near-constant if the standard deviation of its grey levels, 0 to 255, is below
#: this.
NEAR_CONSTANT = 4.0

#: Pictures in a row of examples: the darkest, the brightest, or the near-constant ones.
EXAMPLES = 8
#: Images with several records that are shown: so many that leak, and so many that do not.
SHOWN_GROUPS = 12
#: How many rejects and how many suspects are shown.
SHOWN_ROWS = 20

#: Records that the pool of threads holds at once.
_AHEAD = 16

#: Identifies a record: its split and its number.
Which = tuple[str, int]


@dataclass(frozen=True)
class Seen:
    """One record that was decoded.

    Attributes:
        split, number: identify the record.
        labels: its class names.
        width, height: in pixels; 0 if it cannot be decoded.
        bytes: the size of the encoded image.
        brightness, contrast: mean and standard deviation of the grey levels, 0 to 255.
        fault: why it cannot be shown; empty if it can.
    """

    split: str
    number: int
    labels: tuple[str, ...]
    width: int
    height: int
    bytes: int
    brightness: float = 0.0
    contrast: float = 0.0
    fault: str = ""


@dataclass(frozen=True)
class Shown:
    """One record as the page shows it.

    Attributes:
        jpeg: the picture, with any mask laid over it; empty if there is none.
        thumb: the picture's width and height.
        width, height: the size of the stored image.
        fault: why there is no picture, or no boxes.
    """

    split: str
    number: int
    row: str
    filename: str
    labels: tuple[str, ...]
    jpeg: bytes
    thumb: tuple[int, int]
    width: int
    height: int
    boxes: tuple[Box, ...]
    masked: bool
    fault: str


@dataclass(frozen=True)
class Gathered:
    """Everything a page shows.

    Attributes:
        info: counts, classes, rejects by reason, options.
        seed: for the random records.
        seen: the records that were decoded, by split.
        class_counts: records by split and class.
        counted: whether these counts cover all records, or only those decoded.
        sheet: random records, by split.
        darkest, brightest, constant: extremes among the decoded records.
        constants: how many of the decoded records are near-constant.
        duplicates: images with several records.
        pictures: the first record of each duplicate that is shown.
        rejects, suspects: the first rows of the two lists; None if they are not known.
    """

    info: DatasetInfo
    seed: int
    seen: Mapping[str, Sequence[Seen]]
    class_counts: Mapping[str, Mapping[str, int]]
    counted: bool
    sheet: Mapping[str, Sequence[Shown]]
    darkest: Sequence[Shown]
    brightest: Sequence[Shown]
    constant: Sequence[Shown]
    constants: int
    duplicates: Duplicates
    pictures: Mapping[Which, Shown]
    rejects: Sequence[Sequence[str]] | None
    suspects: Sequence[Sequence[str]] | None

    @property
    def class_totals(self) -> dict[str, int]:
        """Records by class; if all were counted, this includes classes that have none."""
        names = dict.fromkeys(self.info.class_names or (), 0) if self.counted else {}
        return summed([names, *self.class_counts.values()])

    @property
    def all_seen(self) -> list[Seen]:
        return [seen for of_split in self.seen.values() for seen in of_split]

    @property
    def usable(self) -> list[Seen]:
        """The decoded records whose image can be shown."""
        return [seen for seen in self.all_seen if seen.width]


def gather(
    stored: StoredDataset,
    info: DatasetInfo,
    *,
    num_records: int,
    per_split: int,
    seed: int,
    seconds: float,
    stage: Stage,
) -> Gathered:
    """Read what a page shows.

    Args:
        stored: the dataset.
        info: what is known about it without reading a record.
        num_records: how many random records of each split to decode at most.
        per_split: how many of these to show.
        seed: for the random choice.
        seconds: how long the search for duplicates may take.
        stage: part of a progress bar.

    Raises:
        DatasetError: an index, a record or a list in the dataset is damaged.
    """
    drawn = draw(stored, num_records, seed)
    with large_images_allowed(), ThreadPool() as pool:
        advance = stage("decoding", sum(map(len, drawn.values())))
        seen = {
            split: _look(pool, stored, split, numbers, advance) for split, numbers in drawn.items()
        }
        duplicates = find_duplicates(stored, seconds, stage)
        extremes = _extremes([one for of_split in seen.values() for one in of_split if one.width])
        sheet = [(split, n) for split, numbers in drawn.items() for n in numbers[:per_split]]
        groups = duplicates.leaks[:SHOWN_GROUPS] + duplicates.repeats[:SHOWN_GROUPS]
        firsts = [(group.copies[0].split, group.copies[0].number) for group in groups]
        large = _show(pool, stored, sheet, SIDE, stage)
        small = _show(pool, stored, [*itertools.chain(*extremes), *firsts], SMALL_SIDE, stage)
    darkest, brightest, constant = ([small[one] for one in some] for some in extremes)
    return Gathered(
        info=info,
        seed=seed,
        seen=seen,
        class_counts=info.class_counts or _counted(seen),
        counted=bool(info.class_counts),
        sheet={split: [large[one] for one in sheet if one[0] == split] for split in drawn},
        darkest=darkest,
        brightest=brightest,
        constant=constant,
        constants=sum(
            one.contrast < NEAR_CONSTANT for of in seen.values() for one in of if one.width
        ),
        duplicates=duplicates,
        pictures={one: small[one] for one in firsts},
        rejects=_first_rows(stored, layout.REJECTS),
        suspects=_first_rows(stored, layout.SUSPECTS),
    )


def draw(stored: StoredDataset, num_records: int, seed: int) -> dict[str, list[int]]:
    """At most this many record numbers from each split, in a seeded random order."""
    drawn = {}
    for place, split in enumerate(stored.splits):
        records = stored.records(split) or 0
        random = np.random.default_rng([seed, place])
        size = min(num_records, records)
        drawn[split] = random.choice(records, size, replace=False).tolist() if size else []
    return drawn


def _look(
    pool: ThreadPool,
    stored: StoredDataset,
    split: str,
    numbers: list[int],
    advance: Advance,
) -> list[Seen]:
    records = read_numbered(stored, split, numbers)
    seen = map_ahead(pool, lambda record: _see(record, stored), records, _AHEAD)
    return list(counting(seen, advance))


def _see(record: Record, stored: StoredDataset) -> Seen:
    labels = labels_of(record.features, stored)
    image = image_of(record.features, stored)
    known = (record.split, record.number, labels)
    try:
        picture = read_picture(image)
    except UnshownError as error:
        return Seen(*known, 0, 0, len(image), fault=str(error))
    grey = (picture.brightness, picture.contrast)
    return Seen(*known, picture.width, picture.height, len(image), *grey)


def _extremes(seen: list[Seen]) -> tuple[list[Which], list[Which], list[Which]]:
    """The darkest, the brightest and the near-constant records, a few of each kind."""
    by_brightness = sorted(seen, key=lambda one: one.brightness)
    by_contrast = sorted(seen, key=lambda one: one.contrast)
    constant = [one for one in by_contrast if one.contrast < NEAR_CONSTANT]
    ends = by_brightness[:EXAMPLES], by_brightness[::-1][:EXAMPLES], constant[:EXAMPLES]
    darkest, brightest, constant_few = ([(one.split, one.number) for one in some] for some in ends)
    return darkest, brightest, constant_few


def _show(
    pool: ThreadPool,
    stored: StoredDataset,
    wanted: Iterable[Which],
    side: int,
    stage: Stage,
) -> dict[Which, Shown]:
    numbers: dict[str, set[int]] = {}
    for split, number in wanted:
        numbers.setdefault(split, set()).add(number)
    records: Iterator[Record] = itertools.chain.from_iterable(
        read_numbered(stored, split, of_split) for split, of_split in numbers.items()
    )
    shown = map_ahead(pool, lambda record: show(record, stored, side), records, _AHEAD)
    advance = stage("drawing", sum(map(len, numbers.values())))
    return {(one.split, one.number): one for one in counting(shown, advance)}


def show(record: Record, stored: StoredDataset, side: int) -> Shown:
    """A record with its picture."""
    features = record.features
    mask = mask_of(features, stored)
    jpeg, thumb, size, fault = b"", (0, 0), (0, 0), ""
    boxes: tuple[Box, ...] = ()
    try:
        picture = read_picture(image_of(features, stored), side)
        size = (picture.width, picture.height)
        thumb = picture.pixels.size
        jpeg = to_jpeg(picture.pixels)  # kept if the mask does not decode
        if mask:
            jpeg = to_jpeg(lay_mask(picture.pixels, mask))
        boxes = boxes_of(features, stored, size)
    except (UnshownError, ValueError) as error:
        fault = str(error)
    return Shown(
        split=record.split,
        number=record.number,
        row=row_of(features),
        filename=filename_of(features, stored),
        labels=labels_of(features, stored),
        jpeg=jpeg,
        thumb=thumb,
        width=size[0],
        height=size[1],
        boxes=boxes,
        masked=bool(mask),
        fault=fault,
    )


def _counted(seen: Mapping[str, Sequence[Seen]]) -> dict[str, dict[str, int]]:
    return {
        split: dict(Counter(label for one in of_split for label in one.labels))
        for split, of_split in seen.items()
    }


def _first_rows(stored: StoredDataset, name: str) -> Sequence[Sequence[str]] | None:
    """The first rows of a list; None for what other tools wrote, which has no such list."""
    if stored.form != "tfrecorder":
        return None
    found: list[Sequence[str]] = []
    for directory in stored.generations:
        found += read_side_file(directory, name)[: SHOWN_ROWS - len(found)]
    return found
