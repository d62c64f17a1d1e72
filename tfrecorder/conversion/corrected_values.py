"""What a table has otherwise than a dataset, and what becomes of each record for it.

Which row of a dataset is a row of a table: the one whose images and masks are in its places.

In all of this, `at` gives for each row of the table the row of the dataset that it is, or -1.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.changed_rows import StoredRows
from tfrecorder.conversion.row_keys import joined_texts, keys_of, partners, texts_of
from tfrecorder.format.plan_columns import BASE, MADE, READ, SAME, VALUES, value_columns
from tfrecorder.reading.shard_tables import columns_of
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.kinds import FILES, Label, Mask
from tfrecorder.validation.rules import Checked


def changes_of(
    stored: StoredRows,
    checked: Checked,
    base: str,
    at: np.ndarray,
    remade: np.ndarray,
    transforms: bool,
) -> tuple[np.ndarray, dict[str, int]]:
    """What becomes of each record of the dataset, and how many differ in each column.

    Boxes and masks are placed on the image as it was before it was resized, so they need the source
    again where images are stored otherwise.

    Args:
        remade: which rows of the table have another mask.
    """
    change, differing = np.full(len(stored.rows), SAME), dict[str, int]()
    known = np.flatnonzero(at >= 0)
    here, there = pa.array(known), pa.array(at[known])
    has_record = stored.has_record[at[known]]
    elsewhere = pc.not_equal(stored.rows.column(BASE), base).take(there).to_numpy()
    for field in checked.fields:
        if isinstance(field.kind, FILES) and not isinstance(field.kind, Mask):
            continue
        differs = remade[known] if isinstance(field.kind, Mask) else np.zeros(len(known), bool)
        for name in () if isinstance(field.kind, Mask) else _names(field, checked, stored.rows):
            column = stored.rows.column(name).combine_chunks()
            differs |= _differ(column.take(there), checked.values[name].take(here))
        how = np.full(len(known), VALUES)
        if field.of_boxes or isinstance(field.kind, Mask):
            how[:] = READ if transforms else MADE
            how[elsewhere & isinstance(field.kind, Mask)] = READ  # whose place starts elsewhere
        change[at[known]] = np.maximum(change[at[known]], np.where(differs, how, SAME))
        if count := int((differs & has_record).sum()):
            differing[field.column] = count
    return change, differing


def _names(field: Field, checked: Checked, rows: pa.Table) -> list[str]:
    """The columns of a field's values that both a table and a dataset have."""
    keys = (one.key for one in field.features)
    return [key for key in keys if key in checked.values and key in rows.column_names]


def _differ(old: pa.Array, new: pa.Array) -> np.ndarray:
    """True where two values differ; NaN is NaN."""
    differ = pc.not_equal(texts_of(old), texts_of(new))
    return np.asarray(pc.fill_null(differ, False).to_numpy(zero_copy_only=False))


def relabelled(stored: StoredRows, checked: Checked, at: np.ndarray) -> dict[str, int]:
    """How many records go from one class to another, for the columns with one class a record."""
    names: Counter[str] = Counter()
    known = np.flatnonzero(at >= 0)
    known = known[stored.has_record[at[known]]]
    for field in checked.fields:
        if not isinstance(field.kind, Label) or not _names(field, checked, stored.rows):
            continue
        key = field.text_key or field.label_key or ""
        old = stored.rows.column(key).combine_chunks().take(pa.array(at[known]))
        new = checked.values[key].take(pa.array(known))
        differs = pa.array(_differ(old, new))
        pairs = zip(old.filter(differs).to_pylist(), new.filter(differs).to_pylist(), strict=True)
        names.update(f"{was} → {now}" for was, now in pairs)
    return dict(names)


def with_values(
    rows: pa.Table,
    checked: Checked,
    base: str,
    at: np.ndarray,
    change: np.ndarray,
) -> pa.Table:
    """The rows of a dataset with the values of a table where these differ."""
    known = np.flatnonzero(at >= 0)
    given = {**checked.values, BASE: pa.repeat(pa.scalar(base, pa.large_string()), len(at))}
    least = dict.fromkeys(given, VALUES) | {BASE: READ}
    for field in checked.fields:
        if isinstance(field.kind, FILES):
            how = MADE if isinstance(field.kind, Mask) else READ
            least |= {field.uri_key: how, field.spool_key: how}
    for name in (name for name in given if name in rows.column_names):
        changed = known[change[at[known]] >= least[name]]
        if len(changed):
            take = np.arange(len(rows))
            take[at[changed]] = len(rows) + changed
            both = pa.concat_arrays([rows.column(name).combine_chunks(), given[name]])
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, both.take(pa.array(take)))
    return rows


def fitted(checked: Checked, rows: pa.Table) -> Checked:
    """A table with its values in the types of a dataset's."""
    types = dict(zip(rows.schema.names, rows.schema.types, strict=True))
    values = {name: of.cast(types.get(name, of.type)) for name, of in checked.values.items()}
    return dataclasses.replace(checked, values=values)


def matching_rows(
    stored: StoredRows, checked: Checked, base: str, fields: Sequence[Field]
) -> tuple[np.ndarray, np.ndarray]:
    """For each row of a table, the row of the dataset that it is; -1 for a new one.

    Of several rows in the same places, the first is the first.

    Returns:
        These rows, and for each whether its mask is another one.
    """
    files = file_fields(fields)
    images = [field for field in files if not isinstance(field.kind, Mask)]
    at = np.full(len(checked.frame), -1)
    free, remade = stored.is_newest.copy(), np.zeros(len(at), bool)

    def pair(there: pa.Array, here: pa.Array, among: np.ndarray) -> None:
        """Give each row without one a row of the dataset with the same key."""
        known, wanted = np.flatnonzero(among), np.flatnonzero(at < 0)
        known = known[np.argsort(stored.numbers[known], kind="stable")]
        found = partners(here.take(wanted), there.take(known))
        at[wanted] = np.append(known, -1)[found]
        free[at[at >= 0]] = False

    bases = pa.repeat(pa.scalar(base, pa.large_string()), len(at))
    given = pa.table({**checked.values, BASE: bases})
    # Rows without files are known by all their values.
    values = sorted({*value_columns(stored.rows.column_names)} & {*checked.values})
    values = [] if files else values
    # With another mask, it is a correction of the row with the image.
    for compared in [files, images] if len(files) > len(images) > 0 else [files]:
        is_new = at < 0
        known = keys_of(stored.rows, compared, values, stored.where)
        pair(known, keys_of(given, compared, values), free)
        remade = is_new & (at >= 0) & (compared is not files)
    has = {*stored.rows.column_names}
    spooled = [stored.rows.column(one.spool_key) for one in images if one.spool_key in has]
    if spooled:  # a frame of the dataset has their names alone
        came_as_bytes = np.any([pc.not_equal(column, "").to_numpy() for column in spooled], axis=0)
        there = columns_of(stored.rows.select([one.uri_key for one in images]))
        here = [checked.values[name] for name in there]
        pair(joined_texts([*there.values()]), joined_texts(here), free & came_as_bytes)
    return at, remade
