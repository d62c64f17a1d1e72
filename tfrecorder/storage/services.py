"""Which services and disks fail at present, as all threads of this process see it."""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tfrecorder.storage.uris import parent, scheme
from tfrecorder.threads import UnwantedError, is_unwanted

#: Seconds before the second attempt, twice as many before each further one, and the most.
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5

#: Of these without a request, and a failure is the first of another outage.
STALE_PAUSES = 4

#: Seconds of waiting after which it is said, and after which it is said again.
QUIET_SECONDS = 3
SAID_SECONDS = 60

#: Seconds between two looks at whether anybody still waits for the result.
LOOK_SECONDS = 0.1

logger = logging.getLogger("tfrecorder")


@dataclass(frozen=True)
class Wait:
    """A service that requests of this process wait for.

    Attributes:
        service: a bucket, as "gs://bucket", or a local folder.
        since: when the first of these requests failed, as `time.monotonic` counts.
        words: of the latest failure.
    """

    service: str
    since: float
    words: str

    def __str__(self) -> str:
        seconds = time.monotonic() - self.since
        return f"Waiting for {self.service} ({seconds:.0f} s so far): {self.words}"


def waits() -> list[Wait]:
    """What this process has waited for, for some seconds at least; the longest wait first."""
    found = [wait for service in list(_SERVICES.values()) for wait in service.waiting()]
    long = [wait for wait in found if time.monotonic() - wait.since >= QUIET_SECONDS]
    return sorted(long, key=lambda wait: wait.since)


def growing(failures: int) -> float:
    """Seconds to pause after so many failures in a row."""
    return float(min(FIRST_PAUSE * 2 ** min(failures - 1, 20), LONGEST_PAUSE))


class Service:
    """Whether a service answers, as all threads of this process see it.

    Rounds of failures are counted that have no answer between them.  Requests that were under way
    together fail together: that is one round.  From the second on the service is closed: whoever
    wants something waits, and waits on if the first who asks then fails too, which is soon noticed,
    as they come at moments that chance decides.

    A share of requests that fail while others are answered closes nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.words = ""
        self.failing_since = self.closed_until = 0.0
        self._rounds = self._opened = 0
        self._latest_round = 0.0
        self._said = float("-inf")
        self._waiting: list[Wait] = []
        self._changed = threading.Condition()

    def fail(self, began: float, now: float, words: str) -> None:
        with self._changed:
            self.words = words
            if began - self._latest_round > STALE_PAUSES * LONGEST_PAUSE:
                self._rounds = 0
            if not self._rounds:
                self.failing_since = now
            if not self._rounds or began >= self._latest_round:
                self._rounds += 1
                self._latest_round = now
                if self._rounds > 1:
                    self.closed_until = now + growing(self._rounds - 1)

    def answer(self) -> None:
        if not self._rounds:  # nearly always, and then without the lock
            return
        with self._changed:
            self._opened += self._rounds > 1
            self._rounds, self.closed_until = 0, 0.0
            self._changed.notify_all()

    def wait(self, wait: Wait, ready: float, last: float) -> None:
        """Wait until `ready` and while the service is closed, at most until `last`.

        Args:
            wait: what is said meanwhile, by `waits` and in the log.

        Raises:
            UnwantedError: nobody waits for the result any more.
        """
        opened, share = self._opened, random.uniform(0, 0.5)
        with self._changed, self._listed(wait):
            while self._opened == opened:  # else it has answered again, after all had waited
                closed = self.closed_until + share * (self.closed_until - self._latest_round)
                left = min(max(ready, closed), last) - time.monotonic()
                if left <= 0:
                    return
                if is_unwanted():
                    raise UnwantedError
                self._say(wait)
                self._changed.wait(min(left, LOOK_SECONDS))

    @contextlib.contextmanager
    def _listed(self, wait: Wait) -> Iterator[None]:
        self._waiting.append(wait)
        try:
            yield
        finally:
            self._waiting.remove(wait)

    def _say(self, wait: Wait) -> None:
        """Log what is waited for, once for all that wait, and every minute again."""
        now = time.monotonic()
        if now - wait.since >= QUIET_SECONDS and now - self._said >= SAID_SECONDS:
            self._said = now
            logger.warning("%s", wait)

    def waiting(self) -> list[Wait]:
        with self._changed:
            return list(self._waiting)


#: The services that have failed in this process.  It belongs to the process, as what it says does:
#: threads that know nothing of each other ask one and the same service.
_SERVICES: dict[str, Service] = {}


def failing(path: str) -> Service | None:
    """The service of a path if it has ever failed here; costs nothing where none has."""
    return _SERVICES.get(_name(path)) if _SERVICES else None


def service_of(path: str) -> Service:
    """The service of a path."""
    name = _name(path)
    return _SERVICES.setdefault(name, Service(name))


def _name(path: str) -> str:
    """What fails as a whole: the bucket of a uri; of a local file its folder.

    Many folders may be on one disk, but a system whose file server is away does not say which: to
    ask for that may take as long as the request itself.
    """
    kind = scheme(path)
    if not kind:
        return parent(path) or "."
    return f"{kind}://{path.partition('://')[2].partition('/')[0]}"
