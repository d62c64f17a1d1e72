"""A bucket that fails in passing: the short form of `make torture`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import shorten_pauses

from torture import faults


@pytest.mark.slow
def test_nothing_is_lost_among_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch, 1 / 12)
    [count] = faults.disturb(1, 400, tmp_path, seed=3)
    assert (count.rows, count.lost) == (400, 0)
    failed = int(count.note.split()[0])
    assert failed >= 5
