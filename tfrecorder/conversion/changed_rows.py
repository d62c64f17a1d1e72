"""The rows of a dataset of which some change: which shards are written again, and with what.

A shard without a changed row stays as it is.  The rows of the others keep their order and, unless
some are removed, their records keep their numbers.  To give all rows another order, let all be
gone, and add them in that order.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.arrays import Bools, Ints
from tfrecorder.display.messages import command
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.layout import CHANGE, COPY_OF, RECORD_OF, SAME, Shard
from tfrecorder.format.plan import Carried, Layout, Plan, PlanKind, PlannedRows, Rewrites
from tfrecorder.format.summary import Changes
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.plan.make_plan import fingerprint, order_of, refuse_doubles, shard_counts
from tfrecorder.reading.commits import Commit, commits
from tfrecorder.reading.merged_rows import next_row_of
from tfrecorder.reading.shard_tables import columns_of, each_table, joined, repeated
from tfrecorder.schema.fields import Field, record_features
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.splits import SPLIT_TYPE, SPLITS
from tfrecorder.schema.statistics import Statistics
from tfrecorder.validation.values import default_of, describe_columns


@dataclass(frozen=True)
class StoredRows:
    """Rows of a dataset, in the order of its shards.

    Attributes:
        where: the dataset's directory.
        newest: its newest commit.
        shards: whose rows these are.
        rows: with `COPY_OF`, which says where their records are; and each attempt at a reject.
        shard: for each row, the place of its shard in `shards`.
    """

    where: str
    newest: Commit
    shards: Sequence[Shard]
    rows: pa.Table
    shard: Ints

    @cached_property
    def splits(self) -> pd.Series[str]:
        """The split of each row."""
        of_shards = pd.Categorical([shard.split for shard in self.shards], dtype=SPLIT_TYPE)
        return pd.Series(of_shards.take(self.shard))

    @property
    def numbers(self) -> Ints:
        """The number of each row in its source."""
        return np.asarray(self.rows.column(SOURCE_ID).to_numpy())

    @property
    def has_record(self) -> Bools:
        """False for each row that is a reject."""
        return np.asarray(self.rows.column(COPY_OF.size).to_numpy() >= 0)

    @cached_property
    def is_newest(self) -> Bools:
        """True for one row of each number: the one with a record, else the last attempt at it."""
        attempts = pd.DataFrame({"number": self.numbers, "has": self.has_record})
        attempts = attempts.sort_values("has", kind="stable")
        return (~attempts.duplicated("number", keep="last")).sort_index().to_numpy()

    def all_of(self, rows: Bools) -> Bools:
        """True for every attempt at one of some rows, which a mask names."""
        return np.isin(self.numbers, self.numbers[rows])

    def statistics(
        self,
        fields: Sequence[Field],
        rows: pa.Table,
        splits: pd.Series[str],
    ) -> Statistics:
        """Statistics of rows like these, in some splits, as `describe_columns` makes them.

        Manifests say how many rows of each split had no value, and so have a default.
        """
        columns = columns_of(rows)
        splits = splits.reset_index(drop=True)
        keys = (feature.key for feature in record_features(fields))
        values = {key: columns[key] for key in keys if key in columns}
        every = commits(self.where, self.newest)
        missing = {}
        for field in fields:
            counts = Counter[str]()
            for commit in every:
                of_split = commit.plan.rows.statistics.get(field.column, {})
                counts.update({split: of.get("missing", 0) for split, of in of_split.items()})
            if counts.total():
                # Which of the rows with the default they are makes no difference: the first ones.
                key, default = default_of(field)
                same = pd.Series([value == default for value in values[key].to_pylist()])
                number = same.groupby(splits.to_numpy(object)).cumsum()
                most = splits.map(counts).astype(int)
                missing[field.column] = (same & (number <= most)).to_numpy()
        return describe_columns(tuple(fields), values, splits, missing)


def stored_rows(
    where: str,
    newest: Commit,
    of: Sequence[Shard] | None = None,
) -> StoredRows:
    """All rows of a dataset, or those of some shards of it.

    Raises:
        DatasetError: a table cannot be read, or does not fit its shard.
        OutputError: two records have the number of one row.
    """
    shards = newest.shards if of is None else of
    with storage.failing_as(DatasetError, where):
        written = storage.sizes(where)
    tables = [
        _with_copies(where, shard.file, written.get(shard.file), table)
        for shard, table in each_table(where, shards, lambda schema: schema.names)
    ]
    rows = joined(tables).combine_chunks()  # otherwise each look at a column would put it together
    places = np.repeat(np.arange(len(tables)), [*map(len, tables)])
    stored = StoredRows(where, newest, shards, rows, places)
    refuse_doubles(where, stored.numbers[stored.has_record])
    return stored


def _with_copies(
    where: str,
    file: str,
    written: int | None,
    table: pa.Table,
) -> pa.Table:
    """The table of a shard with a file of this size, as rows of a plan that copies its records."""
    offsets, sizes = (table.column(name).to_numpy() for name in RECORD_OF[:2])
    has_record = sizes >= 0
    sizes = sizes[has_record]
    starts = np.cumsum(sizes) - sizes
    if written != sizes.sum() or not np.array_equal(offsets[has_record], starts):
        raise DatasetError(
            f"{os.path.join(where, file)} is not what its table says. "
            f"`{command('verify', where)}` checks every file."
        )
    if RECORD_OF.crc32c not in table.column_names:
        table = table.append_column(RECORD_OF.crc32c, pa.nulls(len(table), pa.int64()))
    copies = dict(zip(RECORD_OF, COPY_OF[1:], strict=True))
    table = table.rename_columns([copies.get(name, name) for name in table.column_names])
    return table.append_column(COPY_OF.file, repeated(file, len(table)))


@dataclass(frozen=True)
class Added:
    """Rows that go into new shards, at the end of their splits.

    They are new rows, or rows of shards that are given up as a whole, as a compaction's are.

    Attributes:
        rows: with the columns of the rows of the dataset.
        splits: of each.
    """

    rows: pa.Table
    splits: pd.Series[str]


def changed_plan(
    stored: StoredRows,
    gone: Bools,
    change: Ints,
    added: Added,
    fields: Sequence[Field],
    options: ConvertOptions,
    kind: PlanKind,
    base: str,
    statistics: Statistics,
) -> tuple[Plan, pa.Table, Changes]:
    """The plan of a dataset with some rows changed, and its rows.

    Args:
        gone: the rows that are left out of their places.
        change: for each row, what becomes of its record; see `CHANGE`.
        added: further rows.
        fields: the columns, with their classes from now on.
        options: decide the order and the number of new shards; the plan keeps them.
        base: the folder that relative uris of new rows start from.
        statistics: of the values of all rows from now on.

    Returns:
        The plan, its rows, and which shards are written again.
    """
    shards = _Shards.of(stored, gone, change != SAME)
    is_touched = shards.touched[stored.shard]
    again = is_touched & ~gone
    rows = stored.rows.append_column(CHANGE, pa.array(change, pa.int8()))
    order, new_rows = order_of(added.splits, options)
    in_splits = _by_split(
        rows.filter(pa.array(again)),
        stored.splits[again],
        added.rows.take(order),
        new_rows,
    )
    split_rows = {split: len(of_split) for split, of_split in in_splits.items()}
    if not any(shards.kept.values()) and not split_rows:
        raise OptionError("this would leave no record; remove the directory instead.")
    planned = joined([*in_splits.values()] or [rows.slice(0, 0)])
    next_row = next_row_of(stored.where, stored.newest)
    new_ones = pc.sum(pc.equal(added.rows.column(COPY_OF.file), "")).as_py() or 0
    streams = {name: {"to": to} for name, to in stored.newest.dataset.positions.items()}
    plan = Plan(
        rows=PlannedRows(
            count=len(planned),
            in_source=next_row + new_ones,
            statistics=statistics,
            base=base,
            fingerprint=_fingerprint(planned, split_rows, shards),
            remote=not storage.is_local(base),
            streams=streams or None,
        ),
        layout=Layout(
            split_rows=split_rows,
            split_shards=dict.fromkeys(split_rows, 0) | shard_counts(new_rows, (), options),
            kept=shards.kept,
            rewritten=shards.rewritten,
        ),
        fields=tuple(fields),
        options=options.content_options(),
        kind=kind,
        follows=Rewrites(stored.newest.digest, renumbers=bool(gone.any())),
        carried=Carried(next_row + new_ones),
    )
    sizes = rows.column(COPY_OF.size).to_numpy()[is_touched]
    changes = Changes(
        shards=int(shards.touched.sum()),
        of_shards=len(stored.shards),
        bytes=int(sizes[sizes > 0].sum()),
    )
    return plan, planned, changes


@dataclass(frozen=True)
class _Shards:
    """What becomes of the shards of a dataset if some of its rows change.

    Attributes:
        touched: of each shard, whether a row of it changes or goes.
        kept: by split, the number of each shard that stays as it is, and -1 in the place of one
            that is written again.
        rewritten: by split, how many rows each of these has from now on.
    """

    touched: Bools
    kept: dict[str, list[int]]
    rewritten: dict[str, list[int]]

    @classmethod
    def of(
        cls,
        stored: StoredRows,
        gone: Bools,
        changed: Bools,
    ) -> _Shards:
        touched = np.zeros(len(stored.shards), bool)
        touched[stored.shard[gone | changed]] = True
        left = np.bincount(stored.shard[~gone], minlength=len(stored.shards))
        kept: dict[str, list[int]] = {shard.split: [] for shard in stored.shards}
        rewritten: dict[str, list[int]] = {}
        for place, shard in enumerate(stored.shards):
            if not touched[place]:
                kept[shard.split].append(shard.index)
            elif left[place]:
                kept[shard.split].append(-1)
                rewritten.setdefault(shard.split, []).append(int(left[place]))
        return cls(touched, kept, rewritten)


def _by_split(
    again: pa.Table,
    of_split: pd.Series[str],
    new: pa.Table,
    new_rows: Mapping[str, int],
) -> dict[str, pa.Table]:
    """The rows of each split that has some: those that are written again, then the new ones.

    Args:
        again: the rows of shards that are written again.
        of_split: the split of each.
        new: the rows of new shards, a split after the other.
        new_rows: how many of them are in each split.
    """
    in_splits = {}
    start = 0
    for split in SPLITS:
        count = new_rows.get(split, 0)
        is_in = pa.array((of_split == split).to_numpy())
        rows = joined([again.filter(is_in), new.slice(start, count)])
        if len(rows):
            in_splits[split] = rows
        start += count
    return in_splits


def _fingerprint(
    planned: pa.Table,
    split_rows: Mapping[str, int],
    shards: _Shards,
) -> str:
    splits = pd.Series(np.repeat([*split_rows], [*split_rows.values()]), dtype=SPLIT_TYPE)
    digest = hashlib.sha256(fingerprint(splits, columns_of(planned)).encode())
    digest.update(repr((shards.kept, shards.rewritten)).encode())
    return digest.hexdigest()
