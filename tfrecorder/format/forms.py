"""What a schema, a plan, a done-record and a dataset's metadata must look like to be read."""

from __future__ import annotations

from typing import Any

from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.json_form import (
    anything,
    classes,
    each,
    either,
    null,
    parse,
    record,
    row,
    string,
    table,
    text,
    truth,
    whole,
    word,
)
from tfrecorder.images.limits import FORMATS, RESIZES, VERIFY_LEVELS
from tfrecorder.schema.fields import Field, fields_of, from_json
from tfrecorder.schema.kinds import Schema
from tfrecorder.schema.splits import SPLITS
from tfrecorder.schema.statistics import BOX_NUMBERS

#: The form numbers of a plan's files and of the metadata; another number is another form.
PLAN_VERSION = 2
METADATA_VERSION = 2

#: A form of `json_form`: a document with a form number, whatever else it holds.
VERSIONED = record({"version": anything})

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
    return None if isinstance(value, (int, float)) else "a statistic is not a number"


_TOP = each(row(text, whole()))
_NUMBERS = dict.fromkeys(("min", "max", "mean", "std"), _number)
_BOXES = record(dict.fromkeys(BOX_NUMBERS, record({"count": whole()}, _NUMBERS)))
_OF_COLUMN = either(
    record(
        {"count": whole(), "distinct": whole(), "top": _TOP},
        {"boxes": _BOXES, "missing": whole()},
    ),
    record({"count": whole()}, {**_NUMBERS, "top": null, "boxes": _BOXES, "missing": whole()}),
)
_STATISTICS = table(table(_OF_COLUMN, keys=word(*SPLITS)))

#: The longest side of an array of values.
_LONGEST = 2**31 - 1


def _fields(value: Any) -> str | None:
    """A form of `json_form`: the columns of a plan or a dataset."""
    if fault := each(_FIELD)(value):
        return fault
    try:
        fields = from_json(value)
        schema = Schema({field.column: field.kind for field in fields})
        wanted = [(field.column, field.key) for field in fields_of(schema)]
    except (ArithmeticError, AttributeError, OptionError, TypeError, ValueError) as error:
        return str(error)
    if wanted != [(field.column, field.key) for field in fields]:
        return "the keys are not those of the columns"
    faults = (fault for field in fields if (fault := _field_fault(field)))
    return next(faults, None)


#: What a plan and a dataset's metadata both say about the columns.
_COLUMNS = {
    "fields": _fields,
    "statistics": _STATISTICS,
    # Each takes one byte of memory when rows are counted.
    "source_rows": whole(1, 2**32),
}


def _field_fault(field: Field) -> str | None:
    if field.names is not None and len(field.names) != field.num_classes:
        return f"{field.column}: {field.num_classes} classes have {len(field.names)} names"
    for feature in field.features:
        if any(side is not None and side > _LONGEST for side in feature.shape):
            return f"{field.column}: an array of the shape {feature.shape} is too large"
    return None


#: More shards than any split has; each one is an object in memory before its file is looked at.
_MOST_SHARDS = 10**6

SPLIT = word(*SPLITS)
_OPTIONS = record(
    {"verify": word(*VERIFY_LEVELS), "max_pixels": whole(1)},
    {
        "image_size": either(null, whole(1), row(whole(1), whole(1))),
        "resize": word(*RESIZES),
        "image_format": word(*FORMATS),
        "image_quality": whole(1, 100),
        "apply_exif": truth,
        "background_class": truth,
        "tfds_features": truth,
        "name": text,
        "version": text,
    },
)
_SHAPES = each(row(whole(), whole(), whole()))

_LARGEST_SIDE = 2**31 - 1
_SIDE = whole(0, _LARGEST_SIDE)
_SIDES = either(row(), row(row(_SIDE, _SIDE), row(_SIDE, _SIDE)))
_FIXED_SIDE = either(null, whole(1, _LARGEST_SIDE))
_SHAPE = row(_FIXED_SIDE, _FIXED_SIDE, whole(1, 4))

#: What an appended generation says about those before it.
_BEFORE = record(
    {"plan": string, "rows": whole(1), "image_shapes": table(_SHAPE), "image_sides": _SIDES}
)

#: How far the sources of streams were read; a position has the form its source gives it.
_STREAMS = table(record({"to": anything}, {"from": anything, "spooled": whole()}))

_PLAN = record(
    {
        **_COLUMNS,
        "rows": whole(1),
        "split_rows": table(whole(1), keys=SPLIT),
        "split_shards": table(whole(1, _MOST_SHARDS), keys=SPLIT),
        "base": string,
        "fingerprint": string,
        "options": _OPTIONS,
    },
    {
        "remote": truth,
        "kind": word("conversion", "append", "stream", "compaction"),
        "before": _BEFORE,
        "streams": _STREAMS,
        "spooled": whole(),
        "stands_for": string,
    },
)


def plan_form(value: Any) -> str | None:
    """A form of `json_form`: the fields of a plan, and that they agree with one another."""
    if fault := _PLAN(value):
        return fault
    rows, shards = value["split_rows"], value["split_shards"]
    if list(rows) != list(shards):
        return "split_rows and split_shards are of other splits"
    if sum(rows.values()) != value["rows"]:
        return f"rows: {value['rows']} is not the sum of split_rows"
    if value["source_rows"] < value["rows"]:
        return "source_rows is less than rows"
    more = [split for split in rows if shards[split] > rows[split]]
    return f"split_shards: {more[0]} has more shards than rows" if more else None


#: A form of `json_form`: the fields of a done-record.
DONE = record(
    {
        "plan": string,
        "shard": string,
        "rows": whole(),
        "records": whole(),
        "reasons": table(whole()),
        "suspects": whole(),
        "oriented": whole(),
        "input_bytes": whole(),
        "bytes": whole(),
        "crc32c": whole(0, 2**32 - 1),
        "formats": table(whole()),
        "shapes": _SHAPES,
        "sides": each(row(whole(), whole())),
        "retries": whole(),
        "further": table(_SHAPES),
        "beside": record(dict.fromkeys(("index", "rejects", "suspects"), whole(0, 2**32 - 1))),
    }
)


_SHARD = record(
    {"file": text, "split": SPLIT, "records": whole(), "bytes": whole()}, {"crc32c": whole()}
)

#: Only the parts that readers use.
_METADATA = record(
    {
        **_COLUMNS,
        "shards": each(_SHARD),
        "split_rows": table(whole(1), keys=SPLIT),
        "image_shapes": table(_SHAPE),
        "plan": string,
        "image_sides": _SIDES,
        "options": table(anything),
        "totals": record(
            {
                "formats": table(whole()),
                "reasons": table(whole()),
                "suspects": whole(),
                "oriented": whole(),
            }
        ),
    },
    {"before": _BEFORE, "streams": _STREAMS},
)


def metadata_form(value: Any) -> str | None:
    """A form of `json_form`: the fields of the metadata, and that its counts agree."""
    if fault := _METADATA(value):
        return fault
    records = dict.fromkeys(value["split_rows"], 0)
    for shard in value["shards"]:
        if shard["split"] not in records:
            return f"shards: {shard['file']} is of {shard['split']}, which split_rows does not list"
        records[shard["split"]] += shard["records"]
    more = [split for split, rows in value["split_rows"].items() if records[split] > rows]
    if more or not records:
        return f"split_rows: {more[0]} has fewer rows than records" if more else "it has no split"
    return None


def parse_plan(data: bytes) -> dict[str, Any]:
    """The values of a plan.

    Raises:
        ValueError: it is not a plan, or one of another version.
    """
    plan: dict[str, Any] = parse(data, VERSIONED)
    if plan["version"] != PLAN_VERSION:
        raise ValueError(f"it is of version {plan['version']!r}; this is {PLAN_VERSION}")
    if fault := plan_form(plan):
        raise ValueError(fault)
    return plan


def parse_metadata(data: bytes, path: str) -> dict[str, Any]:
    """The values of a dataset's metadata.

    Raises:
        ValueError: it is not metadata.
        DatasetError: as `refuse_other_version`.
    """
    metadata: dict[str, Any] = parse(data, VERSIONED)
    refuse_other_version(metadata, path)
    if fault := metadata_form(metadata):
        raise ValueError(fault)
    return metadata


def refuse_other_version(metadata: dict[str, Any], path: str) -> None:
    """Raise a DatasetError if the metadata at a path are not of this version of the package."""
    if metadata["version"] != METADATA_VERSION:
        raise DatasetError(
            f"{path} was made by another version of tfrecorder: its form is number "
            f"{metadata['version']!r}, and this version reads number {METADATA_VERSION}. Use that "
            "version, or convert again."
        )
