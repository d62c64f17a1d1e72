"""What `undo` gives back after a table was made again is as the newest manifest has it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from growing_cases import manifest
from second_day_cases import QUIET, as_wanted, check, rows, without_beam

import tfrecorder


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    without_beam(monkeypatch)


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
