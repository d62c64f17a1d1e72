"""What the process of the command line sets for itself before anything else is imported.

This is the package's first import, because the others take a third of a second and much memory.
A program that imports the package is left as it is.

Where a command imports TensorFlow, it does so without the lines printed about the machine.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator

INTERRUPTED = 130  # 128 + SIGINT, as in shells

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
    _limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= _limit < LEAST_ADDRESS_SPACE:  # without a limit, below 0
        sys.exit(
            f"error: this process may take {_limit // 2**20:,} MiB of address space, and needs "
            f"{LEAST_ADDRESS_SPACE // 2**20:,}; raise its limit (`ulimit -v`)."
        )


LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """A block that imports TensorFlow and hides what its libraries print meanwhile.

    These lines (oneDNN, missing drivers, the processor's features) go straight to standard error,
    bypassing Python, and those written before its log is set up ignore TF_CPP_MIN_LOG_LEVEL.  They
    are shown if that variable is set, or if the import fails.

    Only for the command line: it changes standard error of the whole process.
    """
    if os.environ.get(LEVEL) is not None or "tensorflow" in sys.modules or sys.stderr is None:
        yield
        return
    os.environ[LEVEL] = "3"  # for what comes later, such as the search for a GPU
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as lines:
        os.dup2(lines.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            lines.seek(0)
            os.write(2, lines.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
