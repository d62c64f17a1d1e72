"""The rows of all shards, to search: the many small tables of appends and streams, merged.

`layout.ROWS` is a copy of what stands in the tables.  Where it is missing, damaged or of other
shards, the tables are read, and the next merge writes it anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import (
    BASE,
    POSITION_OF,
    REJECT_OF,
    SHARD_SPLIT,
    is_number_of_source,
    parquet_options,
    source_of,
)
from tfrecorder.reading.commits import Commit, read_commit
from tfrecorder.reading.shard_tables import (
    each_table,
    joined,
    opened_rows,
    repeated,
    those_of,
    types_of,
)
from tfrecorder.schema.fields import file_fields
from tfrecorder.schema.keys import SOURCE_ID

#: So many tables are read one by one.
MOST_TABLES = 32

#: Rows of merged tables that are in memory, and are read, together.
_GROUP_ROWS = 2**16

#: The key under which merged rows name the commit whose shards they hold, and its plan's digest.
_UPTO = b"tfrecorder.rows/upto"

#: The key of the types of their columns: unlike a page, the end of a Parquet file has no checksum.
_SCHEMA = b"tfrecorder.rows/schema"


def known_rows(directory: str, newest: Commit, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of all rows of a dataset, rejects included, some rows at a time.

    A row may come twice.  Columns of texts that some shards do not have are "" there, and
    those of numbers of sources null.

    Raises:
        DatasetError: a table cannot be read.
    """
    waiting = []
    rows = 0
    for table in _tables_of(directory, newest, columns):
        waiting.append(table)
        rows += len(table)
        if rows >= _GROUP_ROWS:
            yield joined(waiting)
            waiting = []
            rows = 0
    if waiting:
        yield joined(waiting)


def _tables_of(directory: str, newest: Commit, columns: Sequence[str]) -> Iterator[pa.Table]:
    merged: frozenset[Shard] = frozenset()
    with contextlib.suppress(DatasetError), opened_rows(directory, layout.ROWS) as file:
        shards = _shards_in(file, directory, newest)
        if shards and {*columns} <= {*file.schema_arrow.names}:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=columns, use_threads=False)
                yield table.select(columns)
            merged = shards
    rest = [shard for shard in newest.shards if shard not in merged]
    for shard, table in each_table(directory, rest, those_of(columns)):
        splits = repeated(shard.split, len(table))
        yield _with(table.append_column(SHARD_SPLIT, splits), columns)


#: The column of `rows_with` that holds the key of a row.
KEY = "tfrecorder.key"


def rows_with(
    directory: str,
    newest: Commit,
    columns: Sequence[str],
    keys_of: Callable[[pa.Table], pa.Array],
    wanted: pa.Array,
    left_out: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """Those of `known_rows` whose keys are wanted, which are one more column.

    Args:
        keys_of: makes the keys of rows with these columns.
        left_out: columns that only the keys need.

    Raises:
        DatasetError: a table cannot be read.
    """
    for rows in known_rows(directory, newest, columns):
        keys = keys_of(rows)
        is_wanted = pc.is_in(keys, value_set=wanted, skip_nulls=True)
        rows = rows.append_column(KEY, keys).drop_columns([*left_out])
        yield rows.filter(is_wanted)


def merge_rows(directory: str, newest: Commit) -> None:
    """Merge the tables of a dataset if many are not merged yet.

    Raises:
        DatasetError: a table cannot be read.
        OSError: the merged rows cannot be written.
    """
    merged: frozenset[Shard] = frozenset()
    with contextlib.suppress(DatasetError), opened_rows(directory, layout.ROWS) as file:
        merged = _shards_in(file, directory, newest)
    if len(newest.shards) - len(merged) <= MOST_TABLES:
        return
    fields = newest.plan.fields
    files = file_fields(fields)
    types = {SOURCE_ID: pa.int64(), **types_of(directory, newest.dataset.splits)}
    texts = [BASE, SHARD_SPLIT, REJECT_OF.reason, *POSITION_OF]
    texts += [field.spool_key for field in files]
    types |= dict.fromkeys(texts, pa.large_string())
    types |= {name: pa.int64() for field in files for name in source_of(field)}
    schema = pa.schema(types.items())
    schema = schema.with_metadata({_UPTO: _note(newest), _SCHEMA: str(schema)})

    def write(file: BinaryIO) -> None:
        with pq.ParquetWriter(file, schema, **parquet_options(fields)) as writer:
            for table in known_rows(directory, newest, list(types)):
                writer.write_table(table.cast(schema), row_group_size=_GROUP_ROWS)

    storage.publish_by(directory, layout.ROWS, write)


def _with(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """These columns of a table; those that it does not have are as `known_rows` says."""
    for name in names:
        if name not in table.column_names:
            empty = repeated("", len(table))
            if is_number_of_source(name):
                empty = pa.nulls(len(table), pa.int64())
            table = table.append_column(name, empty)
    return table.select(names)


def _shards_in(file: pq.ParquetFile, directory: str, newest: Commit) -> frozenset[Shard]:
    """The shards whose rows were merged; none if the dataset is not an addition to these.

    Raises:
        DatasetError: the commit up to which they were merged is gone.
    """
    about = file.schema_arrow.metadata or {}
    schema = file.schema_arrow.remove_metadata()
    note, types = (about.get(key, b"").decode(errors="replace") for key in (_UPTO, _SCHEMA))
    first = note.partition(" ")[0]
    number = int(first) if first.isdecimal() and types == str(schema) else -1
    dataset = newest.dataset
    if not dataset.chain <= number <= newest.number or number in dataset.skips:
        return frozenset()
    upto = newest if number == newest.number else read_commit(directory, number)
    return frozenset(upto.shards) if note == _note(upto) else frozenset()


def _note(commit: Commit) -> str:
    return f"{commit.number} {commit.digest}"
