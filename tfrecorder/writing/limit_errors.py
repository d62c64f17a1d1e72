"""Errors at a limit of the process: of its memory, or of its threads."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from tfrecorder.core.threads import is_address_space_limited
from tfrecorder.errors import RunnerError, TfrecorderError


@contextlib.contextmanager
def limits_explained() -> Iterator[None]:
    """Turns errors at a limit of the process's memory or threads into a RunnerError.

    Raises:
        RunnerError: says which limit to raise; other errors pass.
    """
    try:
        yield
    except Exception as error:
        if (message := limit_reached(error)) is None:
            raise
        raise RunnerError(message) from error


def limit_reached(error: BaseException | None) -> str | None:
    """A message for an error caused by a limit of the process; None for others.

    >>> limit_reached(RuntimeError("can't start new thread")).partition(";")[0]
    'this process cannot start the threads that it needs'
    >>> limit_reached(ValueError("something else"))
    """
    while error is not None:
        if isinstance(error, TfrecorderError):
            return None
        text = str(error)
        number = getattr(error, "errno", None)
        limited = is_address_space_limited()  # which keeps threads from starting too
        threads = "can't start new thread" in text or number == errno.EAGAIN
        if threads and not limited:
            return (
                "this process cannot start the threads that it needs; raise its limit "
                "(`ulimit -u`, or pids.max of its container) and run the same call again to "
                "continue."
            )
        mapped = isinstance(error, ImportError) and "failed to map" in text
        broken = threads or isinstance(error, SystemError) or "out of memory" in text
        short = isinstance(error, MemoryError) or number == errno.ENOMEM
        if short or mapped or (broken and limited):
            return (
                "this process cannot get the memory that it needs; raise its limit (`ulimit -v`, "
                "or the memory of its container) and run the same call again to continue."
            )
        context = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or context
    return None
