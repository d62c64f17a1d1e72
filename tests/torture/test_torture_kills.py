"""Each state that a kill may leave behind: a part of what `make torture` looks at."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.power_cut import recorded, strace
from support import whose_turn

from torture import kills
from torture.counts import BrokenError


@pytest.mark.slow
def test_an_append_that_is_killed_before_any_change(tmp_path: Path) -> None:
    count = kills.attack("append", kills.Disk(tmp_path), tmp_path / "append", (2, 5, 9))
    assert count.note.startswith("commits found: ")
    assert "0" in count.note
    assert "1" in count.note


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "where"),
    [
        (name, where)
        for at, name in enumerate(kills.OPERATIONS)
        for where in whose_turn(at, ["disk", "bucket"])
    ],
)
def test_what_is_killed(tmp_path: Path, name: str, where: str) -> None:
    """Some of the states of an operation; what is taken back has few."""
    steps = (1, 2, 3) if kills.OPERATIONS[name].undoes else (5, 13, 17)
    with kills.bucket() if where == "bucket" else nullcontext(kills.Disk(tmp_path)) as place:
        assert kills.attack(name, place, tmp_path / "kills", steps).times >= 6


@pytest.mark.slow
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


SCRIPT = """
import sys
from helpers.power_cut import mark
from torture import kills
kills.OPERATIONS[sys.argv[1]].call(sys.argv[2])
mark("returned")
"""


@pytest.mark.slow
@pytest.mark.skipif(strace() is None, reason="strace is not installed")
@pytest.mark.parametrize("name", ["convert", "append", "overwrite", "undo an append"])
def test_a_power_cut_loses_nothing_that_was_committed(tmp_path: Path, name: str) -> None:
    disk = kills.Disk(tmp_path)
    attacked = kills.Attacked(kills.OPERATIONS[name], disk, tmp_path)
    disk.restore(attacked.start)
    Path(disk.out).mkdir(exist_ok=True)
    recording = recorded(SCRIPT, Path(disk.out), name, disk.out, timeout=120)
    returned, seen = recording.marks["returned"], {}
    commit = max(at for at, call in enumerate(recording.calls, 1) if COMMIT in call.paths[-1:])
    cuts = {*range(0, returned, 17), *range(commit - 8, commit + 5), returned}
    for number, (call, folder) in enumerate(recording.states(tmp_path / "cut", sorted(cuts))):
        state = kills.files_below(folder)
        seen[call] = attacked.look(state)
        # Without its claim it is over: the same overwrite would be a further one.
        if number % 5 == 0 and (seen[call] != attacked.new or "_tfrecorder/plan.json" in state):
            attacked.complete(state)
    assert seen[returned] == attacked.new
    commits = [found for _, found in sorted(seen.items())]
    assert len(set(commits)) == 2


COMMIT = "dataset_info.json"
