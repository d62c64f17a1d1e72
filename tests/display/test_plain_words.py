"""Words of messages: long labels, and a disk that has too little room."""

from __future__ import annotations

import json
import os
import shutil
from collections import namedtuple

import pytest
from support import invoke, photo_frame

import tfrecorder

LONG = "x" * 5000


@pytest.mark.slow
@pytest.mark.parametrize("rows", [4, 60])
def test_a_long_label_is_cut_in_every_message(rows: int) -> None:
    frame = photo_frame(rows)
    frame["split"] = ["TRAIN"] * (rows - 2) + ["TEST"] * 2
    frame.loc[rows - 2 :, "label"] = [LONG, LONG.upper()]
    report = tfrecorder.validate(frame)
    assert "label_not_in_train" in set(report["code"])
    assert report["message"].str.len().max() < 400
    assert LONG[:200] not in str(report)
    frame.to_csv("frame.csv", index=False)
    assert LONG[:200] not in invoke("convert", "frame.csv", "out", "--dry-run").stdout
    assert LONG[:200] not in str(tfrecorder.convert(frame, "out", progress=False))
    assert LONG[:200] not in str(tfrecorder.info("out"))


def test_a_dry_run_says_that_the_disk_has_too_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    photo_frame(8).to_csv("photos.csv", index=False)
    trial = ("convert", "photos.csv", "a/b/out", "--dry-run")
    assert json.loads(invoke(*trial, "--json").stdout)["free_bytes"] > 2**20
    assert "too little room" not in invoke(*trial).stdout
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2**20, 2**20, 1024))
    words = invoke(*trial).stdout
    assert "the disk has too little room: 1 KiB are free, about" in words
    assert not os.path.exists("a")
