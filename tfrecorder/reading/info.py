"""`info`: what a dataset and its columns hold, to print or to show in a notebook."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.display.messages import command, warn
from tfrecorder.display.tables import (
    Report,
    Table,
    class_words,
    counted,
    cut,
    one_line,
    readable_bytes,
)
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecords, add_up
from tfrecorder.format.manifest import losses_in_words
from tfrecorder.format.plan import Shape
from tfrecorder.format.summary import NOT_STORED, UPRIGHT
from tfrecorder.images.geometry import Sides
from tfrecorder.images.header import reduced_in_words, reduced_of
from tfrecorder.images.near_copies import Copies, unseen_in_words
from tfrecorder.options.keywords import Path
from tfrecorder.options.read import NamedKeys
from tfrecorder.reading.commits import Commit, all_done, commits, opened_commit, stored_card
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.merged_rows import exact_copies, unseen_images
from tfrecorder.reading.open import open_dataset
from tfrecorder.reading.shard_tables import reject_counts
from tfrecorder.schema.fields import Field, class_field, image_of, of_kind, primary_image
from tfrecorder.schema.kinds import Image, Mask, ValueKind
from tfrecorder.schema.statistics import Statistics, merged

#: How many of the most frequent values the printed table shows; programs get ten.
SHOWN_VALUES = 3

#: How many characters of the shares of masks' values it shows; programs get all.
SHOWN_SHARES = 120


@dataclass(frozen=True)
class ColumnInfo:
    """One column of a dataset.

    Attributes:
        kind: its word in a schema file, such as "image" or "number".
        dtype: "uint8" or "uint16" for pixels, "int64" for classes, "float32" for boxes, "string"
            for texts, bytes and files; for numbers as in the schema.
        shape: () is one value, (None,) a list of any length; for images and masks height, width
            and channels, None where they differ.
        num_classes: of labels and of boxes with labels; None for others.
        class_names: by integer; None if there are none.
    """

    kind: str
    dtype: str
    shape: tuple[int | None, ...]
    num_classes: int | None = None
    class_names: tuple[str, ...] | None = None


#: Of kinds all of whose columns have the same, by their words.
_DTYPES = {"mask": "uint8", "label": "int64", "labels": "int64", "boxes": "float32"}
_SHAPES: dict[str, tuple[int | None, ...]] = {"labels": (None,), "boxes": (None, 4)}


def columns_of(stored: StoredDataset) -> dict[str, ColumnInfo]:
    """The columns that make features, by name."""
    return {field.column: _column(field, stored) for field in stored.fields}


def _column(field: Field, stored: StoredDataset) -> ColumnInfo:
    kind = field.kind
    dtype = _DTYPES.get(kind.word, "string")
    shape = _SHAPES.get(kind.word, ())
    if isinstance(kind, Image):
        dtype = f"uint{field.depth}"
        shape = stored.shape_of(field.encoded_key)
    elif isinstance(kind, Mask):
        image = image_of(field, stored.fields)
        shape = (*stored.shape_of(image.encoded_key)[:2], 1)
    elif isinstance(kind, ValueKind):
        dtype = getattr(kind, "dtype", dtype)
        shape = kind.shape
    count = None if field.label_key is None else field.num_classes
    return ColumnInfo(kind.word, dtype, shape, count, field.names)


def column_tables(
    columns: Mapping[str, ColumnInfo], statistics: Mapping[str, Any]
) -> list[list[list[str]]]:
    """Tables to print: the columns, the statistics of numbers, and the most frequent values."""
    kinds = [["column", "kind", "type", "classes", "shape"]]
    for name, column in columns.items():
        classes = "" if column.num_classes is None else f"{column.num_classes:,}"
        kinds.append([one_line(name), column.kind, column.dtype, classes, str(column.shape)])
    described = [
        (name, split, stats)
        for name, of_splits in statistics.items()
        for split, stats in of_splits.items()
        if "shares" not in stats
    ]
    absent = ["missing"] if any("missing" in stats for *_, stats in described) else []
    numbers = [["numbers", "split", "count", *absent, "min", "max", "mean", "std"]]
    values = [["values", "split", "count", *absent, "distinct", "most frequent"]]
    for name, split, stats in described:
        counts = [f"{stats.get(what, 0):,}" for what in ("count", *absent)]
        cells = [one_line(name), split, *counts]
        if "top" in stats:
            values.append([*cells, f"{stats['distinct']:,}", _most_frequent(stats)])
        else:
            wanted = (stats.get(what) for what in ("min", "max", "mean", "std"))
            numbers.append([*cells, *map(_number, wanted)])
    return [table for table in (kinds, numbers, values) if len(table) > 1]


def mask_words(statistics: Mapping[str, Any]) -> dict[str, bool]:
    """Sentences on the values of masks and their shares of the pixels; True for what looks odd."""
    words = {}
    for column, of_splits in statistics.items():
        shares = {split: stats.get("shares", {}) for split, stats in of_splits.items()}
        levels = set[int]().union(*shares.values())
        for split in shares if levels else ():
            shown = ", ".join(f"{value}: {share:.2%}" for value, share in shares[split].items())
            words[f"{column} in {split}: {cut(shown, SHOWN_SHARES)}"] = False
        if 255 in levels <= {0, 255}:
            odd = f"{column} has only the values 0 and 255: for a loss, 255 is no second class, and"
            words[f"{odd} often means to leave a pixel out; `mask // 255` makes it 1"] = True
    return words


def _most_frequent(stats: Mapping[str, Any]) -> str:
    shown = []
    for value, count in stats["top"][:SHOWN_VALUES]:
        shown.append(f"{count:,} {cut(value, 20)!r}")
    more = ", …" if stats["distinct"] > len(shown) else ""
    return ", ".join(shown) + more


def _number(value: float | int | bool | None) -> str:
    """A statistic as a cell; empty if no value is finite."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


#: How many of the newest generations the printed table shows; `as_dict` has all.
SHOWN_GENERATIONS = 10

#: From this many generations on, if they are smaller than this on average, we suggest `compact`.
MANY_GENERATIONS = 10
SMALL_GENERATION = 128 * 2**20

#: How many classes the printed table shows; `as_dict` has all.
SHOWN_CLASSES = 20


@dataclass(frozen=True)
class SplitInfo:
    """One split.

    Attributes:
        records: how many; None if not known without reading everything.
        shards: how many files.
        bytes: total size of the files.
    """

    records: int | None
    shards: int
    bytes: int


@dataclass(frozen=True, repr=False)
class DatasetInfo(Report):
    """A dataset directory.

    Attributes:
        directory: as given.
        form: "tfrecorder", "tfds" or "files".
        splits: by name, TRAIN first.
        class_names: by integer; for integer labels, the numbers as text; None without labels, or
            if not known.
        num_classes: None if not known; 0 without labels.
        class_counts: for each split, the number of records of each class by name (by number, as
            text, if classes have no names); classes without a record are left out.  None if several
            columns have classes, or if not known without reading everything.
        image_shape: (height, width, channels) of every image, None where images differ.
        image_sides: (smallest, largest) of the images' shorter sides and of their longer sides, in
            pixels; None if not known.
        features: the kind of each key of a record: image, mask, label, text, bytes, int64, float
            or bool.  For other tools' records without metadata, as seen in the first few records.
        formats: number of records by image format; empty if not known.
        rejects: number of rows without a record, by "stage/code".
        suspects: number of records whose image decodes, but with a warning from the decoder.
        oriented: number of records whose image has an EXIF orientation other than upright.
        reduced: number of images of which training does not see all, by what: "depth" (16 bits),
            "frames", "alpha", "cmyk" or "profile" (of colours).
        copies: how many records are exact copies of earlier ones; `tfrecorder.duplicates` compares
            pictures too.  None for datasets of other tools, and without images.
        unseen: number of images without a fingerprint, of which near copies are not found; None if
            not known.
        options: of the conversion, by name; empty for datasets of other tools.
        statistics: of the source, by column and split.  Numbers have count, min, max, mean and
            std; other columns have count, distinct and the most frequent values; both have missing,
            the rows that got the default and are not in the others, if there are any.  Boxes have
            those of their edges, area and number under names such as "boxes x_min".  Masks, as they
            are stored, have count, of pixels, and shares, of each value that occurs.
        columns: the kind, type and shape of each, by name.
        generations: by number, what each added: records, shards and bytes; empty for datasets of
            other tools.
        card: the number of the commit that its card describes; None if it has none.
        looked: the records from which the columns are concluded, in words; empty if it is stated.
        unread: keys of images, labels, boxes and masks in other tools' records that we do not
            understand, with a sentence on each; `load` then needs `image`, `label` or `targets`.
        lost: what was lost and nobody knows any more, a sentence for each kind.
        not_stored: what of the source's annotations the records do not hold, such as key points.
        upright: why boxes are taken to be of the images turned upright, where stated sizes say so.
    """

    _totals = ("records", "shards", "bytes")

    directory: str
    form: str
    splits: Mapping[str, SplitInfo]
    class_names: tuple[str, ...] | None
    num_classes: int | None
    image_shape: Shape
    features: Mapping[str, str]
    formats: Mapping[str, int] = field(default_factory=dict)
    rejects: Mapping[str, int] = field(default_factory=dict)
    suspects: int = 0
    oriented: int = 0
    reduced: Mapping[str, int] = field(default_factory=dict)
    copies: Copies | None = None
    unseen: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    class_counts: Mapping[str, Mapping[str, int]] | None = None
    image_sides: Sides | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, ColumnInfo] = field(default_factory=dict)
    generations: Mapping[int, SplitInfo] = field(default_factory=dict)
    looked: str = ""
    unread: Mapping[str, str] = field(default_factory=dict)
    card: int | None = None
    lost: tuple[str, ...] = ()
    not_stored: tuple[str, ...] = ()
    upright: tuple[str, ...] = ()

    @property
    def records(self) -> int | None:
        """The number of records in all splits together."""
        counts = [split.records for split in self.splits.values()]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def shards(self) -> int:
        return sum(split.shards for split in self.splits.values())

    @property
    def bytes(self) -> int:
        return sum(split.bytes for split in self.splits.values())

    def class_weights(self) -> dict[int, float]:
        """Weights of the classes in a loss, with which each class of TRAIN counts alike.

        A class has n / (k * its records), for n records of k classes, as scikit-learn's "balanced".
        A class without a TRAIN record has 0, and a warning names it.

        Returns:
            The weight of each class by its integer, in their order: Keras takes it as
            `class_weight`, and torch `torch.tensor([*weights.values()])` as `weight`.

        Raises:
            DatasetError: the classes of TRAIN are not known.

        Example:
            >>> weights = tfrecorder.info("out").class_weights()  # doctest: +SKIP
            >>> model.fit(train, class_weight=weights)  # doctest: +SKIP
        """
        of_train = (self.class_counts or {}).get("TRAIN", {})
        counts = {name: count for name, count in of_train.items() if count}
        if not (counts and self.num_classes):
            raise DatasetError(
                f"{self.directory}: it is not known how many TRAIN records each class has. Count "
                f"those of a column: `np.bincount(tfrecorder.Records({self.directory!r}, "
                "'TRAIN').labels('COLUMN'))`."
            )
        names = self.class_names
        if absent := [name for name in names or () if name not in counts]:
            warn(f"{self.directory}: classes without a TRAIN record, {class_words(absent)}.")
        numbers = enumerate(names) if names else ((int(name), name) for name in counts)
        mean = sum(counts.values()) / len(counts)
        return {n: mean / counts[name] if name in counts else 0.0 for n, name in numbers}

    def _headline(self) -> str:
        return self.directory

    def _in_a_line(self) -> str:
        known = "" if self.records is None else f"{counted(self.records, 'record')}, "
        return f"{self.directory}: {known}{counted(self.shards, 'shard')}"

    def _tables(self) -> list[Table]:
        table = [["split", "records", "shards", "bytes"]]
        for name, split in self.splits.items():
            table.append([name, *_cells(split)])
        columns = column_tables(self.columns, self.statistics)
        of_columns = [Table(rows) for rows in columns]
        if self.rejects and columns and columns[-1][0][0] != "column":
            below = "The statistics include rows without a record."
            of_columns[-1] = Table(columns[-1], below)
        return [Table(table), *self._generation_table(), *self._class_table(), *of_columns]

    def _generation_table(self) -> list[Table]:
        """The newest generations; empty if the dataset was never appended to."""
        if len(self.generations) < 2:
            return []
        table = [["generation", "records", "shards", "bytes"]]
        for number, counts in list(self.generations.items())[-SHOWN_GENERATIONS:]:
            table.append([str(number), *_cells(counts)])
        return [Table(table, _more(len(self.generations) - SHOWN_GENERATIONS, "earlier"))]

    def _class_table(self) -> list[Table]:
        """Records of the most frequent classes, by class and split; empty if not known."""
        if self.class_counts is None:
            return []
        names = dict.fromkeys(self.class_names or (), 0)
        totals = summed([names, *self.class_counts.values()])
        if not totals:
            return []
        shown = sorted(totals, key=lambda name: -totals[name])[:SHOWN_CLASSES]
        if len(totals) <= SHOWN_CLASSES:
            shown = list(totals)
        table = [["class", *self.splits, "all"]]
        for name in shown:
            counts = [self.class_counts.get(split, {}).get(name, 0) for split in self.splits]
            counts.append(totals[name])
            table.append([one_line(name), *(f"{count:,}" for count in counts)])
        return [Table(table, _more(len(totals) - SHOWN_CLASSES, "more"))]

    def _notes(self) -> list[str]:
        return [f"{name}: {words}" for name, words in self._noted()]

    def _noted(self) -> Iterator[tuple[str, str]]:
        if "image" in self.features.values():
            yield "images", _sizes_in_words(self.image_shape)
        if self.image_sides:
            shorter, longer = (_range(*extremes) for extremes in self.image_sides)
            yield "sizes", f"shorter side {shorter}, longer side {longer} pixels"
        if self.formats:
            yield "formats", _counts(self.formats)
        labels = [key for key, kind in self.features.items() if kind == "label"]
        if self.class_names is not None:
            yield "classes", class_words(self.class_names)
        elif len(labels) > 1:
            yield "classes", "of several columns: " + ", ".join(labels)
        elif self.num_classes is not None:
            number = f"{self.num_classes} without names" if self.num_classes else "no labels"
            yield "classes", number
        yield "features", ", ".join(self.features)
        if self.looked:
            yield "columns", f"as in {self.looked}; another record is an error when it is read"
        for words in self.unread.values():
            yield "not understood", words
        for words in self.not_stored:
            yield "not stored", words
        for words in self.upright:
            yield "upright", words
        if self.rejects:
            where = os.path.join(self.directory, layout.REJECTS)
            yield "rejects", f"{_counts(self.rejects)}; see {where}"
        if self.suspects:
            where = os.path.join(self.directory, layout.SUSPECTS)
            single = "image decodes with a warning"
            many = "images decode with a warning"
            yield "suspects", f"{counted(self.suspects, single, many)}; see {where}"
        if self.oriented:
            applies = spelled("apply_exif", True)
            words = f"an EXIF orientation, which training does not apply: {applies} does"
            single = f"image carries {words}"
            yield "orientation", counted(self.oriented, single, f"images carry {words}")
        yield from reduced_in_words(self.reduced).items()
        for words in mask_words(self.statistics):
            yield "masks", words
        if self.copies is not None:
            yield "copies", self.copies.words(self.directory)
        if self.unseen:
            yield "near copies", unseen_in_words(self.unseen)
        elif self.unseen is None and self.generations:
            counts = command("duplicates", self.directory)
            yield "near copies", f"`{counts}` counts the images without a fingerprint"
        if self.card is not None and self._changed_since(self.card):
            again = command("card", self.directory)
            words = f"older than the dataset: of commit {self.card}; `{again}` writes it again"
            yield "card", words
        yield from self._advice()
        for words in self.lost:
            yield "not known any more", words
        chosen = {name: value for name, value in self.options.items() if value is not None}
        if "shard_size" in chosen:
            chosen["shard_size"] = readable_bytes(chosen["shard_size"])
        if chosen:
            yield "options", ", ".join(f"{n}={value!r}" for n, value in chosen.items())

    def _changed_since(self, number: int) -> bool:
        """Whether the records are others than those as of a commit, by its number."""
        later = (counts for n, counts in self.generations.items() if n > number)
        return number not in self.generations or any(counts.shards for counts in later)

    def _advice(self) -> Iterator[tuple[str, str]]:
        """Advice for many small generations, which are slow to read."""
        count = len(self.generations)
        if count < MANY_GENERATIONS:
            return
        added = list(self.generations.values())[1:]
        mean = sum(generation.bytes for generation in added) // len(added)
        if mean < SMALL_GENERATION:
            merges = command("compact", self.directory)
            words = f"{count:,}, of {readable_bytes(mean)} on average; `{merges}` merges them"
            yield "generations", words


def _sizes_in_words(shape: Shape) -> str:
    """(height, width, channels) in words, with None where images differ."""
    height, width, channels = shape
    many = "channels vary" if channels is None else f"{channels} channels"
    if height is None and width is None:
        return f"sizes vary, {many}"
    return f"{height or 'any'} x {width or 'any'} pixels (height x width), {many}"


def _cells(counts: SplitInfo) -> list[str]:
    """Counts for a table."""
    records = "?" if counts.records is None else f"{counts.records:,}"
    return [records, f"{counts.shards:,}", readable_bytes(counts.bytes)]


def _more(rows: int, what: str) -> str:
    """The line below a table without so many rows; "" if it has them all."""
    return f"… {rows:,} {what}" if rows > 0 else ""


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def info(
    directory: Path,
    at: int | None = None,
    image: str | None = None,
    label: str | None = None,
    features: Mapping[str, str] | None = None,
) -> DatasetInfo:
    """What a dataset directory holds; checks the names and sizes of its shards.

    Args:
        directory: as for `load`.
        at: read a dataset that was appended to only up to this generation; None is the newest.
        image, label, features: as for `load`.

    Raises:
        DatasetError: the directory is not a whole dataset, or cannot be read.

    Example:
        >>> tfrecorder.info("out").class_names  # doctest: +SKIP
        ('daisy', 'rose')
    """
    where = storage.given_path(directory)
    named = NamedKeys(image, label, features)
    with storage.failing_as(DatasetError, where):
        stored = open_dataset(where, at, named)
        card = None
        every = []
        if stored.commit is not None:
            card = stored_card(where)
            every = commits(where, opened_commit(where, stored.commit))
        of_each = [add_up(commit.done.values()) for commit in every]
        done = all_done(every)
        totals = add_up(done.values())
        rejects = totals.reasons
        if at is None and rejects:  # a later commit may have won what an earlier one rejected
            rejects = reject_counts(where)
    options = every[0].plan.options if every else {}
    labels = class_field(stored.fields)
    of_images = primary_image(stored.fields)
    copies = None
    if every and of_images is not None:
        is_quick = len(every[-1].shards) <= (1000 if storage.is_local(where) else 100)
        copies = Copies(exact_copies(where, every[-1], of_images)[0] if is_quick else None)
    return DatasetInfo(
        directory=stored.directory,
        form=stored.form,
        splits={
            name: SplitInfo(stored.records(name), len(shards), stored.bytes(name))
            for name, shards in stored.splits.items()
        },
        class_names=stored.class_names,
        num_classes=labels.num_classes if labels else 0,
        class_counts=_class_counts(labels, stored.splits, every) if labels and every else None,
        image_shape=stored.image_shape,
        image_sides=stored.sides,
        features=stored.features,
        formats=totals.formats,
        rejects=rejects,
        suspects=totals.suspects,
        oriented=totals.oriented,
        reduced=reduced_of(totals.reduced, stored.shapes.values()),
        copies=copies,
        unseen=unseen_images(stored.fields, done.values()),
        options=options,
        statistics={
            **merged(commit.plan.rows.statistics for commit in every),
            **_of_masks(of_kind(stored.fields, Mask), done),
        },
        columns=columns_of(stored),
        generations={
            commit.number: SplitInfo(counts.records, len(commit.done), counts.bytes)
            for commit, counts in zip(every, of_each, strict=True)
        },
        looked=stored.looked,
        unread=dict(stored.unread),
        card=card.commit if card else None,
        lost=tuple(losses_in_words(every[-1].plan.carried.losses)) if every else (),
        not_stored=_noted_in(every, NOT_STORED),
        upright=_noted_in(every, UPRIGHT),
    )


def _of_masks(masks: Iterable[Field], done: DoneRecords) -> Statistics:
    """The statistics of masks in each split, if they are known of all its records."""
    statistics: Statistics = {}
    for one in masks:
        counts = defaultdict[str, Counter[str]](Counter)
        for shard, record in done.items():
            if record.records:
                counts[shard.split].update(record.levels.get(one.column, {"": 1}))
        for split, levels in counts.items():
            if "" not in levels:
                total = levels.total()
                shares = {int(level): levels[level] / total for level in sorted(levels, key=int)}
                of_splits = statistics.setdefault(one.column, {})
                of_splits[split] = {"count": total, "distinct": len(shares), "shares": shares}
    return statistics


def _noted_in(every: Iterable[Commit], about: str) -> tuple[str, ...]:
    """What the operations of some commits noted that begins so, each once."""
    notes = [note for commit in every for note in commit.plan.summary.notes]
    words = [note.removeprefix(about) for note in notes if note.startswith(about)]
    return tuple(dict.fromkeys(words))


def summed(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of counts by name, in the order in which the names first appear."""
    counts = Counter[str]()
    for counts_of in several:
        counts.update(counts_of)
    return dict(counts)


def _class_counts(
    labels: Field,
    splits: Iterable[str],
    every: Sequence[Commit],
) -> dict[str, dict[str, int]]:
    """For each split, the number of records of each class by name.

    Args:
        every: the commits.
    """
    counts: dict[str, Counter[str]] = {split: Counter() for split in splits}
    for shard, record in all_done(every).items():
        counts[shard.split].update(record.classes)
    by_name = {}
    for split, of_split in counts.items():
        numbers = sorted(map(int, of_split))
        by_name[split] = {class_name(labels, number): of_split[str(number)] for number in numbers}
    return by_name


def class_name(labels: Field, number: int) -> str:
    """The name of a column's class; its number if it has no name."""
    names = labels.names or ()
    return names[number] if 0 <= number < len(names) else str(number)
