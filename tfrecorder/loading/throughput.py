"""How fast a dataset is read: what `tfrecorder benchmark` shows.

The rate alone misleads, because a reader that takes both cores leaves none for training.  So we
also show the CPU seconds and, given the duration of a training step, the share of time that an
accelerator would wait.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrecorder import storage
from tfrecorder.display.bars import watched
from tfrecorder.display.tables import OneLine
from tfrecorder.errors import DatasetError
from tfrecorder.loading.load import loaded
from tfrecorder.loading.options import BenchmarkOptions, LoadOptions, benchmark_options
from tfrecorder.options.keywords import BenchmarkKeywords, Path, Unpack
from tfrecorder.options.option import takes
from tfrecorder.options.ranks import cores_of_rank
from tfrecorder.reading.open import open_dataset

#: Seconds between two looks at Python's lock, and by how much later the one who looks wakes up
#: where another thread has it.
PAUSE = 0.005
LATE = 0.0005

#: Shares above which a limit was met: of the time that the cores worked, of the looks at which
#: the lock was taken, of the bytes that came from the disk.
BUSY = 0.85
TAKEN = 0.5
FROM_DISK = 0.5

#: The share of the bytes that a local cache had from which the network is no limit.
_KEPT = 0.9

#: The share of the time waiting below which the step was the limit.
WAITING = 0.05


@contextlib.contextmanager
def looks_at_lock() -> Iterator[list[bool]]:
    """A block in which a thread looks at Python's lock: whether it was taken, for each look."""
    looks = []

    def look(ended: threading.Event) -> None:
        while not ended.is_set():
            begun = time.perf_counter()
            time.sleep(PAUSE)
            looks.append(time.perf_counter() - begun > PAUSE + LATE)

    with watched(look, "tfrecorder-looks"):
        yield looks


def limit_of(
    *,
    cores: int,
    busy: float,
    taken: float,
    megabytes: float,
    from_disk: float,
    remote: bool,
    waiting: float | None = None,
) -> str:
    """What limited a reader, in words, by what it used.

    Args:
        cores: those it may use.
        busy: those that were, on average.
        taken: the share of the looks at which another thread had Python's lock.
        megabytes: read a second.
        from_disk: the share of these that was not in memory.
        remote: they came from a store elsewhere.
        waiting: the share of the time that a step waited for its batch; None without a step.
    """
    if waiting is not None and waiting < WAITING:
        return "the step: the next batch was ready before it ended"
    if busy >= BUSY * cores:
        return (
            f"the cores: {busy:.1f} of {cores} were busy. Images that are converted smaller, or to "
            "raw pixels, take less of them"
        )
    if taken >= TAKEN:
        return (
            f"Python's lock (the GIL): another thread had it at {taken:.0%} of the looks. More "
            "processes do not share it"
        )
    if remote:
        return (
            f"the network: {megabytes:,.1f} MB/s came from the store. More shards are read at the "
            "same time, or a copy on a disk"
        )
    if from_disk >= FROM_DISK:
        return (
            f"the disk: {from_disk:.0%} of {megabytes:,.1f} MB/s came from it. A second epoch is "
            "faster where the records fit into memory"
        )
    return (
        f"none of cores ({busy:.1f} of {cores} were busy), lock and disk: other programs took the "
        "cores, or batches are too few or too large to be made ahead"
    )


#: Batches before the measurement, so that caches fill and tf.data finds its parallelism.
WARM_UP_BATCHES = 10
WARM_UP_SECONDS = 2.0

#: The unit in which Linux counts what a process read from a disk.
_BLOCK_BYTES = 512


@dataclass(frozen=True, repr=False)
class Throughput(OneLine):
    """One measurement.

    Attributes:
        images: read in the measured time.
        seconds: measured, including simulated steps.
        megabytes: of records read, in 10**6 bytes, from their mean size.
        cpu_seconds: user and system time of the process.
        first_batch_seconds: from the call of `load` to the first batch.
        step_ms: duration of the simulated training step; None without one.
        waiting: share of the time, 0 to 1, in which the next batch was not ready; None without
            `step_ms`.
        hits: share of the bytes of records, 0 to 1, that `local_cache` had; None without it.
        limit: what kept it from being faster, in words: the step, the cores, Python's lock (the
            GIL), the network or the disk.
    """

    images: int
    seconds: float
    megabytes: float
    cpu_seconds: float
    first_batch_seconds: float
    step_ms: float | None = None
    waiting: float | None = None
    hits: float | None = None
    limit: str = ""

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds

    @property
    def cpu_seconds_per_1000(self) -> float:
        return self.cpu_seconds / self.images * 1000

    def __str__(self) -> str:
        lines = [
            f"{self.images_per_second:,.0f} images/s, "
            f"{self.megabytes / self.seconds:,.1f} MB/s of records",
            f"{self.cpu_seconds_per_1000:.2f} CPU seconds per 1,000 images",
            f"{self.first_batch_seconds:.2f} s to the first batch",
        ]
        if self.waiting is not None:
            lines.append(
                f"{self.waiting:.1%} of the time waiting for input, with a step of "
                f"{self.step_ms:g} ms"
            )
        if self.hits is not None:
            fetched = self.megabytes * (1 - self.hits)
            lines.append(f"{self.hits:.1%} of the bytes kept here, {fetched:,.1f} MB fetched")
        return "\n".join([*lines, f"limited by {self.limit}"])


@takes(BenchmarkKeywords, LoadOptions, BenchmarkOptions)
def benchmark(
    directory: Path,
    split: str = "TRAIN",
    **options: Unpack[BenchmarkKeywords],
) -> Throughput:
    """Read a split over and over for some seconds, and measure.

    With `decode=False` only reading is measured: images have no size then.

    Args:
        directory: as for `load`.
        split: the one to read.
        **options: what is measured, and the options of `load`.

    Raises:
        OptionError: as `load`, or what is measured is out of range.
        DatasetError: as `load`, or the split has no batch.

    Example:
        >>> print(tfrecorder.benchmark("out", step_ms=50))  # doctest: +SKIP
    """
    own, reading = benchmark_options(options)
    begun = time.perf_counter()
    dataset = loaded(directory, split, reading)
    assert not isinstance(dataset, dict)
    batches = iter(dataset.repeat())
    if next(batches, None) is None:
        raise DatasetError(f"{os.fspath(directory)} has no batch of {own.batch_size} in {split}.")
    first = time.perf_counter() - begun
    _run(batches, WARM_UP_SECONDS, own.step_ms, at_most=WARM_UP_BATCHES)
    before = _used(reading)
    with looks_at_lock() as looks:
        images, lasted, waited = _run(batches, own.seconds, own.step_ms)
    cpu, from_disk, fetched = (_used(reading) - before).tolist()
    stored = open_dataset(directory, reading.at, reading.keys)
    name = stored.split(split)
    megabytes = images * stored.bytes(name) / (stored.records(name) or 1) / 1e6
    waiting = None if own.step_ms is None else waited / lasted
    hits = None if reading.cache_folder is None else max(0, 1 - fetched / (megabytes or 1))
    # What a local cache had did not come over the network.
    is_fetched = hits is None or hits < _KEPT
    limit = limit_of(
        cores=cores_of_rank(),
        busy=cpu / lasted,
        taken=sum(looks) / max(1, len(looks)),
        megabytes=megabytes / lasted,
        from_disk=from_disk / (megabytes or 1),
        remote=is_fetched and not storage.is_local(stored.directory),
        waiting=waiting,
    )
    return Throughput(
        images=images,
        seconds=lasted,
        megabytes=megabytes,
        cpu_seconds=cpu,
        first_batch_seconds=first,
        step_ms=own.step_ms,
        waiting=waiting,
        hits=hits,
        limit=limit,
    )


def _used(options: LoadOptions) -> np.ndarray:
    """What was used so far: CPU seconds, and the megabytes from the disk and from a bucket.

    Those from a bucket were fetched by all processes that share a local cache.
    """
    fetched = 0
    if options.cache_folder is not None:
        counters = options.cache_folder.counters()
        fetched = counters.kept + counters.passed
    from_disk = resource.getrusage(resource.RUSAGE_SELF).ru_inblock * _BLOCK_BYTES
    return np.array([time.process_time(), from_disk / 1e6, fetched / 1e6])


def _run(
    batches: Iterator[Any],
    seconds: float,
    step_ms: float | None,
    at_most: int | None = None,
) -> tuple[int, float, float]:
    """Take batches for some time: (images, seconds, seconds spent waiting for a batch)."""
    import tensorflow as tf

    images = 0
    waited = 0.0
    begun = time.perf_counter()
    taken = 0
    while time.perf_counter() - begun < seconds and taken != at_most:
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        images += int(tf.nest.flatten(batch)[0].shape[0])
        taken += 1
        if step_ms is not None:
            time.sleep(step_ms / 1000)
    return images, time.perf_counter() - begun, waited
