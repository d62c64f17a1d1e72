"""Which services and disks are failing right now, as seen by all threads of this process."""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass

from tfrecorder.core.threads import UnwantedError, is_unwanted
from tfrecorder.storage.patience import patience
from tfrecorder.storage.uris import parent, scheme

#: After this many longest pauses without a failed request, the next failure starts a new outage.
STALE_PAUSES = 4

#: Seconds of waiting before it is logged again.
SAID_SECONDS = 60

#: Seconds between checks of whether anybody still waits for the result.
LOOK_SECONDS = 0.1

logger = logging.getLogger("tfrecorder")


@dataclass(frozen=True)
class Wait:
    """A request of this process that waits for a service.

    Attributes:
        service: a bucket such as "gs://bucket", or a local folder.
        since: when the request first failed or began to wait, on the clock of `time.monotonic`.
        words: the message of the latest failure.
    """

    service: str
    since: float
    words: str

    def __str__(self) -> str:
        seconds = time.monotonic() - self.since
        return f"Waiting for {self.service} ({seconds:.0f} s so far): {self.words}"


def waits() -> list[Wait]:
    """What this process has been waiting for, for at least a few seconds; longest wait first."""
    all_waits = [wait for service in list(_SERVICES.values()) for wait in service.waiting()]
    long = [wait for wait in all_waits if time.monotonic() - wait.since >= patience().quiet]
    return sorted(long, key=lambda wait: wait.since)


def growing(failures: int) -> float:
    """Seconds to pause after this many failures in a row."""
    return float(min(patience().first_pause * 2 ** min(failures - 1, 20), patience().longest_pause))


class Service:
    """Whether a service answers, as seen by all threads of this process.

    We count rounds of failures with no answer in between.  Requests that were under way at the same
    time and fail are one round.  From the second round on the service is closed, and every thread
    waits.  The waits end at random moments, so one thread asks first; if it fails too, the others
    soon notice and keep waiting.

    If some requests fail while others are answered, the service is not closed.
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
            if began - self._latest_round > STALE_PAUSES * patience().longest_pause:
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
        """Wait until `ready`, and longer while the service is closed, but at most until `last`.

        Args:
            wait: what `waits` and the log say in the meantime.

        Raises:
            UnwantedError: nobody waits for the result any more.
        """
        opened, share = self._opened, random.uniform(0, 0.5)
        with self._changed:
            self._waiting.append(wait)
            try:
                while self._opened == opened:  # else it answers again, after everyone had to wait
                    closed = self.closed_until + share * (self.closed_until - self._latest_round)
                    left = min(max(ready, closed), last) - time.monotonic()
                    if left <= 0:
                        return
                    if is_unwanted():
                        raise UnwantedError
                    self._say(wait)
                    self._changed.wait(min(left, LOOK_SECONDS))
            finally:
                self._waiting.remove(wait)

    def _say(self, wait: Wait) -> None:
        """Log what we wait for, once for all waiting threads and again every minute."""
        now = time.monotonic()
        if now - wait.since >= patience().quiet and now - self._said >= SAID_SECONDS:
            self._said = now
            logger.warning("%s", wait)

    def waiting(self) -> list[Wait]:
        with self._changed:
            return list(self._waiting)


#: The services that have failed in this process.  This is global because the services are too:
#: threads that know nothing of each other use the same service.
_SERVICES: dict[str, Service] = {}


def failing(path: str) -> Service | None:
    """The service of a path if it has ever failed here; costs nothing if none has."""
    return _SERVICES.get(_name(path)) if _SERVICES else None


def service_of(path: str) -> Service:
    """The service of a path."""
    name = _name(path)
    return _SERVICES.setdefault(name, Service(name))


def _name(path: str) -> str:
    """The unit that fails as a whole: a uri's bucket, or a local file's folder.

    Many folders may be on one disk, but while its file server is away the system cannot say which:
    that question may hang for as long as the request itself.
    """
    kind = scheme(path)
    if not kind:
        return parent(path) or "."
    return f"{kind}://{path.partition('://')[2].partition('/')[0]}"
