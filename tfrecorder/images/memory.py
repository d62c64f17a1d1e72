"""Memory for decoded pixels, shared by the threads that decode."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

#: Entered with a number of bytes, and left when they are free again.
Room = Callable[[int], AbstractContextManager[None]]


def unlimited(size: int) -> AbstractContextManager[None]:
    """Room without an end."""
    return contextlib.nullcontext()


class Budget:
    """A number of bytes that many threads may take of; who finds too few left waits.

    >>> budget = Budget(100)
    >>> with budget.room(70):
    ...     pass
    """

    def __init__(self, total: int) -> None:
        self._total = self._free = total
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Bytes for as long as the block lasts; what is larger than all of it gets all of it."""
        size = min(size, self._total)
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
