"""What the process of the command line sets for itself before anything else is imported.

This is the package's first import, because the others take a third of a second and much memory.
A program that imports the package is left as it is.
"""

from __future__ import annotations

import os
import signal
import sys
from types import TracebackType

INTERRUPTED = 130  # 128 + SIGINT, as in shells


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)


def listen_to_ctrl_c() -> None:
    """From now on, Ctrl-C raises a KeyboardInterrupt; until now it ended the process at once."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _print_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """One line where the memory ends while the package is still being imported."""
    if issubclass(kind, MemoryError):
        sys.stderr.write(
            "error: this process cannot get the memory that it needs to begin; raise its limit "
            "(`ulimit -v`, or the memory of its container).\n"
        )
    else:
        sys.__excepthook__(kind, error, trace)


# The word before the arguments, as Python was given it: a path to `tfrecorder`, or its name.
_started = "".join(sys.orig_argv[-len(sys.argv) :][:1])
if os.path.basename(_started) == "tfrecorder" and sys.argv[0] in ("-m", _started):
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # `nohup` ignores it
        signal.signal(signal.SIGINT, _end)
    sys.excepthook = _print_error
    from tfrecorder.core.limits import address_space_left

    if address_space_left() is not None:
        # Arrow's own pool would reserve a gigabyte, and it aborts if a thread cannot start.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        os.environ.setdefault("ARROW_IO_THREADS", "1")
