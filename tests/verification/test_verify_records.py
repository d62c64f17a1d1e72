"""`verify(records=True)`: each record holds what its table says, and numbers are unique.

Files here are as they were written: what wrote them was at fault, which no checksum tells.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.damage import MANIFEST, SHARD, TABLE, forge, reseal
from helpers.growing_cases import QUIET, drawn
from helpers.kept_datasets import DATASETS
from support import invoke

import tfrecorder

kinds = tfrecorder.schema

URI, NUMBER = "image/filename", "image/source_id"


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of five rows of each split, with values of many kinds."""
    monkeypatch.chdir(tmp_path)
    drawn("img", 10, (9, 9))
    tfrecorder.convert(table(), "out", schema=COLUMNS, num_shards=2, shuffle=False, **QUIET)
    return Path("out")


COLUMNS = kinds.Schema(
    split=kinds.Split(),
    image_uri=kinds.Image(),
    label=kinds.Label(),
    tags=kinds.Labels(),
    age=kinds.Number(),
    count=kinds.Number(dtype="int64", default=-1),
    good=kinds.Number(dtype="bool"),
    place=kinds.Number(shape=(2,)),
    words=kinds.Text(shape=(None,)),
    note=kinds.Text(),
    data=kinds.Bytes(),
)


def table(first: int = 0, rows: int = 10) -> pd.DataFrame:
    numbers = range(first, first + rows)
    return pd.DataFrame(
        {
            "split": ["TRAIN", "TEST"] * (rows // 2),
            "image_uri": [f"img/{number}.png" for number in numbers],
            "label": [f"class {number % 3}" for number in numbers],
            "tags": [["red", "round"][: number % 3] for number in numbers],
            "age": [number + 0.1 for number in numbers],
            "count": [None, *numbers[1:]],
            "good": [number % 2 == 0 for number in numbers],
            "place": [[number, 0.5] for number in numbers],
            "words": [["ä", ""][: number % 3] for number in numbers],
            "note": [f"Zeile {number}" for number in numbers],
            "data": [bytes([number, 255]) for number in numbers],
        }
    )


def rewrite(out: Path, name: str, row: int, value: object) -> None:
    """Another value in a table, to which the commit agrees, as a wrong writer would write it."""
    stored = pq.read_table(out / TABLE)
    values = stored[name].to_pylist()
    values[row] = value
    column = pa.array(values, stored.schema.field(name).type)
    changed = stored.set_column(stored.column_names.index(name), name, column)
    pq.write_table(changed, out / TABLE, write_page_checksum=True)
    data = (out / TABLE).read_bytes()

    def bind(manifest: dict[str, Any]) -> None:
        done = next(of for of in manifest["done"] if of["shard"] == Path(SHARD).stem)
        done["beside"]["table"] = google_crc32c.value(data)
        done["beside_bytes"]["table"] = len(data)

    reseal(out / MANIFEST, bind)


def forge_alike(out: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the first record, in its place, and its checksum in the table."""
    size = (out / SHARD).stat().st_size
    forge(out, change)
    assert (out / SHARD).stat().st_size == size
    first = pq.read_table(out / TABLE)["tfrecorder.record/size"][0].as_py()
    crc = google_crc32c.value((out / SHARD).read_bytes()[:first])
    rewrite(out, "tfrecorder.record/crc32c", 0, crc)
    assert tfrecorder.verify(out, progress=False).ok


OTHER = {
    URI: "img/other.png",
    "label/text": "class 9",
    "label/label": 2,
    "tags/text": ["red"],
    "tags/label": [1],
    NUMBER: 99,
    "age": 7.0,
    "count": 77,
    "good": 0,
    "place": [1.0, 1.5],
    "words": ["a", "b", "c"],
    "note": "",
    "data": b"",
}


@pytest.mark.parametrize("name", OTHER)
def test_a_value_that_the_record_does_not_have_is_found(out: Path, name: str) -> None:
    assert tfrecorder.verify(out, records=True, progress=False).ok
    rewrite(out, name, 0, OTHER[name])
    assert tfrecorder.verify(out, progress=False).ok
    report = tfrecorder.verify(out, records=True, progress=False)
    assert [(of.file, of.record, of.offset, of.code) for of in report.found] == [
        (SHARD, 0, 0, "differs")
    ]
    assert name in report.found[0].message, report.found[0].message


def test_a_record_without_a_value_or_with_one_of_another_kind_is_found(out: Path) -> None:
    """Of which the size stays, so that the table is of these frames."""

    def change(records: list[dict[str, Any]]) -> None:
        records[0]["nota"] = records[0].pop("note")

    forge_alike(out, change)
    report = tfrecorder.verify(out, records=True, progress=False)
    assert [(of.file, of.record, of.code) for of in report.found] == [(SHARD, 0, "differs")]
    assert "it is not a record of this dataset: KeyError('note')" in report.found[0].message


def test_two_records_of_one_row_are_found(out: Path) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        records[0][NUMBER] = [b"8"]

    other = pq.read_table(str(out / TABLE).replace("00000.parquet", "00001.parquet"))
    assert 8 in other[NUMBER].to_pylist()
    forge_alike(out, change)
    rewrite(out, NUMBER, 0, 8)
    assert tfrecorder.verify(out, progress=False).ok
    report = tfrecorder.verify(out, records=True, progress=False)
    assert [fault.message for fault in report.found] == ["2 records are of row 8"]


def test_what_operations_leave_is_right(out: Path) -> None:
    def check() -> None:
        report = tfrecorder.verify("out", records=True, progress=False)
        assert report.ok, str(report)
        assert report.compared

    drawn("img", 20, (9, 9))
    tfrecorder.append(table(10), out, **QUIET)
    check()
    rows = table().assign(label="class 1", note="other", split="TRAIN")
    rows["place"] = [[9.5, 1]] * 10
    tfrecorder.update(rows, out, **QUIET)
    check()
    tfrecorder.remove(out, {"row": [1, 2]}, **QUIET)
    check()
    tfrecorder.compact(out, num_shards=1, **QUIET)
    check()
    tfrecorder.convert(table().assign(age=-3), out, schema=COLUMNS, overwrite="all", **QUIET)
    check()


@pytest.mark.parametrize("size", [{}, {"image_size": (6, 4), "resize": "crop"}, {"short_side": 5}])
@pytest.mark.parametrize("unit", ["fraction", "pixel"])
def test_boxes_however_they_are_placed(out: Path, size: dict[str, Any], unit: str) -> None:
    side = {"fraction": 1, "pixel": 9}[unit]
    corners = {"x_min": 0.0, "y_min": 0.0, "x_max": 0.2 * side, "y_max": 0.3 * side}
    rows = table()[["split", "image_uri", "label"]].rename(columns={"label": "thing"})
    rows = pd.concat([rows.assign(**corners), rows.assign(**{**corners, "y_max": 0.9 * side})])
    boxes = kinds.Boxes(label="thing", unit=unit)
    columns = kinds.Schema(split=kinds.Split(), image_uri=kinds.Image(), boxes=boxes)
    tfrecorder.convert(rows, "boxes", schema=columns, **size, **QUIET)
    report = tfrecorder.verify("boxes", records=True, progress=False)
    assert report.ok, str(report)
    rewrite(Path("boxes"), "image/object/bbox/xmax", 0, [0.1 * side, 0.2 * side])
    found = tfrecorder.verify("boxes", records=True, progress=False).found
    assert [of.code for of in found] == ["differs"] * (unit == "fraction" and not size)


def test_numbers_that_are_none(out: Path) -> None:
    """NaN in a record is the same as NaN in its table; any other number there is a fault."""
    nan = float("nan")
    columns = kinds.Schema(
        split=kinds.Split(),
        image_uri=kinds.Image(),
        score=kinds.Number(default=nan),
        places=kinds.Number(shape=(2,)),
    )
    rows = table()[["split", "image_uri"]].assign(score=nan)
    rows["places"] = [[1.0, nan]] * len(rows)
    tfrecorder.convert(rows, "numbers", schema=columns, **QUIET)
    report = tfrecorder.verify("numbers", records=True, progress=False)
    assert report.ok, str(report)
    rewrite(Path("numbers"), "places", 0, [2.0, nan])
    found = tfrecorder.verify("numbers", records=True, progress=False).found
    assert [of.code for of in found] == ["differs"]


@pytest.mark.parametrize("kept", sorted(path.name for path in DATASETS.glob("form-*")))
def test_datasets_of_earlier_versions(kept: str, tmp_path: Path) -> None:
    if not (DATASETS / kept / "dataset_info.json").exists():
        pytest.skip("its first commit is pending")
    shutil.copytree(DATASETS / kept, tmp_path / "out")
    report = tfrecorder.verify(tmp_path / "out", records=True, progress=False)
    assert report.ok, str(report)


def test_in_the_shell(out: Path) -> None:
    good = invoke("verify", "out", "--records")
    assert good.exit_code == 0
    assert "every record compared" in good.output
    rewrite(out, URI, 1, "img/other.png")
    bad = invoke("verify", "out", "--records")
    assert bad.exit_code == 1
    assert "record 1 at byte" in bad.output
    assert "'img/2.png'" in bad.output
    assert "'img/other.png'" in bad.output
    assert invoke("verify", "out").exit_code == 0
