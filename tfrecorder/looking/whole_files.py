"""Files that appear whole: written beside their place under another name, and then renamed."""

from __future__ import annotations

import contextlib
import os
import uuid

from tfrecorder import storage
from tfrecorder.errors import OptionError, OutputError

#: Of the names that a file has before it is whole.
TEMPORARY = ".tfrecorder-"


def write_whole(path: str, data: bytes) -> None:
    """Write a file that is seen whole or not at all, in place of any that is there.

    Raises:
        OutputError: it cannot be written.
    """
    folder = os.path.dirname(path) or "."
    temporary = os.path.join(folder, f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def local_path(name: str, value: str | os.PathLike[str]) -> str:
    """An argument as a path to write to.

    Raises:
        OptionError: it is no path on this machine.
    """
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else ""
    if not isinstance(path, str) or not path:
        raise OptionError(f"{name}={value!r}: give a path.")
    if storage.scheme(path):
        raise OptionError(f"{name}={value!r}: give a local path, without a scheme.")
    return path
