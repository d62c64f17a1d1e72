"""What is stored stays as it is: manifests, plans, digests, release notes, public files.

`datasets/stored.json` says what the first version with form 5 of the manifest wrote for each
history of `torture.losses`, and for plans that are staged alone, as

    PYTHONPATH=tests python tests/format/test_stored_documents.py

wrote it down.  It is made again only where the form of a document is meant to change.  A value
that is long stands there as its SHA-256.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support import TESTS, public_files
from torture.losses import FIRST, HISTORIES, MORE, QUIET, Rows

import tfrecorder

STORED = TESTS / "datasets" / "stored.json"

#: The marks of what was removed have random salt, and the seal covers them.
_RANDOM = ("removed", "crc32c")

#: The folder that a test runs in, and sums of tables, which hold it.
_OF_THE_FOLDER = ("base", "beside", "beside_bytes")

LONG = 60


def convert(rows: Rows) -> None:
    table = rows.table(rows.frame(0, FIRST))
    tfrecorder.parts.stage(table, rows.out, num_shards={"TRAIN": 2, "TEST": 1})


def append(rows: Rows) -> None:
    rows.convert()
    tfrecorder.append(rows.table(rows.frame(FIRST, MORE)), rows.out, stage_only=True)


def overwrite(rows: Rows) -> None:
    rows.convert()
    tfrecorder.parts.stage(rows.table(rows.frame(0, 8)), rows.out, overwrite=True)


def update(rows: Rows) -> None:
    rows.convert()
    rows.append()
    table = rows.frame(2, FIRST + MORE)
    table.loc[:2, "label"] = "cat"
    table.loc[5, "split"] = "TEST"
    tfrecorder.update(rows.table(table), rows.out, missing="remove", stage_only=True, **QUIET)


STAGED = {"conversion": convert, "append": append, "overwrite": overwrite, "update": update}


class RowsInBytes(Rows):
    """Those of a stream come as bytes: of a file, a stream takes the absolute path."""

    def stream(self, first: int = FIRST, as_bytes: bool = True, **options: Any) -> None:
        super().stream(first, as_bytes=True, **options)


#: Of the histories, those that call a step of `Rows` itself.
OF_STREAMS = {"streamed": (RowsInBytes.stream, Rows.append)}


def made(step: Callable[[Rows], object]) -> Rows:
    """What a step makes in the current folder, with relative names."""
    rows = RowsInBytes(Path())
    rows.draw(FIRST + 2 * MORE)
    step(rows)
    return rows


def with_history(name: str) -> Rows:
    def live(rows: Rows) -> None:
        rows.convert()
        for step in {**HISTORIES, **OF_STREAMS}[name]:
            step(rows)

    return made(live)


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()[:16]


def anywhere(value: Any) -> Any:
    """A value without what differs from folder to folder."""
    if isinstance(value, list):
        return [*map(anywhere, value)]
    if not isinstance(value, dict):
        return value
    return {k: "…" if k in _OF_THE_FOLDER else anywhere(v) for k, v in value.items()}


def documented(document: Mapping[str, Any]) -> dict[str, str]:
    """Each value of a document as JSON, in its order."""
    values = {}
    for key, value in anywhere(document).items():
        text = json.dumps("…" if key in _RANDOM else value)
        values[key] = text if len(text) < LONG else digest(text.encode())
    return values


def stored(rows: Rows) -> dict[str, Any]:
    """The documents of a dataset, and its public files."""
    documents = [*sorted(rows.out.glob("_tfrecorder/commits/*.json"))]
    plan = rows.out / "_tfrecorder" / "plan.json"
    documents += [plan] if plan.exists() else []
    files = public_files(rows.out)
    info = json.loads(files.get("dataset_info.json", b"{}"))
    return {
        "documents": {path.name: documented(json.loads(path.read_text())) for path in documents},
        "release notes": info.get("releaseNotes"),
        "public": {name: digest(data) for name, data in sorted(files.items())},
    }


@functools.cache
def expected() -> dict[str, Any]:
    return json.loads(STORED.read_text())


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_is_stored_as_before(name: str) -> None:
    assert stored(with_history(name)) == expected()[name]


@pytest.mark.parametrize("name", STAGED)
def test_a_plan_is_staged_as_before(name: str) -> None:
    assert stored(made(STAGED[name])) == expected()[f"staged {name}"]


def main() -> None:
    os.environ["SOURCE_DATE_EPOCH"] = "1800000000"
    makers: dict[str, Callable[[], Rows]] = {}
    for name in HISTORIES:
        makers[name] = functools.partial(with_history, name)
    for name, step in STAGED.items():
        makers[f"staged {name}"] = functools.partial(made, step)
    every = {}
    for name, make in makers.items():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            every[name] = stored(make())
    STORED.write_text(json.dumps(every, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
