"""Datasets that earlier versions of the package wrote are read, verified and appended to.

`tests/datasets/` has one for each form of the directory that was released, made by

    PYTHONPATH=tests python tests/format/test_kept_datasets.py tests/datasets/form-4

in a folder whose path says nothing of a machine.  What is there is never made again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image as PillowImage
from support import TESTS

import tfrecorder
from tfrecorder.schema import Boxes, Image, Label, Number, Schema, Split, Text

#: `form-4-NAME` are those of `kept_datasets.py`.
KEPT = sorted((TESTS / "datasets").glob("form-[0-9]"))

SCHEMA = Schema(
    split=Split(),
    image_uri=Image(),
    kind=Label(names=["plain", "noise"]),
    boxes=Boxes(label="thing"),
    angle=Number(),
    caption=Text(),
)


def rows(first: int, count: int) -> pd.DataFrame:
    """Rows with small pictures of their own, written into the working directory."""
    made = []
    for number in range(first, first + count):
        random = np.random.default_rng(number)
        pixels = np.full((8, 12, 3), number * 20, np.uint8)
        if number % 2:
            pixels = random.integers(0, 255, (8, 12, 3), dtype=np.uint8)
        PillowImage.fromarray(pixels).save(f"picture_{number}.png")
        several = [0.25] * (number % 3)
        made.append(
            {
                "split": ("TRAIN", "TRAIN", "TEST")[number % 3],
                "image_uri": f"picture_{number}.png",
                "kind": ("plain", "noise")[number % 2],
                **{"x_min": several, "y_min": several},
                **{"x_max": [0.5] * len(several), "y_max": [1.0] * len(several)},
                "thing": ["cup"] * len(several),
                "angle": number / 4,
                "caption": f"picture {number}, ä",
            }
        )
    return pd.DataFrame(made)


def make(output_dir: str) -> None:
    """A dataset with everything that a later version must read: an append and a removal too."""
    tfrecorder.convert(rows(0, 6), output_dir, schema=SCHEMA, progress=False)
    tfrecorder.append(rows(6, 3), output_dir, progress=False)
    tfrecorder.remove(output_dir, {"image_uri": "picture_0.png"}, progress=False)
    tfrecorder.append(rows(9, 2), output_dir, progress=False)


@pytest.fixture(params=KEPT, ids=lambda path: path.name)
def kept(request: pytest.FixtureRequest) -> str:
    """A copy of a dataset that was kept."""
    shutil.copytree(request.param, "out")
    return "out"


@pytest.mark.slow
def test_one_is_kept_for_each_form_of_the_directory() -> None:
    tfrecorder.convert(rows(0, 3), "out", schema=SCHEMA, progress=False)
    form = json.loads(Path("out/_tfrecorder/commits/00000.json").read_text())["version"]
    assert f"form-{form}" in [path.name for path in KEPT]


def test_it_is_read_and_verified(kept: str) -> None:
    assert tfrecorder.verify(kept, progress=False).ok
    wanted = rows(0, 11).drop(index=0)
    frame = tfrecorder.to_frame(kept, images="bytes").sort_index()
    assert frame["caption"].tolist() == wanted["caption"].tolist()
    assert frame["kind"].tolist() == wanted["kind"].tolist()
    assert frame["split"].tolist() == wanted["split"].tolist()
    assert frame["angle"].tolist() == wanted["angle"].tolist()
    assert list(map(list, frame["x_min"])) == wanted["x_min"].tolist()
    for uri, data in zip(wanted["image_uri"], frame["image_uri"], strict=True):
        assert np.array_equal(PillowImage.open(uri), pixels_of(data))
    info = tfrecorder.info(kept)
    assert info.columns["kind"].class_names == ("plain", "noise")
    assert info.records == len(wanted)


def pixels_of(data: bytes) -> np.ndarray:
    Path("stored.png").write_bytes(data)
    return np.asarray(PillowImage.open("stored.png"))


def test_verify_counts_the_tables_without_checksums_of_records(kept: str) -> None:
    """What an earlier version wrote stays as it is, until a shard is written again."""
    form = json.loads(Path(kept, "_tfrecorder/commits/00003.json").read_text())["version"]
    shards = len([*Path(kept).glob("*.tfrecord")])
    report = tfrecorder.verify(kept, progress=False)
    assert report.without_frame_sums == (shards if form == 4 else 0)
    assert ("have no checksums of records" in str(report)) == (form == 4)
    tables = {path.name: path.read_bytes() for path in Path(kept, "_tfrecorder/tables").iterdir()}
    tfrecorder.append(rows(11, 2), kept, progress=False)
    after = tfrecorder.verify(kept, progress=False)
    assert after.ok
    assert after.without_frame_sums == report.without_frame_sums
    assert (
        tables.items()
        <= {
            path.name: path.read_bytes() for path in Path(kept, "_tfrecorder/tables").iterdir()
        }.items()
    )
    newest = json.loads(Path(kept, "_tfrecorder/commits/00004.json").read_text())
    assert (newest["version"], newest["next_row"]) == (5, 13)


@pytest.mark.slow
def test_it_goes_on(kept: str) -> None:
    again = rows(0, 1)
    assert tfrecorder.append(again, kept, progress=False).removed == 1  # by its bytes
    tfrecorder.append(rows(11, 2), kept, progress=False)
    tfrecorder.update(rows(12, 1).assign(caption="corrected"), kept, progress=False)
    assert tfrecorder.verify(kept, progress=False).ok
    frame = tfrecorder.to_frame(kept)
    assert len(frame) == 12
    assert "corrected" in frame["caption"].tolist()


if __name__ == "__main__":
    target = Path(sys.argv[1]).absolute()
    os.makedirs("/data/photos", exist_ok=True)
    os.chdir("/data/photos")
    make("/data/out")
    shutil.move("/data/out", target)
