"""`info` of a dataset with a schema: its columns and what their values are like."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.growing_cases import manifest
from helpers.kind_cases import EVERY_KIND, convert, every_kind
from helpers.streaming_cases import TO_ITS_END
from support import PHOTOS, SAMPLES, invoke, photo_frame

import tfrecorder
from tfrecorder.schema import Boxes, Image, Label, Mask, Number, Schema, Split, Text


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset with a column of every kind; not to be changed."""
    frame = every_kind(10).assign(split=["TRAIN"] * 8 + ["TEST"] * 2)
    return convert(frame, tmp_path_factory.mktemp("every") / "dataset", schema=EVERY_KIND)


def shown(out: str, *flags: str) -> str:
    result = invoke("info", out, *flags)
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
    assert '<td style="text-align:left">matrix</td>' in html, "notebooks put texts on the right"
    html = html.replace(' style="text-align:left"', "")
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


@pytest.mark.slow
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
    return tfrecorder.info("out").statistics


@pytest.mark.parametrize("labelled", [True, False])
def test_boxes_are_described_by_their_number_edges_and_area(labelled: bool) -> None:
    described = {name: of_splits["TRAIN"] for name, of_splits in boxes(labelled).items()}
    classes = {"count": 2, "distinct": 2, "top": [["cup", 1], ["eye", 1]]} if labelled else None
    assert described.pop("objects", None) == classes
    assert {name: (one["count"], one["min"], one["max"]) for name, one in described.items()} == {
        "objects per image": (2, 0, 2),
        "objects x_min": (2, 0, 10),
        "objects y_min": (2, 5, 20),
        "objects x_max": (2, 4, 30),
        "objects y_max": (2, 10, 60),
        "objects area": (2, 20, 800),
    }
    assert (described["objects area"]["mean"], described["objects area"]["std"]) == (410, 390)
    assert described["objects per image"]["mean"] == 1
    numbers = cells(shown("out"), "numbers")
    assert numbers["objects per image TRAIN"] == ["TRAIN", "2", "0", "2", "1", "1"]
    assert numbers["objects x_max TRAIN"] == ["TRAIN", "2", "4", "30", "17", "13"]
    assert ("\nvalues " in shown("out")) == labelled


def test_a_split_without_boxes_is_described_too() -> None:
    found = boxes(labelled=False)
    assert "objects" not in found
    none = {"count": 1, "min": 0, "max": 0, "mean": 0, "std": 0}
    assert found["objects per image"]["TEST"] == none
    assert found["objects area"]["TEST"] == {"count": 0}
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
    assert text.count(r"2 '\x1b[2Ja\nb'") == 1


HOLES = Schema(
    split=Split(),
    age=Number(dtype="int64", default=-1),
    weight=Number(default=0.1),
    point=Number(shape=(2,), default=(0.0, 0.0)),
    note=Text(default="none"),
    kind=Label(default="unknown"),
)


def with_holes(rows: int = 8) -> pd.DataFrame:
    """Rows of which every other one lacks every value; the last has the defaults as its values."""
    made = pd.DataFrame({"split": ["TRAIN"] * (rows - 2) + ["TEST"] * 2}, dtype=object)
    for name in ("age", "weight", "point", "note", "kind"):
        made[name] = pd.Series([None] * rows, dtype=object)
    for row in range(0, rows, 2):
        values = [20 + row, 1.5 + row, [1.0, 3.0], f"note {row}", "ab"[row // 2 % 2]]
        for name, value in zip(made.columns[1:], values, strict=True):
            made.at[row, name] = value
    for name, value in zip(made.columns[1:], [-1, 0.1, [0.0, 0.0], "none", "unknown"], strict=True):
        made.at[1, name] = value
    return made


def test_a_default_is_not_counted_as_a_value() -> None:
    convert(with_holes(), "out", schema=HOLES)
    found = tfrecorder.info("out").statistics
    train = {name: of_split["TRAIN"] for name, of_split in found.items()}
    # Row 1 really is -1 years old: a value that equals the default is a value.
    assert {name: one["missing"] for name, one in train.items()} == dict.fromkeys(train, 2)
    assert (train["age"]["count"], train["age"]["min"], train["age"]["max"]) == (4, -1, 24)
    assert train["age"]["mean"] == (20 - 1 + 22 + 24) / 4
    assert (train["point"]["count"], train["point"]["max"]) == (8, 3.0)
    assert train["note"]["top"] == [["none", 1], ["note 0", 1], ["note 2", 1], ["note 4", 1]]
    assert train["kind"]["top"] == [["a", 2], ["b", 1], ["unknown", 1]]
    test = found["age"]["TEST"]
    assert (test["count"], test["missing"], test["min"], test["max"]) == (1, 1, 26, 26)
    # The classes of records are another matter: those of the default have it.
    assert tfrecorder.info("out").class_counts["TRAIN"] == {"a": 2, "b": 1, "unknown": 3}


def test_missing_values_are_shown() -> None:
    convert(with_holes(), "out", schema=HOLES)
    text = shown("out")
    numbers, values = cells(text, "numbers"), cells(text, "values")
    assert numbers["numbers split"] == ["split", "count", "missing", "min", "max", "mean", "std"]
    assert numbers["age TRAIN"][1:5] == ["4", "2", "-1", "24"]
    assert values["note TEST"][1:4] == ["1", "1", "1"]
    assert str(tfrecorder.info("out")) in text
    assert json.loads(shown("out", "--json"))["statistics"]["age"]["TEST"]["missing"] == 1
    assert "<th>missing</th>" in tfrecorder.info("out")._repr_html_()


def test_a_column_without_any_value_has_only_missing_ones() -> None:
    schema = Schema(split=Split(), age=Number(default=-1), kind=Label(default="unknown"))
    frame = pd.DataFrame({"split": ["TRAIN"] * 3, "age": [None] * 3, "kind": ""})
    convert(frame, "out", schema=schema)
    found = tfrecorder.info("out").statistics
    assert found["age"]["TRAIN"] == {"count": 0, "missing": 3}
    assert found["kind"]["TRAIN"] == {"count": 0, "distinct": 0, "top": [], "missing": 3}
    assert cells(shown("out"), "numbers")["age TRAIN"] == ["TRAIN", "0", "3"]


@pytest.mark.slow
def test_generations_and_their_compaction_count_missing_values_alike() -> None:
    rows = with_holes(16)
    rows["split"] = "TRAIN"
    convert(rows, "whole", schema=HOLES)
    convert(rows[:7], "parts", schema=HOLES)
    tfrecorder.append(rows[7:], "parts", duplicates="keep", progress=False)
    tfrecorder.compact("parts", "compacted", progress=False)
    whole, parts, compacted = (tfrecorder.info(out) for out in ("whole", "parts", "compacted"))
    assert compacted.statistics == parts.statistics
    for name, of_split in whole.statistics.items():
        found, wanted = parts.statistics[name]["TRAIN"], of_split["TRAIN"]
        is_number = name in ("age", "weight", "point")
        assert found == (pytest.approx(wanted) if is_number else wanted), name
    assert parts.class_counts == whole.class_counts == compacted.class_counts


class Ages:
    """A source of a stream: ages, some of them missing, one of them no number."""

    name = "ages"
    ages = (3, None, "old", 5, None, 7)

    def rows(self, position: Any) -> Any:
        yield from (({"age": self.ages[at]}, at + 1) for at in range(position or 0, 6))

    def wait(self, seconds: float) -> None:
        del seconds


def test_a_stream_counts_missing_values_too() -> None:
    schema = Schema(age=Number(dtype="int64", default=-1))
    tfrecorder.stream(Ages(), "out", schema=schema, every_rows=4, **TO_ITS_END)
    found = tfrecorder.info("out").statistics["age"].values()
    assert sum(one.get("missing", 0) for one in found) == 2
    assert sum(one["count"] for one in found) == 3
    assert min(one["min"] for one in found if "min" in one) == 3


def test_metadata_without_missing_values_are_as_before(every: str) -> None:
    assert "missing" not in json.dumps(manifest(every, 0)["statistics"])
    assert "missing" not in shown(every)


@pytest.mark.parametrize("damage", [{"count": "many"}, {"count": 8, "top": 3}, {}], ids=str)
def test_damaged_statistics_are_a_damaged_dataset(every: str, damage: dict[str, Any]) -> None:
    copy = Path(shutil.copytree(every, "copy"))
    values = manifest(copy, 0)
    values["statistics"]["bi"]["TRAIN"] = damage
    (copy / "_tfrecorder/commits/00000.json").write_text(json.dumps(values))
    with pytest.raises(
        tfrecorder.errors.DatasetError, match=r"00000\.json is damaged: .*has changed"
    ):
        tfrecorder.info(copy)


def test_several_images_of_one_size_have_that_shape() -> None:
    frame = photo_frame(2).assign(other_uri=str(PHOTOS[-1]))
    schema = Schema(split=Split(), image_uri=Image(), other_uri=Image())
    convert(frame.drop(columns="label"), "out", schema=schema, image_size=(20, 30))
    shapes = {name: one.shape for name, one in tfrecorder.info("out").columns.items()}
    assert shapes == {"image_uri": (20, 30, 3), "other_uri": (20, 30, 3)}


def test_weights_of_classes_are_those_that_scikit_learn_calls_balanced() -> None:
    labels = ["a"] * 6 + ["b"] * 2 + ["c"] + ["d"]
    frame = photo_frame(10).assign(label=labels, split=["TRAIN"] * 9 + ["TEST"])
    convert(frame, "out")
    with pytest.warns(UserWarning, match="without a TRAIN record, 1: 'd'"):
        weights = tfrecorder.info("out").class_weights()
    assert weights == {0: 9 / (3 * 6), 1: 9 / (3 * 2), 2: 9 / (3 * 1), 3: 0.0}
    of_records = [weights[label] for label in tfrecorder.Records("out", "TRAIN").labels()]
    assert sum(of_records) == pytest.approx(9)  # so that the loss keeps its size


def test_weights_of_integers_that_no_list_of_names_could_hold() -> None:
    frame = pd.DataFrame({"split": "TRAIN", "x": range(3), "label": [7, 7, 5_000_000]})
    convert(frame, "out", schema=Schema(split=Split(), x=Number(), label=Label()))
    assert tfrecorder.info("out").class_weights() == {7: 0.75, 5_000_000: 1.5}


def test_weights_of_classes_that_nobody_counted_are_refused(every: str) -> None:
    convert(photo_frame(9).drop(columns="label"), "out")
    for directory in (every, "out"):
        with pytest.raises(tfrecorder.errors.DatasetError, match=r"np\.bincount"):
            tfrecorder.info(directory).class_weights()
