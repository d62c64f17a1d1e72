"""What a table has otherwise than a dataset, and what becomes of each record for it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.changed_rows import StoredRows
from tfrecorder.conversion.matching import Pairs, match_rows
from tfrecorder.conversion.row_keys import texts_of
from tfrecorder.core.arrays import Bools, Ints
from tfrecorder.format.layout import BASE, MADE, READ, SAME, VALUES, value_columns
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.kinds import FILES, Label, Mask
from tfrecorder.sources.table import Source
from tfrecorder.validation.rules import Checked


@dataclass(frozen=True)
class Matched:
    """The rows of a checked table, and those of a dataset that they are.

    Attributes:
        stored: the rows of the dataset.
        checked: the table, with its values in the types of the dataset's.
        pairs: which these are.
    """

    stored: StoredRows
    checked: Checked
    pairs: Pairs

    @classmethod
    def of(
        cls,
        stored: StoredRows,
        table: Source,
        checked: Checked,
        fields: Sequence[Field],
        has_base: bool,
    ) -> Matched:
        """The rows of a dataset that those of a checked table are; the rest as for `match_rows`."""
        types = dict(zip(stored.rows.schema.names, stored.rows.schema.types, strict=True))
        values = {}
        for name, column in checked.values.items():
            values[name] = column.cast(types.get(name, column.type))
        rows = table.only(table.frame.index.isin(checked.frame.index))
        shared = {*value_columns(types)} & {*values}
        known_by = {name: values[name] for name in shared}
        pairs = match_rows(stored, rows, fields, has_base, known_by)
        return cls(stored, dataclasses.replace(checked, values=values), pairs)

    @property
    def places(self) -> Ints:
        """For each row of the table, its place in the dataset; -1 for a new one."""
        return self.pairs.places

    @cached_property
    def old_rows(self) -> Ints:
        """The rows of the table that the dataset has."""
        return np.flatnonzero(self.places >= 0)

    @property
    def old_places(self) -> Ints:
        """These rows, by their places in the dataset."""
        return self.places[self.old_rows]

    def changes(self, transforms: bool) -> tuple[Ints, dict[str, int]]:
        """What becomes of each record of the dataset, and how many differ in each column.

        Boxes and masks are placed on the image as it was before it was resized, so they need the
        source again where images are stored otherwise.
        """
        rows = self.stored.rows
        old_rows = self.old_rows
        places = self.old_places
        in_table = pa.array(old_rows)
        in_dataset = pa.array(places)
        change = np.full(len(rows), SAME)
        differing = dict[str, int]()
        has_record = self.stored.has_record[places]
        bases = rows.column(BASE).take(in_dataset)
        elsewhere = pc.not_equal(bases, self.pairs.bases.take(in_table)).to_numpy()
        for field in self.checked.fields:
            is_mask = isinstance(field.kind, Mask)
            if is_mask:
                differs = self.pairs.remade[old_rows]
            elif isinstance(field.kind, FILES):
                continue
            else:
                differs = np.zeros(len(old_rows), bool)
                for name in self._names(field):
                    old = rows.column(name).combine_chunks().take(in_dataset)
                    differs |= _differ(old, self.checked.values[name].take(in_table))
            how = np.full(len(old_rows), VALUES)
            if field.of_boxes or is_mask:
                how[:] = READ if transforms else MADE
                how[elsewhere & is_mask] = READ  # whose place starts elsewhere
            change[places] = np.maximum(change[places], np.where(differs, how, SAME))
            if count := int((differs & has_record).sum()):
                differing[field.column] = count
        return change, differing

    def relabelled(self) -> dict[str, int]:
        """How many records go from one class to another, for columns with one class a record."""
        names: Counter[str] = Counter()
        labelled = self.old_rows[self.stored.has_record[self.old_places]]
        in_table = pa.array(labelled)
        in_dataset = pa.array(self.places[labelled])
        for field in self.checked.fields:
            if not isinstance(field.kind, Label) or not self._names(field):
                continue
            key = field.text_key or field.label_key or ""
            old = self.stored.rows.column(key).combine_chunks().take(in_dataset)
            new = self.checked.values[key].take(in_table)
            differs = pa.array(_differ(old, new))
            olds, news = (values.filter(differs).to_pylist() for values in (old, new))
            names.update(f"{was} → {now}" for was, now in zip(olds, news, strict=True))
        return dict(names)

    def with_values(self, change: Ints) -> pa.Table:
        """The rows of the dataset with the values of the table where these differ."""
        rows = self.stored.rows
        old_rows = self.old_rows
        given = {**self.checked.values, BASE: self.pairs.bases}
        least = dict.fromkeys(given, VALUES) | {BASE: READ}
        for field in self.checked.fields:
            if isinstance(field.kind, FILES):
                how = MADE if isinstance(field.kind, Mask) else READ
                least |= {field.uri_key: how, field.spool_key: how}
        for name in (name for name in given if name in rows.column_names):
            changed = old_rows[change[self.old_places] >= least[name]]
            if len(changed):
                take = np.arange(len(rows))
                take[self.places[changed]] = len(rows) + changed
                both = pa.concat_arrays([rows.column(name).combine_chunks(), given[name]])
                place = rows.column_names.index(name)
                rows = rows.set_column(place, name, both.take(pa.array(take)))
        return rows

    def moved_and_gone(self, removes: bool) -> tuple[Bools, Bools]:
        """The rows of the table that go to another split; those of the dataset that leave theirs.

        Args:
            removes: rows that the table does not have go.
        """
        frames = (self.checked.frame[SPLIT_COLUMN], self.stored.splits)
        now, before = (splits.cat.codes.to_numpy() for splits in frames)
        moved = np.zeros(len(self.places), bool)
        is_stated = ~self.checked.unassigned[self.old_rows]
        moved[self.old_rows] = is_stated & (now[self.old_rows] != before[self.old_places])
        leaves = mask_of(self.places[moved], len(before))
        if removes:
            leaves |= self.stored.is_newest & ~mask_of(self.old_places, len(before))
        return moved, self.stored.all_of(leaves)

    def _names(self, field: Field) -> list[str]:
        """The columns of a field's values that both the table and the dataset have."""
        keys = (feature.key for feature in field.features)
        rows = self.stored.rows
        return [key for key in keys if key in self.checked.values and key in rows.column_names]


def mask_of(places: Ints, size: int) -> Bools:
    """True at some of so many places."""
    mask = np.zeros(size, bool)
    mask[places] = True
    return mask


def _differ(old: pa.Array, new: pa.Array) -> Bools:
    """True where two values differ; NaN is NaN."""
    differ = pc.not_equal(texts_of(old), texts_of(new))
    return np.asarray(pc.fill_null(differ, False).to_numpy(zero_copy_only=False))
