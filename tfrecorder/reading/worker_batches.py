"""What a worker process of a `DataLoader` does: it makes batches, and ends with its parent.

A forked worker writes images to memory that the process that trains has too, and takes again once
nobody there holds the batch in it.  torch alone would copy each batch to a new piece of shared
memory, each page of which costs a fault in both processes: more than decoding does.
"""

from __future__ import annotations

import contextlib
import math
import mmap
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

#: Seconds between two looks for the process that trains.
_LOOK = 5

#: Arrays up to this size are sent as they are.  torch sends larger ones by a file each.
_SENT_BYTES = 2**16

#: Arrays begin at multiples of this, as those of NumPy and torch do.
_ALIGNED = 64


@dataclass(frozen=True)
class _InSlot:
    """Where an array of a batch is in its slot."""

    begin: int
    shape: tuple[int, ...]
    dtype: np.dtype


class _SlotMemory:
    """Gives parts of a slot, one after the other; other memory where the slot is too small."""

    def __init__(self, slot: np.ndarray) -> None:
        self._slot = slot
        self._end = 0

    def empty(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype,
    ) -> np.ndarray:
        """An unfilled array."""
        begin = -(-self._end // _ALIGNED) * _ALIGNED
        end = begin + math.prod(shape) * dtype.itemsize
        if end > len(self._slot):
            return np.empty(shape, dtype)
        self._end = end
        # With a base of its own: by their base, views of the images are told from each other.
        return np.frombuffer(self._slot.data[begin:end], dtype).reshape(shape)


class Slots:
    """Shared memory, in slots for the images of a batch each.

    Args:
        count: how many there are.  Only those that are used take memory.
        images: arrays as large as those of a batch; without any there are no slots.
    """

    def __init__(self, count: int, images: Iterable[np.ndarray]) -> None:
        size = sum(array.nbytes + _ALIGNED for array in images)
        self._slots: list[np.ndarray] = []
        with contextlib.suppress(OSError):  # a limit: torch's own memory then serves
            for _ in range(count if size else 0):
                self._slots.append(np.frombuffer(mmap.mmap(-1, size), np.uint8))
        self._under_way: set[int] = set()
        self._unused = self._references(0) if self._slots else 0

    def take(self) -> int | None:
        """A slot that no worker fills and nobody here holds; None if there is none."""
        for slot in range(len(self._slots)):
            if slot not in self._under_way and self._references(slot) == self._unused:
                self._under_way.add(slot)
                return slot
        return None

    def memory(self, slot: int) -> _SlotMemory:
        """For a worker to fill."""
        return _SlotMemory(self._slots[slot])

    def place(self, slot: int, values: np.ndarray) -> _InSlot | None:
        """Where an array is in a slot; None if it is not there, or not row after row."""
        whole = self._slots[slot]
        begin = values.ctypes.data - whole.ctypes.data
        is_here = 0 <= begin <= len(whole) - values.nbytes and values.flags.c_contiguous
        return _InSlot(begin, values.shape, values.dtype) if is_here else None

    def received(self, slot: int | None, batch: Any) -> Any:
        """A batch with its arrays; its slot is free once they are gone."""
        if slot is None:
            return batch
        whole = self._slots[slot]

        def found(values: Any) -> Any:
            if not isinstance(values, _InSlot):
                return values
            end = values.begin + math.prod(values.shape) * values.dtype.itemsize
            return whole[values.begin : end].view(values.dtype).reshape(values.shape)

        arrays = each(found, batch)
        self._under_way.remove(slot)
        return arrays

    def _references(self, slot: int) -> int:
        return sys.getrefcount(self._slots[slot])


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
