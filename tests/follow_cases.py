"""What the tests of following share: elements, a limit to waiting, and an append."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pandas as pd
from growing_cases import QUIET

import tfrecorder

#: Elements by which a record is known.
IDS: dict[str, Any] = {"features": True, "decode": False, "batch_size": 5}

T = TypeVar("T")


def soon(work: Callable[[], T], seconds: float = 600) -> T:
    """What some work gives, which would wait without an end if it went wrong."""
    results: queue.SimpleQueue[T | BaseException] = queue.SimpleQueue()

    def do() -> None:
        try:
            results.put(work())
        except BaseException as error:
            results.put(error)

    threading.Thread(target=do, daemon=True).start()
    found = results.get(timeout=seconds)
    if isinstance(found, BaseException):
        raise found
    return found


def append(rows: pd.DataFrame, directory: str = "out") -> None:
    tfrecorder.append(rows, directory, **QUIET)
