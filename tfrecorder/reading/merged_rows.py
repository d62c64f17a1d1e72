"""What all rows of a dataset say: its many small tables merged, to be searched and counted.

`layout.ROWS` is a copy of what stands in the tables.  Where it is missing, damaged or of other
shards, the tables are read, and the next merge writes it anew.

What follows from all rows is here too: the next row's number, of which each is given once; how far
each source of a stream was read; how many records have the same bytes, without reading one; and
how many images were not compared.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import (
    BASE,
    POSITION_OF,
    REJECT_OF,
    SHARD_SPLIT,
    Shard,
    is_number_of_source,
    parquet_options,
    source_of,
)
from tfrecorder.format.plan import Plan
from tfrecorder.images.near_copies import content_of
from tfrecorder.reading.commits import Commit, read_commit
from tfrecorder.reading.shard_tables import (
    each_table,
    joined,
    opened_rows,
    read_columns,
    repeated,
    those_of,
    types_of,
)
from tfrecorder.schema.fields import Field, file_fields, primary_image
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.splits import SPLITS

#: So many tables are read one by one.
MOST_TABLES = 32

#: Rows of merged tables that are in memory, and are read, together.
_GROUP_ROWS = 2**16

#: The key under which merged rows name the commit whose shards they hold, and its plan's digest.
_UPTO = b"tfrecorder.rows/upto"

#: The key of the types of their columns: unlike a page, the end of a Parquet file has no checksum.
_SCHEMA = b"tfrecorder.rows/schema"


def known_rows(
    directory: str,
    newest: Commit,
    columns: Sequence[str],
) -> Iterator[pa.Table]:
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


def _tables_of(
    directory: str,
    newest: Commit,
    columns: Sequence[str],
) -> Iterator[pa.Table]:
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
        yield _with_columns(table.append_column(SHARD_SPLIT, splits), columns)


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


def _with_columns(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """These columns of a table; those that it does not have are as `known_rows` says."""
    for name in names:
        if name not in table.column_names:
            empty = repeated("", len(table))
            if is_number_of_source(name):
                empty = pa.nulls(len(table), pa.int64())
            table = table.append_column(name, empty)
    return table.select(names)


def _shards_in(
    file: pq.ParquetFile,
    directory: str,
    newest: Commit,
) -> frozenset[Shard]:
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


def next_row_of(directory: str, newest: Commit | None) -> int:
    """The number that the next new row of a dataset gets: no row ever had it or a larger one.

    Args:
        newest: its newest commit; None if there is no dataset yet.

    Raises:
        DatasetError: nothing states the number, as in manifests of form 4, and a table that shows
            it cannot be read.
    """
    if newest is None:
        return 0
    if newest.plan.carried.next_row:
        return newest.plan.carried.next_row
    highest = counted_rows(newest.plan) - 1
    for rows in known_rows(directory, newest, [SOURCE_ID]):
        of_some = pc.max(rows.column(SOURCE_ID)).as_py()
        highest = max(highest, -1 if of_some is None else of_some)
    return highest + 1


def counted_rows(plan: Plan) -> int:
    """The rows of all sources, counted: what form 4 took for the next number.

    It is too small where an overwrite left rows out that were removed before.
    """
    return plan.first_row + plan.rows.in_source


#: What the name of a folder that is watched begins with.
FOLDER = "folder:"


def position_of(newest: Commit | None, source: str) -> Any:
    """The position that a source was read up to; None before its first batch.

    Raises:
        DatasetError: it was lost with the table that held it.
    """
    positions = {} if newest is None else newest.dataset.positions
    if positions.get(source, positions.get("", "")) is None:  # as a repair notes it
        raise _lost_position(source)
    return positions.get(source)


def _lost_position(source: str) -> DatasetError:
    return DatasetError(
        f"source {source}: how far it was read was lost with a damaged file, so rows would come "
        "again. Stream it into another directory, or add its new rows with `append`."
    )


def position_after(source: str, positions: Sequence[str]) -> Any:
    """How far a source was read by a commit whose manifest is lost, as the positions of rows say.

    Of a source without an order any value will do: their number, which names none of them.

    Args:
        positions: of the rows from the source, in their order.
    """
    try:
        return len(positions) if source.startswith(FOLDER) else json.loads(positions[-1])
    except ValueError:
        return len(positions)


def taken_positions(
    directory: str,
    newest: Commit | None,
    source: str,
) -> set[str]:
    """The positions of all rows that came from a source, as JSON.

    Raises:
        DatasetError: a table cannot be read, or was and is not known any more.
    """
    if position_of(newest, source) is None:
        return set()
    assert newest is not None
    taken = set(_positions_of(known_rows(directory, newest, POSITION_OF), source))
    if "" in taken:  # so a repair marks the rows of a table that was lost
        raise _lost_position(source)
    return taken


def positions_in(directory: str, source: str) -> list[str]:
    """The positions of the rows from a source in the plan that is staged.

    Raises:
        DatasetError: its rows cannot be read.
    """
    rows = read_columns(directory, layout.PLAN_ROWS, lambda _: POSITION_OF)
    return _positions_of([rows], source)


def _positions_of(tables: Iterable[pa.Table], source: str) -> list[str]:
    return [
        position
        for table in tables
        for name, position in zip(*(column.to_pylist() for column in table.columns), strict=True)
        if name == source
    ]


#: More records are not compared: they take gigabytes of memory.
MOST_COMPARED = 10_000_000


def exact_copies(
    directory: str,
    newest: Commit,
    image: Field,
    since: int = 0,
) -> tuple[int | None, int | None]:
    """How many records have the bytes of an earlier one, and how many images are in several splits.

    The first is what `Copies.exact` means, by size and CRC32C.  Both are None where they are not
    known: of too many rows, or if a table is damaged, or was made again without the bytes.

    Args:
        newest: the newest commit of the dataset.
        image: the column.
        since: only rows of the source from this number on count.
    """
    records = sum(newest.dataset.history.origins.values())
    if not newest.shards or records > MOST_COMPARED:
        return None, None
    of = source_of(image)
    columns = [REJECT_OF.reason, SHARD_SPLIT, SOURCE_ID, of.bytes, of.crc32c]
    try:
        tables = [*map(_compared_numbers, known_rows(directory, newest, columns))]
    except DatasetError:
        return None, None
    known = pd.concat(tables, ignore_index=True)
    if (known["content"] < 0).any():
        return None, None
    before = known["content"][known["row"] < since]
    exact = known.duplicated("content").sum() - before.duplicated().sum()
    groups = known[known.duplicated("content", keep=False)].groupby("content")
    leaks = groups["split"].min() < groups["split"].max()
    return int(exact), int((leaks & (groups["row"].max() >= since)).sum())


def unseen_images(fields: Sequence[Field], done: Collection[DoneRecord]) -> int | None:
    """How many images have no fingerprint; None if a version did not count them."""
    if primary_image(fields) is None:
        return 0
    if not done or not all(record.beside_bytes for record in done):
        return None
    return sum(record.records - record.fingerprints for record in done)


def _compared_numbers(rows: pa.Table) -> pd.DataFrame:
    """What is compared of the records of some rows: numbers alone, -1 where one is not known."""
    rows = rows.filter(pc.equal(rows.column(REJECT_OF.reason), ""))
    split = pc.index_in(rows.column(SHARD_SPLIT), value_set=pa.array(SPLITS, pa.large_string()))
    row, size, crc = (pc.fill_null(column, -1).to_numpy() for column in rows.columns[2:])
    content = content_of(size, crc)
    return pd.DataFrame({"content": content, "split": split.cast(pa.int8()).to_numpy(), "row": row})
