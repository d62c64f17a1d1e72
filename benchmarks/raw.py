"""Reading small images as raw pixels, and large ones from a copy that was written smaller.

    raw.py [--data DIR] [--quick] [--rounds N]

The HDF5 case needs h5py, and is skipped without it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
from data import listed, photographs
from harness import Bar, Case, Numbers, Timed
from photos import bring_photos
from reading_data import find_photos, make_small

SMALL = 81_282
BATCH = 256
CHUNK = 1024


def written(csv: Path, out: Path, **options: Any) -> str:
    """A dataset of a CSV, written unless it is there, and in the page cache."""
    import tfrecorder

    if not (out / "dataset_info.json").exists():
        tfrecorder.convert(csv, out, progress=False, overwrite=True, **options)
    harness.warm([str(path) for path in out.glob("*.tfrecord")])
    return str(out)


def write_hdf5(directory: str, path: Path) -> str:
    """The pixels and labels of a raw dataset as an HDF5 file, in chunks of images."""
    import h5py
    import numpy as np

    import tfrecorder

    if path.exists():
        harness.warm([str(path)])
        return str(path)
    dataset = tfrecorder.load(directory, "TRAIN", batch_size=CHUNK, shuffle=False)
    partial = path.with_suffix(".part")
    with h5py.File(partial, "w") as file:
        shape = (0, 128, 128, 3)
        grows, chunk = (None, *shape[1:]), (64, *shape[1:])
        pixels = file.create_dataset("x", shape, "u1", maxshape=grows, chunks=chunk)
        labels = []
        for images, some in dataset.as_numpy_iterator():
            pixels.resize(len(pixels) + len(images), 0)
            pixels[-len(images) :] = images
            labels.append(some)
        file["y"] = np.concatenate(labels)
    partial.rename(path)
    return str(path)


def load(directory: str, **options: Any) -> Timed:
    """One epoch of `tfrecorder.load`, shuffled, in batches."""
    import tfrecorder

    dataset = tfrecorder.load(directory, "TRAIN", batch_size=BATCH, **options)
    for _ in dataset.take(2):
        pass

    def epoch() -> Numbers:
        return {"images": sum(int(images.shape[0]) for images, _ in dataset)}

    return epoch


def hdf5(path: str) -> Timed:
    """One epoch of an HDF5 file: chunks in random order, shuffled within, and no checksum."""
    import h5py
    import numpy as np

    def epoch() -> Numbers:
        random, count = np.random.default_rng(0), 0
        with h5py.File(path) as file:
            pixels, labels = file["x"], file["y"][:]
            starts = np.arange(0, len(pixels), CHUNK)
            for start in random.permutation(starts):
                images, some = pixels[start : start + CHUNK], labels[start : start + CHUNK]
                order = random.permutation(len(images))
                for at in range(0, len(order), BATCH):
                    rows = order[at : at + BATCH]
                    count += len(images[rows]) + 0 * len(some[rows])
        return {"images": count}

    return epoch


def random_crops(directory: str, shrink: bool) -> Timed:
    """One epoch of random 224x224 parts of pictures.

    Args:
        shrink: resize each picture to a short side of 256 first; else all are stored as 256x256.
    """
    import tensorflow as tf

    import tfrecorder

    def crop(image: Any, label: Any) -> Any:
        if shrink:
            size = tf.cast(tf.shape(image)[:2], tf.float32)
            size = tf.cast(tf.round(size * 256 / tf.reduce_min(size)), tf.int32)
            image = tf.cast(tf.round(tf.image.resize(image, size)), tf.uint8)
        return tf.image.random_crop(image, (224, 224, 3)), label

    dataset = tfrecorder.load(directory, "TRAIN", batch_size=64, map_fn=crop)
    for _ in dataset.take(2):
        pass

    def epoch() -> Numbers:
        return {"images": sum(int(images.shape[0]) for images, _ in dataset)}

    return epoch


def _cases(data: Path, photos: Path, small: int, medium: int) -> list[Case]:
    csv = data / f"small-{small}" / "data.csv"
    if not csv.exists():
        bring_photos(photos)
        csv = make_small(find_photos(photos), csv.parent, small)
    # All in TRAIN, so that every case reads the same pictures.
    csv = all_in_train(csv)
    raw = written(csv, data / f"raw-{small}", image_size=(128, 128), image_format="raw")
    jpeg = written(csv, data / f"jpeg-{small}")
    pixels = "hdf5: shuffled chunks"
    cases = [
        Case("128x128 raw: load", "raw:load", {"directory": raw}),
        Case("128x128 JPEG: load", "raw:load", {"directory": jpeg}),
    ]
    if importlib.util.find_spec("h5py"):
        path = write_hdf5(raw, data / f"pixels-{small}.h5")
        cases.append(Case(pixels, "raw:hdf5", {"path": path}, requires=("h5py",)))
    large = all_in_train(listed(photographs(data, medium), medium))
    full = written(large, data / f"full-{medium}")
    short = written(
        large,
        data / f"short-256-{medium}",
        image_size=256,
        image_format="jpeg",
        image_quality=95,
    )
    return [
        *cases,
        Case("500x375: resize and crop", "raw:random_crops", {"directory": full, "shrink": True}),
        Case("image_size=256: crop", "raw:random_crops", {"directory": short, "shrink": False}),
    ]


def all_in_train(csv: Path) -> Path:
    import pandas as pd

    path = csv.with_name(f"train-{csv.stem}.csv")
    pd.read_csv(csv).assign(split="TRAIN").to_csv(path, index=False)
    return path


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="8,000 and 400 pictures, two rounds")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    data = chosen.data.resolve()
    small, medium = (8000, 400) if chosen.quick else (SMALL, 4000)
    cases = _cases(data, data / "photos", small, medium)
    results = harness.run_rounds(cases, 2 if chosen.quick else chosen.rounds, data)
    for result in results:
        for one in result.rounds:
            one["images/s"] = one["images"] / one["seconds"]
            one["images/CPU s"] = one["images"] / one["cpu"]
    by_name = {result.case.name: result for result in results}
    rate = {name: result.median("images/s") for name, result in by_name.items()}
    work = {name: result.median("images/CPU s") for name, result in by_name.items()}
    bars = [
        Bar("raw pixels of 128x128, images/s", rate["128x128 raw: load"], 30_000, True),
        Bar(
            "raw pixels / JPEG, images/s",
            rate["128x128 raw: load"] / rate["128x128 JPEG: load"],
            2.0,
            True,
        ),
        Bar(
            "written with `image_size=256` / resized while reading, images per CPU s",
            work["image_size=256: crop"] / work["500x375: resize and crop"],
            2.0,
            True,
        ),
    ]
    rows = [["", "images/s", "images per CPU s", "peak MB"]]
    for result in results:
        numbers = [result.median(key) for key in ("images/s", "images/CPU s", "peak_mb")]
        rows.append([result.case.name, *(f"{number:,.0f}" for number in numbers)])
    return harness.report("raw", results, {"readers": rows}, bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
