"""Bad disks and bad company: the short form of `make torture`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from torture import disks
from torture.counts import BrokenError, Count
from torture.disks import CannotMountError
from torture.material import LATE, OPTIONS, Material, convert, make_material


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    return make_material(tmp_path_factory.mktemp("disturbed") / "material", rows=600)


def survived(attack: Callable[[], Count]) -> int:
    """How often an attack was made, none of the rows being lost."""
    try:
        count = attack()
    except CannotMountError as error:
        pytest.skip(str(error))
    assert count.lost == 0
    return count.times


@pytest.mark.slow
def test_other_lists_and_other_records_are_noticed(material, tmp_path: Path) -> None:
    images = material.folder / "images"
    (images / LATE).rename(tmp_path / "away")
    convert(material.table, tmp_path / "out", OPTIONS)
    (tmp_path / "away").rename(images / LATE)
    with pytest.raises(BrokenError, match="other files"):
        disks.check_grown(tmp_path / "out", material.whole, material.rows)
    for name in ("rejects.csv", "suspects.csv"):
        shutil.copy(material.whole / name, tmp_path / "out")
    with pytest.raises(BrokenError, match="other records"):
        disks.check_grown(tmp_path / "out", material.whole, material.rows)


@pytest.mark.slow
def test_a_disk_that_fills_up_anywhere_leaves_nothing_partial(material, tmp_path: Path) -> None:
    assert survived(lambda: disks.fill_disks(material, 5, tmp_path)) >= 4


@pytest.mark.slow
def test_files_that_may_not_grow_are_one_clear_error(material, tmp_path: Path) -> None:
    assert survived(lambda: disks.limit_files(material, 2, tmp_path / "limits")) == 2


@pytest.mark.slow
def test_a_read_only_disk_is_one_clear_error_and_is_not_touched(material, tmp_path: Path) -> None:
    assert survived(lambda: disks.lock_disk(material, tmp_path)) == 4


@pytest.mark.slow
def test_rows_of_a_disk_that_is_mounted_late_come_back(material, tmp_path: Path) -> None:
    assert survived(lambda: disks.mount_late(material, tmp_path / "late")) == 2


@pytest.mark.slow
def test_a_disk_that_is_unmounted_meanwhile_is_waited_for(material, tmp_path: Path) -> None:
    assert survived(lambda: disks.unmount_midway(material, 1, 4, tmp_path / "midway")) == 1


@pytest.mark.slow
def test_rows_of_a_folder_that_may_not_be_read_come_back() -> None:
    assert survived(disks.lock_images) == 2


@pytest.mark.slow
def test_an_image_that_vanishes_after_planning_is_a_reject(material, tmp_path: Path) -> None:
    assert survived(lambda: disks.vanish(material, 1, tmp_path / "vanish")) == 1


@pytest.mark.slow
def test_of_conversions_at_once_one_gets_the_directory(material, tmp_path: Path) -> None:
    assert survived(lambda: disks.convert_at_once(material, 1, tmp_path / "company")) >= 1
