"""The samples run as they stand, and what they write is what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.record_laws import check_records
from support import SAMPLES, given_again, run

import tfrecorder


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The datasets of samples/kinds.py, and what it printed."""
    out = tmp_path_factory.mktemp("kinds")
    done = run(SAMPLES / "kinds.py", "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        ("multi-label", 52, {"split", "image_uri", "shows"}),
        ("detection", 13, {"split", "image_uri", "label", "x_min", "y_min", "x_max", "y_max"}),
        ("segmentation", 13, {"split", "image_uri", "mask_uri"}),
        ("two-images", 52, {"split", "left_uri", "right_uri", "label"}),
        ("tabular", 52, {"split", "colour", "width", "name", "label"}),
    ],
)
def test_each_kind_is_a_sound_dataset(
    kinds: tuple[Path, str], name: str, rows: int, columns: set[str]
) -> None:
    out, printed = kinds
    assert f"{name}: " in printed
    assert tfrecorder.info(out / name).records == rows
    assert set(given_again(out / name).columns) == columns
    assert tfrecorder.verify(out / name).ok
    check_records(out / name)


@pytest.mark.slow
def test_a_tiny_network_learns_the_masks() -> None:
    done = run(SAMPLES / "segment_keras.py", "--out", "coffee", "--epochs", "25")
    assert done.returncode == 0, done.stderr
    found = re.search(r"classified correctly: (\d+)%", done.stdout)
    assert found
    assert int(found[1]) >= 80
