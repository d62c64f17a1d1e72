"""What a worker process of a `DataLoader` does: it makes batches, and ends with its parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.reading.collate import BatchMemory, each
from tfrecorder.reading.parsing import Elements
from tfrecorder.reading.position import Step
from tfrecorder.reading.record_bytes import RecordReader

#: Seconds between two looks for the process that trains.
_LOOK = 5


@dataclass(frozen=True)
class Answer:
    """What a worker sends: a batch, or an error, pickled with the text of its traceback."""

    batch: Any = None
    error: bytes | None = None

    def pin_memory(self) -> Answer:
        """For the thread of the loader, which would make lists of tuples."""
        return Answer(each(pinned, self.batch), self.error)

    def batch_or_error(self) -> Any:
        """The batch; or the error is raised here."""
        if self.error is None:
            return self.batch
        error, words = pickle.loads(self.error)
        raise error from RuntimeError(f"in a worker process:\n{words}")


def pinned(values: Any) -> Any:
    """A tensor in pinned memory; lists and None as they are."""
    return values.pin_memory() if hasattr(values, "pin_memory") else values


@dataclass(frozen=True)
class WorkerBatches:
    """The dataset of a `DataLoader`: by a `Step` its batch.

    Attributes:
        elements: makes them.
        reader: reads their records.
        tensor: makes a tensor of an array.
        memory: for their images.
    """

    elements: Elements
    reader: RecordReader
    tensor: Callable[[Any], Any]
    memory: BatchMemory

    def __getitem__(self, step: Step) -> Answer:
        try:
            pixels = self.elements.arrays(len(step.numbers), self.memory)
            rows = self.elements.rows(self.reader, step.numbers, step.epoch, pixels, 0)
            return Answer(each(self.tensor, self.elements.batch(rows, pixels, step.mask)))
        except Exception as error:
            # torch would put the traceback into the message, and has to if this fails.
            with contextlib.suppress(Exception):
                pickled = pickle.dumps((error, traceback.format_exc()))
                pickle.loads(pickled)
                return Answer(error=pickled)
            raise


def end_with_parent(worker: int) -> None:
    """End this worker some time after the process that trains, in whatever its threads wait for.

    torch ends its loop, but then waits for a thread that sends what nobody takes any more.
    """
    parent = multiprocessing.parent_process()

    def watch() -> None:
        while parent is not None and parent.pid == os.getppid():
            time.sleep(_LOOK)
        time.sleep(2 * _LOOK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def start_method(directories: Iterable[str], map_fn: Callable[..., Any] | None) -> str | None:
    """How workers start: by a fork, which needs no guard of `__main__`, where that serves.

    Raises:
        OptionError: workers that are not forked cannot be given this `map_fn`.
    """
    chosen = multiprocessing.get_start_method(allow_none=True)
    if not {*map(storage.scheme, directories)} <= {"", "gs"}:
        chosen = "spawn"  # the clients' threads are not in a fork, where it would wait forever
    if chosen == "fork" or (chosen is None and sys.platform == "linux"):
        return "fork"
    try:
        pickle.dumps(map_fn)
    except Exception as error:
        raise OptionError.of(
            "map_fn",
            map_fn,
            "workers that are not forked import it by its name: define it in a module.",
        ) from error
    return chosen
