"""tf.train.Example without TensorFlow: features to bytes, and back, or found in the bytes.

The wire format (protocol buffers, proto3) of tensorflow/core/example/{example,feature}.proto:

    Example    { Features features = 1; }
    Features   { map<string, Feature> feature = 1; }
    Feature    { oneof { BytesList 1; FloatList 2; Int64List 3; } }
    BytesList  { repeated bytes value = 1; }
    FloatList  { repeated float value = 1 [packed]; }
    Int64List  { repeated int64 value = 1 [packed]; }

The bytes are those of `Example.SerializeToString(deterministic=True)`: map entries in the order of
their keys.  (If one key begins another, the longer one comes first, as in upb, Python's protocol
buffers; those of C++ do it the other way round.)  It is hand-written for two reasons.  A bundled
`example_pb2` registers the package `tensorflow` and so breaks any process that also imports
TensorFlow.  And the image, nearly all of a record, is passed on here without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

#: A parsed feature: a list of bytes, or an array of float32 or int64.
Values = list[bytes] | np.ndarray

# Tags, which are field << 3 | wire type: of fields with a length, and of a single unpacked number.
ONE = 0x0A
TWO = 0x12
THREE = 0x1A
_ONE_VARINT = 0x08
_ONE_FLOAT = 0x0D
_BYTES = bytes((ONE,))
_FLOAT = bytes((TWO,))
_INT64 = bytes((THREE,))

#: The values of a record by their keys, as `parse_example` gives them.
Parsed = Mapping[str, Values]

#: Values of at least this many bytes are passed on rather than copied.
_LARGE = 4096

#: Where features begin and end, by key.
Places = dict[str, tuple[int, int]]


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


def encode_parts(features: Mapping[str, Any]) -> list[bytes]:
    """Features as the bytes of a tf.train.Example, in pieces; large bytes are not copied.

    Small pieces are joined, so there are only a few, and these are quick to sum and write.

    Args:
        features: for each key one value, a list of bytes or str, or an array.  bytes and str (as
            UTF-8) become a bytes list, and so does an array of bytes; a float and an array of
            floating point become a float list (float32); an int, a bool and an array of integers
            become an int64 list.  Arrays are flattened in C order.

    Raises:
        TypeError: a value has another type, or is missing.
        OverflowError: an integer is outside -2**63 to 2**63 - 1.
        ValueError: UTF-8 cannot hold a text.

    >>> parse_example(b"".join(encode_parts({"image/height": 375})))
    {'image/height': array([375])}
    """
    parts: list[bytes] = []
    small = []
    keys = _sorted(tuple(features))
    try:
        for key in keys:
            value = features[key]
            if type(value) is int:
                small.append(_int_entry(key, value))
                continue
            if type(value) is str:
                value = value.encode()
            if type(value) is not bytes:
                feature = _feature(value)
                small += (_entry_head(key, len(feature)), feature)
            elif len(value) < _LARGE:
                small += (_small_head(key, len(value)), value)
            else:
                parts += (b"".join((*small, bytes_head(key, len(value)))), value)
                small = []
    except UnicodeEncodeError as error:
        raise ValueError(f"feature {key!r}: the text is not valid Unicode: {error}") from error
    except (TypeError, OverflowError) as error:
        raise type(error)(f"feature {key!r}: {error}") from error
    parts.append(b"".join(small))
    # An Example without any feature is still an Example with an (empty) Features field, as
    # tf.train.Example(features=Features(feature={})) serializes.
    parts[0] = b"\x0a" + varint(sum(map(len, parts))) + parts[0]
    return parts


def _entry_head(key: str, size: int) -> bytes:
    """All of an entry that comes before its Feature of `size` bytes."""
    name = _key_field(key)
    size_field = varint(size)
    return b"\x0a" + varint(len(name) + 1 + len(size_field) + size) + name + b"\x12" + size_field


# In a dataset, most sizes and labels repeat, and texts have few different lengths.
@lru_cache(maxsize=4096)
def _int_entry(key: str, value: int) -> bytes:
    feature = _int64_feature((value,))
    return _entry_head(key, len(feature)) + feature


def bytes_head(key: str, size: int) -> bytes:
    """All of an entry that comes before its only value, of `size` bytes."""
    head = b"\x0a" + varint(size)
    feature = _BYTES + varint(len(head) + size) + head
    return _entry_head(key, len(feature) + size) + feature


_small_head = lru_cache(maxsize=4096)(bytes_head)


@lru_cache(maxsize=64)  # the records of a dataset have the same
def _sorted(keys: tuple[str, ...]) -> list[str]:
    """Keys in the order of their UTF-8; a key comes after those that start with it."""
    if wrong := [key for key in keys if not isinstance(key, str)]:
        raise TypeError(f"feature {wrong[0]!r}: a key must be a str")
    # With a byte that UTF-8 never holds.
    return sorted(keys, key=lambda key: key.encode(errors="surrogatepass") + b"\xff")


@lru_cache(maxsize=1024)
def _key_field(key: str) -> bytes:
    raw = key.encode()
    return b"\x0a" + varint(len(raw)) + raw


def _feature(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        kind = value.dtype.kind
        if kind == "f":
            return _float_feature(value)
        if kind in "iu":
            return _int64_feature(value.ravel().tolist())
        if kind == "S":
            return _bytes_feature(value.tolist())
    if isinstance(value, float):
        return _float_feature(np.array([value]))
    if isinstance(value, int):  # or a bool, as 0 or 1
        return _int64_feature((int(value),))
    if isinstance(value, list):
        return _bytes_feature(value)
    raise _refusal(value)


def _bytes_feature(values: Sequence[bytes | str]) -> bytes:
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    if not all(type(item) is bytes for item in raw):
        raise TypeError(f"a list holds bytes or str; numbers go into a NumPy array: {values!r}")
    body = b"".join(b"\x0a" + varint(len(item)) + item for item in raw)
    return _BYTES + varint(len(body)) + body


def _refusal(value: Any) -> TypeError:
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    return TypeError(f"{value!r} ({kind}) cannot be stored in an Example")


def _int64_feature(values: Sequence[int]) -> bytes:
    return _packed_feature(_INT64, b"".join(varint(_two_complement(value)) for value in values))


def _two_complement(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} is outside int64")
    return value & 0xFFFFFFFFFFFFFFFF


def _float_feature(values: np.ndarray) -> bytes:
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, as in TensorFlow
        return _packed_feature(_FLOAT, values.astype("<f4").tobytes())


def _packed_feature(tag: bytes, packed: bytes) -> bytes:
    body = b"\x0a" + varint(len(packed)) + packed if packed else b""
    return tag + varint(len(body)) + body


def parse_example(data: bytes) -> dict[str, Values]:
    """The features of a serialized tf.train.Example, in the order they are stored.

    Args:
        data: a record of a TFRecord file, without its framing.

    Returns:
        For each key a list of bytes, a float32 array, or an int64 array.

    Raises:
        ValueError: the bytes are not an Example.

    Example:
        >>> tfrecorder.parse_example(record)["image/class/text"]  # doctest: +SKIP
        [b'cat']

    Source: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/example.proto
    """
    return parse_features(data, None, bytes)


def parse_features(
    data: bytes,
    keys: Container[str] | None,
    take: Callable[[memoryview], Any],
) -> dict[str, Any]:
    """`parse_example` for some of the features.

    Args:
        keys: the features that are wanted; None takes all.
        take: turns a value of a bytes list into what is wanted, such as `bytes`; a view is not
            copied.
    """
    features = {}
    try:
        for message in _fields(memoryview(data), ONE):
            for entry in _fields(message, ONE):
                pair = dict(_tagged(entry))
                name = bytes(pair.get(ONE, b"")).decode()
                if keys is None or name in keys:
                    features[name] = parse_feature(pair.get(TWO, memoryview(b"")), take)
    except (IndexError, ValueError) as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error
    return features


def parse_feature(message: memoryview, take: Callable[[memoryview], Any]) -> Any:
    """The values of one feature."""
    values: Any = []
    for tag, body in _tagged(message):
        # Numbers may be packed or not: readers must accept both.
        if tag == ONE:
            values = [take(item) for item in _fields(body, ONE)]
        elif tag == TWO:
            packed = b"".join(_fields(body, ONE, _ONE_FLOAT))
            values = np.frombuffer(packed, dtype="<f4").astype(np.float32)
        elif tag == THREE:
            numbers = [n for item in _fields(body, ONE, _ONE_VARINT) for n in _integers(item)]
            values = np.array(numbers, dtype=np.uint64).astype(np.int64)
    return values


def _integers(item: Any) -> Iterator[int]:
    if isinstance(item, int):
        yield item
        return
    at = 0
    while at < len(item):
        number, at = read_varint(item, at)
        yield number


def _fields(message: memoryview, *tags: int) -> Iterator[Any]:
    """The contents of a message's fields with these tags; the other fields are skipped."""
    return (content for tag, content in _tagged(message) if tag in tags)


def _tagged(message: memoryview) -> Iterator[tuple[int, Any]]:
    """(tag, content) of each field of a message: an int for a varint, else its bytes."""
    at = 0
    end = len(message)
    while at < end:
        tag = message[at]  # for most fields one byte, and so is the size
        at += 1
        if tag >= 0x80:
            tag, at = read_varint(message, at - 1)
        wire = tag & 7
        if wire == 0:
            content, at = read_varint(message, at)
            yield tag, content
            continue
        if wire == 2:
            size = message[at]
            at += 1
            if size >= 0x80:
                size, at = read_varint(message, at - 1)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > end:
            raise ValueError("a field is longer than its message")
        yield tag, message[at : at + size]
        at += size


def text_of(value: bytes) -> str:
    """Stored text; bytes that are not UTF-8 are shown as Python writes them."""
    return value.decode(errors="backslashreplace")


def read_varint(message: bytes | memoryview, at: int) -> tuple[int, int]:
    """The integer that `varint` wrote at a place, and where it ends.

    Raises:
        IndexError, ValueError: there is none.
    """
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("an integer is too long")


def find_features(
    data: bytes,
    at: int,
    end: int,
    keys: Mapping[bytes, str],
    once: bool = False,
) -> Places | None:
    """Where the wanted features are, in an Example of the plain form that all writers give it.

    It takes a tenth of the time of parsing them.

    Args:
        data: holds the Example from `at` to `end`.
        keys: the wanted keys, by their UTF-8.
        once: no key comes twice, so that the search can end with the last wanted one.

    Returns:
        Where the Feature of each key begins and ends, for those that are there; None for another
        form, which only `parse_features` can take.
    """
    places = {}
    try:
        at, size = _enter(data, at)
        if at + size != end:
            return None
        while at < end:
            tag = data[at]
            size = data[at + 1]
            at += 2
            if size >= 0x80:
                size, at = read_varint(data, at - 1)
            stop = at + size
            name = at + 2
            value = at + 2 + data[at + 1]
            if tag != ONE or data[at] != ONE or value - name >= 0x80 or data[value] != TWO:
                return None
            key = keys.get(data[name:value])
            size = data[value + 1]
            value += 2
            if size >= 0x80:
                size, value = read_varint(data, value - 1)
            if value + size != stop:
                return None
            if key is not None:
                places[key] = value, stop
                if once and len(places) == len(keys):
                    return places
            at = stop
    except (IndexError, ValueError):
        return None
    return places if at == end else None


def find_only(
    data: bytes,
    at: int,
    end: int,
) -> slice | int | None:
    """The only value of a Feature from `at` to `end`: the place of bytes, or a packed integer.

    None for any other Feature.
    """
    try:
        tag = data[at]
        values, size = _enter(data, at, tag)
        at, length = _enter(data, values)
        if not values + size == at + length == end:
            return None
        if tag == ONE:
            return slice(at, end)
        value, at = read_varint(data, at)
    except (IndexError, ValueError):
        return None
    if tag != THREE or at != end:
        return None
    return value if value < 2**63 else value - 2**64


def find_value(
    head: bytes,
    at: int,
    key: str,
) -> tuple[int, int] | None:
    """Where the only value of a feature, a text or bytes, begins, and its length.

    Args:
        head: holds an Example, or only its first bytes.
        at: where the Example begins in it.

    Returns:
        None if the head ends before the value begins, or has no such value.

    >>> from tfrecorder.format.example import encode_parts
    >>> example = b"".join(encode_parts({"a": b"xyz"}))
    >>> start, size = find_value(example, 0, "a")
    >>> example[start : start + size]
    b'xyz'
    """
    try:
        end = sum(_enter(head, at))  # of the features
        places = find_features(head, at, end, {key.encode(): key}, once=True) or {}
        values, _ = _enter(head, places[key][0])
        return _enter(head, values)
    except (LookupError, ValueError):
        return None


def _enter(
    message: bytes,
    at: int,
    tag: int = ONE,
) -> tuple[int, int]:
    """Where the content of the field at `at` begins, and its length; it may end beyond."""
    if message[at] != tag:
        raise ValueError(f"field {message[at]}")
    size = message[at + 1]
    at += 2
    if size >= 0x80:
        size, at = read_varint(message, at - 1)
    return at, size
