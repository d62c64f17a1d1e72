"""Trainings that are killed, disturbed and given wrong positions: a short `make torture`."""

from __future__ import annotations

from pathlib import Path

import pytest

from torture import trainings


@pytest.mark.slow
def test_trainings_are_tortured(tmp_path: Path) -> None:
    counts = trainings.interrupt(12, tmp_path, by_lightning=0)
    assert [one.lost for one in counts] == [0, 0, 0]
    assert "refused" in counts[-1].note
