"""Which hashes of images differ in few bits: all pairs of a million in less than a minute."""

from __future__ import annotations

import itertools
import math
import statistics
import time

import numpy as np

from tfrecorder.images.fingerprint import WAVES

#: The most bits in which copies differ: 1 of 100 that lost 3 % at two sides has more.
MOST_BITS = 12

#: In at most so many bits copies differ that were resized or encoded again, and hardly any others.
SURE_BITS = 4

#: Images that look alike by chance may make up this share of those that are compared by their
#: pixels.
_BY_CHANCE = 0.01

#: Below so many images, all pairs are few.
_FEW = 50

_SAMPLE = 200_000

#: The bits in groups of equal size, the lowest frequencies first: those differ least.  Two hashes
#: are compared if all bits of some of the groups agree: so many, by the number of hashes.
_GROUPS = 9
_AGREE = {2: 2**16, 3: 2**63}

#: Of hashes that agree in a choice of groups, each is compared with so many after it.
_NEIGHBOURS = 64


def bits_between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """In how many bits hashes differ, uint64 in and out (`np.bitwise_count` is of NumPy 2)."""
    bits = one ^ other
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        bits = (bits & np.uint64(mask)) + ((bits >> np.uint64(shift)) & np.uint64(mask))
    return (bits * np.uint64(0x0101010101010101)) >> np.uint64(56)


def most_bits(hashes: np.ndarray) -> int:
    """In how many bits near copies may differ, so that others rarely do: it follows from others.

    Args:
        hashes: different ones, uint64.

    Returns:
        At most `MOST_BITS`; below 0 if all images look too much alike to tell copies from others.
    """
    if len(hashes) < _FEW:
        return MOST_BITS
    one, other = np.random.RandomState(0).randint(0, len(hashes), (2, _SAMPLE))
    apart = bits_between(hashes[one], hashes[other])[one != other].astype(float)
    sigmas = statistics.NormalDist().inv_cdf(1 - _BY_CHANCE / len(hashes))
    return min(MOST_BITS, int(np.floor(apart.mean() - sigmas * apart.std())))


def close_pairs(hashes: np.ndarray, bits: int, deadline: float = math.inf) -> np.ndarray:
    """The pairs of hashes that differ in few bits; beyond `SURE_BITS` nearly all of them.

    Args:
        hashes: different ones, uint64.
        bits: the most that may differ.
        deadline: by the monotonic clock; the search ends then.

    Returns:
        int64 of [pairs, 2]: the places of each pair, ascending.
    """
    groups = _groups_of(hashes)
    if bits <= SURE_BITS:  # then five groups agree, and three of these are in one of two parts
        agree = 3
        parts = [groups[:4], groups[4:]]
    else:
        agree = next(a for a, most in _AGREE.items() if len(hashes) <= most)
        parts = [groups]
    choices = [itertools.combinations(part, agree) for part in parts]
    size = (WAVES**2 - 1) // _GROUPS
    pairs = [np.empty(0, np.int64)]
    for chosen in itertools.chain(*choices):
        if time.monotonic() > deadline:
            break
        key = np.zeros(len(hashes), np.uint32)
        for group in chosen:
            key = key << np.uint32(size) | group
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.arange(len(key) - 1)
        for ahead in range(1, _NEIGHBOURS + 1):
            first = first[: np.searchsorted(first, len(key) - ahead)]
            first = first[key[first] == key[first + ahead]]
            if not len(first):
                break
            one = order[first]
            other = order[first + ahead]
            close = bits_between(hashes[one], hashes[other]) <= bits
            one = one[close]
            other = other[close]
            pairs.append(np.minimum(one, other) * len(hashes) + np.maximum(one, other))
    return np.stack(np.divmod(np.unique(np.concatenate(pairs)), max(len(hashes), 1)), 1)


def _groups_of(hashes: np.ndarray) -> list[np.ndarray]:
    """The bits of each hash in `_GROUPS` numbers."""
    row, column = np.divmod(np.arange(1, WAVES**2), WAVES)
    last = WAVES**2 - 1  # the first of the signs is the highest bit
    shifts = last - np.arange(1, WAVES**2)[np.argsort(row**2 + column**2, kind="stable")]
    groups = []
    for of_group in np.split(shifts, _GROUPS):
        number = np.zeros(len(hashes), np.uint32)
        for shift in of_group:
            bit = (hashes >> np.uint64(shift)) & np.uint64(1)
            number = number << np.uint32(1) | bit.astype(np.uint32)
        groups.append(number)
    return groups
