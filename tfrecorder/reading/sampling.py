"""How often each record is in an epoch: balanced classes, weights, and epochs of another length.

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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.core.checks import did_you_mean
from tfrecorder.errors import OptionError
from tfrecorder.reading.order import Order, derive_seed, mix
from tfrecorder.schema.fields import Field

#: The start moves by this much from epoch to epoch.  No other step leaves smaller gaps between the
#: starts, so that rarely drawn records all come in few epochs (Weyl; Knuth, TAOCP 6.4).
_GOLDEN_RATIO = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Sampling:
    """Which records an epoch draws.

    Attributes:
        numbers: of the records, in their order on the line, int64.
        ends: where each of them ends on the line, float64; the last is the length of the epoch.

    >>> sampling = sampled(np.array([3.0, 1.0]), np.zeros(2), size=8)
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

    def numbers_of(self, draws: np.ndarray, seed: int, epoch: int) -> np.ndarray:
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


def sampled(weights: np.ndarray, groups: np.ndarray, size: int) -> Sampling:
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
    balance: str | Mapping[Any, Any], frame: pd.DataFrame, field: Field | None, parts: np.ndarray
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
                "balance", balance, f"there is no such column; {did_you_mean(balance, names)}"
            )
        if balance != label and pd.api.types.is_numeric_dtype(frame[balance]):
            groups = parts if label is None else _codes(frame[label], parts)[0]
            return frame[balance].to_numpy(np.float64), groups
        groups, _ = _codes(frame[balance], parts)
        return 1 / np.bincount(groups)[groups], groups
    if field is None:
        raise OptionError.of(
            "balance",
            dict(balance),
            "weights by class need one column of classes; give a weight for each record.",
        )
    groups, classes = _codes(frame[label], parts)
    for name in [*classes, *balance]:
        words = ""
        if name not in balance:
            words = f"it has no weight for the class {name!r}; with 0 a class is never drawn."
        elif name not in classes and (balance[name] or str(name) not in (field.class_names or ())):
            words = f"no record has the class {name!r}; there is {', '.join(map(str, classes))}."
        if words:
            raise OptionError.of("balance", dict(balance), words)
    by_class = checked([balance[name] for name in classes])
    return by_class[groups % len(classes)] / np.bincount(groups)[groups], groups


def checked(weights: Any) -> np.ndarray:
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


def _codes(column: pd.Series, parts: np.ndarray) -> tuple[np.ndarray, pd.Index]:
    """A number for each value in each part, for each cell: the value's modulo the values there are.

    The second are these values.
    """
    try:
        codes, values = pd.factorize(column, use_na_sentinel=False)
        codes += parts * len(values)
        return codes, values
    except TypeError:
        raise OptionError.of(
            "balance", column.name, "its cells are lists or arrays; give a weight for each record."
        ) from None
