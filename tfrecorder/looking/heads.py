"""The head of a record: how long its image is and how it begins, without the rest of it."""

from __future__ import annotations

import hashlib

from tfrecorder.dataset.tfrecord import HEADER_BYTES

#: Enough for the small features before an image and for some thousand bytes of it, which tell two
#: images of the same length apart even where their metadata are the same.
HEAD_BYTES = 4096

_LENGTH_DELIMITED = 0x0A  # field 1, with a length


def head_key(head: bytes, key: str) -> int | None:
    """64 bits that are the same for two records with the same image.

    Args:
        head: a framed record of a tf.train.Example, or its first bytes, as long for all.
        key: of the image.

    Returns:
        None where the head is too short to tell, or has no such image: read the record whole.
    """
    place = _find_image(head, key.encode())
    if place is None:
        return None
    start, length = place
    digest = hashlib.blake2b(length.to_bytes(8, "little"), digest_size=8)
    digest.update(head[start : start + min(length, HEAD_BYTES // 2)])
    return int.from_bytes(digest.digest(), "little")


def _find_image(head: bytes, key: bytes) -> tuple[int, int] | None:
    """Where the only value of a feature begins, and its length."""
    try:
        at, _ = _enter(head, HEADER_BYTES)  # Example: its features
        while at < len(head):
            entry, size = _enter(head, at)  # one entry of the map
            name, name_size = _enter(head, entry)
            if head[name : name + name_size] == key:
                # The feature, field 2 of the entry; its list of bytes; the value.
                feature, _ = _enter(head, name + name_size, tag=0x12)
                values, _ = _enter(head, feature)
                start, length = _enter(head, values)
                enough = start + min(length, HEAD_BYTES // 2) <= len(head)
                return (start, length) if enough else None
            at = entry + size
    except (IndexError, ValueError):
        return None
    return None


def _enter(data: bytes, at: int, tag: int = _LENGTH_DELIMITED) -> tuple[int, int]:
    """Where the content of the field at `at` begins, and its length."""
    if data[at] != tag:
        raise ValueError(f"field {data[at]}")
    size = shift = 0
    while True:
        at += 1
        byte = data[at]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at + 1, size
        shift += 7
