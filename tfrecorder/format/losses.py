"""What a dataset lost and nobody knows any more: `repair` notes it, and what needs it asks.

A manifest holds it as "losses": by the value of a `Loss`, the names of the files that held it, such
as the tables that were made again.  What follows takes it over.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence

from tfrecorder.display.tables import counted
from tfrecorder.format import layout

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
    NAMES: what public files do not say of columns and options.
    HISTORY: what was done before, such as whether rows were appended.
    GENERATIONS: what the dataset held as of earlier commits.
    KEPT: what the newest update replaced, so that it cannot be taken back.
    """

    PLACES = "places"
    SUMS = "sums"
    REJECTS = "rejects"
    POSITIONS = "positions"
    MARKS = "marks"
    OPTIONS = "options"
    NAMES = "names"
    HISTORY = "history"
    GENERATIONS = "generations"
    KEPT = "kept"

    def is_in(self, losses: Losses) -> bool:
        """True if it is among these."""
        return self.value in losses


#: What each is, as `repair` and `info` say it.
WORDS = {
    Loss.PLACES: "in which folder the images were, so appends must say what to do with duplicates",
    Loss.SUMS: "sizes, checksums and times of the images' files",
    Loss.REJECTS: "the values of rejected rows",
    Loss.POSITIONS: "how far streams were read: none can be continued in this directory",
    Loss.MARKS: "which rows were removed: they may come in again, so appends ask first",
    Loss.OPTIONS: "the source, its own options, and how often images were read again",
    Loss.NAMES: (
        "the options, which appends take over; the names of columns of images, masks and boxes, "
        "and of the column of labels if there is only one, where records call them otherwise; and "
        "class names with white space at an end that no record has"
    ),
    Loss.HISTORY: "what was done before, such as whether rows were appended",
    Loss.GENERATIONS: "what the dataset held as of earlier commits, which cannot be read any more",
    Loss.KEPT: "what the newest update replaced: it cannot be taken back",
}


def in_words(losses: Losses) -> list[str]:
    """What is lost, a sentence for each kind, with the files that held it."""
    sentences = []
    for loss in Loss:
        if names := losses.get(loss.value):
            sentences.append(f"of {_named(names)}: {WORDS[loss]}")
    return sentences


def _named(names: Sequence[str]) -> str:
    """Some files in a word or two."""
    if len(names) == 1:
        return names[0]
    kinds = {layout.TABLES: "table", layout.COMMITS: "manifest"}
    folders = {*map(os.path.dirname, names)}
    return counted(len(names), kinds.get(folders.pop(), "file") if len(folders) == 1 else "file")


def both(losses: Losses, more: Losses) -> dict[str, list[str]]:
    """Some losses and more of them, each name once."""
    return {
        kind: [*dict.fromkeys([*losses.get(kind, ()), *more.get(kind, ())])]
        for kind in sorted({*losses, *more})
    }


def lasting(losses: Losses) -> dict[str, list[str]]:
    """Those that hold for what follows too."""
    return {kind: [*names] for kind, names in losses.items() if kind != Loss.KEPT.value}
