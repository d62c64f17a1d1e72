"""A grown dataset loses private files, or may not be read: no reader gives a part of it as all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

from helpers.growing_cases import QUIET, table
from services.gcs.control import in_process
from support import public_files

import tfrecorder
from tfrecorder import TfrecorderError
from torture.counts import Count, demand
from torture.faults import client_of_its_own

RECORDS = 30

#: What can be lost: the manifest of each commit, what is beside a shard, all of it.
PLACES = (
    *(f"_tfrecorder/commits/0000{number}.json" for number in range(3)),
    "_tfrecorder/tables/train-00000.parquet",
    "_tfrecorder/index/train-00002.tfrecord.idx",
    "_tfrecorder/commits",
    "_tfrecorder/tables",
    "_tfrecorder",
)


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


#: Of a damaged dataset `verify` counts the records of sound shards; TensorFlow reads gs:// itself.
OF_ANY_STORE = {name: read for name, read in READERS.items() if name not in ("verify", "load")}

#: Where all was lost, nothing says what was there before the newest commit.
OF_RECORDS = {name: read for name, read in READERS.items() if name != "generations"}


def _faults(out: str, readers: dict[str, Callable[[str], int]] = READERS) -> Iterator[str]:
    """What readers give of a damaged dataset that is not all of it, nor an error in words."""
    for name, read in readers.items():
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


def make_grown(folder: Path) -> Path:
    """A dataset of three commits."""
    tfrecorder.convert(table(0, 10), folder, num_shards=2, **QUIET)
    for number in (1, 2):
        tfrecorder.append(table(10 * number, 10), folder, **QUIET)
    return folder


def lose(folder: Path, step: int = 1) -> list[Count]:
    """Lose each place in every way, read it, repair it, and read it again.

    Args:
        step: try only each step-th loss.

    Raises:
        BrokenError: records are missing without a word, an error is not ours, or `repair` ended
            well with other public files than before.
    """
    clean, out = make_grown(folder / "clean"), folder / "out"
    public = public_files(clean)
    losses = [(place, way) for place in PLACES for way in _ways(clean)]
    broken, repaired = [], 0
    for place, way in losses[::step]:
        shutil.copytree(clean, out)
        path = out / place
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        _ways(path)[way]()
        faults = list(_faults(str(out)))
        try:
            tfrecorder.repair(out, progress=False)
        except TfrecorderError:
            pass
        else:
            repaired += 1
            if public_files(out) != public or [*_faults(str(out), OF_RECORDS)]:
                faults.append("repair: other public files or records than before")
        broken += [f"{way} in the place of {place}: {fault}" for fault in faults]
        shutil.rmtree(out)
    demand(not broken, "\n".join(broken))
    shutil.rmtree(folder)
    words = f"each read in {len(READERS)} ways; repair mended {repaired}"
    return [Count("losses of private files", len(losses[::step]), len(losses[::step]), 0, words)]


@contextlib.contextmanager
def _plain_user() -> Iterator[None]:
    """A block in which file permissions count, which root passes over."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def shut(folder: Path) -> list[Count]:
    """Take away the right to read each file and folder in turn, and the right to enter a folder.

    Raises:
        BrokenError: records are missing without a word, or an error is not ours.
    """
    clean = make_grown(folder / "clean")
    broken, times = [], 0
    with tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o755)
        out = Path(open_to_all, "out")
        shutil.copytree(clean, out)
        os.rename(out / PLACES[2], out / "away")
        list(_faults(str(out)))  # imports all that is needed: packages may be closed to others
        os.rename(out / "away", out / PLACES[2])
        demand(not [*_faults(str(out))], "a sound dataset")
        for path in (out, *out.rglob("*")):
            mode = path.stat().st_mode
            for rights in (0, 0o444) if path.is_dir() else (0,):
                path.chmod(rights)
                with _plain_user():
                    faults = list(_faults(str(out), OF_ANY_STORE))
                path.chmod(mode)
                broken += [f"{path.relative_to(out)} of mode {rights:o}: {one}" for one in faults]
                times += 1
    demand(not broken, "\n".join(broken))
    shutil.rmtree(folder)
    return [Count("files that may not be read", times, times * RECORDS, 0)]


def refuse(folder: Path, step: int = 1) -> list[Count]:
    """A bucket refuses each request of each reader in turn, with the status 403.

    Args:
        step: refuse only each step-th request.

    Raises:
        BrokenError: as `shut`.
    """
    clean = make_grown(folder / "clean")
    broken, times = [], 0
    with in_process() as gcs, patch.dict(os.environ, gcs.environment()), client_of_its_own():
        gcs.create_bucket("bkt")
        gcs.put_folder("gs://bkt/out", clean)
        for name, read in OF_ANY_STORE.items():
            refused, answered = -1, 0
            while refused < (refused := gcs.count(outcome="403")):
                gcs.inject("status", status=403, spared=answered, times=1)
                faults = _faults("gs://bkt/out", {name: read})
                broken += [f"request {answered} refused: {fault}" for fault in faults]
                gcs.mend()
                answered, times = answered + step, times + 1
    demand(not broken, "\n".join(broken))
    shutil.rmtree(folder)
    return [Count("requests of readers refused", times, times * RECORDS, 0)]
