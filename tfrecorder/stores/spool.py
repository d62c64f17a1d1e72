"""Files that are written here and then copied whole to a store that cannot append."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tfrecorder.stores.retry import retried
from tfrecorder.stores.store import TransientError, UnwritableError


@contextlib.contextmanager
def spooled(upload: Callable[[str], None]) -> Iterator[BinaryIO]:
    """A temporary file to write; when the block ends well, `upload` is given its path.

    So a shard is on this machine's disk once, never in memory, and an upload that failed can be
    tried again.

    Raises:
        UnwritableError: there is no room for the temporary file, or `upload` failed.
    """
    descriptor, temporary = tempfile.mkstemp(prefix="tfrecorder-")
    try:
        try:
            with open(descriptor, "wb", buffering=0) as file:
                yield file
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise UnwritableError(
                f"no space left in {tempfile.gettempdir()}, where a shard stands before its upload;"
                " free some, or set TMPDIR to a larger disk"
            ) from error
        try:
            retried(lambda: upload(temporary))
        except TransientError as error:
            raise UnwritableError(str(error)) from error
    finally:
        os.remove(temporary)
