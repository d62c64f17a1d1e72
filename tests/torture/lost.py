"""A grown dataset loses what only this package reads: no reader may give a part of it as all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from growing_cases import QUIET, table
from support import public_files

import tfrecorder
from tfrecorder import TfrecorderError
from torture.counts import Count, demand

RECORDS = 30

#: What can be lost, below each generation.
PLACES = ("_tfrecorder/metadata.json", "_tfrecorder/plan.json", "_tfrecorder")


def _ways(path: Path) -> dict[str, Callable[[], None]]:
    """What may be in the place of a file or folder; it was removed before."""
    return {
        "nothing": lambda: None,
        "an empty folder": path.mkdir,
        "a file": lambda: path.write_bytes(b""),
        "half a file": lambda: path.write_bytes(b'{"version": 2, "plan'),
        "no text": lambda: path.write_bytes(os.urandom(200)),
        "another document": lambda: path.write_text('{"version": 2}'),
        "a link to nowhere": lambda: path.symlink_to("nowhere"),
        "a link to itself": lambda: path.symlink_to(path.name),
        "a link to a device": lambda: path.symlink_to("/dev/null"),
        "a pipe": lambda: os.mkfifo(path),
    }


READERS: dict[str, Callable[[str], int]] = {
    "info": lambda out: tfrecorder.info(out).records or 0,
    "Records": lambda out: len(tfrecorder.Records(out, "TRAIN")),
    "to_frame": lambda out: len(tfrecorder.to_frame(out)),
    "generations": lambda out: 10 * len(tfrecorder.generations(out)),
    "status": lambda out: tfrecorder.status(out).records,
    "verify": lambda out: tfrecorder.verify(out, progress=False).records,
    "load": lambda out: sum(1 for _ in tfrecorder.load(out, "TRAIN")),
}


def _faults(out: str) -> Iterator[str]:
    """What readers give of a damaged dataset that is not all of it, nor an error in words."""
    for name, read in READERS.items():
        try:
            records = read(out)
        except TfrecorderError as error:
            if not str(error):
                yield f"{name}: {type(error).__name__} without words"
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {error}"
        else:
            if records != RECORDS:
                yield f"{name}: {records} of {RECORDS} records, without a word"


def lose(folder: Path, step: int = 1) -> list[Count]:
    """Lose each place of each generation in every way, read it, repair it, and read it again.

    Args:
        step: try only each step-th loss.

    Raises:
        BrokenError: records are missing without a word, an error is not ours, or `repair` ended
            well with other public files than before.
    """
    clean, out = folder / "clean", folder / "out"
    tfrecorder.convert(table(0, 10), clean, num_shards=2, **QUIET)
    for number in (1, 2):
        tfrecorder.append(table(10 * number, 10), clean, **QUIET)
    public = public_files(clean)
    folders = ("", "appended/00001", "appended/00002")
    places = [os.path.join(one, place) for one in folders for place in PLACES]
    losses = [(place, way) for place in (*places, *folders[1:]) for way in _ways(clean)]
    broken, repaired = [], 0
    for place, way in losses[::step]:
        shutil.copytree(clean, out)
        path = out / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        _ways(path)[way]()
        faults = [] if _is_undone(place, way) else list(_faults(str(out)))
        try:
            tfrecorder.repair(out, progress=False)
        except TfrecorderError:
            pass
        else:
            repaired += not _is_undone(place, way)
            if not _is_undone(place, way) and public_files(out) != public:
                faults.append("repair: other public files than before")
        broken += [f"{way} in the place of {place}: {fault}" for fault in faults]
        shutil.rmtree(out)
    demand(not broken, "\n".join(broken))
    shutil.rmtree(folder)
    words = f"each read in {len(READERS)} ways; repair mended {repaired}"
    return [Count("losses of private files", len(losses[::step]), len(losses[::step]), 0, words)]


def _is_undone(place: str, way: str) -> bool:
    """Without its last generation, a dataset is as it was before that append."""
    return place == "appended/00002" and way in ("nothing", "an empty folder")
