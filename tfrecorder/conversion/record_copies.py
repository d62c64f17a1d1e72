"""Where each record of a dataset is, as the rows of a plan that copies them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder.core.balanced_parts import balanced_part
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.plan_columns import COPY_OF, POSITION_OF, REJECT_OF, spool_columns
from tfrecorder.output.staging import read_plan
from tfrecorder.plan.plan import PlanKind
from tfrecorder.reading.dataset import ShardFile, StoredDataset
from tfrecorder.reading.generations import Generation
from tfrecorder.reading.plan_rows import read_planned
from tfrecorder.reading.record_bytes import read_places
from tfrecorder.reading.row_lists import read_row_list
from tfrecorder.schema.fields import Field, primary_image
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.splits import SPLIT_TYPE

if TYPE_CHECKING:
    import pyarrow as pa


def all_rows(
    where: str, stored: StoredDataset, generations: Sequence[Generation]
) -> tuple[pa.Table, pd.Series]:
    """The rows of all generations, oldest first, with `COPY_OF`; and the split of each.

    Raises:
        DatasetError: a plan, an index or a list cannot be read, or does not fit its shards.
    """
    import pyarrow as pa

    tables, splits = [], []
    for generation in generations:
        table, of_rows = _rows_of(where, stored, generation)
        tables.append(table)
        splits += of_rows
    of_some = {
        *POSITION_OF,
        *spool_columns(name for table in tables for name in table.column_names),
    }
    given = [name for name in of_some if any(name in table.column_names for table in tables)]
    tables = [_with_texts(table, sorted(given)) for table in tables]
    names = tables[-1].column_names
    whole = pa.concat_tables([table.select(names).replace_schema_metadata() for table in tables])
    return whole, pd.Series(splits, dtype=SPLIT_TYPE)


def _with_texts(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Give rows that did not come from a stream, or not as bytes, empty texts in these columns."""
    import pyarrow as pa

    empty = pa.array([""] * len(table), pa.large_string())
    for name in names:
        if name not in table.column_names:
            table = table.append_column(name, empty)
    return table


def by_base(directory: str, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Some planned rows of a generation, by the folder that their relative uris started from.

    The folder is "" if it is not known, as after a `repair` from the records alone.
    """
    import pyarrow.compute as pc

    if COPY_OF.base not in rows.column_names:
        yield _base(directory), rows
        return
    for base in rows.column(COPY_OF.base).unique().to_pylist():
        yield base, rows.filter(pc.equal(rows.column(COPY_OF.base), base))


def _base(directory: str) -> str:
    plan = read_plan(directory)
    return "" if plan is None or plan.kind is PlanKind.COMPACTION else plan.base


def uris_of(rows: pa.Table, fields: Sequence[Field]) -> pa.Array | None:
    """The uris of the first images; None for records without images."""
    image = primary_image(fields)
    return None if image is None else rows.column(image.uri_key).combine_chunks()


def _rows_of(
    where: str, stored: StoredDataset, generation: Generation
) -> tuple[pa.Table, list[str]]:
    import pyarrow as pa

    table = read_planned(generation.directory, lambda schema: list(schema.names))
    if table is None:
        path = os.path.join(generation.directory, layout.PLAN_ROWS)
        raise DatasetError(
            f"{path} is missing, so it is not known which row became which record. Copy it again."
        )
    is_known = COPY_OF.base in table.column_names
    bases = table.column(COPY_OF.base).to_pylist() if is_known else [_base(generation.directory)]
    known = {*COPY_OF, *REJECT_OF}
    table = table.drop_columns([name for name in table.column_names if name in known])
    numbers = table.column(SOURCE_ID).to_numpy()
    rejects = {int(row[0]): (row[2], row[3]) for row in _list(generation, layout.REJECTS)}
    suspects = {int(row[0]): row[2] for row in _list(generation, layout.SUSPECTS)}
    kept = ~np.isin(numbers, np.fromiter(rejects, np.int64, len(rejects)))
    files = np.full(len(numbers), "", dtype=object)
    places = np.zeros((len(numbers), 2), np.int64)
    splits: list[str] = []
    for shard, of_shard in _shards(generation, numbers):
        path = os.path.join(generation.directory, shard["file"])
        at = of_shard.start + np.flatnonzero(kept[of_shard])
        if len(at) != shard["records"]:
            raise DatasetError(
                f"{path} has {shard['records']:,} records, but {len(at):,} were planned and not "
                f"rejected. `{command('verify', where)}` checks every file."
            )
        files[at] = os.path.relpath(path, where) if "://" not in path else path[len(where) + 1 :]
        places[at] = read_places(stored, ShardFile(path, shard["records"], shard["bytes"]))
        splits += [shard["split"]] * (of_shard.stop - of_shard.start)
    reasons = [rejects.get(number, ("", "")) for number in numbers.tolist()]
    texts: dict[str, Any] = {
        COPY_OF.file: files.tolist(),
        REJECT_OF.stage: [stage for stage, _ in reasons],
        REJECT_OF.reason: [reason for _, reason in reasons],
        COPY_OF.base: bases if is_known else bases * len(table),
        COPY_OF.warning: [suspects.get(number, "") for number in numbers.tolist()],
    }
    for name in (*COPY_OF, *REJECT_OF):
        if name in texts:
            table = table.append_column(name, pa.array(texts[name], pa.large_string()))
        else:
            column = places[:, 0 if name == COPY_OF.offset else 1]
            table = table.append_column(name, pa.array(column, pa.int64()))
    return table, splits


def _list(generation: Generation, name: str) -> Sequence[Sequence[str]]:
    return read_row_list(generation.directory, name)


def _shards(
    generation: Generation, numbers: np.ndarray
) -> Iterator[tuple[Mapping[str, Any], slice]]:
    """The shards in the order of the plan, each with its rows."""
    start = 0
    shards = generation.metadata["shards"]
    for split, rows in generation.metadata["split_rows"].items():
        of_split = [shard for shard in shards if shard["split"] == split]
        for index, shard in enumerate(of_split):
            first, stop = balanced_part(rows, index, len(of_split))
            yield shard, slice(start + first, start + stop)
        start += rows
    if start != len(numbers):
        path = os.path.join(generation.directory, layout.PLAN_ROWS)
        raise DatasetError(
            f"{path} has {len(numbers):,} rows, but {start:,} were planned. Copy it again."
        )
