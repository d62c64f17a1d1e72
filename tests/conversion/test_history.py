"""`history` says what each call did, in the numbers that its own result said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.growing_cases import QUIET, table
from helpers.kept_datasets import DATASETS
from helpers.streaming_cases import TO_ITS_END, Numbered
from support import invoke

import tfrecorder
from tfrecorder.errors import DatasetError

TOLERANT: dict[str, Any] = {"max_reject_fraction": 0.9, **QUIET}


def lines(out: Path) -> list[str]:
    """The history without its times."""
    found = []
    for entry in tfrecorder.history(out):
        line = str(entry)
        number, when, told = line.split("  ", 2)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", when)
        found.append(f"{number} {told}")
    return found


def test_each_call_is_a_line_with_its_counts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    rows = table(0, 9)
    rows.loc[4:, "label"] = "other"
    rows.loc[8, "image_uri"] = "gone.jpg"
    tfrecorder.convert(rows, out, num_shards=1, **TOLERANT)
    tfrecorder.append(table(9, 3), out, **QUIET)
    taken = tfrecorder.undo(out, dry_run=True)
    assert str(tfrecorder.history(out)[0]) == taken.line == tfrecorder.undo(out).line
    assert taken.line in str(taken)
    tfrecorder.append(table(9, 4), out, **QUIET)
    tfrecorder.compact(out, num_shards=1)
    frame = tfrecorder.to_frame(out)
    others = frame.loc[frame["label"] != frame["label"][0], "label"]
    frame.loc[0, "label"] = others.iloc[0]
    tfrecorder.update(frame.drop(columns="split"), out, **QUIET)
    tfrecorder.undo(out)
    frame.loc[1, "split"] = "TEST"
    tfrecorder.update(frame.drop(index=2), out, missing="remove", **QUIET)
    name = Path(frame["image_uri"][3]).name
    tfrecorder.remove(out, {"image_uri": [frame["image_uri"][3]]}, **QUIET)
    tfrecorder.stream(Numbered(20), out, every_rows=10, **TO_ITS_END)
    found = lines(out)
    assert found == [
        "9-10 stream: 14 added, 6 rejected",
        "8 removal: 1 removed",
        "7 update: 1 corrected, 1 moved, 2 removed",  # a reject is a row too
        "6 undo of generation 5 (update): 1 corrected",
        "5 update: 1 corrected (taken back)",
        "4 compaction",
        "3 append: 4 added",
        "2 undo of generation 1 (append): 3 added",
        "1 append: 3 added (taken back)",
        "0 conversion: 8 added, 1 rejected",
    ]
    shown = invoke("history", str(out))
    assert shown.output.splitlines() == [*map(str, tfrecorder.history(out))]
    assert name not in shown.output
    told = json.loads(invoke("history", str(out), "--json").output)["commits"]
    assert [entry["commit"] for entry in told[-3:]] == [2, 1, 0]
    assert told[-1] | {"when": ""} == {
        **{"commit": 0, "first": 0, "kind": "conversion", "when": ""},
        **{"added": 8, "corrected": 0, "moved": 0, "removed": 0, "rejected": 1},
        **{"undoes": -1, "undone": "", "taken_back": False},
    }


def test_the_history_adds_up_to_the_records_whatever_is_done(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    out = tmp_path / "out"
    tfrecorder.convert(table(0, 6), out, **QUIET)
    first = 6
    for step in range(8):
        frame = tfrecorder.to_frame(out)
        call = random.choice(["append", "remove", "undo", "update"])
        before = len(tfrecorder.history(out))
        if call == "append":
            tfrecorder.append(table(first, 2), out, **QUIET)
            first += 2
        elif call == "remove" and len(frame) > 2:
            tfrecorder.remove(out, frame[:1], **QUIET)
        elif call == "update":
            frame["label"] = frame["label"].sample(frac=1, random_state=step).to_numpy()
            tfrecorder.update(frame, out, **QUIET)
        else:
            try:
                tfrecorder.undo(out)
            except DatasetError:  # nothing to take back
                continue
        entries = tfrecorder.history(out)
        assert len(entries) >= before
        records = 0
        for entry in entries:
            if entry.undoes < 0 and not entry.taken_back:
                records += entry.added - entry.removed
        assert records == len(tfrecorder.to_frame(out)), [*map(str, entries)]


@pytest.mark.parametrize("name", ["form-4-boxes", "form-4-corrections", "form-4-undone"])
def test_an_older_dataset_has_no_times(name: str) -> None:
    entries = tfrecorder.history(DATASETS / name)
    assert entries[-1].first == 0
    assert "no time noted" in str(entries[-1])
    assert (entries[-1].kind == "") == (name == "form-4-corrections")


def test_what_is_no_dataset_has_no_history(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a finished dataset"):
        tfrecorder.history(tmp_path)
    shown = invoke("history", str(tmp_path))
    assert shown.exit_code == 1
    assert "Traceback" not in shown.output
