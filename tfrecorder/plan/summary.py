"""What an operation says of itself: in the dry run, in the result, and in the plan between them.

It is in the plan, so the result is the same whoever commits it: this process, another machine, or a
job that its launcher no longer waits for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfrecorder.display.tables import counted
from tfrecorder.plan.changes import Changes


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is to be known of an operation beyond what its shards hold.

    Attributes:
        passed_over: for a folder source, the files that made no row, by kind.
        rows_there: for an append, rows skipped because their images are already in the dataset.
        removed: rows left out because they were removed from the dataset before.
        changes: for what changes or replaces records, what that is.
        warnings: what `tfrecorder.validate` warns of in the source, by code.
        notes: what else to know, such as that the source has no labels.
    """

    passed_over: dict[str, int] = field(default_factory=dict)
    rows_there: int = 0
    removed: int = 0
    changes: Changes | None = None
    warnings: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def said(self) -> dict[str, Any]:
        """These values by name, without those that a class derived from this one adds."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(Summary)}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Summary:
        """The summary that these JSON values are of."""
        changes = values["changes"] and Changes(**values["changes"])
        return cls(**{**values, "changes": changes, "notes": tuple(values["notes"])})


def left_out_words(there: int, removed: int) -> list[str]:
    """What to say of rows that an operation leaves out; nothing without any.

    Args:
        there: rows that the dataset has already.
        removed: rows that were removed before; the option is one of append, update and stream.

    >>> left_out_words(2, 1)[0]
    'skipped: 2 rows that are already there'
    >>> left_out_words(2, 1)[1]
    'removed before: 1 row, which stays out; `readmit=True` lets it in'
    """
    words = [f"skipped: {counted(there, 'row')} that are already there"] if there else []
    if removed:
        stay, them = ("stays", "it") if removed == 1 else ("stay", "them")
        rows = f"{counted(removed, 'row')}, which {stay} out"
        words.append(f"removed before: {rows}; `readmit=True` lets {them} in")
    return words
