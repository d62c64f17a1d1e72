"""Noticing Ctrl-C while the main thread waits in TensorFlow.

Python runs signal handlers in its main thread, between two of its own instructions. So a handler
does not run until TensorFlow has the next batch, which may never come. But Python writes a byte for
each signal at once, and the thread that looks for more data reads these bytes.
Source: https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading

_lock = threading.Lock()
_ends: tuple[int, int] | None = None  # of the pipe: to read, and to write
_presses = 0


def hear_ctrl_c() -> None:
    """Count how often Ctrl-C is pressed from now on, for `presses`.

    Does nothing outside the main thread, or if something else reads the bytes, such as an event
    loop: Ctrl-C then ends the wait when the next batch comes.
    """
    global _ends
    if threading.current_thread() is not threading.main_thread():
        return
    if _ends is None:
        _ends = os.pipe()
        for end in _ends:
            os.set_blocking(end, False)
        os.register_at_fork(after_in_child=_let_go)
    before = signal.set_wakeup_fd(_ends[1], warn_on_full_buffer=False)
    if before not in (-1, _ends[1]):
        signal.set_wakeup_fd(before)


def presses() -> int:
    """How often Ctrl-C was pressed since the first `hear_ctrl_c`; for any thread."""
    global _presses
    if _ends is not None:
        with _lock, contextlib.suppress(BlockingIOError):
            while found := os.read(_ends[0], 1024):
                _presses += found.count(signal.SIGINT)
    return _presses


def _let_go() -> None:
    """Runs in a forked process, which gets its own signals."""
    global _ends
    if _ends is None:
        return
    before = signal.set_wakeup_fd(-1)
    if before not in (-1, _ends[1]):
        signal.set_wakeup_fd(before)
    _ends = None
