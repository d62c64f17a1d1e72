"""Importing TensorFlow without what it writes about the machine when it starts."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """A block that imports TensorFlow: what its libraries write meanwhile is not shown.

    These lines (oneDNN, missing drivers, the processor's features) go to the file of standard error
    itself, past Python, and those written before its log is set up do not heed
    TF_CPP_MIN_LOG_LEVEL.  They are shown where somebody set that variable, and where the import
    fails.
    """
    if os.environ.get(LEVEL) is not None or "tensorflow" in sys.modules or sys.stderr is None:
        yield
        return
    os.environ[LEVEL] = "3"  # for what comes later, as the search for a graphics card
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
