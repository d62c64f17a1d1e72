"""The JSON documents of a dataset: each of ours ends with its own checksum, and is trusted for it.

A document that was damaged or edited since is refused as a whole, so nothing else asks whether a
value in one has the right type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import google_crc32c

from tfrecorder.errors import DatasetError

#: The form numbers of a plan's files and of the metadata; another number is another form.
PLAN_VERSION = 3
METADATA_VERSION = 3

#: What stands between the name of the checksum and its value.
_COLON = b": "


def parse(data: bytes) -> Any:
    """The values of any JSON document.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its lists or objects are nested too deeply") from None


def seal(values: Mapping[str, Any], name: str = "crc32c") -> bytes:
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


def parse_metadata(data: bytes, path: str) -> dict[str, Any]:
    """The values of a dataset's metadata, at a path.

    Raises:
        ValueError: it is damaged, or another document.
        DatasetError: another version of the package wrote it.
    """
    metadata = unseal(data)
    if metadata.get("version") != METADATA_VERSION:
        raise DatasetError(
            f"{path} was made by another version of tfrecorder: its form is number "
            f"{metadata.get('version')!r}, and this version reads number {METADATA_VERSION}. Use "
            "that version, or convert again."
        )
    if "shards" not in metadata:
        raise ValueError("it is another document than metadata")
    return metadata
