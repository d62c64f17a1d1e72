"""Lives of datasets by chance, judged after each call by a reader that no one here can please.

A life is a list of steps, all data: what failed is printed, can be lived again, and is made
shorter as long as it fails.  `torture.oracle` reads what is there, `torture.oracle_model` says what
must be there, `torture.oracle_readers` asks the package's readers.

    PYTHONPATH=tests python -m torture.oracle_machine --calls 1000 --seed 7
    PYTHONPATH=tests python -m torture.oracle_machine --life 7:12
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if __name__ == "__main__":
    sys.modules["apache_beam"] = None  # type: ignore[assignment]  # which takes 10 times as long

import tfrecorder
from torture.counts import Count, demand
from torture.kills import Disk
from torture.oracle import WrongError
from torture.oracle_calls import AnyLife
from torture.oracle_chance import WEIGHTS, Chance
from torture.oracle_life import EndlessError, Skipped, Step
from torture.oracle_model import Kind

#: Steps of a life, at most.
STEPS = 25


@dataclasses.dataclass(frozen=True)
class Failure:
    """A life that went wrong.

    Attributes:
        seed: of the life.
        calls: how many were made before, in all lives.
    """

    seed: str
    kind: Kind
    steps: Sequence[Step]
    words: str
    calls: int

    def __str__(self) -> str:
        steps = "\n".join(f"  {step}" for step in self.steps)
        return f"life {self.seed}, {self.kind}, call {self.calls}:\n{steps}\n-> {self.words}"


class Lives:
    """Many lives, one after another, in one folder."""

    def __init__(self, folder: Path, weights: Mapping[str, int] = WEIGHTS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._disk, self._weights = Disk(folder), weights
        self.calls: Counter[str] = Counter()
        self.made = 0

    def live(self, seed: str, most: int = STEPS) -> Failure | None:
        """A life by chance.

        Args:
            most: steps.

        Returns:
            None if all went well.
        """
        chance = Chance(seed, self._weights)
        kind = Kind.by(chance.random)
        life = AnyLife(self._disk, kind)
        steps: list[Step] = []
        try:
            while life.steps < most:
                if life.has_losses and chance.random.random() < 0.2:
                    break
                try:
                    step = chance.step(life)
                except Skipped:
                    continue
                steps.append(step)
                try:
                    life.live(step)
                except Skipped:
                    steps.pop()
        except (WrongError, EndlessError) as error:
            words = f"{type(error).__name__}: {error}"
            return Failure(seed, kind, steps, words, self.made + len(steps))
        finally:
            self.calls += life.calls
            self.made += life.steps
        return None

    def again(self, failure: Failure, steps: Sequence[Step]) -> Failure | None:
        """A life of these steps; None if it goes well."""
        life, done = AnyLife(self._disk, failure.kind), list[Step]()
        try:
            for step in steps:
                done.append(step)
                try:
                    life.live(step)
                except Skipped:
                    done.pop()
        except (WrongError, EndlessError) as error:
            words = f"{type(error).__name__}: {error}"
            return Failure(failure.seed, failure.kind, done, words, failure.calls)
        return None

    def shorter(self, failure: Failure, seconds: float = 60) -> Failure:
        """The same failure in fewer steps, as far as leaving out steps and rows leads."""
        end = time.monotonic() + seconds
        if "EndlessError" in failure.words:
            return failure  # each try would take that long
        best = self.again(failure, failure.steps) or failure
        size = max(1, len(best.steps) // 2)
        while time.monotonic() < end:
            found = self._first(best, _with_fewer_steps(best.steps, size), end)
            if found is not None:
                best = found
            elif size > 1:
                size //= 2
            else:
                found = self._first(best, _with_fewer_rows(best.steps), end)
                if found is None:
                    break
                best = found
        return best

    def _first(
        self, failure: Failure, tries: Iterator[Sequence[Step]], end: float
    ) -> Failure | None:
        """The first of some lives that fails as well."""
        for steps in tries:
            if time.monotonic() > end:
                break
            found = self.again(failure, steps)
            if found is not None:
                return found
        return None


def _with_fewer_steps(steps: Sequence[Step], size: int) -> Iterator[Sequence[Step]]:
    """All steps but some that follow each other; the last one stays."""
    for start in range(0, len(steps) - 1, size):
        stop = min(start + size, len(steps) - 1)
        yield [*steps[:start], *steps[stop:]]


def _with_fewer_rows(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """The same steps, one of them without its kill, or with fewer rows or names."""
    for place, step in enumerate(steps):
        others = []
        if step.killed is not None:
            others.append(dataclasses.replace(step, killed=None))
        for name in ("rows", "names", "drop"):
            values = [*step.given.get(name, ())]
            for size in sorted({len(values) // 2, 1} - {0}, reverse=True):
                for start in range(0, len(values), size):
                    fewer = {**step.given, name: values[:start] + values[start + size :]}
                    others.append(dataclasses.replace(step, given=fewer))
        for other in others:
            yield [*steps[:place], other, *steps[place + 1 :]]


def main(arguments: Sequence[str]) -> NoReturn:
    """Live until so many calls were made, or something is wrong; the exit code says which."""
    parser = argparse.ArgumentParser(prog="torture.oracle_machine")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--life", help="one life alone, by its seed")
    parser.add_argument("--only", default="", help="steps that are drawn, separated by commas")
    parser.add_argument("--most", type=int, default=STEPS, help="steps of a life")
    parser.add_argument("--seconds", type=float, default=60, help="to make a failure shorter")
    parser.add_argument("--package", help="the folder of the package, which must be that")
    parser.add_argument("--go-on", action="store_true", help="after a failure too")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    folder = Path(tfrecorder.__file__).parents[1]
    if given.package not in (None, str(folder)):
        parser.error(f"the package is in {folder}")
    only = given.only.split(",") if given.only else [*WEIGHTS]
    folder = Path(tempfile.mkdtemp(prefix="oracle-"))
    lives = Lives(folder, {name: WEIGHTS[name] for name in only})
    began = time.monotonic()
    number = 0
    failed = 0
    while lives.made < given.calls:
        failure = lives.live(given.life or f"{given.seed}:{number}", given.most)
        number += 1
        if failure is not None:
            failed += 1
            print(f"WRONG, {lives.shorter(failure, given.seconds)}", flush=True)
            if not given.go_on or "EndlessError" in failure.words:
                break
        if given.life:
            break
    shutil.rmtree(folder)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(lives.calls.items()))
    seconds = time.monotonic() - began
    print(f"{lives.made} calls in {number} lives, {seconds:.0f} s: {counts}", flush=True)
    os._exit(int(failed > 0))  # a thread of a call that does not end would keep us


def start(
    calls: int, seed: int | str, *more: str, package: Path | None = None
) -> subprocess.Popen[str]:
    """Lives in a process of their own, without Beam, whose start takes longer than a life.

    Args:
        more: further arguments of `main`.
        package: the folder of the package; None takes the one that is imported.
    """
    folders = [Path(tfrecorder.__file__).parents[1] if package is None else package]
    folders.append(Path(__file__).parents[1])
    path = os.pathsep.join(map(str, folders))
    arguments = ["--calls", str(calls), "--seed", str(seed), "--package", str(folders[0]), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "torture.oracle_machine", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=folders[1],  # the current folder comes before all others
    )


def attack(calls: int, seed: int, processes: int = 2) -> Count:
    """So many calls, in all processes together.

    Raises:
        BrokenError: a dataset is not what it must be; the words are the life that led there.
    """
    share = -(-calls // processes)
    running = [start(share, f"{seed}.{number}") for number in range(processes)]
    told = [process.communicate()[0] for process in running]
    for process, words in zip(running, told, strict=True):
        demand(process.returncode == 0, words)
    lines = [words.splitlines()[-1] for words in told]
    done = sum(int(line.split()[0]) for line in lines)
    note = "; ".join(f"seed {seed}.{number}: {line}" for number, line in enumerate(lines))
    return Count("lives of datasets, before the oracle", done, 0, 0, note)


if __name__ == "__main__":
    main(sys.argv[1:])
