"""What a dataset lost and nobody knows any more: `repair` notes it, and what needs it asks.

A manifest holds it as "losses": by the value of a `Loss`, the names of what is concerned, such as
the tables that were made again.  What follows takes it over.
"""

from __future__ import annotations

import enum


class Loss(str, enum.Enum):
    """A kind of what is not known any more; the value is its name in a manifest.

    PLACES: in which folder images were; an append that compares places asks.
    SUMS: sizes and checksums of the images' files.
    REJECTS: values of rejected rows, or that there were some.
    POSITIONS: how far streams were read.
    MARKS: which rows were removed, so that they may come in again.
    OPTIONS: with which options the dataset was made.
    """

    PLACES = "places"
    SUMS = "sums"
    REJECTS = "rejects"
    POSITIONS = "positions"
    MARKS = "marks"
    OPTIONS = "options"
