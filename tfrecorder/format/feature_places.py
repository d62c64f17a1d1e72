"""Where values are in a serialized tf.train.Example, found without parsing the rest of it."""

from __future__ import annotations

from collections.abc import Mapping

from tfrecorder.format.example import ONE, THREE, TWO, read_varint

#: Where features begin and end, by key.
Places = dict[str, tuple[int, int]]


def find_features(
    data: bytes, at: int, end: int, keys: Mapping[bytes, str], once: bool = False
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


def find_only(data: bytes, at: int, end: int) -> slice | int | None:
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


def find_value(head: bytes, at: int, key: str) -> tuple[int, int] | None:
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


def _enter(message: bytes, at: int, tag: int = ONE) -> tuple[int, int]:
    """Where the content of the field at `at` begins, and its length; it may end beyond."""
    if message[at] != tag:
        raise ValueError(f"field {message[at]}")
    size = message[at + 1]
    at += 2
    if size >= 0x80:
        size, at = read_varint(message, at - 1)
    return at, size
