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

import numpy as np

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.reading.collate import BatchMemory, each
from tfrecorder.reading.parsing import Elements
from tfrecorder.reading.position import Step
from tfrecorder.reading.record_bytes import RecordReader
from tfrecorder.reading.shared_memory import Slots

#: Seconds between two looks for the process that trains.
_LOOK = 5

#: Arrays up to this size are sent as they are.  torch sends larger ones by a file each.
_SENT_BYTES = 2**16


@dataclass(frozen=True)
class Answer:
    """What a worker sends: a batch, or an error, pickled with the text of its traceback.

    Attributes:
        slot: where its images are.
    """

    batch: Any = None
    error: bytes | None = None
    slot: int | None = None

    def batch_or_error(self) -> Any:
        """The batch; or the error is raised here."""
        if self.error is None:
            return self.batch
        error, words = pickle.loads(self.error)
        raise error from RuntimeError(f"in a worker process:\n{words}")


@dataclass(frozen=True)
class WorkerBatches:
    """The dataset of a `DataLoader`: by a `Step` and a slot its batch.

    Attributes:
        elements: makes them.
        reader: reads their records.
        tensor: makes a tensor of an array.
        memory: for images without a slot.
        slots: for those that have one.
    """

    elements: Elements
    reader: RecordReader
    tensor: Callable[[Any], Any]
    memory: BatchMemory
    slots: Slots

    def __getitem__(self, task: tuple[Step, int | None]) -> Answer:
        step, slot = task
        memory = self.memory if slot is None else self.slots.memory(slot)

        def sent(values: np.ndarray) -> Any:
            place = None if slot is None else self.slots.place(slot, values)
            is_small = values.dtype == object or values.nbytes <= _SENT_BYTES
            return place or (values if is_small else self.tensor(values))

        try:
            pixels = self.elements.arrays(len(step.numbers), memory)
            rows = self.elements.rows(self.reader, step.numbers, step.epoch, pixels, 0)
            return Answer(each(sent, self.elements.batch(rows, pixels, step.mask)), slot=slot)
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
