"""Make our own files of a generation again where plan and metadata are both gone: from its records.

The public files prove the result: made again from it, each must be the same, byte for byte.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.balanced_parts import balanced_part
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format import layout
from tfrecorder.format.documents import parse
from tfrecorder.format.example import parse_example
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import COPY_OF, REJECT_OF
from tfrecorder.format.tfrecord import frame, read_records
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import claim
from tfrecorder.output.staging import read_plan, stage_plan
from tfrecorder.plan.plan import Plan, PlanKind, PlannedRow, fingerprint
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.generations import before_next, committed_directories, read_metadata
from tfrecorder.reading.row_lists import read_row_list
from tfrecorder.reading.tfds_features import tfds_keys
from tfrecorder.schema import kinds
from tfrecorder.schema.fields import Field, class_field, fields_of, primary_image
from tfrecorder.schema.keys import SOURCE_ID, Feature
from tfrecorder.schema.splits import SPLIT_TYPE, SPLITS
from tfrecorder.validation.statistics import describe_columns
from tfrecorder.verification.expectation import is_lost
from tfrecorder.writing.commit import commit
from tfrecorder.writing.copying import loaded
from tfrecorder.writing.rows import planned_reject
from tfrecorder.writing.shards import Tally
from tfrecorder.writing.tfds import DATASET_NAME, public_files

#: What neither the records nor the public files hold.
LOST = (
    "the options of the conversion, which `tfrecorder.append` takes over: give it yours",
    "the columns' own names where the records have others: images, masks, boxes, an only label",
    "of rejected rows their values and splits",
    "where the images are, so that a shard that is damaged later cannot be written again",
    "how far streams were read: a stream from the same source begins again",
    "class names with white space at an end that no record has: they are as in the labels file",
)

_COLUMNS = {"image": "image_uri", "image/class": "label", "image/segmentation/class": "mask_uri"}
_BOXES = Field("boxes", kinds.Boxes(), "image/object")

#: A planned row: its values by key.
Row = dict[str, Any]


def rebuild_lost(directory: str, repair: Callable[[str], list[str]]) -> list[str]:
    """Make our own files of the generations that lost both plan and metadata again.

    Args:
        repair: repairs an earlier generation, on which a lost one builds; returns its files.

    Returns:
        The names of the files that were written.

    Raises:
        DatasetError: what is left does not say enough, or is damaged too; or is not readable.
    """
    every = committed_directories(directory)
    lost = [number for number, folder in enumerate(every) if is_lost(folder)]
    if not lost:
        return []
    written = []
    with claim(directory, has_plan=0 not in lost):
        for number, folder in enumerate(every[: lost[-1] + 1]):
            files = _rebuild(directory, folder, number) if number in lost else repair(folder)
            written += [os.path.join(layout.generation_of("", number), file) for file in files]
    return written


def remove_folders(paths: Iterable[str]) -> None:
    """Remove the empty folders that stand where files belong."""
    for path in paths:
        if os.path.isdir(path) and not os.path.islink(path):
            if os.listdir(path):
                raise storage.UnwritableError(f"{path} is a folder with files; move it away")
            os.rmdir(path)


def _rebuild(directory: str, folder: str, number: int) -> list[str]:
    before = None
    if number:
        earlier = layout.generation_of(directory, number - 1)
        before = before_next(read_metadata(earlier, STORED_FILES))
    # A generation names the plan of the one before it.
    following = read_plan(layout.generation_of(directory, number + 1))
    digest = (following.before or {}).get("plan", "") if following else ""
    try:
        return _from_records(folder, before, digest)
    except (storage.UnreadableError, LookupError, OptionError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{folder} cannot be repaired: {layout.PLAN} and {layout.METADATA} are lost, and its "
            f"other files do not suffice to make them again: {error}. Copy {layout.PRIVATE}/ from "
            "another copy of the dataset, or convert again."
        ) from error


def _from_records(directory: str, before: dict[str, Any] | None, digest: str) -> list[str]:
    import pyarrow as pa

    document, info = (_document(directory, name) for name in (layout.FEATURES, layout.COMMIT))
    names = storage.names(directory)
    shards = sorted(
        filter(None, map(layout.parse_shard, names)),
        key=lambda shard: (SPLITS.index(shard.split), shard.index),
    )
    counts = {shard.split: shard.count for shard in shards}
    wanted = [
        Shard(split, index, count) for split, count in counts.items() for index in range(count)
    ]
    if missing := [shard.file for shard in wanted if shard not in shards]:
        raise ValueError(f"{missing[0]} is missing")
    fields = _fields(document, layout.LABEL_MAP_CSV in names)
    suspects = {int(row[0]): row[2] for row in read_row_list(directory, layout.SUSPECTS)}
    tallies = {shard: Tally(class_field(fields), lambda rows: None, math.inf) for shard in shards}
    rows = {
        shard: list(_records(directory, shard, fields, tally, suspects))
        for shard, tally in tallies.items()
    }
    split_rows = _add_rejects(directory, fields, tallies, rows)
    planned = [row for shard in shards for row in rows[shard]]
    splits = pd.Series([s.split for s in shards for _ in rows[s]], dtype=SPLIT_TYPE)
    types = {name: pa.large_string() for name in (*COPY_OF, *REJECT_OF)}
    types |= {feature.key: _type(feature) for feature in _planned(fields)} | dict.fromkeys(
        (SOURCE_ID, COPY_OF.offset, COPY_OF.size), pa.int64()
    )
    columns = {key: pa.array([row[key] for row in planned], of) for key, of in types.items()}
    fields = tuple(_with_names(directory, names, field, columns) for field in fields)
    sound = [not row[REJECT_OF.reason] for row in planned]
    values = {key: column.filter(pa.array(sound)) for key, column in columns.items()}
    last = max(row[SOURCE_ID] for row in planned)
    plan = Plan(
        rows=len(planned),
        source_rows=last + 1 - (before or {"rows": 0})["rows"],
        split_rows=split_rows,
        split_shards=counts,
        fields=fields,
        statistics=describe_columns(fields, values, splits[sound], missing={}),
        base=storage.absolute(directory),
        fingerprint=fingerprint(splits, columns),
        options=_options(document, info),
        before=before,
        kind=PlanKind.COMPACTION,
        stands_for=digest,
    )
    done = {
        shard: tally.done_record(plan.digest, shard, len(rows[shard]))
        for shard, tally in tallies.items()
    }
    for file, data in public_files(plan, done).items():
        if storage.read_bytes(os.path.join(directory, file)) != data:
            raise ValueError(f"{file} says something else than the records")
    remove_folders(os.path.join(directory, file) for file in (layout.PLAN, layout.METADATA))
    for shard, tally in tallies.items():
        tally.publish(directory, shard)
        sealed = replace(done[shard], beside=tally.beside)
        storage.publish_bytes(directory, shard.done, sealed.to_json())
        done[shard] = sealed
    storage.remove(directory, layout.PLAN)
    stage_plan(plan, pa.table(columns), directory)
    commit(plan, done.values(), directory, max_reject_fraction=1.0)
    beside = [file for shard in shards for file in (shard.done, *shard.beside.values())]
    return [*beside, layout.PLAN, layout.PLAN_ROWS, layout.METADATA]


def _document(directory: str, name: str) -> Any:
    with storage.failing_as(ValueError, name):
        return parse(storage.read_bytes(os.path.join(directory, name)))


def _fields(document: Mapping[str, Any], background: bool) -> tuple[Field, ...]:
    """The columns that make these features, without the names of their classes."""
    forms = document["featuresDict"]["features"]
    features = {key.feature.key: key for key in tfds_keys(document)}
    boxes, taken, columns = f"{_BOXES.key}/bbox", {SOURCE_ID}, {}
    for key, tfds_key in features.items():
        if key in taken:
            continue
        stem, _, last = key.rpartition("/")
        column = stem
        kind: kinds.Kind
        if last == "encoded" and f"{stem}/format" in features:
            column = f"{stem}_uri"
            kind = (
                kinds.Mask() if "encodingFormat" in forms[key].get("image", {}) else kinds.Image()
            )
        elif last == "label" and f"{stem}/text" in features:
            kind = kinds.Labels() if tfds_key.feature.shape else kinds.Label()
        elif key in (boxes, *_BOXES.edges):
            stem, column = _BOXES.key, _BOXES.column
            label = "box_label" if f"{stem}/class/label" in features else None
            tfds = boxes in features
            kind = kinds.Boxes(label=label, background_class=background, tfds_features=tfds)
        else:
            column, stem, kind = key, key, _kind(tfds_key.feature, forms[key])
        column = _COLUMNS.get(stem, column)
        columns[column] = kind
        taken |= {feature.key for feature in Field(column, kind, stem).features}
    return tuple(
        replace(field, num_classes=features[field.label_key].classes or 0)
        if field.label_key
        else field
        for field in fields_of(kinds.Schema(columns))
    )


def _kind(feature: Feature, form: Mapping[str, Any]) -> kinds.Kind:
    """The kind of a column with one key."""
    inner = form.get("sequence", {}).get("feature", form)
    if feature.kind == "text":
        kind = kinds.Text if inner["pythonClassName"].endswith(".Text") else kinds.Bytes
        return kind(shape=feature.shape)
    dtype = feature.kind if feature.kind in ("int64", "bool") else "float32"
    return kinds.Number(dtype=dtype, shape=feature.shape)


def _planned(fields: Sequence[Field]) -> Iterator[Feature]:
    """The keys of a record that come from the table."""
    for field in fields:
        is_image = isinstance(field.kind, (kinds.Image, kinds.Mask))
        for feature in field.features:
            if feature.key == field.uri_key if is_image else feature.key != field.tfds_boxes_key:
                yield feature


def _type(feature: Feature) -> Any:
    import pyarrow as pa

    of_kind = {"float": pa.float32(), "text": pa.large_string(), "bytes": pa.large_binary()}
    plain = of_kind.get(feature.kind, pa.int64())
    return plain if feature.shape == () else pa.large_list(plain)


def _records(
    directory: str, shard: Shard, fields: Sequence[Field], tally: Tally, suspects: Mapping[int, str]
) -> Iterator[Row]:
    """The rows that became the records of a shard."""
    images = [field for field in fields if isinstance(field.kind, kinds.Image)]
    wanted = list(_planned(fields))
    path = os.path.join(directory, shard.file)
    with storage.local_copy(path) as copy, open(copy, "rb") as file:
        for offset, data in read_records(file):
            record, parts = parse_example(data), frame([data])
            number = int(bytes(record[SOURCE_ID][0]))
            row = {feature.key: _plain(feature, list(record[feature.key])) for feature in wanted}
            uri = row[images[0].uri_key] if images else ""
            warning = suspects.get(number, "")
            outcome = loaded(PlannedRow(number, uri, row), parts, record, images, warning)
            tally.add_record(outcome)
            place = (shard.file, offset, outcome.size, warning, "")
            yield {
                **row,
                SOURCE_ID: number,
                **dict(zip(COPY_OF, place, strict=True)),
                **dict.fromkeys(REJECT_OF, ""),
            }


def _plain(feature: Feature, values: list[Any]) -> Any:
    if feature.kind == "text":
        values = [bytes(value).decode() for value in values]
    return values if feature.shape else values[0]


def _add_rejects(
    directory: str,
    fields: Sequence[Field],
    tallies: Mapping[Shard, Tally],
    rows: Mapping[Shard, list[Row]],
) -> dict[str, int]:
    """Give each shard as many rejected rows as its plan must have had; return the rows by split.

    Nothing says which rejected row was in which split.
    """
    rejects = read_row_list(directory, layout.REJECTS)
    split_rows = {}
    for split, of_split in itertools.groupby(rows, key=lambda shard: shard.split):
        counts = [len(rows[shard]) for shard in of_split]
        total = max(1, sum(counts))
        while any(_size(total, len(counts), i) < count for i, count in enumerate(counts)):
            total += 1
        split_rows[split] = total
    more = len(rejects) + sum(map(len, rows.values())) - sum(split_rows.values())
    if more < 0:
        raise ValueError(f"{layout.REJECTS} lists fewer rows than the shards lack")
    split_rows[next(iter(split_rows))] += more
    first = primary_image(fields)
    nothing = {
        feature.key: [] if feature.shape else {"text": "", "bytes": b""}.get(feature.kind, 0)
        for feature in _planned(fields)
    }
    waiting = iter(rejects)
    for shard, of_shard in rows.items():
        lacking = _size(split_rows[shard.split], shard.count, shard.index) - len(of_shard)
        for number, uri, stage, reason in itertools.islice(waiting, lacking):
            row = {**nothing, SOURCE_ID: int(number), REJECT_OF.stage: stage}
            row |= {REJECT_OF.reason: reason} | dict.fromkeys(COPY_OF, "")
            row |= {COPY_OF.offset: 0, COPY_OF.size: 0} | ({first.uri_key: uri} if first else {})
            rejected = planned_reject(PlannedRow(int(number), uri, row))
            assert rejected is not None
            tallies[shard].add_reject(rejected)
            of_shard.append(row)
    return split_rows


def _size(rows: int, shards: int, index: int) -> int:
    start, stop = balanced_part(rows, index, shards)
    return stop - start


def _with_names(
    directory: str, names: Sequence[str], field: Field, columns: Mapping[str, Any]
) -> Field:
    """A column with the names of its classes: those in the records, else those in TFDS's file."""
    if field.label_key is None or not field.num_classes:
        return field
    file = layout.labels_file(field.label_key)
    if file not in names:
        return replace(field, integer=True)
    lines = storage.read_bytes(os.path.join(directory, file)).decode().split("\n")[:-1]
    labels, texts = columns[field.label_key], columns[field.text_key or ""]
    if field.features[-1].shape:
        labels, texts = labels.flatten(), texts.flatten()
    for label, text in set(zip(labels.to_pylist(), texts.to_pylist(), strict=True)):
        if text and 0 <= label < len(lines):
            lines[label] = text
    return replace(field, names=tuple(lines), num_classes=len(lines))


def _options(document: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    forms = document["featuresDict"]["features"].values()
    options = ConvertOptions().content_options()
    if info["name"] != DATASET_NAME:
        options |= {"name": info["name"], "version": info["version"]}
    if any(form.get("tensor", {}).get("encoding") == "bytes" for form in forms):
        options["image_format"] = "raw"
    if any("boundingBox" in str(form) or "useColormap" in str(form) for form in forms):
        options["tfds_features"] = True
    return options
