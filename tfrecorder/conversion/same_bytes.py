"""Rows of a table with the bytes of images that a dataset has under other names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.row_keys import (
    content_keys,
    stored_content_keys,
    stored_total_sizes,
    total_sizes,
)
from tfrecorder.display.tables import cut
from tfrecorder.format.plan_columns import REJECT_OF, SHARD_SPLIT, source_of
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import KEY, rows_with
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources.file_sums import file_sums_of
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import Finding

#: The columns of pairs beside a row's uri: its number, and the name and the split of the image that
#: has its bytes.
_ROW, _NAME, _SPLIT = "row", "name there", "split there"


def same_bytes(
    table: Source, directory: str, newest: Commit, files: Sequence[Field]
) -> pd.DataFrame:
    """The rows of a table whose files have, together, the bytes of those of a row of a dataset.

    Files are read only where their sizes agree with those of files of the dataset; those on http(s)
    are not asked for.  Rejects of the dataset do not count.

    Args:
        table: rows whose places are not in the dataset.
        newest: the newest commit of the dataset.
        files: its columns of images and masks, at least one.

    Returns:
        Pairs: the row and what its image is called, and an image of each split that has them.

    Raises:
        DatasetError: a table cannot be read.
        UnreachableError: the store of an image does not answer.
    """
    sums = [file_sums_of(table, field.column, web=False) for field in files]
    sizes, uri_key = total_sizes(sums), files[0].uri_key
    columns = [REJECT_OF.reason, SHARD_SPLIT, uri_key]
    columns += [name for field in files for name in source_of(field)[:2]]
    sizes_of = partial(stored_total_sizes, files=files)
    alike = rows_with(directory, newest, columns, sizes_of, pa.array(sizes[sizes >= 0]))
    alike = alike.filter(pc.equal(alike.column(REJECT_OF.reason), ""))
    keys = content_keys(sums, np.isin(sizes, alike.column(KEY).to_numpy()))
    images = {
        KEY: stored_content_keys(alike, files),
        _NAME: alike.column(uri_key),
        _SPLIT: alike.column(SHARD_SPLIT),
    }
    shared = pc.is_in(images[KEY], value_set=keys, skip_nulls=True)
    there = pa.table(images).filter(shared).to_pandas().astype(object)
    rows = np.asarray(pc.is_in(keys, value_set=images[KEY], skip_nulls=True))
    given = _names(table, files[0].column, table.frame.index.to_numpy()[rows])
    given[KEY] = keys.filter(pa.array(rows)).to_numpy(zero_copy_only=False)
    return given.merge(there.drop_duplicates([KEY, _SPLIT]), on=KEY)


def _names(table: Source, column: str, rows: np.ndarray) -> pd.DataFrame:
    """Some rows, and what their images are called."""
    names = table.frame.loc[rows, column].map(str).astype(object)
    contents = table.contents.get(column)
    if contents is not None:
        came = rows[contents.holds(rows)]
        names[came] = contents.names.take(pa.array(came)).to_pylist()
    return pd.DataFrame({_ROW: rows, URI_COLUMN: names.to_numpy()})


def findings_of(pairs: pd.DataFrame, splits: pd.Series | None = None) -> Iterator[Finding]:
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
    names, uris = pairs[URI_COLUMN].tolist(), pairs[_NAME].tolist()
    own = [""] * len(pairs)
    if code == "same_bytes_leakage":
        own = [f" in {split}" for split in pairs[SPLIT_COLUMN]]
    messages = [
        f"{cut(name)!r}{split} is {cut(uri)!r} in {there}"
        for name, split, uri, there in zip(names, own, uris, pairs[_SPLIT], strict=True)
    ]
    return Finding(code, pairs[_ROW].tolist(), URI_COLUMN, names, messages)
