"""The batches of an epoch: their records, and what makes them, in parts or whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfrecorder.core.threads import UnwantedError, is_unwanted
from tfrecorder.reading.batch_memory import BatchMemory
from tfrecorder.reading.collate import collate, each
from tfrecorder.reading.order import Order
from tfrecorder.reading.parsing import Elements
from tfrecorder.reading.position import Share
from tfrecorder.reading.record_bytes import RecordReader
from tfrecorder.reading.windows import WindowReader


class Step(NamedTuple):
    """The records of a batch.

    Attributes:
        numbers: of the records.
        epoch: they are read in.
        start: the place of the step in the order.
        is_empty: the batch has no records; the one here only gives its form.
    """

    numbers: list[int]
    epoch: int
    start: int
    is_empty: bool


def steps(order: Order, share: Share, start: int) -> Iterator[Step]:
    """The batches of this process, from a place to the end of the epoch."""
    for _ in range(share.steps(start)):
        places = share.places(start)
        numbers = order.numbers(np.array(places or [0])).tolist()
        yield Step(numbers, order.epoch, start, not places)
        start = share.after(start)


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches; it can be pickled.

    Attributes:
        elements: makes the element of a record.
        layout: of images and masks, "NHWC" or "NCHW".
    """

    elements: Elements
    layout: str

    def arrays(self, count: int, memory: BatchMemory) -> dict[str, np.ndarray]:
        """Unfilled arrays for a batch's images and masks, by the key of the column.

        There are none with `map_fn`, as only its results are put together.
        """
        if self.elements.spec.options.map_fn is not None:
            return {}
        return self.elements.pixel_arrays(count, self.layout == "NCHW", memory)

    def part(
        self,
        reader: RecordReader | WindowReader,
        numbers: list[int],
        epoch: int,
        pixels: Mapping[str, np.ndarray],
        begin: int,
    ) -> list[Any]:
        """The elements of some of a batch's records.

        Args:
            reader: reads the records.
            numbers: of these records.
            epoch: they are read in.
            pixels: the whole batch's `arrays`, to be filled from `begin` on.
            begin: the place of the first of these records in the batch.
        """
        drawn = self.elements.drawn(epoch, numbers)

        def make(framed: bytes, place: int) -> Any:
            if is_unwanted():
                raise UnwantedError
            slots = {key: array[begin + place] for key, array in pixels.items()}
            if self.layout == "NCHW":
                slots = {key: slot.transpose(1, 2, 0) for key, slot in slots.items()}
            return self.elements.make(framed, drawn[place], slots)

        elements = reader.read(numbers, make)
        return [self.elements.mapped(element) for element in elements]

    def whole(self, reader: RecordReader, step: Step, memory: BatchMemory) -> Any:
        """A batch.

        Raises:
            DatasetError: a record is damaged; the message names the file and the byte.
        """
        pixels = self.arrays(len(step.numbers), memory)
        elements = self.part(reader, step.numbers, step.epoch, pixels, 0)
        return joined(elements, pixels, step.is_empty)


def joined(elements: list[Any], pixels: Mapping[str, np.ndarray], is_empty: bool) -> Any:
    """The batch of all its elements."""
    batch = collate(elements, pixels)
    return each(lambda array: array[:0], batch) if is_empty else batch
