"""tf.train.Example without TensorFlow: features to bytes, and back.

The wire format (protocol buffers, proto3) of tensorflow/core/example/{example,feature}.proto:

    Example    { Features features = 1; }
    Features   { map<string, Feature> feature = 1; }
    Feature    { oneof { BytesList 1; FloatList 2; Int64List 3; } }
    BytesList  { repeated bytes value = 1; }
    FloatList  { repeated float value = 1 [packed]; }
    Int64List  { repeated int64 value = 1 [packed]; }

The bytes are those of `Example.SerializeToString(deterministic=True)`: map entries in the order
of their keys.  Hand-written because a bundled `example_pb2` registers the package `tensorflow`
and so breaks any process that also imports TensorFlow, and because the image, nearly all of a
record, is passed on here without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

#: A parsed feature: a list of bytes, or an array of float32 or int64.
Values = list[bytes] | np.ndarray

_LENGTH_DELIMITED = 2
_BYTES, _FLOAT, _INT64 = b"\x0a", b"\x12", b"\x1a"  # the oneof's tags: field << 3 | 2


def varint(value: int) -> bytes:
    """An integer from 0 to 2**64 - 1 in base 128, low bits first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Features as the bytes of a tf.train.Example.

    Args:
        features: for each key one value or a sequence of them.  bytes and str (as UTF-8) become
            a bytes list; float and NumPy floating a float list (float32); int, bool and NumPy
            integer an int64 list.  Arrays are flattened in C order.  NumPy, pandas and Arrow
            scalars count as what they hold.  An empty sequence must be a NumPy array, whose
            dtype says which list it is.

    Raises:
        TypeError: a value of another type, a missing value (None, NA), or an empty list.
        OverflowError: an integer outside -2**63 to 2**63 - 1.

    >>> parse_example(encode_example({"image/height": 375}))
    {'image/height': array([375])}
    """
    return b"".join(encode_parts(features))


def encode_parts(features: Mapping[str, Any]) -> list[bytes]:
    """`encode_example` in pieces whose concatenation is the result; large bytes are not copied."""
    parts: list[bytes] = [b""]
    for key in sorted(features):
        value = features[key]
        if type(value) is str:
            value = value.encode()
        if type(value) is bytes:
            feature, tail = _bytes_head(len(value)), value
        elif type(value) is int:
            feature, tail = _int64_feature((value,)), b""
        else:
            feature, tail = _feature(key, value), b""
        size = len(feature) + len(tail)
        name = _key_field(key)
        size_field = varint(size)
        entry = varint(len(name) + 1 + len(size_field) + size)
        parts.append(b"\x0a" + entry + name + b"\x12" + size_field + feature)
        if tail:
            parts.append(tail)
    size = sum(map(len, parts))
    # An Example without any feature is still an Example with an (empty) Features field, as
    # tf.train.Example(features=Features(feature={})) serializes.
    parts[0] = b"\x0a" + varint(size)
    return parts


@lru_cache(maxsize=1024)
def _key_field(key: str) -> bytes:
    raw = key.encode()
    return b"\x0a" + varint(len(raw)) + raw


def _bytes_head(size: int) -> bytes:
    """All that stands before a single bytes value in its Feature."""
    value = b"\x0a" + varint(size)
    return _BYTES + varint(len(value) + size) + value


def _int64_feature(values: Sequence[int]) -> bytes:
    packed = b"".join(varint(_two_complement(value)) for value in values)
    return _packed_feature(_INT64, packed)


def _two_complement(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} is outside int64")
    return value & 0xFFFFFFFFFFFFFFFF


def _packed_feature(tag: bytes, packed: bytes) -> bytes:
    body = b"\x0a" + varint(len(packed)) + packed if packed else b""
    return tag + varint(len(body)) + body


def _feature(key: str, value: Any) -> bytes:
    """The Feature message of any accepted value."""
    values = _as_list(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return _packed_feature(_FLOAT, value.astype("<f4").tobytes())
    if not values:
        return _empty_feature(key, value)
    kinds = {_kind(key, item) for item in values}
    if kinds == {"bytes"}:
        raw = [item.encode() if isinstance(item, str) else bytes(item) for item in values]
        body = b"".join(b"\x0a" + varint(len(item)) + item for item in raw)
        return _BYTES + varint(len(body)) + body
    if kinds == {"int64"}:
        return _int64_feature([int(item) for item in values])
    if kinds <= {"float", "int64"}:
        return _packed_feature(_FLOAT, struct.pack(f"<{len(values)}f", *values))
    raise TypeError(f"feature {key!r}: text and numbers do not mix in one feature: {value!r}")


def _as_list(value: Any) -> list[Any]:
    """One value, a sequence, an array or an Arrow scalar -> a flat list of scalars."""
    if type(value).__module__.startswith("pyarrow"):
        value = value.as_py() if hasattr(value, "as_py") else value.to_pylist()
    if isinstance(value, np.ndarray):
        return value.ravel().tolist()
    if isinstance(value, (list, tuple)):
        return [_unwrap(item) for item in value]
    if hasattr(value, "to_numpy"):  # a pandas array, index or series
        return value.to_numpy().ravel().tolist()
    return [_unwrap(value)]


def _unwrap(item: Any) -> Any:
    return item.as_py() if hasattr(item, "as_py") else item


def _kind(key: str, item: Any) -> str:
    if isinstance(item, (str, bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(item, (bool, int, np.integer, np.bool_)):
        return "int64"
    if isinstance(item, (float, np.floating)):
        return "float"
    raise TypeError(
        f"feature {key!r}: {item!r} of type {type(item).__name__} has no place in an Example; "
        "give bytes, str, int, float or bool"
    )


def _empty_feature(key: str, value: Any) -> bytes:
    tags = {"i": _INT64, "u": _INT64, "b": _INT64, "S": _BYTES, "U": _BYTES, "O": _BYTES}
    if not isinstance(value, np.ndarray) or value.dtype.kind not in tags:
        raise TypeError(f"feature {key!r}: an empty list has no type; give an empty NumPy array")
    return tags[value.dtype.kind] + b"\x00"


def parse_example(data: bytes) -> dict[str, Values]:
    """The features of a serialized tf.train.Example, in the order in which they are stored.

    Returns:
        For each key a list of bytes, a float32 array, or an int64 array.

    Raises:
        ValueError: the bytes are no Example.
    """
    features: dict[str, Values] = {}
    try:
        for _, message in _fields(memoryview(data), {1}):
            for _, entry in _fields(message, {1}):
                pair = dict(_fields(entry, {1, 2}))
                name = bytes(pair.get(1, b"")).decode()
                features[name] = _parse_feature(pair.get(2, memoryview(b"")))
    except (IndexError, struct.error, UnicodeDecodeError, TypeError) as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    return features


def _parse_feature(message: memoryview) -> Values:
    values: Values = []
    for kind, body in _fields(message, {1, 2, 3}):
        if kind == 1:
            values = [bytes(item) for _, item in _fields(body, {1})]
        elif kind == 2:
            values = np.concatenate([_floats(item) for _, item in _items(body)] or [_floats(b"")])
        else:
            numbers = [number for _, item in _items(body) for number in _integers(item)]
            values = np.array(numbers, dtype=np.uint64).astype(np.int64)
    return values


def _items(body: memoryview) -> list[tuple[int, Any]]:
    """The fields of a FloatList or Int64List, packed or not (readers must accept both)."""
    return list(_fields(body, {1}, scalars=True))


def _floats(item: Any) -> np.ndarray:
    return np.frombuffer(item, dtype="<f4").astype(np.float32)


def _integers(item: Any) -> list[int]:
    if isinstance(item, int):
        return [item]
    numbers, at = [], 0
    while at < len(item):
        number, at = _read_varint(item, at)
        numbers.append(number)
    return numbers


def _fields(message: memoryview, known: set[int], scalars: bool = False) -> list[tuple[int, Any]]:
    """(field number, content) of each known field of a message; unknown ones are passed over."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        field, wire = tag >> 3, tag & 7
        content: Any
        if wire == _LENGTH_DELIMITED:
            size, at = _read_varint(message, at)
            end = at + size
            if end > len(message):
                raise ValueError("not a tf.train.Example: a field is longer than its message")
            content, at = message[at:end], end
        elif wire == 0:
            content, at = _read_varint(message, at)
        elif wire in (1, 5):
            end = at + (8 if wire == 1 else 4)
            content, at = message[at:end], end
        else:
            raise ValueError(f"not a tf.train.Example: wire type {wire}")
        if field in known and (scalars or wire == _LENGTH_DELIMITED):
            found.append((field, content))
    return found


def _read_varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("not a tf.train.Example: an integer is too long")
