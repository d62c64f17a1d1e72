"""Words of messages: plurals, long labels, and a disk that has too little room."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple

import pytest
from support import photo_frame

import tfrecorder
from tfrecorder.conversion.dry_run import dry_run
from tfrecorder.display.tables import counted

LONG = "x" * 5000


def test_a_word_that_ends_in_s_has_its_plural() -> None:
    assert counted(3, "class") == "3 classes"
    assert counted(1, "class") == "1 class"
    assert counted(2, "box") == "2 boxes"


@pytest.mark.parametrize("rows", [4, 60])
def test_a_long_label_is_cut_in_every_message(rows: int) -> None:
    frame = photo_frame(rows)
    frame["split"] = ["TRAIN"] * (rows - 2) + ["TEST"] * 2
    frame.loc[rows - 2 :, "label"] = [LONG, LONG.upper()]
    report = tfrecorder.validate(frame)
    assert "label_not_in_train" in set(report["code"])
    assert report["message"].str.len().max() < 400
    assert LONG[:200] not in str(report)
    assert LONG[:200] not in str(dry_run(frame, "out"))
    assert LONG[:200] not in str(tfrecorder.convert(frame, "out", progress=False))
    assert LONG[:200] not in str(tfrecorder.info("out"))


def test_a_dry_run_says_that_the_disk_has_too_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    plenty = dry_run(photo_frame(8), "a/b/out")
    assert plenty.free is not None
    assert plenty.free > 2**20
    assert plenty.as_dict()["free_bytes"] == plenty.free
    assert "too little room" not in str(plenty)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**20, 2**20, 1024))
    words = str(dry_run(photo_frame(8), "a/b/out"))
    assert "the disk has too little room: 1 KiB are free, about" in words
    assert not os.path.exists("a")
