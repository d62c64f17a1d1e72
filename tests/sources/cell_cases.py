"""Images that come in cells: the photographs as bytes, and where a dataset keeps them."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

from support import PHOTOS, records

DATA = [path.read_bytes() for path in PHOTOS]


def content(data: bytes, ending: str = ".jpg") -> str:
    """The name of an image by its bytes."""
    return hashlib.sha256(data).hexdigest()[:32] + ending


def data_uri(data: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"


def spooled(out: str | Path = "out") -> list[str]:
    """The names of the files that wait in the spool."""
    folder = Path(out, "_tfrecorder/spool")
    return sorted(os.listdir(folder)) if folder.exists() else []


def images_of(out: str | Path) -> dict[str, bytes]:
    """The stored bytes of each image, by its name."""
    found = records(out)
    return {one["image/filename"].decode(): one["image/encoded"] for one in found}
