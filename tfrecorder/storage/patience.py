"""How long we wait for a service that fails, and how often we ask it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass


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


#: One value for the process, since all its threads wait for the same services.
_PATIENCE = Patience()


def patience() -> Patience:
    return _PATIENCE
