"""Where two parts of a dataset differ the most, if it is more than chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

#: The least difference between two shares that counts: of one class, and of the images up to some
#: value.
_OF_CLASS = 0.05
_OF_VALUE = 0.2

#: It must be so many standard deviations of what chance does.
_SIGMAS = 4


class Gap(NamedTuple):
    """The largest difference between two shares (L∞; of values, that of Kolmogorov and Smirnov).

    Attributes:
        of: the class, or the value, as text, that the shares are at most.
        share, other: from 0 to 1.
    """

    of: str
    share: float
    other: float


def class_gap(counts: Mapping[str, int], others: Mapping[str, int]) -> Gap | None:
    """The class whose shares of two parts differ the most; None if they hardly do.

    Args:
        counts, others: records by class.

    >>> class_gap({"cat": 90, "dog": 10}, {"cat": 500, "dog": 500})
    Gap(of='cat', share=0.9, other=0.5)
    """
    names = [*dict.fromkeys([*counts, *others])]
    parts = [np.array([part.get(name, 0) for name in names]) for part in (counts, others)]
    sizes = [int(part.sum()) for part in parts]
    return _largest(parts, sizes, _OF_CLASS, names.__getitem__)


def value_gap(values: np.ndarray, others: np.ndarray) -> Gap | None:
    """The value up to which the shares of two parts differ the most; None if they hardly do."""
    edges = np.unique(np.concatenate([values, others]))
    parts = [np.searchsorted(np.sort(part), edges, "right") for part in (values, others)]
    sizes = [len(values), len(others)]
    return _largest(parts, sizes, _OF_VALUE, lambda at: f"{edges[at]:,.0f}")


def _largest(
    parts: Sequence[np.ndarray], sizes: Sequence[int], least: float, name: Callable[[int], str]
) -> Gap | None:
    """The largest difference between the shares of two parts; None if chance may have made it.

    Args:
        parts: how many there are in each, by class or up to each value.
        sizes: of the parts.
        least: the least difference that counts.
        name: of a place in the parts.
    """
    if not all(sizes):
        return None
    shares, others = (part / size for part, size in zip(parts, sizes, strict=True))
    at = int(np.abs(shares - others).argmax())
    share = float(shares[at])
    other = float(others[at])
    both = (share * sizes[0] + other * sizes[1]) / sum(sizes)
    chance = math.sqrt(both * (1 - both) * (1 / sizes[0] + 1 / sizes[1]))
    is_large = abs(share - other) > max(least, _SIGMAS * chance)
    return Gap(name(at), share, other) if is_large else None
