"""Each state that a kill may leave behind: a part of what `make torture` looks at."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture import kills
from torture.counts import BrokenError


def test_an_append_that_is_killed_before_any_change(tmp_path: Path) -> None:
    count = kills.attack("append", kills.Disk(tmp_path), tmp_path / "append", (2, 5, 9))
    assert count.note.startswith("commits found: ")
    assert "0" in count.note
    assert "1" in count.note


@pytest.mark.slow
@pytest.mark.parametrize("name", kills.OPERATIONS)
def test_what_is_killed_on_a_disk(tmp_path: Path, name: str) -> None:
    assert kills.attack(name, kills.Disk(tmp_path), tmp_path / "kills", (1, 4, 7)).times > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", kills.OPERATIONS)
def test_what_is_killed_in_a_bucket(tmp_path: Path, name: str) -> None:
    with kills.bucket() as place:
        assert kills.attack(name, place, tmp_path / "kills", (3, 8, 11)).times > 10


def test_a_state_that_is_neither_old_nor_new_is_noticed(tmp_path: Path) -> None:
    disk = kills.Disk(tmp_path)
    attacked = kills.Attacked(kills.OPERATIONS["append"], disk, tmp_path)
    first, last = attacked.states[0], attacked.states[-1]
    mixed = last | {"image.class.label.labels.txt": b"b\na\nc\n"}
    with pytest.raises(AssertionError, match="to TFDS"):
        attacked.look(mixed)
    with pytest.raises(BrokenError, match=r"rejects\.csv"):
        attacked.complete(last | {"rejects.csv": b""})
    assert (attacked.look(first), attacked.look(last)) == (0, 1)
