"""Patience: what failed in a way that may pass is tried again, for two minutes at least.

All threads of a process wait together for a service that answers none of them, so that it is asked
once every few seconds, and not by each of them.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from tfrecorder.errors import UnreachableError
from tfrecorder.storage.services import Service, Wait, failing, growing, service_of
from tfrecorder.storage.store import UnreadableError, UnwritableError, may_pass

T = TypeVar("T")

#: Seconds for which a request is tried again, from its first failure on.  An outage of a bucket, or
#: the restart of a file server, is mostly over by then.
PATIENCE = 120

#: Attempts of a request whose service answers others: an upload of minutes may fail by chance,
#: three times in as many attempts.
ATTEMPTS = 6


def retried(attempt: Callable[[], T], path: str, note: Callable[[], None] = lambda: None) -> T:
    """What `attempt` returns, tried again while it fails in a way that may pass.

    Args:
        attempt: a failure that `may_pass` is followed by another attempt.
        path: of the file or folder it is about: the threads of this process that ask its service
            for something wait together, and the error names it.
        note: is called before each further attempt, for whoever counts them.

    Raises:
        UnreachableError: it failed for `PATIENCE` seconds, or at once in a block of `impatient`.
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
    """A block in which nothing is tried again: of notes and looks that may as well be left out."""
    before = _PATIENT.set(False)
    try:
        yield
    finally:
        _PATIENT.reset(before)


class _Request:
    """A request that is tried until it is answered, or its patience ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._since: float | None = None
        self._failures = 0
        self._words = ""
        self._asked_pause = 0.0

    def wait_for_others(self) -> None:
        """Wait while the service is known to fail: others ask it already."""
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
        """Note a failure; raise an UnreachableError where it is not to be tried again."""
        now = time.monotonic()
        # No stall lasts so long: every store ends one sooner.  The request worked until now.
        if self._since is None or now - began > PATIENCE:
            self._since = now
        self._failures += 1
        self._words = str(getattr(error, "strerror", None) or error)
        self._asked_pause = getattr(error, "after", 0)
        service = service_of(self._path)
        service.fail(began, now, self._words)
        if not _PATIENT.get():
            raise UnreachableError(f"{self._path} cannot be reached: {self._words}.") from error
        waited = now - self._since
        is_away = now - service.failing_since >= PATIENCE / 2  # and answers nobody
        if waited >= PATIENCE and (is_away or self._failures >= ATTEMPTS):
            words = f"could not be reached for {waited:,.0f} s: {self._words}."
            raise UnreachableError(f"{self._path} {words}") from error

    def pause(self) -> None:
        assert self._since is not None
        now, pause = time.monotonic(), growing(self._failures) * random.uniform(0.5, 1)
        # A server may ask for more, but not for more than the patience that is left.
        asked = min(self._asked_pause, self._since + PATIENCE - now)
        self._wait(service_of(self._path), ready=now + max(pause, asked))

    def _wait(self, service: Service, ready: float) -> None:
        assert self._since is not None
        end = self._since + PATIENCE
        # Where the patience ends there is one more attempt, whatever the others do.
        last = end if end > time.monotonic() else float("inf")
        service.wait(Wait(service.name, self._since, self._words), ready, last)
