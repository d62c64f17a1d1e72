"""Records of raw pixels, read without parsing each: their pixels go straight into a batch.

What comes before the pixels is read first.  If it is the same, byte for byte, as in a record that
was parsed, so are its values and the place of its pixels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import google_crc32c

from tfrecorder.format.example import bytes_head, find_features, find_only
from tfrecorder.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, is_header, masked_crc
from tfrecorder.schema.keys import Feature

#: Pixels that begin behind these bytes of a record are parsed.
HEAD_BYTES = 512

#: The most beginnings of records whose values are kept: those of a data set with classes are few.
MOST_HEADS = 4096


class RawRecords:
    """Reads raw pixels into a batch; threads share it.

    Args:
        image: the key of the pixels.
        pixel_bytes: how many each record has.
        features: of one value each, which are read beside the pixels.
        value_of: makes the value of a feature in a record's bytes, from one place to another; None
            if they have another form.
    """

    def __init__(
        self,
        image: str,
        pixel_bytes: int,
        features: Sequence[Feature],
        value_of: Callable[[Feature, bytes, int, int], Any],
    ) -> None:
        self._image = image
        self._pixel_bytes = pixel_bytes
        self.features = features
        self._value_of = value_of
        keys = [image, *(feature.key for feature in features)]
        self._keys = {key.encode(): key for key in keys}
        self._mark = bytes_head(image, pixel_bytes)  # stands before the pixels
        self._known: dict[tuple[int, bytes], list[Any]] = {}

    def read(
        self,
        file: int,
        offset: int,
        size: int,
        pixels: Any,
    ) -> list[Any] | None:
        """The values of a record; its pixels are written to an array.

        Args:
            file: the number of its shard, which is open; -1 if it is not.
            offset: where it begins.
            size: of the record, with its framing.
            pixels: the array, which has its memory one row after the other.

        Returns:
            The values of the features; None if the record is damaged or has not the usual form:
            then all of it has to be parsed.
        """
        head = os.pread(file, HEAD_BYTES, offset) if file >= 0 else b""
        start = head.find(self._mark) + len(self._mark)
        head = head[:start]
        values = self._known.get((size, head)) or self._parsed(head, size)
        if values is None:
            return None
        behind = bytearray(size - start - self._pixel_bytes - FOOTER_BYTES)
        footer = bytearray(FOOTER_BYTES)
        os.preadv(file, [pixels, behind, footer], offset + start)  # too few bytes have another sum
        crc = google_crc32c.value(head[HEADER_BYTES:])
        crc = google_crc32c.extend(google_crc32c.extend(crc, pixels), bytes(behind))
        return values if masked_crc(crc) == int.from_bytes(footer, "little") else None

    def _parsed(self, head: bytes, size: int) -> list[Any] | None:
        """The values in the bytes before the pixels of a record, if these begin behind them."""
        data_bytes = int.from_bytes(head[:8], "little")
        if not is_header(head) or data_bytes != size - HEADER_BYTES - FOOTER_BYTES:
            return None
        places = find_features(head, HEADER_BYTES, size - FOOTER_BYTES, self._keys, once=True)
        if places is None or len(places) < len(self._keys):
            return None
        start = len(head)
        stop = start + self._pixel_bytes
        is_here = find_only(head, *places[self._image]) == slice(start, stop)
        if not is_here or stop > size - FOOTER_BYTES:
            return None
        values = []
        for feature in self.features:
            values.append(self._value_of(feature, head, *places[feature.key]))
        if None in values:
            return None
        if len(self._known) < MOST_HEADS:
            self._known[size, head] = values
        return values
