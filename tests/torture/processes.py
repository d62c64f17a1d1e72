"""The command in its own process, watched from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support import COMMAND


def start_command(
    arguments: list[str], words: Path | int, before: str = ""
) -> subprocess.Popen[bytes]:
    """`tfrecorder` with arguments, in a process group of its own.

    Args:
        words: what it writes to stderr goes into this file, or is to be read where it is
            `subprocess.PIPE`.
        before: Python that the process runs first.
    """
    with contextlib.ExitStack() as stack:
        stderr = words if isinstance(words, int) else stack.enter_context(open(words, "wb"))
        return subprocess.Popen(
            [sys.executable, "-c", f"{before}\n{COMMAND}", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )


def holds_lock(process: subprocess.Popen[bytes], out: Path) -> bool:
    """True once the process has claimed the directory."""
    lock = os.path.realpath(out / "_tfrecorder/lock")
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{process.pid}/fd"):
            if os.readlink(f"/proc/{process.pid}/fd/{number}") == lock:
                return True
    return False


def wait_while_running(
    process: subprocess.Popen[bytes], condition: Callable[[], bool], seconds: float = 120
) -> bool:
    """Wait until something is so; False if the process ended before."""
    end = time.monotonic() + seconds
    while process.poll() is None:
        if condition():
            return True
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s in vain")
        time.sleep(0.002)
    return False
