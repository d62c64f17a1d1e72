"""PNG: the header, the check that what is stored will decode, and the pixels of 16 bits a channel.

Pillow cannot help with the check: it accepts more than twenty kinds of file that TensorFlow refuses
(no IEND, a bad CRC in it, an unknown critical chunk, two palettes, ...) and refuses some that
TensorFlow reads.  So this module checks what libpng, TensorFlow's decoder, insists on: the order
and checksums of the chunks, and image data that inflates to exactly the right size with known
filters.  The tests keep the two in step.

Nor does Pillow read the file: it decodes the image data, which we find.  Of 16 bits a channel it
holds only grey pixels, whole.  Its decoder makes pixels of 8 bits from such colours, but lets the
caller choose which bytes it takes: the upper ones, or the lower ones.

Source: the PNG specification (W3C, third edition): 5 chunks, 7.2 scanlines, 8 interlacing,
9 filters, 10 compression, 11.2 and 11.3 chunk by chunk.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tfrecorder.images.header import (
    Header,
    Reject,
    check_size,
    exif_orientation,
    is_srgb,
    too_expensive,
    unsupported,
)

#: The place of the byte that states the bits of a channel.
DEPTH_AT = 24

SIGNATURE = b"\x89PNG\r\n\x1a\n"

_GRAY = 0
_RGB = 2
_PALETTE = 3
_GRAY_ALPHA = 4
_RGBA = 6
_SAMPLES = {_GRAY: 1, _RGB: 3, _PALETTE: 1, _GRAY_ALPHA: 2, _RGBA: 4}
_DEPTHS = {
    _GRAY: (1, 2, 4, 8, 16),
    _RGB: (8, 16),
    _PALETTE: (1, 2, 4, 8),
    _GRAY_ALPHA: (8, 16),
    _RGBA: (8, 16),
}
_TRANSPARENCY_LENGTH = {_GRAY: 2, _RGB: 6}
# First column, first row, step across, step down of the seven passes (section 8.1).
_PASSES = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
#: The bytes of a value of 16 bits, as their places in a row are odd or even; the first is a filter.
_UPPER = 1
_LOWER = 0
_FIRST = 1 << 12  # bytes that are looked at first
_FEED = 1 << 16
_PIECE = 1 << 18  # bytes given to zlib, and taken from it, at a time
_LARGEST_SURPLUS = 1 << 20  # inflated bytes beyond the image that are still looked at

# The most chunks: this many, plus one per this many bytes; each takes 3 us.  libpng writes chunks
# of 8 KB.
_CHUNKS = 50_000
_CHUNK_BYTES = 1024
# The most pieces of inflated data, likewise; each takes 2 us.  Pieces are smaller than these bytes
# only if the stream declares a window smaller than it might need.
_PIECES = 200_000
_PIECE_BYTES = 128
_PROFILE = 1 << 14  # bytes of a colour profile that are looked at
_SMALL_FEED = 4096  # what libpng gives zlib at a time


@dataclass(frozen=True, slots=True)
class _PngFrame:
    """The fields of IHDR that matter."""

    width: int
    height: int
    depth: int
    color: int
    interlaced: bool

    def runs(self) -> Iterator[tuple[int, int]]:
        """(bytes per row with its filter byte, rows) of the image, or of each interlace pass."""
        for column, row, across, down in _PASSES if self.interlaced else ((0, 0, 1, 1),):
            width = -(-(self.width - column) // across)
            rows = -(-(self.height - row) // down)
            if width > 0 and rows > 0:
                yield 1 + (width * self.depth * _SAMPLES[self.color] + 7) // 8, rows


def check(data: bytes, max_pixels: int) -> tuple[Header, str | None]:
    """The header of a PNG that TensorFlow decodes, and a complaint if it is suspect.

    Raises:
        Reject: TensorFlow would refuse it, or it is too large.
    """
    frame = _read_frame(data, max_pixels)
    walk = _Walk(frame)
    for kind, chunk, end in chunks(data):
        walk.visit(kind, chunk)
        if kind == b"IEND":
            if end < len(data):
                walk.complain("there are bytes after the IEND chunk")
            return _header(frame, walk), walk.complaint
    raise Reject("check", "truncated", "the PNG has no IEND chunk")


def read_header(data: bytes, max_pixels: int | None) -> Header:
    """The shape of a PNG from the chunks before its image data; nothing is inflated.

    Raises:
        Reject: the IHDR chunk is not sound, or the image is too large.
    """
    frame = _read_frame(data, max_pixels)
    walk = _Walk(frame)
    try:
        for kind, chunk, _ in chunks(data):
            if kind in (b"IDAT", b"IEND"):
                break
            if kind in (b"PLTE", b"tRNS", b"eXIf", b"iCCP", b"acTL"):
                walk.visit(kind, chunk)
    except Reject as reject:
        if reject.code == "too_expensive":
            raise
        # Damage after IHDR does not matter for the header.
    return _header(frame, walk)


def _header(frame: _PngFrame, walk: _Walk) -> Header:
    """TensorFlow expands a palette to RGB or RGBA, and ignores tRNS without a palette."""
    channels = _SAMPLES[frame.color]
    if frame.color == _PALETTE:
        channels = 4 if walk.transparency else 3
    is_reduced = {
        "depth": frame.depth == 16,
        "dim": walk.is_dim,
        "frames": walk.animated,
        "alpha": bool(walk.transparency) or frame.color in (_GRAY_ALPHA, _RGBA),
        "profile": not is_srgb(walk.profile) if walk.profile else False,
    }
    reduced = tuple(word for word, is_so in is_reduced.items() if is_so)
    return Header(frame.height, frame.width, channels, walk.orientation, reduced)


def _damaged(detail: str) -> Reject:
    return Reject("check", "damaged", f"the PNG {detail}")


def _read_frame(data: bytes, max_pixels: int | None) -> _PngFrame:
    """The IHDR chunk, which must come first."""
    if len(data) < 33:
        raise Reject("check", "truncated", "the PNG ends inside its IHDR chunk")
    if data[12:16] == b"CgBI":
        raise unsupported("a PNG as Apple changes it for iPhones (CgBI)")
    if data[8:16] != b"\0\0\0\x0dIHDR":
        raise _damaged("does not begin with an IHDR chunk")
    if zlib.crc32(data[12:29]) != int.from_bytes(data[29:33], "big"):
        raise _damaged("has a wrong checksum in its IHDR chunk")
    fields = struct.unpack_from(">IIBBBBB", data, 16)
    width, height, depth, color, compression, filtering, interlace = fields
    legal = depth in _DEPTHS.get(color, ()) and compression == filtering == 0 and interlace < 2
    if not legal or not 0 < width < 2**31 or not 0 < height < 2**31:
        raise _damaged("has values in its IHDR chunk that the standard does not know")
    check_size(height, width, _SAMPLES[color] if color != _PALETTE else 4, max_pixels)
    return _PngFrame(width, height, depth, color, interlace == 1)


def chunks(data: bytes) -> Iterator[tuple[bytes, memoryview, int]]:
    """Each chunk from IHDR on: its kind; its kind, content and checksum as bytes; its end."""
    view = memoryview(data)
    at = 8
    left = _CHUNKS + len(data) // _CHUNK_BYTES
    while at < len(data):
        left -= 1
        if left < 0:
            most = f"{_CHUNKS + len(data) // _CHUNK_BYTES:,}"
            raise too_expensive(f"the PNG has more than {most} chunks in {len(data):,} bytes")
        kind = data[at + 4 : at + 8]
        length = int.from_bytes(data[at : at + 4], "big")
        end = at + 12 + length
        if len(kind) == 4 and (not kind.isalpha() or length >= 2**31):
            raise _damaged("has a chunk whose name or length is not valid")
        if end > len(data):
            raise Reject("check", "truncated", "the PNG ends inside a chunk")
        yield kind, view[at + 4 : end], end
        at = end


def chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG, with its length and checksum."""
    sum_of = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", sum_of)


class _Walk:
    """What is known after each chunk; raises Reject where libpng gives up.

    Attributes:
        palette: the content of a valid PLTE chunk.
        transparency: that of a valid tRNS chunk.
        animated: an acTL chunk tells of further pictures.
        profile: the beginning of the colour profile; empty without one.
        orientation: that of an eXIf chunk; 1 without one.
        complaint: the first thing that libpng only warns about; None if there is none.
    """

    def __init__(self, frame: _PngFrame) -> None:
        self.animated = False
        self.palette = self.transparency = self.profile = b""
        self.orientation = 1
        self.complaint: str | None = None
        self._frame = frame
        self._inflater = _Inflater(frame)
        self._colors: int | None = None  # of the palette
        self._last = b""

    @property
    def is_dim(self) -> bool:
        """Whether of its values of 16 bits, as far as seen, some have lower bytes, none others."""
        return self._inflater.lit == {_LOWER}

    def complain(self, detail: str) -> None:
        self.complaint = self.complaint or f"the PNG: {detail}"

    def visit(
        self,
        kind: bytes,
        chunk: memoryview,
    ) -> None:
        content = chunk[4:-4]
        intact = zlib.crc32(chunk[:-4]) == int.from_bytes(chunk[-4:], "big")
        critical = kind[0] & 0x20 == 0
        if not intact and critical:
            raise _damaged(f"has a wrong checksum in its {kind.decode()} chunk")
        if self._last == b"IDAT" and kind != b"IDAT":
            self._inflater.finish()
        if not intact:
            self.complain(f"wrong checksum in its {kind.decode()} chunk")
        elif kind == b"IDAT":
            self._image_data(content)
        elif kind == b"PLTE":
            self._visit_palette(content)
        elif kind == b"tRNS":
            self._visit_transparency(content)
        elif kind == b"eXIf":
            self.orientation = exif_orientation(bytes(content))
        elif kind == b"acTL":
            self.animated = int.from_bytes(content[:4], "big") > 1
        elif kind == b"iCCP":
            packed = bytes(content).partition(b"\0")[2][1:]
            with contextlib.suppress(zlib.error):
                self.profile = zlib.decompressobj().decompress(packed, _PROFILE)
        elif kind == b"IHDR":
            if self._last:
                raise _damaged("has two IHDR chunks")
        elif kind == b"IEND":
            if not self._inflater.begun:
                raise _damaged("has no image data")
            if content:
                self.complain("its IEND chunk is not empty")
        elif critical:
            raise _damaged(f"has a critical chunk {kind.decode()} that no decoder knows")
        self._last = kind

    def _image_data(self, content: memoryview) -> None:
        if self._frame.color == _PALETTE and not self._colors:
            raise _damaged("has no palette before its image data")
        if self._inflater.begun and self._last != b"IDAT":
            self.complain("its IDAT chunks are not consecutive")
        elif complaint := self._inflater.feed(content):
            self.complain(complaint)

    def _visit_palette(self, content: memoryview) -> None:
        if self._colors is not None:
            raise _damaged("has two PLTE chunks")
        colors, rest = divmod(len(content), 3)
        valid = rest == 0 and colors <= 256
        self._colors = colors if valid else 0
        if self._inflater.begun:
            self.complain("its PLTE chunk comes after the image data")
        elif self._frame.color in (_GRAY, _GRAY_ALPHA):
            self.complain("a gray image with a PLTE chunk")
        elif not content or (not valid and self._frame.color == _PALETTE):
            raise _damaged("has a PLTE chunk of a wrong length")
        elif not valid:
            self.complain("its PLTE chunk has a wrong length")
        else:
            self.palette = bytes(content)

    def _visit_transparency(self, content: memoryview) -> None:
        color = self._frame.color
        length = len(content)
        if color == _PALETTE:
            largest = min(self._colors or 0, 1 << self._frame.depth)
            valid = 0 < length <= largest
        else:
            valid = length == _TRANSPARENCY_LENGTH.get(color)
        if not valid or self._inflater.begun or self.transparency:
            self.complain("its tRNS chunk is not valid, or out of place")
        else:
            self.transparency = bytes(content)


class _Inflater:
    """Inflates the image data piece by piece, keeping none of it, and checks size and filters."""

    def __init__(self, frame: _PngFrame) -> None:
        self.begun = False
        self._runs = list(frame.runs())
        self._size = sum(stride * rows for stride, rows in self._runs)
        self._done = 0
        #: Which bytes of values of 16 bits are not all 0; of others nobody looks.
        self.lit = set() if frame.depth == 16 else {_UPPER}
        self._zlib = zlib.decompressobj(wbits=0)  # 0: the window that the stream declares
        self._feed = _FEED
        self._piece = _PIECE

    def feed(self, content: memoryview) -> str | None:
        """Takes the content of one IDAT chunk; returns a complaint or None."""
        if not self.begun and content:
            self._heed_window(content[0])
            self.begun = True
        if self._zlib.eof and content:
            return "there are bytes after the end of its image data"
        for at in range(0, len(content), self._feed):
            self._inflate(content[at : at + self._feed])
            if self._zlib.unused_data:
                return "there are bytes after the end of its image data"
        return "it has more image data than its size needs" if self._done > self._size else None

    def finish(self) -> None:
        """Called after the last consecutive IDAT chunk."""
        if self._done < self._size or not self._zlib.eof:
            raise Reject("check", "truncated", "the PNG's image data ends too early")

    def _heed_window(self, first: int) -> None:
        """libpng inflates row by row, and so notices a window smaller than the stream needs."""
        window = 256 << (first >> 4)
        if window >= min(self._size, 32768):
            return
        # For each piece zlib copies the input that it has not used yet, so give it less.
        self._feed = _SMALL_FEED
        self._piece = min(256, *(stride for stride, _ in self._runs))
        pieces = self._size // self._piece
        most = _PIECES + self._size // _PIECE_BYTES
        if pieces > most:
            raise too_expensive(
                f"the PNG declares a window of {window} bytes, with which its rows are inflated "
                f"in {pieces:,} pieces, more than {most:,}"
            )

    def _inflate(self, data: bytes | memoryview) -> None:
        while not self._zlib.eof:
            # Never across the end of the image, so that what follows it is recognised.
            wanted = min(self._piece, max(self._size - self._done, 0) or _FEED)
            try:
                piece = self._zlib.decompress(data, wanted)
            except zlib.error as error:
                raise _damaged(f"has image data that does not inflate: {error}") from None
            data = self._zlib.unconsumed_tail
            self._check_filters(piece)
            self._done += len(piece)
            if self._done > self._size + _LARGEST_SURPLUS:
                raise _damaged("has far more image data than its size needs")
            if not data and len(piece) < wanted:
                return

    def _check_filters(self, piece: bytes) -> None:
        """Every row begins with its filter, 0 to 4."""
        start = 0  # of the run, in the inflated data
        for stride, rows in self._runs:
            end = start + stride * rows
            if start < self._done + len(piece) and self._done < end:
                first = start + -(-max(self._done - start, 0) // stride) * stride - self._done
                filters = piece[first : end - self._done : stride]
                if filters.translate(None, b"\0\1\2\3\4"):
                    raise _damaged("has a row with an unknown filter")
                if _UPPER not in self.lit:
                    begin = max(start, self._done)
                    part = piece[begin - self._done : end - self._done]
                    self._note_lit(part, begin - start, stride)
            start = end

    def _note_lit(
        self,
        part: bytes,
        at: int,
        stride: int,
    ) -> None:
        """Note which bytes of 16 bits a part of a run has: filters keep bytes that are all 0."""
        for begin, end in ((0, _FIRST), (_FIRST, None)):  # of which the first mostly tells
            if _UPPER not in self.lit:
                lit = np.flatnonzero(np.frombuffer(part[begin:end], np.uint8))
                places = (lit + at + begin) % stride
                self.lit |= {*np.unique(places[places > 0] % 2).tolist()}


#: Pillow's modes for pixels of 8 bits, which are also its names for how a PNG holds them.
_MODES = {_GRAY: "L", _RGB: "RGB", _PALETTE: "P", _GRAY_ALPHA: "LA", _RGBA: "RGBA"}
#: Mode and name where the name says more than the bits, and takes the upper ones of 16.
_OTHER_MODES = {
    (_GRAY, 1): ("1", "1"),
    (_GRAY, 16): ("I;16", "I;16B"),
    (_RGB, 16): ("RGB", "RGB;16B"),
    (_GRAY_ALPHA, 16): ("RGBA", "LA;16B"),
    (_RGBA, 16): ("RGBA", "RGBA;16B"),
}

#: By what Pillow multiplies the levels of few bits.
_SCALES = {(_GRAY, 2): 85, (_GRAY, 4): 17}

_COLOUR_TYPES = {1: _GRAY, 2: _GRAY_ALPHA, 3: _RGB, 4: _RGBA}
_FILTER_UP = 2  # the filter that stores what differs from the row above


def decode(data: bytes) -> Image.Image:
    """The pixels of a PNG: numbers of its palette where it has one; of colours, the upper 8 bits.

    Pillow's own reader also reads texts and profiles, and fails over their size or damage.  So we
    give its decoder the image data alone.

    Raises:
        Reject: it is damaged.
        ValueError: Pillow cannot decode it.
    """
    frame, walk, image_data = _pixels_in(data)
    image = _decoded(frame, image_data)
    if frame.color == _PALETTE:
        image.putpalette(walk.palette)
        if walk.transparency:
            image.info["transparency"] = walk.transparency
    elif walk.transparency:
        colour = struct.unpack(f">{len(walk.transparency) // 2}H", walk.transparency)
        image.info["transparency"] = colour if frame.color == _RGB else colour[0]
    return image


def decode_deep(data: bytes) -> np.ndarray:
    """The pixels of a PNG of 16 bits, uint16 of [height, width, channels].

    Raises:
        Reject: it is damaged.
        ValueError: it is none of 16 bits, or Pillow cannot decode it.
    """
    frame, _, image_data = _pixels_in(data)
    if frame.depth != 16:
        raise ValueError("the image has 8 bits a channel, not 16")
    if frame.color == _GRAY_ALPHA:  # four bytes, as those of a pixel of RGBA
        pairs = np.asarray(_decoded(frame, image_data, "RGBA"))
        return pairs.view(">u2").astype(np.uint16)
    pixels = np.asarray(_decoded(frame, image_data)).astype(np.uint16)
    if frame.color == _GRAY:
        return pixels[:, :, None]
    lower = _decoded(frame, image_data, _MODES[frame.color] + ";16L")
    return pixels << 8 | np.asarray(lower)


def samples(data: bytes) -> np.ndarray:
    """The numbers of a PNG's pixels as it holds them, of [height, width, channels].

    Those of a palette are its indices; grey levels of 1, 2 and 4 bits are not scaled, and those of
    16 are whole.

    Raises:
        Reject, ValueError: as `decode`.
    """
    frame = _read_frame(data, sys.maxsize)
    if frame.depth == 16:
        return decode_deep(data)
    pixels = np.atleast_3d(np.asarray(decode(data), np.uint8))
    scale = _SCALES.get((frame.color, frame.depth))
    return pixels if scale is None else pixels // scale


def _pixels_in(data: bytes) -> tuple[_PngFrame, _Walk, bytes | memoryview]:
    """The header, the palette with its transparency, and the image data, not inflated."""
    frame = _read_frame(data, sys.maxsize)
    walk = _Walk(frame)
    parts = []
    for kind, chunk, _ in chunks(data):
        if kind == b"IDAT":
            parts.append(chunk[4:-4])
        elif parts:
            break
        elif kind in (b"PLTE", b"tRNS"):
            walk.visit(kind, chunk)
    return frame, walk, parts[0] if len(parts) == 1 else b"".join(parts)


def _decoded(
    frame: _PngFrame,
    image_data: bytes | memoryview,
    form: str = "",
) -> Image.Image:
    """The pixels.

    Args:
        form: another name for how a PNG holds them.
    """
    usual = _MODES[frame.color]
    name = usual if frame.depth == 8 else f"{usual};{frame.depth}"
    mode, name = _OTHER_MODES.get((frame.color, frame.depth), (usual, name))
    image = Image.new(mode, (frame.width, frame.height), None)
    image.frombytes(image_data, "zip", (form or name, frame.interlaced))
    return image


def encode_deep(pixels: np.ndarray) -> bytes:
    """A PNG of uint16 pixels of [height, width, channels], 1 to 4 channels."""
    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    filtered = np.empty((height, 1 + rows.shape[1]), np.uint8)
    filtered[:, 0] = _FILTER_UP
    filtered[:, 1:] = rows
    filtered[1:, 1:] -= rows[:-1]
    header = struct.pack(">IIBBBBB", width, height, 16, _COLOUR_TYPES[channels], 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 1)), (b"IEND", b"")]
    return SIGNATURE + b"".join(chunk(kind, content) for kind, content in parts)
