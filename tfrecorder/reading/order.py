"""The order of an epoch: a permutation that can be computed at any place, without a table.

A place is a record's position in an epoch, from 0; a number is its position in its split.
`Order.numbers` turns places into numbers, so a run can begin anywhere, and any host can compute any
part.

The permutation is a Feistel network with cycle walking.  Each round XORs one half of a number's
bits with a keyed hash of the other half, which can be undone whatever the hash is.  A result beyond
the records goes through the network again until it is the number of a record.
Sources: M. Luby, C. Rackoff, "How to construct pseudorandom permutations", 1988; J. Black,
P. Rogaway, "Ciphers with arbitrary finite domains", 2002.  The hash is the last step of
SplitMix64 (S. Vigna, with the constants of D. Stafford's "mix 13").
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrecorder.images.geometry import DRAWS, crop_draws

#: Four rounds are the fewest whose result cannot be told from a random permutation (Luby,
#: Rackoff).  Halves of few bits need more: with 8 rounds, orders of 4 records come up evenly.
ROUNDS = 8

#: The fewest bits of a number: a network with fewer reaches only few of the orders.
MIN_BITS = 8

#: Blocks that are mixed with each other.  For a source sorted by class, runs of one label are then
#: less than 1 % longer than in a uniform order; 64 blocks gave 1.6 %.
WINDOW = 128

#: Bytes of consecutive records that "blocks" keeps close, so that a window is 64 MiB of memory.
BLOCK_BYTES = 2**19

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Order:
    """The order of one epoch of a split.

    Attributes:
        records: of the split.
        mode: "stored", as stored; "exact", the whole split shuffled; or "blocks", blocks of
            consecutive records shuffled, and the records within each window of blocks.
        seed: 0 to 2**32 - 1; ignored if `mode` is "stored".
        epoch: from 0.
        block: consecutive records that stay close in "blocks".

    >>> Order(10, "exact", seed=7, epoch=0).numbers(np.arange(10))
    array([9, 5, 4, 7, 0, 3, 6, 2, 8, 1])
    """

    records: int
    mode: str
    seed: int
    epoch: int
    block: int = 1

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """The numbers of the records at these places.

        Args:
            places: integers from 0 to `records` - 1.

        Returns:
            int64 of the same shape.
        """
        if self.mode == "stored":
            return places.astype(np.int64)
        numbers = places.astype(np.uint64)
        if self.mode == "exact":
            numbers = permute(numbers, self.records, self._key("exact"))
        else:
            numbers = _walk(numbers, self.records, self._in_blocks)
        return numbers.astype(np.int64)

    def _in_blocks(self, places: np.ndarray, _: Any = None) -> np.ndarray:
        """A permutation of whole blocks; the last may have more numbers than there are records."""
        blocks = -(-self.records // self.block)
        window = np.uint64(WINDOW * self.block)
        windows = places // window
        keys = mix(self._key("window") + windows)
        whole = windows < np.uint64(blocks // WINDOW)
        within = places % window
        within[whole] = permute(within[whole], int(window), keys[whole])
        rest = blocks % WINDOW * self.block
        within[~whole] = permute(within[~whole], rest, keys[~whole])
        of_window = within // np.uint64(self.block)
        block = permute(windows * np.uint64(WINDOW) + of_window, blocks, self._key("blocks"))
        return block * np.uint64(self.block) + within % np.uint64(self.block)

    def _key(self, purpose: str) -> np.ndarray:
        return np.array([derive_seed(self.seed, self.epoch, purpose)], np.uint64)


def block_of(records: int, size: int) -> int:
    """How many consecutive records "blocks" keeps close, for a split of `size` bytes.

    >>> block_of(1000, size=100_000_000)
    5
    """
    return max(1, min(records, int(BLOCK_BYTES * records / max(1, size))))


def derive_seed(seed: int, epoch: int, purpose: str) -> int:
    """A seed for one purpose of one epoch, the same on every machine and Python."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # int64 without its sign


def draws(seed: int, epochs: Any, numbers: Any) -> np.ndarray:
    """What `augment` draws for records.

    Ask for many at once: a call for one record costs nearly as much as for a hundred.

    Args:
        seed: 0 to 2**32 - 1.
        epochs: from 0, an integer for all records or one for each.
        numbers: of the records, integers.

    Returns:
        float32 of [n, DRAWS], as `crop_draws` gives them.
    """
    return crop_draws(_uniform(seed, epochs, numbers, "augment", DRAWS), np)


def choices(seed: int, epochs: Any, numbers: Any) -> np.ndarray:
    """What `choose` draws for records: float32 of [n], from 0 to 1, excluding 1; as `draws`."""
    return _uniform(seed, epochs, numbers, "choose", 1)[:, 0]


def _uniform(seed: int, epochs: Any, numbers: Any, purpose: str, count: int) -> np.ndarray:
    """Random numbers from 0 to 1, excluding 1: float32 of [n, count]."""
    keys = [derive_seed(seed, epoch, purpose) for epoch in np.ravel(epochs).tolist()]
    counters = np.asarray(numbers, np.uint64)[:, None] * np.uint64(count)
    each = np.arange(count, dtype=np.uint64)
    mixed = mix(mix(counters + each + np.array(keys, np.uint64)[:, None]))
    return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def permute(numbers: np.ndarray, size: int, key: np.ndarray) -> np.ndarray:
    """A permutation of 0 to `size` - 1.

    Args:
        numbers: uint64, any of them.
        size: how many numbers there are.
        key: uint64, one for all, or one for each of `numbers`.
    """
    bits = max((size - 1).bit_length(), MIN_BITS)
    keys = np.broadcast_to(key, numbers.shape)

    def network(some: np.ndarray, where: np.ndarray | slice) -> np.ndarray:
        return _feistel(some, bits, keys[where])

    return _walk(numbers, size, network)


def _walk(
    numbers: np.ndarray, size: int, step: Callable[[np.ndarray, np.ndarray | slice], np.ndarray]
) -> np.ndarray:
    """Turn `step`, a permutation of more numbers, into a permutation of 0 to `size` - 1.

    A walk on from a number beyond them reaches one of them before it returns to its start.
    """
    result = step(numbers, slice(None))
    beyond = np.flatnonzero(result >= size)
    while len(beyond):
        result[beyond] = step(result[beyond], beyond)
        beyond = beyond[result[beyond] >= size]
    return result


def _feistel(numbers: np.ndarray, bits: int, keys: np.ndarray) -> np.ndarray:
    """A permutation of 0 to 2**bits - 1."""
    low = np.uint64(bits // 2)
    high = np.uint64(bits) - low
    left = numbers >> low
    right = numbers & ((np.uint64(1) << low) - np.uint64(1))
    for number in range(ROUNDS):
        keys = keys + _GOLDEN
        if number % 2:
            left ^= mix(right + keys) >> (np.uint64(64) - high)
        else:
            right ^= mix(left + keys) >> (np.uint64(64) - low)
    return left << low | right


def mix(numbers: np.ndarray) -> np.ndarray:
    """A hash of 64 bits: each bit of a uint64 affects about half of the bits of the result."""
    numbers = (numbers ^ numbers >> np.uint64(30)) * _FIRST
    numbers = (numbers ^ numbers >> np.uint64(27)) * _SECOND
    return numbers ^ numbers >> np.uint64(31)
