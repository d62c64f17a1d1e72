"""What is known of each row without reading a record: tables of shards, and public lists."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.display.messages import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import value_of
from tfrecorder.format.layout import BASE, Shard, value_columns

#: Given the schema of all columns, the names of those to read.
Chosen = Callable[["pa.Schema"], Sequence[str]]

#: Tables that are read from a remote store at once, and are in memory together.
_TOGETHER = 256


def each_table(
    directory: str,
    shards: Sequence[Shard],
    chosen: Chosen,
) -> Iterator[tuple[Shard, pa.Table]]:
    """Some columns of the tables of some shards, in their order; see `read_columns`.

    Raises:
        DatasetError: a table cannot be read.
    """

    def read(shard: Shard) -> pa.Table:
        return read_columns(directory, shard.table, chosen)

    together = 1 if storage.is_local(directory) else _TOGETHER
    for start in range(0, len(shards), together):
        some = shards[start : start + together]
        yield from zip(some, storage.each(read, some, directory), strict=True)


def read_tables(
    directory: str,
    shards: Sequence[Shard],
    chosen: Chosen,
) -> pa.Table | None:
    """The same as one table; None without shards.

    Raises:
        DatasetError: a table cannot be read.
    """
    tables = [table for _, table in each_table(directory, shards, chosen)]
    return joined(tables) if tables else None


def types_of(directory: str, splits: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The type of each value that the rows of a dataset were planned with, by key.

    Args:
        splits: of its manifest.

    Raises:
        DatasetError: the table of its first shard cannot be read.
    """
    split, (revision, _) = next(iter(splits.items()))
    with opened_rows(directory, Shard(split, 0, revision).table) as file:
        schema = file.schema_arrow
    return {name: schema.field(name).type for name in value_columns(schema.names)}


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one after the other; a text that only some of them have is "" in the others.

    Those without rows add nothing, unless all are.
    """
    some = [table for table in tables if len(table)] or tables[:1]
    plain = [table.replace_schema_metadata() for table in some]
    whole = pa.concat_tables(plain, promote_options="permissive")
    for at, (name, column) in enumerate(zip(whole.column_names, whole.columns, strict=True)):
        if column.null_count and pa.types.is_large_string(column.type):
            whole = whole.set_column(at, name, column.fill_null(""))
    return whole


def those_of(names: Sequence[str]) -> Chosen:
    """Chooses those of some columns that a table has."""
    return lambda schema: [name for name in names if name in schema.names]


def repeated(text: str, rows: int) -> pa.Array:
    """A column with the same text in each row."""
    return pa.repeat(pa.scalar(text, pa.large_string()), rows)


def columns_of(rows: pa.Table) -> dict[str, pa.Array]:
    """The columns of a table by name, each in one piece."""
    named = zip(rows.column_names, rows.columns, strict=True)
    return {name: c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for name, c in named}


def read_columns(
    directory: str,
    name: str,
    chosen: Chosen,
) -> pa.Table:
    """Some columns of a table of rows in a dataset, in the order in which they were chosen.

    The folder of relative uris can be chosen like a column, wherever it is noted.

    Raises:
        DatasetError: the table cannot be read.
    """
    with opened_rows(directory, name) as file:
        schema = file.schema_arrow
        has_base = BASE in schema.names
        names = chosen(schema if has_base else schema.append(pa.field(BASE, pa.large_string())))
        stored = [name for name in names if has_base or name != BASE]
        table: pa.Table = file.read(columns=stored, use_threads=False)
        if len(stored) < len(names):
            base = (schema.metadata or {}).get(BASE.encode(), b"").decode()
            table = table.append_column(BASE, repeated(base, file.metadata.num_rows))
        return table.select(names)


@contextlib.contextmanager
def opened_rows(directory: str, name: str) -> Iterator[pq.ParquetFile]:
    """A table of rows in a dataset.

    Raises:
        DatasetError: it cannot be read; also if that turns out in the block.
    """
    path = os.path.join(directory, name)
    try:
        # By its path: Arrow's threads would hold the bytes of a Python file, and a thread that
        # lets go of them while Python shuts down aborts the process (pyarrow 25).
        with (
            storage.local_copy(path) as copy,
            storage.open_seekable(copy),  # refuses what is not a file, such as a pipe
            pq.ParquetFile(copy, page_checksum_verification=True) as file,
        ):
            yield file
    except (OSError, ValueError, KeyError, storage.UnreadableError, pa.ArrowException) as error:
        words = str(error).rstrip(".")
        raise DatasetError(
            f"{path} cannot be read: {words}. `{command('verify', directory)}` checks every file."
        ) from error


def read_row_list(directory: str, name: str) -> Sequence[Sequence[str]]:
    """The rows of `rejects.csv` or `suspects.csv` without the header, with their exact values.

    Raises:
        DatasetError: the file is missing or damaged.
    """
    path = os.path.join(directory, name)
    try:
        text = storage.read_bytes(path).decode()
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [list(map(value_of, line)) for line in lines][1:]
    except (storage.UnreadableError, ValueError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read: {error}. Copy it again.") from error
    if not all(row and row[0].isdecimal() for row in rows):
        raise DatasetError(
            f"{path} is damaged: a line of it has no row number. Copy it again; "
            f"`{command('verify', directory)}` checks every file."
        )
    return rows


def reject_counts(directory: str) -> dict[str, int]:
    """The rows that gave no record by "stage/code", the most frequent first."""
    rows = read_row_list(directory, layout.REJECTS)
    counts = Counter(f"{stage}/{reason.partition(':')[0]}" for _, _, stage, reason in rows)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
