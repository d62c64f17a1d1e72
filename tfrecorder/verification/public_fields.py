"""The columns and options of a dataset whose manifests are lost, by its public files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

import pyarrow as pa

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.documents import parse
from tfrecorder.format.example import Values
from tfrecorder.format.plan import PlannedRow
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.foreign_keys import TfdsKey, tfds_keys
from tfrecorder.schema.fields import Field, Fields, fields_of
from tfrecorder.schema.keys import SOURCE_ID, Feature
from tfrecorder.schema.kinds import (
    FILES,
    Boxes,
    Bytes,
    File,
    Image,
    Kind,
    Label,
    Labels,
    Mask,
    Number,
    Schema,
    Text,
)
from tfrecorder.verification.expectation import Expectation
from tfrecorder.writing.public_files import DATASET_NAME


class Form(TypedDict, total=False):
    """What is read of the form of a feature in `features.json`, and of the forms inside of it."""

    pythonClassName: str
    image: Form
    tensor: Form
    sequence: Form
    feature: Form
    dtype: str
    encoding: str
    encodingFormat: str
    useColormap: bool


_COLUMNS = {"image": "image_uri", "image/class": "label", "image/segmentation/class": "mask_uri"}
_BOXES = Field("boxes", Boxes(), "image/object")


def known_fields(expected: Expectation, known: Commit | None) -> Fields:
    """The columns of the dataset.

    Args:
        known: the newest commit whose manifest is sound.
    """
    if known is not None and known.number == expected.note[0]:
        return known.plan.fields
    document = parse(expected.read_whole(layout.FEATURES))
    background = layout.LABEL_MAP_CSV in storage.names(expected.directory)
    fields = _fields(document["featuresDict"]["features"], tfds_keys(document), background)
    if known is None:
        return fields
    counts = {field.label_key: field.num_classes for field in fields}
    return tuple(
        replace(field, num_classes=counts.get(field.label_key)) if field.label_key else field
        for field in known.plan.fields
    )


def _fields(
    forms: Mapping[str, Form],
    every: Iterable[TfdsKey],
    background: bool,
) -> Fields:
    """The columns that make these features, without the names of their classes."""
    features = {key.feature.key: key for key in every}
    boxes = f"{_BOXES.key}/bbox"
    taken = {SOURCE_ID}
    columns = {}
    for key, tfds_key in features.items():
        if key in taken:
            continue
        stem, _, last = key.rpartition("/")
        column = stem
        kind: Kind
        if last == "encoded" and f"{stem}/format" in features:
            column = f"{stem}_uri"
            form = forms[key].get("image", {})
            mask = Mask(tfds_features="useColormap" in form)
            is_image = form or f"{stem}/height" in features  # raw pixels have no form of TFDS's
            depth = 16 if form.get("dtype") == "uint16" else 8
            plain = Image(depth=depth) if is_image else File()
            kind = mask if "encodingFormat" in form else plain
        elif last == "label" and f"{stem}/text" in features:
            kind = Labels() if tfds_key.feature.shape else Label()
        elif key in (boxes, *_BOXES.edges):
            stem = _BOXES.key
            column = _BOXES.column
            label = "box_label" if f"{stem}/class/label" in features else None
            tfds = boxes in features
            kind = Boxes(
                label=label,
                background_class=background,
                tfds_features=tfds,
            )
        else:
            column = key
            stem = key
            kind = _kind(tfds_key.feature, forms[key])
        column = _COLUMNS.get(stem, column)
        columns[column] = kind
        taken |= {feature.key for feature in Field(column, kind, stem).features}
    return tuple(
        replace(field, num_classes=features[field.label_key].classes or 0)
        if field.label_key
        else field
        for field in fields_of(Schema(columns))
    )


def _kind(feature: Feature, form: Form) -> Kind:
    """The kind of a column with one key."""
    inner = form["sequence"]["feature"] if "sequence" in form else form
    if feature.kind == "text":
        kind = Text if inner["pythonClassName"].endswith(".Text") else Bytes
        return kind(shape=feature.shape)
    dtype = feature.kind if feature.kind in ("int64", "bool") else "float32"
    return Number(dtype=dtype, shape=feature.shape)


def planned_features(fields: Sequence[Field]) -> Iterator[Feature]:
    """The keys of a record that come from the table."""
    for column in fields:
        is_file = isinstance(column.kind, FILES)
        for feature in column.features:
            if feature.key == column.uri_key if is_file else feature.key != column.tfds_boxes_key:
                yield feature


def arrow_type(feature: Feature) -> pa.DataType:
    of_kind = {"float": pa.float32(), "text": pa.large_string(), "bytes": pa.large_binary()}
    plain = of_kind.get(feature.kind, pa.int64())
    return plain if feature.shape == () else pa.large_list(plain)


def value_of(feature: Feature, values: Values) -> object:
    """What a table holds of the values of a record."""
    cells: list[object] = [*values] if isinstance(values, list) else values.tolist()
    if feature.kind == "text":
        cells = [bytes(value).decode() for value in values]
    return cells if feature.shape else cells[0]


def empty_value(feature: Feature) -> object:
    """What a table holds for a row whose value is lost."""
    return [] if feature.shape else {"text": "", "bytes": b""}.get(feature.kind, 0)


def with_names(
    expected: Expectation,
    field: Field,
    rows: Iterable[PlannedRow],
) -> Field:
    """A column with the names of its classes: those that it has or records have, else TFDS's.

    Args:
        rows: of records, by key.
    """
    if field.label_key is None or field.text_key is None or not field.num_classes:
        return field
    file = layout.labels_file(field.label_key)
    if file not in storage.names(expected.directory):
        return replace(field, integer=True)
    lines = expected.read(file).decode().split("\n")[:-1]
    lines[: len(field.names or ())] = field.names or ()
    for row in rows:
        labels = row.numbers(field.label_key)
        texts = row.texts(field.text_key)
        for label, text in zip(labels, texts, strict=True):
            if text and 0 <= label < len(lines):
                lines[label] = text
    return replace(field, names=tuple(lines), num_classes=len(lines))


def public_options(expected: Expectation) -> dict[str, object]:
    """The options of a dataset whose manifests are all lost."""
    document = parse(expected.read_whole(layout.FEATURES))
    forms: Mapping[str, Form] = document["featuresDict"]["features"]
    options = ConvertOptions().content_options()
    name = (expected.info or {})["name"]
    if name != DATASET_NAME:
        options["name"] = name
    if any(form.get("tensor", {}).get("encoding") == "bytes" for form in forms.values()):
        options["image_format"] = "raw"
    return options
