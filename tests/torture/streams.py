"""Streams that are killed: before each change that they make, and at any time while files come.

After each kill what is committed is whole; the same call goes on, and in the end each row is one
record or one reject, byte for byte what came.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from helpers.streaming_cases import (
    TO_ITS_END,
    Numbered,
    contents_of,
    digest,
    names_in,
    photo,
    rejects_of,
)
from support import records

import tfrecorder
from tfrecorder.errors import DatasetError
from torture.counts import Count, demand
from torture.steps import Moment, convert_until

#: Rows of a stream that is killed before each change, and of each of its batches.
ROWS, BATCH = 30, 10
OPTIONS = {"every_rows": BATCH, "until_idle": 0}

#: What is private of a dataset between two operations.
KEPT = ["commits", "index", "lock", "tables"]

WATCH = """
import sys, tfrecorder
tfrecorder.stream(sys.argv[1], sys.argv[2], every_seconds=0.5, every_rows=200, progress=False,
                  source_options={"settle": 0.2})
"""


def expected(rows: int) -> dict[str, str]:
    """The SHA-256 of each image of `Numbered` that becomes a record, by its name."""
    found = {}
    for number in range(rows):
        if number % 10 not in (3, 4, 5):
            by_path = number % 10 == 6
            name = str(photo(number)) if by_path else f"rows/{number}"
            found[name] = digest(photo(number).read_bytes())
    return found


def check_whole(out: Path | str, rows: int) -> None:
    """Every row of `Numbered` is in a dataset once."""
    names = names_in(out)
    demand(sum(names.values()) == rows, f"{out}: {sum(names.values())} rows of {rows}")
    demand(max(names.values()) == 1 + (rows > 54), f"{out}: rows went in twice: {names}")
    demand(contents_of(out) == expected(rows), f"{out}: other images, or other bytes")
    demand(len(rejects_of(out)) == 3 * rows // 10, f"{out}: other rejects")
    demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")


def kill_stream(moment: Moment, out: Path) -> str:
    """Stream, kill, look, stream again, compare; what was found after the kill, "" without one."""
    killed = convert_until(moment, Numbered(ROWS), str(out), "stream", **OPTIONS)
    found = _committed(out)
    if found:
        demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")
        behind = (out / "_tfrecorder/plan.json").exists()  # the list of rejects follows the commit
        rows = sum(names_in(out).values())
        demand(
            rows == found * BATCH or (behind and rows == found * BATCH - 3),
            f"{out}: {rows} rows in {found} generations",
        )
        demand(tfrecorder.info(out).records == 7 * found, f"{out}: other records")
    result = tfrecorder.stream(Numbered(ROWS), out, every_rows=BATCH, **TO_ITS_END)
    demand(result.newest == ROWS // BATCH - 1, f"{out}: {result.newest} is the newest generation")
    check_whole(out, ROWS)
    left = os.listdir(out / "_tfrecorder")
    demand(sorted(left) == KEPT, f"{out}: it keeps {left}")
    shutil.rmtree(out)
    return f"{found} committed" if killed else ""


def _committed(out: Path) -> int:
    try:
        return len(tfrecorder.generations(out))
    except DatasetError:
        return 0


def kill_everywhere(folder: Path, step: int = 1) -> list[str]:
    """Kill before each change in turn; what was found after each kill."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[str] = []
    while one := kill_stream(Moment(len(found) * step), folder / "out"):
        found.append(one)
    return found


def watch_and_kill(folder: Path, files: int, kills: int, seed: int = 0) -> int:
    """Files come into a folder whose watcher is killed again and again; how often it was.

    Raises:
        BrokenError: a file is missing, is there twice, or has other bytes.
    """
    dice = random.Random(seed)
    incoming, out, aside = folder / "incoming", folder / "out", folder / "aside"
    for one in (incoming / "a", incoming / "b", aside):
        one.mkdir(parents=True)
    wanted: dict[str, str] = {}
    watcher, killed = _watcher(incoming, out), 0
    for number in range(files):
        data = photo(number).read_bytes() + b"\0" * number  # no two alike
        name = f"{'ab'[number % 2]}/{number:05d}.jpg"
        _put(incoming / name, aside, data, renamed=number % 3 > 0)
        wanted[name] = digest(data)
        if killed < kills and dice.random() < 2 * kills / files:
            time.sleep(0.5 + dice.random() * 3)
            watcher.kill()
            watcher.wait()
            killed += 1
            watcher = _watcher(incoming, out)
    until = time.monotonic() + 600
    while sum(_names(out).values()) < files and time.monotonic() < until:
        demand(watcher.poll() is None, "the watcher ended by itself")
        time.sleep(1)
    watcher.kill()
    watcher.wait()
    tfrecorder.stream(incoming, out, source_options={"settle": 0}, **TO_ITS_END)
    demand(_names(out) == dict.fromkeys(wanted, 1), f"{out}: a file is missing or there twice")
    demand(contents_of(out) == wanted, f"{out}: other bytes")
    demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")
    return killed


def replace_while_watched(folder: Path, files: int, times: int, seed: int = 0) -> int:
    """Files are replaced while they are streamed, by rename or in place; how many versions went in.

    Raises:
        BrokenError: a version is there twice, or the last one of a file is missing.
    """
    dice = random.Random(seed)
    incoming, out, aside = folder / "incoming", folder / "out", folder / "aside"
    for one in (incoming / "a", incoming / "b", aside):
        one.mkdir(parents=True)
    last: dict[str, str] = {}

    def put(version: int) -> None:
        name = f"{'ab'[version % 2]}/{dice.randrange(files):05d}.jpg"
        data = photo(version).read_bytes() + b"\0" * version  # no two alike
        _put(incoming / name, aside, data, renamed=version % 5 > 0)
        last[name] = digest(data)

    for version in range(files):
        put(version)

    def replace() -> None:
        for version in range(files, files + times):
            put(version)
            time.sleep(dice.random() * 0.1)

    replacing = threading.Thread(target=replace)
    replacing.start()
    options = {"source_options": {"settle": 0.05}, **TO_ITS_END, "every_rows": 7}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while replacing.is_alive():
            tfrecorder.stream(incoming, out, **{**options, "until_idle": 0.2})
        tfrecorder.stream(incoming, out, **options)
    found = Counter(
        (record["image/filename"].decode(), digest(record["image/encoded"]))
        for record in records(out)
    )
    demand(set(found.values()) == {1}, f"{out}: a version is there twice")
    demand(set(last.items()) <= found.keys(), f"{out}: the last version of a file is missing")
    demand(tfrecorder.verify(out, progress=False).ok, f"{out}: verify finds faults")
    return len(found)


def _names(out: Path) -> dict[str, int]:
    return names_in(out) if _committed(out) else {}


def _watcher(incoming: Path, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WATCH, str(incoming), str(out)])


def _put(path: Path, aside: Path, data: bytes, renamed: bool) -> None:
    """A file that is renamed into the folder, or written there slowly."""
    if renamed:
        (aside / path.name).write_bytes(data)
        (aside / path.name).rename(path)
        return
    with path.open("wb") as file:
        file.write(data[:1000])
        file.flush()
        time.sleep(0.002)
        file.write(data[1000:])


def torment(folder: Path, files: int, kills: int) -> list[Count]:
    """Everything, and the counts."""
    attacks: dict[str, Callable[[], tuple[int, int, str]]] = {
        "streams killed before each change": lambda: _everywhere(folder / "steps"),
        "watched folder, its files replaced": lambda: (
            replace_while_watched(folder / "replaced", files // 50, files // 10),
            files // 10,
            f"{files // 50:,} files",
        ),
        "watched folder, its watcher killed": lambda: (
            watch_and_kill(folder / "watched", files, kills),
            files,
            f"{files:,} files",
        ),
    }
    counts = []
    for name, attack in attacks.items():
        times, rows, note = attack()
        counts.append(Count(name, times, rows, 0, note))
    return counts


def _everywhere(folder: Path) -> tuple[int, int, str]:
    found = kill_everywhere(folder)
    note = ", ".join(f"{found.count(one)} with {one}" for one in dict.fromkeys(found))
    return len(found), len(found) * ROWS, note
