"""A cell of a column of images: the uri of a file, or the file itself in one of several forms.

Of images that came as bytes, only names and sizes are kept, each identified by the hash of its
content.  The bytes stay in the source and are read again when they are needed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.option import is_text
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.images.header import Reject, ending_of
from tfrecorder.images.reencode import file_of, is_picture

#: How many digits of the hash a file's name has: 128 bits, which no two images share by chance.
DIGITS = 32

_DATA = "data:"
_SPACE = re.compile(r"\s+")

#: A percent sign that stands for itself.
_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")

#: How many cells a thread hashes at a time, and how many such blocks are under way.
TOGETHER = 8
AHEAD = 4


class File(NamedTuple):
    """An image file in a cell.

    Attributes:
        data: its bytes.
        name: the name that came with it; "" if there was none.
    """

    data: bytes
    name: str


class Content(NamedTuple):
    """What is known about an image file without its bytes.

    Attributes:
        file: the name made from its content: the hash, and the extension of its format.
        name: what the record calls it.
        size: in bytes.
        crc32c: of the bytes.
    """

    file: str
    name: str
    size: int
    crc32c: int


@dataclass(frozen=True)
class CellFault:
    """Takes the place of a cell that should hold an image and does not.

    Attributes:
        reason: what is wrong with it.
        shown: the cell, shortened.
    """

    reason: str
    shown: str


def file_in(cell: Any) -> Any:
    """The `File` in a cell, else the uri in it, or a `CellFault`; anything else as it is.

    Args:
        cell: bytes; {"bytes": …, "path": …} as Hugging Face has it, where either may be None; a
            Pillow picture; a `data:` uri; or anything else.

    >>> file_in(b"GIF89a"), file_in("data:;base64,R0lG").data, file_in("a.jpg")
    (File(data=b'GIF89a', name=''), b'GIF', 'a.jpg')
    >>> file_in({"bytes": None, "path": "a.jpg"})
    'a.jpg'
    """
    if isinstance(cell, (bytes, bytearray, memoryview)):
        return File(bytes(cell), "")
    if isinstance(cell, str):
        return _of_data_uri(cell) if is_data_uri(cell) else cell
    if isinstance(cell, Mapping):
        return _of_mapping(cell)
    if is_picture(cell):
        try:
            return File(file_of(cell), "")
        except Reject as reject:
            return CellFault(f"a picture of Pillow: {reject}", repr(cell)[:99])
    return cell


def content_in(cell: Any) -> Any:
    """Like `file_in`, with a `Content` in place of the `File`."""
    file = file_in(cell)
    if not isinstance(file, File):  # or already a `Content`, for an image that was spooled
        return file
    name = name_of(file.data)
    return Content(name, file.name or name, len(file.data), google_crc32c.value(file.data))


def name_of(data: bytes) -> str:
    """A file name made from the file's content.

    >>> name_of(b"GIF89a")
    '610f5ae4d76e332636a17bd357fd6ce9.gif'
    """
    return hashlib.sha256(data).hexdigest()[:DIGITS] + ending_of(data)


def is_data_uri(text: str) -> bool:
    """True if a text holds an image itself.

    >>> is_data_uri("DATA:image/png;base64,iVBORw0KGgo="), is_data_uri("data/a.png")
    (True, False)
    """
    return text[: len(_DATA)].lower() == _DATA


def _of_data_uri(text: str) -> File | CellFault:
    head, comma, body = text[len(_DATA) :].partition(",")
    if not comma:
        return CellFault("a data: uri without a comma before its data", text[:60])
    data = _unquoted(body.encode(errors="replace"))
    if not head.rstrip().lower().endswith(";base64"):
        return File(data, "")
    try:
        whole = _SPACE.sub("", data.decode("ascii")).rstrip("=")
        return File(base64.b64decode(whole + "=" * (-len(whole) % 4), validate=True), "")
    except (binascii.Error, ValueError) as error:
        return CellFault(f"a data: uri whose data are not base64: {error}", text[:60])


def _unquoted(data: bytes) -> bytes:
    """What `urllib.parse.unquote_to_bytes` gives, in a tenth of the time.

    Quoted-printable is the same but for its sign, and its decoder is written in C.

    >>> _unquoted(b"a%20b=%c3%BC"), _unquoted(b"100%, %2%41")
    (b'a b=\\xc3\\xbc', b'100%, %2A')
    """
    if b"%" not in data:
        return data
    escaped = _NO_ESCAPE.sub(b"%25", data).replace(b"=", b"=3D")
    return binascii.a2b_qp(escaped.replace(b"%", b"="))


def _of_mapping(cell: Mapping[Any, Any]) -> Any:
    data = cell.get("bytes")
    path = cell.get("path")
    path = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(path, (str, type(None))) or not {"bytes", "path"} & {*cell}:
        return CellFault('a dict other than {"bytes": …, "path": …}', _keys(cell))
    if data is None:
        return path or None
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return CellFault(f'a dict whose "bytes" are of type {type(data).__name__}', _keys(cell))
    name = storage.unsigned(path or "")
    if not is_text(name):
        return CellFault(
            f'a dict whose "path" is not valid Unicode: {ascii(name)[:60]}',
            _keys(cell),
        )
    return File(bytes(data), name)


def _keys(cell: Mapping[Any, Any]) -> str:
    return f"a dict with the keys {list(cell)}"[:99]


#: Numbers of rows, in ascending order.
Rows = Sequence[int] | np.ndarray

#: The cells of some rows of a column, wherever they are, in the order of the rows.
Cells = Callable[[Rows], Iterator[Any]]


@dataclass(frozen=True)
class Contents:
    """What is known about a column's images that came as bytes, by row of the source.

    Attributes:
        files: the name made from each content; "" for a row that has a uri instead.
        names: what the record calls them.
        sizes: in bytes; -1 for a row that has a uri instead.
        crcs: the CRC32C of each; -1 likewise.
        cells: the cells that hold them.
    """

    files: pa.LargeStringArray
    names: pa.LargeStringArray
    sizes: np.ndarray
    crcs: np.ndarray
    cells: Cells

    def data(self, rows: Rows) -> Iterator[bytes]:
        """The files of some rows, in their order, which is ascending."""
        with ThreadPool() as pool:
            yield from map_ahead(pool, _data, self.cells(rows), ahead=TOGETHER * AHEAD)

    def file(self, row: int) -> bytes:
        """The file of a row."""
        return _data(next(self.cells([row])))

    def holds(self, rows: Any) -> Any:
        """True for rows whose image came as bytes."""
        return self.sizes[rows] >= 0

    def first_rows(self, wanted: pa.Array) -> np.ndarray:
        """A row for each of these files, in ascending order."""
        rows = np.flatnonzero(pc.is_in(self.files, value_set=wanted).to_numpy(zero_copy_only=False))
        again = pd.Series(self.files.take(rows).dictionary_encode().indices.to_numpy()).duplicated()
        return rows[~again.to_numpy()]


def _data(cell: Any) -> bytes:
    file = file_in(cell)
    assert isinstance(file, File)
    return file.data
