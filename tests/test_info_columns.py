"""`info` of a dataset with a schema: its columns and what their values are like."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from kind_cases import EVERY_KIND, convert, every_kind
from support import PHOTOS, SAMPLES, photo_frame

import tfrecorder
from tfrecorder import Boxes, Image, Label, Mask, Number, Schema, Split, Text
from tfrecorder.cli.main import main


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset with a column of every kind; not to be changed."""
    frame = every_kind(10).assign(split=["TRAIN"] * 8 + ["TEST"] * 2)
    return convert(frame, tmp_path_factory.mktemp("every") / "dataset", schema=EVERY_KIND)


def shown(out: str, *flags: str) -> str:
    result = CliRunner().invoke(main, ["info", out, *flags], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def cells(text: str, head: str) -> dict[str, list[str]]:
    """The rows of the text table whose header begins with a word, by their first cell."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"{head} "))
    end = lines.index("", start)
    rows = [
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines[start:end]
    ]
    return {row[0] if head == "column" else f"{row[0]} {row[1]}": row[1:] for row in rows}


def test_the_columns_have_their_kind_type_and_shape(every: str) -> None:
    found = cells(shown(every), "column")
    assert found["column"] == ["kind", "type", "classes", "shape"]
    assert list(found)[1:] == [name for name, kind in EVERY_KIND.fields if kind.word != "split"]
    assert found["left_uri"] == ["image", "uint8", "(None, None, 3)"]
    assert found["multi"] == ["label", "int64", "3", "()"]
    assert found["tags"] == ["labels", "int64", "3", "(None,)"]
    assert found["count"] == ["number", "int64", "()"]
    assert found["matrix"] == ["number", "float32", "(2, 3)"]
    assert found["lit"] == ["number", "bool", "()"]
    assert found["words"] == ["text", "string", "(None,)"]
    assert found["blob"] == ["bytes", "string", "()"]


def test_statistics_of_numbers_and_the_most_frequent_values_are_shown(every: str) -> None:
    numbers = cells(shown(every), "numbers")
    angles = every_kind(10)["angle"].iloc[:8].astype("float64")
    wanted = [angles.min(), angles.max(), angles.mean(), angles.std(ddof=0)]
    assert numbers["angle TRAIN"] == ["TRAIN", "8", *(f"{value:.6g}" for value in wanted)]
    assert numbers["count TEST"][1:4] == ["2", "8,000,000,000,000", "9,000,000,000,000"]
    assert numbers["matrix TEST"][1] == "12"
    values = cells(shown(every), "values")
    assert values["bi TRAIN"] == ["TRAIN", "8", "2", "5 'no', 3 'yes'"]
    assert values["caption TRAIN"][1:3] == ["8", "8"]
    assert values["caption TRAIN"][3].endswith(", …")
    assert "left_uri TRAIN" not in values


def test_a_notebook_shows_the_same_tables(every: str) -> None:
    html = tfrecorder.info(every)._repr_html_()
    assert "<td>matrix</td><td>number</td><td>float32</td><td></td><td>(2, 3)</td>" in html
    assert "<td>bi</td><td>TRAIN</td><td>8</td><td>2</td><td>5 &#x27;no&#x27;, 3 " in html


def test_programs_get_all_of_it(every: str) -> None:
    found = json.loads(shown(every, "--json"))
    assert found["columns"]["matrix"] == {
        "kind": "number",
        "dtype": "float32",
        "shape": [2, 3],
        "num_classes": None,
        "class_names": None,
    }
    assert found["columns"]["multi"]["class_names"] == ["a", "b", "c"]
    assert found["columns"]["left_uri"]["shape"] == [None, None, 3]
    assert found["statistics"]["bi"]["TRAIN"]["top"] == [["no", 5], ["yes", 3]]


def test_masks_and_boxes_have_the_shapes_that_load_gives() -> None:
    mask = next(iter(sorted((SAMPLES / "masks").glob("*.png"))))
    image = SAMPLES / "photos/coffee" / f"{mask.stem}.jpg"
    frame = pd.DataFrame({"split": ["TRAIN"], "image_uri": str(image), "mask_uri": str(mask)})
    convert(frame, "masks")
    height, width = next(iter(tfrecorder.load("masks", "TRAIN")))[1].shape[:2]
    found = tfrecorder.info("masks").columns["mask_uri"]
    assert (found.kind, found.dtype, found.shape) == ("mask", "uint8", (height, width, 1))
    edges = {"x_min": [0.1], "y_min": 0.1, "x_max": 0.5, "y_max": 0.5, "label": "cup"}
    boxes = frame.drop(columns="mask_uri").assign(**edges)
    schema = Schema(split=Split(), image_uri=Image(), objects=Boxes())
    convert(boxes, "boxes", schema=schema)
    found = tfrecorder.info("boxes").columns["objects"]
    assert (found.kind, found.dtype, found.shape) == ("boxes", "float32", (None, 4))
    assert (found.num_classes, found.class_names) == (1, ("cup",))
    values = cells(shown("boxes"), "values")
    assert values["objects TRAIN"] == ["TRAIN", "1", "1", "1 'cup'"]
    assert Mask().word == "mask"


def boxes(labelled: bool) -> dict[str, Any]:
    """The statistics of boxes in pixels, of which one image has two and another none."""
    rows = [
        ("TRAIN", str(PHOTOS[0]), 10.0, 20.0, 30.0, 60.0, "cup"),
        ("TRAIN", str(PHOTOS[1]), None, None, None, None, None),
        ("TRAIN", str(PHOTOS[0]), 0.0, 5.0, 4.0, 10.0, "eye"),
        ("TEST", str(PHOTOS[2]), None, None, None, None, None),
    ]
    edges = ["left", "top", "right", "bottom"]
    frame = pd.DataFrame(rows, columns=["split", "image_uri", *edges, "what"])
    kind = Boxes(columns=edges, label="what" if labelled else None, unit="pixel")
    schema = Schema(split=Split(), image_uri=Image(), objects=kind)
    convert(frame if labelled else frame.drop(columns="what"), "out", schema=schema)
    return tfrecorder.info("out").statistics["objects"]


@pytest.mark.parametrize("labelled", [True, False])
def test_boxes_are_described_by_their_number_edges_and_area(labelled: bool) -> None:
    train = boxes(labelled)["TRAIN"]
    described = train.pop("boxes")
    classes = {"distinct": 2, "top": [["cup", 1], ["eye", 1]]} if labelled else {}
    assert train == {"count": 2, **classes}
    assert {name: (one["count"], one["min"], one["max"]) for name, one in described.items()} == {
        "per_image": (2, 0, 2),
        "x_min": (2, 0, 10),
        "y_min": (2, 5, 20),
        "x_max": (2, 4, 30),
        "y_max": (2, 10, 60),
        "area": (2, 20, 800),
    }
    assert (described["area"]["mean"], described["area"]["std"]) == (410, 390)
    assert described["per_image"]["mean"] == 1
    numbers = cells(shown("out"), "numbers")
    assert numbers["objects per image TRAIN"] == ["TRAIN", "2", "0", "2", "1", "1"]
    assert numbers["objects x_max TRAIN"] == ["TRAIN", "2", "4", "30", "17", "13"]
    assert ("\nvalues " in shown("out")) == labelled


def test_a_split_without_boxes_is_described_too() -> None:
    test = boxes(labelled=False)["TEST"]
    assert test["count"] == 0
    assert test["boxes"]["per_image"] == {"count": 1, "min": 0, "max": 0, "mean": 0, "std": 0}
    assert test["boxes"]["area"] == {"count": 0}
    assert cells(shown("out"), "numbers")["objects area TEST"] == ["TEST", "0"]


def test_a_dataset_of_the_default_schema_has_the_same_tables(dataset: Path) -> None:
    text = shown(str(dataset))
    assert cells(text, "column")["label"] == ["label", "int64", "4", "()"]
    top = "9 'brick', 9 'cat', 9 'coffee', …"
    assert cells(text, "values")["label TRAIN"] == ["TRAIN", "36", "4", top]
    assert "numbers " not in text


def test_a_dataset_without_labels_has_no_statistics_of_them() -> None:
    convert(photo_frame(9).drop(columns="label"), "out")
    found = tfrecorder.info("out")
    assert found.statistics == {}
    assert (found.num_classes, found.class_counts) == (0, {"TRAIN": {}})
    assert "classes: no labels" in shown("out")


def test_a_table_without_images_or_finite_numbers_is_shown_too() -> None:
    schema = Schema(split=Split(), x=Number(), note=Text(), label=Label())
    frame = pd.DataFrame({"split": "TRAIN", "x": [float("inf")] * 2, "note": "\x1b[2Ja\nb"})
    convert(frame.assign(label=[3, 0]), "out", schema=schema)
    text = shown("out")
    assert "\x1b" not in text
    assert cells(text, "numbers")["x TRAIN"] == ["TRAIN", "0"]
    assert cells(text, "column")["label"] == ["label", "int64", "4", "()"]
    assert cells(text, "values")["label TRAIN"] == ["TRAIN", "2", "2", "1 '0', 1 '3'"]


@pytest.mark.parametrize(
    "damage",
    [
        {"count": "many"},
        {"count": 8, "min": [1]},
        {"count": 8, "distinct": 2, "top": [["no"]]},
        {"count": 8, "top": 3},
        {"count": 8, "boxes": {"per_image": {"count": 8}}},
        {},
    ],
    ids=str,
)
def test_damaged_statistics_are_a_damaged_dataset(every: str, damage: dict[str, Any]) -> None:
    copy = Path(shutil.copytree(every, "copy"))
    path = copy / "_tfrecorder/metadata.json"
    metadata = json.loads(path.read_bytes())
    metadata["statistics"]["bi"]["TRAIN"] = damage
    path.write_text(json.dumps(metadata))
    with pytest.raises(tfrecorder.DatasetError, match=r"metadata\.json is damaged: statistics: "):
        tfrecorder.info(copy)


def test_several_images_of_one_size_have_that_shape() -> None:
    frame = photo_frame(2).assign(other_uri=str(PHOTOS[-1]))
    schema = Schema(split=Split(), image_uri=Image(), other_uri=Image())
    convert(frame.drop(columns="label"), "out", schema=schema, image_size=(20, 30))
    shapes = {name: one.shape for name, one in tfrecorder.info("out").columns.items()}
    assert shapes == {"image_uri": (20, 30, 3), "other_uri": (20, 30, 3)}
