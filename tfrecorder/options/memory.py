"""How much memory this process may use, and how much of it reading takes."""

from __future__ import annotations

import os

from tfrecorder.threads import cores

#: Where a container's limit is written, by cgroups of version 2 and 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

SHARE = 0.25

#: Batches made in advance: enough to hide a slow one, or the start of a new shard.
PREFETCH = 8

#: Share of a load's budget for elements being made, and the same again for those that wait.
ELEMENTS_SHARE = 0.25


def memory_limit() -> int:
    """Bytes that the process may use: the machine's memory, or its container's if that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMITS:
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):  # no such cgroup, or "max"
            continue
    return min(limits)


def default_budget() -> int:
    """The default `ram_budget` of a load: a quarter of what the process may use."""
    return int(memory_limit() * SHARE)


def parallel_calls(element_bytes: float, budget: int) -> int:
    """How many elements of this size are decoded at the same time: at most one per core.

    >>> parallel_calls(2**40, 2**30)
    1
    """
    return _fitting(element_bytes, budget, cores())


def prefetched(element_bytes: float, budget: int) -> int:
    """How many finished elements of this size wait in memory.

    >>> prefetched(64 * 224 * 224 * 3, 2**32), prefetched(2**28, 2**32)
    (8, 4)
    """
    return _fitting(element_bytes, budget, PREFETCH)


def _fitting(element_bytes: float, budget: int, most: int) -> int:
    return max(1, min(most, int(budget * ELEMENTS_SHARE / max(element_bytes, 1.0))))
