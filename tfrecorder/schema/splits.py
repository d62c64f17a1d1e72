"""Splits: the words for them, and how rows that come without one are assigned."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

#: In the order they are planned and reported.
SPLITS = ("TRAIN", "VALIDATION", "TEST")

UNASSIGNED = "UNASSIGNED"

#: The type of a table's splits: one byte per row, so that millions are compared in no time.
SPLIT_TYPE = pd.CategoricalDtype([*SPLITS, UNASSIGNED])

#: How many keys are Python values at a time.
_TOGETHER = 2**14

#: Every accepted spelling, in lower case: those of AutoML Vision and Vertex AI, and the usual ones.
SPELLINGS = {
    "train": "TRAIN",
    "training": "TRAIN",
    "val": "VALIDATION",
    "valid": "VALIDATION",
    "validation": "VALIDATION",
    "validate": "VALIDATION",  # AutoML's
    "test": "TEST",
    "testing": "TEST",
    "unassigned": UNASSIGNED,
    "": UNASSIGNED,
}


@dataclass(frozen=True)
class Division:
    """How rows without a split get one.

    Attributes:
        shares: the share of each split, above 0; together 1.
        stratify: assign within each label, so that every split has rare labels too.
        seed: the seed of the hash.
        asked: which of these options the user gave.
    """

    shares: Mapping[str, float] = field(
        default_factory=lambda: {"TRAIN": 0.8, "VALIDATION": 0.1, "TEST": 0.1}
    )
    stratify: bool = False
    seed: int = 0
    asked: tuple[str, ...] = ()

    def __str__(self) -> str:
        of_what = " of each label" if self.stratify else ""
        if self.shares == Division().shares:
            return f"80/10/10{of_what}"
        shares = [f"{name} {100 * share:g}%" for name, share in self.shares.items()]
        return ", ".join(shares) + of_what

    def bounds(self, many: int) -> list[tuple[str, int]]:
        """The splits, each with the end of its part of `many`, rounded."""
        ends = []
        total = Fraction(0)
        for name in SPLITS:
            if name in self.shares:
                total += Fraction(str(self.shares[name]))
                ends.append((name, int(many * total + Fraction(1, 2))))
        return [*ends[:-1], (ends[-1][0], many)]


def parse_splits(column: pd.Series) -> pd.Series:
    """Split words in any case and usual spelling -> TRAIN, VALIDATION, TEST, UNASSIGNED.

    A missing value or an empty word is UNASSIGNED; a word that is not a split becomes missing.

    >>> parse_splits(pd.Series(["train", "Val", None, "trian"])).tolist()
    ['TRAIN', 'VALIDATION', 'UNASSIGNED', nan]
    """
    if isinstance(column.dtype, pd.StringDtype):
        texts = column.fillna("").array
    else:
        # As plain objects: a column of pandas' own text refuses text that is not valid Unicode.
        texts = np.array([str(word) for word in column.astype(object).fillna("")], dtype=object)
    words, distinct = pd.factorize(texts)
    parsed = pd.Categorical(
        [SPELLINGS.get(word.strip().lower()) for word in distinct],
        dtype=SPLIT_TYPE,
    )
    return pd.Series(parsed.take(words), index=column.index)


def split_meant(word: Any, splits: Collection[str]) -> Any:
    """The one of some splits that a word names, in any usual spelling; else the word itself.

    >>> split_meant("val", ["TRAIN", "VALIDATION"]), split_meant("minival", ["TRAIN"])
    ('VALIDATION', 'minival')
    """
    spelled = SPELLINGS.get(str(word).strip().lower())
    return spelled if word not in splits and spelled in splits else word


def assign_splits(
    keys: Sequence[str] | pa.Array,
    division: Division,
    labels: Sequence[Any] | None = None,
) -> pd.Categorical:
    """The split of each row without one, by a seeded hash of its key.

    Rows with the same key get the same split.  A row keeps its split when other rows come or go, on
    every machine and Python.  When stratified, it may lose it if its hash is close to the end of a
    split's part, because the parts then divide the keys of a label in the order of their hashes.

    Args:
        keys: the uri, or what the rows of a group have in common; a sequence, or texts in Arrow.
        labels: the label of each row, if `division` is stratified; a key has that of its first row.

    >>> assign_splits(["a.jpg", "m.jpg", "a.jpg"], Division()).tolist()
    ['TRAIN', 'VALIDATION', 'TRAIN']
    """
    if labels is None:
        hashes = _hashes(keys, division.seed)
        names, ends = zip(*division.bounds(2**64), strict=True)
        largest = 2**64 - 1
        ends_before = [min(end, largest) for end in ends[:-1]]
        part = np.searchsorted(np.array(ends_before, np.uint64), hashes, "right")
        return pd.Categorical(names, dtype=SPLIT_TYPE).take(part)
    codes, distinct = pd.factorize(np.array(keys, dtype=object))
    hashes = _hashes(distinct, division.seed)
    splits = np.full(len(distinct), "", object)
    first = np.unique(codes, return_index=True)[1]
    of_keys = pd.Series([labels[row] for row in first], dtype=object)
    for _, members in of_keys.groupby(of_keys, sort=False):
        ordered = members.index[np.argsort(hashes[members.index], kind="stable")]
        for name, end in reversed(division.bounds(len(ordered))):
            splits[ordered[:end]] = name
    return pd.Categorical(splits, dtype=SPLIT_TYPE).take(codes)


def _hashes(keys: Sequence[str] | pa.Array, seed: int) -> np.ndarray:
    """A hash of 64 bits for each key; a lone surrogate is taken for a question mark."""
    salted = hashlib.blake2b(digest_size=8, key=seed.to_bytes(8, "little"))
    hashes = np.empty(len(keys), np.uint64)
    for start in range(0, len(keys), _TOGETHER):
        some = keys[start : start + _TOGETHER]
        if isinstance(some, pa.Array):
            encoded = some.cast(pa.large_binary()).to_pylist()
        else:
            encoded = [key.encode(errors="replace") for key in some]
        digests = []
        for key in encoded:
            hashed = salted.copy()
            hashed.update(key)
            digests.append(hashed.digest())
        hashes[start : start + _TOGETHER] = np.frombuffer(b"".join(digests), ">u8")
    return hashes
