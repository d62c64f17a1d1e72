"""Prove of some uris that no file below a dataset directory names them, as after a removal.

Every file is read, whatever it is for: its name, its bytes, and the texts in a table, whose pages
are compressed.  A record holds the uris of its images: what is not named has no record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.format.example import varint
from tfrecorder.verification.expectation import unread
from tfrecorder.verification.faults import Fault

#: Bytes of a file that are searched together, and how many uris are searched at once.
_TOGETHER = 2**26
_AT_ONCE = 50

#: What stands before and after a name; a folder may stand before it.
_OTHER = r"[^\w.\-]"


def named(directory: str, uris: Sequence[str]) -> Iterator[Fault]:
    """A fault for each file and each uri that it names."""
    longest = max((len(text) for uri in uris for text in _spellings(uri)), default=0) + 12
    for file in storage.files_below(directory) if uris else ():
        try:
            with storage.local_copy(os.path.join(directory, file)) as copy:
                values = _values(file, copy, longest)
                named_uris = {uri for some in values for uri in _found(some, uris)}
        except (storage.UnreadableError, OSError) as error:
            yield unread(file, error)
        except pa.ArrowException as error:
            yield Fault(file, "unreadable", f"nobody can tell what it names: {error}")
        else:
            for uri in uris:
                if uri in named_uris:
                    yield Fault(file, "named", f"it names {uri!r}, which must be absent")


def _values(file: str, copy: str, longest: int) -> Iterator[pa.Array]:
    """All that a file may name something in, each with a byte before and after it."""
    yield _framed(pa.array([file.encode()], pa.large_binary()))
    with storage.open_seekable(copy) as opened:
        before = b"\n"
        while data := opened.read(_TOGETHER):
            yield _framed(pa.array([before + data], pa.large_binary()))
            before = data[-longest:]
    if file.endswith(".parquet"):
        with pq.ParquetFile(copy) as table:
            for batch in table.iter_batches():
                for column in batch.columns:
                    while pa.types.is_nested(column.type):
                        column = column.flatten()
                    if not pa.types.is_primitive(column.type):
                        yield _framed(column.cast(pa.large_binary()))


def _framed(values: pa.Array) -> pa.Array:
    ends = pa.scalar(b"\n", pa.large_binary())
    return pc.binary_join_element_wise(ends, values, ends, pa.scalar(b"", pa.large_binary()))


def _found(values: pa.Array, uris: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(uris), _AT_ONCE):
        group = uris[start : start + _AT_ONCE]
        if _any(values, group):
            yield from (uri for uri in group if _any(values, [uri]))


def _any(values: pa.Array, uris: Sequence[str]) -> bool:
    names = {text for uri in uris for text in _spellings(uri)}
    whole = {b"\n" + varint(len(uri.encode())) + uri.encode() for uri in uris}
    texts, stored = ("|".join(map(_literal, some)) for some in (names, whole))
    pattern = f"(?s){_OTHER}({texts}){_OTHER}|{stored}"
    return bool(pc.any(pc.match_substring_regex(values, pattern)).as_py())


def _spellings(uri: str) -> set[bytes]:
    """A uri as texts, JSON, JSON in JSON, and the cells of a CSV have it."""
    once = json.dumps(uri)[1:-1]
    texts = (uri, once, json.dumps(once)[1:-1], uri.replace('"', '""'))
    return {text.encode(errors="surrogatepass") for text in texts}


def _literal(text: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text)
