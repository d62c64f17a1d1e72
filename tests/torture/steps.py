"""Ending a conversion before any single change that it makes to the names in a folder.

A process of this Python counts its own renames, links and removals, which the interpreter announces
to an audit hook, and sends itself a signal before the one that was asked for.  After SIGKILL
nothing is tidied up.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

#: Audit events of what changes names, and at which of their arguments the file descriptors of
#: folders begin that their paths are relative to.
CHANGES = {"os.rename": 2, "os.link": 2, "os.remove": 1, "os.rmdir": 1}

#: Imported once, by the process that all others are forked from.
_SLOW_IMPORTS = ["torture.steps", "pyarrow.parquet", "apache_beam"]


@dataclass(frozen=True)
class Moment:
    """When a process is ended.

    Attributes:
        spared: so many changes are made before the one that is not.
        after: count from the first change of this name below the folder, which counts; "" is any.
        sent: the signal; SIGINT is what Ctrl-C sends.
        once: it is not sent again before each change that is made to tidy up.
    """

    spared: int
    after: str = ""
    sent: int = signal.SIGKILL
    once: bool = False


def convert_until(
    moment: Moment, source: Any, out: str, verb: str = "convert", **options: Any
) -> bool:
    """A conversion in another process: True where the signal ended it, False where it was done.

    Args:
        source: the first argument; None if `out` is that, for what is done in place.
        out: an absolute path; changes below it count.
        verb: or "append", or "compact".
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_SLOW_IMPORTS)
    process = context.Process(target=_convert, args=(moment, source, out, verb, options))
    process.start()
    process.join(600)
    assert process.exitcode in (0, -moment.sent), f"it ended with {process.exitcode}"
    return process.exitcode != 0


def _convert(moment: Moment, source: Any, out: str, verb: str, options: dict[str, Any]) -> None:
    import tfrecorder

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(_Killer(moment, os.path.realpath(out)).hear)
    where = (out,) if source is None else (source, out)
    try:
        getattr(tfrecorder, verb)(*where, progress=False, **options)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


class _Killer:
    def __init__(self, moment: Moment, folder: str) -> None:
        self._moment, self._folder = moment, folder
        self._counts, self._changes = not moment.after, 0

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook: called before each change."""
        first = CHANGES.get(event)
        if first is None:
            return
        paths, folders = arguments[:first], arguments[first:]
        changed = [_path(*one) for one in zip(paths, folders, strict=False)]
        below = [path for path in changed if path.startswith(f"{self._folder}/")]
        wanted = f"{self._folder}/{self._moment.after}"
        self._counts = self._counts or wanted in below
        if not below or not self._counts:
            return
        is_now = self._changes == self._moment.spared
        # The signal may end this function.
        self._changes += not is_now or self._moment.once
        if is_now:
            os.kill(os.getpid(), self._moment.sent)


def _path(path: str | bytes, folder: int) -> str:
    if folder >= 0:
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
    return os.path.abspath(os.fsdecode(path))
