"""What a dataset directory still holds of a row: a search of its own, without a line of ours.

Every file is read as its bytes, as a Parquet file and as JSON, whose texts may be JSON again; names
of files count too.  A number is found as digits and as a float of a record.
"""

from __future__ import annotations

import html
import io
import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow.parquet as pq

#: How many bytes of an image stand for it: of noise, no other image has them.
PIECE = 48


@dataclass(frozen=True)
class Secret:
    """What must not be found.

    Attributes:
        texts: by what they are, such as "uri".
        numbers: likewise.
        images: files of images, by what they are; a piece from the middle of each is looked for.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def pieces(self) -> dict[str, list[bytes]]:
        """The bytes that stand for each of these, by what it is."""
        found = {what: [text.encode()] for what, text in self.texts.items()}
        for what, number in self.numbers.items():
            packed = [struct.pack(form, number) for form in ("<f", "<d")]
            found[what] = [str(number).encode(), *packed]
        for what, data in self.images.items():
            middle = len(data) // 2
            found[what] = [data[middle : middle + PIECE]]
        return found


def traces(folder: str | Path, secret: Secret) -> list[str]:
    """What of a secret is in which file below a folder."""
    found = []
    for path in sorted(Path(folder).rglob("*")):
        name = str(path.relative_to(folder))
        values = [name, *(_values(path.read_bytes()) if path.is_file() else ())]
        found += [f"{name}: {what}" for what in sorted(_found(values, secret))]
    return found


def _found(values: list[Any], secret: Secret) -> set[str]:
    data = b"\n".join(_bytes(value) for value in values)
    numbers = {float(value) for value in values if _is_number(value)}
    of_pieces = {what for what, pieces in secret.pieces.items() if any(p in data for p in pieces)}
    return of_pieces | {what for what, number in secret.numbers.items() if number in numbers}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not math.isnan(value)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


def _values(data: bytes) -> Iterator[Any]:
    """All that the bytes of a file say."""
    yield data
    if data[:4] == b"PAR1":
        table = pq.read_table(io.BytesIO(data))
        yield from _leaves({str(key): of for key, of in (table.schema.metadata or {}).items()})
        yield from _leaves(table.to_pydict())
        return
    yield unquote_to_bytes(data)
    yield data.replace(b'""', b'"')  # of a CSV
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    yield html.unescape(text)
    yield from _leaves(text)


def _leaves(value: Any) -> Iterator[Any]:
    """All values in a value; a text may be JSON, and so may a line of it."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(key)
            yield from _leaves(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, str) and value[:1] in ("{", "[", '"'):
        yield value
        try:
            inner = json.loads(value)
        except ValueError:
            return
        if inner != value:
            yield from _leaves(inner)
    elif value is not None:
        yield value
