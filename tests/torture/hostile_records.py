"""TFRecord files of anybody, with any keys and any values, given to everything that reads them.

Each ends in elements or in one clear error; only what tf.data itself finds while it reads is its
own error.  Nothing is written outside the given directory.
"""

from __future__ import annotations

import random
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from helpers.foreign_cases import DATA, png, write

import tfrecorder
from tfrecorder import TfrecorderError
from torture.counts import Count, demand
from torture.hostile import NAMES
from torture.sandbox import Sandbox, nothing_outside, sandbox

#: Keys that mean something, and keys that mean nothing but harm.
KEYS = (
    *("image/encoded", "image", "img", "image_raw", "image/format", "image/height", "image/width"),
    *("label", "image/class/label", "image/class/text", "image/class/id", "objects/bbox"),
    *("objects/label", "image/object/mask", "image/object/class/label", "segmentation_mask"),
    *(f"image/object/bbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax")),
    *("image/segmentation/class/encoded", "emb", "", "/", "image/", "k" * 300, "seed"),
    *NAMES[::4],
)

VALUES: tuple[Any, ...] = (
    *(DATA[0], DATA[1], [DATA[0]] * 2, DATA[0][:999], b"", [b""] * 2, b"\x89PNG\r\n\x1a\n", b"BM"),
    *(
        png(np.zeros((4, 4), np.uint8)),
        png(np.zeros((4, 4), np.uint8), "P"),
        b"\xff",
        "text",
        "x,y",
    ),
    *(b"\xff\xd8\xff\xd9", b"GIF89a", b"RIFF\0\0\0\0WEBP", b"<html>", b"\0" * 9999, [], 0, 1, -1),
    *(2**63 - 1, -(2**63), [1, 2], [0] * 4, 0.5, float("nan"), float("inf"), -1e38, [0.5] * 4),
    *([0.1, 0.9], [float("nan")] * 4, [0.5] * 16, ["a", "b"], ["é", "\0"]),
)


def readers(where: str, keys: dict[str, str]) -> dict[str, Callable[[], Any]]:
    """Everything that reads records of other tools."""
    sized: dict[str, Any] = {"batch_size": 2, "image_size": 8}
    return {
        "info": lambda: str(tfrecorder.info(where, **keys)),
        "inspect": lambda: str(tfrecorder.inspect(where, **keys)),
        "preview": lambda: str(tfrecorder.preview(where, progress=False, **keys)),
        "Records": lambda: list(tfrecorder.Records(where, "TRAIN", **keys)),
        "features": lambda: list(tfrecorder.Records(where, "TRAIN", inputs="all", **keys)),
        "batches": lambda: list(tfrecorder.batches(where, "TRAIN", **sized, **keys)),
        "boxes": lambda: list(tfrecorder.batches(where, "TRAIN", max_boxes=2, **sized, **keys)),
        "load": lambda: list(tfrecorder.load(where, "TRAIN", **keys)),
        "load features": lambda: list(tfrecorder.load(where, "TRAIN", inputs="all", **keys)),
        "load batches": lambda: list(tfrecorder.load(where, "TRAIN", **sized, **keys)),
        "load boxes": lambda: list(tfrecorder.load(where, "TRAIN", max_boxes=2, **sized, **keys)),
    }


def records(chance: random.Random) -> list[dict[str, Any]]:
    """Some records: most alike, some with other keys or values."""
    first = {chance.choice(KEYS): chance.choice(VALUES) for _ in range(chance.randint(0, 6))}
    found = []
    for _ in range(chance.randint(1, 4)):
        one = dict(first)
        if chance.random() < 0.3:
            one[chance.choice([*first, *KEYS])] = chance.choice(VALUES)
        if one and chance.random() < 0.2:
            del one[chance.choice([*one])]
        found.append(one)
    return found


def try_records(box: Sandbox, files: int = 12, seed: int = 0) -> int:
    """Files of random records, without a word and with named keys; gives how many calls it made."""
    broken: list[str] = []
    tried = 0
    for number in range(files):
        chance = random.Random(f"{seed}/{number}")
        made = records(chance)
        write(box.out / "train.tfrecord", made)
        known = [key for one in made for key in one] or ["x"]
        named = {"image": chance.choice(known), "label": chance.choice(known)}
        with nothing_outside(box):
            for keys in ({}, dict(chance.sample([*named.items()], chance.randint(1, 2)))):
                for name, run in readers(str(box.out), keys).items():
                    tried += 1
                    broken += _broken(run, f"{seed}/{number} {name} {keys}")
        shutil.rmtree(box.out)
    demand(not broken, "\n".join(broken))
    return tried


def _broken(run: Callable[[], Any], case: str) -> list[str]:
    try:
        run()
    except TfrecorderError as error:
        return [] if len(str(error)) < 4000 else [f"{case}: {len(str(error))} characters"]
    except tf.errors.OpError:
        return [] if "load" in case else [f"{case}: TensorFlow's error"]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__}: {str(error)[:200]} ({where.filename}:{where.lineno})"
        return [f"{case}: {words}"]
    return []


def feed(folder: Path, files: int, seed: int = 0) -> list[Count]:
    """The long form."""
    with sandbox(folder) as box:
        tried = try_records(box, files, seed)
    return [Count("hostile records of other tools", files, tried, 0, "nine readers on each")]
