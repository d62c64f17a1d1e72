"""Threads that Beam leaves running after Ctrl-C."""

from __future__ import annotations

import threading
from typing import Any


def stop_samplers() -> None:
    """End the threads by which Beam measures its steps, those that it has forgotten.

    Beam notes that such a thread runs after it has started it.  An interrupt between the two leaves
    it running for ever, and Python waits for it at its own end (apache-beam 2.77).  To be called
    when no pipeline is at work.
    """
    for thread in threading.enumerate():
        sampler: Any = getattr(getattr(thread, "_target", None), "__self__", None)
        beams = type(sampler).__module__.startswith("apache_beam.")
        if beams and hasattr(sampler, "stop_if_still_running") and not sampler.finished:
            sampler.stop()
