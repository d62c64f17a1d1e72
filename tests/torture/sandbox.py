"""A folder of which every path is known, so that whatever is written outside a directory is seen.

`HOME` and the working folder lie in it too, for `~` and relative paths.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import invoke

from tfrecorder import TfrecorderError
from torture.counts import BrokenError, demand

#: Seconds that any call with hostile input may take, on a busy machine.
SECONDS = 60.0


@dataclass(frozen=True)
class Sandbox:
    """Folders side by side: home, work (the working folder), images and out."""

    folder: Path

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def out(self) -> Path:
        return self.folder / "work" / "out"


@contextlib.contextmanager
def sandbox(folder: Path) -> Iterator[Sandbox]:
    """Make the folders, and live in them."""
    for name in ("home", "work", "images"):
        (folder / name).mkdir(parents=True)
    before, home = os.getcwd(), os.environ.get("HOME")
    os.chdir(folder / "work")
    os.environ["HOME"] = str(folder / "home")
    try:
        yield Sandbox(folder)
    finally:
        os.chdir(before)
        if home is None:
            del os.environ["HOME"]
        else:
            os.environ["HOME"] = home


def listing(folder: Path, but: Path | None = None) -> dict[str, str]:
    """Every path below a folder with its kind and content, but for one directory."""
    found = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(where, name) != but]
        for name in (*folders, *names):
            path = os.path.join(where, name)
            status = os.lstat(path)
            told = f"{stat.S_IFMT(status.st_mode):o} {status.st_size * (name in names)}"
            if stat.S_ISREG(status.st_mode):
                told += hashlib.sha256(Path(path).read_bytes()).hexdigest()
            found[path] = told
    return found


@contextlib.contextmanager
def nothing_outside(box: Sandbox, out: Path | None = None) -> Iterator[None]:
    """Demand that a block changes nothing in the sandbox but in `out`."""
    before = listing(box.folder, out or box.out)
    yield
    after = listing(box.folder, out or box.out)
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    demand(not changed, f"written or removed outside {out or box.out}: {changed}")


@dataclass(frozen=True)
class Ended:
    """How a call ended: its result, or the words of its one clear error."""

    result: Any
    words: str


def call(run: Callable[[], Any]) -> Ended:
    """A call of the library: a result or an error of its own, within seconds.

    Raises:
        BrokenError: it raised something else, or took too long.
    """
    began = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ended = Ended(run(), "")
    except TfrecorderError as error:
        ended = Ended(None, str(error))
        demand(ended.words, f"{type(error).__name__} without words")
    except Exception as error:
        raise BrokenError(f"{type(error).__name__} instead of an error of ours: {error}") from error
    seconds = time.monotonic() - began
    demand(seconds < SECONDS, f"it took {seconds:.0f} s")
    return ended


def command(*arguments: str) -> Ended:
    """The command line in this process: exit code 0, or one line and another exit code.

    Raises:
        BrokenError: a traceback, more than one line (but for the report on a table), or too long.
    """
    began = time.monotonic()
    try:
        ended = invoke(*arguments)
    except Exception as error:
        raise BrokenError(f"{arguments[0]}: a traceback: {error!r}") from error
    seconds = time.monotonic() - began
    demand(seconds < SECONDS, f"{arguments[0]} took {seconds:.0f} s")
    if ended.exit_code == 0:
        return Ended(ended.stdout, "")
    said = [line for line in ended.stderr.splitlines() if not line.startswith("warning: ")]
    words = "\n".join(said)
    demand(words or ended.stdout, f"{arguments[0]} ends with {ended.exit_code} and says nothing")
    reports = "the source has faults" in words
    demand(len(said) <= 1 or reports, f"{arguments[0]}: more than one line: {words}")
    return Ended(None, words or ended.stdout)
