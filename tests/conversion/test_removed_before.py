"""A removal that is repeated succeeds and says so; what was never there stays an error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.growing_cases import QUIET, drawn
from support import invoke, public_files
from torture.steps import Moment, convert_until

import tfrecorder
from tfrecorder.errors import OptionError


@pytest.fixture(autouse=True)
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six images in `out`, of which 2 and 3 were removed."""
    monkeypatch.chdir(tmp_path)
    drawn("img", 6, (9, 9))
    tfrecorder.convert(frame(*"012345"), "out", num_shards=2, shuffle=False, **QUIET)
    tfrecorder.remove("out", {"image_uri": ["img/2.png", "img/3.png"]}, **QUIET)


def frame(*names: str) -> pd.DataFrame:
    return pd.DataFrame({"split": "TRAIN", "image_uri": [f"img/{name}.png" for name in names]})


def uris(out: str = "out") -> list[str]:
    return sorted(tfrecorder.to_frame(out)["image_uri"])


def by_condition(gone: list[str], **more: Any) -> Any:
    return tfrecorder.remove("out", {"image_uri": gone}, **more, **QUIET)


def by_compaction(gone: list[str], **more: Any) -> Any:
    return tfrecorder.compact("out", drop=gone, **more, **QUIET)


each_way = pytest.mark.parametrize("way", [by_condition, by_compaction])


@each_way
def test_again_it_succeeds_and_says_removed_before(way: Callable[..., Any]) -> None:
    way(["img/1.png"])
    before = public_files("out")
    gone = ["img/1.png", "img/2.png"]
    assert "removed before: 2 rows" in str(way(gone, dry_run=True))
    result = way(gone)
    assert "removed before: 2 rows" in str(result)
    assert result.was_finished
    assert (result.records, public_files("out")) == (3, before)


def test_of_one_that_is_named_alone() -> None:
    result = tfrecorder.remove("out", {"image_uri": "img/2.png"}, **QUIET)
    assert "removed before: 1 row" in str(result)
    assert result.was_finished


@each_way
def test_beside_new_ones(way: Callable[..., Any]) -> None:
    gone = ["img/2.png", "img/4.png"]
    said = way(gone, dry_run=True)
    result = way(gone)
    assert said.notes == result.notes
    assert "removed before: 1 row" in str(result)
    assert (result.changes.removed, uris()) == (1, ["img/0.png", "img/1.png", "img/5.png"])
    assert tfrecorder.verify("out", absent=gone, progress=False).ok


@each_way
def test_a_uri_that_was_never_there_is_an_error(way: Callable[..., Any]) -> None:
    before = public_files("out")
    for gone in (
        ["img/9.png"],
        ["img/2.png", "img/9.png"],
        ["img/2.png", "img/9.png", "img/1.png"],
    ):
        with pytest.raises(OptionError, match=r"'img/9\.png'"):
            way(gone)
    assert public_files("out") == before


@each_way
def test_what_came_in_again_is_removed_again(way: Callable[..., Any]) -> None:
    tfrecorder.append(frame("2"), "out", readmit=True, **QUIET)
    assert way(["img/2.png"]).changes.removed == 1
    assert "img/2.png" not in uris()


@each_way
def test_copies_that_stayed_are_named_again_and_can_still_go(way: Callable[..., Any]) -> None:
    shutil.copy("img/0.png", "img/copy.png")
    tfrecorder.append(frame("copy"), "out", **QUIET)
    way(["img/0.png"])
    said = str(way(["img/0.png"]))
    assert "copies with the same bytes stay, 1: 'img/copy.png'" in said
    result = way(["img/0.png"], copies=True)
    assert result.changes.removed == 1
    assert uris() == ["img/1.png", "img/4.png", "img/5.png"]


def test_a_compaction_of_what_was_removed_before_still_compacts() -> None:
    result = tfrecorder.compact("out", drop=["img/2.png"], num_shards=1, **QUIET)
    assert "removed before: 1 row" in str(result)
    assert (result.shards, result.records) == (1, 4)
    elsewhere = tfrecorder.compact("out", "other", drop=["img/2.png"], **QUIET)
    assert "removed before: 1 row" in str(elsewhere)
    assert uris("other") == uris("out")
    assert tfrecorder.append(frame("2"), "other", **QUIET).removed == 1


def test_images_that_came_as_bytes() -> None:
    cells = [Path(f"img/{name}.png").read_bytes() for name in range(3)]
    tfrecorder.convert(pd.DataFrame({"split": "TRAIN", "image_uri": cells}), "cells", **QUIET)
    gone = {"image_uri": uris("cells")[0]}
    tfrecorder.remove("cells", gone, **QUIET)
    assert "removed before: 1 row" in str(tfrecorder.remove("cells", gone, **QUIET))


@pytest.mark.slow
def test_a_compaction_that_was_killed_wherever_it_was_is_completed_by_the_same_call() -> None:
    shutil.move("out", "start")
    left = ["img/0.png", "img/5.png"]
    drop = ["img/1.png", "img/4.png"]
    kills = 0
    for step in range(99):
        shutil.rmtree("out", ignore_errors=True)
        shutil.copytree("start", "out")
        out = str(Path("out").absolute())
        if not convert_until(Moment(step), None, out, "compact", drop=drop):
            break
        kills += 1
        assert tfrecorder.compact("out", drop=drop, **QUIET).records == 2
        assert uris() == left
        assert tfrecorder.verify("out", absent=drop, progress=False).ok
    assert kills > 9


def test_in_the_shell() -> None:
    Path("gone.txt").write_text("img/2.png\nimg/3.png\n")
    for call in (
        ("remove", "out", "--uris", "gone.txt"),
        ("remove", "out", "image_uri=img/2.png", "image_uri=img/3.png"),
        ("compact", "out", "--drop", "gone.txt"),
        ("remove", "out", "--uris", "gone.txt", "--dry-run"),
    ):
        result = invoke(*call)
        assert result.exit_code == 0, result.output
        assert result.output.count("removed before: 2 rows") == 1
