"""A schema as JSON values, and as a file to edit: YAML or JSON."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from collections.abc import Mapping
from typing import Any

from tfrecorder.errors import OptionError
from tfrecorder.schema.kinds import KINDS, Kind, Schema, settings


def to_plain(schema: Schema) -> dict[str, Any]:
    """A schema as JSON values: for each column its kind, and the settings that are not defaults.

    >>> from tfrecorder.schema.kinds import Label, Number
    >>> to_plain(Schema(age=Number(dtype="int64"), label=Label()))
    {'age': {'kind': 'number', 'dtype': 'int64'}, 'label': 'label'}
    """
    return {name: plain_kind(kind) for name, kind in schema.fields}


def plain_kind(kind: Kind) -> Any:
    """A kind as JSON values: its word, or its word with the settings that are not defaults."""
    given = {name: _plain_value(value) for name, value in settings(kind).items()}
    return {"kind": kind.word, **given} if given else kind.word


def _plain_value(value: Any) -> Any:
    if isinstance(value, bytes):
        # The only value that JSON cannot express: the default of a column of bytes.
        return {"hex": value.hex()}
    if callable(value):
        return f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    return list(map(_plain_value, value)) if isinstance(value, tuple) else value


def from_plain(columns: Any) -> Schema:
    """The schema that `to_plain` wrote, or that someone wrote by hand.

    Raises:
        OptionError: it is not a schema; the message names the column and the remedy.
    """
    if not isinstance(columns, Mapping):
        raise OptionError.of(
            "schema",
            columns,
            "give the kind of each column, for example image_uri: image, label: label.",
        )
    return Schema({str(name): kind_of(str(name), value) for name, value in columns.items()})


def kind_of(name: str, value: Any) -> Kind:
    """The kind that `plain_kind` wrote for a column.

    Raises:
        OptionError: it is not a kind.
    """
    given = dict(value) if isinstance(value, Mapping) else {"kind": value}
    word = given.pop("kind", None)
    if word not in KINDS:
        near = difflib.get_close_matches(str(word), KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the kinds are {', '.join(KINDS)}."
        raise OptionError.of("schema", ..., f"{name}: there is no kind {word!r}; {hint}")
    cls = KINDS[word]
    names = [item.name for item in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for option in given:
        if option not in names:
            hint = f"it knows {', '.join(names)}." if names else "it has no settings."
            raise OptionError.of("schema", ..., f"{name}: {word} has no setting {option!r}; {hint}")
    return cls(**{option: _value(item) for option, item in given.items()})


def _value(item: Any) -> Any:
    if isinstance(item, Mapping) and set(item) == {"hex"}:
        return bytes.fromhex(item["hex"])
    return item


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """The schema in a YAML or JSON file.

    Raises:
        OptionError: there is no such file, or it holds no schema.
    """
    import yaml

    where = os.path.expanduser(path)
    try:
        with open(where, encoding="utf-8") as file:
            # JSON is YAML, except for tabs.
            read = json.load if where.lower().endswith(".json") else yaml.safe_load
            columns = read(file)
    except OSError as error:
        raise OptionError.of("schema", where, f"cannot be read: {error.strerror}.") from error
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise OptionError.of("schema", where, f"neither YAML nor JSON: {reason}.") from error
    return from_plain(columns)


def write_schema(schema: Schema) -> str:
    """A schema as YAML, one line per column.

    >>> from tfrecorder.schema.kinds import Image, Number
    >>> print(write_schema(Schema(image_uri=Image(), age=Number(default=0.0))), end="")
    image_uri: image
    age: {kind: number, default: 0.0}
    """
    import yaml

    return "".join(
        yaml.safe_dump(
            {name: kind},
            # The settings of a kind are in braces after its column.
            default_flow_style=False if isinstance(kind, str) else None,
            sort_keys=False,
            allow_unicode=True,
            width=10**6,
        )
        for name, kind in to_plain(schema).items()
    )


def as_schema(value: Any) -> Schema:
    """The schema that the option `schema` gives: a Schema, a dict of JSON values, or a path."""
    if isinstance(value, Schema):
        return value
    if isinstance(value, (str, os.PathLike)):
        return read_schema(value)
    return from_plain(value)
