"""Read one image file and check it."""

from __future__ import annotations

from collections.abc import Callable

from tfrecorder import storage
from tfrecorder.errors import UnreachableError
from tfrecorder.images.files import refuse_large
from tfrecorder.images.rejects import Reject
from tfrecorder.schema.kinds import File


def read_image(
    uri: str,
    base: str,
    note_retry: Callable[[], None] = lambda: None,
    folders: storage.KnownFolders | None = None,
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
        return storage.read_source(path, folders or storage.KnownFolders(), note_retry)
    except storage.UnreadableError as error:
        if error.code in storage.OF_THE_READER:
            raise UnreachableError(f"{path} cannot be read: {error.detail}.") from error
        raise Reject("read", error.code, error.detail) from None
