"""Which row of a dataset is a row of a table: the one whose images and masks are in its places."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.changed_rows import StoredRows
from tfrecorder.conversion.row_keys import joined_texts, keys_of, partners
from tfrecorder.format.plan_columns import BASE, value_columns
from tfrecorder.reading.shard_tables import columns_of
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.kinds import Mask
from tfrecorder.validation.rules import Checked


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
