"""One record: is it an Example of the schema that tells the truth about its image and its label?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrecorder import schema
from tfrecorder.checking.side_files import is_row_number
from tfrecorder.examples import Values, parse_example
from tfrecorder.images import jpeg, png
from tfrecorder.images.header import Header
from tfrecorder.images.rejects import Reject
from tfrecorder.plan import Plan, PlannedRow

#: A fault of one record: its code and its words.
Finding = tuple[str, str]

_TEXT, _NUMBER = "a bytes list", "an int64 list"
_SHAPE = (schema.HEIGHT, schema.WIDTH, schema.CHANNELS)


class NotOfSchemaError(Exception):
    """A record cannot be read as one of the schema; `.finding` says why."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(code, words)
        self.finding = (code, words)


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the default schema as plain values; its texts are decoded."""

    encoded: bytes
    format: str
    shape: tuple[int, int, int]
    filename: str
    row: int
    label: int
    text: str


def read_record(data: bytes) -> Record:
    """The record in an Example.

    Raises:
        NotOfSchemaError: it is no Example, or has other keys or types than the schema.
    """
    try:
        features = parse_example(data)
    except ValueError as error:
        raise NotOfSchemaError("not_an_example", str(error)) from error
    expected = {feature.key for feature in schema.DEFAULT_FEATURES}
    if features.keys() != expected:
        missing = ", ".join(sorted(expected - features.keys())) or "none"
        more = ", ".join(sorted(features.keys() - expected)) or "none"
        raise NotOfSchemaError("keys", f"keys missing: {missing}; keys not known: {more}")
    values = {
        feature.key: _one_value(feature, features[feature.key])
        for feature in schema.DEFAULT_FEATURES
    }
    row = values[schema.SOURCE_ID]
    if not is_row_number(row):
        raise NotOfSchemaError("type", f"{schema.SOURCE_ID} is {row!r}, which is no row number")
    return Record(
        encoded=values[schema.ENCODED],
        format=values[schema.FORMAT],
        shape=(values[schema.HEIGHT], values[schema.WIDTH], values[schema.CHANNELS]),
        filename=values[schema.FILENAME],
        row=int(row),
        label=values[schema.LABEL],
        text=values[schema.TEXT],
    )


def _one_value(feature: schema.Feature, values: Values) -> Any:
    """The single value of a feature, in the type of its kind."""
    number = feature.kind in ("int64", "label")
    if not (_is_int64(values) if number else _is_bytes(values)):
        words = f"{feature.key} is not {_NUMBER if number else _TEXT}"
        raise NotOfSchemaError("type", words)
    if len(values) != 1:
        raise NotOfSchemaError("type", f"{feature.key} has {len(values)} values, not one")
    value = values[0]
    if number:
        return int(value)
    if feature.kind == "image":
        return value
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise NotOfSchemaError("type", f"{feature.key} is no UTF-8: {error}") from error


def _is_int64(values: Values) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == np.int64


def _is_bytes(values: Values) -> bool:
    return isinstance(values, list) and bool(values)


def check_label(record: Record, plan: Plan) -> Iterator[Finding]:
    """Where a record contradicts the dataset's vocabulary."""
    if plan.label_kind == "none":
        if record.label != schema.NO_LABEL or record.text:
            yield (
                "label",
                f"label {record.label} and text {record.text!r} in a dataset without labels",
            )
    elif not 0 <= record.label < plan.num_classes:
        yield "label", f"label {record.label} is none of the {plan.num_classes} classes"
    else:
        name = str(record.label) if plan.class_names is None else plan.class_names[record.label]
        if record.text != name:
            yield "label", f"label {record.label} is {name!r}, but the text is {record.text!r}"


def check_image(record: Record, plan: Plan) -> tuple[Header | None, list[Finding]]:
    """The header of a record's image, if it can be read, and where the record contradicts it."""
    read_header = {"jpeg": jpeg.read_header, "png": png.read_header}.get(record.format)
    if read_header is None:
        words = f"{schema.FORMAT} is {record.format!r}, neither 'jpeg' nor 'png'"
        return None, [("format", words)]
    try:
        header = read_header(record.encoded, None)
    except Reject as reject:
        # verify="none" keeps what cannot be read, and says so by the shape (0, 0, 0).
        if plan.options.get("verify") == "none" and record.shape == (0, 0, 0):
            return None, []
        return None, [("format", f"the image is no readable {record.format}: {reject}")]
    found = (header.height, header.width, header.channels)
    if found == record.shape:
        return header, []
    says, shows = (" x ".join(map(str, shape)) for shape in (record.shape, found))
    words = f"height x width x channels are {says}, but the image's are {shows}"
    return header, [("shape", words)]


def check_against_plan(record: Record, planned: PlannedRow) -> Iterator[Finding]:
    """Where a record is not what was planned for its row."""
    pairs = (
        (schema.FILENAME, record.filename, planned.image_uri),
        (schema.LABEL, record.label, planned.label),
        (schema.TEXT, record.text, planned.text),
    )
    for key, found, wanted in pairs:
        if found != wanted:
            yield "row", f"row {record.row}: {key} is {found!r}, but {wanted!r} was planned"
