"""Which rows of a table are already in a dataset, by the places or contents of their images.

The plan of each generation holds the uris of its records and of its rejects, and the folder that
they start from.  They stay in Arrow, where a million of them are searched in a second.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfrecorder.conversion.record_copies import by_base
from tfrecorder.display.tables import counted
from tfrecorder.display.warning import warn
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.plan_columns import COPY_OF
from tfrecorder.reading.plan_rows import read_planned
from tfrecorder.reading.row_lists import rejected_rows
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SOURCE_ID, URI_COLUMN
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.sources.places import column_places, places
from tfrecorder.sources.table import Source
from tfrecorder.validation.columns import cut, has_faults
from tfrecorder.validation.rules import Checked, check_source

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of the dataset that are searched together: at least this many, and this many times as many
#: as the table has, because the table's rows are put into a hash table each time.
TOGETHER, TIMES = 2**20, 4

#: In place of a folder that is not known.
NOWHERE = "/\x1f/"


class _Compared(NamedTuple):
    """What of a dataset is compared.

    Attributes:
        directories: of all generations.
        files: the columns of images and masks whose places are compared.
        values: the keys of the values that are compared.
        retry_rejects: rows that became rejects are not there.
    """

    directories: Sequence[str]
    files: Sequence[Field]
    values: Sequence[str]
    retry_rejects: bool


def pass_over_known(
    table: Source, directories: Sequence[str], fields: Sequence[Field], retry_rejects: bool
) -> tuple[Source, int]:
    """A table without the rows that are in the dataset, and how many these were.

    A row is there if one row there has all its images and masks, each from the same place.  A row
    without images is there if one row there has all its values.

    Args:
        directories: the directories of all generations.
        fields: the columns of the dataset.
        retry_rejects: rows that are in the dataset only as rejects stay in the table.

    Raises:
        DatasetError: a plan or a list of rejects cannot be read, or the folder of the images is
            not known.
    """
    files = [field for field in fields if isinstance(field.kind, (Image, Mask))]
    if not len(table.frame) or not {field.column for field in files} <= {*table.frame}:
        return table, 0
    compared = _Compared(directories, files, (), retry_rejects)
    if files:
        keys = _joined([column_places(table, field.column) for field in files])
        there = _are_there(keys, compared)
        _warn_of_values(_part(table, there), keys, compared, fields)
    elif (checked := _checked(table, fields)) is not None:
        keys = _joined([*checked.values.values()])
        there = _are_there(keys, compared._replace(values=(*checked.values,)))
    else:
        return table, 0
    return _part(table, ~there), int(there.sum())


def _part(table: Source, rows: np.ndarray) -> Source:
    groups = None if table.groups is None else table.groups[rows]
    return dataclasses.replace(table, frame=table.frame[rows], groups=groups)


def _checked(table: Source, fields: Sequence[Field]) -> Checked | None:
    """A table with its values; None if it has faults or other columns than the dataset."""
    checked = check_source(table, existing=fields)
    fits = {field.column for field in checked.fields} == {field.column for field in fields}
    return checked if fits and not has_faults(checked.findings) else None


def _warn_of_values(
    table: Source, places_of_all: pa.Array, compared: _Compared, fields: Sequence[Field]
) -> None:
    """Name rows of images that are there with other values, such as another caption."""
    if not len(table.frame) or (checked := _checked(table, fields)) is None:
        return
    of_files = {name for field in compared.files for name in (field.uri_key, field.spool_key)}
    values = {name: field for name, field in checked.values.items() if name not in of_files}
    rows = checked.frame.index.to_numpy()
    keys = _joined([places_of_all.take(rows), *values.values()])
    others = checked.frame[~_are_there(keys, compared._replace(values=(*values,)))]
    if len(others):
        warn(
            f"skipped: {counted(len(others), 'row')}, such as row {others.index[0]}, "
            f"{cut(others[URI_COLUMN].iloc[0])!r}: the images are in the dataset with other "
            "values, which stay as they are. To add them as further records, give "
            "`duplicates='keep'`."
        )


def _are_there(keys: pa.Array, compared: _Compared) -> np.ndarray:
    """True for each row of a table whose key is in the dataset."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = keys.drop_null()
    hits = [pa.array([], pa.large_string())]
    for known in _in_blocks(compared, max(TOGETHER, TIMES * len(wanted))):
        hits.append(known.filter(pc.is_in(known, value_set=wanted)).combine_chunks())
    if not sum(map(len, hits)):
        return np.zeros(len(keys), dtype=bool)
    there = pc.is_in(keys, value_set=pa.concat_arrays(hits), skip_nulls=True)
    return there.to_numpy(zero_copy_only=False)


def _in_blocks(compared: _Compared, together: int) -> Iterator[pa.ChunkedArray]:
    """The keys of all generations' rows, some million at a time."""
    import pyarrow as pa

    chunks: list[pa.Array] = []
    for directory in compared.directories:
        chunks += _keys(directory, compared)
        if sum(map(len, chunks)) >= together:
            yield pa.chunked_array(chunks, pa.large_string())
            chunks = []
    yield pa.chunked_array(chunks, pa.large_string())


def _keys(directory: str, compared: _Compared) -> Iterator[pa.Array]:
    """The keys of a generation's rows, including rejects unless these are to be tried again."""
    import pyarrow as pa
    import pyarrow.compute as pc

    files, values = compared.files, compared.values
    needed = {SOURCE_ID, *values, *(one.uri_key for one in files)}
    names = {*needed, COPY_OF.base, *(one.spool_key for one in files)}

    def chosen(schema: pa.Schema) -> list[str]:
        return [name for name in schema.names if name in names]

    rows = read_planned(directory, chosen)
    if rows is None or not needed <= {*rows.column_names}:
        raise _not_known(directory)
    if compared.retry_rejects:
        rejected = pa.array(rejected_rows(directory), pa.int64())
        rows = rows.filter(pc.invert(pc.is_in(rows.column(SOURCE_ID), value_set=rejected)))
    for base, some in by_base(directory, rows):
        for batch in some.to_batches():
            of = dict(zip(batch.schema.names, batch.columns, strict=True))
            uris = [(of[one.uri_key], base or NOWHERE, of.get(one.spool_key)) for one in files]
            columns = [places(*column) for column in uris]
            if not base and any(
                pc.any(pc.starts_with(column, NOWHERE)).as_py() for column in columns
            ):
                raise _not_known(directory)
            of_files = [_joined(columns)] if columns else []
            yield _joined([*of_files, *(of[name] for name in values)])


def _not_known(directory: str) -> DatasetError:
    return DatasetError(
        f"{os.path.join(directory, layout.PLAN_ROWS)} is missing, or does not say in which folder "
        "the images were, as after a repair from the records alone. So nobody knows which rows "
        "are already there. Copy it again, or give only new rows, with `duplicates='keep'`."
    )


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    """The values of each row as one text, which rows with other values do not have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = list(map(_texts, columns))
    if len(texts) == 1:
        return texts[0]
    parts = [part for text in texts for part in (_texts(pc.binary_length(text)), text)]
    return pc.binary_join_element_wise(*parts, pa.scalar(" ", pa.large_string()))


def _texts(column: pa.Array) -> pa.Array:
    """Values as texts, equal for equal values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(column.type):
        cells = map(_without_minus_zero, column.to_pylist())
        return pa.array(map(repr, cells), pa.large_string())
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0, column.type))  # as `_without_minus_zero`
    is_bytes = pa.types.is_large_binary(column.type)
    return column.view(pa.large_string()) if is_bytes else column.cast(pa.large_string())


def _without_minus_zero(cell: Any) -> Any:
    """A cell in which -0.0, which equals 0.0, is written like it."""
    if isinstance(cell, list):
        return [*map(_without_minus_zero, cell)]
    return cell + 0.0 if isinstance(cell, float) else cell
