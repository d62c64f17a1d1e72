"""What `tfrecorder schema` prints for a source fits that source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support import PHOTOS, invoke, schema_text

import tfrecorder
from tfrecorder.schema import Bytes, Number, Text

#: Columns of three cells, None where one is missing.
COLUMNS: dict[str, Any] = {
    "whole": [1, None, 3],
    "negative": [-5, None, 3],
    "nullable": pd.array([1, None, 3], "Int64"),
    "fractions": [1.5, float("nan"), 2],
    "truths": [True, None, False],
    "digits": ["1", "", "3"],
    "blanks": ["1.5", "", " 3 "],
    "words of truth": ["TRUE", "", "false"],
    "texts": ["a", None, ""],
    "categories": pd.Categorical(["x", None, "y"]),
    "bytes": [b"a", None, b"b"],
    "lists": [[1, 2], None, []],
    "lists of fractions": [[0.5], None, [1]],
    "lists of texts": [["a"], None, ["b", "c"]],
    "arrays": [np.eye(2), None, np.eye(2)],
    "whole arrays": [np.ones((2, 3), int), None, np.ones((2, 3), int)],
    "arrays of texts": [np.array([["a", "b"]]), None, np.array([["c", "d"]])],
    "ragged": [[[1], [2, 3]], [[1]], [[2]]],
    "beyond int64": [2**63, 1, 2],
    "beyond uint64": [2**70, 1, None],
    "beyond float64": [10**400, 1, None],
    "beyond float32": [1e39, 1.0, None],
    "texts beyond float32": ["1e39", "1", "2"],
    "lists beyond float32": [[1e39], [1.0], None],
    "lists beyond int64": [np.array([2**64 - 1], np.uint64), [1], None],
    "dates": pd.to_datetime(["2020-01-01", None, "2021-01-01"]),
    "lists of dates": [np.array(["2020-01-01"], "M8[D]"), None, np.array([], "M8[D]")],
    "of any type": ["a", 1, None],
    "nothing": [None, None, None],
}


def errors(source: Any) -> list[str]:
    """The errors that a source has by the schema that is printed for it."""
    Path("schema.yaml").write_text(schema_text(tfrecorder.infer_schema(source)))
    report = tfrecorder.validate(source, schema="schema.yaml")
    return report.message[report.severity == "error"].tolist()


def frame_of(cells: Any) -> pd.DataFrame:
    column = pd.Series(cells, dtype=object if isinstance(cells, list) else None)
    return pd.DataFrame({"image_uri": [f"{row}.jpg" for row in range(len(column))], "x": column})


@pytest.mark.parametrize("name", COLUMNS)
def test_a_printed_schema_fits_its_frame_and_its_csv(name: str) -> None:
    frame = frame_of(COLUMNS[name])
    assert errors(frame) == []
    frame.to_csv("x.csv", index=False)
    assert errors("x.csv") == []


NUMBERS = st.integers() | st.floats() | st.booleans()
CELLS = st.one_of(NUMBERS, st.text(alphabet="01e+-. xé", max_size=6), st.lists(NUMBERS, max_size=3))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_printed_schema_fits_any_frame(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([NUMBERS, st.integers(), st.floats(), CELLS]))
    cells = data.draw(st.lists(kind | st.none(), min_size=1, max_size=5))
    assert errors(frame_of(cells)) == []


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, None], Number(dtype="int64", default=-1)),
        ([0.5, None], Number(default=-1.0)),
        (["", "2.5"], Number(default=-1.0)),
        ([True, None], Number(dtype="bool", default=False)),
        (["a", None], Text(default="")),
        ([b"a", None], Bytes(default=b"")),
        ([[1], None], Number(dtype="int64", shape=(None,), default=())),
        ([[[1, 2]], None], Number(dtype="int64", shape=(1, 2), default=((-1, -1),))),
        ([np.eye(1), None], Number(shape=(1, 1), default=((-1.0,),))),
        ([1, 2], Number(dtype="int64")),
    ],
    ids=str,
)
def test_a_column_with_missing_cells_gets_a_default_and_no_other(cells: Any, kind: Any) -> None:
    assert tfrecorder.infer_schema(frame_of(cells)).columns["x"] == kind


def _csv(text: str) -> str:
    Path("source.csv").write_text(text)
    return "source.csv"


def _folder(*names: str) -> str:
    for name in names:
        Path("folder", name).parent.mkdir(parents=True)
        shutil.copy(PHOTOS[0], Path("folder", name))
    return "folder"


def _json_lines(**line: Any) -> str:
    Path("source.jsonl").write_text(json.dumps({"imageGcsUri": "a.jpg", **line}))
    return "source.jsonl"


BOXES = "image_uri,x_min,y_min,x_max,y_max"
SOURCES: dict[str, Any] = {
    "folder": lambda: _folder("cat/a.jpg"),
    "folder of splits": lambda: _folder("TRAIN/cat/a.jpg", "TEST/dog/a.jpg"),
    "no header": lambda: _csv("TRAIN,a.jpg,cat\nTEST,b.jpg,dog\n"),
    "no header, several labels": lambda: _csv("TRAIN,a.jpg,cat,dog\nb.jpg,cat\n"),
    "no header, boxes": lambda: _csv("TRAIN,a.jpg,cat,.1,.1,,,.5,.5,,\nTRAIN,b.jpg,,,,,,,,,\n"),
    "JSON Lines": lambda: _json_lines(classificationAnnotation={"displayName": "cat"}),
    "boxes": lambda: _csv(
        f"{BOXES},label,n\na.jpg,1,1,9,9,cat,\na.jpg,1,1,3,3,cat,\nb.jpg,,,,,,1\n"
    ),
    "masks": lambda: _csv("image_uri,mask_uri,n\na.jpg,a.png,\nb.jpg,b.png,1\n"),
    "two images": lambda: _csv("left,right,n\na.jpg,b.jpg,\nc.jpg,d.jpg,1\n"),
    "several labels": lambda: _csv("image_uri,label_1,label_2\na.jpg,x,y\nb.jpg,x,\n"),
    "no image": lambda: _csv("x,y\n1,\n,2.5\n"),
    "splits missing": lambda: _csv("split,image_uri,n\nTRAIN,a.jpg,\n,b.jpg,1\n"),
    "byte order mark": lambda: _csv("\ufeffimage_uri,n\na.jpg,\nb.jpg,1\n"),
    "odd names": lambda: _csv(
        'image_uri,yes,1,null,a: b,#,"{a}",~,- x,*a,%,1.5,\na.jpg' + "," * 12
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_printed_schema_fits_its_source(name: str) -> None:
    assert errors(SOURCES[name]()) == []


def test_the_command_prints_the_default_and_validates_by_what_it_printed() -> None:
    path = _csv("image_uri,age\na.jpg,\nb.jpg,7\n")
    printed = invoke("schema", path)
    assert "age: {kind: number, default: -1, dtype: int64}\n" in printed.output
    Path("s.yaml").write_text(printed.output)
    done = invoke("validate", path, "--schema", "s.yaml")
    assert done.exit_code == 0, done.output


def test_without_a_default_the_column_and_the_line_are_named() -> None:
    path = _csv("image_uri,age\na.jpg,\nb.jpg,old\n")
    schema = {"image_uri": "image", "age": "number"}
    assert "line 2, column 'age': the value is missing" in str(
        tfrecorder.validate(path, schema=schema)
    )
    frame = pd.DataFrame({"image_uri": ["a.jpg"], "age": ["old"]})
    words = "row 0, column 'age': 'old', of type str, is not float32"
    assert words in str(tfrecorder.validate(frame, schema=schema))
