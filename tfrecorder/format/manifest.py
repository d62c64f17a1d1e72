"""The manifest of a commit: what the commit did, and what is so of the whole dataset since.

What is kept of the whole dataset does not grow with the number of its commits, so that neither
opening it nor committing to it reads any manifest but the newest.

A manifest holds two things that outlast it:

- "log": what was done, an entry a commit, in numbers alone, no name of a row.  The first manifest
  of a chain also holds the entries of all commits before, whose own manifests may be gone, as
  "log_before"; and one that takes an addition back that of the addition, as "log_undone".
- "losses": what nobody knows any more.  `repair` notes by the value of a `Loss` the names of the
  files that held it, such as the tables that were made again; what needs it asks.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import google_crc32c

from tfrecorder.display.tables import OneLine, counted
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import Document, seal, unseal
from tfrecorder.format.done_records import Counts, DoneRecord
from tfrecorder.format.layout import (
    Shard,
    ShardNumbers,
    ShardRange,
    ShardRanges,
    SplitState,
    SplitStates,
)
from tfrecorder.format.plan import History, Plan, PlanKind, Shapes, shapes_of, sides_of

#: The number of the form that is written; another number is another form.
FORM = 5

#: The forms that are read.  Form 4 states neither the next row's number nor what was done and when,
#: nor sizes of the files beside a shard.
READABLE_FORMS = (4, FORM)


@dataclass(frozen=True)
class FileSums:
    """Size and CRC32C of a file."""

    bytes: int
    crc32c: int

    @classmethod
    def of(cls, data: builtins.bytes) -> FileSums:
        """Those of some bytes."""
        return cls(len(data), google_crc32c.value(data))


@dataclass(frozen=True)
class Generation:
    """What a dataset was before a correction of it, which left its records' numbers as they were.

    Attributes:
        splits: how many shards each split had.
        contents: as in `DatasetRecord`.
    """

    splits: Mapping[str, int]
    contents: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class CommitRecord:
    """What one commit did; no later commit takes it over.

    Attributes:
        plan: that it followed, with its number, its kind and its options.
        digest: of that plan, as it is stated.
        own: by split, the shards that it added or rewrote, or kept under new names.
        done_values: the done-records of these, in their order, as JSON values.
        totals: the sums of the done-records, with which `verify` compares them.
        log: what it did, in numbers; None in form 4.
        log_before: for what begins a chain, the entries of the commits before it.
        log_undone: for what takes an addition back, the entry of the addition.
        replaced: for what replaces a dataset, the `splits` of that; else None.
    """

    plan: Plan
    digest: str
    own: ShardRanges
    done_values: Sequence[Document]
    totals: Counts
    log: LogEntry | None = None
    log_before: Log = ()
    log_undone: LogEntry | None = None
    replaced: SplitStates | None = None

    @cached_property
    def done(self) -> dict[Shard, DoneRecord]:
        """The done-records by shard."""
        shards = layout.shards_of(self.own)
        records = (DoneRecord(**values) for values in self.done_values)
        return dict(zip(shards, records, strict=True))

    @property
    def entry(self) -> LogEntry:
        """What it did, in numbers; of form 4, what its other values say."""
        if self.log is not None:
            return self.log
        plan = self.plan
        adds = not plan.rewrites
        return LogEntry(
            commit=plan.commit,
            first=plan.commit,
            kind=plan.kind.value,
            added=self.totals.records if adds else 0,
            rejected=self.totals.rejects if adds else 0,
        )

    @property
    def entries(self) -> list[LogEntry]:
        """All entries that it holds, oldest first."""
        undone = [] if self.log_undone is None else [self.log_undone]
        return [*self.log_before, *undone, self.entry]


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """What is so of the whole dataset as of a commit; the next commit makes its own of it.

    The number that the next new row gets, the marks of what was removed, the revisions of dropped
    splits and what is lost stand in the plan of the commit.

    Attributes:
        splits: the shards of each split.
        stated: its version for TFDS.
        commit: the number of that commit.
        is_updated: whether that commit is an update, which can be taken back until the next one.
        history: how it came to hold what it holds.
        since: the commit that began the numbers of its records.
        chain: the commit from which on the manifests have the done-records of all shards.
        skips: the commits of that chain that were taken back.
        image_shapes: of each key of images.
        image_sides: [smallest, largest] of the shorter and of the longer sides of the images.
        positions: how far each source of a stream was read.
        lists: the sums of the two lists of rows, by name.
        contents: by split, a checksum of all its shards.
        abandoned: shards of what was given up or taken back, whose late workers may still write
            these names.
        ends_undo: whether the commit before was an update, which cannot be taken back any more.
        earlier: the generations before the chain that `at=` can read, by number.
        stated_by_card: what its card says, in fields of TFDS.
    """

    splits: SplitStates
    stated: str
    commit: int = -1
    is_updated: bool = False
    history: History = field(default_factory=History)
    since: int = 0
    chain: int = 0
    skips: tuple[int, ...] = ()
    image_shapes: Shapes = field(default_factory=dict)
    image_sides: Sequence[tuple[int, int]] = ()
    positions: Document = field(default_factory=dict)
    lists: Mapping[str, FileSums] = field(default_factory=dict)
    contents: Mapping[str, int] = field(default_factory=dict)
    abandoned: ShardRanges = field(default_factory=dict)
    ends_undo: bool = False
    earlier: Mapping[int, Generation] = field(default_factory=dict)
    stated_by_card: Document = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The manifest of a commit.

    Attributes:
        commit: what it did.
        dataset: what is so since.
        form: the number of its form.
    """

    commit: CommitRecord
    dataset: DatasetRecord
    form: int = FORM

    @property
    def plan(self) -> Plan:
        return self.commit.plan

    def carrying(self, **changes: Any) -> Manifest:
        """It with other values of what goes with the dataset; see `Carried`."""
        return self.with_commit(plan=self.plan.carrying(**changes))

    def with_commit(self, **changes: Any) -> Manifest:
        """It with other values of its commit."""
        return dataclasses.replace(self, commit=dataclasses.replace(self.commit, **changes))

    def with_dataset(self, **changes: Any) -> Manifest:
        """It with other values of the whole dataset."""
        return dataclasses.replace(self, dataset=dataclasses.replace(self.dataset, **changes))

    def to_json(self) -> bytes:
        return seal(self.values())

    def values(self) -> Document:
        """It as JSON values."""
        commit = self.commit
        dataset = self.dataset
        values = {
            "version": self.form,
            "plan": commit.digest,
            **self.plan.values(),
            "commit": self.plan.commit,
            "kind": self.plan.kind.value,
            "stated": dataset.stated,
        }
        if commit.log is not None:
            values["log"] = commit.log.values()
        if commit.log_before:
            values["log_before"] = [entry.values() for entry in commit.log_before]
        values |= {
            "own": commit.own,
            "done": commit.done_values,
            "totals": commit.totals.values(),
            "splits": dataset.splits,
            "history": dataset.history.values(),
            "since": dataset.since,
            "chain": dataset.chain,
            "skips": dataset.skips,
            "image_shapes": dataset.image_shapes,
            "image_sides": dataset.image_sides,
            "positions": dataset.positions,
            "lists": {name: vars(sums) for name, sums in dataset.lists.items()},
            "contents": dataset.contents,
            "abandoned": dataset.abandoned,
            "ends_undo": dataset.ends_undo,
        }
        if dataset.earlier:
            values["earlier"] = {str(n): vars(one) for n, one in dataset.earlier.items()}
        if dataset.stated_by_card:
            values["stated_by_card"] = dataset.stated_by_card
        if commit.replaced is not None:
            values["replaced"] = commit.replaced
        if commit.log_undone is not None:
            values["log_undone"] = commit.log_undone.values()
        return values

    @classmethod
    def from_json(
        cls,
        data: bytes,
        path: str,
    ) -> Manifest:
        """The manifest at a path.

        Raises:
            ValueError: it is damaged, or another document.
            DatasetError: another version of the package wrote it.
        """
        values = unseal(data)
        if values.get("version") not in READABLE_FORMS:
            raise DatasetError(
                f"{path} was made by another version of tfrecorder: its form is number "
                f"{values.get('version')!r}, and this version reads numbers "
                f"{' and '.join(map(str, READABLE_FORMS))}. Use that version, or convert again."
            )
        try:
            return cls.of(values)
        except (AttributeError, KeyError, TypeError):
            raise ValueError("it is another document than a manifest") from None

    @classmethod
    def of(cls, values: Document) -> Manifest:
        """The manifest whose `values` these are."""
        log_of = LogEntry.of
        commit = CommitRecord(
            plan=Plan.of(values),
            digest=values["plan"],
            own=_ranges(values["own"]),
            done_values=values["done"],
            totals=Counts(**values["totals"]),
            log=log_of(values["log"]) if "log" in values else None,
            log_before=tuple(map(log_of, values.get("log_before", ()))),
            log_undone=log_of(values["log_undone"]) if "log_undone" in values else None,
            replaced=_states(values["replaced"]) if "replaced" in values else None,
        )
        dataset = DatasetRecord(
            splits=_states(values["splits"]),
            stated=values["stated"],
            commit=values["commit"],
            is_updated=values["kind"] == PlanKind.UPDATE.value,
            history=History(**values["history"]),
            since=values["since"],
            chain=values["chain"],
            skips=tuple(values["skips"]),
            image_shapes=shapes_of(values["image_shapes"]),
            image_sides=sides_of(values["image_sides"]),
            positions=values["positions"],
            lists={name: FileSums(**sums) for name, sums in values["lists"].items()},
            contents=values["contents"],
            abandoned=_ranges(values["abandoned"]),
            ends_undo=values["ends_undo"],
            earlier={int(n): Generation(**one) for n, one in values.get("earlier", {}).items()},
            stated_by_card=values.get("stated_by_card", {}),
        )
        return cls(commit, dataset, values["version"])

    def as_read(self) -> Manifest:
        """It as it is read back, for a comparison: JSON knows no tuples."""
        return Manifest.of(json.loads(json.dumps(self.values())))

    def differing(self, other: Manifest) -> list[str]:
        """The names of values of another manifest, as read, that this one states otherwise.

        What it does not state at all, as form 4 may not, does not differ.
        """
        own = self.values()
        return [
            name
            for name, value in other.values().items()
            if name != "version" and own.get(name, value) != value
        ]


def _ranges(values: ShardNumbers) -> ShardRanges:
    return {split: ShardRange(*of_split) for split, of_split in values.items()}


def _states(values: ShardNumbers) -> SplitStates:
    return {split: SplitState(*of_split) for split, of_split in values.items()}


#: The kind of a batch of a stream, as `PlanKind` calls it.
_BATCH = "stream"


#: What an entry counts.
COUNTS = ("added", "corrected", "moved", "removed", "rejected")


@dataclass(frozen=True, kw_only=True, repr=False)
class LogEntry(OneLine):
    """What one commit did; as text a line.

    Attributes:
        commit: its number.
        first: the number of the first of several batches of a stream, told together.
        kind: "conversion", "append", "stream" (a batch), "compaction", "update", "removal" or
            "undo"; "" where it is not known any more.
        when: when it was staged, in UTC, as "2026-11-28T15:26:33Z"; "" where nobody noted it.
        added: rows that became records of the dataset.
        corrected: records that got other values.
        moved: rows that went to another split.
        removed: rows that went.
        rejected: rows that became rejects.
        undoes: the number of the commit that it took back; -1 for none.
        undone: the kind of what it took back or abandoned; "" for none.
        taken_back: an undo took it back; stored nowhere, `tfrecorder.history` finds it out.
    """

    commit: int
    first: int
    kind: str
    when: str = ""
    added: int = 0
    corrected: int = 0
    moved: int = 0
    removed: int = 0
    rejected: int = 0
    undoes: int = -1
    undone: str = ""
    taken_back: bool = False

    def __str__(self) -> str:
        numbers = str(self.commit) if self.first == self.commit else f"{self.first}-{self.commit}"
        when = self.when.replace("T", " ").removesuffix("Z") or "no time noted"
        words = self.kind or "not known any more"
        if self.undoes >= 0:
            words += f" of generation {self.undoes}"
        if self.undone:
            words += f" ({'unfinished ' if self.undoes < 0 else ''}{self.undone})"
        counts = []
        for name in COUNTS:
            if number := getattr(self, name):
                counts.append(f"{number:,} {name}")
        told = f"{words}: {', '.join(counts)}" if counts else words
        return f"{numbers}  {when}  {told}{' (taken back)' if self.taken_back else ''}"

    def values(self) -> Document:
        """It as JSON values, without those that are as in most entries."""
        usual = {item.name: item.default for item in dataclasses.fields(self)}
        return {name: value for name, value in vars(self).items() if value != usual[name]}

    @classmethod
    def of(cls, values: Document) -> LogEntry:
        """The entry with these JSON values."""
        return cls(**values)


#: Entries, oldest first.
Log = tuple[LogEntry, ...]

#: The losses of a manifest, or some of them.
Losses = Mapping[str, Sequence[str]]


class Loss(str, enum.Enum):
    """A kind of what is not known any more; the value is its name in a manifest.

    PLACES: in which folder images were; an append that compares places asks.
    SUMS: sizes and checksums of the images' files.
    REJECTS: values of rejected rows, or that there were some.
    POSITIONS: how far streams were read.
    MARKS: which rows were removed, so that they may come in again.
    OPTIONS: with which options the dataset was made.
    NAMES: what public files do not say of columns and options.
    HISTORY: what was done before, such as whether rows were appended.
    GENERATIONS: what the dataset held as of earlier commits.
    KEPT: what the newest update replaced, so that it cannot be taken back.
    """

    PLACES = "places"
    SUMS = "sums"
    REJECTS = "rejects"
    POSITIONS = "positions"
    MARKS = "marks"
    OPTIONS = "options"
    NAMES = "names"
    HISTORY = "history"
    GENERATIONS = "generations"
    KEPT = "kept"

    def is_in(self, losses: Losses) -> bool:
        """True if it is among these."""
        return self.value in losses


#: What each is, as `repair` and `info` say it.
LOSS_WORDS = {
    Loss.PLACES: "in which folder the images were, so appends must say what to do with duplicates",
    Loss.SUMS: "sizes, checksums and times of the images' files",
    Loss.REJECTS: "the values of rejected rows",
    Loss.POSITIONS: "how far streams were read: none can be continued in this directory",
    Loss.MARKS: "which rows were removed: they may come in again, so appends ask first",
    Loss.OPTIONS: "the source, its own options, and how often images were read again",
    Loss.NAMES: (
        "the options, which appends take over; the names of columns of images, masks and boxes, "
        "and of the column of labels if there is only one, where records call them otherwise; and "
        "class names with white space at an end that no record has"
    ),
    Loss.HISTORY: "what was done before, such as whether rows were appended",
    Loss.GENERATIONS: "what the dataset held as of earlier commits, which cannot be read any more",
    Loss.KEPT: "what the newest update replaced: it cannot be taken back",
}


def merged_batches(entries: Iterable[LogEntry]) -> Log:
    """Entries, with batches of a stream that follow one another told together."""
    merged: list[LogEntry] = []
    for entry in entries:
        before = merged[-1] if merged else None
        if before is not None and before.kind == entry.kind == _BATCH:
            merged[-1] = dataclasses.replace(
                entry,
                first=before.first,
                added=before.added + entry.added,
                rejected=before.rejected + entry.rejected,
            )
        else:
            merged.append(entry)
    return tuple(merged)


def losses_in_words(losses: Losses) -> list[str]:
    """What is lost, a sentence for each kind, with the files that held it."""
    sentences = []
    for loss in Loss:
        if names := losses.get(loss.value):
            sentences.append(f"of {_files_in_words(names)}: {LOSS_WORDS[loss]}")
    return sentences


def _files_in_words(names: Sequence[str]) -> str:
    """Some files in a word or two."""
    if len(names) == 1:
        return names[0]
    kinds = {layout.TABLES: "table", layout.COMMITS: "manifest"}
    folders = {*map(os.path.dirname, names)}
    return counted(len(names), kinds.get(folders.pop(), "file") if len(folders) == 1 else "file")


def both_losses(losses: Losses, more: Losses) -> dict[str, list[str]]:
    """Some losses and more of them, each name once."""
    return {
        kind: [*dict.fromkeys([*losses.get(kind, ()), *more.get(kind, ())])]
        for kind in sorted({*losses, *more})
    }


def lasting_losses(losses: Losses) -> dict[str, list[str]]:
    """Those that hold for what follows too."""
    return {kind: [*names] for kind, names in losses.items() if kind != Loss.KEPT.value}
