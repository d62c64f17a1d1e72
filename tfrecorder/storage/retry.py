"""Retries: what may pass is waited for, at least two minutes.

Each request pauses by itself, a little longer after each failure, as in the clients of the stores.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from tfrecorder.core.threads import UnwantedError, is_unwanted
from tfrecorder.errors import UnreachableError
from tfrecorder.storage.store import UnreadableError, may_pass
from tfrecorder.storage.uris import is_web, parent, scheme

T = TypeVar("T")

#: The least attempts at a request, unless they take twice the patience: an upload of a minute may
#: fail by chance three times in a row.
ATTEMPTS = 6

#: Seconds of waiting before it is logged again.
SAID_SECONDS = 60

#: Seconds between checks of whether anybody still waits for the result.
LOOK_SECONDS = 0.1

logger = logging.getLogger("tfrecorder")


@dataclass(frozen=True)
class Patience:
    """Waiting for what may pass, in seconds.

    Attributes:
        seconds: to retry a request, counted from its first failure. A bucket outage or the restart
            of a file server is mostly over by then.
        first_pause: before the second attempt; doubled before each further one.
        longest_pause: before any attempt.
        quiet: waiting before it is logged.
    """

    seconds: float = 120
    first_pause: float = 0.5
    longest_pause: float = 5
    quiet: float = 3


_PATIENCE = Patience()


def patience() -> Patience:
    return _PATIENCE


@dataclass(frozen=True, eq=False)
class Wait:
    """A request of this process that waits for a service.

    Attributes:
        service: a bucket such as "gs://bucket", or a local folder.
        since: when the request first failed, on the clock of `time.monotonic`.
        words: the message of the latest failure.
    """

    service: str
    since: float
    words: str

    def __str__(self) -> str:
        seconds = time.monotonic() - self.since
        return f"Waiting for {self.service} ({seconds:.0f} s so far): {self.words}"


#: What waits in this process, and when each service was last logged: threads that know nothing of
#: each other wait for the same service.
_WAITING: list[Wait] = []
_SAID: dict[str, float] = {}
_LOCK = threading.Lock()


def waits() -> list[Wait]:
    """What this process has been waiting for, for at least a few seconds; longest wait first."""
    with _LOCK:
        long = [wait for wait in _WAITING if time.monotonic() - wait.since >= patience().quiet]
    return sorted(long, key=lambda wait: wait.since)


def pause(wait: Wait, seconds: float) -> None:
    """Wait, and say so.

    Raises:
        UnwantedError: nobody waits for the result any more.
    """
    ready = time.monotonic() + seconds
    with _LOCK:
        _WAITING.append(wait)
    try:
        while (left := ready - time.monotonic()) > 0:
            if is_unwanted():
                raise UnwantedError
            _say(wait)
            time.sleep(min(left, LOOK_SECONDS))
    finally:
        with _LOCK:
            _WAITING.remove(wait)


def _say(wait: Wait) -> None:
    """Log what we wait for, once for all threads that wait for it and again every minute."""
    now = time.monotonic()
    with _LOCK:
        said = _SAID.get(wait.service, float("-inf"))
        if now - wait.since < patience().quiet or now - said < SAID_SECONDS:
            return
        _SAID[wait.service] = now
    logger.warning("%s", wait)


_PATIENT: ContextVar[bool] = ContextVar("patient", default=True)


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    """A block in which nothing is retried, for reads and writes that we can do without."""
    before = _PATIENT.set(False)
    try:
        yield
    finally:
        _PATIENT.reset(before)


def retried(
    attempt: Callable[[], T],
    path: str,
    note: Callable[[], None] = lambda: None,
) -> T:
    """The result of `attempt`, which is retried while its failures may pass.

    Args:
        attempt: called again after a failure that `may_pass`.
        path: the file or folder it is about, which the error names.
        note: called before each retry, to count them.

    Raises:
        UnreachableError: it failed for `patience().seconds`, or once inside `impatient`; on the
            web, where each uri may name another host, an UnreadableError.
        UnwantedError: nobody waits for the result any more.
        Whatever else `attempt` raises, at once.
    """
    failures = 0
    since = 0.0
    while True:
        began = time.monotonic()
        try:
            return attempt()
        except Exception as error:
            if not may_pass(error):
                raise
            now = time.monotonic()
            # Every store ends a stall sooner than this, so the request was making progress until
            # now.
            if not failures or now - began > patience().seconds:
                since = now
            failures += 1
            words = str(getattr(error, "strerror", None) or error)
            if not _PATIENT.get():
                raise _unreachable(path, f"cannot be reached: {words}.", words) from error
            left = since + patience().seconds - now
            if left <= 0 and (failures >= ATTEMPTS or left <= -patience().seconds):
                raise _unreachable(
                    path,
                    f"could not be reached for {now - since:,.0f} s: {words}.",
                    words,
                ) from error
            pause_now = patience().first_pause * 2 ** min(failures - 1, 20)
            seconds = min(pause_now, patience().longest_pause) * random.uniform(0.5, 1)
            if left > 0:  # a server may ask for more, but there is a last attempt at the end
                seconds = min(max(seconds, getattr(error, "after", 0)), left)
        note()
        pause(Wait(service_of(path), since, words), seconds)


def _unreachable(
    path: str,
    said: str,
    words: str,
) -> UnreachableError | UnreadableError:
    if is_web(path):
        return UnreadableError("unreachable", words)
    return UnreachableError(f"{path} {said}")


def service_of(path: str) -> str:
    """The unit that fails as a whole: a uri's bucket, or a local file's folder.

    Many folders may be on one disk, but while its file server is away the system cannot say which:
    that question may hang for as long as the request itself.
    """
    kind = scheme(path)
    if not kind:
        return parent(path) or "."
    return f"{kind}://{path.partition('://')[2].partition('/')[0]}"
