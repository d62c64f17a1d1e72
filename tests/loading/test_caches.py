"""`cache=`: its name has what decides its content, and who is killed leaves nothing behind."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.foreign_cases import image, write

import tfrecorder

#: Options that change no element of a cache, each with another value than its default.
NEEDLESS: dict[str, dict[str, Any]] = {
    "batch_size": {"batch_size": 2},
    "drop_remainder": {"batch_size": 2, "drop_remainder": True},
    "shuffle": {"shuffle": 7},
    "seed": {"seed": 3},
    "start": {"seed": 3, "start": (1, 0)},
    "map_fn": {"map_fn": lambda pixels, targets: pixels},
    "ram_budget": {"ram_budget": "64MiB"},
}

#: Those that do, or that say which records are read.
DECISIVE: dict[str, dict[str, Any]] = {
    "image_size": {"image_size": 9},
    "resize": {"resize": "crop"},
    "antialias": {"antialias": False},
    "dtype": {"dtype": "float32"},
    "value_range": {"dtype": "float32", "value_range": (-1, 1)},
    "mean": {"dtype": "float32", "mean": 0.5, "std": 1},
    "std": {"dtype": "float32", "mean": 0.5, "std": 0.5},
    "decode": {"decode": False, "image_size": None},
    "augment": {"augment": True},
    "inputs": {"inputs": "all"},
    "targets": {"targets": ["label"]},
    "max_boxes": {"max_boxes": 2},
    "image": {"image": "image/second"},
    "label": {"label": "image/class/other"},
    "features": {"features": {"image/class/other": "int64[]"}},
    "shard": {"shard": (0, 2)},
}

#: Where it is; and what goes with none, or not with files of other tools.
OTHERS = {"cache", "follow", "where", "classes", "balance", "epoch_size", "local_cache"}
OTHERS |= {"cache_bytes", "at"}


def names(folder: Path) -> set[str]:
    return {path.name.removesuffix(".index") for path in folder.glob("*.index")}


def foreign(where: Path, boxes: bool = False, label: float = 1) -> Path:
    more = {"second": image(1)["image/encoded"], "class/label": label, "class/other": 2}
    if boxes:
        more |= {f"object/bbox/{edge}": [0.5] for edge in ("xmin", "ymin", "xmax", "ymax")}
    return write(where / "train.tfrecord", [image(0, **more)] * 2)


def read(where: Path, cache: Path, **options: Any) -> list[Any]:
    return list(tfrecorder.load(where, "TRAIN", cache=cache, **{"image_size": 8} | options))


@pytest.mark.slow
def test_every_option_is_in_the_name_or_changes_nothing(tmp_path: Path) -> None:
    tried = OTHERS.union(NEEDLESS, DECISIVE)
    assert tried == inspect.signature(tfrecorder.load).parameters.keys() - {"directory", "split"}
    where, cache = tmp_path / "in", tmp_path / "cache"
    foreign(where, boxes=True)
    read(where, cache)
    for name, options in NEEDLESS.items():
        read(where, cache, **options)
        assert len(names(cache)) == 1, name
    for count, (name, options) in enumerate(DECISIVE.items(), 2):
        read(where, cache, **options)
        assert len(names(cache)) == count, name


@pytest.mark.slow
def test_another_label_and_a_file_with_its_old_time_are_read_anew(tmp_path: Path) -> None:
    where, cache = tmp_path / "in", tmp_path / "cache"
    path = foreign(where)
    for value, key in enumerate(("image/class/label", "image/class/other"), 1):
        ((_, label), *_) = read(where, cache, label=key)
        assert label == value
    before = path.stat()
    for value in (5, 2.5):
        foreign(where, label=value)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        ((_, label), *_) = read(where, cache, label="image/class/label")
        assert label == value


RUN = """
import os, sys, tfrecorder
labels = []
dataset = tfrecorder.load("in", "TRAIN", image_size=8, cache="cache", shuffle=False)
for number, (_, label) in enumerate(dataset):
    labels.append(int(label))
    if number == 1 and sys.argv[1] == "cut":
        os.kill(os.getpid(), 9)
    if number == 1 and sys.argv[1] == "wait":
        print("begun", flush=True)
        input()
print(sorted(labels))
"""


def started(how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, how]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow
def test_a_cache_that_was_cut_off_is_begun_anew_and_another_run_s_is_left_alone() -> None:
    write(Path("in/train.tfrecord"), [image(0, **{"class/label": n}) for n in range(400)])
    every = str(list(range(400)))
    assert started("cut").wait() == -signal.SIGKILL
    assert list(Path("cache").glob("*.lockfile"))
    waiting = started("wait")
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "begun\n"
    out, errors = started("whole").communicate()
    assert out.strip() == every, errors
    out, errors = waiting.communicate("\n")
    assert out.strip() == every, errors
    assert not list(Path("cache").glob("*.lockfile"))
