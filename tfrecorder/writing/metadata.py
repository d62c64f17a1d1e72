"""Metadata of a dataset directory: done-records, and the files of the commit.

`features.json`, `dataset_info.json` and the labels file are in TFDS's form, so that
`tfds.builder_from_directory` reads them (tensorflow_datasets/core/features/features_dict.py and
core/proto/dataset_info.proto).  What TFDS has no place for is in `_tfrecorder/metadata.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from tfrecorder.dataset.layout import Shard
from tfrecorder.plan.plan import Plan
from tfrecorder.writing.done import DoneRecord, add_up
from tfrecorder.writing.tfds import image_shape, image_shapes, image_sides, json_bytes

METADATA_VERSION = 1


def metadata_json(plan: Plan, done: Mapping[Shard, DoneRecord]) -> bytes:
    """`_tfrecorder/metadata.json`: all that is known of the dataset."""
    totals = add_up(done.values())
    shards = [
        {
            "file": shard.file,
            "split": shard.split,
            "records": done[shard].records,
            "bytes": done[shard].bytes,
            "crc32c": done[shard].crc32c,
        }
        for shard in plan.shards
    ]
    stated = {}
    if plan.stated is not None:
        shapes = image_shapes(plan, done.values())
        stated = {"stated": plan.stated, "image_shapes": shapes}
    return json_bytes(
        {
            "version": METADATA_VERSION,
            "plan": plan.digest,
            "options": plan.options,
            "label_kind": plan.label_kind,
            "class_names": plan.class_names,
            "num_classes": plan.num_classes,
            "image_shape": image_shape(done.values()),
            "image_sides": image_sides(done.values()),
            "features": {feature.key: feature.kind for feature in plan.features},
            "split_rows": plan.split_rows,
            "totals": asdict(totals),
            "shards": shards,
            **stated,
        }
    )
