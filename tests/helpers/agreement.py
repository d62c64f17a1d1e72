"""One answer from every reader: TFDS, plain tf.data, a walk over the indexes, and our own.

What is public is the whole truth, so readers that know nothing of us must find the same records.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

import tfrecorder

LABEL, NAME, IMAGE = "image/class/label", "image/class/text", "image/encoded"

#: A record: the name of its image, its label, the label's text, and a digest of all its values.
Told = tuple[str, int, str, str]

#: The records of each split, in the order of the files.
Contents = dict[str, list[Told]]


def told(values: Mapping[str, Any]) -> Told:
    """A record, whoever read it."""
    plain = {key: _plain(value) for key, value in values.items()}
    digest = hashlib.sha256(repr(sorted(plain.items())).encode()).hexdigest()
    name, label, text = (plain[key] for key in ("image/filename", LABEL, NAME))
    return name[0].decode(), label[0], text[0].decode(), digest[:16]


def _plain(value: Any) -> list[Any]:
    array = np.ravel(value.numpy() if hasattr(value, "numpy") else value)
    return [one.encode() if isinstance(one, str) else one for one in array.tolist()]


def of_tfds(directory: str | Path) -> Contents:
    """Records as `tfds.builder_from_directory` finds them, one shard after another."""
    builder = tfds.builder_from_directory(str(directory))
    names = builder.info.features[LABEL].names
    found = {}
    for split, of in builder.info.splits.items():
        found[split] = _of_split(builder, split) if of.num_examples else []
        assert of.num_examples == len(found[split]), f"{split}: TFDS says {of.num_examples}"
        for _, label, text, _ in found[split]:
            assert names[label] == text, f"{label} is {names[label]!r} to TFDS, and {text!r}"
    first, end = (round(len(found.get("train", ())) * share / 100) for share in (50, 60))
    if first < end:  # TFDS refuses an empty slice
        assert _of_split(builder, "train[50%:60%]") == found["train"][first:end]
    return found


def _of_split(builder: Any, split: str) -> list[Told]:
    in_order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    undecoded = {IMAGE: tfds.decode.SkipDecoding()}
    return [*map(told, builder.as_dataset(split, decoders=undecoded, read_config=in_order))]


def of_glob(out: Path, split: str) -> Iterable[Told]:
    """Plain tf.data over the names alone."""
    files = tf.data.Dataset.list_files(f"{out}/{split}-*.tfrecord", shuffle=False)
    return map(_parsed, tf.data.TFRecordDataset(files).as_numpy_iterator())


def of_indexes(out: Path, split: str) -> Iterable[Told]:
    """As DALI reads: each shard at the places that its index states, and all of it."""
    for index in sorted(out.glob(f"_tfrecorder/index/{split}-*.idx")):
        data, end = (out / index.stem).read_bytes(), 0
        for line in index.read_text().splitlines():
            start, size = map(int, line.split())
            assert start == end, f"{index.name}: {line}"
            end = start + size
            yield _parsed(data[start + 12 : end - 4])
        assert end == len(data), f"{index.name} ends before its shard"


def of_records(out: Path | str, split: str) -> Iterable[Told]:
    return map(told, tfrecorder.Records(out, split.upper(), inputs="all", decode=False))


def _parsed(data: bytes) -> Told:
    features = tf.train.Example.FromString(data).features.feature
    kinds = {key: getattr(one, one.WhichOneof("kind")).value for key, one in features.items()}
    return told({key: np.array(value, object) for key, value in kinds.items()})


def agree(directory: Path | str, also: Path | str | None = None) -> Contents:
    """What all readers say of a dataset, which must be the same.

    Args:
        directory: on a disk, with nothing pending.
        also: the same dataset elsewhere, for those of our readers that need no TensorFlow.

    Raises:
        AssertionError: one says something else.
    """
    out, ours = Path(directory), also or directory
    found = of_tfds(out)
    info = tfrecorder.info(ours)
    splits = {split.upper(): len(records) for split, records in found.items()}
    # TFDS is not told of a split without a record.
    assert {n: split.records for n, split in info.splits.items() if split.records} == splits
    for split, records in found.items():
        for reader, where in ((of_glob, out), (of_indexes, out), (of_records, ours)):
            assert Counter(reader(where, split)) == Counter(records), f"{reader.__name__}: {split}"
        assert [*of_records(ours, split)] == records, f"{split}: another order"
        loaded = tfrecorder.load(out, split.upper(), shuffle=False, decode=False)
        labels = [label for _, label, _, _ in records]
        assert [int(label) for _, label in loaded] == labels, f"load: {split}"
        frame = tfrecorder.to_frame(ours, split.upper())
        pairs = [(name, text) for name, _, text, _ in records]
        assert [*zip(frame["image_uri"], frame["label"], strict=True)] == pairs, f"{split}: frame"
        counts = {name: count for name, count in info.class_counts[split.upper()].items() if count}
        assert counts == Counter(text for _, _, text, _ in records), f"info: {split}"
    return found
