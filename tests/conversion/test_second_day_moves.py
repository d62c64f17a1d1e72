"""Rows that move to another split, and all rows of a shard: table, index and records stay one."""

from __future__ import annotations

import pandas as pd
import pytest
from helpers.second_day_cases import QUIET, as_wanted, check, rows
from support import slow_cases

import tfrecorder

#: Raw pixels give records of one length: then a table in another order is not even damaged.
FORMS = {"png": {}, "raw": {"image_format": "raw", "image_size": 8}}


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> dict[str, object]:
    return FORMS[request.param]


@pytest.mark.parametrize("changed", ["no label", "one label", "all labels"])
@pytest.mark.parametrize("moved", [3, *slow_cases(2, 5, 8)])
def test_all_rows_of_a_shard_go_to_another_split(form, moved: int, changed: str) -> None:
    table = pd.concat([rows(0, 6), rows(6, moved, "TEST")], ignore_index=True)
    tfrecorder.convert(table, "out", num_shards=1, **form, **QUIET)
    table["split"] = "TRAIN"
    of_moved = table.index[6:]
    if changed != "no label":
        table.loc[of_moved if changed == "all labels" else of_moved[1:2], "label"] = "z"
    tfrecorder.update(table, "out", **QUIET)
    check("out", as_wanted(table))
    victim = table["image_uri"][7]
    tfrecorder.remove("out", {"image_uri": victim}, **QUIET)
    check("out", as_wanted(table.drop(index=7)))


def test_rows_of_several_shards_go_to_a_split_that_is_there(form) -> None:
    table = pd.concat([rows(0, 9), rows(9, 9, "TEST")], ignore_index=True)
    tfrecorder.convert(table, "out", num_shards=3, **form, **QUIET)
    table["split"] = ["TEST"] * 9 + ["TRAIN"] * 9
    table.loc[4:12, "label"] = "z"
    tfrecorder.update(table, "out", **QUIET)
    check("out", as_wanted(table))
    again = tfrecorder.update(table, "out", **QUIET)
    assert again.changes is not None
    assert again.changes.corrected == 0
    check("out", as_wanted(table))


def test_a_correction_after_a_move_is_copied_many_at_a_time_and_right(form) -> None:
    table = pd.concat([rows(0, 6), rows(6, 4, "TEST")], ignore_index=True)
    tfrecorder.convert(table, "out", num_shards=1, **form, **QUIET)
    table["split"] = "TRAIN"
    tfrecorder.update(table, "out", **QUIET)
    table.loc[[2, 7], "label"] = "z"
    tfrecorder.update(table, "out", **QUIET)
    check("out", as_wanted(table))
    tfrecorder.undo("out")
    table.loc[[2, 7], "label"] = ["x", "y"]
    check("out", as_wanted(table))
