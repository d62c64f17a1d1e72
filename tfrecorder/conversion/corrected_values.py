"""What a table has otherwise than a dataset, and what becomes of each record for it.

Which row of a dataset is a row of a table: the one whose images and masks are in its places.
"""

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
from tfrecorder.conversion.row_keys import joined_texts, keys_of, partners, texts_of
from tfrecorder.core.arrays import Bools, Ints
from tfrecorder.format.plan_columns import BASE, MADE, READ, SAME, VALUES, value_columns
from tfrecorder.reading.shard_tables import columns_of, repeated
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.kinds import FILES, Label, Mask
from tfrecorder.validation.rules import Checked


@dataclass(frozen=True)
class Matched:
    """The rows of a checked table, and those of a dataset that they are.

    Attributes:
        stored: the rows of the dataset.
        checked: the table, with its values in the types of the dataset's.
        base: the folder that its relative uris start from.
        places: for each of its rows, its place in the dataset; -1 for a new one.
        remade: which of its rows have another mask.
    """

    stored: StoredRows
    checked: Checked
    base: str
    places: Ints
    remade: Bools

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
        rows, values = self.stored.rows, self.checked.values
        old_rows, places = self.old_rows, self.old_places
        change, differing = np.full(len(rows), SAME), dict[str, int]()
        has_record = self.stored.has_record[places]
        elsewhere = pc.not_equal(rows.column(BASE), self.base).take(pa.array(places)).to_numpy()
        for field in self.checked.fields:
            if isinstance(field.kind, FILES) and not isinstance(field.kind, Mask):
                continue
            is_mask = isinstance(field.kind, Mask)
            differs = self.remade[old_rows] if is_mask else np.zeros(len(old_rows), bool)
            for name in () if is_mask else self._names(field):
                column = rows.column(name).combine_chunks()
                differs |= _differ(
                    column.take(pa.array(places)), values[name].take(pa.array(old_rows))
                )
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
        for field in self.checked.fields:
            if not isinstance(field.kind, Label) or not self._names(field):
                continue
            key = field.text_key or field.label_key or ""
            old = (
                self.stored.rows.column(key).combine_chunks().take(pa.array(self.places[labelled]))
            )
            new = self.checked.values[key].take(pa.array(labelled))
            differs = pa.array(_differ(old, new))
            olds, news = (values.filter(differs).to_pylist() for values in (old, new))
            names.update(f"{was} → {now}" for was, now in zip(olds, news, strict=True))
        return dict(names)

    def with_values(self, change: Ints) -> pa.Table:
        """The rows of the dataset with the values of the table where these differ."""
        rows, old_rows = self.stored.rows, self.old_rows
        given = {**self.checked.values, BASE: repeated(self.base, len(self.places))}
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
        keys, rows = (feature.key for feature in field.features), self.stored.rows
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


def match_rows(stored: StoredRows, checked: Checked, base: str, fields: Sequence[Field]) -> Matched:
    """Find the row of a dataset that each row of a table is.

    Of several rows in the same places, the first is the first.
    """
    types = dict(zip(stored.rows.schema.names, stored.rows.schema.types, strict=True))
    as_stored = {name: of.cast(types.get(name, of.type)) for name, of in checked.values.items()}
    checked = dataclasses.replace(checked, values=as_stored)
    files = file_fields(fields)
    images = [field for field in files if not isinstance(field.kind, Mask)]
    places = np.full(len(checked.frame), -1)
    free, remade = stored.is_newest.copy(), np.zeros(len(places), bool)

    def pair(stored_keys: pa.Array, keys: pa.Array, among: Bools) -> None:
        """Give each row without one a row of the dataset with the same key."""
        candidates, wanted = np.flatnonzero(among), np.flatnonzero(places < 0)
        candidates = candidates[np.argsort(stored.numbers[candidates], kind="stable")]
        matches = partners(keys.take(wanted), stored_keys.take(candidates))
        places[wanted] = np.append(candidates, -1)[matches]
        free[places[places >= 0]] = False

    given = pa.table({**checked.values, BASE: repeated(base, len(places))})
    # Rows without files are known by all their values.
    values = sorted({*value_columns(stored.rows.column_names)} & {*checked.values})
    values = [] if files else values
    # With another mask, it is a correction of the row with the image.
    for compared in [files, images] if len(files) > len(images) > 0 else [files]:
        is_new = places < 0
        stored_keys = keys_of(stored.rows, compared, values, stored.where)
        pair(stored_keys, keys_of(given, compared, values), free)
        remade = is_new & (places >= 0) & (compared is not files)
    has = {*stored.rows.column_names}
    spooled = [stored.rows.column(image.spool_key) for image in images if image.spool_key in has]
    if spooled:  # a frame of the dataset has their names alone
        came_as_bytes = np.any([pc.not_equal(column, "").to_numpy() for column in spooled], axis=0)
        stored_uris = columns_of(stored.rows.select([image.uri_key for image in images]))
        uris = [checked.values[name] for name in stored_uris]
        pair(joined_texts([*stored_uris.values()]), joined_texts(uris), free & came_as_bytes)
    return Matched(stored, checked, base, places, remade)
