"""The first form of a plan and of a dataset's metadata, converted to the present form.

It had two ways to say what the columns are: the class names alone for an image with one label, and
"stated" for every other schema.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tfrecorder.schema.fields import fields_of, to_json
from tfrecorder.schema.keys import ENCODED, FILENAME, LABEL, SOURCE_ID, TEXT, Feature
from tfrecorder.schema.kinds import DEFAULT_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa

#: The number of the first form.
VERSION = 1

#: The name under which the rows of a plan give the key of the uris that rejects are listed with.
URI_OF_ROWS = "tfrecorder.plan.uri"

_LABEL_KINDS = ("text", "integer", "none")
_OF_COLUMNS = ("label_kind", "class_names", "num_classes", "stated")


def plan_as_now(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan of the first form, as JSON values, converted to the present form.

    Raises:
        ValueError: it is not a plan of that form.
    """
    return _as_now(plan, "rows")


def metadata_as_now(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A dataset's metadata of the first form, as JSON values, converted to the present form.

    Raises:
        ValueError: it is not metadata of that form.
    """
    found = _as_now(metadata, "split_rows")
    found.setdefault("image_shapes", {ENCODED: found.get("image_shape")})
    return found


def further_values(metadata: Mapping[str, Any], record: Iterable[Feature]) -> dict[str, Any]:
    """What else the first form held for a dataset with this metadata and these keys."""
    shapes = [*metadata["image_shapes"].values(), [None, None, 3]]
    return {"features": {one.key: one.kind for one in record}, "image_shape": shapes[0]}


def digest_of_plan(plan: Mapping[str, Any]) -> str:
    """The digest that identified a plan of the first form."""
    decides = {k: v for k, v in plan.items() if k not in ("version", "base", "remote")}
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def rows_as_now(rows: pa.Table) -> pa.Table:
    """Rows of a plan: those of the first form as they are staged today, others unchanged."""
    import pyarrow as pa

    if "row" not in rows.column_names or SOURCE_ID in rows.column_names:
        return rows
    uris = rows.column("image_uri").combine_chunks()
    columns = {FILENAME: uris, LABEL: rows.column("label"), TEXT: rows.column("text")}
    if "values" in rows.column_names:
        struct = rows.column("values").combine_chunks()
        columns = {one.name: struct.field(one.name) for one in struct.type}
    same = (name for name in columns if name.endswith("/filename") and columns[name].equals(uris))
    found = pa.table({SOURCE_ID: rows.column("row"), **columns})
    return found.replace_schema_metadata({URI_OF_ROWS: next(same, "")})


def names_of_rows(names: Collection[str], key: str) -> list[str]:
    """The names under which rows with such columns hold their number, and the class of a key."""
    if SOURCE_ID in names:
        return [SOURCE_ID, key]
    return ["row", "" if "values" in names else "label"]


def _as_now(found: Mapping[str, Any], rows: str) -> dict[str, Any]:
    try:
        if found["label_kind"] not in _LABEL_KINDS:
            raise ValueError(f"label_kind: {found['label_kind']!r} is not a kind of label")
        columns = found.get("stated") or _default_columns(found, rows)
        kept = {name: value for name, value in found.items() if name not in _OF_COLUMNS}
        return {**kept, **{name: columns[name] for name in ("fields", "statistics", "source_rows")}}
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"its form is not known: {type(error).__name__} {error}") from error


def _default_columns(found: Mapping[str, Any], rows: str) -> dict[str, Any]:
    image, label = fields_of(DEFAULT_SCHEMA)
    counts = found[rows]
    (plain,) = to_json([label])
    plain |= {
        "names": found["class_names"],
        "num_classes": found["num_classes"] or 0,
        "integer": found["label_kind"] == "integer",
    }
    return {
        "fields": [*to_json([image]), plain],
        "statistics": {},
        "source_rows": sum(counts.values()) if isinstance(counts, dict) else counts,
    }
