"""TFRecord files compressed as a whole, as TensorFlow's `TFRecordOptions` writes them.

This package never writes such files: JPEG does not shrink, and readers cannot seek in them.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from tfrecorder.format.tfrecord import HEADER_BYTES, is_header, read_records

GZIP = "GZIP"
ZLIB = "ZLIB"

#: Bytes that show how a file is compressed; a record's header is recognised by its checksum.
HEAD_BYTES = HEADER_BYTES

_ONCE = 2**16


def compression_of(head: bytes) -> str:
    """How a whole file is compressed, from its first bytes: "GZIP", "ZLIB", or "" for none.

    The marks are those of RFC 1952 and RFC 1950.

    >>> compression_of(gzip.compress(b"x")), compression_of(zlib.compress(b"x"))
    ('GZIP', 'ZLIB')
    """
    if len(head) < 2 or is_header(head):
        return ""
    if head[:2] == b"\x1f\x8b":
        return GZIP
    return ZLIB if head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0 else ""


def records_of(file: BinaryIO, compression: str) -> Iterator[bytes]:
    """The records of an open file, in order, unpacked on the way.

    Raises:
        ValueError: a record is damaged, or the compressed data cannot be unpacked.
    """
    if not compression:
        yield from read_records(file)
        return
    packed = gzip.GzipFile(fileobj=file) if compression == GZIP else _ZLib(file)
    try:
        yield from read_records(io.BufferedReader(cast(io.RawIOBase, packed)), is_stream=True)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked as {compression}: {error}") from error


class _ZLib(io.RawIOBase):
    """The contents of a file in the form of RFC 1950, as a stream."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = b""
        while not data and not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._file.read(_ONCE)
            data = self._inflate.decompress(packed, len(buffer))  # perhaps from an earlier piece
            if not packed and not data and not self._inflate.eof:
                raise EOFError("the file ends too early")
        buffer[: len(data)] = data
        return len(data)
