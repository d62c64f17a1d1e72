"""Sources of streams, and what a dataset holds of them: what the tests of streams share.

The inner law: a folder and a spool do at once what else takes time or many images.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import PHOTOS, records, rejects

import tfrecorder
from tfrecorder.output import staging
from tfrecorder.streaming import Unusable
from tfrecorder.streaming.watched_folder import WatchedFolder

#: A stream that ends once its source gives nothing more, and shows nothing.
TO_ITS_END: dict[str, Any] = {"until_idle": 0, "progress": False}


class Numbered:
    """Rows 0 to `rows` - 1: images as bytes and by their paths, and rows that cannot be records.

    Of ten rows one is not understood, one has no label, one is no image.
    """

    def __init__(self, rows: int, name: str = "numbered", path: str = "rows") -> None:
        self.count, self.name, self._path = rows, name, path

    def rows(self, position: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
        for number in range(position or 0, self.count):
            yield self._row(number), number + 1

    def _row(self, number: int) -> Mapping[str, Any]:
        name, label = f"{self._path}/{number}", "ab"[number % 2]
        if number % 10 == 3:
            return Unusable(name, "bad_json: the value is not JSON")
        data = b"no image" if number % 10 == 4 else photo(number).read_bytes()
        if number % 10 == 6:
            return {"image_uri": str(photo(number)), "label": label}
        cell = {"bytes": data, "path": name}
        return {"image_uri": cell, "label": None if number % 10 == 5 else label}

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class Folder(WatchedFolder):
    """The folder that is watched, for tests in which something happens meanwhile."""


def spool_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write each image of a stream to its spool before the next one is taken."""
    monkeypatch.setattr(staging, "SPOOLED_TOGETHER", 1)


def photo(number: int) -> Path:
    return PHOTOS[number % len(PHOTOS)]


def put(name: str, number: int) -> Path:
    """A photograph as a file of the folder `in`."""
    path = Path("in", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(photo(number).read_bytes())
    return path


def names_in(out: str | Path) -> Counter[str]:
    """How often each image is in a dataset, as a record or as a reject."""
    records = tfrecorder.to_frame(out)["image_uri"] if tfrecorder.info(out).records else ()
    return Counter(records) + Counter(uri for uri, _ in rejects_of(out))


def rejects_of(out: str | Path) -> list[tuple[str, str]]:
    """The uri and the reason of each reject."""
    found = rejects(out) if Path(out, "rejects.csv").exists() else pd.DataFrame()
    return [
        (row.image_uri, f"{row.stage}/{row.reason.partition(':')[0]}") for row in found.itertuples()
    ]


def contents_of(out: str | Path) -> dict[str, str]:
    """The SHA-256 of each record's image, by its name."""
    return {
        record["image/filename"].decode(): digest(record["image/encoded"])
        for record in records(out)
    }


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
