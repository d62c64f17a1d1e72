"""Which of many images are near copies: by what they look like, then by their pixels.

Each image has a hash of its look, and all close pairs of a million hashes are found in less than a
minute.  The two images of a pair are then compared pixel by pixel, also if one of them lost up to
3 % at its borders.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
from PIL import Image

from tfrecorder.core.arrays import Pixels
from tfrecorder.core.option import spelled
from tfrecorder.display.tables import counted
from tfrecorder.images.fingerprint import WAVES, gray_of

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

#: How far the mean of the grey levels may differ between copies, and how many times larger one
#: deviation may be, in hundredths of a level.  Below the least deviation there is nothing to see.
_MEANS = 1000
_DEVIATIONS = 1.3
_LEAST = 100

#: If the pairs that may be copies have more images than this, or this share of all, some are
#: compared first.  If fewer than half of these are copies, all images look alike.
_MANY = 1000
_SHARE = 0.01
_SOME = 200

#: Given the places of some images, a small grey picture of each, or None.
Read = Callable[[Sequence[int]], Iterable[Pixels | None]]


def near_pairs(
    looks: pd.DataFrame,
    read: Read,
    deadline: float = math.inf,
    since: int | None = None,
) -> np.ndarray | None:
    """The pairs of images that are near copies.

    Args:
        looks: `Fingerprint` of each image, by its place.
        read: reads those that may be copies, in the order of their places, by `picture_of`.
        deadline: by the monotonic clock; what is not compared then has no copies.
        since: only the images from this place on are compared, with all.

    Returns:
        int64 of [pairs, 2]: the places of each pair, ascending; None if all images look so much
        alike that copies cannot be told from others.
    """
    pairs = _candidates(looks, deadline)
    if pairs is None:
        return None
    if since is not None:
        pairs = pairs[pairs[:, 1] >= since]
    if len(np.unique(pairs)) > max(_MANY, _SHARE * len(looks)):
        some = pairs[np.random.RandomState(0).permutation(len(pairs))[:_SOME]]
        if 2 * len(_alike(some, read, deadline)) < len(some) and time.monotonic() < deadline:
            return None
    return _alike(pairs, read, deadline)


def likely_pairs(looks: pd.DataFrame) -> np.ndarray | None:
    """The pairs of images that are near copies by their hashes alone, as `near_pairs` gives them.

    Those that were cut are not among them.
    """
    return _candidates(looks, math.inf, SURE_BITS)


#: What is said where `near_pairs` and `likely_pairs` find that all images may be copies.
TOO_ALIKE = "the images look so much alike that near copies cannot be told from others"


def unseen_in_words(images: int) -> str:
    """What is said of so many images of which nobody noted what they look like."""
    have = counted(images, "image has", "images have")
    finds = f"{spelled('fingerprints', True)} of a conversion finds them"
    return f"{have} no fingerprint, so near copies of them are not found; {finds}"


def groups_of(pairs: np.ndarray, looks: pd.DataFrame) -> pd.DataFrame:
    """The images of all pairs, those that hang together in one group, the largest first.

    Args:
        pairs: places of images.
        looks: as for `near_pairs`.

    Returns:
        By the place of each image: `group` from 0; `first`, the place of the first of the group;
        and `distance`, in how many bits its hash differs from the first.

    >>> looks = pd.DataFrame({"hash": [5, 4, 6, 7]}, dtype="UInt64")
    >>> groups_of(np.array([[0, 3], [1, 3]]), looks)
       group  first  distance
    0      0      0         0
    1      0      0         1
    3      0      0         1
    """
    places, at = np.unique(pairs, return_inverse=True)
    first = firsts_of(at.reshape(pairs.shape), len(places))
    groups = pd.DataFrame({"first": places[first]}, places)
    sizes = groups["first"].map(groups["first"].value_counts())
    groups = groups.assign(size=-sizes).sort_values(["size", "first"], kind="stable")
    groups["group"] = pd.factorize(groups["first"])[0]
    hashes = looks["hash"].fillna(0)
    own, of_first = (hashes[of].to_numpy(np.uint64) for of in (groups.index, groups["first"]))
    groups["distance"] = bits_between(own, of_first).astype(np.int64)
    return groups[["group", "first", "distance"]]


def firsts_of(pairs: np.ndarray, count: int) -> np.ndarray:
    """For each of so many places, the first of those that pairs of places tie it to, or itself."""
    first = np.arange(count)
    # All pairs at once, since a frame may have a million: each group takes the lowest of its
    # neighbours' first images, until the two images of every pair have the same.
    while True:
        left, right = first[pairs.T]
        if np.array_equal(left, right):
            return first
        lowest = np.minimum(left, right)
        np.minimum.at(first, left, lowest)
        np.minimum.at(first, right, lowest)
        above = first[first]
        while not np.array_equal(first, above):
            first = above
            above = first[first]


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


def close_pairs(
    hashes: np.ndarray,
    bits: int,
    deadline: float = math.inf,
) -> np.ndarray:
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


def _candidates(
    looks: pd.DataFrame,
    deadline: float,
    bits: int = MOST_BITS,
) -> np.ndarray | None:
    """Pairs of images that may be copies, as far as their looks say; None if all may."""
    looks = looks[looks["hash"].notna()]
    looks = looks[looks["deviation"] >= _LEAST]
    hashes, at = np.unique(looks["hash"].to_numpy(np.uint64), return_inverse=True)
    if (most := most_bits(hashes)) < 0:
        return None
    # The first image of each hash stands for the others, which are compared with it.
    first = np.full(len(hashes), len(at))
    np.minimum.at(first, at, np.arange(len(at)))
    others = np.flatnonzero(first[at] != np.arange(len(at)))
    pairs = first[close_pairs(hashes, min(most, bits), deadline)]
    pairs = np.concatenate([np.stack([first[at[others]], others], 1), pairs])
    means, deviations = (looks[name].to_numpy(float)[pairs] for name in ("mean", "deviation"))
    alike = np.abs(means[:, 0] - means[:, 1]) <= _MEANS
    alike &= deviations.max(1) <= _DEVIATIONS * deviations.min(1)
    return np.sort(looks.index.to_numpy()[pairs[alike]], axis=1)


def _alike(
    pairs: np.ndarray,
    read: Read,
    deadline: float,
) -> np.ndarray:
    """Those of some pairs whose pictures are alike."""
    places = np.unique(pairs).tolist()
    read_all = zip(places, read(places), strict=True)
    pictures = {place: picture for place, picture in read_all if picture is not None}

    def is_alike(one: int, other: int) -> bool:
        in_time = one in pictures and other in pictures and time.monotonic() < deadline
        return in_time and is_copy(pictures[one], pictures[other])

    return pairs[np.array([is_alike(*pair) for pair in pairs.tolist()], bool)]


#: Two images at least this much alike are copies.  Of photographs, copies of half the size or of
#: quality 50 had 0.995 and more, with 3 % cut away 0.963; other photographs up to 0.948.
ALIKE = 0.96

#: Two alike pictures show one scene with other things in it if a part of 24 x 24 differs by more
#: grey levels than copies do: by how much depends on the share of all squared differences that a
#: twentieth of the parts holds.  So it is for 1,428 pairs of a photograph with other shapes on it,
#: for none of 780 copies: encoded again, of half to twice the size, cut by up to 3 %.
_LEVELS = ((0.9, 8), (0.7, 25), (0, 45))
_PLACES = 29

#: Pixels a side of a picture, and of what is compared of it.
_SIDE = 96
_COMPARED = 24

#: What is left after a cut, along a side.
_PARTS = ((0, 1), (0.015, 0.985), (0.03, 0.97), (0, 0.97), (0.03, 1))


def picture_of(data: bytes) -> np.ndarray | None:
    """A small grey picture of a JPEG or PNG to compare, uint8; None if Pillow refuses it."""
    gray = gray_of(data, _SIDE)
    if gray is None:
        return None
    small = Image.fromarray(gray.astype(np.uint8)).resize((_SIDE,) * 2, Image.Resampling.BILINEAR)
    return np.asarray(small)


def is_copy(one: Pixels, other: Pixels) -> bool:
    """Whether a picture is the other one, resized, encoded again or cut, by `picture_of` of both.

    It is not if both show one scene with something else in it.
    """
    parts = _parts_of(one)
    others = _parts_of(other)
    by_one = parts @ others[0]
    by_other = others @ parts[0]
    if by_one.max() >= by_other.max():
        apart = parts[by_one.argmax()] - others[0]
    else:
        apart = parts[0] - others[by_other.argmax()]
    if max(by_one.max(), by_other.max()) < ALIKE:
        return False
    levels = np.abs(apart).max() * _COMPARED * min(one.std(), other.std())
    squares = np.sort(apart**2)
    share = squares[-_PLACES:].sum() / (squares.sum() + 1e-12)
    most = next(levels for least, levels in _LEVELS if share >= least)
    return bool(levels <= most)


def _parts_of(picture: np.ndarray) -> np.ndarray:
    """The parts of a picture, the whole first, each with the mean 0 and the norm 1."""
    rows = _means().reshape(-1, _SIDE)
    means = rows @ picture.astype(np.float32) @ rows.T
    # By the part of rows and of columns, then by the place in it.
    of_parts = means.reshape(len(_PARTS), _COMPARED, len(_PARTS), _COMPARED).swapaxes(1, 2)
    parts = of_parts.reshape(len(_PARTS) ** 2, -1)
    parts -= parts.mean(1, keepdims=True)
    return parts / (np.linalg.norm(parts, axis=1, keepdims=True) + 1e-6)


@functools.cache
def _means() -> np.ndarray:
    """For each part the share of each pixel in each that is compared, along a side."""
    pixels = np.arange(_SIDE)
    shares = []
    for start, end in _PARTS:
        size = (end - start) * _SIDE / _COMPARED
        low = start * _SIDE + size * np.arange(_COMPARED)[:, None]
        covered = np.minimum(low + size, pixels + 1) - np.maximum(low, pixels)
        shares.append(np.clip(covered, 0, None) / size)
    return np.array(shares, np.float32)
