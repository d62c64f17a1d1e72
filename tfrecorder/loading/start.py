"""Importing TensorFlow without what it writes about the machine when it starts."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

from tfrecorder import storage

LEVEL = "TF_CPP_MIN_LOG_LEVEL"

#: A header that TensorFlow adds to its requests to gs://.  It reads the variable as it is imported.
HEADER = "GCS_ADDITIONAL_REQUEST_HEADER"


def bill_tensorflow() -> None:
    """Have TensorFlow name the project that pays for its requests, unless it is imported already.

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
    """A block that imports TensorFlow: what its libraries write meanwhile is not shown.

    These lines (oneDNN, missing drivers, the processor's features) go to the file of standard error
    itself, past Python, and those written before its log is set up do not heed
    TF_CPP_MIN_LOG_LEVEL.  They are shown where somebody set that variable, and where the import
    fails.
    """
    if os.environ.get(LEVEL) is not None or "tensorflow" in sys.modules or sys.stderr is None:
        yield
        return
    os.environ[LEVEL] = "3"  # for what comes later, as the search for a graphics card
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
