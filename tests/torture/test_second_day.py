"""A dataset's life by chance, a short one: a part of what `make torture` lives through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tfrecorder
from torture import second_day


@pytest.mark.slow
def test_any_call_after_any_other_killed_or_not(tmp_path: Path) -> None:
    assert second_day.live(tmp_path, 12, seed=3, steps=6).times >= 12


@pytest.mark.slow
def test_some_lives_more(tmp_path: Path) -> None:
    assert second_day.live(tmp_path, 25, 1000).times >= 25


def test_overwrite_begins_again_after_another_operation_was_killed_behind_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does the rest of that operation, which is not its own: the dataset is another by then."""
    monkeypatch.setattr(second_day.SecondDay, "disk", second_day.Disk(tmp_path), False)
    rows = [(6, "cat", "TRAIN"), (8, "cat", "TRAIN"), (7, "ant", "TRAIN")]
    life = second_day.SecondDay()
    life.convert(rows=rows, killed=None)
    life.compact(shards=1, chosen=(0,), killed=0.9)
    assert life.leftover == "compact"
    life.overwrite(rows=rows, killed=None)
    life.readers_agree()


@pytest.mark.slow
def test_a_lost_row_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = tfrecorder.append

    def lose(table: pd.DataFrame, out: str, **options: Any) -> object:
        return append(table[1:], out, **options) if len(table) > 1 else None

    monkeypatch.setattr(tfrecorder, "append", lose)
    with pytest.raises(AssertionError):
        second_day.live(tmp_path, 100, 0)
