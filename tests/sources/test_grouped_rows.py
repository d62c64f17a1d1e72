"""Several texts of an image: from rows that repeat it, or from files beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from helpers import image_cases

import tfrecorder
from tfrecorder.errors import OptionError, ValidationError
from tfrecorder.schema import Image, Label, Schema, Split, Text

SCHEMA = Schema(split=Split(), image_uri=Image(), captions=Text(shape=(None,)), label=Label())
CAPTIONS = {"0.png": ["a", "b"], "1.png": ["c"], "2.png": [], "3.png": ["d", "e", "f"]}


def images(folder: str = ".") -> None:
    Path(folder).mkdir(exist_ok=True)
    for number, name in enumerate(CAPTIONS):
        picture = image_cases.save(image_cases.photo(number, (8, 6)), "PNG")
        Path(folder, name).write_bytes(picture)


def repeated() -> pd.DataFrame:
    """A row for each caption; the captions of an image do not stand together."""
    pairs = [(n, name, text) for name, texts in CAPTIONS.items() for n, text in enumerate(texts)]
    rows = [(name, text) for _, name, text in sorted(pairs)]
    rows.append(("2.png", None))
    frame = pd.DataFrame(rows, columns=["image_uri", "captions"])
    return frame.assign(split="TRAIN", label="x")


def found(out: str) -> dict[str, list[str]]:
    frame = tfrecorder.to_frame(out)
    names = frame.image_uri.map(lambda uri: Path(uri).name)
    return {name: [*texts] for name, texts in zip(names, frame.captions, strict=True)}


@pytest.mark.parametrize("form", ["frame", "csv", "bytes"])
def test_rows_of_an_image_are_one_record(form: str) -> None:
    images()
    frame = repeated()
    source: object = frame
    if form == "csv":
        frame.to_csv("rows.csv", index=False)
        source = "rows.csv"
    elif form == "bytes":
        source = frame.assign(image_uri=frame.image_uri.map(lambda uri: Path(uri).read_bytes()))
    options = {"schema": SCHEMA, "group_by": "image_uri"}
    result = tfrecorder.convert(source, "out", num_shards=2, **options)
    assert result.records == 4
    if form == "bytes":
        assert sorted(found("out").values()) == sorted(CAPTIONS.values())
    else:
        assert found("out") == CAPTIONS
    assert tfrecorder.append(source, "out").rows_there == 4
    assert tfrecorder.update(source, "out").was_finished
    assert tfrecorder.verify("out").ok


@pytest.mark.slow
def test_an_append_and_an_update_group_as_the_conversion_did() -> None:
    images()
    frame = repeated()
    first = frame[frame.image_uri < "2"]
    tfrecorder.convert(first, "out", schema=SCHEMA, group_by="image_uri")
    assert tfrecorder.append(frame, "out").records == 2
    assert found("out") == CAPTIONS
    more = pd.DataFrame({"image_uri": ["1.png"], "captions": "z", "split": "TRAIN", "label": "x"})
    tfrecorder.update(pd.concat([frame, more]), "out")
    assert found("out") == {**CAPTIONS, "1.png": ["c", "z"]}


def test_what_differs_within_a_group_is_named_with_its_line() -> None:
    images()
    frame = repeated()
    frame.loc[frame.index[-2], "label"] = "y"
    frame.to_csv("rows.csv", index=False)
    options = {"schema": SCHEMA, "group_by": "image_uri"}
    report = tfrecorder.validate("rows.csv", **options)
    (row,) = report[report.code == "conflicting_rows"].to_dict("records")
    assert row["value"] == "y"
    assert row["column"] == "label"
    # The image's first row, which is the fourth of its kind: two of others come before.
    first = frame.image_uri.drop_duplicates().index[row["row"]]
    assert f"line {first + 2}" in str(report)
    with pytest.raises(ValidationError, match="conflicting_rows"):
        tfrecorder.convert(frame, "out", **options)


def test_a_group_has_one_split() -> None:
    images()
    frame = repeated().drop(columns="split").assign(patient="p")
    shares = {"TRAIN": 0.5, "TEST": 0.5}
    schema = Schema(image_uri=Image(), captions=Text(shape=(None,)))
    options = {"schema": schema, "group_by": "image_uri", "split_by": "patient", "splits": shares}
    tfrecorder.convert(frame, "out", **options)
    assert tfrecorder.to_frame("out").split.nunique() == 1


@pytest.mark.parametrize("by", ["caption", ""])
def test_a_column_that_is_not_there(by: str) -> None:
    with pytest.raises(OptionError, match="group_by"):
        tfrecorder.convert(repeated(), "out", schema=SCHEMA, group_by=by)


@pytest.mark.parametrize("layout", ["txt", "json", "both"])
def test_captions_beside_the_images_of_a_folder(layout: str) -> None:
    images("train")
    for name, texts in CAPTIONS.items():
        stem = Path("train", name).with_suffix("")
        if layout != "json":
            stem.with_suffix(".txt").write_text("\n".join(texts) + "\n")
        if layout != "txt":
            values = {"label": "x", "width": 8, "url": "https://…"}
            values |= {"captions": texts} if layout == "json" else {}
            stem.with_suffix(".json").write_text(json.dumps(values))
    columns = {"image_uri": Image(), "captions": Text(shape=(None,))}
    columns |= {} if layout == "txt" else {"label": Label()}
    result = tfrecorder.convert("train", "out", schema=Schema(columns), splits={"TRAIN": 1})
    assert result.records == 4
    assert not any(result.passed_over.values())
    assert found("out") == CAPTIONS


def test_one_text_beside_each_image_and_files_that_are_not_understood() -> None:
    images("train")
    for name in CAPTIONS:
        Path("train", name).with_suffix(".txt").write_text(f" of {name}\n")
    schema = Schema(image_uri=Image(), caption=Text())
    tfrecorder.convert("train", "out", schema=schema, splits={"TRAIN": 1})
    assert set(tfrecorder.to_frame("out").caption) == {f"of {name}" for name in CAPTIONS}
    Path("train/1.json").write_text("[1]")
    report = tfrecorder.validate("train", schema=schema)
    (row,) = report[report.code == "bad_annotation"].to_dict("records")
    assert (row["row"], row["value"]) == (1, "1.png")
    assert "1.json is not a JSON object" in row["message"]
