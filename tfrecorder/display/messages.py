"""What messages need: a warning at the user's line, and a command to copy into a shell."""

from __future__ import annotations

import inspect
import os
import shlex
import warnings

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def warn(message: str) -> None:
    """A UserWarning at the nearest line that is not of this package."""
    # The standard library's own way, `skip_file_prefixes`, is of Python 3.12.
    frame = inspect.currentframe()
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level = level + 1
    warnings.warn(message, stacklevel=level)


def command(name: str, *arguments: str) -> str:
    """A command of ours with its arguments, quoted where a shell needs it.

    >>> command("verify", "my data"), command("repair", "gs://bucket/out")
    ("tfrecorder verify 'my data'", 'tfrecorder repair gs://bucket/out')
    """
    return shlex.join(["tfrecorder", name, *arguments])
