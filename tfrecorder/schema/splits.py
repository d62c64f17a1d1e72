"""Splits: the words for them, and the assignment of rows that come without one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pandas as pd

#: In the order in which they are planned and reported.
SPLITS = ("TRAIN", "VALIDATION", "TEST")

UNASSIGNED = "UNASSIGNED"

#: Every accepted spelling, in lower case: those of AutoML Vision and Vertex AI, and the usual ones.
SPELLINGS = {
    "train": "TRAIN",
    "training": "TRAIN",
    "val": "VALIDATION",
    "valid": "VALIDATION",
    "validation": "VALIDATION",
    "test": "TEST",
    "testing": "TEST",
    "unassigned": UNASSIGNED,
    "": UNASSIGNED,
}

#: Upper bounds of the hash, of 2**64, below which a row is TRAIN or VALIDATION: 80/10/10.
_TRAIN_BELOW = 2**64 * 8 // 10
_VALIDATION_BELOW = 2**64 * 9 // 10


def parse_splits(column: pd.Series) -> pd.Series:
    """Split words in any case and usual spelling -> TRAIN, VALIDATION, TEST, UNASSIGNED.

    A missing value or an empty word is UNASSIGNED; a word that is no split becomes missing.

    >>> parse_splits(pd.Series(["train", "Val", None, "trian"])).tolist()
    ['TRAIN', 'VALIDATION', 'UNASSIGNED', None]
    """
    # As plain objects: a column of pandas' own text refuses what is no valid Unicode.
    texts = np.array([str(word) for word in column.astype(object).fillna("")], dtype=object)
    words, distinct = pd.factorize(texts)
    parsed = [SPELLINGS.get(word.strip().lower()) for word in distinct]
    return pd.Series(np.array(parsed, dtype=object)[words], index=column.index, dtype=object)


def assign_split(uri: str, seed: int) -> str:
    """The split of one row without one: a seeded hash of its uri, 80/10/10.

    A row keeps its split when other rows come or go, on every machine and Python.
    """
    key = seed.to_bytes(8, "little")
    digest = hashlib.blake2b(uri.encode(), digest_size=8, key=key).digest()
    value = int.from_bytes(digest, "big")
    if value < _TRAIN_BELOW:
        return "TRAIN"
    return "VALIDATION" if value < _VALIDATION_BELOW else "TEST"


def assign_splits(uris: Iterable[str], seed: int) -> list[str]:
    """`assign_split` of each uri."""
    return [assign_split(uri, seed) for uri in uris]
