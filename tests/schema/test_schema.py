"""A schema is given, inferred, written to a file and read back; and what it decides is kept."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from helpers.kind_cases import EVERY_KIND, convert, every_kind, values
from helpers.public_types import ConvertOptions
from support import (
    CSV,
    content_files,
    given_again,
    invoke,
    photo_frame,
    records,
    schema_text,
    written,
)

import tfrecorder
from tfrecorder import infer_schema
from tfrecorder.schema import (
    Boxes,
    Bytes,
    Ignore,
    Image,
    Label,
    Labels,
    Mask,
    Number,
    Schema,
    Split,
    Text,
)

AUTOML = Schema(split=Split(), image_uri=Image(), label=Label())


# The value.


def test_a_schema_is_a_value() -> None:
    assert Schema({"split": Split(), "image_uri": Image(), "label": Label()}) == AUTOML
    assert hash(AUTOML) == hash(Schema(split=Split(), image_uri=Image(), label=Label()))
    assert pickle.loads(pickle.dumps(EVERY_KIND)) == EVERY_KIND
    assert repr(Schema(age=Number(dtype="int64"))) == "Schema(age=Number(dtype='int64'))"
    with pytest.raises(AttributeError):
        AUTOML.fields = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Schema(age=Number), "write Number()"),
        (lambda: Schema(age="number"), "one of the kinds Split, Image"),
        (lambda: Number(shape=(None, 2)), "shape=(None, 2)"),
        (lambda: Number(shape=3), "shape=3"),
        (lambda: Number(target=1), "True or False"),
        (lambda: Label(names="rose"), "a list of class names"),
        (lambda: Label(names=["a", "a"]), "more than once"),
        (lambda: Label(default=1.5), "give text or an integer"),
        (lambda: Labels(separator="|", columns=["a"]), "and no columns"),
        (lambda: Boxes(columns=["a", "b"]), "give 4"),
        (lambda: Boxes(unit="percent"), "'fraction', 'pixel'"),
        (lambda: Mask(of=1), "the name of a column"),
    ],
)
def test_a_wrong_kind_says_what_to_give(make: Any, words: str) -> None:
    with pytest.raises(tfrecorder.errors.OptionError) as refused:
        make()
    assert words in str(refused.value)


# Files.


def test_a_schema_comes_back_from_its_file() -> None:
    schema = Schema(
        dict(EVERY_KIND.columns)
        | {"old": Number(default=-1.0), "raw": Bytes(default=b"\0"), "rest": Ignore()}
    )
    text = schema_text(schema)
    plain = json.dumps(yaml.safe_load(text))
    Path("schema.yaml").write_text(text)
    Path("schema.json").write_text(plain)
    for given in ("schema.yaml", "schema.json", json.loads(plain)):
        assert ConvertOptions(schema=given).schema == schema


def test_the_command_prints_a_schema_that_convert_takes() -> None:
    frame = pd.read_csv(CSV).assign(age=range(52), note="a, b")
    frame["image_uri"] = [str(CSV.parent / uri) for uri in frame["image_uri"]]
    frame.to_csv("people.csv", index=False)
    printed = invoke("schema", "people.csv")
    assert printed.output.splitlines() == [
        "split: split",
        "image_uri: image",
        "label: label",
        "age: {kind: number, dtype: int64}",
        "note: text",
    ]
    Path("schema.yaml").write_text(printed.output)
    done = invoke("convert", "people.csv", "out", "--schema", "schema.yaml", "--no-progress")
    assert done.exit_code == 0, done.output
    assert sorted(record["age"] for record in records("out")) == list(range(52))
    assert {record["note"] for record in records("out")} == {b"a, b"}


def test_a_wrong_file_is_one_line_and_an_exit_code() -> None:
    Path("schema.yaml").write_text("image_uri: imge\n")
    done = invoke("convert", CSV, "out", "--schema", "schema.yaml")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "error: --schema schema.yaml: image_uri: there is no kind 'imge'; did you mean image?"
    ]


# Inference.


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([1, 2], Number(dtype="int64")),
        ([1.5, 2], Number()),
        ([True, False], Number(dtype="bool")),
        (["1", "20"], Number(dtype="int64")),
        (["1", "2.5"], Number()),
        (["true", "false"], Number(dtype="bool")),
        (["red", "7"], Text()),
        (["a.jpg", "b.png"], Image()),
        ([b"a", b"b"], Bytes()),
        ([[1], [1, 2]], Number(dtype="int64", shape=(None,))),
        ([[1.5], []], Number(shape=(None,))),
        ([[0.5] * 16, [1.5] * 16], Number(shape=(16,))),
        ([["a", "b"], ["c", "d"]], Text(shape=(None,))),
        ([["a"], ["b", "c"]], Text(shape=(None,))),
        ([np.zeros((2, 3)), np.ones((2, 3))], Number(shape=(2, 3))),
        ([None, None], Ignore()),
        ([{"a": 1}, {}], Ignore()),
    ],
    ids=str,
)
def test_a_column_is_known_by_what_it_holds(cells: list[Any], kind: Any) -> None:
    column = pd.Series(index=[0, 1], dtype=object)
    column[:] = pd.Series(cells, dtype=object)
    frame = pd.DataFrame({"image_uri": ["a.jpg", "b.jpg"], "x": column})
    assert infer_schema(frame).columns["x"] == kind


def test_columns_are_known_by_their_names() -> None:
    frame = pd.DataFrame(
        {
            **{"split": ["TRAIN"], "image_uri": ["a"], "mask_uri": ["m"], "label_1": ["x"]},
            **{"label_2": ["y"], "x_min": [1], "y_min": [1], "x_max": [20], "y_max": [20]},
        }
    )
    assert infer_schema(frame) == Schema(
        split=Split(),
        image_uri=Image(),
        mask_uri=Mask(),
        labels=Labels(columns=["label_1", "label_2"]),
        boxes=Boxes(unit="pixel", label=None),
    )


def test_nothing_to_infer_is_an_error() -> None:
    with pytest.raises(tfrecorder.errors.SourceError, match="no column could make a feature"):
        infer_schema(pd.DataFrame({"split": ["TRAIN"]}))


# What it decides.


@pytest.mark.slow
def test_the_default_columns_in_a_schema_give_the_same_bytes_as_without() -> None:
    frame = photo_frame(20)
    convert(frame, "default")
    convert(frame, "given", schema=AUTOML)
    default, given = content_files("default"), content_files("given")
    form = [json.loads(files.pop("features.json")) for files in (default, given)]
    assert default == given
    assert form[0] == form[1]


def test_the_values_decide_whether_a_conversion_goes_on() -> None:
    frame = every_kind()
    written(frame, schema=EVERY_KIND)
    shard = next(Path("out").glob("*.tfrecord"))
    data = shard.read_bytes()
    Path(f"out/_tfrecorder/done/{shard.stem}.json").unlink()
    shard.unlink()
    with pytest.raises(tfrecorder.errors.OutputError, match="values in the source's rows"):
        convert(frame.assign(caption="x"), "out", schema=EVERY_KIND)
    with pytest.raises(tfrecorder.errors.OutputError, match="`schema` was"):
        convert(frame, "out", schema=Schema(dict(EVERY_KIND.columns) | {"angle": Number()}))
    convert(frame, "out", schema=EVERY_KIND)
    assert shard.read_bytes() == data


def test_a_column_without_a_place_in_the_schema_is_reported_and_one_to_ignore_is_not() -> None:
    frame = photo_frame(20).assign(age=1, note="x")
    schema = Schema(dict(AUTOML.columns) | {"age": Ignore()})
    report = tfrecorder.validate(frame, schema=schema)
    assert report[report.code == "column_left_out"].column.tolist() == ["note"]


@pytest.mark.slow
def test_rows_without_images_are_assigned_to_splits_by_what_they_hold() -> None:
    frame = pd.DataFrame({"x": np.arange(200.0), "label": ["a", "b"] * 100})
    schema = Schema(x=Number(), label=Label())
    convert(frame, "all", schema=schema)
    convert(frame.iloc[:150], "fewer", schema=schema)
    known = tfrecorder.to_frame("all").set_index("x")["split"]
    fewer = tfrecorder.to_frame("fewer").set_index("x")["split"]
    assert (known.loc[fewer.index] == fewer).all()
    assert set(known) == {"TRAIN", "VALIDATION", "TEST"}


@pytest.mark.parametrize(
    ("kind", "cells", "message"),
    [
        (Number(), [1.0, None], "the value is missing"),
        (Number(), [1.0, "old"], "'old', of type str, is not float32"),
        (Number(), [1.0, 1e300], "is not float32"),
        (Number(), [1.0, "9" * 400], "of type str, is not float32"),
        (Number(dtype="int64"), [1, 1.5], "1.5, of type float, is not int64"),
        (Number(dtype="int64"), [1, 2**63], "is not int64"),
        (Number(dtype="bool"), [True, 2], "2, of type int, is not bool"),
        (Number(shape=(2,)), [[1, 2], [1]], "[1] is not a float32 array of shape (2,)"),
        (Number(shape=(None,)), [[1], ["a"]], "['a'] is not a list of float32"),
        (Number(shape=(None,)), [[1], [None]], "[None] is not a list of float32"),
        (Number(shape=(None,)), [[1], None], "the value is missing"),
        (Text(), ["a", 1], "1, of type int, is not text"),
        (Text(), ["a", None], "the value is missing"),
        (Text(), ["a", "\ud800"], "not valid Unicode"),
        (Text(shape=(None,)), [["a"], [1]], "[1] is not a list of text"),
        (Bytes(), [b"a", "b"], "'b', of type str, is not bytes"),
        (Label(), ["a", None], "the label is missing"),
        (Label(names=["a"]), ["a", "b"], "'b' is not among"),
        (Labels(), [["a"], None], "the labels are missing"),
        (Labels(), [["a"], "a|b"], "give a separator"),
        (Labels(names=["a"]), [["a"], ["a", "c"]], "'c' is not among"),
        (Labels(), [["a"], [1]], "labels are of several types"),
    ],
    ids=str,
)
def test_a_fault_names_the_row_and_nothing_is_written(
    kind: Any, cells: list[Any], message: str
) -> None:
    column = pd.Series(index=[0, 1], dtype=object)
    for row, cell in enumerate(cells):
        column.iat[row] = cell
    frame = pd.DataFrame({"image_uri": ["a.jpg", "b.jpg"], "x": column})
    schema = Schema(image_uri=Image(), x=kind)
    report = tfrecorder.validate(frame, schema=schema)
    errors = report[report.severity == "error"]
    assert errors.row.tolist() == [1], report.to_string()
    assert errors.column.tolist() == ["x"]
    assert message in errors.message.item()
    with pytest.raises(tfrecorder.ValidationError):
        convert(frame, "out", schema=schema)
    assert not Path("out").exists()


def test_a_default_stands_where_a_value_is_missing() -> None:
    schema = Schema(
        age=Number(default=-1.0),
        name=Text(default="?"),
        place=Number(shape=(2,), default=(0, 1)),
        words=Text(shape=(None,), default=()),
        sort=Label(default="other"),
    )
    frame = pd.DataFrame(
        {
            "age": [3.5, np.nan],
            "name": ["Ann", None],
            "place": [[5.0, 6.0], None],
            "words": [["a"], None],
            "sort": ["cat", None],
        }
    )
    convert(frame, "out", schema=schema)
    assert values(given_again("out").sort_index().drop(columns="split"))[1] == {
        "age": -1.0,
        "name": "?",
        "place": [0.0, 1.0],
        "words": [],
        "sort": "other",
    }


def test_statistics_of_the_columns_are_in_the_metadata() -> None:
    frame = every_kind(10).assign(split=["TRAIN"] * 8 + ["TEST"] * 2)
    convert(frame, "out", schema=EVERY_KIND)
    found = json.loads(Path("out/_tfrecorder/commits/00000.json").read_bytes())["statistics"]
    angles = frame["angle"].iloc[:8].to_numpy(np.float64)
    assert found["angle"]["TRAIN"] == {
        "count": 8,
        "min": angles.min(),
        "max": angles.max(),
        "mean": pytest.approx(angles.mean()),
        "std": pytest.approx(angles.std()),
    }
    assert found["matrix"]["TEST"]["count"] == 12
    assert found["bi"]["TRAIN"] == {"count": 8, "distinct": 2, "top": [["no", 5], ["yes", 3]]}
    assert found == tfrecorder.info("out").statistics
