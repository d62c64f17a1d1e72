"""Trying again what failed in a way that may pass."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tfrecorder.storage.store import TransientError

T = TypeVar("T")

ATTEMPTS = 6

#: Seconds before the second attempt, twice as many before each further one: 15 in all, at most.
FIRST_DELAY = 0.5


def retried(attempt: Callable[[], T], note: Callable[[], None] = lambda: None) -> T:
    """What `attempt` returns, tried `ATTEMPTS` times at most.

    The delays grow by two and are cut by up to a half at random, so that many workers that a busy
    server turned away do not come back together.

    Args:
        attempt: fails with a TransientError where another attempt may succeed.
        note: is called before each further attempt, for whoever counts them.

    Raises:
        TransientError: of the last attempt, with the number of attempts.
        Whatever else `attempt` raises, at once.
    """
    for number in range(ATTEMPTS):
        try:
            return attempt()
        except TransientError as error:
            if number == ATTEMPTS - 1:
                raise TransientError(f"{error}, in each of {ATTEMPTS} attempts") from error
        note()
        time.sleep(FIRST_DELAY * 2**number * random.uniform(0.5, 1))
    raise AssertionError("unreachable")
