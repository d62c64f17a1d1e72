"""What the tests of reading share: datasets made by `convert`, and what they hold as values.

The inner law: blocks may be small, and the resizer is Pillow where the other is missing.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import tfrecorder
from tfrecorder.reading import decoding, order

SAMPLES = Path(__file__).parents[2] / "samples"
PHOTOS_CSV = SAMPLES / "photos.csv"


def convert_photos(out: Path, **options: Any) -> str:
    """The bundled photographs, 36 TRAIN, 8 VALIDATION and 8 TEST, as a dataset directory."""
    tfrecorder.convert(PHOTOS_CSV, out, progress=False, **{"num_shards": 4} | options)
    return str(out)


def photos(split: str) -> pd.DataFrame:
    """The rows of the bundled photographs' CSV of one split."""
    frame = pd.read_csv(PHOTOS_CSV)
    return frame[frame["split"] == split]


def convert_images(out: Path, images: dict[str, bytes], **options: Any) -> str:
    """Encoded images by file name, all in TRAIN with one label, in the order given."""
    folder = out.parent / f"{out.name}-images"
    folder.mkdir()
    for name, data in images.items():
        (folder / name).write_bytes(data)
    rows = [("TRAIN", str(folder / name), "thing") for name in images]
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "label"])
    tfrecorder.convert(frame, out, progress=False, **{"shuffle": False} | options)
    return str(out)


def by_load(out: str, **options: Any) -> list[Any]:
    """The elements of TRAIN in their order, by tf.data."""
    options = {"shuffle": False} | options
    return list(tfrecorder.load(out, "TRAIN", **options).as_numpy_iterator())


def by_number(out: str, **options: Any) -> list[Any]:
    """The elements of TRAIN in their order, without TensorFlow."""
    return list(tfrecorder.Records(out, "TRAIN", **options))


#: Both engines, for tests of what they have in common.
READERS = {"load": by_load, "Records": by_number}


def ids(dataset: Iterable[Any]) -> list[int]:
    """The source rows of a dataset of `features`, batched or not, in the order they come."""
    found = [np.atleast_1d(element["image/source_id"]).tolist() for element in dataset]
    return [int(one) for batch in found for one in batch]


def pillow_pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def jpeg(pixels: np.ndarray, quality: int = 90) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=quality)
    return out.getvalue()


def photograph(height: int, width: int) -> np.ndarray:
    """A large picture with a photograph's detail: a bundled crop enlarged, with fine grain."""
    small = Image.open(SAMPLES / "photos/cat/cat_04.jpg")
    large = np.asarray(small.resize((width, height), Image.BICUBIC), np.int16)
    grain = np.random.default_rng(0).normal(0, 12, (height, width, 1))
    return np.clip(large + grain, 0, 255).astype(np.uint8)


def mean_difference(one: Any, other: Any) -> float:
    """Of two pictures, in grey levels of 255."""
    return float(np.abs(np.asarray(one, np.float64) - np.asarray(other, np.float64)).mean())


def assert_alike(ours: Any, theirs: Any, pixels: float = 0) -> None:
    """The same keys, shapes, dtypes and values, but for pixels within so many grey levels."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for pair in zip(ours, theirs, strict=True):
            assert_alike(*pair, pixels)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            assert_alike(ours[key], value, pixels)
    elif isinstance(theirs, (np.ndarray, np.generic)):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if theirs.ndim >= 3 and pixels:
            assert mean_difference(ours, theirs) < pixels
        elif theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
        else:
            np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def damaged(out: str, folder: Path, at: int) -> tuple[Path, int, int]:
    """A copy with one byte of a record changed; the file, the record's offset, and its number."""
    copy = Path(shutil.copytree(out, folder / "damaged"))
    shard = sorted(copy.glob("train-*.tfrecord"))[1]
    index = (copy / "_tfrecorder/index" / f"{shard.name}.idx").read_text().splitlines()
    offset, size = map(int, index[2].split())
    data = bytearray(shard.read_bytes())
    data[offset + (at if at >= 0 else size + at)] ^= 1
    shard.write_bytes(data)
    first = sorted(copy.glob("_tfrecorder/index/train-*.idx"))[0]
    return shard, offset, len(first.read_text().splitlines()) + 2


def blocks_of(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Shuffle by blocks of so many bytes."""
    monkeypatch.setattr(order, "BLOCK_BYTES", size)


def without_rust(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resize as where cykooz_resizer has no wheel."""
    monkeypatch.setattr(decoding, "rust", None)
