"""The public files of a commit: those in TFDS's form, the labels files, and the lists of rows.

`tfds.builder_from_directory` reads `features.json`, `dataset_info.json` and the labels files
(tensorflow_datasets/core/features/features_dict.py and core/proto/dataset_info.proto).  The lists,
`rejects.csv` and `suspects.csv`, come from the tables of the shards.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import field_of, to_csv
from tfrecorder.format.documents import JsonObject, TfdsInfo, TfdsSplit, commit_note
from tfrecorder.format.done_records import DoneRecord, DoneRecords
from tfrecorder.format.layout import RECORD_OF, REJECT_OF, NewFiles, Shard
from tfrecorder.format.manifest import DatasetRecord, Manifest
from tfrecorder.format.plan import Adds, Plan, PlanKind, Shapes, TakesBack
from tfrecorder.reading.dataset import image_shape
from tfrecorder.reading.shard_tables import read_row_list, read_tables
from tfrecorder.schema.fields import class_field, primary_file
from tfrecorder.schema.keys import ENCODED, LABEL, SOURCE_ID, Feature
from tfrecorder.schema.labels import to_label_map_pbtxt, to_labels_file
from tfrecorder.schema.splits import SPLITS

#: The name of the data, not of this package: TFDS requires one if the user gave none.
DATASET_NAME = "dataset"
DATASET_VERSION = "1.0.0"

_TFDS = "tensorflow_datasets.core.features"


def image_sides(plan: Plan, done: Iterable[DoneRecord]) -> list[tuple[int, int]]:
    """[smallest, largest] of the shorter and of the longer sides of all images.

    Of the whole dataset as of the plan.  From these a reader can tell, before it looks at an image,
    how small it can be decoded.
    """
    extremes = [sides for record in done for sides in record.sides]
    if isinstance(plan.follows, Adds):
        extremes += [list(ends) for ends in zip(*plan.follows.image_sides, strict=True)]
    return [(min(axis), max(axis)) for axis in zip(*extremes, strict=True)]


def image_shapes(plan: Plan, done: Collection[DoneRecord]) -> Shapes:
    """`image_shape` of each key that holds encoded images, of the whole dataset as of the plan."""
    before = plan.follows.image_shapes if isinstance(plan.follows, Adds) else {}
    shapes = {}
    for key in (feature.key for feature in plan.features if feature.kind == "image"):
        stem = key.removesuffix("/encoded")
        extremes = [shape for record in done for shape in record.shapes.get(stem, ())]
        shapes[key] = image_shape([*extremes, before[key]] if key in before else extremes)
    return shapes


def descriptions(plan: Plan, dataset: DatasetRecord) -> NewFiles:
    """The public files that say what records hold, as of the commit of a plan."""
    # Every key of the record with its type, in TFDS's form.
    shapes = dataset.image_shapes
    forms = {feature.key: _tfds_form(feature, plan, shapes) for feature in plan.features}
    forms |= {
        field.tfds_boxes_key: _sequence(_BBOX) for field in plan.fields if field.tfds_boxes_key
    }
    document = {
        "pythonClassName": f"{_TFDS}.features_dict.FeaturesDict",
        "featuresDict": {"features": forms},
    }
    return {layout.FEATURES: json_bytes(document), **class_files(plan)}


#: A box as fractions, in the order ymin, xmin, ymax, xmax.
_BBOX: JsonObject = {
    "pythonClassName": f"{_TFDS}.bounding_boxes.BBoxFeature",
    "boundingBox": {
        "shape": {"dimensions": ["4"]},
        "dtype": "float32",
        "bboxFormat": "REL_YXYX",
    },
}

_TFDS_DTYPES = {
    "int64": "int64",
    "float": "float32",
    "bool": "bool",
    "bytes": "string",
    "label": "int64",
    "text": "string",
}


def _tfds_form(
    feature: Feature,
    plan: Plan,
    shapes: Shapes,
) -> JsonObject:
    if feature.shape == (None,):
        return _sequence(_tfds_form(replace(feature, shape=()), plan, shapes))
    if feature.kind in ("image", "mask"):
        return _tfds_image(feature, plan, shapes)
    if feature.kind == "text" and feature.shape == ():
        return {"pythonClassName": f"{_TFDS}.text_feature.Text", "text": {}}
    classes = plan.classes.get(feature.key, 0)
    if feature.kind == "label" and classes:
        number = {"numClasses": str(classes)}
        return {"pythonClassName": f"{_TFDS}.class_label_feature.ClassLabel", "classLabel": number}
    shape = {"dimensions": list(map(str, feature.shape))} if feature.shape else {}
    name = "tensor_feature.Tensor" if shape else "scalar.Scalar"
    return {
        "pythonClassName": f"{_TFDS}.{name}",
        "tensor": {"dtype": _TFDS_DTYPES[feature.kind], "encoding": "none", "shape": shape},
    }


def _sequence(feature: JsonObject) -> JsonObject:
    return {
        "pythonClassName": f"{_TFDS}.sequence_feature.Sequence",
        "sequence": {"feature": feature, "length": "-1"},
    }


def _tfds_image(
    feature: Feature,
    plan: Plan,
    shapes: Shapes,
) -> JsonObject:
    if feature.kind == "mask":
        sides: tuple[int | None, ...] = (*shapes[plan.image_of_mask(feature.key)][:2], 1)
    else:
        sides = shapes[feature.key]
    shape = {"dimensions": [str(-1 if size is None else size) for size in sides]}
    if feature.kind == "image" and plan.options.get("image_format") == "raw":
        # Pixels as they are: TFDS treats them as the bytes of an array.
        return {
            "pythonClassName": f"{_TFDS}.tensor_feature.Tensor",
            "tensor": {"dtype": "uint8", "encoding": "bytes", "shape": shape},
        }
    depth = max((field.depth for field in plan.fields if feature in field.features), default=8)
    content: JsonObject = {"dtype": f"uint{depth}", "shape": shape}
    if feature.kind == "mask":
        content["encodingFormat"] = "png"
        if feature.key in _drawn(plan):
            content["useColormap"] = True  # as greys, classes 0, 1, 2 all look black
    return {"pythonClassName": f"{_TFDS}.image_feature.Image", "image": content}


def dataset_info_json(
    plan: Plan,
    done: DoneRecords,
    previous: TfdsInfo | None,
    dataset: DatasetRecord,
) -> bytes:
    """`dataset_info.json`: the splits with their shard lengths and bytes, in TFDS's form.

    Args:
        previous: what stands there, if anything does.
        dataset: as of the commit.
    """
    before = previous["splits"] if previous is not None and plan.adds else ()
    splits = with_shards(before, done)
    document: dict[str, object] = {
        "name": plan.options.get("name") or DATASET_NAME,
        "version": dataset.stated,
        "description": "Written by tfrecorder.",
        "fileFormat": "tfrecord",
        "releaseNotes": {dataset.stated: commit_note(plan.commit, plan.digest)},
        # TFDS refuses a split without a record, which may have rejects.
        "splits": [
            splits[name]
            for name in map(str.lower, SPLITS)
            if name in splits and any(map(int, splits[name]["shardLengths"]))
        ],
        **dataset.stated_by_card,
    }
    if target := _target(plan):
        keys = [{"featureKey": ENCODED}, {"featureKey": target}]
        document["supervisedKeys"] = {"tuple": {"items": keys}}
    return json_bytes(document)


def with_shards(splits: Iterable[TfdsSplit], done: DoneRecords) -> dict[str, TfdsSplit]:
    """Splits in TFDS's form, by name, with further shards at their ends.

    Args:
        done: the done-records of these shards, in the order of their numbers.
    """
    known: dict[str, TfdsSplit] = {
        split["name"]: {**split, "shardLengths": [*split["shardLengths"]]} for split in splits
    }
    for shard, record in done.items():
        name = shard.split.lower()
        template = layout.template(shard.revision)
        none = TfdsSplit(
            name=name,
            filepathTemplate=template,
            numBytes="0",
            shardLengths=[],
        )
        split = known.setdefault(name, none)
        lengths = split["shardLengths"]
        # TFDS is not told of a split whose shards have no record.
        lengths += ["0"] * (shard.index - len(lengths)) + [str(record.records)]
        split["numBytes"] = str(int(split["numBytes"]) + record.bytes)
    return known


def stated_version(plan: Plan, previous: str | None) -> str:
    """The version after a commit: data that are added raise the minor number, others the major.

    Args:
        previous: the version before it; None for the first.
    """
    if isinstance(plan.follows, TakesBack):
        return plan.follows.version
    if previous is None:
        return str(plan.options.get("version") or DATASET_VERSION)
    if plan.adds and not plan.own:
        return previous
    major, minor, _ = map(int, previous.split("."))
    return f"{major}.{minor + 1}.0" if plan.adds else f"{major + 1}.0.0"


def _target(plan: Plan) -> str | None:
    """The key of what TFDS's as_supervised returns with the image: its class, or else its mask."""
    kinds = {feature.key: feature.kind for feature in plan.features}
    labels = class_field(plan.fields)
    if ENCODED not in kinds:
        return None
    if labels and labels.num_classes and LABEL in kinds:
        return LABEL
    masks = [key for key, kind in kinds.items() if kind == "mask"]
    alone = len(masks) == 1 and not any(field.num_classes for field in plan.fields)
    return masks[0] if alone and masks[0] in _drawn(plan) else None


def _drawn(plan: Plan) -> set[str]:
    """The keys of what TFDS draws in its own way."""
    return {feature.key for field in plan.fields if field.for_tfds for feature in field.features}


def class_files(plan: Plan) -> NewFiles:
    """The files of class names: a labels file for each key whose classes have names; label maps.

    Label maps are for tools that number the classes of boxes from 1; there are none unless class 0
    is reserved for the background.
    """
    files = {
        layout.labels_file(key): to_labels_file(names).encode()
        for key, names in plan.vocabularies.items()
        if names is not None
    }
    if plan.label_map:
        # The Model Garden's label map: a line `id,name` for each class except 0.
        files[layout.LABEL_MAP_CSV] = to_csv([*enumerate(plan.label_map)][1:]).encode()
        files[layout.LABEL_MAP_PBTXT] = to_label_map_pbtxt(plan.label_map).encode()
    return files


def json_bytes(document: object) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


#: A row of a list, its number first.
Row = Sequence[int | str]

_LIST_HEADERS = {
    layout.REJECTS: ("row", "image_uri", "stage", "reason"),
    layout.SUSPECTS: ("row", "image_uri", "warning"),
}

#: What a list has of a row after its number and uri.
_LIST_COLUMNS = {layout.REJECTS: REJECT_OF, layout.SUSPECTS: (RECORD_OF.warning,)}


def lists_of(
    plan: Plan,
    done: DoneRecords,
    output_dir: str,
) -> NewFiles:
    """The lists of the whole dataset that a plan changes; the same before and after its commit.

    Args:
        done: the done-records of the plan's shards, whose tables are read.

    Raises:
        DatasetError: a table cannot be read, or a list to which rows are added.
    """
    listed = [shard for shard, record in done.items() if record.rejects or record.suspects]
    if plan.changes_records or (plan.kind is PlanKind.UNDO and plan.layout.kept):
        return whole_lists(plan, [*done] if listed else [], output_dir)
    streams = plan.kind is PlanKind.BATCH  # it tries no reject again
    if plan.layout.kept or (plan.adds and streams and not listed):
        return {}
    added = _listed_rows(plan, listed, output_dir)
    first = plan.first_row
    old: dict[str, Sequence[Row]] = dict.fromkeys(added, ())
    retried: set[int] = set()
    if plan.adds:
        old = {name: read_row_list(output_dir, name) for name in added}
        if not streams and any(int(row[0]) < first for row in old[layout.REJECTS]):
            numbers = read_tables(output_dir, plan.layout.shards, lambda _: [SOURCE_ID])
            retried.update(numbers.column(0).to_pylist() if numbers is not None else ())
    lists = {}
    for name, rows in added.items():
        kept = [row for row in old[name] if int(row[0]) < first and int(row[0]) not in retried]
        if not plan.adds or rows or len(kept) < len(old[name]):
            lists[name] = _list_csv(name, sorted([*kept, *rows], key=_number))
    return lists


def whole_lists(
    plan: Plan,
    shards: Sequence[Shard],
    output_dir: str,
) -> NewFiles:
    """The lists as the tables of all shards of a dataset have them.

    Args:
        plan: of the newest commit.

    Raises:
        DatasetError: a table cannot be read.
    """
    numbers = read_tables(output_dir, shards, lambda _: [SOURCE_ID, REJECT_OF.reason])
    pairs = [] if numbers is None else zip(*(c.to_pylist() for c in numbers.columns), strict=True)
    won = {number for number, reason in pairs if not reason}  # perhaps by another attempt
    lists = {}
    for name, rows in _listed_rows(plan, shards, output_dir).items():
        lost = won if name == layout.REJECTS else ()
        latest = {row[0]: row for row in rows if row[0] not in lost}
        lists[name] = _list_csv(name, sorted(latest.values(), key=_number))
    return lists


def lists_as_of(manifest: Manifest, output_dir: str) -> NewFiles:
    """The lists of rows that are not as a commit had them, from the tables of its shards.

    Raises:
        DatasetError: a table cannot be read.
    """

    others = [
        name
        for name, wanted in manifest.dataset.lists.items()
        if storage.sums(os.path.join(output_dir, name)) != (wanted.bytes, wanted.crc32c)
    ]
    if not others:
        return {}
    whole = whole_lists(manifest.plan, layout.shards_of(manifest.dataset.splits), output_dir)
    return {name: whole[name] for name in others}


def _number(row: Row) -> int:
    return int(row[0])


def _listed_rows(
    plan: Plan,
    shards: Sequence[Shard],
    output_dir: str,
) -> dict[str, list[Row]]:
    """The rows of each list in some shards: those that have something in its last column."""
    image = primary_file(plan.fields)
    uri = [] if image is None else [image.uri_key]
    wanted = [SOURCE_ID, *uri, *REJECT_OF, RECORD_OF.warning]
    table = read_tables(output_dir, shards, lambda _: wanted)
    rows: dict[str, list[Row]] = {name: [] for name in _LIST_COLUMNS}
    if table is None:
        return rows
    for name, columns in _LIST_COLUMNS.items():
        listed = table.filter(pc.not_equal(table.column(columns[-1]), ""))
        uris = listed.column(uri[0]).to_pylist() if uri else [""] * len(listed)
        cells = (listed.column(column).to_pylist() for column in columns)
        rows[name] = list(zip(listed.column(SOURCE_ID).to_pylist(), uris, *cells, strict=True))
    return rows


def _list_csv(name: str, rows: Iterable[Row]) -> bytes:
    """A list of rows, for people."""
    cells = (map(field_of, row) for row in rows)
    return to_csv([_LIST_HEADERS[name], *cells]).encode()
