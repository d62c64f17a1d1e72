"""What must hold of every record that convert writes.

`verify` proves that a shard holds the bytes that were written; these laws are about the writer.
TensorFlow and Pillow look at the images, and nothing is taken from the code that wrote them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image as Pictures
from support import examples, rejects

import tfrecorder
from helpers.damage import plan_of, rows_of

#: Keys of the default schema with a value that the source gives.
DEFAULT = ("image/filename", "image/class/label", "image/class/text")

SIDES = ("height", "width", "channels")


def check_records(out: str | Path) -> None:
    """Check every record of a dataset: sizes, classes, boxes, masks, and each row in its place."""
    plan = plan_of(out)
    rejected = set(rejects(out)["row"])
    for group, shard in enumerate(plan.layout.shards):
        rows = [row for row in rows_of(out, group) if row.row not in rejected]
        found = examples(Path(out, shard.file))
        assert [int(record["image/source_id"][0]) for record in found] == [one.row for one in rows]
        for record, row in zip(found, rows, strict=True):
            _check_record(record, plan)
            if row.values is None:
                planned = [row.image_uri.encode(), row.label, row.text.encode()]
                assert [record[key][0] for key in DEFAULT] == planned
    assert plan.rows.count == sum(
        split.records for split in tfrecorder.info(out).splits.values()
    ) + len(rejected)


def _check_record(record: dict[str, Any], plan: Any) -> None:
    assert record.keys() == {feature.key for feature in plan.features}
    images = [key.removesuffix("/height") for key in record if key.endswith("/height")]
    for stem in images:
        _check_image(record, stem)
    for key, names in plan.vocabularies.items():
        _check_classes(record, key, names, plan.classes[key])
    for key in record:
        if key.endswith("/bbox/xmin"):
            _check_boxes(record, key.removesuffix("/bbox/xmin"))
        elif key.endswith("/encoded") and key.removesuffix("/encoded") not in images:
            _check_mask(record, key, images)


def _shape(record: dict[str, Any], stem: str) -> list[int]:
    return [int(record[f"{stem}/{side}"][0]) for side in SIDES]


def _check_image(record: dict[str, Any], stem: str) -> None:
    (data,), (form,) = record[f"{stem}/encoded"], record[f"{stem}/format"]
    if form == b"raw":
        assert len(data) == np.prod(_shape(record, stem))
        return
    assert form == {b"\xff\xd8": b"jpeg", b"\x89P": b"png"}[data[:2]]
    assert tf.io.decode_image(data).shape.as_list() == _shape(record, stem)


def _check_classes(
    record: dict[str, Any], key: str, names: Sequence[str] | None, count: int
) -> None:
    numbers, texts = record[key], record[key.replace("/label", "/text")]
    for number, text in zip(numbers, texts, strict=True):
        if not count:
            assert (number, text) == (-1, b"")
            continue
        assert 0 <= number < count
        assert text.decode() == (str(number) if names is None else names[number])


def _check_boxes(record: dict[str, Any], stem: str) -> None:
    edges = [np.asarray(record[f"{stem}/bbox/{edge}"]) for edge in ("xmin", "ymin", "xmax", "ymax")]
    classes = [f"{stem}/class/{name}" for name in ("label", "text")]
    lengths = {len(values) for values in (*edges, *(record[k] for k in classes if k in record))}
    assert len(lengths) == 1
    left, upper, right, lower = edges
    assert np.all((left >= 0) & (left < right) & (right <= 1))
    assert np.all((upper >= 0) & (upper < lower) & (lower <= 1))


def _check_mask(record: dict[str, Any], key: str, images: list[str]) -> None:
    mask = Pictures.open(io.BytesIO(record[key][0]))
    mask.load()
    assert (mask.format, mask.mode in ("1", "L")) == ("PNG", True)
    assert [mask.height, mask.width] in [_shape(record, stem)[:2] for stem in images]
