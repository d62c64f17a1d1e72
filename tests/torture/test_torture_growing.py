"""Changes to a dataset that are ended at any moment: the short form of `make torture`."""

from __future__ import annotations

from pathlib import Path
from signal import SIGINT, SIGKILL

import pytest
from support import whose_turn

from torture import growing, places
from torture.steps import Moment

CHANGES = ["append", "retry_rejects", "compact in place", "compact", "overwrite"]


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, growing.Change]:
    return growing.make_changes(tmp_path_factory.mktemp("changes") / "material")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_killed_just_before_its_commit(changes, name, tmp_path) -> None:
    moment = Moment(0, "dataset_info.json")
    assert growing.end(changes[name], moment, tmp_path / "out") == "before"


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_killed_just_after_its_commit(changes, name, tmp_path) -> None:
    moment = Moment(1, "dataset_info.json")
    assert growing.end(changes[name], moment, tmp_path / "out") == "after"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sent", "abandons"),
    [
        (name, *way)
        for at, name in enumerate(CHANGES)
        for way in whose_turn(at, [(SIGKILL, False), (SIGINT, False), (SIGKILL, True)])
    ],
)
def test_a_change_that_is_ended_at_some_moments(changes, name, sent, abandons, tmp_path) -> None:
    found = [
        growing.end(changes[name], Moment(spared, sent=sent), tmp_path / str(spared), abandons)
        for spared in (1, 6, 12)
    ]
    assert "before" in found


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_a_bucket_that_refuses_at_some_moments(changes, name: str, tmp_path: Path) -> None:
    found = growing.refuse_everywhere(tmp_path / "bucket", changes[name], step=11)
    assert "before" in found


def test_rows_of_any_spelling_are_neither_lost_nor_added_twice(tmp_path: Path) -> None:
    assert places.grow_from_places(tmp_path, 2).rows > 20


@pytest.mark.slow
def test_rows_of_any_spelling_after_compactions(tmp_path: Path) -> None:
    assert places.grow_from_places(tmp_path, 12, seed=1).rows > 100
