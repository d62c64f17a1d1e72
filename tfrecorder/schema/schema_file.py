"""A schema as JSON values, and as a file to edit: YAML or JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
from collections.abc import Mapping
from typing import Any

from tfrecorder.core.text import decoded, distinct, read_json, read_yaml, typed
from tfrecorder.errors import MissingFileError, OptionError
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
    """The schema that `to_plain` wrote, or that someone wrote by hand, also with kinds.

    >>> from tfrecorder.schema.kinds import Image, Label
    >>> from_plain({"image_uri": Image, "label": Label(), "age": "number"})
    Schema(image_uri=Image(), label=Label(), age=Number())

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
    """The kind of a column: as `plain_kind` wrote it, or a `Kind` or its class.

    Raises:
        OptionError: it is not a kind.
    """
    if isinstance(value, Kind):
        return value
    if isinstance(value, type) and issubclass(value, Kind):
        return value()
    given = dict(value) if isinstance(value, Mapping) else {"kind": value}
    word = given.pop("kind", None)
    if not isinstance(word, str) or word not in KINDS:
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
        with contextlib.suppress(TypeError, ValueError):
            return bytes.fromhex(item["hex"])
        raise OptionError.of("schema", ..., f"hex: {item['hex']!r} is not hexadecimal digits.")
    return item


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """The schema in a YAML or JSON file.

    Raises:
        MissingFileError: there is no such file.
        OptionError: it holds no schema.
    """
    where = os.path.expanduser(path)
    try:
        with open(where, "rb") as file:
            text = decoded(file.read())
        # JSON is YAML, except for tabs.
        if where.lower().endswith(".json"):
            columns = read_json(text, object_pairs_hook=distinct)
        else:
            columns = _typed_columns(read_yaml(text))
    except FileNotFoundError as error:
        words = "cannot be read: there is no such file."
        raise MissingFileError.of("schema", where, words) from error
    except OSError as error:
        raise OptionError.of("schema", where, f"cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise OptionError.of("schema", where, f"neither YAML nor JSON: {error}.") from error
    try:
        return from_plain(columns)
    except RecursionError:  # deep enough to be read, and too deep to be shown
        raise OptionError.of("schema", where, "its values are nested too deeply.") from None


#: The settings that are numbers, truths or sizes; all others are names.
_TYPED = (
    "shape",
    "required",
    "depth",
    "upright",
    "tfds_features",
    "background_class",
    "target",
    "max_bytes",
)

_WHOLE = re.compile("0|-?[1-9][0-9]*")


def _typed_columns(columns: Any) -> Any:
    """The columns of a schema in YAML, whose names stay as they are written, also `no`."""
    if not isinstance(columns, dict):
        return columns
    typed_columns = {}
    for name, kind in columns.items():
        is_named = not isinstance(kind, dict)
        word = kind if is_named else kind.get("kind")
        settings = {} if is_named else {key: _setting(word, key, kind[key]) for key in kind}
        typed_columns[name] = str(word) if is_named else settings
    return typed_columns


def _setting(
    word: Any,
    name: str,
    value: Any,
) -> Any:
    """A setting of a kind of column, by the word of the kind, with its type."""
    if name in _TYPED or (name == "default" and word == "number"):
        return typed(value)
    if isinstance(value, list):
        return [_setting(word, "", item) for item in value]
    if isinstance(value, dict):
        return {key: str(item) for key, item in value.items()}
    if name == "default" and word == "label" and _WHOLE.fullmatch(value):
        return typed(value)
    return None if name and typed(value) is None else str(value)


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
    """The schema that the option `schema` gives: a Schema, a dict of kinds, or a path."""
    if isinstance(value, Schema):
        return value
    if isinstance(value, (str, os.PathLike)):
        return read_schema(value)
    return from_plain(value)
