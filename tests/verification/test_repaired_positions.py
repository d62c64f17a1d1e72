"""How far a stream was read is not forgotten with a manifest: known still, or noted as lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.growing_cases import manifest
from helpers.second_day_cases import QUIET, read_shards, rows

import tfrecorder
from tfrecorder.errors import DatasetError


class Feed:
    """Two rows, of which nobody wants what was read already."""

    name = "feed"

    def rows(self, position: Any) -> Iterator[tuple[dict[str, Any], int]]:
        cells = rows(0, 2).to_dict("records")
        for number in range(position or 0, len(cells)):
            yield cells[number], number + 1

    def wait(self, seconds: float) -> None: ...


def stream() -> None:
    tfrecorder.stream(Feed(), "out", until_idle=0, **QUIET)


def uris() -> set[str]:
    return {one.uri for one in read_shards("out")}


@pytest.fixture(autouse=True)
def _streamed_and_gone() -> None:
    """All streamed rows left by `missing`, so that no table names the stream."""
    stream()
    tfrecorder.update(rows(11, 1), "out", missing="remove", **QUIET)
    assert uris() == {"img/11.png"}


def test_a_later_manifest_says_how_far_it_was() -> None:
    tfrecorder.append(rows(12, 1), "out", **QUIET)
    Path("out/_tfrecorder/commits/00001.json").unlink()
    tfrecorder.repair("out", progress=False)
    assert manifest("out", 2)["positions"] == {"feed": 2}
    assert tfrecorder.verify("out", progress=False).ok
    stream()
    assert uris() == {"img/11.png", "img/12.png"}


def test_without_one_it_is_noted_as_lost_and_the_stream_asks() -> None:
    Path("out/_tfrecorder/commits/00001.json").unlink()
    assert any(
        "how far streams" in words for words in tfrecorder.repair("out", progress=False).lost
    )
    assert manifest("out", 1)["losses"]["positions"]
    with pytest.raises(DatasetError, match="how far it was read was lost"):
        stream()
    assert uris() == {"img/11.png"}
