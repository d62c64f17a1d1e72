"""What was removed stays out of an overwrite, wherever that is killed and run again."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.second_day_cases import QUIET, read_shards, rows
from torture.kills import Disk

import tfrecorder


@pytest.mark.slow
def test_an_overwrite_that_is_killed_and_run_again_lets_nothing_in(tmp_path) -> None:
    disk = Disk(tmp_path)
    table = rows(0, 5).assign(image_uri=[str(Path(f"img/{n}.png").absolute()) for n in range(5)])
    tfrecorder.convert(table, disk.out, num_shards=1, **QUIET)
    tfrecorder.remove(disk.out, {"image_uri": table["image_uri"][1]}, **QUIET)
    # Other classes: no file of them fits both datasets, so the old commit is set aside first.
    other = table.assign(label=["p", "q", "r", "s", "t"])

    def overwrite() -> None:
        tfrecorder.convert(other, disk.out, num_shards=2, overwrite=True, **QUIET)

    with disk.recorded() as states:
        overwrite()
    wanted = {*other["image_uri"].drop(index=1)}
    aside = 0
    for state in states:
        disk.restore(state)
        aside += "_tfrecorder/waiting/dataset_info.json" in state
        overwrite()
        assert {one.uri for one in read_shards(str(disk.out))} == wanted
        assert tfrecorder.verify(disk.out, progress=False).ok
    assert aside
