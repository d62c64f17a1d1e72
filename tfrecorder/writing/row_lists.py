"""The public lists of rows, `rejects.csv` and `suspects.csv`, from the tables of the shards."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence

import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import field_of
from tfrecorder.format.done_records import DoneRecords
from tfrecorder.format.layout import NewFiles, Shard
from tfrecorder.format.manifest import Manifest
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.format.plan_columns import RECORD_OF, REJECT_OF
from tfrecorder.reading.row_lists import read_row_list
from tfrecorder.reading.shard_tables import read_tables
from tfrecorder.schema.fields import primary_file
from tfrecorder.schema.keys import SOURCE_ID

_HEADERS = {
    layout.REJECTS: ("row", "image_uri", "stage", "reason"),
    layout.SUSPECTS: ("row", "image_uri", "warning"),
}

#: What a list has of a row after its number and uri.
_COLUMNS = {layout.REJECTS: REJECT_OF, layout.SUSPECTS: (RECORD_OF.warning,)}

#: A row of a list, its number first.
Row = Sequence[int | str]


def lists_of(plan: Plan, done: DoneRecords, output_dir: str) -> NewFiles:
    """The lists of the whole dataset that a plan changes; the same before and after its commit.

    Args:
        done: the done-records of the plan's shards, whose tables are read.

    Raises:
        DatasetError: a table cannot be read, or a list to which rows are added.
    """
    listed = [shard for shard, record in done.items() if record.rejects or record.suspects]
    if plan.changes or (plan.kind is PlanKind.UNDO and plan.layout.kept):
        return whole_lists(plan, [*done] if listed else [], output_dir)
    streams = plan.kind is PlanKind.BATCH  # it tries no reject again
    if plan.layout.kept or (plan.adds and streams and not listed):
        return {}
    added = _rows(plan, listed, output_dir)
    first = plan.first_row
    old: dict[str, Sequence[Row]] = dict.fromkeys(added, ())
    retried: set[int] = set()
    if plan.adds:
        old = {name: read_row_list(output_dir, name) for name in added}
        if not streams and any(int(row[0]) < first for row in old[layout.REJECTS]):
            numbers = read_tables(output_dir, plan.layout.shards, lambda _: [SOURCE_ID])
            retried.update(numbers.column(0).to_pylist() if numbers is not None else ())
    lists = {}
    for name, rows in added.items():
        kept = [row for row in old[name] if int(row[0]) < first and int(row[0]) not in retried]
        if not plan.adds or rows or len(kept) < len(old[name]):
            lists[name] = to_csv(_HEADERS[name], sorted([*kept, *rows], key=_number))
    return lists


def whole_lists(plan: Plan, shards: Sequence[Shard], output_dir: str) -> NewFiles:
    """The lists as the tables of all shards of a dataset have them.

    Args:
        plan: of the newest commit.

    Raises:
        DatasetError: a table cannot be read.
    """
    numbers = read_tables(output_dir, shards, lambda _: [SOURCE_ID, REJECT_OF.reason])
    pairs = [] if numbers is None else zip(*(c.to_pylist() for c in numbers.columns), strict=True)
    won = {number for number, reason in pairs if not reason}  # perhaps by another attempt
    lists = {}
    for name, rows in _rows(plan, shards, output_dir).items():
        lost = won if name == layout.REJECTS else ()
        latest = {row[0]: row for row in rows if row[0] not in lost}
        lists[name] = to_csv(_HEADERS[name], sorted(latest.values(), key=_number))
    return lists


def lists_as_of(manifest: Manifest, output_dir: str) -> NewFiles:
    """The lists of rows that are not as a commit had them, from the tables of its shards.

    Raises:
        DatasetError: a table cannot be read.
    """

    others = [
        name
        for name, wanted in manifest.dataset.lists.items()
        if storage.sums(os.path.join(output_dir, name)) != (wanted.bytes, wanted.crc32c)
    ]
    if not others:
        return {}
    whole = whole_lists(manifest.plan, layout.shards_of(manifest.dataset.splits), output_dir)
    return {name: whole[name] for name in others}


def _number(row: Row) -> int:
    return int(row[0])


def _rows(plan: Plan, shards: Sequence[Shard], output_dir: str) -> dict[str, list[Row]]:
    """The rows of each list in some shards: those that have something in its last column."""
    image = primary_file(plan.fields)
    uri = [] if image is None else [image.uri_key]
    wanted = [SOURCE_ID, *uri, *REJECT_OF, RECORD_OF.warning]
    table = read_tables(output_dir, shards, lambda _: wanted)
    rows: dict[str, list[Row]] = {name: [] for name in _COLUMNS}
    if table is None:
        return rows
    for name, columns in _COLUMNS.items():
        listed = table.filter(pc.not_equal(table.column(columns[-1]), ""))
        uris = listed.column(uri[0]).to_pylist() if uri else [""] * len(listed)
        cells = (listed.column(column).to_pylist() for column in columns)
        rows[name] = list(zip(listed.column(SOURCE_ID).to_pylist(), uris, *cells, strict=True))
    return rows


def to_csv(header: Sequence[str], rows: Iterable[Row]) -> bytes:
    """A CSV with a header, in UTF-8; lines end in a bare newline; cells as `field_of` has them."""
    text = io.StringIO()
    plain = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow(header)
    for row in rows:
        # Older Pythons leave a carriage return unquoted, and a reader would begin a new row there.
        fields = list(map(field_of, row))
        (quoted if "\r" in fields[1] else plain).writerow(fields)
    return text.getvalue().encode()
