"""The list of the commit, `_tfrecorder/metadata.json`: what TFDS's files have no place for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

import google_crc32c

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.documents import METADATA_VERSION, seal
from tfrecorder.format.layout import Shard
from tfrecorder.output.done_records import DoneRecord, add_up
from tfrecorder.plan.plan import Plan
from tfrecorder.schema.fields import to_json as fields_to_json
from tfrecorder.writing.tfds import image_shapes, image_sides


def plan_sums(output_dir: str) -> dict[str, dict[str, int]]:
    """Size and CRC32C of the plan's files as they are now, by their names.

    Raises:
        UnreadableError: one of them cannot be read.
    """
    names = (layout.PLAN, layout.PLAN_ROWS)
    paths = [os.path.join(output_dir, name) for name in names]
    sums = storage.each(storage.sums, paths, output_dir)
    return {
        name: {"bytes": size, "crc32c": crc} for name, (size, crc) in zip(names, sums, strict=True)
    }


def sums_of(data: bytes) -> dict[str, int]:
    """Size and CRC32C of bytes, as the list of the commit holds them."""
    return {"bytes": len(data), "crc32c": google_crc32c.value(data)}


def metadata_json(
    plan: Plan, done: Mapping[Shard, DoneRecord], files: Mapping[str, Mapping[str, int]]
) -> bytes:
    """`_tfrecorder/metadata.json`: all that is known about the dataset, and its checksums.

    Its checksums prove itself, the plan's files, the lists of all shards and the done-records;
    these prove the shards with their indexes and lists.

    Args:
        files: size and CRC32C of the plan's files, as `plan_sums` gives them, and of the lists of
            rejects and suspects.
    """
    shards = [
        {
            "file": shard.file,
            "split": shard.split,
            "records": done[shard].records,
            "bytes": done[shard].bytes,
            "crc32c": done[shard].crc32c,
            "done": google_crc32c.value(done[shard].to_json()),
        }
        for shard in plan.shards
    ]
    return seal(
        {
            "version": METADATA_VERSION,
            "plan": plan.digest,
            "options": plan.options,
            "fields": fields_to_json(plan.fields),
            "statistics": plan.statistics,
            "source_rows": plan.source_rows,
            "image_shapes": image_shapes(plan, done.values()),
            "image_sides": image_sides(plan, done.values()),
            "split_rows": plan.split_rows,
            "class_counts": _class_counts(plan, done),
            "totals": asdict(add_up(done.values())),
            "shards": shards,
            "files": files,
            **({} if plan.before is None else {"before": plan.before}),
            **({} if plan.streams is None else {"streams": plan.streams}),
        }
    )


def _class_counts(plan: Plan, done: Mapping[Shard, DoneRecord]) -> dict[str, Counter[str]]:
    """For each split, the records of each class by its integer."""
    counts: dict[str, Counter[str]] = {split: Counter() for split in plan.split_rows}
    for shard in plan.shards:
        counts[shard.split].update(done[shard].classes)
    return counts
