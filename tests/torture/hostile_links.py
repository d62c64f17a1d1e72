"""Links in the place of the folders and files of a dataset.

Whoever sends a dataset may put a link into it that leads to anything of the one who gets it.  No
command writes, renames or removes anything there, not even where a link takes a folder's place
while the command runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support import CSV, put, remove

import tfrecorder
from tfrecorder import TfrecorderError
from torture.counts import Count, demand
from torture.sandbox import listing, sandbox

#: Folders of ours, each with files for the shards.
PRIVATE_FOLDERS = tuple(
    f"_tfrecorder/{name}"
    for name in ("tmp", "commits", "tables", "index", "done", "waiting", "progress", "spool")
)
FOLDERS = ("_tfrecorder", *PRIVATE_FOLDERS)

#: Where a link leads, as the dataset directory sees it; {} is the name of what it stands for.
LINKS = {
    "to another dataset": "../../images/other/{}",
    "to nowhere": "../../images/nowhere",
    "in a circle": "{}",
    "to the folder above": "..",
}

SHARD = "train-00000.tfrecord"

#: The files that are gone, so that commands have something to write.
STATES = {
    "sound": (),
    "damaged": ("features.json", SHARD),
    "unfinished": ("dataset_info.json", SHARD),
}


def attacks(clean: Path) -> Iterator[tuple[str, str]]:
    """(file or folder, attack) for all of a dataset; `apply` makes the attack."""
    files = [str(path.relative_to(clean)) for path in clean.rglob("*") if path.is_file()]
    for name in (*FOLDERS, *sorted(files)):
        for link in LINKS:
            states = STATES if name in FOLDERS else ("sound",)
            yield from ((name, f"link {link}, {state}") for state in states)


def apply(attack: str, path: Path, out: Path) -> None:
    """Put a link in the place of a file or folder."""
    link, state = attack.removeprefix("link ").split(", ")
    for gone in STATES[state]:
        (out / gone).unlink()
    name = str(path.relative_to(out))
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(os.path.relpath(out / LINKS[link].format(name), path.parent))


def make_other(clean: Path) -> Path:
    """Next to a dataset another one, with files of the same names, and some in each folder."""
    other = clean.parent / "other"
    tfrecorder.convert(CSV, other, num_shards={"TRAIN": 2}, seed=1, progress=False)
    for name in FOLDERS[1:]:
        (other / name).mkdir(exist_ok=True)
        (other / name / "note").write_text("mine")
    return other


def swap(folder: Path, times: int) -> list[Count]:
    """Exchange folders for links while commands run.

    Raises:
        BrokenError: something elsewhere was changed.
    """
    done = sum(
        race(folder, name, times)
        for name in ("_tfrecorder/index", "_tfrecorder/done", "_tfrecorder/tmp")
    )
    return [Count("links put there meanwhile", done, done, 0, "conversions and repairs")]


def race(folder: Path, name: str, times: int) -> int:
    """Write, convert and repair while a folder is exchanged for a link; gives the commands.

    A command ends at the first link it meets; so files are written and removed one by one too.
    """
    with sandbox(folder) as box:
        other = make_other(box.images / "clean")
        tfrecorder.convert(CSV, box.out, num_shards={"TRAIN": 2}, progress=False)
        before = listing(box.folder, box.out)
        with _exchanged(box.out / name, other / name, folder / "aside"):
            for number in range(2500 * times):
                with contextlib.suppress(OSError):
                    if number % 2:
                        remove(str(box.out), f"{name}/note")
                    else:
                        put(str(box.out), f"{name}/note", b"ours")
            for _ in range(times):
                (box.out / SHARD).unlink(missing_ok=True)
                with contextlib.suppress(TfrecorderError):
                    tfrecorder.repair(box.out, progress=False)
                with contextlib.suppress(TfrecorderError):
                    tfrecorder.convert(CSV, box.out, overwrite=True, progress=False)
        demand(listing(box.folder, box.out) == before, f"{name}: changed through a link")
    shutil.rmtree(folder)
    return 2 * times


#: Exchanges a folder and a link, in one step each time, as fast as can be.
_EXCHANGE = """
import ctypes, os, shutil, sys
path, target, aside = map(os.fsencode, sys.argv[1:])
here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
rename = ctypes.CDLL(None).renameat2
while True:
    shutil.rmtree(aside, ignore_errors=True)
    try:
        os.symlink(target, aside)
    except OSError:
        pass
    # Until a command has removed one of them.
    while rename(here, path, here, aside, exchange) == 0:
        pass
"""


@contextlib.contextmanager
def _exchanged(path: Path, target: Path, aside: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", _EXCHANGE, path, target, aside])
    try:
        yield
    finally:
        process.kill()
        process.wait()
        if aside.is_symlink():
            aside.unlink()
        shutil.rmtree(aside, ignore_errors=True)
