"""The plan: which row goes to which position of which shard, and what else decides an operation.

`plan/make_plan.py` decides it, `output/staging.py` writes it down, and workers and the commit
follow it.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from tfrecorder.core.arrays import balanced_part
from tfrecorder.format.documents import PLAN_VERSION, Document, JsonValue, seal, unseal
from tfrecorder.format.layout import STATED_OF, Shard, ShardNumbers, ShardRange, ShardRanges
from tfrecorder.format.summary import Summary
from tfrecorder.schema.fields import (
    Fields,
    from_json as fields_from_json,
    image_of,
    record_features,
    to_json as fields_to_json,
)
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.splits import SPLITS
from tfrecorder.schema.statistics import Statistics

#: What of a plan decides nothing that the files of records hold; the hashes of marks are salted.
_NOT_DECISIVE = frozenset(
    ["base", "remote", "removed", "carried", "summary", "signed", "next_row", "begun", "losses"]
)


class PlanKind(str, enum.Enum):
    """What a plan is for; the value is the word for it in messages.

    What holds for some kinds has a name, here or as a property of `Plan`: `OF_A_SOURCE`,
    `is_added`, `reads_a_table`, `changes_records`, `copies_records`.

    CONVERSION: the rows of a source become a dataset.
    APPEND: they are added to one.
    BATCH: rows of a stream are added to one, or begin it.
    COMPACTION: records are copied from the dataset in `base`; the rows say from where (`CopyOf`).
    UPDATE: records of the dataset get other values, and rows are added; with removed rows too.
    REMOVAL: records of the dataset are left out.
    UNDO: an operation that was pending is abandoned, or the newest one is taken back.
    """

    CONVERSION = "conversion"
    APPEND = "append"
    BATCH = "stream"
    COMPACTION = "compaction"
    UPDATE = "update"
    REMOVAL = "removal"
    UNDO = "undo"

    @property
    def words(self) -> str:
        """It with its article."""
        if self is PlanKind.BATCH:
            return "a batch of a stream"
        return f"{'an' if self.value[0] in 'aeiou' else 'a'} {self.value}"


#: Kinds of plans whose rows all come from the source of which their `base` and options are.
OF_A_SOURCE = (PlanKind.CONVERSION, PlanKind.APPEND, PlanKind.BATCH)

#: The keys of values in JSON that have another name there.
_KEYS = {"count": "rows", "in_source": "source_rows", "marks": "removed", "history": "carried"}

#: Of each source of a stream the position up to which it was read, "to"; for a batch also "from".
Streams = dict[str, dict[str, JsonValue]]

#: (height, width, channels) of images; None for a side in which they differ.
Shape = tuple[int | None, int | None, int]

#: The shapes of a dataset's images, by the keys of their features.
Shapes = Mapping[str, Shape]


@dataclass(frozen=True)
class Begins:
    """A plan that follows nothing: no dataset stands there."""

    previous: ClassVar[str] = ""
    renumbers: ClassVar[bool] = True


@dataclass(frozen=True)
class Rewrites:
    """A plan that replaces a dataset.

    Attributes:
        previous: the digest of the plan of its newest commit.
        renumbers: whether records change their numbers.
    """

    previous: str
    renumbers: bool = True


@dataclass(frozen=True)
class Adds:
    """A plan that adds to a dataset.

    Attributes:
        previous: the digest of the plan of its newest commit.
        rows: the number of the first new row.
        image_shapes, image_sides: of the dataset, as in `DatasetRecord`.
    """

    previous: str
    rows: int
    image_shapes: Shapes
    image_sides: Sequence[tuple[int, int]]
    renumbers: ClassVar[bool] = True


@dataclass(frozen=True)
class TakesBack(Adds):
    """A plan that takes an addition back: the state before that one, to which nothing is added.

    Attributes:
        previous: the digest of the plan of the newest commit, which is the addition or after it.
        version: what is stated from then on.
        undoes: the commit of the addition; -1 if nobody knows any more.
    """

    version: str = ""
    undoes: int = -1


def _follows_of(values: Document) -> Begins | Rewrites | Adds:
    """What a plan follows, from its JSON values."""
    previous = values.get("previous", "")
    if (state := values.get("follows")) is not None:
        read = dict(state, previous=previous)
        read["image_shapes"] = shapes_of(state["image_shapes"])
        read["image_sides"] = sides_of(state["image_sides"])
        return TakesBack(**read) if "version" in read else Adds(**read)
    return Rewrites(previous, values.get("renumbers", True)) if previous else Begins()


def shapes_of(values: Mapping[str, Sequence[int]]) -> Shapes:
    """Shapes of images, from JSON values."""
    return {key: (height, width, channels) for key, (height, width, channels) in values.items()}


def sides_of(values: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """[smallest, largest] of sides of images, from JSON values."""
    return [(smallest, largest) for smallest, largest in values]


@dataclass(frozen=True)
class History:
    """How a dataset came to hold what it holds.

    Attributes:
        origins: its records by where they came from; their sum is all that it has.
        updates: how many updates corrected it.
        begun_by: values of the plan that began it, which tell whether a call is the same again.
    """

    origins: Mapping[str, int] = field(default_factory=dict)
    updates: int = 0
    begun_by: Document = field(default_factory=dict)

    def values(self) -> Document:
        """It as JSON values; what goes on elsewhere takes over the origins alone."""
        return dict(vars(self)) if self.begun_by else {"origins": self.origins}


@dataclass(frozen=True)
class PlannedRows:
    """Which rows a plan is of.

    Attributes:
        count: each becomes a record or a reject.
        in_source: the rows in the source; more than `count` if boxes have a row each.
        statistics: of the columns' values; see `describe_columns`.
        base: the folder that relative uris start from.
        fingerprint: SHA-256 of the rows as validated.
        remote: whether images are on a store elsewhere, so that many can be requested at once.
        streams: for a batch of a stream, and for what was compacted from such batches, how far
            each source was read, by its name.  None for any other dataset.
        spooled: the number of images that came as bytes, each counted once; they are in the spool
            until the commit.
        signed: for a batch of a stream, whether images need signatures, which stand nowhere.
    """

    count: int
    in_source: int
    statistics: Statistics
    base: str
    fingerprint: str
    remote: bool = False
    streams: Streams | None = None
    spooled: int = 0
    signed: bool = False


@dataclass(frozen=True)
class Layout:
    """Where the rows of a plan go.

    Attributes:
        split_rows: rows of each split that has any, in the order TRAIN, VALIDATION, TEST.
        split_shards: further shards of each of these splits, among which its rows are divided
            evenly, without those that are `rewritten`.
        starts: the number of the first of these shards, where it is not 0.
        kept: for what replaces a dataset, the number of the shard of each split that stays as it
            is, for each of the first names of the next revision; -1 for one that is written again.
        rewritten: the rows of each shard of a split that is written again.
        revisions: the revision of a split, where it is not 1; also of those without a row here,
            since no name of a shard may come again.
    """

    split_rows: Mapping[str, int]
    split_shards: Mapping[str, int]
    starts: Mapping[str, int] = field(default_factory=dict)
    kept: ShardNumbers = field(default_factory=dict)
    rewritten: ShardNumbers = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)

    @cached_property
    def shards(self) -> list[Shard]:
        """All shards to write, in the order of the row groups of `plan.parquet`."""
        return [
            Shard(split, index, self.revisions.get(split, 1))
            for split in self.split_shards
            for index in self._parts_of[split]
        ]

    @cached_property
    def _parts_of(self) -> dict[str, dict[int, tuple[int, int]]]:
        """The rows (start, stop) of each shard to write, by its split and its number."""
        parts_of = {}
        new_rows = self.new_rows
        for split, count in self.split_shards.items():
            again = []
            for number, old in enumerate(self.kept.get(split, ())):
                if old < 0:
                    again.append(number)
            ends = [0, *itertools.accumulate(self.rewritten.get(split, ()))]
            parts = dict(zip(again, itertools.pairwise(ends), strict=True))
            first_new = self.starts.get(split, 0)
            before = ends[-1]
            for number in range(count):
                start, stop = balanced_part(new_rows[split], number, count)
                parts[first_new + number] = (before + start, before + stop)
            parts_of[split] = parts
        return parts_of

    @property
    def new_rows(self) -> dict[str, int]:
        """The rows of each split that go to further shards, divided evenly."""
        again = {split: sum(self.rewritten.get(split, ())) for split in self.split_rows}
        return {split: rows - again[split] for split, rows in self.split_rows.items()}

    def own(self, *, is_added: bool) -> ShardRanges:
        """The shards of the plan's commit by split, kept or new.

        Args:
            is_added: they are added to others.
        """
        own = {}
        for split in SPLITS:
            kept = len(self.kept.get(split, ()))
            new = self.split_shards.get(split, 0)
            if kept or new:
                # An addition that `repair` made again has kept shards alone, from its first on.
                start = self.starts.get(split, 0)
                first = start - kept if new else start if is_added else 0
                own[split] = ShardRange(self.revisions.get(split, 1), first, kept + new)
        return own

    def shard_rows(self, shard: Shard) -> int:
        """How many rows a shard was given."""
        start, stop = self.part_of(shard)
        return stop - start

    def is_new(self, shard: Shard) -> bool:
        """True for a shard beyond those that are kept or written again."""
        return shard.index >= len(self.kept.get(shard.split, ()))

    def part_of(self, shard: Shard) -> tuple[int, int]:
        """The rows (start, stop) of a shard, counted from the first one of its split."""
        return self._parts_of[shard.split][shard.index]


@dataclass(frozen=True)
class Carried:
    """What goes with a dataset from commit to commit, and stands in the plan of each.

    Attributes:
        next_row: the number that the next new row gets once the plan is committed; 0 in a plan
            that an earlier version staged.
        marks: the file with the marks of what was removed, once it is committed; "" for none.
        history: of the dataset that the plan goes on from; empty for what begins one.
        losses: of that dataset, what was lost and nobody knows any more; see `Loss`.
    """

    next_row: int = 0
    marks: str = ""
    history: History = History()
    losses: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A conversion, once decided.

    Attributes:
        rows: which rows.
        layout: where they go.
        fields: the columns, with their vocabularies.
        options: `ConvertOptions.content_options()`.
        kind: what it is for.
        commit: the number of the commit that it becomes, from 0.
        follows: what it begins, replaces, adds to or takes back.
        carried: what goes with the dataset.
        stands_for: the digest of the plan that this one replaces: that plan was lost, and `repair`
            made this one from the records.  "" for all others.
        summary: what else the operation says of itself.
        begun: when it was staged, in UTC, as "2026-11-28T15:26:33Z"; "" where nobody noted it.
    """

    rows: PlannedRows
    layout: Layout
    fields: Fields
    options: dict[str, Any]
    kind: PlanKind = PlanKind.CONVERSION
    commit: int = 0
    follows: Begins | Rewrites | Adds = Begins()
    carried: Carried = Carried()
    stands_for: str = ""
    summary: Summary = field(default_factory=Summary)
    begun: str = ""

    @cached_property
    def own(self) -> ShardRanges:
        """The shards of its commit by split, kept or new."""
        return self.layout.own(is_added=self.adds)

    @property
    def adds(self) -> bool:
        """True if it adds to a dataset, be it nothing."""
        return isinstance(self.follows, Adds)

    @property
    def rewrites(self) -> bool:
        """True if it replaces a dataset."""
        return isinstance(self.follows, Rewrites)

    @property
    def first_row(self) -> int:
        """The number of its first new row."""
        return self.follows.rows if isinstance(self.follows, Adds) else 0

    @property
    def is_added(self) -> bool:
        """True if its shards are added to those of a dataset, or can be its first."""
        return self.kind in (PlanKind.APPEND, PlanKind.BATCH)

    @property
    def reads_a_table(self) -> bool:
        """True if its rows are read from a table that the user gave."""
        return self.kind in (PlanKind.CONVERSION, PlanKind.APPEND)

    @property
    def changes_records(self) -> bool:
        """True if it changes the records of a dataset in their places.

        Another call never goes on with such a plan.  A store that cannot replace a file only if it
        is still the one that was read takes none.
        """
        return self.kind in (PlanKind.UPDATE, PlanKind.REMOVAL)

    @property
    def copies_records(self) -> bool:
        """True if its rows may come from records that are there: `CopyOf` says from which."""
        return self.changes_records or self.kind is PlanKind.COMPACTION

    def carrying(self, **changes: Any) -> Plan:
        """It with other values of `carried`."""
        return replace(self, carried=replace(self.carried, **changes))

    def with_rows(self, **changes: Any) -> Plan:
        """It with other values of `rows`."""
        return replace(self, rows=replace(self.rows, **changes))

    def laid_out(self, **changes: Any) -> Plan:
        """It with other values of `layout`."""
        return replace(self, layout=replace(self.layout, **changes))

    def unfinished(
        self,
        shard: Shard,
        is_local: bool,
    ) -> str:
        """The name of a shard's file until the commit.

        A glob must not see what waits.  What is added to a bucket arrives by its one upload.
        """
        waits = self.rewrites or (is_local and self.adds)
        return shard.waiting if waits else shard.file

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that decides what the files hold."""
        decides = {k: v for k, v in self.values().items() if k not in _NOT_DECISIVE}
        text = json.dumps(decides, sort_keys=True)
        return self.stands_for or hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """Every key of the record."""
        return record_features(self.fields)

    @property
    def classes(self) -> dict[str, int]:
        """How many classes each key with classes has."""
        return {field.label_key: field.num_classes or 0 for field in self.fields if field.label_key}

    @property
    def vocabularies(self) -> dict[str, tuple[str, ...] | None]:
        """The class names of each key with classes, None if they have none."""
        return {field.label_key: field.names for field in self.fields if field.label_key}

    @property
    def label_map(self) -> tuple[str, ...] | None:
        """The class names of boxes that count from 1; None if there are none."""
        return next((field.label_map for field in self.fields if field.label_map), None)

    def image_of_mask(self, key: str) -> str:
        """The key of the image that the mask under a key belongs to."""
        masks = (field for field in self.fields if key in (f"{field.key}/encoded", field.masks_key))
        return image_of(next(masks), self.fields).encoded_key

    def to_json(self) -> bytes:
        return seal({"version": PLAN_VERSION, **self.values()})

    def values(self) -> Document:
        """It as JSON values in one object, without those that are as in most plans."""
        values = _unusual(self)
        follows = values.pop("follows", None)
        values |= _unusual(values.pop("rows")) | _unusual(values.pop("layout"))
        values |= _unusual(values.pop("carried", Carried()))
        values["fields"] = fields_to_json(self.fields)
        if "summary" in values:
            values["summary"] = asdict(self.summary)
        if "carried" in values:
            values["carried"] = self.carried.history.values()
        match follows:
            case Rewrites():
                values |= _unusual(follows)
            case Adds():
                state = dict(vars(follows))
                values["previous"] = state.pop("previous")
                if state.get("undoes", 0) < 0:
                    del state["undoes"]
                values["follows"] = state
        return values

    @classmethod
    def from_json(cls, data: bytes) -> Plan:
        """Read the plan that `to_json` wrote.

        Raises:
            ValueError: the data are not such a plan.
        """
        values = unseal(data)
        if (version := values.pop("version", None)) != PLAN_VERSION:
            raise ValueError(f"it is of version {version!r}; this is {PLAN_VERSION}")
        return cls.of(values)

    @classmethod
    def of(cls, values: Document) -> Plan:
        """The plan whose `values` are among these, as in a manifest.

        Raises:
            ValueError: they are no plan's.
        """
        try:
            own = dict(values)
            if "summary" in own:
                own["summary"] = Summary.of(own["summary"])
            if "carried" in own:
                own["carried"] = History(**own["carried"])
            parts = {
                "rows": _read(PlannedRows, own),
                "layout": _read(Layout, own),
                "carried": _read(Carried, own),
                "follows": _follows_of(own),
                "fields": fields_from_json(values["fields"]),
                "kind": PlanKind(own.get("kind", PlanKind.CONVERSION)),
            }
            plan: Plan = _read(cls, own | parts)
        except (KeyError, TypeError):
            raise ValueError("it is another document than a plan") from None
        if others := plan.layout.split_shards.keys() - SPLITS:  # files are named for them
            raise ValueError(f"it has other splits than ours: {', '.join(others)}")
        return plan


def _unusual(value: Any) -> dict[str, Any]:
    """The fields of a value by their keys in JSON, without those that are as in most plans."""
    unusual = {}
    for item in dataclasses.fields(value):
        usual = item.default if item.default_factory is MISSING else item.default_factory()
        own = getattr(value, item.name)
        if own != usual:
            unusual[_KEYS.get(item.name, item.name)] = own
    return unusual


def _read(kind: Any, values: Document) -> Any:
    """A value of a type with the fields that are among JSON values."""
    given = {}
    for item in dataclasses.fields(kind):
        key = _KEYS.get(item.name, item.name)
        if key in values:
            given[item.name] = values[key]
    return kind(**given)


class PlannedRow(NamedTuple):
    """One row as a worker needs it.

    Attributes:
        row: its number in the source, from 0.
        image_uri: the uri of its first image, as the source gave it; "" without images.
        values: what the source has for each key of the record.
    """

    row: int
    image_uri: str
    values: dict[str, object]

    def text(self, key: str) -> str:
        """The text under a key; "" of a null."""
        return str(self.values[key] or "")

    def number(self, key: str) -> int:
        """The integer under a key."""
        number = self.values[key]
        assert isinstance(number, int)
        return number

    @property
    def stated(self) -> tuple[int, int]:
        """Width and height that the source states of its image; 0 without them."""
        width, height = (self.number(key) if self.values.get(key) else 0 for key in STATED_OF)
        return width, height

    def numbers(self, key: str) -> list[int]:
        """The integers under a key that has one or several of them."""
        value = self.values[key]
        return value if isinstance(value, list) else [self.number(key)]

    def texts(self, key: str) -> list[str]:
        """The texts under such a key."""
        value = self.values[key]
        return value if isinstance(value, list) else [self.text(key)]
