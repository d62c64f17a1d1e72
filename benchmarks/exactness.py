"""Exactness: every image byte and every label comes back, whoever reads the dataset.

    exactness.py [--data DIR] [--quick]

5,000 photographs are converted once and read back by `tfrecorder.load`, by plain tf.data and by
TFDS, each in its own process, and each record is compared with its source row.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import data
import harness
import writing
from harness import Bar, Case, Numbers, Timed

IMAGES = 5000
QUICK_IMAGES = 500

SPLITS = ("TRAIN", "VALIDATION", "TEST")
READERS = ("by_load", "by_tf_data", "by_tfds")

Record = Mapping[str, Any]
Reader = Callable[[str, str], Iterable[Record]]


def compare(source: str, directory: str, reader: str) -> Timed:
    """Read all splits with one reader; count what is exactly right."""
    read: Reader = globals()[reader]()

    def run() -> Numbers:
        rows = writing.read_rows(source)
        names = sorted({label for _, _, label in rows})
        seen: set[int] = set()
        counts = dict.fromkeys(("records", "same_bytes", "same_label", "same_split"), 0)
        for split in SPLITS:
            for record in read(directory, split):
                number = int(record["image/source_id"])
                wanted_split, uri, label = rows[number]
                with open(uri, "rb") as file:
                    wanted = file.read()
                seen.add(number)
                counts["records"] += 1
                counts["same_bytes"] += record["image/encoded"] == wanted
                counts["same_label"] += (
                    names[int(record["image/class/label"])] == label
                    and record["image/class/text"].decode() == label
                    and record["image/filename"].decode() == uri
                )
                counts["same_split"] += wanted_split.upper() == split
        return {"images": len(rows), "distinct": len(seen), **counts}

    return run


def by_load() -> Reader:
    """The package's own reader."""
    import tfrecorder

    def read(directory: str, split: str) -> Iterable[Record]:
        dataset = tfrecorder.load(directory, split, decode=False, inputs="all", shuffle=False)
        return dataset.as_numpy_iterator()

    return read


def by_tf_data() -> Reader:
    """No line of ours: file names, and the usual keys."""
    import tensorflow as tf

    kinds = {
        "image/encoded": tf.string,
        "image/source_id": tf.string,
        "image/filename": tf.string,
        "image/class/text": tf.string,
        "image/class/label": tf.int64,
    }
    spec = {key: tf.io.FixedLenFeature([], kind) for key, kind in kinds.items()}

    def read(directory: str, split: str) -> Iterable[Record]:
        files = sorted(glob.glob(os.path.join(directory, f"{split.lower()}-*.tfrecord")))
        dataset = tf.data.TFRecordDataset(files)
        return dataset.map(lambda one: tf.io.parse_single_example(one, spec)).as_numpy_iterator()

    return read


def by_tfds() -> Reader:
    """No line of ours either: what the directory says of itself."""
    import tensorflow_datasets as tfds

    def read(directory: str, split: str) -> Iterable[Record]:
        builder = tfds.builder_from_directory(directory)
        skip = {"image/encoded": tfds.decode.SkipDecoding()}
        # TFDS caches small splits in memory and reads them in parallel: neither changes a byte.
        return tfds.as_numpy(builder.as_dataset(split=split.lower(), decoders=skip))

    return read


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="500 images")
    chosen = parser.parse_args(arguments)
    images = QUICK_IMAGES if chosen.quick else IMAGES
    source = str(data.listed(data.photographs(chosen.data, images), images))
    scratch = tempfile.mkdtemp(prefix="exact-", dir=chosen.data)
    try:
        directory = os.path.join(scratch, "out")
        arguments_of_convert = {"source": source, "out": directory, "check": "decode"}
        cases = [Case("convert", "writing:convert", arguments_of_convert)] + [
            Case(
                reader.replace("_", " "),
                "exactness:compare",
                {"source": source, "directory": directory, "reader": reader},
                requires=("tensorflow_datasets",) if reader == "by_tfds" else (),
            )
            for reader in READERS
        ]
        results = harness.run_rounds(cases, 1, chosen.data)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    keys = ["images", "records", "distinct", "same_bytes", "same_label", "same_split", "seconds"]
    print(harness.table(results, keys) + "\n")
    bars = [
        Bar(f"{result.case.name}: images read exactly as they were", same, images, at_least=True)
        for result in results[1:]
        if result.skipped is None
        for same in [min(result.median(key) for key in keys[:-1])]
    ]
    return harness.report("exactness", results, bars=bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
