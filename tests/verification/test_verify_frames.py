"""Table, index and shard are of the same frames: what disagrees is found though each is whole.

Records here are of one length, so that places alone do not tell two of them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.damage import reseal
from helpers.second_day_cases import QUIET, rows

import tfrecorder

MANIFEST = "_tfrecorder/commits/00000.json"
TABLE = "_tfrecorder/tables/train-00000.parquet"
INDEX = "_tfrecorder/index/train-00000.tfrecord.idx"
CRC, OFFSET = "tfrecorder.record/crc32c", "tfrecorder.record/offset"


@pytest.fixture
def out() -> Path:
    tfrecorder.convert(rows(0, 6), "out", num_shards=1, image_format="raw", image_size=8, **QUIET)
    (size,) = {*pq.read_table(f"out/{TABLE}")["tfrecorder.record/size"].to_pylist()}
    assert size > 0
    return Path("out")


def bind(out: Path, name: str, file: str) -> None:
    """Make the commit say what a file beside the shard is now, as a wrong writer would."""
    data = (out / file).read_bytes()

    def change(manifest: dict) -> None:
        manifest["done"][0]["beside"][name] = google_crc32c.value(data)
        manifest["done"][0]["beside_bytes"][name] = len(data)

    reseal(out / MANIFEST, change)


def rewrite(out: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.read_table(out / TABLE)
    pq.write_table(change(table), out / TABLE, write_page_checksum=True)
    bind(out, "table", TABLE)


def exchanged(table: pa.Table, first: int, second: int) -> np.ndarray:
    order = np.arange(len(table))
    order[[first, second]] = second, first
    return order


def in_place(table: pa.Table, name: str, values: object) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values, pa.int64()))


TABLES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "two rows exchanged": lambda t: t.take(exchanged(t, 1, 4)),
    "two rows exchanged, places in order": lambda t: in_place(
        t.take(exchanged(t, 0, 5)), OFFSET, t[OFFSET].to_pylist()
    ),
    "all the other way round": lambda t: in_place(
        t.take(np.arange(len(t))[::-1]), OFFSET, t[OFFSET].to_pylist()
    ),
    "another checksum": lambda t: in_place(t, CRC, [1, *t[CRC].to_pylist()[1:]]),
    "a row less": lambda t: t.slice(0, 5),
    "a row twice": lambda t: pa.concat_tables([t, t.slice(5)]),
}


@pytest.mark.parametrize("change", TABLES)
def test_a_table_of_other_frames_is_found(out: Path, change: str) -> None:
    rewrite(out, TABLES[change])
    report = tfrecorder.verify(out, progress=False)
    assert (TABLE, "differs") in {(fault.file, fault.code) for fault in report.found}, str(report)


def test_an_index_of_another_order_is_found(out: Path) -> None:
    first, second, *rest = (out / INDEX).read_text().splitlines()
    (out / INDEX).write_text("\n".join([second, first, *rest, ""]))
    bind(out, "index", INDEX)
    report = tfrecorder.verify(out, progress=False)
    assert [(fault.file, fault.record) for fault in report.found] == [(INDEX, 0)], str(report)


@pytest.mark.parametrize(("name", "file"), [("table", TABLE), ("index", INDEX)])
def test_a_file_beside_the_shard_is_bound_by_its_size(out: Path, name: str, file: str) -> None:
    reseal(out / MANIFEST, lambda of: of["done"][0]["beside_bytes"].update({name: 1}))
    assert file in {fault.file for fault in tfrecorder.verify(out, progress=False).found}


def test_what_repair_makes_of_it_is_right(out: Path) -> None:
    wanted = tfrecorder.to_frame(out)
    rewrite(out, TABLES["two rows exchanged, places in order"])
    tfrecorder.repair(out, progress=False)
    assert tfrecorder.verify(out, progress=False).ok
    assert tfrecorder.to_frame(out).equals(wanted)
