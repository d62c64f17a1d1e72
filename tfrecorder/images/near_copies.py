"""Which of many images are copies: by their bytes, by what they look like, then by their pixels.

Each image has a hash of its look, and all close pairs of a million hashes are found in less than a
minute.  The two images of a pair are then compared pixel by pixel, also if one of them lost a
little at its borders.

Three words mean the same wherever copies are counted (`Copies`): exact, near, same scene.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from tfrecorder.core.arrays import Pixels
from tfrecorder.core.option import spelled
from tfrecorder.display.messages import command
from tfrecorder.display.tables import counted
from tfrecorder.images.fingerprint import WAVES, gray_of

#: The most bits in which copies may differ; among many images chance allows fewer.
MOST_BITS = 16

#: Images that look alike by chance may make up this share of those that are compared by their
#: pixels.
_BY_CHANCE = 0.01

#: Below so many images, all pairs are few.
_FEW = 50

_SAMPLE = 200_000

#: The bits in groups of equal size, the lowest frequencies first: those differ least.  Two hashes
#: are compared if all bits of some of the groups agree: so many, by the number of hashes.
_GROUPS = 9
_AGREE = {1: 2**12, 2: 2**16, 3: 2**63}

#: Of hashes that agree in a choice of groups, each is compared with so many after it.
_NEIGHBOURS = 64

#: So many images of one hash are compared with all that have a close one.
_OF_ONE_HASH = 4

#: How far the mean of the grey levels may differ between copies, and how many times larger one
#: deviation may be, in hundredths of a level.  Below the least deviation there is nothing to see.
_MEANS = 1000
_DEVIATIONS = 1.6
_LEAST = 100

#: If the pairs that may be copies have more images than this, or this share of all, some are
#: compared first.  If fewer than half of these are copies, all images look alike.
_MANY = 1000
_SHARE = 0.01
_SOME = 200

#: Given the places of some images, a small grey picture of each, or None.
Read = Callable[[Sequence[int]], Iterable[Pixels | None]]


def content_of(size: Any, crc32c: Any) -> Any:
    """A number that is the same for the same bytes, by their size and CRC32C; below 0 for -1."""
    return size * 2**32 + crc32c  # no image in a record has 2**31 bytes


@dataclass(frozen=True)
class Copies:
    """How many records are copies of earlier ones.

    Without those that are exact and near, each picture would be in one record.

    Attributes:
        exact: with the same bytes as an earlier one; None if not counted.
        near: the same picture: resized, encoded again, cut a little.  None if pixels were not
            compared, or cannot tell copies from others.
        scene: alike, but not the same picture, such as frames of a film; None as for `near`.
    """

    exact: int | None
    near: int | None = None
    scene: int | None = None

    def words(self, directory: str = "") -> str:
        """The counts in words.

        Args:
            directory: of a dataset whose copies `duplicates` finds; "" if that was done.

        >>> Copies(2, 1, 4).words()
        '2 exact (same bytes), 1 near (same picture), 4 of the same scene (alike, not the same)'
        """
        if directory:
            return f"{self.words()}; `{command('duplicates', directory)}` compares pictures"
        if self.exact is None:
            return "not counted"
        words = f"{self.exact:,} exact (same bytes)"
        if self.near is not None:
            words += f", {self.near:,} near (same picture)"
            words += f", {self.scene:,} of the same scene (alike, not the same)"
        return words


NOT_COUNTED = Copies(None)


def find_copies(
    looks: pd.DataFrame,
    read: Read,
    deadline: float = math.inf,
) -> tuple[pd.DataFrame, Copies]:
    """The images that are copies of each other, in groups, and how many that are.

    Args:
        looks: `Fingerprint` of each image, by its place, and its `content`, which is the same for
            the same bytes, and missing if nobody knows them.  Those below 0 are not counted, nor
            compared with each other.
        read: reads those that may be copies, in the order of their places, by `picture_of`.
        deadline: by the monotonic clock; what is not compared then has no copies.

    Returns:
        What `groups_of` gives, with `same`: the first image with the same bytes.  If all images
        look alike, only those with the same bytes are in it.
    """
    places = looks.index.to_series()
    same = places.groupby(looks["content"]).transform("min").fillna(places).astype(np.int64)
    pairs = np.stack([same, places], 1)[same < places]
    alike = _near_pairs(looks[same == places], read, deadline)
    near, scenes = alike or (pairs[:0], pairs[:0])
    pairs = np.concatenate([pairs, near])
    groups = groups_of(pairs, looks).join(same.rename("same"))
    exact = _later(same)
    if alike is None:
        return groups, Copies(exact)
    pictures = _later(groups["first"])
    in_scenes = _later(groups_of(np.concatenate([pairs, scenes]), looks)["first"])
    return groups, Copies(exact, pictures - exact, in_scenes - pictures)


def _later(first: pd.Series) -> int:
    """How many images from place 0 on have an earlier first one."""
    return int(((first < first.index) & (first.index >= 0)).sum())


def _near_pairs(
    looks: pd.DataFrame,
    read: Read,
    deadline: float,
) -> tuple[np.ndarray, np.ndarray] | None:
    """The pairs of images that are near copies, and those of one scene.

    Args:
        looks, read, deadline: as for `find_copies`.

    Returns:
        Two of int64 of [pairs, 2]: the places of each pair, ascending; None if all images look so
        much alike that copies cannot be told from others.
    """
    pairs = _candidates(looks, deadline)
    if pairs is None:
        return None
    pairs = pairs[pairs[:, 1] >= 0]
    if len(np.unique(pairs)) > max(_MANY, _SHARE * len(looks)):
        some = pairs[np.random.RandomState(0).permutation(len(pairs))[:_SOME]]
        near, _ = _alike(some, read, deadline)
        if 2 * len(near) < len(some) and time.monotonic() < deadline:
            return None
    return _alike(pairs, read, deadline)


#: What is said where all images may be copies.
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
        looks: as for `find_copies`.

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
    """Nearly all pairs of hashes that differ in few bits.

    Args:
        hashes: uint64.
        bits: the most that may differ.
        deadline: by the monotonic clock; the search ends then.

    Returns:
        int64 of [pairs, 2]: the places of each pair, ascending.
    """
    groups = _groups_of(hashes)
    agree = next(a for a, most in _AGREE.items() if len(hashes) <= most)
    size = (WAVES**2 - 1) // _GROUPS
    pairs = [np.empty(0, np.int64)]
    for chosen in itertools.combinations(groups, agree):
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


def _candidates(looks: pd.DataFrame, deadline: float) -> np.ndarray | None:
    """Pairs of images that may be copies, as far as their looks say; None if all may."""
    looks = looks[looks["hash"].notna()]
    looks = looks[looks["deviation"] >= _LEAST].sort_values(["hash", "mean", "deviation"])
    hashes = looks["hash"].to_numpy(np.uint64)
    if (most := most_bits(np.unique(hashes))) < 0:
        return None
    # Of many images with one hash a few are compared with others, the rest with the one before it.
    before = looks.groupby("hash").cumcount().to_numpy()
    few = np.flatnonzero(before < _OF_ONE_HASH)
    rest = np.flatnonzero(before >= _OF_ONE_HASH)
    close = few[close_pairs(hashes[few], most, deadline)]
    every = np.concatenate([close, np.stack([rest - 1, rest], 1)])
    means, deviations = (looks[name].to_numpy(float)[every] for name in ("mean", "deviation"))
    alike = np.abs(means[:, 0] - means[:, 1]) <= _MEANS
    alike &= deviations.max(1) <= _DEVIATIONS * deviations.min(1)
    return np.sort(looks.index.to_numpy()[every[alike]], axis=1)


def _alike(
    pairs: np.ndarray,
    read: Read,
    deadline: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Those of some pairs that are copies by their pictures, and those of one scene."""
    places = np.unique(pairs).tolist()
    read_all = zip(places, read(places), strict=True)
    pictures = {place: picture for place, picture in read_all if picture is not None}
    likeness = np.zeros(len(pairs), np.int8)
    for at, (one, other) in enumerate(pairs.tolist()):
        if one in pictures and other in pictures and time.monotonic() < deadline:
            likeness[at] = likeness_of(pictures[one], pictures[other])
    return pairs[likeness == NEAR], pairs[likeness == SCENE]


#: Two images at least this much alike are copies.  Of photographs, copies of half the size or of
#: quality 50 had 0.995 and more, with 3 % cut away 0.963; other photographs up to 0.948.
ALIKE = 0.96

#: Two alike pictures show one scene with other things in it if a part of 24 x 24 differs by more
#: grey levels than copies do: by how much depends on the share of all squared differences that a
#: twentieth of the parts holds.  `benchmarks/copies.py` measures what that finds.
_LEVELS = ((0.9, 8), (0.7, 25), (0, 45))
_PLACES = 29

#: Pixels a side of a picture, and of what is compared of it.
_SIDE = 96
_COMPARED = 24

#: What is left after a cut, along a side.
_PARTS = (
    (0, 1),
    (0.015, 0.985),
    (0.03, 0.97),
    (0.05, 0.95),
    (0, 0.97),
    (0.03, 1),
    (0, 0.95),
    (0.05, 1),
)

#: What two pictures are to each other.
NEAR = 1
SCENE = 2


def picture_of(data: bytes) -> np.ndarray | None:
    """A small grey picture of a JPEG or PNG to compare, uint8; None if Pillow refuses it."""
    gray = gray_of(data, _SIDE)
    if gray is None:
        return None
    small = Image.fromarray(gray.astype(np.uint8)).resize((_SIDE,) * 2, Image.Resampling.BILINEAR)
    return np.asarray(small)


def likeness_of(one: Pixels, other: Pixels) -> int:
    """What two pictures are to each other, by `picture_of` of both.

    Returns:
        NEAR if one is the other, resized, encoded again or cut; SCENE if both show one scene with
        something else in it; 0 for others.
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
        return 0
    levels = np.abs(apart).max() * _COMPARED * min(one.std(), other.std())
    squares = np.sort(apart**2)
    share = squares[-_PLACES:].sum() / (squares.sum() + 1e-12)
    most = next(levels for least, levels in _LEVELS if share >= least)
    return NEAR if levels <= most else SCENE


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
