"""Small datasets to change, and what their shards say when nobody asks the package.

`read_shards` has its own parser of frames and Examples: it shares no line with what it judges.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

import tfrecorder

QUIET: dict[str, Any] = {"progress": False}


class Stored(NamedTuple):
    """A record as it stands in a shard."""

    split: str
    row: int
    uri: str
    label: str
    image: bytes


def rows(first: int, count: int, split: str = "TRAIN", labels: str = "xy") -> pd.DataFrame:
    """Rows with new pictures of noise, in `img/` below the current folder, all of one size."""
    Path("img").mkdir(exist_ok=True)
    cells = []
    for number in range(first, first + count):
        pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"img/{number}.png")
        cells.append((split, f"img/{number}.png", labels[number % len(labels)]))
    return pd.DataFrame(cells, columns=["split", "image_uri", "label"])


def read_shards(directory: str) -> Iterator[Stored]:
    """All records that `dataset_info.json` lists, in their order."""
    info = json.loads(Path(directory, "dataset_info.json").read_text())
    for split in info["splits"]:
        for number, length in enumerate(split["shardLengths"]):
            name = split["filepathTemplate"].format(
                SPLIT=split["name"], SHARD_INDEX=f"{number:05d}", FILEFORMAT="tfrecord"
            )
            records = [*_frames(Path(directory, name).read_bytes())]
            assert len(records) == int(length), name
            for data in records:
                values = dict(_features(data))
                yield Stored(
                    split["name"].upper(),
                    int(values["image/source_id"]),
                    values["image/filename"].decode(),
                    values["image/class/text"].decode(),
                    values["image/encoded"],
                )


def _frames(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield data[at + 12 : at + 12 + size]
        at += 12 + size + 4


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer: numbers of varints, bytes of all others."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise AssertionError(f"wire type {key & 7}")


def _features(example: bytes) -> Iterator[tuple[str, bytes]]:
    """The features with bytes, by name, each with its first value."""
    (features,) = (value for _, value in _fields(example))
    for _, entry in _fields(features):
        parts = dict(_fields(entry))
        for kind, values in _fields(parts[2]):
            if kind == 1:
                yield parts[1].decode(), next((value for _, value in _fields(values)), b"")


def check(directory: str, wanted: dict[str, tuple[str, str]]) -> None:
    """What shards, tables, readers and `verify` say of a dataset is the same.

    Args:
        wanted: by uri, the split and the label.

    Raises:
        AssertionError: two of them differ.
    """
    stored = [*read_shards(directory)]
    assert {one.uri: (one.split, one.label) for one in stored} == wanted
    assert len(stored) == len(wanted)
    assert len({one.row for one in stored}) == len(stored), "two records of one row"
    for one in stored:
        assert Path(one.uri).read_bytes() == one.image or one.image[:4] != b"\x89PNG"
    for split in {one.split for one in stored}:
        of_split = [one for one in stored if one.split == split]
        records = tfrecorder.Records(directory, split)
        names = tfrecorder.info(directory).class_names or ()
        labels = [names[number] for number in records.labels()]
        assert labels == [one.label for one in of_split], "labels()"
        for label in {one.label for one in of_split}:
            chosen = tfrecorder.Records(directory, split, where={"label": label}, inputs="all")
            uris = [record["image/filename"].decode() for record in chosen]
            assert uris == [one.uri for one in of_split if one.label == label], "where="
            assert [*chosen.table()["image_uri"]] == uris, "table()"
    frame = tfrecorder.to_frame(directory)
    assert {
        uri: (str(split), label)
        for uri, split, label in zip(
            frame["image_uri"], frame["split"], frame["label"], strict=True
        )
    } == wanted
    assert dict(zip(frame["image_uri"], frame.index, strict=True)) == {
        one.uri: one.row for one in stored
    }
    report = tfrecorder.verify(directory, progress=False)
    assert report.ok, str(report)


def as_wanted(table: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """What `check` wants of a dataset that is as a table says."""
    pairs = zip(table["split"], table["label"], strict=True)
    return dict(zip(table["image_uri"], pairs, strict=True))
