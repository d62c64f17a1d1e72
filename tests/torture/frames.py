"""Frames of few and of many images: with uris they take the memory of the frame, and no image.

A new process makes each frame, of N images and of four times as many; the system says what it took.
"""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image as Pictures

import tfrecorder
from tfrecorder.schema import Image, Label, Mask, Schema, Split
from torture.children import Child
from torture.counts import Count, demand

SECONDS = 300.0
#: Bytes that a process may take more: the first call imports, and of other tools' files, compressed
#: ones too, a few records say what the keys mean.
SLACK = 24 * 2**20
TIMES = 4

#: Who wrote the files: one conversion, or one and an append, or other tools.
KINDS = ("ours", "grown", "others", "compressed")
FORMS: tuple[dict[str, Any], ...] = (
    *({"images": "uri"}, {"images": "uri", "split": "TRAIN"}, {"images": "bytes"}),
)

SCHEMA = Schema(split=Split(), image_uri=Image(), label=Label(), mask_uri=Mask())


def measure(question: tuple[str, dict[str, Any]]) -> tuple[int, int, int]:
    """Bytes of memory that a frame takes at most, its rows, and the bytes of its images."""
    directory, options = question
    before, most, done = bytes_used(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            most[0] = max(most[0], bytes_used())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        frame = tfrecorder.to_frame(directory, **options)
    finally:
        done.set()
        watcher.join()
    cells = [*frame["image_uri"], *frame["mask_uri"]]
    return most[0] - before, len(frame), sum(len(cell) for cell in cells if type(cell) is bytes)


def bytes_used() -> int:
    """What of this process is in memory now; its maximum may be that of the one that began it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def datasets(folder: Path, rows: int, chosen: tuple[str, ...] = KINDS) -> dict[str, Path]:
    """Datasets of as many pixels that do not shrink, 800 KB a row, by who wrote their files."""
    folder.mkdir(parents=True)
    drawn = np.random.default_rng(0).integers(0, 255, (448, 448, 3), dtype=np.uint8)
    Pictures.fromarray(drawn).save(folder / "image.png")
    Pictures.fromarray(drawn[:, :, 0]).save(folder / "mask.png")
    table = pd.DataFrame({"split": "TRAIN", "label": ["a"] * rows})
    for name in ("image", "mask"):
        paths = [folder / f"{name}-{row}.png" for row in range(rows)]
        for path in paths:
            os.link(folder / f"{name}.png", path)
        table[f"{name}_uri"] = [*map(str, paths)]
    made = {name: folder / name for name in KINDS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tfrecorder.convert(table, made["ours"], schema=SCHEMA, num_shards=2, progress=False)
        if "grown" in chosen:
            tfrecorder.convert(table[::2], made["grown"], schema=SCHEMA, progress=False)
            tfrecorder.append(table[1::2], made["grown"], progress=False)
    for name in {"others", "compressed"} & {*chosen}:
        made[name].mkdir()
        for shard in made["ours"].glob("*.tfrecord"):
            data = shard.read_bytes()
            packed = gzip.compress(data, 1) if name == "compressed" else data
            (made[name] / shard.name).write_bytes(packed)
    return {name: made[name] for name in chosen}


def flatten(folder: Path, rows: int, chosen: tuple[str, ...] = KINDS) -> list[Count]:
    """Read each kind of files in each form, with so many rows and with four times as many.

    Args:
        chosen: kinds of files.

    Raises:
        BrokenError: with uris, memory grows with the images; with bytes, by more than they are.
    """
    few = datasets(folder / "few", rows, chosen)
    many = datasets(folder / "many", TIMES * rows, chosen)
    tried, notes = 0, []
    with Child("torture.frames:measure", SECONDS) as child:
        for options in FORMS:  # what keeps no image comes first, before memory is kept to be reused
            for name in chosen:
                peaks = []
                for directory, wanted in ((few[name], rows), (many[name], TIMES * rows)):
                    peak, found, held = child.ask((str(directory), options))
                    words = f"{name}, {options}: {peak:,} bytes for {found} of {wanted} rows"
                    demand(found == wanted, words)
                    demand((held > 0) == (options["images"] == "bytes"), words)
                    demand(peak < held + SLACK, f"{words}, whose images are {held:,} bytes")
                    peaks.append(f"{peak / 2**20:.0f}")
                    tried += found
                notes.append(f"{name} as {options['images']} {' and '.join(peaks)} MiB")
    shutil.rmtree(folder)
    return [Count("frames of N and 4 N images", len(notes), tried, 0, "; ".join(notes))]
