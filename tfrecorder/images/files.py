"""Files as they are read: one image and its checks; or, as a column of `File()` holds it, a file of
any kind, bounded and checked by the user's function.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from tfrecorder import storage
from tfrecorder.errors import OptionError, RunnerError, UnreachableError
from tfrecorder.images.formats import sniff
from tfrecorder.images.rejects import Reject, words_of
from tfrecorder.schema.kinds import File

#: The formats that their first bytes tell apart beyond doubt, beside those of images.
_STARTS = {
    "wav": rb"RIFF....WAVE",
    "flac": rb"fLaC",
    "ogg": rb"OggS",
    "mp3": rb"ID3",
    "npy": rb"\x93NUMPY",
    "pdf": rb"%PDF",
    "dcm": rb".{128}DICM",
}
_FORMATS = re.compile(
    b"|".join(b"(?P<%s>%s)" % (name.encode(), start) for name, start in _STARTS.items()), re.DOTALL
)
_ENDING = re.compile(r"\.([0-9a-z]{1,8})")


def check_file(column: str, kind: File, data: bytes) -> bytes:
    """A file's bytes, if they can be used.

    Raises:
        Reject: there are none, or too many, or the validator raised an exception.
        OptionError: only the name of the validator is known.
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
        try:
            kind.validator(data)
        except MemoryError:
            raise
        except ImportError as error:
            words = str(error).rstrip(".")
            raise RunnerError(f"the validator of {column!r} cannot run: {words}.") from error
        except Exception as error:
            raise Reject("check", "invalid", words_of(error)) from None
    return data


def refuse_large(size: int, kind: File) -> None:
    """Raise a Reject for a file with more bytes than its column allows."""
    assert isinstance(kind.max_bytes, int)
    if size > kind.max_bytes:
        raise Reject(
            "check", "too_large", f"{size:,} bytes, more than the {kind.max_bytes:,} of `max_bytes`"
        )


def format_of(name: str, data: bytes) -> str:
    """The format of a file by its first bytes, or else the ending of its name; "" if unknown.

    >>> format_of("a.bin", b"RIFF....WAVE"), format_of("a/cloud.PLY", b"ply"), format_of("a", b"")
    ('wav', 'ply', '')
    """
    if match := _FORMATS.match(data[:132]):
        return str(match.lastgroup)
    try:
        return sniff(data[:4096])
    except Reject:
        ending = _ENDING.fullmatch(os.path.splitext(name)[1].lower())
        return ending[1] if ending else ""


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
