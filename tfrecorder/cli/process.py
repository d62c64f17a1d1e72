"""What the process of the command line sets for itself before anything else is imported.

This is the package's first import, because the others take a third of a second and much memory.
A program that imports the package is left as it is.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys

INTERRUPTED = 130  # 128 + SIGINT, as in shells
TERMINATED = 143  # 128 + SIGTERM

#: The key of a context's `meta` under which the exit code of a command that was ended is kept.
ENDED_WITH = "tfrecorder.ended"

#: Objects that are made before Python looks for garbage.  Imports make many and leave none behind:
#: by its own 700, it would look through all of them a hundred times, for a sixth of the start.
OBJECTS_MADE = 20_000

#: Bytes of address space for what is imported, Arrow's pool, and threads.  With less, C code that
#: finds none may end the process, or wait without end.
LEAST_ADDRESS_SPACE = 4 * 2**30


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)


def listen_to_ctrl_c() -> None:
    """From now on, Ctrl-C raises a KeyboardInterrupt; until now it ended the process at once."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# The word before the arguments, as Python was given it: a path to `tfrecorder`, or its name.
_started = "".join(sys.orig_argv[-len(sys.argv) :][:1])
if os.path.basename(_started) == "tfrecorder" and sys.argv[0] in ("-m", _started):
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # `nohup` ignores it
        signal.signal(signal.SIGINT, _end)
    gc.set_threshold(OBJECTS_MADE)
    _limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= _limit < LEAST_ADDRESS_SPACE:  # without a limit, below 0
        sys.exit(
            f"error: this process may take {_limit // 2**20:,} MiB of address space, and needs "
            f"{LEAST_ADDRESS_SPACE // 2**20:,}; raise its limit (`ulimit -v`)."
        )
