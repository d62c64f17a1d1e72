"""What rows are compared by, as one text a row: the places of their files, the sizes and checksums
of these, or all values; and the rows with bytes of images that a dataset has under other names.

A dataset has all of it in its tables, a table of rows in its cells and their files.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.core.arrays import Bools, Ints
from tfrecorder.core.option import spelled
from tfrecorder.display.tables import cut
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.layout import BASE, REJECT_OF, SHARD_SPLIT, source_of
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import KEY, rows_with
from tfrecorder.reading.shard_tables import columns_of, joined
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.named_files import FileSums, file_sums_of
from tfrecorder.sources.places import known_places
from tfrecorder.sources.table import Source


def keys_of(
    rows: pa.Table,
    files: Sequence[Field],
    values: Sequence[str] = (),
    directory: str | None = None,
) -> pa.Array:
    """The places of all files of each row, and some of its values.

    Args:
        rows: of a dataset, or with the columns of one.
        files: the columns of images or masks.
        values: the names of other columns.
        directory: of the dataset, if each row must have places; otherwise it may be null.

    Raises:
        DatasetError: the folder that a relative uri starts from is needed, and nobody noted it.
    """
    columns = columns_of(
        rows.select([name for name in names_of_keys(files, values) if name in rows.column_names])
    )
    of_files = []
    for field in files:
        uris = columns[field.uri_key]
        of_file = known_places(uris, columns[BASE], columns.get(field.spool_key))
        if directory is not None and of_file.null_count > uris.null_count:
            raise DatasetError(
                f"{os.path.join(directory, layout.TABLES)} does not say in which folder the images "
                "were, as after a repair from the records alone. So nobody knows which rows are "
                "already there. Copy it again; or append only new rows, with "
                f"{spelled('duplicates', 'keep')}."
            )
        of_files.append(of_file)
    return joined_texts([*of_files, *(columns[name] for name in values)])


def names_of_keys(files: Sequence[Field], values: Sequence[str] = ()) -> list[str]:
    """The columns that `keys_of` needs."""
    names = [BASE]
    for field in files:
        names += (field.uri_key, field.spool_key)
    return [*names, *values]


def total_sizes(files: Sequence[FileSums]) -> Ints:
    """The size of all files of each row; -1 if one has none."""
    sizes = np.array([of_file.sizes for of_file in files])
    return np.where(np.all(sizes >= 0, axis=0), sizes.sum(axis=0), -1)


def content_keys(files: Sequence[FileSums], rows: Bools) -> pa.Array:
    """The sizes and CRC32Cs of all files of some rows, a mask; null for all others.

    Raises:
        UnreachableError: a store does not answer.
    """
    sums = [values for of_file in files for values in (of_file.sizes, of_file.crcs(rows))]
    return joined_texts([pa.array(values, mask=values < 0) for values in sums])


def stored_total_sizes(rows: pa.Table, files: Sequence[Field]) -> pa.Array:
    """`total_sizes` of rows of a dataset; null where one is not known."""
    return functools.reduce(pc.add, _stored_sums(rows, files)[::2])


def stored_content_keys(rows: pa.Table, files: Sequence[Field]) -> pa.Array:
    """`content_keys` of rows of a dataset; null where a size or a checksum is not known."""
    return joined_texts(_stored_sums(rows, files))


def _stored_sums(rows: pa.Table, files: Sequence[Field]) -> list[pa.Array]:
    names = (name for field in files for name in source_of(field)[:2])
    return [rows.column(name).combine_chunks() for name in names]


def partners(
    keys: pa.Array,
    known: pa.Array,
    in_turn: bool = True,
) -> Ints:
    """For each key the place of an equal one among those that are known; -1 without one.

    Args:
        in_turn: of several equal ones the first is the first that is known, the second the second;
            otherwise each is the first.
    """
    first = _first_places(keys, known)
    turns = pd.DataFrame({"key": first[first >= 0]})
    turns["turn"] = turns.groupby("key").cumcount()
    if not in_turn or not turns["turn"].any():
        return first
    known_turns = pd.DataFrame({"key": _first_places(known, known), "place": np.arange(len(known))})
    known_turns["turn"] = known_turns.groupby("key").cumcount()
    matches = turns.merge(known_turns, "left", on=["key", "turn"])
    first[first >= 0] = matches["place"].fillna(-1)
    return first


def _first_places(keys: pa.Array, known: pa.Array) -> Ints:
    """For each key the first place of an equal one among those that are known; -1 without one."""
    places = pc.fill_null(pc.index_in(keys, value_set=known, skip_nulls=True), -1)
    return np.array(places.to_numpy(), np.int64)


def joined_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """The values of each row as one text, which rows with other values do not have."""
    texts = list(map(texts_of, columns))
    if len(texts) == 1:
        return texts[0]
    parts = [part for text in texts for part in (texts_of(pc.binary_length(text)), text)]
    return pc.binary_join_element_wise(*parts, pa.scalar(" ", pa.large_string()))


def texts_of(column: pa.Array) -> pa.Array:
    """Values as texts, equal for equal values."""
    if pa.types.is_nested(column.type):
        cells = map(_without_minus_zero, column.to_pylist())
        return pa.array(map(repr, cells), pa.large_string())
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0, column.type))  # as `_without_minus_zero`
    is_bytes = pa.types.is_large_binary(column.type)
    return column.view(pa.large_string()) if is_bytes else column.cast(pa.large_string())


def _without_minus_zero(cell: object) -> object:
    """A cell in which -0.0, which equals 0.0, is written like it."""
    if isinstance(cell, list):
        return [*map(_without_minus_zero, cell)]
    return cell + 0.0 if isinstance(cell, float) else cell


#: What a pair has beside the uri of its row: the number of the row, and the name and split of the
#: image with the same bytes.
_ROW = "row"
_NAME = "name there"
_SPLIT = "split there"


def same_bytes(
    table: Source,
    directory: str,
    newest: Commit,
    files: Sequence[Field],
    among: pa.ChunkedArray | None = None,
) -> pd.DataFrame:
    """The rows of a table whose files have, together, the bytes of those of a row of a dataset.

    Files are read only where their sizes agree with those of files of the dataset; those on http(s)
    are not asked for.  Rejects of the dataset do not count.

    Args:
        table: rows whose places are not in the dataset.
        newest: the newest commit of the dataset.
        files: its columns of images and masks, at least one.
        among: the uris of those of its images that count; None for all.

    Returns:
        Pairs: the row and what its image is called, and an image of each split that has them.

    Raises:
        DatasetError: a table cannot be read.
        UnreachableError: the store of an image does not answer.
    """
    sums = [file_sums_of(table, field.column, web=False) for field in files]
    sizes = total_sizes(sums)
    uri_key = files[0].uri_key
    of_bytes = [name for field in files for name in source_of(field)[:2]]
    columns = [REJECT_OF.reason, SHARD_SPLIT, uri_key, *of_bytes]
    tables = []
    sizes_of = partial(stored_total_sizes, files=files)
    for rows in rows_with(directory, newest, columns, sizes_of, pa.array(sizes[sizes >= 0])):
        rows = rows.filter(pc.equal(rows.column(REJECT_OF.reason), ""))
        if among is not None:
            rows = rows.filter(pc.is_in(rows.column(uri_key), value_set=among))
        # All rows may have the same bytes: one of each split is enough.
        again = rows.select([*of_bytes, SHARD_SPLIT]).to_pandas().duplicated()
        tables.append(rows.filter(pa.array(~again)))
    alike = joined(tables)
    keys = content_keys(sums, np.isin(sizes, alike.column(KEY).to_numpy()))
    images = {
        KEY: stored_content_keys(alike, files),
        _NAME: alike.column(uri_key),
        _SPLIT: alike.column(SHARD_SPLIT),
    }
    shared = pc.is_in(images[KEY], value_set=keys, skip_nulls=True)
    stored = pa.table(images).filter(shared).to_pandas().astype(object)
    rows = np.asarray(pc.is_in(keys, value_set=images[KEY], skip_nulls=True))
    given = _names(table, files[0].column, table.frame.index.to_numpy()[rows])
    given[KEY] = keys.filter(pa.array(rows)).to_numpy(zero_copy_only=False)
    return given.merge(stored.drop_duplicates([KEY, _SPLIT]), on=KEY)


def _names(
    table: Source,
    column: str,
    rows: Ints,
) -> pd.DataFrame:
    """Some rows, and what their images are called."""
    names = table.frame.loc[rows, column].map(str).astype(object)
    contents = table.contents.get(column)
    if contents is not None:
        came = rows[contents.holds(rows)]
        names[came] = contents.names.take(pa.array(came)).to_pylist()
    return pd.DataFrame({_ROW: rows, URI_COLUMN: names.to_numpy()})


def findings_of(pairs: pd.DataFrame, splits: pd.Series[str] | None = None) -> Iterator[Finding]:
    """What to say of the pairs of `same_bytes`.

    Args:
        splits: of the rows that are added, by row; None if none of these is.
    """
    if splits is None:
        yield _finding("same_bytes_skipped", pairs.drop_duplicates(_ROW))
        return
    pairs = pairs[pairs[_ROW].isin(splits.index)]
    pairs[SPLIT_COLUMN] = splits[pairs[_ROW]].to_numpy(object)
    # Of several images with these bytes one in another split says the most.
    pairs["leaks"] = pairs[SPLIT_COLUMN] != pairs[_SPLIT]
    pairs = pairs.sort_values("leaks", ascending=False, kind="stable").drop_duplicates(_ROW)
    pairs = pairs.sort_values(_ROW)
    yield _finding("same_bytes_leakage", pairs[pairs["leaks"]])
    yield _finding("same_bytes", pairs[~pairs["leaks"]])


def _finding(code: str, pairs: pd.DataFrame) -> Finding:
    names = pairs[URI_COLUMN].tolist()
    uris = pairs[_NAME].tolist()
    own = [""] * len(pairs)
    if code == "same_bytes_leakage":
        own = [f" in {split}" for split in pairs[SPLIT_COLUMN]]
    messages = [
        f"{cut(name)!r}{split} is {cut(uri)!r} in {stored_split}"
        for name, split, uri, stored_split in zip(names, own, uris, pairs[_SPLIT], strict=True)
    ]
    return Finding(code, pairs[_ROW].tolist(), URI_COLUMN, names, messages)
