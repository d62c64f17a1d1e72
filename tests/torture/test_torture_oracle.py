"""Lives of datasets before an oracle that shares nothing with the package: a short form of it.

And what it is for: it notices what is wrong.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tfrecorder
from torture.kills import Disk
from torture.oracle import WrongError, check_beside, read
from torture.oracle_calls import AnyLife
from torture.oracle_life import Life, Step
from torture.oracle_machine import attack
from torture.oracle_model import Kind, Row

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of new classes, and the like


@pytest.mark.slow
def test_some_lives() -> None:
    assert attack(300, seed=71).times >= 300


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    """A dataset of six rows and two shards, without Beam."""
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    life = AnyLife(Disk(tmp_path / "life"), Kind(captions=True))
    life.live(Step("convert", {"rows": ROWS, "shards": 1}))
    return life


ROWS = [Row(f"img-{n:02d}", ("ant", "bee")[n % 2], ("TRAIN", "TEST")[n % 2]) for n in range(6)]


def test_a_life(life: Life) -> None:
    life.live(Step("append", {"rows": [Row("img-07", "cat", "TRAIN")], "shards": 1}))
    life.live(Step("stream", {"count": 3}))
    life.live(Step("undo"))
    life.live(Step("remove", {"names": ["img-00"]}, killed=0.7))
    assert len(life.now.records) == 6


def test_a_byte_of_a_record_is_another(life: Life) -> None:
    shard = next(life.out.glob("train-*.tfrecord"))
    data = shard.read_bytes()
    shard.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    with pytest.raises(WrongError, match="checksum"):
        read(life.out)


def test_an_index_is_of_another_order(life: Life) -> None:
    index = next(life.out.glob("_tfrecorder/index/train-*"))
    index.write_text("\n".join(reversed(index.read_text().splitlines())))
    contents = read(life.out)
    assert contents is not None
    with pytest.raises(WrongError, match="not of its shard"):
        check_beside(life.out, contents)


def test_a_row_is_lost(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    append = tfrecorder.append

    def lose(table: pd.DataFrame, *given: Any, **options: Any) -> object:
        return append(table[1:], *given, **options)

    monkeypatch.setattr(tfrecorder, "append", lose)
    rows = [Row("img-07", "cat", "TRAIN"), Row("img-08", "cat", "TRAIN")]
    with pytest.raises(WrongError, match=r"img-07.* not there"):
        life.live(Step("append", {"rows": rows, "shards": 1}))


def test_something_is_left_of_what_was_removed(
    life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = tfrecorder.remove
    kept = shutil.copy(next(life.out.glob("_tfrecorder/tables/train-*")), tmp_path)

    def leave(*given: Any, **options: Any) -> object:
        result = remove(*given, **options)
        shutil.copy(kept, life.out / "_tfrecorder/tables/train-09999.parquet")
        return result

    monkeypatch.setattr(tfrecorder, "remove", leave)
    with pytest.raises(WrongError, match=r"train-09999.parquet has something of img-02"):
        life.live(Step("remove", {"names": ["img-02"]}))


def test_an_error_of_another_type(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr(tfrecorder, "compact", fail)
    with pytest.raises(WrongError, match="KeyError"):
        life.live(Step("compact", {"shards": 2}))
