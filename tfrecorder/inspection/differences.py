"""Where two parts of a dataset differ the most, if it is more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

#: The least difference between two shares that counts: of one class, and of the images up to some
#: value.
_OF_CLASS, _OF_VALUE = 0.05, 0.2

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
    if not all(sizes):
        return None
    shares, of_others = (part / size for part, size in zip(parts, sizes, strict=True))
    at = int(np.abs(shares - of_others).argmax())
    return _beyond_chance(Gap(names[at], shares[at], of_others[at]), sizes, _OF_CLASS)


def value_gap(values: np.ndarray, others: np.ndarray) -> Gap | None:
    """The value up to which the shares of two parts differ the most; None if they hardly do."""
    sizes = [len(values), len(others)]
    if not all(sizes):
        return None
    edges = np.unique(np.concatenate([values, others]))
    shares, of_others = (
        np.searchsorted(np.sort(part), edges, "right") / len(part) for part in (values, others)
    )
    at = int(np.abs(shares - of_others).argmax())
    return _beyond_chance(Gap(f"{edges[at]:,.0f}", shares[at], of_others[at]), sizes, _OF_VALUE)


def _beyond_chance(gap: Gap, sizes: list[int], least: float) -> Gap | None:
    size, other = sizes
    both = (gap.share * size + gap.other * other) / (size + other)
    chance = math.sqrt(both * (1 - both) * (1 / size + 1 / other))
    is_large = abs(gap.share - gap.other) > max(least, _SIGMAS * chance)
    return Gap(gap.of, float(gap.share), float(gap.other)) if is_large else None
