"""What `repair` knows of streams: they continue where they ended, or are refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.growing_cases import QUIET, table
from helpers.public_types import StreamResult
from helpers.streaming_cases import TO_ITS_END, Numbered, names_in, photo

import tfrecorder
from tfrecorder.errors import DatasetError

ROWS = 24


@pytest.fixture
def numbered() -> Path:
    """A stream of an ordered source, in three commits."""
    tfrecorder.stream(Numbered(ROWS), "out", every_rows=8, **TO_ITS_END)
    return Path("out")


@pytest.fixture
def folder() -> Path:
    """A stream of a folder, in two commits."""
    Path("images/cat").mkdir(parents=True)
    for number in range(6):
        shutil.copy(photo(number), f"images/cat/{number}.jpg")
    watch("out", every_rows=3)
    return Path("out")


def watch(out: str | Path, **options) -> StreamResult:
    return tfrecorder.stream(
        "images", out, source_options={"settle": 0}, **{**TO_ITS_END, **options}
    )


def manifests(out: Path) -> list[Path]:
    return sorted(out.glob("_tfrecorder/commits/*"))


def lose(path: Path) -> None:
    path.unlink()
    assert tfrecorder.repair("out", progress=False).lost
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.parametrize("commit", [0, 1, 2])
def test_an_ordered_stream_continues_after_a_manifest_is_lost(numbered: Path, commit: int) -> None:
    added = [json.loads(path.read_text())["log"]["added"] for path in manifests(numbered)]
    lose(manifests(numbered)[commit])
    newest = json.loads(manifests(numbered)[-1].read_text())
    assert newest["positions"] == {"numbered": ROWS}
    known = [entry["added"] for entry in (*newest["log_before"], newest["log"])]
    assert sum(known) == sum(added) - (0 if commit == 2 else added[commit])
    result = tfrecorder.stream(Numbered(ROWS + 5), "out", **TO_ITS_END)
    assert result.rows == 5
    assert names_in(numbered).total() == ROWS + 5


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_an_ordered_stream_continues_after_a_table_is_lost(numbered: Path, shard: int) -> None:
    lose(sorted(numbered.glob("_tfrecorder/tables/train-*"))[shard])
    result = tfrecorder.stream(Numbered(ROWS + 5), "out", **TO_ITS_END)
    assert result.rows == 5
    assert names_in(numbered).total() == ROWS + 5


@pytest.mark.parametrize("commit", [0, 1])
def test_a_folder_continues_after_a_manifest_is_lost(folder: Path, commit: int) -> None:
    lose(manifests(folder)[commit])
    shutil.copy(photo(9), "images/cat/9.jpg")
    assert watch(folder).rows == 1
    assert set(names_in(folder).values()) == {1}


def test_a_folder_whose_table_was_lost_is_refused_in_one_line(folder: Path) -> None:
    lose(next(folder.glob("_tfrecorder/tables/train-00000.parquet")))
    before = names_in(folder)
    with pytest.raises(DatasetError, match=r"^source folder:.*another directory.*append`\.$"):
        watch(folder)
    assert names_in(folder) == before
    # What the message names leaves the rows out that are there.
    shutil.copy(photo(9), "images/cat/9.jpg")
    assert tfrecorder.append("images", folder, **QUIET).records == 1
    assert tfrecorder.verify(folder).ok


@pytest.mark.slow
def test_the_mark_of_a_lost_position_stays(folder: Path) -> None:
    lose(next(folder.glob("_tfrecorder/tables/train-00000.parquet")))
    tfrecorder.append(table(20, 2), folder, **QUIET)
    tfrecorder.compact(folder, **QUIET)
    with pytest.raises(DatasetError, match="how far it was read was lost"):
        watch(folder)


@pytest.mark.parametrize("source", ["numbered", "folder"])
def test_where_all_is_lost_no_stream_begins_again(source: str, request) -> None:
    out = request.getfixturevalue(source)
    before = names_in(out)
    shutil.rmtree(out / "_tfrecorder")
    result = tfrecorder.repair(out, progress=False)
    assert any("streams" in words for words in result.lost)
    given = "images" if source == "folder" else Numbered(ROWS + 5)
    with pytest.raises(DatasetError, match="how far it was read was lost"):
        tfrecorder.stream(given, out, **TO_ITS_END)
    assert names_in(out) == before
    assert tfrecorder.verify(out).ok


def test_a_manifest_and_a_table_lost_together_mark_all_sources(numbered: Path) -> None:
    manifests(numbered)[1].unlink()
    next(numbered.glob("_tfrecorder/tables/train-00001.parquet")).unlink()
    assert tfrecorder.repair(numbered, progress=False).lost
    assert tfrecorder.verify(numbered).ok
    # A later batch says how far its source was read; of any other nobody knows.
    assert tfrecorder.stream(Numbered(ROWS + 5), numbered, **TO_ITS_END).rows == 5
    with pytest.raises(DatasetError, match="how far it was read was lost"):
        tfrecorder.stream(Numbered(3, name="another"), numbered, **TO_ITS_END)
