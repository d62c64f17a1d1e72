"""Retries: a transient failure is retried for at least two minutes.

All threads of a process wait together for a service that answers none of them.  So the service gets
one request every few seconds, and not one from each thread.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from tfrecorder.errors import UnreachableError
from tfrecorder.storage.patience import patience
from tfrecorder.storage.services import Service, Wait, failing, growing, service_of
from tfrecorder.storage.store import UnreadableError, UnwritableError, may_pass

T = TypeVar("T")

#: Attempts at a request while its service answers other requests: an upload that takes minutes may
#: fail by chance three times in a row.
ATTEMPTS = 6


def retried(attempt: Callable[[], T], path: str, note: Callable[[], None] = lambda: None) -> T:
    """The result of `attempt`, which is retried while its failures may pass.

    Args:
        attempt: called again after a failure that `may_pass`.
        path: the file or folder it is about.  All threads of this process that use its service wait
            together, and the error names the path.
        note: called before each retry, to count them.

    Raises:
        UnreachableError: it failed for `patience().seconds`, or once inside `impatient`.
        UnwantedError: nobody waits for the result any more.
        Whatever else `attempt` raises, at once.
    """
    request = _Request(path)
    request.wait_for_others()
    while True:
        began = time.monotonic()
        try:
            result = attempt()
        except (UnreadableError, UnwritableError):
            request.answered()
            raise
        except Exception as error:
            if not may_pass(error):
                raise
            request.failed(began, error)
        else:
            request.answered()
            return result
        note()
        request.pause()


_PATIENT: ContextVar[bool] = ContextVar("patient", default=True)


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """A block in which nothing is retried, for reads and writes that we can do without."""
    before = _PATIENT.set(False)
    try:
        yield
    finally:
        _PATIENT.reset(before)


class _Request:
    """A request that is retried until it is answered or its time is up."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._since: float | None = None
        self._failures = 0
        self._words = ""
        self._asked_pause = 0.0

    def wait_for_others(self) -> None:
        """Wait while the service is known to be failing: other threads already retry it."""
        service = failing(self._path)
        now = time.monotonic()
        if service is not None and service.closed_until > now and _PATIENT.get():
            self._since, self._words = now, service.words
            self._wait(service, ready=now)

    def answered(self) -> None:
        service = failing(self._path)
        if service is not None:
            service.answer()

    def failed(self, began: float, error: Exception) -> None:
        """Note a failure; raise an UnreachableError if it must not be retried."""
        now = time.monotonic()
        # Every store ends a stall sooner than this, so the request was making progress until now.
        if self._since is None or now - began > patience().seconds:
            self._since = now
        self._failures += 1
        self._words = str(getattr(error, "strerror", None) or error)
        self._asked_pause = getattr(error, "after", 0)
        service = service_of(self._path)
        service.fail(began, now, self._words)
        if not _PATIENT.get():
            raise UnreachableError(f"{self._path} cannot be reached: {self._words}.") from error
        waited = now - self._since
        is_away = now - service.failing_since >= patience().seconds / 2  # it answers nobody
        if waited >= patience().seconds and (is_away or self._failures >= ATTEMPTS):
            words = f"could not be reached for {waited:,.0f} s: {self._words}."
            raise UnreachableError(f"{self._path} {words}") from error

    def pause(self) -> None:
        assert self._since is not None
        now, pause = time.monotonic(), growing(self._failures) * random.uniform(0.5, 1)
        # A server may ask for a longer pause, but never longer than the time left.
        asked = min(self._asked_pause, self._since + patience().seconds - now)
        self._wait(service_of(self._path), ready=now + max(pause, asked))

    def _wait(self, service: Service, ready: float) -> None:
        assert self._since is not None
        end = self._since + patience().seconds
        # When the time is up there is one last attempt, whatever the other threads do.
        last = end if end > time.monotonic() else float("inf")
        service.wait(Wait(service.name, self._since, self._words), ready, last)
