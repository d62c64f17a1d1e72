"""What was done to a dataset is in its manifests, in numbers, whatever became of what was done."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
from helpers.second_day_cases import QUIET, rows

import tfrecorder

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def told() -> list[tuple[Any, ...]]:
    """Of each commit, oldest first: its number, its kind, and what it counts."""
    entries = []
    for path in sorted(Path("out/_tfrecorder/commits").iterdir()):
        manifest = json.loads(path.read_text())
        undone = [manifest["log_undone"]] if "log_undone" in manifest else []
        entries += [*manifest.get("log_before", ()), *undone, manifest["log"]]
    names = ("added", "corrected", "moved", "removed", "rejected")
    assert all(TIME.fullmatch(entry["when"]) for entry in entries)
    return [
        (
            entry["commit"],
            entry["kind"],
            {name: entry[name] for name in names if name in entry},
            *([entry["undone"]] if "undone" in entry else []),
        )
        for entry in entries
    ]


def test_each_commit_has_its_entry_also_after_its_manifest_is_gone() -> None:
    table = rows(0, 6)
    tfrecorder.convert(table, "out", num_shards=2, **QUIET)
    missing = pd.DataFrame([("TRAIN", "img/none.png", "x")], columns=list(table))
    more = pd.concat([rows(6, 3), missing], ignore_index=True)
    tfrecorder.append(more, "out", max_reject_fraction=0.5, **QUIET)
    tfrecorder.append(rows(9, 2), "out", **QUIET)
    tfrecorder.undo("out")
    added = (0, "conversion", {"added": 6}), (1, "append", {"added": 3, "rejected": 1})
    taken = (2, "append", {"added": 2}), (3, "undo", {}, "append")
    assert told() == [*added, *taken]
    table.loc[1, "label"] = "x"
    table.loc[2, "split"] = "TEST"
    tfrecorder.update(pd.concat([table, rows(11, 1)]), "out", **QUIET)
    updated = (4, "update", {"added": 1, "corrected": 1, "moved": 1})
    assert told() == [*added, *taken, updated]
    tfrecorder.remove("out", {"image_uri": ["img/0.png", "img/6.png"]}, **QUIET)
    removed = (5, "removal", {"removed": 2})
    tfrecorder.compact("out", num_shards=1, **QUIET)
    compacted = (6, "compaction", {})
    assert told() == [*added, *taken, updated, removed, compacted]
    table.loc[3, "label"] = "x"
    tfrecorder.update(table[3:4], "out", **QUIET)
    tfrecorder.undo("out")
    corrected = (7, "update", {"corrected": 1}), (8, "undo", {}, "update")
    assert told()[-2:] == [*corrected]
    tfrecorder.convert(rows(0, 2), "out", overwrite="all", **QUIET)
    assert told()[-1] == (9, "conversion", {"added": 2})
    assert [number for number, *_ in told()] == [*range(10)]
    text = Path("out/_tfrecorder/commits/00009.json").read_text()
    assert "img/6.png" not in text


def test_batches_of_a_stream_are_told_together_once_their_manifests_go() -> None:
    class Source:
        name = "feed"

        def rows(self, position: Any) -> Any:
            for number, cells in enumerate(rows(0, 9).to_dict("records")):
                if number >= (position or 0):
                    yield cells, number + 1

        def wait(self, seconds: float) -> None: ...

    tfrecorder.stream(Source(), "out", every_rows=3, until_idle=0, **QUIET)
    assert [(number, of) for number, _, of in told()] == [(n, {"added": 3}) for n in range(3)]
    tfrecorder.compact("out", num_shards=1, **QUIET)
    batches, compacted = told()
    assert batches == (2, "stream", {"added": 9})
    assert compacted[0] == 3


def test_an_operation_notes_when_it_was_begun(monkeypatch) -> None:
    """Tests state a time, by which files can be compared."""
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    tfrecorder.convert(rows(0, 2), "out", **QUIET)
    noted = json.loads(Path("out/_tfrecorder/commits/00000.json").read_text())["log"]["when"]
    now = datetime.datetime.now(datetime.timezone.utc)
    assert before <= datetime.datetime.fromisoformat(noted.replace("Z", "+00:00")) <= now
