"""The JSON documents of a dataset: each of ours ends with its own checksum, and is trusted for it.

A document that was damaged or edited since is refused as a whole, so nothing else asks whether a
value in one has the right type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

import google_crc32c

from tfrecorder import storage
from tfrecorder.core.text import read_json

#: The form number of a plan's files; another number is another form.
PLAN_VERSION = 4

#: What a JSON document can hold.
JsonValue: TypeAlias = (
    "str | int | float | bool | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
)
JsonObject = dict[str, JsonValue]
#: A JSON object whose values nobody has checked yet.
Document = Mapping[str, Any]

_NOTE = re.compile(r"commit ([0-9]{1,15}), plan ([0-9a-f]{64})")

#: What stands between the name of the checksum and its value.
_COLON = b": "


class TfdsSplit(TypedDict):
    """A split in `dataset_info.json`, as TFDS has it: numbers are texts."""

    name: str
    filepathTemplate: str
    numBytes: str
    shardLengths: list[str]


class TfdsInfo(TypedDict, total=False):
    """What is read again of a `dataset_info.json`; it says more."""

    name: str
    version: str
    splits: Sequence[TfdsSplit]


def parse(data: bytes) -> Any:
    """The values of any JSON document.

    Raises:
        ValueError: it is not JSON.
    """
    if data.startswith(storage.LFS_POINTER):
        raise ValueError(f"it is {storage.LFS_WORDS}")
    return read_json(data)


def seal(values: Document, name: str = "crc32c") -> bytes:
    """A JSON object that ends with the CRC32C of all bytes before it.

    Args:
        values: at least one, none of it called `name`.

    >>> seal({"a": 1})
    b'{\\n  "a": 1,\\n  "crc32c": 601410043\\n}\\n'
    """
    inner = json.dumps(values, indent=2).removesuffix("\n}")
    body = f'{inner},\n  "{name}"'.encode() + _COLON
    return body + b"%d\n}\n" % google_crc32c.value(body)


def unseal(data: bytes) -> dict[str, Any]:
    """The values that `seal` was given.

    Raises:
        ValueError: it is not JSON, or not as `seal` wrote it.

    >>> unseal(seal({"a": 1}))
    {'a': 1}
    """
    values = parse(data)
    head, colon, checksum = data.rpartition(_COLON)
    if checksum != b"%d\n}\n" % google_crc32c.value(head + colon) or not isinstance(values, dict):
        raise ValueError("it does not end with its own CRC32C: it has changed since it was written")
    values.popitem()
    return values


def commit_note(commit: int, digest: str) -> str:
    """What `dataset_info.json` says of its commit, in a field that TFDS reads.

    >>> commit_note(3, "ab")
    'commit 3, plan ab'
    """
    return f"commit {commit}, plan {digest}"


def parse_commit_note(info: Any) -> tuple[int, str] | None:
    """The number and the plan's digest of the commit that a `dataset_info.json` stands for.

    None if another tool wrote it.
    """
    match info:
        case {"releaseNotes": dict(notes), "version": str(version)}:
            match = _NOTE.fullmatch(str(notes.get(version)))
            return (int(match[1]), match[2]) if match else None
    return None
