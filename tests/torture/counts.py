"""What an attack reports: how often it was made, the rows that went through it, and those lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from support import records, rejects


class BrokenError(AssertionError):
    """A promise does not hold; the message says which attack showed it, and how to repeat it."""


@dataclass(frozen=True)
class Count:
    """A line of the table that `make torture` prints.

    Attributes:
        attack: what was done.
        times: how often.
        rows: that went through it, each time counted anew.
        lost: of these, rows that are neither a record nor a reject in the end.
        note: what else was counted.
    """

    attack: str
    times: int
    rows: int
    lost: int
    note: str = ""


def demand(holds: object, words: str) -> None:
    """Raise a BrokenError unless something holds."""
    if not holds:
        raise BrokenError(words)


def lost_rows(output_dir: Path, rows: int) -> int:
    """How many of the source's rows are neither a record nor a reject of a dataset, or are twice.

    Args:
        output_dir: a committed dataset.
        rows: of its source.
    """
    found = [int(record["image/source_id"]) for record in records(output_dir)]
    found += rejects(output_dir)["row"].tolist()
    twice = len(found) - len(set(found))
    return len(set(range(rows)) - set(found)) + twice


def print_table(counts: Iterable[Count]) -> None:
    """The counts as a table that a page of Markdown can hold."""
    print("| attack | times | rows | rows lost | |")
    print("|---|---:|---:|---:|---|")
    for one in counts:
        print(f"| {one.attack} | {one.times:,} | {one.rows:,} | {one.lost:,} | {one.note} |")
