"""Text that no file can hold, such as a file name that is not UTF-8: named, wherever it comes."""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import photo_frame, run
from torture.hostile_streams import BAD_TEXTS

import tfrecorder
from tfrecorder import ValidationError
from tfrecorder.errors import SourceError

Call = Callable[[Any], Any]


def _convert(source: Any) -> Any:
    return tfrecorder.convert(source, "out", progress=False)


@pytest.mark.parametrize("text", BAD_TEXTS, ids=ascii)
@pytest.mark.parametrize("column", ["image_uri", "label"])
def test_rows_that_repeat_bad_text_are_all_reported(text: str, column: str) -> None:
    frame = photo_frame(8).astype(object)
    frame.loc[[3, 4], column] = text
    repeated = pd.concat([frame, frame], ignore_index=True)
    report = tfrecorder.validate(repeated, progress=False)
    bad = report[report["code"] == "bad_text"]
    assert bad["row"].tolist() == [3, 4, 11, 12]
    assert "\\ud" in bad["message"].iloc[0]
    with pytest.raises(ValidationError, match="bad_text"):
        _convert(repeated)


@pytest.mark.parametrize("others", [[], ["a.jpg"], [Path("a.jpg"), None]], ids=str)
def test_a_path_that_is_bad_text_is_named(others: list[Any]) -> None:
    cells = pd.Series([Path(BAD_TEXTS[1]), *others], dtype=object)
    report = tfrecorder.validate(pd.DataFrame({"image_uri": cells}), progress=False)
    assert report["row"][report["code"] == "bad_text"].tolist() == [0]


@pytest.mark.parametrize("call", [tfrecorder.validate, _convert])
def test_a_column_whose_name_is_bad_text_is_named(call: Call) -> None:
    frame = photo_frame(4)
    frame.columns = pd.Index([*frame.columns[:-1], "\ud800"], dtype=object)
    with pytest.raises(SourceError, match=r"column '\\ud800' is not valid Unicode; rename it"):
        call(frame)
    assert not Path("out").exists()


@pytest.mark.parametrize("name", [b"a/caf\xe9.jpg", b"caf\xe9/x.jpg"])
def test_a_folder_with_a_name_that_is_not_utf_8_is_refused(name: bytes) -> None:
    for path in (b"in/a/x.jpg", b"in/" + name):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(photo_frame(1)["image_uri"][0], os.fsdecode(path))
    with pytest.raises(ValidationError, match=r"not valid Unicode: '.*caf\\udce9"):
        _convert("in")
    assert not Path("out").exists()


FORMULAS = ("=1+1", "+1", "-1+1", "@SUM(1)", "\t=1", "'=1")


@pytest.mark.slow
def test_every_csv_that_is_written_marks_formulas(tmp_path: Path) -> None:
    frame = photo_frame(len(FORMULAS))[["image_uri"]].assign(note=FORMULAS)
    schema = tfrecorder.schema.Schema(
        image_uri=tfrecorder.schema.Image(), note=tfrecorder.schema.Text()
    )
    tfrecorder.convert(frame, "out", schema=schema, splits={"TRAIN": 1.0}, progress=False)
    tfrecorder.inspect("out", "TRAIN", 20, output_dir="look")
    shown = run("-m", "tfrecorder", "inspect", "out", "--csv", check=True)
    for text in (Path("look/records.csv").read_bytes().decode(), shown.stdout):
        assert not [cell for cell in _cells(text) if cell.startswith(("=", "+", "-", "@", "\t"))]
        assert {f"'{one}" for one in FORMULAS[:5]} <= {*_cells(text)}
    photo_frame(2).assign(label=["=1+1", "a"], split="=nowhere").to_csv("faulty.csv", index=False)
    report = run("-m", "tfrecorder", "validate", "faulty.csv", "--csv")
    cells = _cells(report.stdout)
    assert "'=nowhere" in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@"))]


def _cells(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text)) for cell in row]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="no such names there")
def test_a_report_as_csv_escapes_bad_text() -> None:
    for name in (b"in/a/x.jpg", b"in/caf\xe9/x.jpg"):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        shutil.copy(photo_frame(1)["image_uri"][0], os.fsdecode(name))
    report = run("-m", "tfrecorder", "validate", "in", "--csv")
    assert "caf\\udce9" in _cells(report.stdout)
    assert "Traceback" not in report.stderr
