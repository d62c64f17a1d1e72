"""TensorFlow's requests to gs:// name the project that pays for them."""

from __future__ import annotations

import os
import sys

from tfrecorder import storage

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
