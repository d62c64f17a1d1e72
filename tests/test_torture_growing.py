"""Appends and compactions that are killed at any moment: the short form of `make torture`."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture import growing, places
from torture.steps import Moment


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> growing.Grown:
    return growing.make_grown(tmp_path_factory.mktemp("grown") / "material")


@pytest.mark.slow
@pytest.mark.parametrize("spared", [0, 1, 6, 20])
def test_an_append_that_is_killed_leaves_what_was_there(
    grown: growing.Grown, tmp_path: Path, spared: int
) -> None:
    assert growing.kill_append(Moment(spared), grown, tmp_path / "out") == "before"


def test_an_append_that_is_killed_after_its_commit_adds_nothing_again(
    grown: growing.Grown, tmp_path: Path
) -> None:
    moment = Moment(1, "appended/00002/dataset_info.json")
    assert growing.kill_append(moment, grown, tmp_path / "out") == "after"


@pytest.mark.parametrize(("spared", "found"), [(0, "old"), (1, "between"), (12, "between")])
def test_an_overwrite_of_generations_that_is_killed(
    grown: growing.Grown, tmp_path: Path, spared: int, found: str
) -> None:
    moment = Moment(spared, "dataset_info.json")
    assert growing.kill_overwrite(moment, grown, tmp_path / "out") == found


@pytest.mark.parametrize("spared", [1, 9])
def test_a_compaction_that_is_killed(grown: growing.Grown, tmp_path: Path, spared: int) -> None:
    assert growing.kill_compact(Moment(spared), grown, tmp_path / "out") == "before"


@pytest.mark.slow
def test_a_bucket_that_refuses_at_any_moment_of_an_append(tmp_path: Path) -> None:
    assert set(growing.refuse_everywhere(tmp_path, step=20)) >= {"before"}


def test_rows_of_any_spelling_are_neither_lost_nor_added_twice(tmp_path: Path) -> None:
    assert places.grow_from_places(tmp_path, 2).rows > 20


@pytest.mark.slow
def test_rows_of_any_spelling_after_compactions(tmp_path: Path) -> None:
    assert places.grow_from_places(tmp_path, 12, seed=1).rows > 100
