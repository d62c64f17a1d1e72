"""What a page is made of: everything that is read from a dataset, as values.

Among it how large and how bright the images are, and which of them are unlike the others.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.display.bars import Stage, counting
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format import layout
from tfrecorder.inspection.duplicates import (
    Duplicates,
    NearCopies,
    Place,
    find_duplicates,
    find_near_copies,
    looks_of,
)
from tfrecorder.inspection.masks import beside_mask, levels_in, mask_in, outlined
from tfrecorder.inspection.record_values import (
    SIDE,
    SMALL_SIDE,
    Box,
    RecordView,
    blur_of,
    boxes_of,
    image_of,
    mask_field,
    mask_of,
    read_picture,
    to_jpeg,
    view_of,
)
from tfrecorder.inspection.sheets import (
    PER_CLASS,
    Sheets,
    Sighting,
    extreme_boxes,
    looks_in,
    sheets_of,
    tile_of,
)
from tfrecorder.inspection.suspects import embeddings_of, places_of
from tfrecorder.options.read import PreviewOptions
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.info import DatasetInfo, info, summed
from tfrecorder.reading.record_set import Record, read_numbered
from tfrecorder.reading.shard_tables import read_row_list
from tfrecorder.schema.fields import Field, of_kind
from tfrecorder.schema.keys import number_column
from tfrecorder.schema.kinds import Label

#: So many of the images of each split that are looked at are decoded in full size, for their blur,
#: and so many are compared with others for the class sheets.
IN_FULL = 100
COMPARED = 1000

#: Pictures in a row of examples: the darkest, the brightest, or those that are unusual.
EXAMPLES = 8
#: Images with several records that are shown: so many that leak, and so many that do not.
SHOWN_GROUPS = 12
#: How many rejects and how many suspects are shown.
SHOWN_ROWS = 20

#: Records that the pool of threads holds at once.
_AHEAD = 16

#: The grey levels of a near-constant image, and of one of low contrast, from 0 to 255, deviate by
#: less from their mean.
NEAR_CONSTANT = 4.0
LOW_CONTRAST = 8.0

#: Nearly all pixels of a dark image are below the first grey level, of a bright one above the
#: second.
_DARK = 64
_BRIGHT = 192

#: An image is of an odd size if it is so many times smaller or larger than the median, and of an
#: odd shape if its longer side is, measured by its shorter one, so many times as long.
_ODD_SIZE = 4
_ODD_SHAPE = 3

#: An image is blurred if it has more of `blur_of`.  None of 215 sharp photographs had more than
#: 0.53; smoothed by a Gaussian of 4 pixels, 95 % of 202 had more than 0.69.
_BLURRED = 0.6

_T = TypeVar("_T")

_MEASURED = ["split", "number", "row", "height", "width", "brightness", "contrast"]


@dataclass(frozen=True)
class Gathered:
    """Everything a page shows.

    Attributes:
        info: counts, classes, rejects by reason, options.
        before: the same before its newest generation; None if it has one only, or if that is not
            known.
        seed: for the random records.
        seen: the records that were decoded, by split.
        sheet: random records, by split.
        images: all whose size and brightness are known, as `measured` gives them.
        unusual: those that are unlike the others.
        extremes: a few of the darkest, the brightest and of each kind of unusual ones, after a
            title and words.
        duplicates: images with several records.
        near: near copies; None for what other tools wrote, and without images.
        near_pairs: two records of each group of near copies that is shown.
        pictures: the first record of each duplicate that is shown, by its place.
        sheets: pictures or objects by class; None without classes.
        suspects_by_model: records whose labels a model doubts, the most doubtful first.
        boxes: some of the smallest and of the largest objects, and of those beside their mask,
            after a title.
        levels: the values of the masks; empty if they are not known.
        row_column: the name of the column with the number of a row.
        label: the column with the label of a picture; None if there is not one such column.
        rejects, suspects: the first rows of the two lists; None if they are not known.
    """

    info: DatasetInfo
    before: DatasetInfo | None
    seed: int
    seen: Mapping[str, Sequence[RecordView]]
    sheet: Mapping[str, Sequence[RecordView]]
    images: pd.DataFrame
    unusual: Sequence[Unusual]
    extremes: Sequence[tuple[str, str, Sequence[RecordView]]]
    duplicates: Duplicates
    near: NearCopies | None
    near_pairs: Sequence[Sequence[RecordView]]
    pictures: Mapping[tuple[str, int], RecordView]
    sheets: Sheets | None
    boxes: Mapping[str, Sequence[Sighting]]
    suspects_by_model: Sequence[Sighting]
    rejects: Sequence[Sequence[str]] | None
    suspects: Sequence[Sequence[str]] | None
    levels: Collection[int]
    row_column: str
    label: Field | None

    @property
    def counted(self) -> bool:
        """Whether the counts of classes cover all records, or only those decoded."""
        return bool(self.info.class_counts)

    @cached_property
    def class_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Records by split and class."""
        return self.info.class_counts or {
            split: Counter(label for view in views for label in view.labels)
            for split, views in self.seen.items()
        }

    @property
    def class_totals(self) -> dict[str, int]:
        """Records by class; if all were counted, this includes classes that have none."""
        names = dict.fromkeys(self.info.class_names or (), 0) if self.counted else {}
        return summed([names, *self.class_counts.values()])

    @cached_property
    def all_seen(self) -> list[RecordView]:
        return [view for of_split in self.seen.values() for view in of_split]

    @cached_property
    def usable(self) -> list[RecordView]:
        """The decoded records whose image can be shown."""
        return [view for view in self.all_seen if view.width]

    @cached_property
    def unshown(self) -> list[RecordView]:
        """The records looked at whose image cannot be shown."""
        return [view for view in self.all_seen if view.fault and not view.width]

    @property
    def constants(self) -> int:
        """How many of the images are near-constant."""
        return sum(len(of.images) for of in self.unusual if of.name == "near-constant")

    @property
    def of_images(self) -> str:
        """Of how many images size and brightness are known, in words."""
        words = counted(len(self.images), "image")
        return words if len(self.images) == self.info.records else f"{words} looked at"


class Unusual(NamedTuple):
    """Some images that are unlike others.

    Attributes:
        name: what they are, in a word or two.
        words: how that is meant.
        images: rows of `measured`, the oddest first.
        among: how many images were looked at, in words; "" for all that are known.
    """

    name: str
    words: str
    images: pd.DataFrame
    among: str = ""


def gather(
    stored: StoredDataset,
    info: DatasetInfo,
    options: PreviewOptions,
    stage: Stage,
    suspects: pd.DataFrame | None = None,
    embeddings: Any = None,
) -> Gathered:
    """Read what a page shows.

    Args:
        stored: the dataset.
        info: what is known about it without reading a record.
        options: what to look at.
        stage: part of a progress bar.
        suspects: as `tfrecorder.suspects` gives them; None for none.
        embeddings: as for `preview`.

    Raises:
        OptionError: the embeddings, or the suspects, do not fit the dataset.
        DatasetError: an index, a record or a list in the dataset is damaged.
    """
    per_split = options.per_split
    seed = options.seed
    drawn = draw(stored, max(options.num_records, per_split), seed)
    in_full = {split: {*numbers[:IN_FULL]} for split, numbers in drawn.items()}
    most = COMPARED if embeddings is None else 0
    compared = {split: {*numbers[:most]} for split, numbers in drawn.items()}
    vectors = {}
    if embeddings is not None:
        chosen = {(split, number) for split, numbers in drawn.items() for number in numbers}
        vectors = embeddings_of(stored, embeddings, chosen)
    with ThreadPool() as pool:
        mask = mask_field(stored)
        levels = levels_in(info.statistics, mask.column) if mask else []
        looker = _Looker(stored, levels, in_full, compared, pool=pool, stage=stage)
        seen: dict[str, list[RecordView]] = {split: [] for split in drawn}
        for view in looker.views(drawn, "decoding"):
            if view.width and view.place in vectors:
                view = replace(view, looks=vectors[view.place][None])
            seen[view.split].append(view)
        started = time.monotonic()
        looks = None
        near = None
        if stored.form == "tfrecorder" and stored.image_key:
            try:
                looks = looks_of(stored)
            except DatasetError as error:
                near = NearCopies(notes=[str(error)])
        duplicates = find_duplicates(stored, options.seconds, stage, looks)
        if looks is not None:
            left = options.seconds - (time.monotonic() - started)
            near = find_near_copies(stored, looks, duplicates, stage, left)
        near_pairs = near.pairs(SHOWN_GROUPS) if near else []
        every_view = [*itertools.chain(*seen.values())]
        # Split by split in turn: only so many objects are compared.
        in_turn = itertools.chain.from_iterable(itertools.zip_longest(*seen.values()))
        sheets = sheets_of([*filter(None, in_turn)], embeddings is not None)
        if sheets is not None:
            sheets = replace(sheets, shown=looker.tiled(sheets.shown))
        boxes = extreme_boxes(every_view)
        if beside := boxes_beside_masks(every_view):
            boxes["Beside what the mask marks"] = beside[:EXAMPLES]
        boxes = looker.tiled(boxes)
        by_model = [] if suspects is None else looker.doubted(suspects)
        images = measured(looks, every_view)
        odd = [*unusual(images), *blurred(every_view)]
        extremes = _extremes(images, odd)
        sheet = {}
        for split, drawn_here in drawn.items():
            sheet[split] = [(split, number) for number in drawn_here[:per_split]]
        groups = duplicates.leaks[:SHOWN_GROUPS] + duplicates.repeats[:SHOWN_GROUPS]
        firsts = [group.copies[0].place for group in groups]
        large = looker.pictures(itertools.chain(*sheet.values(), *near_pairs), SIDE)
        try:
            small = looker.pictures([*_all_places(extremes), *firsts], SMALL_SIDE)
        except DatasetError:  # a record is damaged that was not looked at yet
            extremes = _extremes(measured(None, every_view), [])
            small = looker.pictures([*_all_places(extremes), *firsts], SMALL_SIDE)
    labels = [*of_kind(stored.fields, Label)]
    return Gathered(
        info=info,
        before=_before(stored, info),
        seed=seed,
        seen=seen,
        sheet={split: [large[place] for place in places] for split, places in sheet.items()},
        images=images,
        unusual=odd,
        extremes=[(title, words, [small[p] for p in places]) for title, words, places in extremes],
        duplicates=duplicates,
        near=near,
        near_pairs=[[large[place] for place in pair] for pair in near_pairs],
        pictures={place: small[place] for place in firsts},
        sheets=sheets,
        boxes=boxes,
        suspects_by_model=by_model,
        rejects=_first_rows(stored, layout.REJECTS),
        suspects=_first_rows(stored, layout.SUSPECTS),
        levels=levels,
        row_column=number_column([field.column for field in stored.fields]),
        label=labels[0] if len(labels) == 1 else None,
    )


@dataclass(frozen=True)
class _Looker:
    """Looks at records of a dataset in some threads.

    Attributes:
        levels: the values of all masks, if they are known.
        in_full: the numbers of the records of each split whose details are shown too.
        compared: of those that are compared with others.
        stage: part of a progress bar.
    """

    stored: StoredDataset
    levels: Collection[int]
    in_full: Mapping[str, Collection[int]]
    compared: Mapping[str, Collection[int]]
    pool: ThreadPool
    stage: Stage

    def views(
        self,
        numbers: Mapping[str, Collection[int]],
        verb: str,
        side: int | None = None,
    ) -> list[RecordView]:
        """What is seen of records, by their numbers in each split; `side` as for `look`."""
        return self._of_each(functools.partial(self._view, side=side), numbers, verb)

    def _of_each(
        self,
        function: Callable[[Record], _T],
        numbers: Mapping[str, Collection[int]],
        verb: str,
    ) -> list[_T]:
        """What a function gives of records, by their numbers in each split."""
        records: list[Iterable[Record]] = []
        for split, of_split in numbers.items():
            records.append(read_numbered(self.stored, split, of_split))
        every = itertools.chain.from_iterable(records)
        results = map_ahead(self.pool, function, every, _AHEAD)
        return list(counting(results, self.stage(verb, sum(map(len, numbers.values())))))

    def doubted(self, suspects: pd.DataFrame) -> list[Sighting]:
        """Some of the records whose labels a model doubts, with their pictures.

        Raises:
            OptionError: a row is not in the dataset.
        """
        number = "source_row" if "source_row" in suspects else "row"
        if missing := {number, "suggested"} - {*suspects.columns}:
            words = f"it has no column {min(missing)!r}; give what `tfrecorder.suspects` returns."
            raise OptionError.of("suspects", ..., words)
        chosen = suspects[:PER_CLASS]
        wanted = chosen[number].tolist()
        places = places_of(self.stored, by_row=True)
        if unknown := [row for row in wanted if row not in places]:
            raise OptionError.of("suspects", unknown[0], "the dataset has no such row.")
        found = [places[row] for row in wanted]
        views = self.pictures(found, SMALL_SIDE)
        doubts = []
        for place, suggested in zip(found, chosen["suggested"], strict=True):
            view = views[place]
            doubts.append(Sighting(view, ", ".join(view.labels), None, like=str(suggested)))
        return self.tiled({"": doubts})[""] if doubts else []

    def tiled(self, sheets: Mapping[str, Sequence[Sighting]]) -> dict[str, list[Sighting]]:
        """What class sheets show, with its pictures."""
        tiles: dict[Place, dict[Box | None, tuple[bytes, int, int]]] = {}
        numbers: dict[str, set[int]] = {}
        for one in itertools.chain.from_iterable(sheets.values()):
            tiles.setdefault(one.view.place, {})[one.box] = (b"", 0, 0)
            numbers.setdefault(one.view.split, set()).add(one.view.number)

        def draw_parts(record: Record) -> None:
            image = image_of(record.features, self.stored)
            of_record = tiles[record.split, record.number]
            for box in of_record:
                of_record[box] = tile_of(image, box)

        self._of_each(draw_parts, numbers, "drawing")
        tiled = {}
        for name, of_class in sheets.items():
            tiled[name] = [replace(one, tile=tiles[one.view.place][one.box]) for one in of_class]
        return tiled

    def _view(
        self,
        record: Record,
        side: int | None,
    ) -> RecordView:
        if side is not None:
            return look(record, self.stored, side, self.levels)
        return look(
            record,
            self.stored,
            levels=self.levels,
            in_full=record.number in self.in_full[record.split],
            is_compared=record.number in self.compared[record.split],
        )

    def pictures(
        self,
        places: Iterable[tuple[str, int]],
        side: int,
    ) -> dict[Place, RecordView]:
        """Pictures of records at their places (split, number)."""
        numbers: dict[str, set[int]] = {}
        for split, number in places:
            numbers.setdefault(split, set()).add(number)
        return {view.place: view for view in self.views(numbers, "drawing", side)}


def _before(stored: StoredDataset, about: DatasetInfo) -> DatasetInfo | None:
    """What was known before the newest generation; None if it is the only one, or was changed."""
    numbers = [*about.generations]
    try:
        return info(stored.directory, numbers[-2]) if len(numbers) > 1 else None
    except DatasetError:  # records were removed since
        return None


def measured(looks: pd.DataFrame | None, seen: Iterable[RecordView]) -> pd.DataFrame:
    """The images whose size and grey levels are known.

    Args:
        looks: what the tables know of all images, as `looks_of` gives it; None if there is nothing.
        seen: the records that were decoded; what the tables do not know is known of these.

    Returns:
        A row for each: its `split`, `number` and `row`; `height` and `width` in pixels, of its file
        or, if the tables do not know it, of its record; `brightness` and `contrast`, mean and
        deviation of the grey levels from 0 to 255.
    """
    views = ([getattr(view, name) for name in _MEASURED] for view in seen if view.width)
    images = pd.DataFrame(views, columns=_MEASURED)
    if looks is not None:
        levels = {"brightness": looks["mean"] / 100, "contrast": looks["deviation"] / 100}
        noted = looks.assign(**levels)[_MEASURED].dropna()
        images = pd.concat([noted, images]).drop_duplicates(["split", "number"])
    return images.astype(dict.fromkeys(_MEASURED[3:], float)).reset_index(drop=True)


def unusual(images: pd.DataFrame) -> list[Unusual]:
    """The images that are unlike others; of several kinds that an image is of, the first."""
    if images.empty:
        return []
    sides = images[["height", "width"]]
    brightness = images["brightness"]
    contrast = images["contrast"]
    shorter = sides.min(axis=1)
    shape = sides.max(axis=1) / sides.min(axis=1)
    side = shorter.median()
    ratio = shape.median()
    small = side / _ODD_SIZE
    large = side * _ODD_SIZE
    levels = "their grey levels vary by less than {:g} of 255"
    pixels = "nearly all of their pixels are {} the grey level {} of 255"
    odd_side = f"their shorter side is below {small:,.0f} or above {large:,.0f} pixels"
    odd_shape = f"their sides stand at more than {ratio * _ODD_SHAPE:.1f} : 1"
    # Of each kind what must be below 0.
    kinds = {
        ("near-constant", levels.format(NEAR_CONSTANT)): contrast - NEAR_CONSTANT,
        ("of low contrast", levels.format(LOW_CONTRAST)): contrast - LOW_CONTRAST,
        ("dark", pixels.format("below", _DARK)): brightness + 2 * contrast - _DARK,
        ("bright", pixels.format("above", _BRIGHT)): _BRIGHT - brightness + 2 * contrast,
        ("of an odd size", f"{odd_side}, the median is {side:,.0f}"): (
            np.log(_ODD_SIZE) - np.log(shorter / side).abs()
        ),
        ("of an odd shape", f"{odd_shape}, the median at {ratio:.1f} : 1"): (
            _ODD_SHAPE * ratio - shape
        ),
    }
    groups = []
    rest = pd.Series(True, images.index)
    for (name, words), excess in kinds.items():
        chosen = excess[rest & (excess < 0)].sort_values(kind="stable").index
        rest[chosen] = False
        if len(chosen):
            groups.append(Unusual(name, words, images.loc[chosen]))
    return groups


def blurred(seen: Iterable[RecordView]) -> list[Unusual]:
    """The blurred images among those of which that is known."""
    columns = [*_MEASURED, "blur"]
    views = [[getattr(view, name) for name in columns] for view in seen if view.blur is not None]
    images = pd.DataFrame(views, columns=columns).sort_values("blur", ascending=False)
    chosen = images[images["blur"] > _BLURRED]
    words = "smoothing hardly changes their edges"
    among = counted(len(views), "image") + " looked at in full size"
    return [Unusual("blurred", words, chosen, among)] if len(chosen) else []


def draw(
    stored: StoredDataset,
    num_records: int,
    seed: int,
) -> dict[str, list[int]]:
    """At most this many record numbers from each split, in a seeded random order."""
    drawn = {}
    for place, split in enumerate(stored.splits):
        records = stored.records(split) or 0
        random = np.random.default_rng([seed, place])
        size = min(num_records, records)
        drawn[split] = random.choice(records, size, replace=False).tolist() if size else []
    return drawn


def look(
    record: Record,
    stored: StoredDataset,
    side: int | None = None,
    levels: Collection[int] = (),
    in_full: bool = False,
    is_compared: bool = False,
) -> RecordView:
    """A record whose image is decoded; with its picture, if the longer side of one is given.

    Args:
        levels: the values of all masks, if they are known.
        in_full: decode the image in its full size too, for its blur.
        is_compared: note what class sheets compare of it.
    """
    features = record.features
    image = image_of(features, stored)
    view = view_of(record, stored, image)
    if not stored.image_key:
        return view
    try:
        pixels, (width, height) = read_picture(image, side or SIDE)
        grey = np.asarray(pixels.convert("L"), dtype=np.float32)
        brightness = float(grey.mean())
        contrast = float(grey.std())
        view = replace(
            view,
            width=width,
            height=height,
            brightness=brightness,
            contrast=contrast,
        )
        if side is None:
            view = replace(view, blur=blur_of(image)) if in_full else view
            boxes = boxes_of(features, stored, (width, height))
            looks = looks_in(pixels, boxes) if is_compared else None
            view = replace(view, boxes=boxes, looks=looks)
            if not (view.masked and boxes and is_compared):
                return view
            mask = mask_in(mask_of(features, stored))
            return replace(view, beside=beside_mask(boxes, mask, levels))
        # The picture is kept if its mask does not decode, or its boxes are unsound.
        view = replace(view, jpeg=to_jpeg(pixels), thumb=pixels.size)
        if view.masked:
            mask = mask_in(mask_of(features, stored))
            view = replace(view, jpeg=to_jpeg(outlined(pixels, mask, levels)))
        return replace(view, boxes=boxes_of(features, stored, (width, height)))
    except ValueError as error:
        return replace(view, fault=str(error))


#: A title, words, and the places of a few images.
_Extreme = tuple[str, str, list[Place]]


def _extremes(images: pd.DataFrame, odd: Iterable[Unusual]) -> list[_Extreme]:
    """A few of the darkest images, the brightest and the unusual ones."""
    by_brightness = images.sort_values("brightness", kind="stable")
    kinds = [("Darkest", "", by_brightness), ("Brightest", "", by_brightness[::-1])]
    for of in odd:
        if of.name not in ("dark", "bright"):
            words = f"{len(of.images):,}, {of.words}"
            kinds.append((of.name.capitalize(), words, of.images))
    extremes = []
    for title, words, rows in kinds:
        if len(rows):
            extremes.append((title, words, _places(rows[:EXAMPLES])))
    return extremes


def _all_places(extremes: Sequence[_Extreme]) -> Iterator[Place]:
    return itertools.chain.from_iterable(places for _, _, places in extremes)


def boxes_beside_masks(views: Iterable[RecordView]) -> list[Sighting]:
    """Objects whose boxes hold nothing of what the mask of their picture marks."""
    return [Sighting(view, box.name, box) for view in views for box in view.beside or ()]


def _places(images: pd.DataFrame) -> list[Place]:
    return [*zip(images["split"], images["number"].astype(int), strict=True)]


def _first_rows(stored: StoredDataset, name: str) -> Sequence[Sequence[str]] | None:
    """The first rows of a list; None for what other tools wrote, which has no such list."""
    if stored.form != "tfrecorder":
        return None
    return read_row_list(stored.directory, name)[:SHOWN_ROWS]
