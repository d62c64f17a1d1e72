"""Killing conversions and repairs: SIGKILL at any moment, and the same call again.

A round prepares a directory, starts the command, kills it at a moment that the seed chooses, does
so again some times, and then lets it end.  After each kill no file may stand under a final name
that is not whole, and the old dataset stands until the new one does; in the end every file has the
bytes of an undisturbed run.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from support import done_shards

import tfrecorder
from torture.counts import BrokenError, Count, demand, lost_rows
from torture.material import CLAIM, OPTIONS, WAITING, Material, convert, digests, write
from torture.processes import holds_lock, start_command, wait_while_running

# ----------------------------------------------------------------------------- what is attacked


@dataclass(frozen=True)
class Attacked:
    """A call that is killed.

    Attributes:
        name: for the report.
        start: the directory before it; "" is none.
        options: of the conversion; None is a repair.
        moments: at which it is killed, by their names in `MOMENTS`.
        weight: how often it is, in comparison with the others.
        by_ctrl_c: it is interrupted as in a terminal, and is to say so.
    """

    name: str
    start: str
    options: Mapping[str, Any] | None
    moments: tuple[str, ...]
    weight: int
    by_ctrl_c: bool = False

    def command(self, material: Material, out: Path) -> list[str]:
        if self.options is None:
            return ["repair", str(out)]
        flags = []
        for name, value in self.options.items():
            flags.append(f"--{name.replace('_', '-')}")
            flags += [] if value is True else [str(value)]
        return ["convert", str(material.table), str(out), *flags]

    def prepare(self, material: Material, out: Path) -> None:
        if self.start:
            shutil.copytree(material.folder / self.start, out)

    def undisturbed(self, material: Material, folder: Path) -> Undisturbed:
        before: dict[str, str] = {}
        if self.start:
            before = digests(material.folder / self.start)
        if self.options is None:
            return Undisturbed(before, digests(material.whole), {})
        found = []
        for make in (convert, write):
            self.prepare(material, folder)
            make(material.table, folder, self.options)
            found.append(digests(folder))
            shutil.rmtree(folder)
        return Undisturbed(before, *found)

    def finish(self, material: Material, out: Path, has_ended: bool) -> None:
        """The same call once more, undisturbed.

        Args:
            has_ended: the kill came after the commit, so that there is nothing to convert.
        """
        if self.options is None:
            tfrecorder.repair(out, progress=False)
        elif has_ended:  # an overwrite would begin once more
            again = {**self.options, "overwrite": False}
            result = tfrecorder.convert(material.table, out, progress=False, **again)
            demand(result.was_finished, f"written again: {result}")
        else:
            convert(material.table, out, self.options)


@dataclass(frozen=True)
class Undisturbed:
    """The digests of a directory when nobody disturbs the call.

    Attributes:
        before: it.
        after: it.
        written: all shards, and nothing is committed.
    """

    before: Mapping[str, str]
    after: Mapping[str, str]
    written: Mapping[str, str]

    @property
    def shards(self) -> int:
        return sum(name.startswith("_tfrecorder/done/") for name in self.written)

    def has_ended(self, out: Path) -> bool:
        """True after the commit of what is to be committed."""
        name = "dataset_info.json"
        is_new = self.before.get(name) != self.after[name]
        return is_new and digests(out).get(name) == self.after[name]


WRITING = ("planning", "writing", "writing", "committing", "committing", "any time")
CHANGING = ("at the commit", *WRITING)
ATTACKED = (
    Attacked("convert", "", OPTIONS, WRITING, 6),
    Attacked("convert, overwrite", "other", {**OPTIONS, "overwrite": True}, CHANGING, 3),
    Attacked("repair", "damaged", None, ("planning", "repairing", "repairing"), 3),
    Attacked("convert, num_workers=2", "", {**OPTIONS, "num_workers": 2}, WRITING, 2),
    Attacked("convert, by Ctrl-C", "", OPTIONS, ("writing", "committing"), 2, by_ctrl_c=True),
)

#: Within which a conversion has to end after Ctrl-C, on a busy machine.
CTRL_C_SECONDS = 10


# ------------------------------------------------------------------------------ when it is killed


def _is_writing(out: Path, done: int) -> bool:
    return (out / CLAIM).exists() and done_shards(out) >= done


def _is_repairing(out: Path, done: int) -> bool:
    """True once the index is whole that was cut, which is the first file to be repaired."""
    return (out / "_tfrecorder/index/train-00002.tfrecord.idx").read_bytes().endswith(b"\n")


def _is_committing(out: Path, done: int) -> bool:
    return (out / "_tfrecorder/commits/00001.json").exists()


#: When a process that holds the directory is killed: whether the moment has come, by the number of
#: done shards to wait for, and the seconds within which the kill then falls.
MOMENTS: dict[str, tuple[Callable[[Path, int], bool], float]] = {
    "any time": (lambda out, done: True, 2.0),
    "planning": (lambda out, done: True, 0.4),
    "at the commit": (_is_committing, 0.2),
    "writing": (_is_writing, 0.1),
    "committing": (_is_writing, 0.15),
    "repairing": (_is_repairing, 0.3),
}


def stop_once(
    attacked: Attacked,
    material: Material,
    out: Path,
    moment: str,
    shards: int,
    rng: random.Random,
) -> tuple[bool, list[psutil.Process]]:
    """Start the call and stop it: False where it ended first, and the workers that live on.

    Args:
        shards: that it writes.
    """
    has_come, span = MOMENTS[moment]
    wanted = shards if moment == "committing" else rng.randrange(max(shards, 1))
    words = material.folder / "stderr"
    process = start_command(attacked.command(material, out), words)
    wait_while_running(process, lambda: holds_lock(process, out) and has_come(out, wanted))
    time.sleep(rng.uniform(0, span))
    workers: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        workers = psutil.Process(process.pid).children(recursive=True)
    if attacked.by_ctrl_c:
        return _press_ctrl_c(process, words, out), workers
    process.kill()
    if rng.random() < 0.5:
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
    process.wait()
    killed = process.returncode == -signal.SIGKILL
    demand(killed or process.returncode == 0, f"{attacked.name}: {words.read_text()}")
    return killed, workers


def _press_ctrl_c(process: subprocess.Popen[bytes], words: Path, out: Path) -> bool:
    """As a terminal does it; False if the process had ended, or was about to."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(CTRL_C_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise BrokenError(f"after Ctrl-C it goes on, having said: {words.read_text()}") from None
    said = words.read_text()
    if not said and (out / "dataset_info.json").exists():
        return False
    demand(process.returncode == 130, f"after Ctrl-C it ends with {process.returncode}: {said}")
    demand(len(said.splitlines()) == 2 and "nterrupted" in said, f"after Ctrl-C it says: {said}")
    return True


# ---------------------------------------------------------------------------- what must then hold


def check_killed(
    out: Path,
    before: Mapping[str, str],
    after: Mapping[str, str],
    written: Mapping[str, str],
    changes: bool = False,
) -> str:
    """What a kill has broken, "" if nothing.

    Args:
        out: the directory after the kill.
        before: the digests of what stood there at first.
        after: of what is to stand there in the end.
        written: of what is there just before the commit.
        changes: what stood there stays until the commit.
    """
    found = digests(out)
    for name, digest in found.items():
        final = name.removeprefix(WAITING)
        if digest not in (after.get(final), before.get(name), written.get(name)):
            return f"{name} is not whole"
    commit = found.get("dataset_info.json")
    if commit is None:
        return "there is no dataset any more" if before else ""
    if commit == before.get("dataset_info.json"):
        gone = [name for name, digest in before.items() if found.get(name) != digest]
        return f"the old dataset stands, but not {gone}" if changes and gone else ""
    # While the claim stands, who comes next writes the lists of rows, and removes what is old.
    late = ("rejects.csv", "suspects.csv") if before and CLAIM in found else ()
    names = after.keys() | (() if CLAIM in found else found.keys())
    wrong = [name for name in sorted(names) if found.get(name) != after.get(name)]
    wrong = [name for name in wrong if name not in late or found.get(name) != before.get(name)]
    return f"it is committed, but {wrong} are not as they must be" if wrong else ""


@dataclass
class Survived:
    """What was survived of one call: kills, directories completed, and rows lost in them."""

    kills: int = 0
    completed: int = 0
    lost: int = 0


def attack(
    attacked: Attacked,
    calm: Undisturbed,
    material: Material,
    most: int,
    out: Path,
    rng: random.Random,
) -> Survived:
    """One round: kill at most so many times, let it end, and compare.

    Args:
        calm: what nobody disturbed.

    Raises:
        BrokenError: a file was not whole after a kill, or the rerun gave other bytes.
    """
    attacked.prepare(material, out)
    survived, alive = Survived(), []
    for moment in rng.choices(attacked.moments, k=min(most, rng.choice((1, 1, 2, 3)))):
        if calm.has_ended(out):
            break
        killed, workers = stop_once(attacked, material, out, moment, calm.shards, rng)
        survived.kills += killed
        alive += workers
        changes = bool(attacked.start and attacked.options)
        broken = check_killed(out, calm.before, calm.after, calm.written, changes)
        demand(not broken, f"{out}, {attacked.name}, killed while {moment}: {broken}")
    attacked.finish(material, out, calm.has_ended(out))
    demand(digests(out) == calm.after, f"{out}, {attacked.name}: other bytes")
    psutil.wait_procs(alive, timeout=60)
    demand(digests(out) == calm.after, f"{out}: workers wrote other bytes")
    survived.completed += 1
    survived.lost += lost_rows(out, material.rows)
    shutil.rmtree(out)
    return survived


def kill(kills: int, material: Material, folder: Path, seed: int = 0) -> list[Count]:
    """Kill as often as asked, every kind of call at least once, and count.

    Raises:
        BrokenError: a promise was broken; the directory is left in `folder` as it was found.
    """
    folder.mkdir(parents=True)
    rng = random.Random(seed)
    weights = [attacked.weight for attacked in ATTACKED]
    survived = {attacked.name: Survived() for attacked in ATTACKED}
    calm = {a.name: a.undisturbed(material, folder / "calm") for a in ATTACKED}
    number = 0
    while (left := kills - sum(one.kills for one in survived.values())) > 0:
        following = ATTACKED[number:] or rng.choices(ATTACKED, weights)
        attacked = following[0]
        where = folder / f"round-{number}"
        one = attack(attacked, calm[attacked.name], material, left, where, rng)
        total = survived[attacked.name]
        total.kills += one.kills
        total.completed += one.completed
        total.lost += one.lost
        number += 1
    return [
        Count(f"kills: {name}", one.kills, one.completed * material.rows, one.lost)
        for name, one in survived.items()
    ]
