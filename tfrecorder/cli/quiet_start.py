"""Importing TensorFlow without the lines it prints about the machine at startup."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

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
