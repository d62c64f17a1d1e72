"""Importing TensorFlow without the lines it prints about the machine at startup."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from tfrecorder import storage

LEVEL = "TF_CPP_MIN_LOG_LEVEL"

#: A header that TensorFlow adds to its requests to gs://.  It reads the variable on import.
HEADER = "GCS_ADDITIONAL_REQUEST_HEADER"


def bill_tensorflow() -> None:
    """Make TensorFlow name the project that pays for its requests, unless it is already imported.

    Source: https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooguserproject
    """
    project = storage.access().user_project
    if project is not None and "tensorflow" not in sys.modules:
        os.environ.setdefault(HEADER, header(project))


def header(project: str) -> str:
    """The value of the variable that bills a project."""
    return f"x-goog-user-project:{project}"


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """A block that imports TensorFlow and hides what its libraries print meanwhile.

    These lines (oneDNN, missing drivers, the processor's features) go straight to standard error,
    bypassing Python, and those written before its log is set up ignore TF_CPP_MIN_LOG_LEVEL.  They
    are shown if that variable is set, or if the import fails.
    """
    if os.environ.get(LEVEL) is not None or "tensorflow" in sys.modules or sys.stderr is None:
        yield
        return
    os.environ[LEVEL] = "3"  # for what comes later, such as the search for a GPU
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as lines:
        os.dup2(lines.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            lines.seek(0)
            os.write(2, lines.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
