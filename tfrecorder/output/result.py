"""The result of a conversion, to print or to show in a notebook."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfrecorder.core.option import spelled
from tfrecorder.display.tables import (
    Report,
    Table,
    class_words,
    counted,
    counts_in_words,
    passed_over_words,
    readable_bytes,
    unused_words,
)
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecords, add_up
from tfrecorder.format.layout import REDUCED, STATED_OF, source_of
from tfrecorder.format.summary import Summary, left_out_words
from tfrecorder.images.header import reduced_in_words, reduced_of
from tfrecorder.images.near_copies import Copies, unseen_in_words
from tfrecorder.plan.history import since_words
from tfrecorder.reading.commits import all_done, commits, newest_commit, read_commit
from tfrecorder.reading.merged_rows import exact_copies, unseen_images
from tfrecorder.reading.shard_tables import read_tables, reject_counts, those_of
from tfrecorder.schema.fields import Field, class_field, primary_image
from tfrecorder.schema.splits import SPLITS

#: So many images are named whose stated size is another than theirs.
_NAMED = 5


@dataclass(frozen=True)
class SplitResult:
    """One split of a finished dataset.

    Attributes:
        rows: how many were planned.
        records: how many were written; rows - records were rejected.
        shards: how many files.
        bytes: the size of the files.
    """

    rows: int
    records: int
    shards: int
    bytes: int

    @property
    def rejects(self) -> int:
        return self.rows - self.records


class SplitSums:
    """The sums over all splits, of what has `splits` by name."""

    splits: Mapping[str, object]

    @property
    def rows(self) -> int:
        return self._sum("rows")

    @property
    def records(self) -> int:
        return self._sum("records")

    @property
    def shards(self) -> int:
        return self._sum("shards")

    @property
    def bytes(self) -> int:
        return self._sum("bytes")

    def _sum(self, name: str) -> int:
        return sum(getattr(split, name) for split in self.splits.values())


@dataclass(frozen=True, kw_only=True, repr=False)
class ConversionResult(Summary, SplitSums, Report):
    """A finished conversion.

    `changes`, if there are any, are those of the commit, and the figures then those of the whole
    dataset.

    Attributes:
        output_dir: the dataset directory.
        splits: by name, TRAIN first.
        rejects: rejected rows by "stage/code".
        suspects: records whose image decodes, but with a decoder's warning.
        oriented: records whose image carries an EXIF orientation other than upright.
        reduced: images of which training does not see all, by what: "depth" (16 bits), "frames",
            "alpha", "cmyk" or "profile" (of colours).
        retries: further attempts to read images, after failures that passed.
        input_bytes: the size of the image files that became records.
        class_names: by integer; for integer labels, the numbers as text; None without labels.
        empty_classes: those that no record of the dataset has, as where all their images were
            rejected; () where an append tells of itself alone.
        seconds: from the call to the commit; 0 if other processes wrote the images.
        was_finished: True if the dataset was finished before the call, which wrote nothing.
        shards_before: how many shards were done before the call, which wrote the others.
        rows_before: rows of these shards.
        generation: the number of the commit that these figures are for; 0 for the first.
        origins: all records of the dataset by where they came from: "conversion", "append", the
            name of a stream; "removed", below 0, for those that are gone.
        updates: how many corrected the dataset since its conversion.
        copies: how many records of a conversion or an append are exact copies of earlier ones;
            `tfrecorder.duplicates` compares pictures too.  None without images, and of a stream.
        leaks: how many images have the same bytes in several splits; None if that is not known.
        unseen: how many images have no fingerprint, so that near copies of them are not found;
            None if that is not known.
        scaled: the first images whose stated size is another than theirs, with both.
        name, version: the dataset's, for TFDS; None if none was given.
    """

    _totals = ("rows", "records")

    output_dir: str
    splits: dict[str, SplitResult]
    rejects: dict[str, int] = field(default_factory=dict)
    suspects: int = 0
    oriented: int = 0
    reduced: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    input_bytes: int = 0
    class_names: tuple[str, ...] | None = None
    empty_classes: tuple[str, ...] = ()
    seconds: float = 0
    was_finished: bool = False
    shards_before: int = 0
    rows_before: int = 0
    generation: int = 0
    origins: dict[str, int] = field(default_factory=dict)
    updates: int = 0
    copies: Copies | None = field(default=None, compare=False)
    leaks: int | None = field(default=0, compare=False)
    unseen: int | None = field(default=0, compare=False)
    scaled: tuple[str, ...] = field(default=(), compare=False)
    name: str | None = None
    version: str | None = None

    @property
    def there(self) -> str:
        """That an append finds all its rows in the dataset, as records or as rejects."""
        there = f"{counted(self.rows_there, 'row is', 'rows are')} already there"
        records = counted(sum(self.origins.values()), "record")
        since = since_words(self.origins, self.updates)
        there += ", as records or rejects" if self.rejects else ""
        return f"nothing to append, {there}; the dataset has {records}{since}"

    def _headline(self) -> str:
        if not self.splits:
            return f"{self.output_dir}: {self.there}"
        what = counted(self.records, "record")
        every = sum(self.origins.values())
        if self.records < every and not self.was_finished:
            what += f" added to {self.output_dir}, which has {every:,} now"
        else:
            what += f" in {self.output_dir}"
        if self.changes is not None:
            took = f" ({self.seconds:.1f} s)" if self.seconds and not self.was_finished else ""
            return f"{what}{took}: {self.changes.words}"
        if self.was_finished:
            what += since_words(self.origins, self.updates)
            return f"{what}, which was finished before: nothing was written"
        if not self.seconds:
            return what
        rate = (self.rows - self.rows_before) / self.seconds
        return f"{what} ({self.seconds:.1f} s, {rate:,.0f} images/s)"

    def _in_a_line(self) -> str:
        if not self.splits or self.changes is not None:
            return self._headline()
        rejects = counted(sum(self.rejects.values()), "reject")
        counts = f"{counted(self.records, 'record')}, {rejects}, {counted(self.shards, 'shard')}"
        return f"{self.output_dir}: {counts}"

    def _tables(self) -> list[Table]:
        if not self.splits:
            return []
        table = [["split", "records", "rejects", "shards", "bytes"]]
        for name, split in self.splits.items():
            counts = [split.records, split.rejects, split.shards]
            size = readable_bytes(split.bytes)
            table.append([name, *(f"{count:,}" for count in counts), size])
        return [Table(table)]

    @property
    def tfds_call(self) -> str | None:
        """The call of TFDS that finds the dataset, as text; None if it has no name."""
        if self.name is None:
            return None
        path = self.output_dir.rstrip("/")
        where_tfds_looks = os.path.join(self.name, self.version or "")
        if not path.endswith(where_tfds_looks):
            return None
        data_dir = os.path.dirname(os.path.dirname(path)) or "."
        return f"tfds.load('{self.name}:{self.version}', data_dir={data_dir!r})"

    def _notes(self) -> list[str]:
        notes = []
        if self.tfds_call and self.splits:
            notes.append(f"TFDS: {self.tfds_call}")
        if self.shards_before and not self.was_finished:
            shards = counted(self.shards, "shard")
            rows = counted(self.rows_before, "row")
            notes.append(
                f"continued: {self.shards_before:,} of {shards} ({rows}) were there before"
            )
        notes += left_out_words(self.rows_there if self.splits else 0, self.removed)
        if self.class_names is not None:
            notes.append(f"classes: {class_words(self.class_names)}")
        notes += self.notes
        if self.empty_classes and unused_words(self.empty_classes) not in notes:
            notes.append(unused_words(self.empty_classes))
        if self.warnings:
            notes.append(f"warnings: {counts_in_words(self.warnings)}")
        if self.rejects:
            reasons = [f"{count:,} {why}" for why, count in self.rejects.items()]
            where = os.path.join(self.output_dir, layout.REJECTS)
            notes.append(f"rejects: {', '.join(reasons)}; see {where}")
            if self.was_finished and any(why.startswith("read/") for why in self.rejects):
                notes.append(f"`append` with {spelled('retry_rejects', True)} tries those again")
        if self.suspects:
            where = os.path.join(self.output_dir, layout.SUSPECTS)
            images = counted(self.suspects, "image decodes", "images decode")
            notes.append(f"suspects: {images} with a warning; see {where}")
        if self.retries:
            notes.append(f"retries: reading took {counted(self.retries, 'further attempt')}")
        if self.oriented:
            share = self.oriented / self.records
            notes.append(
                f"orientation: {counted(self.oriented, 'image carries', 'images carry')} an EXIF "
                f"orientation ({share:.1%}), which TensorFlow does not apply: training sees the "
                f"pixels as they are stored; {spelled('apply_exif', True)} turns them"
            )
        if self.copies is not None:
            notes.append(f"copies: {self.copies.words(self.output_dir)}")
        if self.leaks:
            leaks = counted(self.leaks, "image has", "images have")
            notes.append(f"leakage: {leaks} the same bytes in several splits")
        if self.unseen:
            notes.append(f"near copies: {unseen_in_words(self.unseen)}")
        for what, words in reduced_in_words(self.reduced).items():
            named = f": {', '.join(self.scaled)}" if what == "scaled" else ""
            notes.append(f"{what}: {words}{named}")
        if skipped := passed_over_words(self.passed_over):
            notes.append(skipped)
        return notes


def _splits(done: DoneRecords) -> dict[str, SplitResult]:
    """The splits of what some commits added or wrote."""
    splits = {}
    for name in SPLITS:
        if of_split := [record for shard, record in done.items() if shard.split == name]:
            totals = add_up(of_split)
            splits[name] = SplitResult(totals.rows, totals.records, len(of_split), totals.bytes)
    return splits


def _empty_classes(labels: Field, done: DoneRecords) -> tuple[str, ...]:
    """The classes that no record has, but for that of the background."""
    used = {int(number) for record in done.values() for number in record.classes}
    first = 1 if labels.label_map else 0
    every = enumerate(labels.class_names or ())
    return tuple(name for number, name in every if number >= first and number not in used)


def _scaled(
    output_dir: str,
    image: Field,
    done: DoneRecords,
) -> tuple[str, ...]:
    """The first images whose stated size is another than theirs, with both."""
    source = source_of(image)
    names = [REDUCED, image.uri_key, *STATED_OF, source.width, source.height]
    shards = [shard for shard, record in done.items() if "scaled" in record.reduced]
    rows = read_tables(output_dir, shards[:_NAMED], those_of(names))
    named = list[str]()
    for words, *of_image in map(dict.values, [] if rows is None else rows.to_pylist()):
        if "scaled" in words:
            named.append("{} (stated {} x {}, is {} x {})".format(*of_image))
    return tuple(named[:_NAMED])


def read_result(output_dir: str, commit: int | None = None) -> ConversionResult:
    """The result of a commit of the dataset in a directory, as its plan tells it.

    Args:
        commit: its number; None for all commits together, without what one of them says of itself.

    Raises:
        DatasetError: a manifest cannot be read.
    """
    if commit is None:
        newest = newest_commit(output_dir)
        assert newest is not None
        every = commits(output_dir, newest)
    else:
        every = [newest := read_commit(output_dir, commit)]
    done = all_done(every)
    plan = newest.plan
    totals = add_up(done.values())
    labels = class_field(plan.fields)
    history = newest.dataset.history
    summary = Summary() if commit is None else plan.summary
    image = primary_image(plan.fields)
    copies = None
    leaks: int | None = 0
    unseen: int | None = 0
    # A stream's batch that read what is known of all records would cost more each time.
    adds_a_table = commit is not None and plan.reads_a_table
    if adds_a_table and image is not None:
        exact, leaks = exact_copies(output_dir, newest, image, plan.first_row)
        copies = Copies(exact)
        unseen = unseen_images(plan.fields, done.values())
    return ConversionResult(
        output_dir=output_dir,
        splits=_splits(done),
        rejects=reject_counts(output_dir) if commit is None and totals.rejects else totals.reasons,
        suspects=totals.suspects,
        oriented=totals.oriented,
        reduced=reduced_of(totals.reduced, newest.dataset.image_shapes.values()),
        retries=totals.retries,
        input_bytes=totals.input_bytes,
        class_names=labels.class_names if labels else None,
        empty_classes=_empty_classes(labels, done) if not commit and labels else (),
        generation=newest.number,
        origins=dict(history.origins),
        updates=history.updates,
        copies=copies,
        leaks=leaks,
        unseen=unseen,
        scaled=() if image is None else _scaled(output_dir, image, done),
        name=plan.options.get("name"),
        version=plan.options.get("version"),
        **summary.said,
    )
