"""The order of an epoch: which record comes at each place, and how often, without a table.

A place is a record's position in an epoch, from 0; a number is its position in its split.
`Order.numbers` turns places into numbers, so a run can begin anywhere, and any host can compute any
part.

The permutation is a Feistel network with cycle walking.  Each round XORs one half of a number's
bits with a keyed hash of the other half, which can be undone whatever the hash is.  A result beyond
the records goes through the network again until it is the number of a record.
Sources: M. Luby, C. Rackoff, "How to construct pseudorandom permutations", 1988; J. Black,
P. Rogaway, "Ciphers with arbitrary finite domains", 2002.  The hash is the last step of
SplitMix64 (S. Vigna, with the constants of D. Stafford's "mix 13").

How often each record comes (balanced classes, weights, epochs of another length) is a `Sampling`.
Each record has an expected count, a number of at least 0, and the counts of all add up to the
length of the epoch.  Laid one after the other on a line, each record is as long as its count.  An
epoch's draws lie on this line at equal distances of 1, from a start below 1 that depends on the
seed and the epoch, and each takes the record that it falls on.  So a record is drawn the whole
number of times below or above its count, and so is every group of records that lie side by side,
such as a class.
Source: W. G. Madow, "On the theory of systematic sampling, II", 1949.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.core.option import did_you_mean
from tfrecorder.errors import OptionError
from tfrecorder.images.geometry import DRAWS, crop_draws
from tfrecorder.schema.fields import Field

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

    def _in_blocks(
        self,
        places: np.ndarray,
        _: Any = None,
    ) -> np.ndarray:
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


def derive_seed(
    seed: int,
    epoch: int,
    purpose: str,
) -> int:
    """A seed for one purpose of one epoch, the same on every machine and Python."""
    digest = hashlib.blake2b(f"{seed}/{epoch}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # int64 without its sign


def draws(
    seed: int,
    epochs: Any,
    numbers: Any,
) -> np.ndarray:
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


def choices(
    seed: int,
    epochs: Any,
    numbers: Any,
) -> np.ndarray:
    """What `choose` draws for records: float32 of [n], from 0 to 1, excluding 1; as `draws`."""
    return _uniform(seed, epochs, numbers, "choose", 1)[:, 0]


def _uniform(
    seed: int,
    epochs: Any,
    numbers: Any,
    purpose: str,
    count: int,
) -> np.ndarray:
    """Random numbers from 0 to 1, excluding 1: float32 of [n, count]."""
    keys = [derive_seed(seed, epoch, purpose) for epoch in np.ravel(epochs).tolist()]
    counters = np.asarray(numbers, np.uint64)[:, None] * np.uint64(count)
    each = np.arange(count, dtype=np.uint64)
    mixed = mix(mix(counters + each + np.array(keys, np.uint64)[:, None]))
    return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def permute(
    numbers: np.ndarray,
    size: int,
    key: np.ndarray,
) -> np.ndarray:
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
    numbers: np.ndarray,
    size: int,
    step: Callable[[np.ndarray, np.ndarray | slice], np.ndarray],
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


def _feistel(
    numbers: np.ndarray,
    bits: int,
    keys: np.ndarray,
) -> np.ndarray:
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


#: The start moves by this much from epoch to epoch.  No other step leaves smaller gaps between the
#: starts, so that rarely drawn records all come in few epochs (Weyl; Knuth, TAOCP 6.4).
_GOLDEN_RATIO = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Sampling:
    """Which records an epoch draws.

    Attributes:
        numbers: of the records, in their order on the line, int64.
        ends: where each of them ends on the line, float64; the last is the length of the epoch.

    >>> sampling = sampling_of(np.array([3.0, 1.0]), np.zeros(2), size=8)
    >>> np.bincount(sampling.numbers_of(np.arange(8), seed=7, epoch=0)).tolist()
    [6, 2]
    """

    numbers: np.ndarray
    ends: np.ndarray

    @property
    def size(self) -> int:
        """The length of an epoch."""
        return int(self.ends[-1])

    @property
    def fingerprint(self) -> str:
        """A short text that tells these counts from others."""
        digest = hashlib.blake2b(self.numbers.data, digest_size=8)
        digest.update(self.ends.data)
        return digest.hexdigest()

    def numbers_of(
        self,
        draws: np.ndarray,
        seed: int,
        epoch: int,
    ) -> np.ndarray:
        """The number of the record that each draw takes, int64; draws count from 0."""
        start = (derive_seed(seed, 0, "sampling") / 2**63 + epoch * _GOLDEN_RATIO) % 1
        return self.numbers[np.searchsorted(self.ends, draws + start, side="right")]


@dataclass(frozen=True)
class SampledOrder(Order):
    """The order of an epoch's draws.

    Attributes:
        sampling: the record that each draw takes.
    """

    sampling: Sampling | None = None

    def numbers(self, places: np.ndarray) -> np.ndarray:
        draws = super().numbers(places)
        if self.sampling is None:
            return draws
        return self.sampling.numbers_of(draws, self.seed, self.epoch)


def sampling_of(
    weights: np.ndarray,
    groups: np.ndarray,
    size: int,
) -> Sampling:
    """A sampling in proportion to weights.

    Args:
        weights: of each record, at least 0, and not all 0.
        groups: of each record; groups too are drawn in proportion, exact to one record.
        size: the length of an epoch.
    """
    # Within a group in no order that the source had: neighbours are never drawn together.
    scattered = mix(np.arange(len(weights), dtype=np.uint64))
    numbers = np.lexsort((scattered, groups))
    numbers = numbers[weights[numbers] > 0]
    ends = np.cumsum(weights[numbers])
    ends *= size / ends[-1]
    ends[-1] = size
    return Sampling(numbers, ends)


def weights_of(
    balance: str | Mapping[Any, Any],
    frame: pd.DataFrame,
    field: Field | None,
    parts: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The weight of each record by its columns, and the group it is in.

    Args:
        balance: the name of a column: one of numbers has the weights, of any other each value is
            drawn as often; or a weight for each class.
        frame: the columns of the records.
        field: the column of classes; None if there is none, or several.
        parts: the number of the part that each record is in; values are balanced within a part.

    Returns:
        float64 of [records]; and int64 of [records]: the value or the class, in its part.

    Raises:
        OptionError: there is no such column or class, or a class has no weight.
    """
    label = field.column if field else None
    if isinstance(balance, str):
        if balance not in frame:
            names = list(map(str, frame.columns))
            raise OptionError.of(
                "balance",
                balance,
                f"there is no such column; {did_you_mean(balance, names)}",
            )
        if balance != label and pd.api.types.is_numeric_dtype(frame[balance]):
            groups = parts if label is None else _group_codes(frame[label], parts)[0]
            return frame[balance].to_numpy(np.float64), groups
        groups, _ = _group_codes(frame[balance], parts)
        return 1 / np.bincount(groups)[groups], groups
    if field is None:
        raise OptionError.of(
            "balance",
            dict(balance),
            "weights by class need one column of classes; give a weight for each record.",
        )
    groups, classes = _group_codes(frame[label], parts)
    for name in [*classes, *balance]:
        words = ""
        if name not in balance:
            words = f"it has no weight for the class {name!r}; with 0 a class is never drawn."
        elif name not in classes and (balance[name] or str(name) not in (field.class_names or ())):
            words = f"no record has the class {name!r}; there is {', '.join(map(str, classes))}."
        if words:
            raise OptionError.of("balance", dict(balance), words)
    by_class = checked_weights([balance[name] for name in classes])
    return by_class[groups % len(classes)] / np.bincount(groups)[groups], groups


def checked_weights(weights: Any) -> np.ndarray:
    """Weights as float64.

    Raises:
        OptionError: one of them is not a finite number from 0, or all are 0.
    """
    try:
        floats = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        floats = np.array([np.nan])
    if not (np.isfinite(floats).all() and (floats >= 0).all() and floats.any()):
        raise OptionError.of("balance", ..., "give finite numbers from 0, not all 0.")
    return floats


def _group_codes(column: pd.Series, parts: np.ndarray) -> tuple[np.ndarray, pd.Index]:
    """A number for each value in each part, for each cell: the value's modulo the values there are.

    The second are these values.
    """
    try:
        codes, values = pd.factorize(column, use_na_sentinel=False)
        codes += parts * len(values)
        return codes, values
    except TypeError:
        raise OptionError.of(
            "balance",
            column.name,
            "its cells are lists or arrays; give a weight for each record.",
        ) from None
