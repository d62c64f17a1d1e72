"""Reading small images as raw pixels, and large ones from a copy that was written smaller.

    raw.py [--data DIR] [--quick] [--rounds N] [--named]

Of 6,000 images with names of seven lengths and classes of five, `--named` measures no more than
batches of 64 in exact order, beside a plain loop that reads as much.

The HDF5 cases need h5py, and are skipped without it.
"""

from __future__ import annotations

import csv
import importlib.util
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
from data import listed, photographs
from harness import Bar, Case, Numbers, Result, Timed
from photos import bring_photos
from reading_data import find_photos, make_small

SMALL = 81_282
BATCH = 256
CHUNK = 1024

#: Pictures whose names have seven lengths and whose classes have five, how many are a batch,
#: and how many epochs are read.
NAMED, NAMED_BATCH, EPOCHS = 6000, 64, 5
CLASSES = ("cat", "frog", "horse", "monkey", "giraffe")

#: The names of two cases.
LOOP, CHECKED = "named: plain loop", "named: HDF5, fletcher32"

#: The side of the pictures, and the bytes of one.
SIDE = 128
PIXELS = SIDE * SIDE * 3


def written(csv: Path, out: Path, **options: Any) -> str:
    """A dataset of a CSV, written unless it is there, and in the page cache."""
    import tfrecorder

    if not (out / "dataset_info.json").exists():
        tfrecorder.convert(csv, out, progress=False, overwrite=True, **options)
    harness.warm([str(path) for path in out.glob("*.tfrecord")])
    return str(out)


def write_hdf5(directory: str, path: Path, checksums: bool = False) -> str:
    """The pixels and labels of a raw dataset as an HDF5 file, in chunks of 64 images."""
    import h5py
    import numpy as np

    import tfrecorder

    if path.exists():
        harness.warm([str(path)])
        return str(path)
    dataset = tfrecorder.load(directory, "TRAIN", batch_size=CHUNK, shuffle=False)
    partial = path.with_suffix(".part")
    with h5py.File(partial, "w") as file:
        shape = (0, SIDE, SIDE, 3)
        grows, chunk = (None, *shape[1:]), (64, *shape[1:])
        pixels = file.create_dataset(
            "x", shape, "u1", maxshape=grows, chunks=chunk, fletcher32=checksums
        )
        labels = []
        for images, some in dataset.as_numpy_iterator():
            pixels.resize(len(pixels) + len(images), 0)
            pixels[-len(images) :] = images
            labels.append(some)
        file["y"] = np.concatenate(labels)
    partial.rename(path)
    return str(path)


def load(directory: str, batch: int = BATCH) -> Timed:
    """One epoch of `tfrecorder.load`, shuffled, in batches."""
    import tfrecorder

    dataset = tfrecorder.load(directory, "TRAIN", batch_size=batch)
    for _ in dataset.take(2):
        pass

    def epoch() -> Numbers:
        return {"images": sum(int(images.shape[0]) for images, _ in dataset)}

    return epoch


def batches(directory: str, **options: Any) -> Timed:
    """One epoch of `tfrecorder.batches`, in exact order, after another."""
    import tfrecorder

    loop = tfrecorder.batches(directory, "TRAIN", batch_size=NAMED_BATCH, seed=1, **options)

    def epoch() -> Numbers:
        return {"images": sum(len(images) for images, _ in loop)}

    epoch()
    return epoch


def repeated(reader: str, **arguments: Any) -> Timed:
    """Several epochs of another reader of this file, as one takes a twentieth of a second."""
    epoch: Timed = globals()[reader](**arguments)

    def run() -> Numbers:
        return {"images": sum(epoch()["images"] for _ in range(EPOCHS))}

    return run


def plain_loop(directory: str) -> Timed:
    """One epoch in exact order by a loop that reads, sums and copies: no label, and no check."""
    import google_crc32c
    import numpy as np

    places = []
    for shard in sorted(Path(directory).glob("train-*.tfrecord")):
        number = os.open(shard, os.O_RDONLY)
        index = Path(directory, "_tfrecorder/index", f"{shard.name}.idx").read_text().split()
        for begin, length in zip(index[::2], index[1::2], strict=True):
            places.append((number, int(begin), int(length)))
    first, offset, size = places[0]
    begins = os.pread(first, size, offset).index(b"image/encoded") + len(b"image/encoded") + 12

    def epoch() -> Numbers:
        order = iter(np.random.default_rng(0).permutation(len(places)).tolist())
        count = 0
        while some := list(itertools.islice(order, NAMED_BATCH)):
            batch = np.empty((len(some), PIXELS), np.uint8)
            for slot, place in zip(batch, some, strict=True):
                number, offset, size = places[place]
                data = os.pread(number, size, offset)
                google_crc32c.value(np.frombuffer(data, np.uint8, size - 16, 12))
                slot[...] = np.frombuffer(data, np.uint8, PIXELS, begins)
            count += len(batch)
        return {"images": count}

    epoch()
    return epoch


def hdf5(path: str, chunk: int = CHUNK, batch: int = BATCH) -> Timed:
    """One epoch of an HDF5 file: runs of images in random order, shuffled within."""
    import h5py
    import numpy as np

    def epoch() -> Numbers:
        random, count = np.random.default_rng(0), 0
        with h5py.File(path) as file:
            pixels, labels = file["x"], file["y"][:]
            starts = np.arange(0, len(pixels), chunk)
            for start in random.permutation(starts):
                images, some = pixels[start : start + chunk], labels[start : start + chunk]
                order = random.permutation(len(images))
                for at in range(0, len(order), batch):
                    rows = order[at : at + batch]
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


def _named_cases(data: Path) -> list[Case]:
    """Batches of 64 of pictures with names of seven lengths, and what reads as much."""
    source = _named(data / f"named-{NAMED}", data / "photos")
    pixels = {"image_size": (SIDE, SIDE), "image_format": "raw"}
    raw = {"directory": written(source, data / f"raw-named-{NAMED}", **pixels)}
    cases = [
        _repeated(LOOP, "plain_loop", raw),
        _repeated("named: batches", "batches", raw),
        _repeated("named: batches, 1 thread", "batches", {**raw, "num_threads": 1}),
        _repeated("named: batches, 2 threads", "batches", {**raw, "num_threads": 2}),
        _repeated("named: load", "load", {**raw, "batch": NAMED_BATCH}),
    ]
    if not importlib.util.find_spec("h5py"):
        return cases
    for name, checksums in ((CHECKED, True), ("named: HDF5", False)):
        path = data / f"pixels-named-{NAMED}-{checksums}.h5"
        written_to = write_hdf5(raw["directory"], path, checksums)
        of_chunks = {"path": written_to, "chunk": NAMED_BATCH, "batch": NAMED_BATCH}
        cases.append(_repeated(name, "hdf5", of_chunks))
    return cases


def _repeated(name: str, reader: str, arguments: dict[str, Any]) -> Case:
    return Case(name, "raw:repeated", {"reader": reader, **arguments})


def _named(folder: Path, photos: Path) -> Path:
    """The CSV of small pictures whose names have seven lengths, and whose classes have five."""
    path = folder / "named.csv"
    if path.exists():
        return path
    bring_photos(photos)
    made = make_small(find_photos(photos), folder, NAMED)
    rows = []
    with made.open() as file:
        for number, row in enumerate(csv.DictReader(file)):
            picture = Path(row["image_uri"])
            longer = picture.with_name(f"{picture.stem}{'_' * (number % 7)}.jpg")
            picture.rename(longer)
            rows.append(("TRAIN", str(longer), CLASSES[number % len(CLASSES)]))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("split", "image_uri", "label"), *rows])
    return path


def _named_bars(results: Sequence[Result]) -> list[Bar]:
    cpu = {result.case.name: 1 / result.median("images/CPU s") for result in results}
    rate = {result.case.name: result.median("images/s") for result in results}
    batches = "named: batches"
    bars = [
        Bar(
            "raw, batches of 64: CPU of batches / of a plain loop",
            cpu[batches] / cpu[LOOP],
            1.5,
            False,
        ),
        Bar(
            "raw, batches of 64: images/s of batches / of a plain loop",
            rate[batches] / rate[LOOP],
            1.0,
            True,
        ),
    ]
    if CHECKED in cpu:
        words = "raw, batches of 64: CPU of load / of HDF5 with fletcher32"
        bars.append(Bar(words, cpu["named: load"] / cpu[CHECKED], 1.5, False))
    return bars


def _cases(data: Path, photos: Path, small: int, medium: int) -> list[Case]:
    csv = data / f"small-{small}" / "data.csv"
    if not csv.exists():
        bring_photos(photos)
        csv = make_small(find_photos(photos), csv.parent, small)
    # All in TRAIN, so that every case reads the same pictures.
    csv = all_in_train(csv)
    raw = written(csv, data / f"raw-{small}", image_size=(SIDE, SIDE), image_format="raw")
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
    parser.add_argument("--named", action="store_true", help="only batches of 64, of 6,000")
    chosen = parser.parse_args(arguments)
    data = chosen.data.resolve()
    small, medium = (8000, 400) if chosen.quick else (SMALL, 4000)
    cases = _named_cases(data)
    if not chosen.named:
        cases += _cases(data, data / "photos", small, medium)
    results = harness.run_rounds(cases, 2 if chosen.quick else chosen.rounds, data)
    for result in results:
        for one in result.rounds:
            one["images/s"] = one["images"] / one["seconds"]
            one["images/CPU s"] = one["images"] / one["cpu"]
    rows = [["", "images/s", "images per CPU s", "us of CPU an image", "peak MB"]]
    for result in results:
        work = result.median("images/CPU s")
        numbers = result.median("images/s"), work, 1e6 / work, result.median("peak_mb")
        rows.append([result.case.name, *(f"{number:,.1f}" for number in numbers)])
    bars = _named_bars(results) + ([] if chosen.named else _bars(results))
    return harness.report("raw", results, {"readers": rows}, bars)


def _bars(results: Sequence[Result]) -> list[Bar]:
    by_name = {result.case.name: result for result in results}
    rate = {name: result.median("images/s") for name, result in by_name.items()}
    work = {name: result.median("images/CPU s") for name, result in by_name.items()}
    return [
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


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
