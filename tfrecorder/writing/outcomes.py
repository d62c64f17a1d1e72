"""What became of the rows of a shard: the index of its records, and its table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfrecorder.format.plan_columns import (
    BASE,
    COPY_OF,
    RECORD_OF,
    REJECT_OF,
    parquet_options,
    source_of,
)
from tfrecorder.plan.plan import Plan
from tfrecorder.schema.kinds import Image, Mask

if TYPE_CHECKING:
    import pyarrow as pa

#: The key under which a table names its form, and the number of this one.
FORM, FORM_NUMBER = "tfrecorder.table/form", "1"

#: The key under which it names the commit that it was written for.
COMMIT = "tfrecorder.table/commit"

#: Size and CRC32C of the files of a row that were read, by the keys of their columns.
Sources = Mapping[str, tuple[int, int]]


class Outcome(NamedTuple):
    """What became of a row; the first five are as in `RECORD_OF` and `REJECT_OF`."""

    offset: int
    size: int
    warning: str
    stage: str
    reason: str
    sources: Sources


def index_of(outcomes: Iterable[Outcome]) -> bytes:
    """A line `offset size` for each record."""
    return "".join(f"{row.offset} {row.size}\n" for row in outcomes if row.size >= 0).encode()


def table_of(plan: Plan, rows: pa.Table, outcomes: Sequence[Outcome]) -> bytes:
    """The table of a shard: its planned rows, and what became of each; the same for the same rows.

    Args:
        rows: the row group of the shard.
        outcomes: of these rows, in their order.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    for name in COPY_OF:
        columns.pop(name, None)
    names = (*RECORD_OF, *REJECT_OF)
    for name, cells in zip(names, list(zip(*outcomes, strict=True))[: len(names)], strict=True):
        columns[name] = pa.array(cells, pa.large_string() if isinstance(cells[0], str) else "int64")
    for field in plan.fields:
        of_file = source_of(field)
        # Of a row that is copied they are known already.
        if isinstance(field.kind, (Image, Mask)) and of_file.bytes not in columns:
            facts = (row.sources.get(field.key, (None, None)) for row in outcomes)
            for name, cells in zip(of_file, zip(*facts, strict=True), strict=True):
                columns[name] = pa.array(cells, "int64")
    bases = columns[BASE].unique().to_pylist() if BASE in columns else [plan.base]
    if len(bases) == 1:
        columns.pop(BASE, None)
    base = bases[0] if len(bases) == 1 else ""
    about = {FORM: FORM_NUMBER, COMMIT: str(plan.commit), BASE: base}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns, metadata=about), sink, **parquet_options(plan.fields))
    return bytes(sink.getvalue())
