"""Metadata of a dataset directory: done-records, and the files of the commit.

`features.json`, `dataset_info.json` and the labels file are in TFDS's form, so that
`tfds.builder_from_directory` reads them (tensorflow_datasets/core/features/features_dict.py and
core/proto/dataset_info.proto).  What TFDS has no place for is in `_tfrecorder/metadata.json`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import google_crc32c

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.layout import Shard
from tfrecorder.plan.plan import Plan
from tfrecorder.writing.done import DoneRecord, add_up
from tfrecorder.writing.tfds import image_shape, image_shapes, image_sides, json_bytes

METADATA_VERSION = 1

#: Size and CRC32C of each file of the plan.
PlanSums = Mapping[str, tuple[int, int]]


def plan_sums(output_dir: str) -> PlanSums:
    """Size and CRC32C of the staged plan's files, as they stand.

    Raises:
        UnreadableError: one of them cannot be read.
    """
    files = (layout.PLAN, layout.PLAN_ROWS)
    paths = [os.path.join(output_dir, file) for file in files]
    return dict(zip(files, storage.each(storage.sums, paths, output_dir), strict=True))


def plan_list(sums: PlanSums) -> dict[str, Any]:
    """The plan's files as the metadata list them, with a checksum of the list.

    By that checksum `verify` knows whether the list or a file is damaged: nothing else tells which.
    """
    listed = [{"file": file, "bytes": size, "crc32c": crc} for file, (size, crc) in sums.items()]
    return {"plan_files": listed, "plan_files_crc32c": google_crc32c.value(json_bytes(listed))}


def metadata_json(plan: Plan, done: Mapping[Shard, DoneRecord], sums: PlanSums | None) -> bytes:
    """`_tfrecorder/metadata.json`: all that is known of the dataset.

    Args:
        sums: of the plan's files; None of a dataset whose version did not list them.
    """
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
            **({} if sums is None else plan_list(sums)),
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
