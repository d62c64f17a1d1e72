"""The page on Ray and Spark: on both, the bytes of `convert`, also if a worker is killed."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from helpers.clusters import kill_one, slow_frame
from helpers.doc_pages import PAGES, blocks
from support import SAMPLES, public_files, skip_without, start

import tfrecorder

pytestmark = [pytest.mark.engines, pytest.mark.slow]

#: What the page calls the output, by the package of the engine.
OUTPUTS = {"ray": "out-ray", "pyspark": "out-spark"}


@pytest.fixture(params=OUTPUTS)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    skip_without(request.param)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    return request.param


def code_of(engine: str) -> str:
    """The block of the page for an engine."""
    (block,) = (one for one in blocks(PAGES["docs/machines.md"]) if one.needs == (engine,))
    return block.code


def assert_as_converted(engine: str) -> None:
    tfrecorder.convert("photos.csv", "whole", num_shards=16, progress=False)
    assert public_files(OUTPUTS[engine]) == public_files("whole")
    assert tfrecorder.verify(OUTPUTS[engine]).ok


def test_its_code_writes_the_bytes_of_convert(engine: str) -> None:
    shutil.copy(SAMPLES / "photos.csv", "photos.csv")
    shutil.copytree(SAMPLES / "photos", "photos")
    process = start(code_of(engine))
    said, words = process.communicate(timeout=300)
    assert process.returncode == 0, words
    assert "52 records in" in said
    assert_as_converted(engine)


def test_a_killed_worker_loses_nothing(engine: str, tmp_path: Path) -> None:
    slow_frame(tmp_path / "images", shards=16).to_csv("photos.csv", index=False)
    process = start(code_of(engine))

    def workers() -> list[int]:
        try:
            return [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    with ThreadPoolExecutor(1) as other:
        hit = other.submit(kill_one, workers, 1)
        _, words = process.communicate(timeout=300)
        assert hit.result(timeout=1).startswith("train-")
    assert process.returncode == 0, words
    assert_as_converted(engine)
