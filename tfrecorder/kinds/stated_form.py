"""What a stated schema must look like, in a plan or in a dataset's metadata, to be followed."""

from __future__ import annotations

from typing import Any

from tfrecorder.errors import OptionError
from tfrecorder.json_form import (
    anything,
    classes,
    each,
    either,
    null,
    record,
    row,
    table,
    text,
    truth,
    whole,
    word,
)
from tfrecorder.kinds.columns import Schema
from tfrecorder.kinds.fields import Field, fields_of, from_json
from tfrecorder.kinds.statistics import BOX_NUMBERS
from tfrecorder.splits import SPLITS

_FIELD = record(
    {
        "column": text,
        "kind": anything,
        "key": text,
        "names": either(null, each(text)),
        "num_classes": classes,
        "gathered": truth,
    },
    {"integer": truth},
)


def _number(value: Any) -> str | None:
    return None if isinstance(value, (int, float)) else "a statistic is no number"


_TOP = each(row(text, whole()))
_NUMBERS = dict.fromkeys(("min", "max", "mean", "std"), _number)
_BOXES = record(dict.fromkeys(BOX_NUMBERS, record({"count": whole()}, _NUMBERS)))
_OF_COLUMN = either(
    record({"count": whole(), "distinct": whole(), "top": _TOP}, {"boxes": _BOXES}),
    record({"count": whole()}, {**_NUMBERS, "top": null, "boxes": _BOXES}),
)
_STATED = record(
    {
        "fields": each(_FIELD),
        "statistics": table(table(_OF_COLUMN, keys=word(*SPLITS))),
        # A byte of memory each, where rows are counted.
        "source_rows": whole(1, 2**32),
    }
)

#: The longest side of an array of values.
_LONGEST = 2**31 - 1


def stated_form(value: Any) -> str | None:
    """A form of `json_form`: `Plan.stated`."""
    if fault := _STATED(value):
        return fault
    try:
        fields = from_json(value["fields"])
        schema = Schema({field.column: field.kind for field in fields})
        wanted = [(field.column, field.key) for field in fields_of(schema)]
    except (ArithmeticError, AttributeError, OptionError, TypeError, ValueError) as error:
        return f"fields: {error}"
    if wanted != [(field.column, field.key) for field in fields]:
        return "fields: the keys are not those of the columns"
    faults = (fault for field in fields if (fault := _field_fault(field)))
    return next(faults, None)


def _field_fault(field: Field) -> str | None:
    if field.names is not None and len(field.names) != field.num_classes:
        return f"fields: {field.column}: {field.num_classes} classes have {len(field.names)} names"
    for feature in field.features:
        if any(side is not None and side > _LONGEST for side in feature.shape):
            return f"fields: {field.column}: an array of the shape {feature.shape} is too large"
    return None
