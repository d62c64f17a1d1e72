"""A worker process of a local run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

#: Seconds after Ctrl-C until a worker ends, whatever its threads are decoding.
LAST_SECONDS = 1


def main() -> None:
    """Work until the launcher ends it; Beam names the launcher in the environment."""
    # A terminal sends Ctrl-C to the workers too. The launcher then ends them one after the other,
    # and each may first finish its images. Nothing is lost: an incomplete file has no final name.
    signal.signal(signal.SIGINT, _end_soon)
    from apache_beam.runners.worker import sdk_worker_main

    # Beam prints the tracebacks that it also sends to the launcher, 200 lines on the terminal that
    # they share.  An error that ends the process is still printed, by Python, after this block.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        sdk_worker_main.main(sys.argv)


def _end_soon(signal_number: int, frame: object) -> None:
    end = threading.Timer(LAST_SECONDS, os._exit, (0,))
    end.daemon = True  # the worker may end sooner
    end.start()
