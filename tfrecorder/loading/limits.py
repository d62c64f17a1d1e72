"""What limited a reader while it was measured."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from tfrecorder.display.bars import watched

#: Seconds between two looks at Python's lock, and by how much later the one who looks wakes up
#: where another thread has it.
PAUSE = 0.005
LATE = 0.0005

#: Shares above which a limit was met: of the time that the cores worked, of the looks at which
#: the lock was taken, of the bytes that came from the disk.
BUSY = 0.85
TAKEN = 0.5
FROM_DISK = 0.5

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
