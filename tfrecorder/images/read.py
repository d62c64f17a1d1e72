"""Read one image file and check it."""

from __future__ import annotations

from collections.abc import Callable

from tfrecorder import storage
from tfrecorder.errors import UnreachableError
from tfrecorder.images.rejects import Reject


def read_image(
    uri: str,
    base: str,
    note_retry: Callable[[], None] = lambda: None,
    folders: storage.KnownFolders | None = None,
) -> bytes:
    """The bytes of an image's file.

    Args:
        base: the folder that a relative uri is taken from.
        note_retry: is called before each further attempt.
        folders: that images were read from: where one has vanished, its images are not missing, but
            waited for.

    Raises:
        Reject: it cannot be read, today or tomorrow.
        UnreachableError: its store or its disk is away, or we lack credentials or a project to
            bill: that says nothing of the image.
    """
    path = storage.resolve(uri, base)
    try:
        if folders is None:
            return storage.read_bytes(path, note_retry)
        return storage.read_source(path, folders, note_retry)
    except storage.UnreadableError as error:
        if error.code in storage.OF_THE_READER:
            raise UnreachableError(f"{path} cannot be read: {error.detail}.") from error
        raise Reject("read", error.code, error.detail) from None
