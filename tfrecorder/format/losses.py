"""What a dataset lost and nobody knows any more: `repair` notes it, and what needs it asks.

A manifest holds it as "losses": by the value of a `Loss`, the names of the files that held it, such
as the tables that were made again.  What follows takes it over.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

#: The losses of a manifest, or some of them.
Losses = Mapping[str, Sequence[str]]


class Loss(str, enum.Enum):
    """A kind of what is not known any more; the value is its name in a manifest.

    PLACES: in which folder images were; an append that compares places asks.
    SUMS: sizes and checksums of the images' files.
    REJECTS: values of rejected rows, or that there were some.
    POSITIONS: how far streams were read.
    MARKS: which rows were removed, so that they may come in again.
    OPTIONS: with which options the dataset was made.
    HISTORY: what was done before, such as whether rows were appended.
    KEPT: what the newest update replaced, so that it cannot be taken back.
    """

    PLACES = "places"
    SUMS = "sums"
    REJECTS = "rejects"
    POSITIONS = "positions"
    MARKS = "marks"
    OPTIONS = "options"
    HISTORY = "history"
    KEPT = "kept"

    def is_in(self, losses: Losses) -> bool:
        """True if it is among these."""
        return self.value in losses


#: What each is, as the result of `repair` says it.
WORDS = {
    Loss.PLACES: "in which folder the images were, so appends must say what to do with duplicates",
    Loss.SUMS: "sizes, checksums and times of the images' files",
    Loss.REJECTS: "the values of rejected rows",
    Loss.POSITIONS: "how far streams were read: none can be continued in this directory",
    Loss.MARKS: "which rows were removed: they may come in again, so appends ask first",
    Loss.OPTIONS: "the source, its own options, and how often images were read again",
    Loss.HISTORY: "what was done before, such as whether rows were appended",
    Loss.KEPT: "what the newest update replaced: it cannot be taken back",
}


def both(losses: Losses, more: Losses) -> dict[str, list[str]]:
    """Some losses and more of them, each name once."""
    return {
        kind: [*dict.fromkeys([*losses.get(kind, ()), *more.get(kind, ())])]
        for kind in sorted({*losses, *more})
    }


def lasting(losses: Losses) -> dict[str, list[str]]:
    """Those that hold for what follows too."""
    return {kind: [*names] for kind, names in losses.items() if kind != Loss.KEPT.value}
