"""Warnings that point at the user's line, however deep in the package they arise."""

from __future__ import annotations

import inspect
import os
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
