"""Memory for decoded pixels, shared by the threads that decode."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tfrecorder.process_limits import address_space_left, bytes_used, control_groups

#: One part in this many of the memory that a process may still take is for pixels; the rest is for
#: their files, the records, and threads.
_SHARE = 3
_LEAST = 2**26

#: Entered with a number of bytes, and left when they are free again.
Room = Callable[[int], AbstractContextManager[None]]


def spare_bytes(most: int) -> int:
    """Bytes of memory for pixels: `most`, or fewer under a limit of the process or container.

    >>> spare_bytes(2**20)
    1048576
    """
    limits = [limit for limit in (address_space_left(), _container()) if limit is not None]
    return min([most, *(max(limit // _SHARE, min(most, _LEAST)) for limit in limits)])


def is_limited() -> bool:
    """Whether this process's address space is limited, as by `ulimit -v`."""
    return address_space_left() is not None


def _container() -> int | None:
    """Bytes that this process's control groups leave it; None without a limit."""
    limits = []
    for folder in control_groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # "max"
                limits.append(int((folder / name).read_text()))
    return max(0, min(limits) - bytes_used(1)) if limits else None


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
