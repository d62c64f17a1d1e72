"""Overwrites that are killed at any moment: the short form of `make torture`."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture import overwrites
from torture.counts import BrokenError
from torture.steps import Moment


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> overwrites.Pair:
    return overwrites.make_pair(tmp_path_factory.mktemp("overwritten") / "pair")


@pytest.mark.slow
@pytest.mark.parametrize("spared", [0, 5, 24])
def test_an_overwrite_that_is_killed_leaves_the_old_dataset(
    pair: overwrites.Pair, tmp_path: Path, spared: int
) -> None:
    assert overwrites.kill_once(Moment(spared), pair, tmp_path / "out") == "old"


@pytest.mark.parametrize("by_repair", [False, True])
def test_an_exchange_that_is_killed_is_completed_by_the_next_call(
    pair: overwrites.Pair, tmp_path: Path, by_repair: bool
) -> None:
    moment = Moment(20, "dataset_info.json")
    assert overwrites.kill_once(moment, pair, tmp_path / "out", by_repair) == "between"


@pytest.mark.slow
def test_an_exchange_that_is_killed_again_and_again_comes_to_its_end(tmp_path: Path) -> None:
    found = overwrites.kill_again_and_again(tmp_path, changes=9)
    assert (found[0], found[-1]) == ("old", "new")
    assert set(found[1:-1]) == {"between"}


@pytest.mark.slow
def test_a_bucket_that_refuses_at_any_moment_of_an_overwrite(tmp_path: Path) -> None:
    assert set(overwrites.refuse_everywhere(tmp_path, step=40)) >= {"old", "between"}


def test_a_dataset_that_is_neither_is_noticed(pair: overwrites.Pair) -> None:
    files = {path.name: path.read_bytes() for path in pair.new.iterdir() if path.is_file()}
    assert overwrites.state(pair.new, files, pair) == "new"
    with pytest.raises(BrokenError, match="neither the old dataset nor the new one"):
        overwrites.state(pair.new, {**files, "train-00000.tfrecord": b""}, pair)
