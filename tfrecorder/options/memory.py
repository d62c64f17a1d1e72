"""How much of the memory that this process may use reading takes."""

from __future__ import annotations

from tfrecorder.options.ranks import cores_of_rank

#: Batches made in advance: enough to hide a slow one, or the start of a new shard.
PREFETCH = 8

#: Share of a load's budget for elements being made, and the same again for those that wait.
ELEMENTS_SHARE = 0.25


def parallel_calls(element_bytes: float, budget: int) -> int:
    """How many elements of this size are decoded at the same time: at most one per core.

    >>> parallel_calls(2**40, 2**30)
    1
    """
    return _within(element_bytes, budget, cores_of_rank())


def prefetched(element_bytes: float, budget: int) -> int:
    """How many finished elements of this size wait in memory.

    >>> prefetched(64 * 224 * 224 * 3, 2**32), prefetched(2**28, 2**32)
    (8, 4)
    """
    return _within(element_bytes, budget, PREFETCH)


def _within(element_bytes: float, budget: int, most: int) -> int:
    return max(1, min(most, int(budget * ELEMENTS_SHARE / max(element_bytes, 1.0))))
