"""A row's number is given once, whatever was removed, overwritten or taken back before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from helpers.growing_cases import manifest
from helpers.second_day_cases import QUIET, as_wanted, check, read_shards, rows
from support import TESTS

import tfrecorder
from tfrecorder.errors import OutputError

DOUBLES = TESTS / "datasets" / "doubles-4"


def numbers(directory: str = "out") -> list[int]:
    return sorted(one.row for one in read_shards(directory))


def overwritten_after_a_removal() -> pd.DataFrame:
    table = rows(0, 6)
    tfrecorder.convert(table, "out", num_shards=1, **QUIET)
    tfrecorder.remove("out", {"image_uri": ["img/0.png", "img/1.png"]}, **QUIET)
    result = tfrecorder.convert(table, "out", num_shards=1, overwrite=True, **QUIET)
    assert result.removed == 2
    table = pd.concat([table, rows(6, 3)], ignore_index=True)
    tfrecorder.append(table[6:], "out", num_shards=1, **QUIET)
    return table[2:]


def test_what_follows_an_overwrite_after_a_removal_has_new_numbers() -> None:
    table = overwritten_after_a_removal()
    assert numbers() == [2, 3, 4, 5, 6, 7, 8]
    check("out", as_wanted(table))


OPERATIONS: dict[str, Callable[[str], object]] = {
    "remove": lambda uri: tfrecorder.remove("out", {"image_uri": uri}, **QUIET),
    "drop": lambda uri: tfrecorder.compact("out", drop=[uri], **QUIET),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("number", [3, 4, 6, 7])
def test_an_operation_after_it_takes_the_one_row_that_it_names(operation: str, number: int) -> None:
    table = overwritten_after_a_removal()
    OPERATIONS[operation](f"img/{number}.png")
    check("out", as_wanted(table.drop(index=number)))


@pytest.mark.parametrize("number", [3, 4, 6, 7])
def test_an_update_after_it_changes_the_one_row_that_it_names(number: int) -> None:
    table = overwritten_after_a_removal()
    table.loc[number, "label"] = "z"
    tfrecorder.update(table, "out", **QUIET)
    check("out", as_wanted(table))
    tfrecorder.update(table.drop(index=number), "out", missing="remove", **QUIET)
    check("out", as_wanted(table.drop(index=number)))


def test_the_next_number_never_falls() -> None:
    tfrecorder.convert(rows(0, 6), "out", num_shards=1, **QUIET)
    steps: list[Callable[[], object]] = [
        lambda: tfrecorder.append(rows(6, 3), "out", **QUIET),
        lambda: tfrecorder.undo("out"),
        lambda: tfrecorder.append(rows(9, 2), "out", **QUIET),
        lambda: tfrecorder.compact("out", num_shards=1, **QUIET),
        lambda: tfrecorder.remove("out", {"image_uri": "img/10.png"}, **QUIET),
        lambda: tfrecorder.update(rows(0, 14), "out", **QUIET),
        lambda: tfrecorder.convert(rows(0, 4), "out", overwrite="all", **QUIET),
        lambda: tfrecorder.append(rows(20, 2), "out", **QUIET),
    ]
    stated = [manifest("out", 0)["next_row"]]
    for step in steps:
        step()
        newest = max(Path("out/_tfrecorder/commits").iterdir()).stem
        stated.append(manifest("out", int(newest))["next_row"])
        assert len({*numbers()}) == len(numbers())
        assert numbers()[-1] < stated[-1]
    assert stated == sorted(stated)


def test_an_overwrite_begins_with_its_own_numbers() -> None:
    """The same input gives the same bytes."""
    tfrecorder.convert(rows(0, 9), "out", num_shards=1, **QUIET)
    tfrecorder.convert(rows(0, 5), "out", num_shards=1, overwrite=True, **QUIET)
    tfrecorder.convert(rows(0, 5), "new", num_shards=1, **QUIET)
    assert [*read_shards("out")] == [*read_shards("new")]


def test_boxes_with_a_row_each_take_as_many_numbers_as_rows() -> None:
    table = rows(0, 4)
    boxes = pd.concat([table, table], ignore_index=True)
    boxes = boxes.assign(x_min=0.1, y_min=0.1, x_max=0.5, y_max=0.5)
    tfrecorder.convert(boxes[:6], "out", **QUIET)
    assert manifest("out", 0)["next_row"] == 6


@pytest.fixture
def doubles() -> str:
    """A dataset of an earlier version, in which the numbers 4 and 5 were given twice."""
    shutil.copytree(DOUBLES, "out")
    rows(0, 12)
    values = manifest("out", 3)
    assert values["version"] == 4
    assert numbers() == [2, 3, 4, 4, 5, 5, 6]
    return "out"


def test_what_would_take_another_row_is_refused_before_anything_is_staged(doubles: str) -> None:
    before = {path: path.read_bytes() for path in Path(doubles).rglob("*") if path.is_file()}
    table = tfrecorder.to_frame(doubles, images="bytes")
    calls: list[Callable[[], object]] = [
        lambda: tfrecorder.compact(doubles, num_shards=1, **QUIET),
        lambda: tfrecorder.compact(doubles, "elsewhere", **QUIET),
        lambda: tfrecorder.remove(doubles, {"image_uri": "img/2.png"}, **QUIET),
        lambda: tfrecorder.update(rows(2, 1, labels="z"), doubles, **QUIET),
    ]
    for call in calls:
        with pytest.raises(OutputError, match="2 row numbers stand for two records") as raised:
            call()
        assert "into a new directory" in str(raised.value)
    after = {path: path.read_bytes() for path in Path(doubles).rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name != "lock"} == before
    tfrecorder.convert(table, "anew", num_shards=1, **QUIET)
    assert numbers("anew") == [*range(7)]


def test_an_append_to_it_counts_from_its_highest_number(doubles: str) -> None:
    tfrecorder.append(rows(9, 2), doubles, duplicates="keep", **QUIET)
    assert numbers() == [2, 3, 4, 4, 5, 5, 6, 7, 8]
    info = json.loads(Path(doubles, "_tfrecorder/commits/00004.json").read_text())
    assert (info["version"], info["next_row"]) == (5, 9)


def lose_the_newest_manifest() -> None:
    newest = max(Path("out/_tfrecorder/commits").iterdir())
    newest.unlink()
    assert tfrecorder.repair("out", progress=False).lost


def test_no_number_comes_again_after_a_manifest_was_lost() -> None:
    """The removed row had the largest number, which nothing says any more."""
    tfrecorder.convert(rows(0, 6), "out", num_shards=1, **QUIET)
    tfrecorder.append(rows(6, 2), "out", **QUIET)
    tfrecorder.remove("out", {"image_uri": ["img/6.png", "img/7.png"]}, **QUIET)
    lose_the_newest_manifest()
    tfrecorder.append(rows(8, 2), "out", duplicates="keep", **QUIET)
    *before, first, second = numbers()
    assert before == [*range(6)]
    assert min(first, second) >= 8
    table = pd.concat([rows(0, 6), rows(8, 2)], ignore_index=True)
    table.loc[7, "label"] = "z"
    tfrecorder.update(table, "out", **QUIET)
    check("out", as_wanted(table))
    tfrecorder.compact("out", num_shards=1, **QUIET)
    assert numbers() == [*before, first, second]


def test_numbers_go_on_where_only_additions_were_made() -> None:
    tfrecorder.convert(rows(0, 6), "out", num_shards=1, **QUIET)
    tfrecorder.append(rows(6, 2), "out", **QUIET)
    lose_the_newest_manifest()
    tfrecorder.append(rows(8, 2), "out", **QUIET)
    assert numbers() == [*range(10)]
