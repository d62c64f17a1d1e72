"""Metadata of a dataset directory: done-records, and the files of the commit.

`features.json`, `dataset_info.json` and the labels file are in TFDS's form, so that
`tfds.builder_from_directory` reads them (tensorflow_datasets/core/features/features_dict.py and
core/proto/dataset_info.proto).  What TFDS has no place for is in `_tfrecorder/metadata.json`.
"""

from __future__ import annotations

import builtins
import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.forms import DONE
from tfrecorder.dataset.json_form import parse
from tfrecorder.dataset.layout import Shard
from tfrecorder.errors import OutputError
from tfrecorder.plan.plan import Plan
from tfrecorder.schema.keys import ENCODED, LABEL, Feature
from tfrecorder.schema.labels import to_labels_file

METADATA_VERSION = 1

#: Of the data, not of this package: TFDS wants one, and the directory holds one data set.
DATASET_NAME = "dataset"
DATASET_VERSION = "1.0.0"

_TFDS = "tensorflow_datasets.core.features"


@dataclass(frozen=True)
class DoneRecord:
    """What a worker wrote for one shard.

    Attributes:
        plan: the digest of the plan that it followed.
        shard: the shard's name.
        rows: planned; always records + rejects.
        records: written.
        reasons: rejects by "stage/code".
        suspects: records whose image decodes, but with a decoder's warning.
        oriented: records whose image carries an EXIF orientation other than upright.
        input_bytes: of the files of the images that became records.
        bytes: of the shard's file.
        crc32c: of the shard's file.
        formats: records by image format.
        shapes: smallest and largest (height, width, channels) of the records; empty without any.
        sides: smallest and largest (shorter side, longer side) of the records.
        retries: further attempts that reading the images took.
        further: of a second and later image, smallest and largest (height, width, channels), by
            what its keys begin with.
    """

    plan: str
    shard: str
    rows: int
    records: int
    reasons: dict[str, int]
    suspects: int
    oriented: int
    input_bytes: int
    bytes: int
    crc32c: int
    formats: dict[str, int]
    shapes: list[list[int]] = field(default_factory=list)
    sides: list[list[int]] = field(default_factory=list)
    retries: int = 0
    further: dict[str, list[list[int]]] = field(default_factory=dict)

    @property
    def rejects(self) -> int:
        return sum(self.reasons.values())

    @property
    def unread(self) -> int:
        """Rejects of the stage `read`, which a rerun may cure."""
        return sum(count for why, count in self.reasons.items() if why.startswith("read/"))

    def to_json(self) -> builtins.bytes:
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()


def read_done(
    output_dir: str,
    shard: Shard,
    plan_digest: str,
    sizes: Mapping[str, int | None] | None = None,
) -> DoneRecord | None:
    """The done-record of a shard whose file is whole, or None if it must be written (again).

    Args:
        sizes: what lies in the directory, where that is known; else the shard is asked for.
    """
    try:
        data = storage.read_bytes(os.path.join(output_dir, shard.done))
        done = DoneRecord(**parse(data, DONE))
    except storage.UnreadableError as error:
        if error.code == "not_found":
            return None
        raise OutputError(f"{output_dir}/{shard.done} cannot be read: {error}.") from error
    except (ValueError, TypeError):  # after a loss of power a file may be there without its bytes
        return None
    path = os.path.join(output_dir, shard.file)
    size = storage.size_or_none(path) if sizes is None else sizes.get(shard.file)
    return done if done.plan == plan_digest and size == done.bytes else None


def read_all_done(
    output_dir: str, shards: Collection[Shard], plan_digest: str
) -> dict[Shard, DoneRecord | None]:
    """`read_done` of many shards: nothing is asked about those without a done-record."""
    there = set(storage.names(os.path.join(output_dir, layout.DONE)))
    begun = [shard for shard in shards if os.path.basename(shard.done) in there]
    sizes = storage.sizes(output_dir) if begun else {}

    def read(shard: Shard) -> DoneRecord | None:
        return read_done(output_dir, shard, plan_digest, sizes)

    found = storage.each(read, begun, output_dir)
    return {**dict.fromkeys(shards), **dict(zip(begun, found, strict=True))}


@dataclass(frozen=True)
class Totals:
    """Done-records added up."""

    rows: int
    records: int
    reasons: dict[str, int]
    suspects: int
    oriented: int
    input_bytes: int
    bytes: int
    formats: dict[str, int]
    retries: int

    @property
    def rejects(self) -> int:
        return sum(self.reasons.values())


def add_up(done: Iterable[DoneRecord]) -> Totals:
    done = list(done)
    reasons: Counter[str] = Counter()
    formats: Counter[str] = Counter()
    for one in done:
        reasons.update(one.reasons)
        formats.update(one.formats)
    return Totals(
        rows=sum(one.rows for one in done),
        records=sum(one.records for one in done),
        # By count, then by name: the same of done-records in memory and of those read back.
        reasons=dict(sorted(reasons.items(), key=lambda one: (-one[1], one[0]))),
        suspects=sum(one.suspects for one in done),
        oriented=sum(one.oriented for one in done),
        input_bytes=sum(one.input_bytes for one in done),
        bytes=sum(one.bytes for one in done),
        formats=dict(sorted(formats.items())),
        retries=sum(one.retries for one in done),
    )


def image_shape(done: Iterable[DoneRecord]) -> tuple[int | None, int | None, int]:
    """(height, width, channels) that hold for every image; None where images differ.

    Channels that differ, or are 2, become 3: what a decoder is then asked for.
    """
    extremes = [shape for one in done for shape in one.shapes]
    same = [
        values.pop() if len(values := {shape[axis] for shape in extremes}) == 1 else None
        for axis in range(3)
    ]
    height, width, channels = same
    return height or None, width or None, channels if channels in (1, 3, 4) else 3


def image_sides(done: Iterable[DoneRecord]) -> list[list[int]]:
    """[smallest, largest] of the shorter sides of all images, and of their longer sides.

    From these a reader may know, before it looks at an image, how small it can be decoded.
    """
    extremes = [sides for one in done for sides in one.sides]
    return [[min(axis), max(axis)] for axis in zip(*extremes, strict=True)]


def image_shapes(
    plan: Plan, done: Iterable[DoneRecord]
) -> dict[str, tuple[int | None, int | None, int]]:
    """`image_shape` of each key that holds encoded images."""
    done = list(done)
    keys = [feature.key for feature in plan.features if feature.kind == "image"]
    shapes = {}
    for number, key in enumerate(keys):
        stem = key.removesuffix("/encoded")
        of_key = done if number == 0 else [_of_further(one, stem) for one in done]
        shapes[key] = image_shape(of_key)
    return shapes


def _of_further(one: DoneRecord, stem: str) -> DoneRecord:
    return replace(one, shapes=one.further.get(stem, []))


def features_json(plan: Plan, done: Iterable[DoneRecord]) -> bytes:
    """`features.json`: every key of the record with its type, in TFDS's form."""
    shapes = image_shapes(plan, done)
    forms = {feature.key: _tfds_form(feature, plan, shapes) for feature in plan.features}
    document = {
        "pythonClassName": f"{_TFDS}.features_dict.FeaturesDict",
        "featuresDict": {"features": forms},
    }
    return json_bytes(document)


_TFDS_DTYPES = {"int64": "int64", "float": "float32", "bool": "bool", "bytes": "string"}


def _tfds_form(
    feature: Feature, plan: Plan, shapes: Mapping[str, tuple[int | None, int | None, int]]
) -> dict[str, Any]:
    if feature.shape == (None,):
        of_one = _tfds_form(replace(feature, shape=()), plan, shapes)
        content = {"feature": of_one, "length": "-1"}
        return {"pythonClassName": f"{_TFDS}.sequence_feature.Sequence", "sequence": content}
    if feature.kind in ("image", "mask"):
        return _tfds_image(feature, plan, shapes)
    if feature.kind == "text" and feature.shape == ():
        return {"pythonClassName": f"{_TFDS}.text_feature.Text", "text": {}}
    classes = plan.classes.get(feature.key, 0)
    if feature.kind == "label" and classes:
        number = {"numClasses": str(classes)}
        return {"pythonClassName": f"{_TFDS}.class_label_feature.ClassLabel", "classLabel": number}
    dtype = {**_TFDS_DTYPES, "label": "int64", "text": "string"}[feature.kind]
    if feature.shape:
        sides = {"dimensions": list(map(str, feature.shape))}
        array = {"dtype": dtype, "encoding": "none", "shape": sides}
        return {"pythonClassName": f"{_TFDS}.tensor_feature.Tensor", "tensor": array}
    scalar = {"dtype": dtype, "encoding": "none", "shape": {}}
    return {"pythonClassName": f"{_TFDS}.scalar.Scalar", "tensor": scalar}


def _tfds_image(
    feature: Feature, plan: Plan, shapes: Mapping[str, tuple[int | None, int | None, int]]
) -> dict[str, Any]:
    if feature.kind == "mask":
        sides: tuple[int | None, ...] = (*shapes[plan.image_of_mask(feature.key)][:2], 1)
    else:
        sides = shapes[feature.key]
    dimensions = [str(-1 if size is None else size) for size in sides]
    shape = {"dimensions": dimensions}
    if feature.kind == "image" and plan.options.get("image_format") == "raw":
        # Pixels as they are: TFDS knows them as the bytes of an array.
        array = {"dtype": "uint8", "encoding": "bytes", "shape": shape}
        return {"pythonClassName": f"{_TFDS}.tensor_feature.Tensor", "tensor": array}
    content = {"dtype": "uint8", "shape": shape}
    if feature.kind == "mask":
        content["encodingFormat"] = "png"
    return {"pythonClassName": f"{_TFDS}.image_feature.Image", "image": content}


def dataset_info_json(plan: Plan, done: Mapping[Shard, DoneRecord]) -> bytes:
    """`dataset_info.json`: the splits with their shard lengths and bytes, in TFDS's form."""
    splits = []
    for split in plan.split_rows:
        of_split = [done[shard] for shard in plan.shards if shard.split == split]
        splits.append(
            {
                "name": split.lower(),
                "filepathTemplate": layout.TFDS_TEMPLATE,
                "numBytes": str(sum(one.bytes for one in of_split)),
                "shardLengths": [str(one.records) for one in of_split],
            }
        )
    document: dict[str, Any] = {
        "name": DATASET_NAME,
        "version": DATASET_VERSION,
        "description": "Written by tfrecorder.",
        "fileFormat": "tfrecord",
        "splits": splits,
    }
    present = {feature.key for feature in plan.features}
    if plan.num_classes and {ENCODED, LABEL} <= present:
        keys = [{"featureKey": ENCODED}, {"featureKey": LABEL}]
        document["supervisedKeys"] = {"tuple": {"items": keys}}
    return json_bytes(document)


def labels_files(plan: Plan) -> dict[str, bytes]:
    """The files of class names, of each key whose classes have names."""
    return {
        layout.labels_file(key): to_labels_file(names).encode()
        for key, names in plan.vocabularies.items()
        if names is not None
    }


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


def json_bytes(document: Any) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
