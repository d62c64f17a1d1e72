"""How fast `tfrecorder.load` reads, next to what else there is to read the same images.

    reading.py [--data DIR] [--quick] [--small-images N] [--rounds N]

All give shuffled uint8 batches of 64 at 224x224 (the small pictures: 128x128), from a warm page
cache.  Two kinds of resizing are compared, each with its like: antialiased, `load`'s default, and
plain bilinear sampling, which is what most pipelines written by hand do.  Some are read for three
whole epochs too, each by an iterator of its own, as a training reads them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import data as shared
import harness
import photos
import reading_data
from harness import Bar, Case, Result

BATCH, EPOCHS = 64, 3
STEPS = ("step of 50 ms, 50 an epoch", "step of 50 ms, 100 an epoch")
LARGE = {"12 MP, 3.6 MB": 3_600_000, "12 MP, 1.4 MB": 1_400_000}


# ---------------------------------------------------------------------------------------------
# The readers.  Each gives a tf.data pipeline, or an iterable of batches, of one epoch.


def ours(directory: str, size: int, antialias: bool = True) -> Any:
    import tfrecorder

    return tfrecorder.load(
        directory, "TRAIN", batch_size=BATCH, image_size=size, antialias=antialias
    )


def by_hand(directory: str, size: int, antialias: bool = False) -> Any:
    """What an expert writes: everything parallel, nothing in order."""
    import tensorflow as tf

    files = tf.data.Dataset.list_files(f"{directory}/train-*.tfrecord")
    records = files.interleave(
        tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    decode = _decoder(size, antialias)
    decoded = records.shuffle(2000).map(decode, tf.data.AUTOTUNE, deterministic=False)
    return decoded.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def naive(directory: str, size: int) -> Any:
    """The pipeline of most tutorials: nothing parallel."""
    import glob

    import tensorflow as tf

    records = tf.data.TFRecordDataset(sorted(glob.glob(f"{directory}/train-*.tfrecord")))
    return records.map(_decoder(size, False)).shuffle(2000).batch(BATCH)


def _decoder(size: int, antialias: bool) -> Callable[[Any], Any]:
    import tensorflow as tf

    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def decode(record: Any) -> Any:
        features = tf.io.parse_single_example(record, spec)
        image = tf.io.decode_jpeg(
            features["image/encoded"], channels=3, dct_method="INTEGER_ACCURATE"
        )
        return resize(image, size, antialias), features["image/class/label"]

    return decode


def resize(image: Any, size: int, antialias: bool) -> Any:
    import tensorflow as tf

    resized = tf.image.resize(image, (size, size), antialias=antialias)
    return tf.cast(tf.round(resized), tf.uint8)


def tfds(directory: str, size: int, antialias: bool = False) -> Any:
    import tensorflow as tf
    import tensorflow_datasets

    builder = tensorflow_datasets.builder_from_directory(directory)
    pairs = builder.as_dataset("train", shuffle_files=True, as_supervised=True)
    resized = pairs.shuffle(2000).map(
        lambda image, label: (resize(image, size, antialias), label),
        tf.data.AUTOTUNE,
        deterministic=False,
    )
    return resized.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def from_directory(folder: str, size: int) -> Any:
    import keras
    import tensorflow as tf

    batches = keras.utils.image_dataset_from_directory(
        folder, batch_size=BATCH, image_size=(size, size), verbose=False
    )
    return batches.map(lambda images, labels: (tf.cast(images, tf.uint8), labels))


def generator(folder: str, size: int) -> Any:
    """The common DataFrame generator: single files, Pillow, one after the other."""
    import random

    import numpy as np
    from PIL import Image

    paths = [str(path) for path in Path(folder).rglob("*.jpg")]

    def picture(path: str) -> np.ndarray:
        image = Image.open(path).convert("RGB")
        return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))

    class Batches:
        def __iter__(self) -> Any:
            random.shuffle(paths)
            for at in range(0, len(paths), BATCH):
                yield np.stack([picture(path) for path in paths[at : at + BATCH]]), None

    return Batches()


READERS = {one.__name__: one for one in (ours, by_hand, naive, tfds, from_directory, generator)}


# ---------------------------------------------------------------------------------------------
# What is timed, in its own process.


def read(reader: str, images: int, warm_up: int, **arguments: Any) -> harness.Timed:
    """Read so many images, after so many others."""
    import psutil

    batches = READERS[reader](**arguments)
    take(batches, warm_up)

    def timed() -> harness.Numbers:
        count = take(batches, images)
        return {"images": count, "memory_mb": psutil.Process().memory_info().rss / 1e6}

    return timed


def take(batches: Any, images: int) -> int:
    count = 0
    while count < images:
        for batch in batches:
            count += len(batch[0])
            if count >= images:
                break
    return count


def epochs(reader: str, **arguments: Any) -> harness.Timed:
    """Read whole epochs, each by an iterator of its own, as Keras' `fit` does.

    And the memory of the process after each.
    """
    import psutil

    batches = READERS[reader](**arguments)
    take(batches, BATCH)

    def timed() -> harness.Numbers:
        after = []
        images = 0
        for _ in range(EPOCHS):
            images += sum(len(batch[0]) for batch in batches)
            after.append(round(psutil.Process().memory_info().rss / 1e6))
        return {"images": images, "after_epochs_mb": after}

    return timed


def waiting(directory: str, size: int, step_ms: float, seconds: float) -> harness.Timed:
    """The share of the time that an accelerator would wait."""
    from tfrecorder.loading.throughput import benchmark

    def timed() -> harness.Numbers:
        found = benchmark(
            directory, batch_size=BATCH, image_size=size, step_ms=step_ms, seconds=seconds
        )
        return {"images": found.images, "waiting": found.waiting}

    return timed


# ---------------------------------------------------------------------------------------------
# The data and the cases.


def _converted(name: str, source: Path, data: Path, shards: int = 8) -> str:
    import tfrecorder

    out = data / f"reading-{name}"
    if not (out / "dataset_info.json").exists():
        shutil.rmtree(out, ignore_errors=True)
        tfrecorder.convert(source, out, num_shards=shards, progress=False)
    harness.warm([str(path) for path in out.glob("*.tfrecord")])
    return str(out)


def _made(name: str, data: Path, count: int, make: Callable[[list[Path], Path], Path]) -> Path:
    folder = data / f"source-{name}"
    done = folder / "done.json"
    if not done.exists() or json.loads(done.read_text()) != count:
        shutil.rmtree(folder, ignore_errors=True)
        photos.bring_photos(data / "photos")
        make(reading_data.find_photos(data / "photos"), folder)
        done.write_text(json.dumps(count))
        shutil.rmtree(data / f"reading-{name}", ignore_errors=True)
    return folder / "data.csv"


def _medium_cases(data: Path, count: int) -> list[Case]:
    listed = shared.listed(shared.photographs(data, count), count)
    out = _converted(f"medium-{count}", listed, data)
    files = _same_files(listed, data / f"reading-medium-{count}-files")
    base = {"size": 224, "images": count, "warm_up": count // 2}
    records, single = {**base, "directory": out}, {**base, "folder": files}
    cases = [
        ("load", "ours", records),
        ("by hand, antialiased", "by_hand", {**records, "antialias": True}),
        ("TFDS, antialiased", "tfds", {**records, "antialias": True}),
        ("load(antialias=False)", "ours", {**records, "antialias": False}),
        ("by hand, plain", "by_hand", records),
        ("TFDS, plain", "tfds", records),
        ("naive, plain", "naive", records),
        ("image_dataset_from_directory", "from_directory", single),
        ("Pillow generator", "generator", single),
    ]
    plain = {"directory": out, "size": 224, "antialias": False}
    by_epochs = [
        ("load", "ours", {"directory": out, "size": 224}),
        ("load(antialias=False)", "ours", plain),
        ("by hand, plain", "by_hand", plain),
        ("image_dataset_from_directory", "from_directory", {"folder": files, "size": 224}),
    ]
    return [
        *(_case(f"500x375: {name}", reader, more) for name, reader, more in cases),
        *(
            Case(f"{EPOCHS} epochs: {name}", "reading:epochs", {"reader": reader, **more})
            for name, reader, more in by_epochs
        ),
    ]


def _step_cases(data: Path, counts: Sequence[int], seconds: float) -> list[Case]:
    """Steps of 50 ms, over epochs of four fifths of each number of photographs."""
    cases = []
    for name, count in zip(STEPS, counts, strict=True):
        listed = shared.listed(shared.photographs(data, count), count)
        out = _converted(f"medium-{count}", listed, data)
        simulated = {"directory": out, "size": 224, "step_ms": 50, "seconds": seconds}
        cases.append(Case(name, "reading:waiting", simulated))
    return cases


def _same_files(listed: Path, folder: Path) -> str:
    """A folder with the training images of a CSV, and no others, as hard links."""
    for line in listed.read_text().splitlines()[1:]:
        split, path, _ = line.split(",")
        link = folder / Path(path).relative_to(listed.parent)
        if split == "TRAIN" and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, link)
    harness.warm([str(path) for path in (folder / "train").rglob("*.jpg")])
    return str(folder / "train")


def _large_cases(data: Path, name: str, target: int, count: int) -> list[Case]:
    short = f"large-{target}"
    source = _made(
        short, data, count, lambda found, out: reading_data.make_large(found, out, count, target)
    )
    out = _converted(short, source, data, shards=4)
    records = {"directory": out, "size": 224, "images": count * 4, "warm_up": count}
    return [
        _case(f"{name}: load", "ours", records),
        _case(f"{name}: by hand, plain", "by_hand", records),
        _case(f"{name}: by hand, antialiased", "by_hand", {**records, "antialias": True}),
    ]


def _small_cases(data: Path, count: int) -> list[Case]:
    source = _made(
        "small", data, count, lambda found, out: reading_data.make_small(found, out, count)
    )
    out = _converted("small", source, data)
    records = {"directory": out, "size": 128, "images": count, "warm_up": count}
    return [
        _case("128x128: load", "ours", records),
        _case("128x128: by hand", "by_hand", records),
        _case("128x128: naive", "naive", records),
    ]


def _case(name: str, reader: str, arguments: dict[str, Any]) -> Case:
    requires = ("tensorflow_datasets",) if reader == "tfds" else ()
    return Case(name, "reading:read", {"reader": reader, **arguments}, requires=requires)


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--small-images", type=int, help="128x128 pictures; all are 81282")
    parser.add_argument("--rounds", type=int)
    chosen = parser.parse_args(arguments)
    quick = chosen.quick
    rounds = chosen.rounds or (3 if quick else 5)
    data = chosen.data.resolve()
    cases = _medium_cases(data, 1000 if quick else 4000)
    for name, target in LARGE.items():
        cases += _large_cases(data, name, target, 20 if quick else 40)
    cases += _small_cases(data, chosen.small_images or (8000 if quick else 81_282))
    cases += _step_cases(data, (1000, 2000) if quick else (4000, 8000), 5 if quick else 20)
    results = harness.run_rounds(cases, rounds, data)
    for result in results:
        for one in result.rounds:
            one["images/s"] = one["images"] / one["seconds"]
            one["CPU s/1000"] = one["cpu"] / one["images"] * 1000
    return harness.report("reading", results, {"readers": _rows(results)}, _bars(results))


def _rows(results: Sequence[Result]) -> list[list[str]]:
    rows = [["", "images/s", "CPU s per 1,000", "peak MB", "waiting"]]
    for result in results:
        rate, cpu, peak, waiting = (
            result.median(key) for key in ("images/s", "CPU s/1000", "peak_mb", "waiting")
        )
        shown = [f"{rate:,.0f}", f"{cpu:.3f}", f"{peak:,.0f}", f"{waiting:.1%}"]
        rows.append([result.case.name, *("" if cell == "nan%" else cell for cell in shown)])
    return rows


def _bars(results: Sequence[Result]) -> list[Bar]:
    rate = {result.case.name: result.median("images/s") for result in results}
    cpu = {result.case.name: result.median("CPU s/1000") for result in results}
    at = "500x375: {}".format
    checks = []
    for kind, own in (("antialiased", at("load")), ("plain", at("load(antialias=False)"))):
        others = [at(f"by hand, {kind}"), at(f"TFDS, {kind}")]
        others = [name for name in others if rate[name] == rate[name]]
        best_cpu, best_rate = min(cpu[name] for name in others), max(rate[name] for name in others)
        checks += [
            (
                f"`load` / the better of by hand and TFDS, {kind}, CPU",
                cpu[own] / best_cpu,
                1.02,
                False,
            ),
            (
                f"`load` / the better of by hand and TFDS, {kind}, images/s",
                rate[own] / best_rate,
                0.95,
                True,
            ),
        ]
    own = at("load")
    checks.append(
        (
            "`load` / plain by hand, CPU",
            cpu[own] / cpu[at("by hand, plain")],
            1.02,
            False,
        )
    )
    checks.append(
        ("`load` / Pillow generator, images/s", rate[own] / rate[at("Pillow generator")], 1.0, True)
    )
    single, plain = "image_dataset_from_directory", "load(antialias=False)"
    for of in (at, f"{EPOCHS} epochs: {{}}".format):
        checks += [
            (
                f"{of(plain)} / {single}, images/s",
                rate[of(plain)] / rate[of(single)],
                1,
                True,
            ),
            (f"{of(plain)} / {single}, CPU", cpu[of(plain)] / cpu[of(single)], 1, False),
        ]
    for name, bar in zip(LARGE, (1.25, 1.6), strict=True):
        gain = cpu[f"{name}: by hand, plain"] / cpu[f"{name}: load"]
        checks.append((f"{name}: `load` / by hand, images per CPU s", gain, bar, True))
    checks.append(("128x128: images/s", rate["128x128: load"], 12_000, True))
    by_name = {result.case.name: result for result in results}
    checks += [
        (f"share of time waiting, {name}", by_name[name].median("waiting"), 0.05, False)
        for name in STEPS
    ]
    after = [one["after_epochs_mb"] for one in by_name[f"{EPOCHS} epochs: load"].rounds]
    growth = max(one[-1] / one[0] for one in after)
    checks.append(("memory after the third epoch, of that after the first", growth, 1.1, False))
    return [Bar(*check) for check in checks]


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
