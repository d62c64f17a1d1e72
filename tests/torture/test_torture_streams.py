"""A short form of the attacks on streams by hostile names, texts and positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torture import hostile_streams as hostile


@pytest.mark.parametrize("text", hostile.BAD_TEXTS[:2], ids=ascii)
def test_a_row_with_text_that_no_file_can_hold_is_one_reject(tmp_path: Path, text: str) -> None:
    assert hostile.stream_bad_rows(tmp_path, text, every_rows=1000)


def test_a_file_name_that_is_not_utf_8_is_one_reject_of_a_watched_folder(tmp_path: Path) -> None:
    assert hostile.watch_bad_names(tmp_path, every_rows=5)


def test_a_source_may_read_on_in_the_positions_it_was_given(tmp_path: Path) -> None:
    assert hostile.keep_positions(tmp_path, rows=20, every_rows=3)


@pytest.mark.filterwarnings("ignore:.*links? to what is not there")
def test_links_that_lead_nowhere_are_listed(tmp_path: Path) -> None:
    assert hostile.watch_links(tmp_path)


@pytest.mark.parametrize(("position", "ordered"), hostile.BAD_POSITIONS)
def test_a_position_that_would_not_come_back_is_the_fault_of_the_source(
    tmp_path: Path, position: Any, ordered: bool
) -> None:
    hostile.refuse_position(tmp_path, position, ordered)
