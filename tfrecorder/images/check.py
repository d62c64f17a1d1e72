"""Image bytes in, checked bytes with their true shape out.

    checked = check_image(data)             # raises Reject
    checked.format, checked.height, checked.width, checked.channels

An image accepted with check="decode" or "strict" decodes in TensorFlow without error, to the
recorded shape.  JPEG (`jpeg.py`) and PNG (`png.py`) keep their own bytes; BMP, GIF (first frame),
WebP, TIFF, PPM, TGA, ICO (largest picture), AVIF and HEIC are decoded by Pillow and rewritten as
PNG, without loss.
Nothing here imports TensorFlow or Beam, changes a global setting of Pillow, or depends on one.
The reasons for a reject are listed in `header.py`.

A column of `File()` holds files of any kind: these are bounded, and checked by the user's function.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from tfrecorder import storage
from tfrecorder.core.threads import Room, unlimited
from tfrecorder.errors import OptionError, RunnerError, UnreachableError
from tfrecorder.images import header, jpeg, png
from tfrecorder.images.fingerprint import LEAST_SIDE, Look, gray_in, gray_of
from tfrecorder.images.header import DEFAULT_MAX_PIXELS, Reject, sniff, words_of
from tfrecorder.images.reencode import largest_picture, reencode
from tfrecorder.schema.kinds import File

#: Formats of other files that can be told by their first bytes.
_FILE_STARTS = {
    "wav": rb"RIFF....WAVE",
    "flac": rb"fLaC",
    "ogg": rb"OggS",
    "mp3": rb"ID3",
    "npy": rb"\x93NUMPY",
    "pdf": rb"%PDF",
    "dcm": rb".{128}DICM",
}
_FILE_FORMATS = re.compile(
    b"|".join(b"(?P<%s>%s)" % (name.encode(), start) for name, start in _FILE_STARTS.items()),
    re.DOTALL,
)
_ENDING = re.compile(r"\.([0-9a-z]{1,8})")


class CheckedImage(NamedTuple):
    """An accepted image.

    Attributes:
        data: the bytes to store: the source's own if JPEG or PNG, else a lossless PNG.
        format: "jpeg" or "png".
        height, width: pixels, as TensorFlow decodes `data`: 1 and up.  An EXIF orientation is
            not applied.
        channels: 1 to 4, as TensorFlow decodes `data` with channels=0: 3 for a CMYK JPEG,
            4 for a PNG palette with transparency.
        orientation: the EXIF orientation of the source, 1 to 8.
        warning: the decoder's message if the image is suspect, else None.
        look: a small picture of the source, if it was decoded to see it.
        reduced: what training will not see of the source, as keys of `header.REDUCED`.
        depth: bits of a channel that readers give: 8 or 16.
    """

    data: bytes
    format: str
    height: int
    width: int
    channels: int
    orientation: int
    warning: str | None
    look: Look | None = None
    reduced: tuple[str, ...] = ()
    depth: int = 8


def check_image(
    data: bytes,
    check: str = "decode",
    max_pixels: int = DEFAULT_MAX_PIXELS,
    room: Room = unlimited,
    fingerprints: bool = False,
    depth: int = 8,
) -> CheckedImage:
    """Checks an image, and turns it into PNG if it is neither JPEG nor PNG.

    Args:
        data: the whole file.
        check: how much to check of a JPEG or PNG; other formats are always decoded in full.
            "decode": TensorFlow will decode it; a decoder's complaint makes it suspect.
            "strict": the same, but a suspect is rejected.
            "header": only the headers: format, size, channels, the number of a JPEG's scans.
        max_pixels: the largest height times width; a larger image is refused before decoding.
        room: `room(size)` is held while that many bytes of pixels are in memory, so that
            several threads can share what there is.
        fingerprints: also decode what is not decoded for the check, for its fingerprint.
        depth: bits of a channel that the schema declares; with 16, an image of 8 is rejected.

    Raises:
        Reject: the image cannot be used; `header.py` lists the codes.

    Thread safe; the decoders release the interpreter lock.

        >>> check_image(b"")
        Traceback (most recent call last):
        tfrecorder.images.header.Reject: empty: the file has no bytes
    """
    kind = header.sniff(data)
    if kind == "ico":
        data = largest_picture(data, max_pixels)
        kind = header.sniff(data)
    warning = None
    gray = picture = None
    if kind not in ("jpeg", "png"):
        data, found, picture = reencode(data, kind, max_pixels, room, depth)
        kind = "png"
    elif check == "header":
        found = (jpeg if kind == "jpeg" else png).read_header(data, max_pixels)
    elif kind == "jpeg":
        found, gray, warning = jpeg.check(data, max_pixels, LEAST_SIDE, room)
        fingerprints = True
    else:
        found, warning = png.check(data, max_pixels)
    reduced = found.reduced
    if kind == "jpeg" and _has_more(data):
        reduced = (*reduced, "appended")
    if depth == 16:
        if "depth" not in reduced:
            raise Reject(
                "check",
                "depth",
                "it has 8 bits a channel, the schema's `Image(depth=16)` declares 16",
            )
        reduced = tuple(word for word in reduced if word not in ("depth", "dim"))
    if warning and check == "strict":
        raise Reject("check", "suspect", warning)
    if gray is None and (fingerprints or picture is not None):
        with room(found.height * found.width * 4):
            gray = gray_of(data) if picture is None else gray_in(picture)
    look = None if gray is None else Look(gray, found[:2])
    return CheckedImage(data, kind, *found[:4], warning, look, reduced, depth)


#: What cameras and programs fill files up with.
_PADDING = b"\0\r\n "


def _has_more(data: bytes) -> bool:
    """Whether more than padding follows the end of a JPEG's picture."""
    end = data.rfind(b"\xff\xd9") + 2
    at = 2
    while b"\xff\xe0" <= data[at : at + 2] <= b"\xff\xfe":
        if data.startswith(b"MPF\0", at + 4):  # an index of further pictures, each with an end
            ends = (at for marker, at in jpeg.markers(data, 2) if marker == jpeg.END)
            end = next(ends, end)
            break
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return bool(end > 1 and data[end:].strip(_PADDING))


def read_image(
    uri: str,
    base: str,
    note_retry: Callable[[], None] = lambda: None,
    folders: storage.FoldersRead | None = None,
    file: File | None = None,
) -> tuple[bytes, int | None]:
    """The bytes of an image's file, and when it had last been written, as `storage.read_source`.

    Args:
        base: the folder that a relative uri starts from.
        note_retry: called before each retry.
        folders: those that images were read from.  If one vanishes, its images are waited for, not
            called missing.
        file: of a column of files, its kind: a local one that is too large is not read at all.

    Raises:
        Reject: it cannot be read, now or later.
        UnreachableError: its store or disk is away, or we lack credentials or a project to bill,
            which says nothing about the image.
    """
    path = storage.resolve(uri, base)
    if file is not None and storage.is_local(path):
        refuse_large(storage.size_or_none(path) or 0, file)
    try:
        return storage.read_source(path, folders or storage.FoldersRead(), note_retry)
    except storage.UnreadableError as error:
        if error.code in storage.OF_THE_READER:
            raise UnreachableError(f"{path} cannot be read: {error.detail}.") from error
        raise Reject("read", error.code, error.detail) from None


def check_file(
    column: str,
    kind: File,
    data: bytes,
) -> bytes:
    """A file's bytes, if they can be used.

    Raises:
        Reject: there are none, or too many, or the validator raised an exception.
        OptionError: only the name of the validator is known, it returned False, or it ended Python.
        RunnerError: the validator needs a package that is not there.
    """
    if not data:
        raise Reject("check", "empty", "the file has no bytes")
    refuse_large(len(data), kind)
    if isinstance(kind.validator, str):
        raise OptionError(
            f"schema: {column}=File(validator={kind.validator!r}): this is only the name of a "
            "function; give the function itself, in the `schema` of a call in Python."
        )
    if kind.validator is not None:
        silent = ""
        try:
            found = kind.validator(data)
            if type(found).__name__ in ("bool", "bool_") and not found:  # also of NumPy
                silent = "returned False"
        except SystemExit:
            silent = "called sys.exit"
        except MemoryError:
            raise
        except ImportError as error:
            words = str(error).rstrip(".")
            raise RunnerError(f"the validator of {column!r} cannot run: {words}.") from error
        except Exception as error:
            raise Reject("check", "invalid", words_of(error)) from None
        if silent:
            raise OptionError(
                f"schema: {column}=File(validator=…): it {silent}, which says nothing; let "
                'it raise an exception for a file that cannot be used: `raise ValueError("why")`.'
            )
    return data


def refuse_large(size: int, kind: File) -> None:
    """Raise a Reject for a file with more bytes than its column allows."""
    assert isinstance(kind.max_bytes, int)
    if size > kind.max_bytes:
        raise Reject(
            "check",
            "too_large",
            f"{size:,} bytes, more than the {kind.max_bytes:,} of `max_bytes`",
        )


def format_of(name: str, data: bytes) -> str:
    """The format of a file by its first bytes, or else the ending of its name; "" if unknown.

    >>> format_of("a.bin", b"RIFF....WAVE"), format_of("a/cloud.PLY", b"ply"), format_of("a", b"")
    ('wav', 'ply', '')
    """
    if match := _FILE_FORMATS.match(data[:132]):
        return str(match.lastgroup)
    try:
        return sniff(data[:4096])
    except Reject:
        ending = _ENDING.fullmatch(os.path.splitext(name)[1].lower())
        return ending[1] if ending else ""
