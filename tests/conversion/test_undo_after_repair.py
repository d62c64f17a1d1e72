"""What `undo` gives back after a table was made again is as the newest manifest has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.growing_cases import manifest
from helpers.second_day_cases import QUIET, as_wanted, check, rows
from torture.losses import FIRST, MORE, Rows, newest_of

import tfrecorder
from tfrecorder.errors import DatasetError


@pytest.mark.parametrize("table", ["test-00000", "train-r2-00000", "train-r2-00001"])
def test_an_update_is_taken_back_after_a_table_was_made_again(table: str) -> None:
    before = pd.concat([rows(0, 6), rows(6, 2, "TEST")], ignore_index=True)
    tfrecorder.convert(before, "out", num_shards={"TRAIN": 2, "TEST": 1}, shuffle=False, **QUIET)
    after = before.copy()
    after.loc[0, "label"] = "y"
    tfrecorder.update(after, "out", **QUIET)
    Path(f"out/_tfrecorder/tables/{table}.parquet").unlink()
    assert tfrecorder.repair("out", progress=False).lost
    tfrecorder.undo("out")
    check("out", as_wanted(before))
    assert manifest("out", 2)["losses"]["places"]


@pytest.mark.parametrize("split", ["TRAIN", "TEST"])
def test_an_update_that_only_adds_rows_is_made_again_from_its_shards(split: str) -> None:
    """It keeps all shards under their names, as an append does, and is none."""
    table = pd.concat([rows(0, 3), rows(3, 2, split)], ignore_index=True)
    tfrecorder.convert(table[:3], "out", num_shards=1, **QUIET)
    tfrecorder.update(table[3:], "out", **QUIET)
    info = Path("out/dataset_info.json").read_bytes()
    Path("out/_tfrecorder/commits/00001.json").unlink()
    assert tfrecorder.repair("out", progress=False).lost
    assert Path("out/dataset_info.json").read_bytes() == info
    check("out", as_wanted(table))
    more = pd.concat([table, rows(5, 2)], ignore_index=True)
    tfrecorder.append(more[5:], "out", **QUIET)
    check("out", as_wanted(more))


@pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_bytes(b"{}")])
def test_marks_that_were_lost_are_not_named_by_an_undo(tmp_path: Path, damage: Any) -> None:
    """The manifest of before the update names them still."""
    made = _with_a_removal(tmp_path)
    made.update()
    (marks,) = made.out.glob("_tfrecorder/removed/*")
    damage(marks)
    tfrecorder.repair(made.out, progress=False)
    tfrecorder.undo(made.out)
    assert "removed" not in newest_of(made.out)
    assert "marks" in newest_of(made.out)["losses"]
    assert tfrecorder.verify(made.out, progress=False).ok
    with pytest.raises(DatasetError, match="readmit=True"):
        made.append()


def test_without_the_marks_of_before_an_update_is_not_taken_back(tmp_path: Path) -> None:
    made = _with_a_removal(tmp_path)
    (marks,) = made.out.glob("_tfrecorder/removed/*")
    made.update(readmit=True)
    marks.unlink()
    report = tfrecorder.verify(made.out, progress=False)
    assert [fault.file for fault in report.found] == [f"_tfrecorder/removed/{marks.name}"]
    assert tfrecorder.repair(made.out, progress=False).lost
    assert tfrecorder.verify(made.out, progress=False).ok
    with pytest.raises(DatasetError, match="what it replaced was lost"):
        tfrecorder.undo(made.out)


def _with_a_removal(tmp_path: Path) -> Rows:
    made = Rows(tmp_path)
    made.draw(FIRST + MORE)
    made.convert()
    made.remove(0, 2)
    return made
