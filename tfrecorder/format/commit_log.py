"""What was done to a dataset, an entry a commit: numbers alone, no name of a row.

A manifest holds the entry of its commit, as "log".  The first one of a chain also holds those of
all commits before, whose own manifests may be gone, as "log_before"; and one that takes an addition
back that of the addition, as "log_undone".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from tfrecorder.format.documents import Document

#: The kind of a batch of a stream, as `PlanKind` calls it.
_BATCH = "stream"


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """What one commit did.

    Attributes:
        commit: its number.
        first: the number of the first of several batches of a stream, told together.
        kind: the value of its `PlanKind`.
        when: when it was staged, in UTC, as "2026-11-28T15:26:33Z"; "" where nobody noted it.
        added: rows that became records of the dataset.
        corrected: records that got other values.
        moved: rows that went to another split.
        removed: rows that went.
        rejected: rows that became rejects.
        undoes: the number of the commit that it took back; -1 for none.
        undone: the kind of what it took back or abandoned; "" for none.
    """

    commit: int
    first: int
    kind: str
    when: str = ""
    added: int = 0
    corrected: int = 0
    moved: int = 0
    removed: int = 0
    rejected: int = 0
    undoes: int = -1
    undone: str = ""

    def values(self) -> Document:
        """It as JSON values, without those that are as in most entries."""
        usual = {item.name: item.default for item in dataclasses.fields(self)}
        return {name: value for name, value in vars(self).items() if value != usual[name]}

    @classmethod
    def of(cls, values: Document) -> LogEntry:
        """The entry with these JSON values."""
        return cls(**values)


#: Entries, oldest first.
Log = tuple[LogEntry, ...]


def merged_batches(entries: Iterable[LogEntry]) -> Log:
    """Entries, with batches of a stream that follow one another told together."""
    merged: list[LogEntry] = []
    for entry in entries:
        before = merged[-1] if merged else None
        if before is not None and before.kind == entry.kind == _BATCH:
            merged[-1] = dataclasses.replace(
                entry,
                first=before.first,
                added=before.added + entry.added,
                rejected=before.rejected + entry.rejected,
            )
        else:
            merged.append(entry)
    return tuple(merged)
