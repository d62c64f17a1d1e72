"""Memory for decoded pixels, shared by the threads that decode."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tfrecorder.core.limits import memory_limit, memory_used

#: One part in this many of the memory that a process may still take is for pixels; the rest is for
#: their files, the records, and threads.
_SHARE = 3
_LEAST = 2**26

#: Entered with a number of bytes, and left when they are free again.
Room = Callable[[int], AbstractContextManager[None]]


def spare_bytes(most: int) -> int:
    """Bytes of memory for pixels: `most`, or fewer if the process or its container has little.

    >>> spare_bytes(2**20)
    1048576
    """
    left = memory_limit() - memory_used()
    return min(most, max(left // _SHARE, _LEAST))


def unlimited(size: int) -> AbstractContextManager[None]:
    """Room without a limit."""
    return contextlib.nullcontext()


class Budget:
    """A number of bytes that threads share; a thread that finds too few left waits.

    >>> budget = Budget(100)
    >>> with budget.room(70):
    ...     pass
    """

    def __init__(self, total: int) -> None:
        self.total = self._free = total
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Take bytes for as long as the block lasts: all of them if `size` exceeds the total."""
        size = min(size, self.total)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


DECODING_BYTES = 2**30
