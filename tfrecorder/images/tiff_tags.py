"""The tags of a TIFF's first picture, read without trusting them, and bounds on what they cost.

Some tags that decide the pixels Pillow does not obey.  We change the file so that it does.

Pillow keeps the value of every tag, wherever in the file it is: 65,535 tags that all point to the
same megabyte take 65 GB.  It decodes each strip of an uncompressed picture with a call from Python,
and libtiff decodes a whole tile, however little of it is in the picture.  So we check this first.

Source: TIFF 6.0, sections 2 and 8; the BigTIFF design for offsets of 8 bytes; Exif 2.3, section
4.6.3; DNG 1.7 for cameras' raw files.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfrecorder.images.header import Reject, too_expensive, unsupported

SUBFILE_TYPE = 254
WIDTH = 256
HEIGHT = 257
BITS = 258
COMPRESSION = 259
PHOTOMETRIC = 262
WHITE_IS_ZERO = 0
BLACK_IS_ZERO = 1
YCBCR = 6
STRIP_OFFSETS = 273
SAMPLES = 277
STRIP_BYTES = 279
TILE_WIDTH = 322
TILE_HEIGHT = 323
TILE_OFFSETS = 324
TILE_BYTES = 325
PLANAR = 284
PLANES = 2  # one after the other
SUBFILES = 330
SAMPLE_FORMAT = 339
DNG_VERSION = 50706
UNCOMPRESSED = 1
GROUP_4 = 4
JPEG = 7
DEFLATE = 8
UNSIGNED = 1
SIGNED = 2

#: The compressions that Pillow's wheels decode (none, CCITT, Group 3, LZW, JPEG, Deflate, PackBits,
#: LZMA, Zstandard), but for Group 4 and the old form of JPEG, which TIFF withdrew in 1995.
_DECODED = (UNCOMPRESSED, 2, 3, 5, JPEG, DEFLATE, 32771, 32773, 32946, 34925, 50000)

#: Directories that Pillow also reads: EXIF, GPS, interoperability.
_FURTHER = (34665, 34853, 40965)
#: Bytes per value, by type; for whole numbers, also the code that unpacks them.
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
_NUMBERS = {1: "u1", 3: "u2", 4: "u4", 8: "i2", 9: "i4", 13: "u4", 16: "u8"}
_RATIONALS = (5, 10)

#: The most tags in all directories (libtiff does not read a directory with more), and the most
#: fractions in their values; Pillow makes an object of each.
_TAGS = 4096
_FRACTIONS = 20_000
#: The most strips or tiles: this many, plus this many per megapixel.  Each takes 10 us.
_PIECES = 20_000
_PIECES_A_MEGAPIXEL = 4_000
#: The most pixels in all tiles, including those beyond the picture's edges: this many, plus this
#: many per pixel.
_TILED = 1 << 24
_TILED_A_PIXEL = 4
#: The most scans of a strip or tile of JPEG data: TIFF's are not progressive, so that encoders
#: write one, or one per component.
_SCANS = 8


@dataclass(frozen=True)
class Tag:
    """A tag's type, the number of its values, and where in the file they are."""

    kind: int
    count: int
    at: int

    @property
    def size(self) -> int:
        return _SIZES.get(self.kind, 0) * self.count


class Tags:
    """The first directory of a TIFF, with those that Pillow reads along with it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._order = "<" if data[:2] == b"II" else ">"
        self._big = data[2:4] in (b"+\0", b"\0+")
        self.first: dict[int, Tag] = {}
        self.read = self.bytes = self.fractions = 0
        at, form = (8, "Q") if self._big else (4, "I")
        with contextlib.suppress(struct.error):
            self.first = self._directory(*struct.unpack_from(self._order + form, data, at))
        for number in _FURTHER:
            if (offset := self.number(number, -1)) >= 0:
                self._directory(offset)

    def _directory(self, at: int) -> dict[int, Tag]:
        """Tags by their number, until the directory or the file ends."""
        forms = ("Q", "HHQ", "Q") if self._big else ("H", "HHI", "I")
        head, entry, offset = (struct.Struct(self._order + form) for form in forms)
        tags = {}
        with contextlib.suppress(struct.error):  # the file ends first
            (count,) = head.unpack_from(self._data, at)
            at += head.size
            for _ in range(count):
                number, kind, values = entry.unpack_from(self._data, at)
                at += entry.size
                tag = Tag(kind, values, at)
                if tag.size > offset.size:
                    tag = Tag(kind, values, *offset.unpack_from(self._data, at))
                at += offset.size
                self.read += 1
                if self.read > _TAGS:
                    raise too_expensive(f"the TIFF has more than {_TAGS:,} tags")
                tags[number] = tag
                self.bytes += tag.size if tag.size <= len(self._data) else 0
                self.fractions += tag.count if tag.kind in _RATIONALS else 0
        return tags

    def array(self, number: int) -> np.ndarray:
        """The values of a tag if they are whole numbers, else none."""
        tag = self.first.get(number)
        if tag is None or not tag.count or tag.kind not in _NUMBERS:
            return np.empty(0, np.int64)
        if tag.at + tag.size > len(self._data):
            return np.empty(0, np.int64)
        kind = np.dtype(self._order + _NUMBERS[tag.kind])
        return np.frombuffer(self._data, kind, tag.count, tag.at)

    def number(
        self,
        number: int,
        default: int = 0,
    ) -> int:
        """The first value of a tag."""
        return next(iter(self.array(number)[:1].tolist()), default)

    @property
    def is_inverted(self) -> bool:
        """Whether values of 16 bits count from white."""
        return (
            self.number(PHOTOMETRIC, BLACK_IS_ZERO) == WHITE_IS_ZERO
            and self.number(BITS) == 16
            and self.number(SAMPLE_FORMAT, UNSIGNED) == UNSIGNED
        )

    def is_preview(self, has_more: bool) -> bool:
        """Whether the first picture is a smaller copy of another one, as in cameras' raw files.

        Args:
            has_more: whether other pictures follow it.
        """
        is_smaller = bool(self.number(SUBFILE_TYPE) & 1)
        return DNG_VERSION in self.first or (is_smaller and (has_more or SUBFILES in self.first))

    def replace(
        self,
        data: bytearray,
        number: int,
        values: Sequence[int],
    ) -> None:
        """Put other values for a tag of whole numbers into the file.

        Raises:
            Reject: the tag has too few bytes for them.
        """
        tag = self.first[number]
        try:
            new = np.array(values, self._order + _NUMBERS[tag.kind]).tobytes()
        except OverflowError:
            raise unsupported(f"a TIFF whose tag {number} has too few bytes") from None
        data[tag.at : tag.at + len(new)] = new


def check_tiff(data: bytes) -> None:
    """Rejects a TIFF that takes far longer than its size allows, or that Pillow cannot decode."""
    tags = Tags(data)
    if tags.number(SAMPLE_FORMAT) == SIGNED and tags.number(BITS) <= 8:
        raise unsupported("a TIFF of signed numbers of 8 bits")
    compression = tags.number(COMPRESSION, UNCOMPRESSED)
    if compression == GROUP_4:
        # Seen in libtiff 4.7: the rows that are missing hold what was in its memory before.
        raise Reject(
            "check",
            "unsupported",
            "libtiff does not notice rows that are missing in a TIFF of Group 4 fax "
            "data; save it as a PNG",
        )
    if compression not in _DECODED:
        raise Reject(
            "check",
            "unsupported",
            f"the file is a TIFF with the compression {compression}, which is not "
            "supported; save it as a PNG",
        )
    if tags.bytes > len(data) + (1 << 20):
        raise too_expensive(
            f"the TIFF's tags hold {tags.bytes:,} bytes, in a file of {len(data):,}"
        )
    if tags.fractions > _FRACTIONS:
        raise too_expensive(f"the TIFF's tags hold {tags.fractions:,} fractions")
    pixels = tags.number(WIDTH) * tags.number(HEIGHT)
    _check_pieces(tags, pixels, data)


def mended(data: bytes, tags: Tags) -> bytes:
    """A TIFF that Pillow decodes rightly, but for an inversion where `is_inverted`.

    Pillow 12.3 mixes up uncompressed planes of 16 bits and of inverted pixels, and refuses further
    planes and YCbCr; what is compressed libtiff decodes, rightly.  16 bits that count from white
    Pillow takes as if they counted from black, or refuses.

    Raises:
        Reject: planes lack what says where they are, or their bytes.
    """
    is_mixed_up = tags.number(COMPRESSION) == UNCOMPRESSED and (
        tags.number(PLANAR) == PLANES or tags.number(PHOTOMETRIC) == YCBCR
    )
    if not is_mixed_up and not tags.is_inverted:
        return data
    mended = bytearray(data)
    if is_mixed_up:
        _compress(mended, tags)
    if tags.is_inverted:
        tags.replace(mended, PHOTOMETRIC, [BLACK_IS_ZERO])
    return bytes(mended)


def _compress(data: bytearray, tags: Tags) -> None:
    """Compress the strips or tiles of a file, behind what it has."""
    of_tiles = TILE_OFFSETS in tags.first
    offsets = TILE_OFFSETS if of_tiles else STRIP_OFFSETS
    sizes = TILE_BYTES if of_tiles else STRIP_BYTES
    starts = tags.array(offsets).tolist()
    stored = tags.array(sizes).tolist()
    if not starts or len(starts) != len(stored):
        raise unsupported("a TIFF of planes or YCbCr without the sizes of its strips")
    end = len(data)
    moved = []
    packed = []
    for start, size in zip(starts, stored, strict=True):
        if start + size > end:
            raise Reject("check", "truncated", "the TIFF ends inside a strip")
        piece = zlib.compress(data[start : start + size], 0)
        moved.append(len(data))
        packed.append(len(piece))
        data += piece
    tags.replace(data, offsets, moved)
    tags.replace(data, sizes, packed)
    tags.replace(data, COMPRESSION, [DEFLATE])


def _check_pieces(
    tags: Tags,
    pixels: int,
    data: bytes,
) -> None:
    tiled = TILE_OFFSETS in tags.first
    size = len(data)
    name = "tiles" if tiled else "strips"
    offsets = tags.array(TILE_OFFSETS if tiled else STRIP_OFFSETS)
    most = _PIECES + _PIECES_A_MEGAPIXEL * pixels // 1_000_000
    if len(offsets) > most:
        raise too_expensive(f"the TIFF has {len(offsets):,} {name} for {pixels:,} pixels")
    stored = tags.array(TILE_BYTES if tiled else STRIP_BYTES)
    in_file = np.minimum(stored.astype(np.float64), size)
    if in_file.sum() > 2 * size + (1 << 24):
        raise too_expensive(
            f"the TIFF's {name} hold {int(stored.sum()):,} bytes, in a file of {size:,}"
        )
    width = tags.number(TILE_WIDTH)
    height = tags.number(TILE_HEIGHT)
    if tiled and width and height:
        columns = -(-tags.number(WIDTH) // width)
        rows = -(-tags.number(HEIGHT) // height)
        covered = columns * rows * width * height
        if covered > _TILED + _TILED_A_PIXEL * pixels:
            raise too_expensive(f"the TIFF's tiles hold {covered:,} pixels, of which {pixels:,}")
    if tags.number(COMPRESSION) == JPEG:
        for start, length in zip(offsets.tolist(), stored.tolist(), strict=False):
            scans = data.count(b"\xff\xda", start, start + length)
            if scans > _SCANS:
                raise too_expensive(f"JPEG data of the TIFF have {scans:,} scans, over {_SCANS}")
