"""JPEG: the header, and the check that what is stored will decode.

The rule: if the strict check is clean, accept.  If it complains, decode in full with Pillow: if
that fails, reject; if it passes, accept as suspect.  If it complains only that it does not know
the sampling, the full decode has the last word.  TensorFlow decodes with libjpeg-turbo and
forgives what libjpeg calls a warning, but not an early end; so "passes" also means that the end of
the image is there.  Some files that both decoders read are refused by TensorFlow (lossless coding,
for one), which is why the kind of frame is checked first.

How much work the scans take is counted before any decoder is called.  A progressive JPEG stores its
picture in several scans, and a decoder goes through all pixels for each scan, however few bytes it
has.  757 scans of 9500 x 9400 pixels, which the standard allows, fit into a file of 270 KB and take
20 s, and 20 s again in each epoch of training.  Encoders write 6 scans for a grey picture and 10
for a coloured one; those that search for the smallest file write up to 60.

Source: ITU-T T.81, annex B (markers), G.1 (progressive scans).  The walk over the markers skips
what libjpeg skips, so that it finds the same frame.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import struct
from collections.abc import Iterator

import numpy as np
import simplejpeg
from PIL import Image

from tfrecorder.core.threads import Room, is_address_space_limited, unlimited
from tfrecorder.images.header import (
    Header,
    Reject,
    check_size,
    exif_orientation,
    is_srgb,
    too_expensive,
    unsupported,
)

#: Frames: baseline, extended, progressive; the same with arithmetic coding.
FRAMES = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))
_PROGRESSIVE = frozenset((0xC2, 0xCA))
_ADOBE = 0xEE
_SCAN = 0xDA
END = 0xD9

_OTHER_FRAMES = {
    **dict.fromkeys((0xC3, 0xCB), "lossless"),
    **dict.fromkeys((0xC5, 0xC6, 0xC7, 0xCD, 0xCE, 0xCF), "hierarchical"),
    0xC8: "a reserved",
}
# Markers without a length: TEM and RST0 to RST7.
_BARE = frozenset((0x01, *range(0xD0, 0xD8)))
# Markers before the frame that libjpeg knows: DHT, DAC, DQT, DNL, DRI, APP0 to APP15, COM.
_SKIPPED = frozenset((0xC4, 0xCC, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)))

_MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # Pillow's, by components

#: simplejpeg's words for a sampling that it does not know, though libjpeg decodes it.
_UNKNOWN = "subsampling level"

#: Pictures that are in memory at most, while two of them are compared.
_COPIES = 4

#: What a sound scan leaves unread after its data, and after those before a restart.
_SURPLUS = b"\x55" * 16
_RESTARTS = [bytes((0xFF, 0xD0 + number)) for number in range(8)]
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_WITH_SURPLUS = _SURPLUS + rb"\g<0>"
# Before the frame header; 0xFF twice is a fill byte.
_MARKER = re.compile(rb"\xff[^\xff]")


def check(
    data: bytes,
    max_pixels: int,
    side: int,
    room: Room = unlimited,
) -> tuple[Header, np.ndarray | None, str | None]:
    """The header of a JPEG that TensorFlow decodes; a grey picture; the complaint of a suspect.

    Args:
        side: the fewest pixels a side of the picture, if the image has as many.

    Returns:
        The picture is uint8 of [height, width], at 1/8 of the size if that is enough.  None if
        only a full decode shows it.

    Raises:
        Reject: TensorFlow would refuse it, or it is too large, or too expensive.
    """
    header, components = _read_frame(data, max_pixels)
    decoded = _decode(data, side)
    if not isinstance(decoded, str):
        # simplejpeg takes all inks for those of Adobe.
        is_right = components < 4 or is_of_adobe(data)
        return header, decoded if is_right else None, None
    with room(header.height * header.width * components * _COPIES):
        picture = _decode_in_full(data, header, components, decoded)
        is_sound = _UNKNOWN in decoded and _fits_its_scans(data, picture)
    return header, None, None if is_sound else decoded


def read_header(data: bytes, max_pixels: int | None) -> Header:
    """The shape of a JPEG from its header; nothing is decoded.

    Args:
        max_pixels: None also turns off the check of its scans.

    Raises:
        Reject: there is no frame that TensorFlow decodes, or it is too large, or too expensive.
    """
    return _read_frame(data, max_pixels)[0]


def _decode(data: bytes, side: int) -> np.ndarray | str:
    """A small grey picture, or what a strict decoder says against a JPEG of a frame in `FRAMES`.

    It decodes all entropy-coded data but transforms only to 1/8 of the size, in gray: the
    cheapest call that notices damage.  It releases the interpreter lock.  A small image is
    transformed to more than 1/8, so that there is something to see.

    Never call it for other frames: libjpeg does not scale a lossless JPEG, and simplejpeg 1.9 lets
    it write past the end of the small buffer.
    """
    try:
        gray = simplejpeg.decode_jpeg(data, "GRAY", True, True, side, side)
    except (ValueError, KeyError, RuntimeError) as error:
        if is_address_space_limited() and re.search(
            "nsufficient memory|llocation failure",
            str(error),
        ):
            raise MemoryError(str(error)) from None
        return str(error)
    return gray[:, :, 0]


def _read_frame(data: bytes, max_pixels: int | None) -> tuple[Header, int]:
    """The header, and the frame's components: 4 for CMYK, where channels is 3."""
    at = 2
    exif = None
    profile = b""
    for _ in range(SEGMENTS):
        match = _MARKER.search(data, at)
        at = len(data) if match is None else match.end() - 1
        if at > len(data) - 3:
            raise Reject("check", "truncated", "the JPEG ends before its frame header")
        marker = data[at]
        if marker in _SKIPPED:
            length = data[at + 1] << 8 | data[at + 2]
            if marker == 0xE1 and exif is None and data[at + 3 : at + 9] == b"Exif\0\0":
                exif = data[at + 9 : at + 1 + length]
            if marker == 0xE2 and not profile and data[at + 3 : at + 15] == b"ICC_PROFILE\0":
                profile = data[at + 17 : at + 1 + length]  # of several parts, the first
            at += 1 + max(length, 2)
        elif 0xC0 <= marker <= 0xCF:
            break
        elif marker in _BARE or marker == 0:
            at += 1
        elif marker == 0xF7:
            raise unsupported("a JPEG-LS image")
        else:
            raise Reject(
                "check",
                "damaged",
                f"the JPEG has the marker {marker:02x} before its frame header",
            )
    else:
        raise too_many_segments()
    height, width, components = _parse_frame(data, at)
    check_size(height, width, components, max_pixels)
    if max_pixels is not None:
        check_scans(data, at)
    reduced: tuple[str, ...] = ("cmyk",) if components == 4 else ()
    if profile and not reduced and not is_srgb(profile):
        reduced = ("profile",)
    orientation = exif_orientation(exif or b"")
    return Header(height, width, min(components, 3), orientation, reduced), components


def _parse_frame(data: bytes, at: int) -> tuple[int, int, int]:
    """Height, width and components of the frame header whose marker is at `at`."""
    if at + 9 > len(data):
        raise Reject("check", "truncated", "the JPEG ends inside its frame header")
    length, precision, height, width, components = struct.unpack_from(">HBHHB", data, at + 1)
    if data[at] not in FRAMES:
        detail = f"{_OTHER_FRAMES[data[at]]} coding (frame {data[at]:02x})"
    elif precision != 8:
        detail = f"{precision} bits a sample"
    elif components not in _MODES:
        detail = f"{components} components"
    elif height == 0 or width == 0:
        detail = f"a size of {width} x {height} in the frame header"
    elif length != 8 + 3 * components:
        raise Reject("check", "damaged", "the JPEG's frame header has a wrong length")
    else:
        return height, width, components
    raise Reject(
        "check",
        "unsupported",
        f"the file is a JPEG of {detail}, which TensorFlow cannot read",
    )


def _decode_in_full(
    data: bytes,
    header: Header,
    components: int,
    complaint: str,
) -> Image.Image:
    """The picture, if Pillow decodes the whole image and its end is there.

    Raises:
        Reject: it is not so.
    """
    if all(marker != END for marker, _ in markers(data, 2)):
        raise Reject("check", "truncated", f"the JPEG has no end marker ({complaint})")
    if not size_agrees(data, header):
        raise Reject("check", "damaged", complaint)
    try:
        return picture_of(data, _MODES[components], (header.width, header.height))
    except (ValueError, OSError) as error:
        code = "truncated" if "not enough" in str(error) else "damaged"
        raise Reject("check", code, complaint) from None


def picture_of(data: bytes, mode: str, size: tuple[int, int]) -> Image.Image:
    """What Pillow decodes of a JPEG whose `size_agrees`, with inks as they are stored.

    It uses `frombytes`: `Image.open` would warn and fail over metadata that nobody needs, and its
    `load` is silent about damage if the process sets LOAD_TRUNCATED_IMAGES.
    """
    return Image.frombytes(mode, size, data, "jpeg", mode, "")


def _fits_its_scans(data: bytes, picture: Image.Image) -> bool:
    """Whether each scan has all the data that its picture needs, and a single one no more.

    Damaged data stand for other blocks, and these hardly ever end where the scan does: of 240
    damaged JPEGs of a usual sampling, this finds the 169 that the strict check finds.
    """
    pieces = []
    end = 0
    for (marker, start), (_, following) in itertools.pairwise(markers(data, 2)):
        if marker == _SCAN:
            pieces.append(data[end:start])
            end = following - 2
            restarts = _RESTART.findall(data, start, end)
            if restarts != [_RESTARTS[at % 8] for at in range(len(restarts))]:
                return False
            pieces += [_RESTART.sub(_WITH_SURPLUS, data[start:end]), _SURPLUS]
    with contextlib.suppress(ValueError):  # as it should be
        picture_of(data[: end - 2], picture.mode, picture.size)
        return False
    longer = b"".join([*pieces, data[end:]])
    try:
        return picture_of(longer, picture.mode, picture.size) == picture
    except (ValueError, OSError):
        return False


def size_agrees(data: bytes, header: Header) -> bool:
    """False if libjpeg reads a different size.

    Pillow's decoder writes rows of libjpeg's width into a buffer of the width that we give it, so
    the two must be equal, whatever the bytes are.
    """
    try:
        height, width, *_ = simplejpeg.decode_jpeg_header(data, strict=False)
    except (ValueError, KeyError, RuntimeError):  # simplejpeg knows fewer samplings than libjpeg
        return True
    return (height, width) == (header.height, header.width)


#: Pixels that the scans may visit: this many, plus this many per pixel of the picture.  One visit
#: takes 0.2 to 0.4 ns, and an image that a decoder complains about is decoded up to four times.
_VISITS = 500_000_000
_VISITS_A_PIXEL = 120

#: A scan that refines coefficients looks at each in turn; ten of them take as long as one visit.
_COEFFICIENTS_A_VISIT = 10

#: The most segments before and between the scans; a file of 1 GiB holds 16,384 full ones.
SEGMENTS = 100_000

# What ends a scan's data: not a stuffed zero, a restart, or a fill byte.
_NEXT_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd8-\xfe])")


def markers(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """(marker, where its segment begins) from `at` to the end of the image, as libjpeg finds them.

    Raises:
        Reject: there are too many.
    """
    for _ in range(SEGMENTS):
        match = _NEXT_MARKER.search(data, at)
        if match is None:
            return
        marker = match[1][0]
        at = match.end()
        yield marker, at
        if marker == END:
            return
        at += max(int.from_bytes(data[at : at + 2], "big"), 2)
    raise too_many_segments()


def is_of_adobe(data: bytes) -> bool:
    """Whether a CMYK JPEG holds its inks inverted, as Adobe's programs write them."""
    for marker, at in markers(data, 2):
        if marker in (_ADOBE, _SCAN):
            return data.startswith(b"Adobe", at + 2)
    return False


def too_many_segments() -> Reject:
    """The reject for a JPEG that is nearly all markers."""
    return too_expensive(f"the JPEG has more than {SEGMENTS:,} segments")


def check_scans(data: bytes, frame_at: int) -> None:
    """Rejects a JPEG whose scans visit its pixels far more often than any encoder's do.

    A component counts as if it had all pixels; most JPEGs store their colours with fewer.

    Args:
        data: the file.
        frame_at: where its frame header's marker is, after the 0xFF.

    Raises:
        Reject: it is too expensive.
    """
    height, width, of_frame = struct.unpack_from(">HHB", data, frame_at + 4)
    is_progressive = data[frame_at] in _PROGRESSIVE
    scans = 0
    visits = 0.0
    for marker, start in markers(data, frame_at - 1):
        if marker != _SCAN:
            continue
        components = min(data[start + 2], 4) if start + 2 < len(data) else 0
        if components == of_frame and not is_progressive and not scans:
            return  # as in nearly every JPEG: after a scan of all, libjpeg decodes no other
        last = data[start + 3 + 2 * components : start + 6 + 2 * components]
        refines = is_progressive and len(last) == 3 and last[0] and last[2] >> 4
        refined = max(last[1] - last[0] + 1, 0) if refines else 0
        scans += 1
        visits += components * width * height * (1 + refined / _COEFFICIENTS_A_VISIT)
    bound = _VISITS + _VISITS_A_PIXEL * width * height
    if visits > bound:
        raise too_expensive(
            f"{scans:,} scans of {width} x {height} pixels visit {visits / 1e6:,.0f} million "
            f"pixels, more than the {bound / 1e6:,.0f} million that a JPEG of this size may"
        )
