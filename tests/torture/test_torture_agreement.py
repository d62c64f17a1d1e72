"""What readers and the table itself say of random datasets: a short form of `torture.agreement`."""

from __future__ import annotations

from pathlib import Path

import pytest

from torture import agreement


@pytest.mark.slow
def test_readers_agree_on_datasets_that_grow(tmp_path: Path) -> None:
    (count,) = agreement.agree(tmp_path / "agree", times=1)
    assert count.rows > 2
