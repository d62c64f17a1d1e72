"""Rows of a table with the bytes of images that a dataset has under other names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.display.tables import cut
from tfrecorder.format.plan_columns import REJECT_OF, SHARD_SPLIT, source_of
from tfrecorder.plan.preflight import before_the_launch
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import known_rows
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources.file_sums import FileSums
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import Finding

#: What is compared, and the name and the split of an image that has it.
_KEY, _NAME, _SPLIT = "key", "name there", "split there"


class SameBytes(NamedTuple):
    """The rows of a table whose files have, together, the bytes of those of a row of a dataset.

    Attributes:
        rows: by row of the table, the size and checksum of its files, and its name.
        images: the rows of the dataset that have them.
    """

    rows: pd.DataFrame
    images: pd.DataFrame

    def findings(self, splits: pd.Series | None = None) -> Iterator[Finding]:
        """What to say of these rows.

        Args:
            splits: of the rows that are added, by row; None if none of these is.
        """
        pairs = self.rows.reset_index(names="row").merge(self.images, on=_KEY)
        if splits is None:
            yield _finding("same_bytes_skipped", pairs.drop_duplicates("row"))
            return
        pairs = pairs[pairs["row"].isin(splits.index)]
        pairs[SPLIT_COLUMN] = splits[pairs["row"]].to_numpy(object)
        # Of several images with these bytes one in another split says the most.
        pairs["leaks"] = pairs[SPLIT_COLUMN] != pairs[_SPLIT]
        pairs = pairs.sort_values("leaks", ascending=False, kind="stable").drop_duplicates("row")
        pairs = pairs.sort_values("row")
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
    return Finding(code, pairs["row"].tolist(), URI_COLUMN, names, messages)


def same_bytes(
    table: Source, directory: str, newest: Commit, files: Sequence[Field]
) -> SameBytes | None:
    """The rows of a table whose files a dataset has under other names; None if there are none.

    Files are read only where their sizes agree with those of files of the dataset.  Its rejects do
    not count.

    Args:
        table: rows whose places are not in the dataset.
        newest: the newest commit of the dataset.
        files: its columns of images and masks, at least one.

    Raises:
        DatasetError: a table cannot be read.
        ImagesUnreachableError: the store of an image does not answer.
    """
    if not len(table.frame):
        return None
    facts = [source_of(field) for field in files]
    sizes = _sizes(directory, newest, [fact.bytes for fact in facts])
    with before_the_launch():
        columns = [FileSums(table, field.column) for field in files]
        agree = np.all(
            [np.isin(one.sizes, known) for one, known in zip(columns, sizes, strict=True)], axis=0
        )
        sums = [of_row for one in columns for of_row in (one.sizes, one.crcs(agree))]
    rows = np.flatnonzero(agree & np.all(np.array(sums) >= 0, axis=0))
    if not len(rows):
        return None
    keys = _joined([pa.array(of_row[rows]) for of_row in sums])
    names = [name for fact in facts for name in (fact.bytes, fact.crc32c)]
    images = _images(directory, newest, files[0].uri_key, names, keys)
    same = pc.is_in(keys, value_set=pa.array(images[_KEY], pa.large_string()))
    rows, keys = rows[same.to_numpy(zero_copy_only=False)], keys.filter(same)
    if not len(rows):
        return None
    given = _names(table, files[0].column, table.frame.index.to_numpy()[rows])
    return SameBytes(given.assign(**{_KEY: keys.to_pylist()}), images)


def _names(table: Source, column: str, rows: np.ndarray) -> pd.DataFrame:
    """What the images of some rows are called."""
    contents, cells = table.contents.get(column), table.frame.loc[rows, column]
    names = [
        str(cell)
        if contents is None or not contents.holds(row)
        else contents.names[int(row)].as_py()
        for row, cell in zip(rows, cells, strict=True)
    ]
    return pd.DataFrame({URI_COLUMN: pd.Series(names, rows, object)})


def _sizes(directory: str, newest: Commit, names: Sequence[str]) -> list[np.ndarray]:
    """The sizes of the files of a dataset, by column."""
    found: list[list[np.ndarray]] = [[np.empty(0, np.int64)] for _ in names]
    for rows in known_rows(directory, newest, [REJECT_OF.reason, *names]):
        records = rows.filter(pc.equal(rows.column(REJECT_OF.reason), ""))
        for sizes, name in zip(found, names, strict=True):
            sizes.append(pc.unique(records.column(name).drop_null()).to_numpy())
    return [np.unique(np.concatenate(sizes)) for sizes in found]


def _images(
    directory: str, newest: Commit, uri_key: str, names: Sequence[str], keys: pa.Array
) -> pd.DataFrame:
    """The images of a dataset with these sizes and checksums, one of each split."""
    found = [pd.DataFrame({_NAME: [], _SPLIT: [], _KEY: []}, dtype=object)]
    for rows in known_rows(directory, newest, [REJECT_OF.reason, SHARD_SPLIT, uri_key, *names]):
        of_rows = _joined([rows.column(name).combine_chunks() for name in names])
        is_record = pc.equal(rows.column(REJECT_OF.reason), "").combine_chunks()
        same = pc.and_(is_record, pc.is_in(of_rows, value_set=keys, skip_nulls=True))
        shown = {_NAME: rows.column(uri_key), _SPLIT: rows.column(SHARD_SPLIT), _KEY: of_rows}
        found.append(pa.table(shown).filter(same).to_pandas().astype(object))
    return pd.concat(found, ignore_index=True).drop_duplicates([_KEY, _SPLIT])


def _joined(columns: Sequence[pa.Array]) -> pa.Array:
    """The numbers of each row as one text; null if one of them is."""
    texts = [column.cast(pa.large_string()) for column in columns]
    return pc.binary_join_element_wise(*texts, pa.scalar(" ", pa.large_string()))
