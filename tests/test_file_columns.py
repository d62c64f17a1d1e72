"""Before anything is written, every column of images and masks is looked at."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from PIL import Image as Pictures
from support import PHOTOS, SAMPLES, error_of, rejects

import tfrecorder
from tfrecorder import Boxes, Image, Mask, Number, Schema, Split
from tfrecorder.errors import ImagesUnreachableError

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
