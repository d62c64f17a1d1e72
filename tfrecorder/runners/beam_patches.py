"""What Beam starts for a local run and waits for too long, or forgets: threads, processes."""

from __future__ import annotations

import contextlib
import logging
import sys
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


@contextlib.contextmanager
def quiet_beam() -> Iterator[None]:
    """Keep Beam's chatter out of the terminal, unless the user set its log level.

    What fails is raised all the same.  Beam also calls `logging.basicConfig` in passing: what it
    adds to the root logger is taken away, or the user's own basicConfig would have no effect later.
    """
    logger, root = logging.getLogger("apache_beam"), logging.getLogger()
    level, handlers = logger.level, list(root.handlers)
    if level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)
        root.addFilter(_is_not_of_beam)
    try:
        yield
    finally:
        logger.setLevel(level)
        root.removeFilter(_is_not_of_beam)
        for handler in [handler for handler in root.handlers if handler not in handlers]:
            root.removeHandler(handler)


def _is_not_of_beam(record: logging.LogRecord) -> bool:
    """False for what Beam logs past its own logger: its PortableRunner, what workers report."""
    return "/apache_beam/" not in record.pathname


@contextlib.contextmanager
def as_in_a_script() -> Iterator[None]:
    """Keep Beam from noticing that it is in a notebook.

    There it would import its interactive runner, only to put the cell's number into each step's
    label: seconds of imports, which fail with pandas 3 (apache-beam 2.77).  And its DaskRunner
    refuses to run at all, because it cannot show what that interactive runner shows.
    """
    from apache_beam import pipeline as beam_pipeline

    modules = (beam_pipeline, sys.modules.get("apache_beam.runners.dask.dask_runner"))
    names = ("is_in_ipython", "alter_label_if_ipython", "is_in_notebook")
    found = [
        (module, name, getattr(module, name))
        for module in modules
        for name in names
        if hasattr(module, name)
    ]
    for module, name, _ in found:
        setattr(module, name, lambda *_: False)
    try:
        yield
    finally:
        for module, name, original in found:
            setattr(module, name, original)
