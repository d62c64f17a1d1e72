"""`to_frame` with uris keeps no image: what it needs is the frame, however large the images are."""

from __future__ import annotations

import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image as Pictures
from torture import frames

import tfrecorder
from tfrecorder.schema import Image, Label, Mask, Schema, Split

ROWS = 80


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of pixels that do not shrink: 600 KB each, with a mask of 200 KB; 64 MB in all."""
    folder = tmp_path_factory.mktemp("large")
    drawn = np.random.default_rng(0).integers(0, 255, (448, 448, 3), dtype=np.uint8)
    Pictures.fromarray(drawn).save(folder / "image.png")
    Pictures.fromarray(drawn[:, :, 0]).save(folder / "mask.png")
    rows = {"split": "TRAIN", "image_uri": str(folder / "image.png"), "label": "a"}
    frame = pd.DataFrame({**rows, "mask_uri": str(folder / "mask.png")}, index=range(ROWS))
    schema = Schema(split=Split(), image_uri=Image(), label=Label(), mask_uri=Mask())
    tfrecorder.convert(frame, folder / "out", schema=schema, num_shards=2, progress=False)
    return folder / "out"


def peak_of(where: Path, **options: Any) -> tuple[int, pd.DataFrame]:
    tracemalloc.start()
    try:
        frame = tfrecorder.to_frame(where, **options)
        return tracemalloc.get_traced_memory()[1], frame
    finally:
        tracemalloc.stop()


def test_a_frame_of_uris_keeps_no_image(large: Path) -> None:
    peak, frame = peak_of(large)
    assert len(frame) == ROWS
    assert peak < 6e6, f"{peak:,} bytes for a frame of {ROWS} rows"


def test_a_frame_of_uris_of_other_tools_files_keeps_no_image(large: Path, tmp_path: Path) -> None:
    for shard in large.glob("*.tfrecord"):
        shutil.copy(shard, tmp_path)
    peak, frame = peak_of(tmp_path)  # a few samples of each file say what the keys mean
    assert len(frame) == ROWS
    assert peak < 20e6, f"{peak:,} bytes for a frame of {ROWS} rows"


def test_a_frame_of_bytes_holds_each_image_once(large: Path) -> None:
    peak, frame = peak_of(large, images="bytes")
    held = sum(map(len, [*frame["image_uri"], *frame["mask_uri"]]))
    assert held > 50e6
    assert peak < held + 6e6


@pytest.mark.slow
def test_four_times_as_many_images_take_no_more_memory(tmp_path: Path) -> None:
    (count,) = frames.flatten(tmp_path / "frames", 20, ("ours", "others"))
    assert count.times == 6
