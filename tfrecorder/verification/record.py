"""One record as values: an Example with the keys and types of the schema, or why it is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrecorder.dataset.example import Values, parse_example
from tfrecorder.plan.plan import Plan
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field, primary_image, record_features
from tfrecorder.schema.keys import Feature
from tfrecorder.verification.side_files import is_row_number

#: A fault of one record: its code and its words.
Finding = tuple[str, str]

_TEXT, _NUMBER = "a bytes list", "an int64 list"


class NotOfSchemaError(Exception):
    """A record cannot be read as one of the schema; `.finding` says why."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(code, words)
        self.finding = (code, words)


@dataclass(frozen=True, slots=True)
class Record:
    """A record as plain values; its texts are decoded.

    Attributes:
        encoded, format, shape, filename: of the image, the first one; `format` is "" in a record
            without images.
        row: of the source.
        label, text: of the default schema.
        values: of a stated schema, every key with its values.
    """

    encoded: bytes
    format: str
    shape: tuple[int, int, int]
    filename: str
    row: int
    label: int
    text: str
    values: Mapping[str, Values] | None = None


def read_record(data: bytes, plan: Plan) -> Record:
    """The record in an Example.

    Raises:
        NotOfSchemaError: it is no Example, or has other keys or types than the schema.
    """
    try:
        features = parse_example(data)
    except ValueError as error:
        raise NotOfSchemaError("not_an_example", str(error)) from error
    expected = {feature.key for feature in plan.features}
    if features.keys() != expected:
        missing = ", ".join(sorted(expected - features.keys())) or "none"
        more = ", ".join(sorted(features.keys() - expected)) or "none"
        raise NotOfSchemaError("keys", f"keys missing: {missing}; keys not known: {more}")
    if plan.fields is not None:
        return read_typed(features, plan.fields)
    values = {
        feature.key: one_value(feature, features[feature.key]) for feature in keys.DEFAULT_FEATURES
    }
    row = values[keys.SOURCE_ID]
    if not is_row_number(row):
        raise NotOfSchemaError("type", f"{keys.SOURCE_ID} is {row!r}, which is no row number")
    return Record(
        encoded=values[keys.ENCODED],
        format=values[keys.FORMAT],
        shape=(values[keys.HEIGHT], values[keys.WIDTH], values[keys.CHANNELS]),
        filename=values[keys.FILENAME],
        row=int(row),
        label=values[keys.LABEL],
        text=values[keys.TEXT],
    )


def one_value(feature: keys.Feature, values: Values) -> Any:
    """The single value of a feature, in the type of its kind."""
    number = feature.kind in ("int64", "label")
    if not (is_int64(values) if number else (is_bytes(values) and bool(values))):
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


def is_int64(values: Values) -> bool:
    """True for an int64 list."""
    return isinstance(values, np.ndarray) and values.dtype == np.int64


def is_bytes(values: Values) -> bool:
    """True for a bytes list."""
    return isinstance(values, list)


def read_typed(features: Mapping[str, Values], fields: Sequence[Field]) -> Record:
    """The record of a stated schema, whose keys are known to be right.

    Raises:
        NotOfSchemaError: a key has another type or another number of values than the schema.
    """
    for feature in record_features(fields):
        _check_form(feature, features[feature.key])
    first = primary_image(fields)
    row = one_value(Feature(keys.SOURCE_ID, "text"), features[keys.SOURCE_ID])
    if not is_row_number(row):
        raise NotOfSchemaError("type", f"{keys.SOURCE_ID} is {row!r}, which is no row number")
    if first is None:
        return Record(b"", "", (0, 0, 0), "", int(row), keys.NO_LABEL, "", features)
    made = {one.key: one_value(one, features[one.key]) for one in first.features}
    sizes = [made[f"{first.key}/{name}"] for name in ("height", "width", "channels")]
    return Record(
        encoded=made[f"{first.key}/encoded"],
        format=made[f"{first.key}/format"],
        shape=(sizes[0], sizes[1], sizes[2]),
        filename=made[f"{first.key}/filename"],
        row=int(row),
        label=keys.NO_LABEL,
        text="",
        values=features,
    )


def _check_form(feature: Feature, values: Values) -> None:
    if len(values) == 0 and feature.shape == (None,):
        return  # an empty list has no type in every reader
    if feature.kind in ("int64", "label", "bool"):
        right, form = is_int64(values), "an int64 list"
    elif feature.kind == "float":
        right, form = not is_bytes(values) and not is_int64(values), "a float list"
    else:
        right, form = is_bytes(values), "a bytes list"
    if not right:
        raise NotOfSchemaError("type", f"{feature.key} is not {form}")
    wanted = None if feature.shape == (None,) else math.prod(side or 1 for side in feature.shape)
    if wanted is not None and len(values) != wanted:
        words = f"{feature.key} has {len(values)} values, not {wanted}"
        raise NotOfSchemaError(
            "type", words if feature.shape else words.replace("not 1", "not one")
        )
    if feature.kind == "text":
        for value in values:
            one_value(Feature(feature.key, "text"), [bytes(value)])
