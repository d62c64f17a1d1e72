"""Which row of a dataset is a row of a table: the one whose images and masks are in its places."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.changed_rows import StoredRows, columns_of
from tfrecorder.conversion.row_keys import file_keys, joined_texts
from tfrecorder.format.plan_columns import BASE, value_columns
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.validation.rules import Checked


def fitted(checked: Checked, rows: pa.Table) -> Checked:
    """A table with its values in the types of a dataset's."""
    types = {name: rows.schema.field(name).type for name in rows.column_names}
    values = {
        name: column.cast(types[name]) if name in types else column
        for name, column in checked.values.items()
    }
    return dataclasses.replace(checked, values=values)


def matching_rows(
    stored: StoredRows, checked: Checked, base: str, fields: Sequence[Field]
) -> tuple[np.ndarray, np.ndarray]:
    """For each row of a table, the row of the dataset that it is; -1 for a new one.

    Of several rows in the same places, the first is the first.

    Returns:
        These rows, and for each whether its mask is another one.
    """
    images = [field for field in fields if isinstance(field.kind, Image)]
    files = [field for field in fields if isinstance(field.kind, (Image, Mask))]
    at = np.full(len(checked.frame), -1)
    free, remade = stored.is_newest.copy(), np.zeros(len(at), bool)
    names = sorted({*value_columns(stored.rows.column_names)} & {*checked.values})
    numbers = stored.numbers

    def keys_of(values: Mapping[str, pa.Array], folder: str, compared: Sequence[Field]) -> pa.Array:
        if not compared:  # rows without files are known by all their values
            return joined_texts([values[name] for name in names])
        return file_keys(stored.where, values, folder, compared)

    def pair(keys: pa.Array, among: np.ndarray) -> pd.Series:
        """Give each row without one a row of the dataset with the same key; those that got one."""
        codes = keys.dictionary_encode().indices.to_numpy()
        known = _turns(codes[: len(among)], among, numbers)
        wanted = _turns(codes[len(among) :], at < 0, np.arange(len(at)))
        found = wanted.merge(known, on=["key", "turn"], suffixes=("", "_there"))
        at[found["row"]] = found["row_there"]
        return found["row"]

    # With another mask, it is a correction of the row with the image.
    for compared in [files, images] if len(files) > len(images) > 0 else [files]:
        here = keys_of(checked.values, base, compared)
        there = pa.nulls(len(free), pa.large_string())
        for folder in stored.rows.column(BASE).unique().to_pylist():
            of = pc.equal(stored.rows.column(BASE), folder).combine_chunks()
            values = columns_of(stored.rows.filter(of))
            there = pc.replace_with_mask(there, of, keys_of(values, folder, compared))
        remade[pair(pa.concat_arrays([there, here]), free)] = compared is not files
        free[at[at >= 0]] = False
    came_as_bytes = _came_as_bytes(stored.rows, images)
    if came_as_bytes.any():  # a frame of the dataset has their names alone
        of_tables = [
            joined_texts([table[one.uri_key] for one in images])
            for table in (columns_of(stored.rows), checked.values)
        ]
        pair(pa.concat_arrays(of_tables), free & came_as_bytes)
    return at, remade


def _came_as_bytes(rows: pa.Table, images: Sequence[Field]) -> np.ndarray:
    """True for each row of a dataset of which an image came as bytes."""
    came = np.zeros(len(rows), bool)
    for field in images:
        if field.spool_key in rows.column_names:
            came |= np.asarray(pc.not_equal(rows.column(field.spool_key), ""))
    return came


def _turns(keys: np.ndarray, among: np.ndarray, order: np.ndarray) -> pd.DataFrame:
    """Rows with their keys, each with its turn among those with the same key."""
    rows = np.flatnonzero(among)
    rows = rows[np.argsort(order[rows], kind="stable")]
    frame = pd.DataFrame({"key": keys[rows], "row": rows})
    return frame.assign(turn=frame.groupby("key").cumcount())
