"""What Beam starts for a local run and waits for too long, or forgets: threads, processes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

#: Milliseconds between two looks of such a thread.
SAMPLING_MS = 10


@contextlib.contextmanager
def quick_samplers() -> Iterator[None]:
    """A block in which these threads end soon after their step.

    Beam waits for each at the end of its bundle, while the thread sleeps for up to 200 ms: a fifth
    of a second at the end of each conversion (apache-beam 2.77, which has no option for it).
    """
    from apache_beam.runners.worker.statesampler import StateSampler

    start: Any = StateSampler.__init__
    before = start.__defaults__
    if before is None or len(before) != 1:  # another version of Beam: as it likes
        yield
        return
    start.__defaults__ = (SAMPLING_MS,)
    try:
        yield
    finally:
        start.__defaults__ = before


@contextlib.contextmanager
def late_workers_told() -> Iterator[None]:
    """A block in which a worker process that calls after the end is told of it.

    Beam tells the end only to those that have called, and waits for the others without end: Ctrl-C
    while they start would hang (apache-beam 2.77).
    """
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    servicer, connection = worker_handlers.BeamFnControlServicer, worker_handlers.ControlConnection
    close: Any = connection.close

    def close_and_tell(self: Any) -> None:
        if self._state == servicer.UNSTARTED_STATE:
            self.push(servicer._DONE_MARKER)
        close(self)

    connection.close = close_and_tell
    try:
        yield
    finally:
        connection.close = close


def stop_samplers() -> None:
    """End those that Beam has forgotten.

    Beam notes that such a thread runs after it has started it.  An interrupt between the two leaves
    it running for ever, and Python waits for it at its own end (apache-beam 2.77).  To be called
    when no pipeline is at work.
    """
    for thread in threading.enumerate():
        sampler: Any = getattr(getattr(thread, "_target", None), "__self__", None)
        beams = type(sampler).__module__.startswith("apache_beam.")
        if beams and hasattr(sampler, "stop_if_still_running") and not sampler.finished:
            sampler.stop()
