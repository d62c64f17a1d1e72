"""Before anything is written, every column of images and masks is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image as Pictures
from support import PHOTOS, SAMPLES, error_of, rejects

import tfrecorder
from tfrecorder.errors import ImagesUnreachableError
from tfrecorder.schema import Boxes, Image, Mask, Number, Schema, Split

COFFEE = sorted(SAMPLES.glob("photos/coffee/*.jpg"))
SCHEMA = Schema(
    split=Split(), left_uri=Image(), right_uri=Image(), mask_uri=Mask(of="left_uri"), x=Number()
)


def three_files(rows: int = 6) -> pd.DataFrame:
    """Two images and the mask of the first in each row."""
    return pd.DataFrame(
        {
            "split": "TRAIN",
            "left_uri": [str(path) for path in COFFEE[:rows]],
            "right_uri": [str(PHOTOS[row]) for row in range(rows)],
            "mask_uri": [str(SAMPLES / "masks" / f"{path.stem}.png") for path in COFFEE[:rows]],
            "x": 1.0,
        }
    )


def unusable(frame: pd.DataFrame, schema: Schema = SCHEMA) -> list[tuple[int, str, str]]:
    report = tfrecorder.validate(frame, check_images=True, schema=schema)
    found = report[report.code == "unusable_image"]
    return list(zip(found.row, found.column, found.message, strict=True))


@pytest.mark.slow
def test_check_images_names_the_column_of_each_fault() -> None:
    frame = three_files()
    assert unusable(frame) == []
    Path("cut.jpg").write_bytes(COFFEE[0].read_bytes()[:900])
    Pictures.open(frame.at[2, "mask_uri"]).resize((10, 10)).save("small.png")
    Pictures.open(frame.at[3, "mask_uri"]).save("mask.jpg")
    frame.loc[0, "left_uri"] = "cut.jpg"
    frame.loc[1, "right_uri"] = "gone.jpg"
    frame.loc[2, "mask_uri"] = "small.png"
    frame.loc[3, "mask_uri"] = "mask.jpg"
    frame.loc[4, ["right_uri", "mask_uri"]] = ["gone.jpg", "gone.png"]
    found = unusable(frame)
    assert [(row, column) for row, column, _ in found] == [
        (0, "left_uri"),
        (1, "right_uri"),
        (2, "mask_uri"),
        (3, "mask_uri"),
        (4, "right_uri"),
        (4, "mask_uri"),
    ]
    words = ["cut.jpg': truncated", "gone.jpg': not_found", "small.png': mask_size"]
    words += ["mask.jpg': mask_format", "gone.jpg': not_found", "gone.png': not_found"]
    for (_, column, message), reason in zip(found, words, strict=True):
        assert message.startswith(f"{column} '{reason}")
    # What a conversion rejects are these rows, and no others.
    tfrecorder.convert(frame, "out", schema=SCHEMA, progress=False, max_reject_fraction=1)
    assert sorted(rejects("out").row) == [0, 1, 2, 3, 4]


def test_files_are_opened_beside_faults_of_other_columns_and_rows() -> None:
    frame = three_files()
    frame["x"] = "no number"
    frame.loc[0, "right_uri"] = None
    frame.loc[1, "right_uri"] = "gone.jpg"
    frame.loc[5, "left_uri"] = "gone.jpg"
    assert [(row, column) for row, column, _ in unusable(frame)] == [
        (1, "right_uri"),
        (5, "left_uri"),
    ]
    report = tfrecorder.validate(frame, check_images=True, schema=SCHEMA)
    assert set(report.code) == {"wrong_value", "null_uri", "unusable_image"}


def test_a_column_that_is_not_there_leaves_the_others_to_look_at() -> None:
    frame = three_files().drop(columns="left_uri")
    frame.loc[1, "mask_uri"] = "gone.png"
    assert [(row, column) for row, column, _ in unusable(frame)] == [(1, "mask_uri")]


EDGES = ["x_min", "y_min", "x_max", "y_max"]


def boxed(*boxes: tuple[Path | str, float, float, float, float]) -> pd.DataFrame:
    """A row a box, in pixels."""
    rows = [("TRAIN", str(uri), *edges) for uri, *edges in boxes]
    return pd.DataFrame(rows, columns=["split", "image_uri", *EDGES]).assign(label="cup")


def outside(frame: pd.DataFrame, schema: Schema | None = None) -> pd.DataFrame:
    report = tfrecorder.validate(frame, check_images=True, schema=schema)
    return report[report.code == "box_outside"]


def rejected(frame: pd.DataFrame, out: str = "out", **options: Any) -> pd.DataFrame:
    tfrecorder.convert(frame, out, progress=False, max_reject_fraction=1, **options)
    return rejects(out)


def test_boxes_beyond_their_image_are_named_with_their_rows_as_a_conversion_rejects_them() -> None:
    first, second, third = COFFEE[:3]
    width, height = Pictures.open(first).size
    frame = boxed(
        (first, 0, 0, width, height),
        (second, 1, 2, 3, 4),
        (first, 5, 6, width + 1.5, height),
        (third, 1, 1, 2, 2),
        (first, 7, 8, 9, height + 200),
    )
    found = outside(frame)
    size = f"is beyond the image's {width} x {height} pixels"
    words = [
        f"box 1 (5, 6, {width + 1.5:g}, {height}) {size}",
        f"box 2 (7, 8, 9, {height + 200}) {size}",
    ]
    assert found.row.tolist() == [2, 4]
    assert set(found.column) == {"x_min"}
    assert found.value.tolist() == [f"5, 6, {width + 1.5}, {height}", f"7, 8, 9.0, {height + 200}"]
    assert found.message.tolist() == [f"{str(first)!r}: {one}" for one in words]
    assert found.remedy.str.contains("a conversion would list its image as a reject").all()
    listed = rejected(frame)
    assert listed.image_uri.tolist() == [str(first)]
    assert listed.reason.tolist() == [f"box_outside: {words[0]}"]


def test_boxes_in_lists_are_named_with_the_row_of_their_image() -> None:
    far, near = [1.0, 9e3], [1.0, 9.0]
    frame = pd.DataFrame(
        {
            "image_uri": [str(path) for path in COFFEE[:3]],
            **{"left": [[0.0, 0.0]] * 3, "top": [[0.0, 0.0]] * 3},
            **{"right": [near, far, []], "bottom": [near, near, []]},
        }
    )
    frame.at[2, "left"] = frame.at[2, "top"] = []
    names = ("left", "top", "right", "bottom")
    schema = Schema(image_uri=Image(), objects=Boxes(columns=names, label=None, unit="pixel"))
    found = outside(frame, schema)
    assert (found.row.tolist(), found.column.tolist()) == ([1], ["left"])
    assert found.value.item() == "0.0, 0.0, 9000.0, 9.0"
    assert "box 1 (0, 0, 9000, 9) is beyond the image's" in found.message.item()
    assert rejected(frame, schema=schema).row.tolist() == [1]


def test_a_box_with_a_fault_of_its_own_is_reported_once_and_the_others_are_looked_at() -> None:
    frame = boxed((COFFEE[0], 1, 1, 9e3, 0.5), (COFFEE[0], 1, 1, 9e3, 5), (COFFEE[1], 1, 1, 5, 5))
    frame = pd.concat([frame, boxed(("gone.jpg", 1, 1, 9e3, 5))], ignore_index=True)
    report = tfrecorder.validate(frame, check_images=True)
    found = report[report.severity == "error"]
    assert list(zip(found.row, found.code, strict=True)) == [
        (0, "bad_box"),
        (1, "box_outside"),
        (3, "unusable_image"),
    ]


def test_what_validate_says_of_boxes_is_what_a_conversion_rejects() -> None:
    numbers = np.random.default_rng(5)
    rows: list[Any] = []
    for path in [*COFFEE, *PHOTOS[:8], "gone.jpg"]:
        width, height = (80, 60) if path == "gone.jpg" else Pictures.open(path).size
        for _ in range(numbers.integers(1, 4)):
            beyond = numbers.choice([*[0] * 16, 1e-9, 1e-3, 4, 1e4], size=2)
            edges = (*numbers.uniform(0, 9, 2), width + beyond[0], height + beyond[1])
            rows.append((path, *edges))
    rows = [rows[place] for place in numbers.permutation(len(rows))]
    frame = boxed(*rows)
    report = tfrecorder.validate(frame, check_images=True)
    images = frame.image_uri[report[report.code.isin(["box_outside", "unusable_image"])].row]
    assert 3 < images.nunique() < frame.image_uri.nunique() - 3
    assert set(rejected(frame).image_uri) == set(images)


def test_boxes_as_fractions_need_no_image_to_be_judged() -> None:
    frame = boxed((COFFEE[0], 0, 0, 1, 1), (COFFEE[1], 0.5, 0.5, 0.75, 1))
    assert outside(frame).empty


def test_of_boxes_with_a_row_each_an_image_is_reported_once_with_its_first_row() -> None:
    uris = [str(COFFEE[0]), "gone.jpg", "gone.jpg"]
    frame = pd.DataFrame({"image_uri": uris, "x_min": 0.1, "y_min": 0.1, "x_max": 0.5})
    frame = frame.assign(y_max=0.5, label="cup")
    found = unusable(frame, Schema(image_uri=Image(), objects=Boxes()))
    assert [(row, column) for row, column, _ in found] == [(1, "image_uri")]


@pytest.mark.parametrize("column", ["left_uri", "right_uri", "mask_uri"])
def test_a_disk_that_is_away_stops_a_conversion_whichever_column_is_on_it(column: str) -> None:
    frame = three_files()
    frame[column] = "away/" + frame[column].str.rpartition("/")[2]
    message = error_of(ImagesUnreachableError, frame, schema=SCHEMA, max_reject_fraction=1)
    assert f"column {column!r}: 6 of 6 images opened before the launch cannot be read" in message
    assert f"{Path.cwd()}/away/" in message
    assert not list(Path("out").glob("_tfrecorder/plan*"))


def test_a_few_missing_files_of_each_column_are_rejects_and_no_outage() -> None:
    frame = three_files()
    frame.loc[0, "right_uri"] = "gone.jpg"
    frame.loc[1, "mask_uri"] = "gone.png"
    done = tfrecorder.convert(frame, "out", schema=SCHEMA, progress=False, max_reject_fraction=0.5)
    assert done.rejects == {"read/not_found": 2}
