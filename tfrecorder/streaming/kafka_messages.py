"""From a message of a Kafka topic to a row: nothing here contacts a broker."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from tfrecorder.core.checks import OneOf
from tfrecorder.core.option import Fault, option
from tfrecorder.options.option import Options
from tfrecorder.streaming.stream_source import Cells, Unusable

#: The column of a message's key, for `split_by="key"`.
KEY_COLUMN = "key"


def _check_field(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "give the name of a field."


@dataclass(frozen=True, kw_only=True)
class KafkaOptions(Options):
    """How messages hold images and columns, and what to do where some are lost.

    Attributes:
        value: "json": an object whose fields are the columns of a row. "bytes": an image file; the
            columns are the headers, as texts.
        image: the column of the image: the field that holds its uri.
        image_bytes: the field of a JSON object that holds an image file in base64 instead.
        on_lost: what to do if the broker has deleted messages before they were read.  "raise" is an
            error; "skip" warns and continues with the earliest message that is still there.

    Raises:
        OptionError: a value that is not one of these.
    """

    value: str = option("json", OneOf("json", "bytes"))
    image: str = option("image_uri", _check_field)
    image_bytes: str = option("image_bytes", _check_field)
    on_lost: str = option("raise", OneOf("raise", "skip"))

    def _conflicts(self) -> Iterator[Fault]:
        if self.image == self.image_bytes:
            yield "image_bytes", "`image` is the same field; give another."


class _Poisoned(Exception):
    """A message that does not have the form it should; worded as a reject."""


def row_of(
    name: str,
    key: bytes | str | None,
    value: bytes | str | None,
    headers: Iterable[tuple[str, Any]] | None,
    options: KafkaOptions,
) -> Cells:
    """The row of a message; `Unusable`, with a reason, if it has none.

    Args:
        name: the message's name: TOPIC/PARTITION/OFFSET.
        key: becomes the column `key` if it is text and the message has no such column.

    >>> row_of("photos/0/7", b"cam 1", b'{"image_uri": "a.jpg", "label": 3}', None, KafkaOptions())
    {'image_uri': 'a.jpg', 'label': 3, 'key': 'cam 1'}
    >>> row_of("photos/0/8", None, b"hello", None, KafkaOptions()).reason
    'bad_json: the value is not JSON: Expecting value: line 1 column 1 (char 0)'
    """
    try:
        if value is None:
            raise _Poisoned("no_value: the message has no value")
        data = value.encode() if isinstance(value, str) else bytes(value)
        if options.value == "bytes":
            row = _texts(headers)
            row[options.image] = {"bytes": data, "path": name}
        else:
            row = _fields(data)
            _place_image(row, name, options)
    except _Poisoned as poisoned:
        return Unusable(name, str(poisoned))
    text = _text(key)
    if text is not None:
        row.setdefault(KEY_COLUMN, text)
    return row


def _fields(data: bytes) -> dict[str, Any]:
    """The fields of a JSON object."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse_constant)
        if "\\u" in text:  # half of a surrogate pair is not text, and no file could hold it
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _Poisoned(f"bad_json: the value is not JSON: {error}") from error
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise _Poisoned(f"bad_json: the value is not a JSON object with columns, but a {kind}")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _place_image(row: dict[str, Any], name: str, options: KafkaOptions) -> None:
    """Put the image into its column if it came as base64."""
    encoded = row.pop(options.image_bytes, None)
    if encoded is not None:
        row[options.image] = {"bytes": _decoded(encoded, options.image_bytes), "path": name}
        return
    uri = row.get(options.image)
    if uri is None or uri == "":
        words = f"the message has neither {options.image} nor {options.image_bytes}"
        raise _Poisoned(f"no_image: {words}")
    if not isinstance(uri, str):
        raise _Poisoned(f"bad_uri: {options.image} is not a text, but a {type(uri).__name__}")


def _decoded(encoded: Any, field: str) -> bytes:
    if not isinstance(encoded, str):
        kind = type(encoded).__name__
        raise _Poisoned(f"bad_base64: {field} is not a text in base64, but a {kind}")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Poisoned(f"bad_base64: {field} is not base64: {error}") from error


def _texts(headers: Iterable[tuple[str, Any]] | None) -> dict[str, Any]:
    """The headers of a message; if a name occurs twice, the last one counts."""
    texts = {}
    for name, value in headers or ():
        text = _text(value)
        if text is None and value is not None:
            raise _Poisoned(f"bad_header: {name[:80]!r} is not UTF-8 text")
        texts[name] = text
    return texts


def _text(data: bytes | str | None) -> str | None:
    """Bytes as text; None if they are not UTF-8."""
    if data is None or isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
