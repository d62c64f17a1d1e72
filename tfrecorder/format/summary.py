"""What an operation says of itself: in the dry run, in the result, and in the plan between them;
and what it changes or replaces of the records of a dataset, in words.

It is in the plan, so the result is the same whoever commits it: this process, another machine, or a
job that its launcher no longer waits for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfrecorder.core.option import spelled
from tfrecorder.display.tables import counted, counts_in_words, readable_bytes
from tfrecorder.format.documents import Document

#: Kinds of a change that are named.
_NAMED = 3


@dataclass(frozen=True)
class Changes:
    """What an update, a removal, a compaction or an overwrite changes.

    Attributes:
        replaces: the whole dataset that it replaces, in words; "" if it replaces none.
        corrected: records that get other values.
        columns: of these, how many differ in each column.
        labels: how many go from one class to another, by "cat → dog".
        read_again: of these, those whose images are read again, because their files have changed.
        moved: rows that go to another split, by "TRAIN → TEST".
        added: new rows.
        removed: rows that go.
        shards: how many of the dataset's shards are written again.
        of_shards: how many it has.
        bytes: of these shards.
    """

    replaces: str = ""
    corrected: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    read_again: int = 0
    moved: Mapping[str, int] = field(default_factory=dict)
    added: int = 0
    removed: int = 0
    shards: int = 0
    of_shards: int = 0
    bytes: int = 0

    @property
    def words(self) -> str:
        """All of it in a line.

        >>> Changes(corrected=1, columns={"label": 1}, labels={"cat → dog": 1}, of_shards=8,
        ...         shards=1, bytes=2048).words
        '1 record is corrected (label 1: cat → dog 1), 1 of 8 shards (2 KiB) is written again'
        """
        parts = [self.replaces] if self.replaces else []
        if self.corrected:
            shown = counts_in_words(self.columns, _NAMED)
            if self.labels:
                shown += f": {counts_in_words(self.labels, _NAMED)}"
            shown = f" ({shown})" if shown else ""
            parts.append(f"{counted(self.corrected, 'record is', 'records are')} corrected{shown}")
        if self.read_again:
            parts.append(f"{counted(self.read_again, 'image is', 'images are')} read again")
        if moved := sum(self.moved.values()):
            named = counts_in_words(self.moved, _NAMED)
            parts.append(f"{counted(moved, 'row moves', 'rows move')} ({named})")
        for count, verb in ((self.added, "added"), (self.removed, "removed")):
            if count:
                parts.append(f"{counted(count, 'row is', 'rows are')} {verb}")
        if self.shards:
            is_or_are = "is" if self.shards == 1 else "are"
            parts.append(
                f"{self.shards:,} of {counted(self.of_shards, 'shard')} "
                f"({readable_bytes(self.bytes)}) {is_or_are} written again"
            )
        return ", ".join(parts) or "nothing changes"


#: How a note begins that names what of a source's annotations the dataset does not hold.
NOT_STORED = "not stored: "

#: How a note begins that says that stated sizes decided what boxes are of.
UPRIGHT = "upright: "


@dataclass(frozen=True, kw_only=True, repr=False)
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
    def said(self) -> Document:
        """These values by name, without those that a class derived from this one adds."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(Summary)}

    @classmethod
    def of(cls, values: Document) -> Summary:
        """The summary that these JSON values are of."""
        changes = values["changes"] and Changes(**values["changes"])
        return cls(**{**values, "changes": changes, "notes": tuple(values["notes"])})


def left_out_words(there: int, removed: int) -> list[str]:
    """What to say of rows that an operation leaves out; nothing without any.

    Args:
        there: rows that the dataset has already.
        removed: rows that were removed before.

    >>> left_out_words(2, 1)[0]
    'skipped: 2 rows that are already there'
    >>> left_out_words(2, 1)[1]
    'removed before: 1 row, which stays out; an append with `readmit=True` lets it in'
    """
    words = [f"skipped: {counted(there, 'row')} that are already there"] if there else []
    if removed:
        stay, them = ("stays", "it") if removed == 1 else ("stay", "them")
        rows = f"{counted(removed, 'row')}, which {stay} out"
        lets_in = f"an append with {spelled('readmit', True)} lets {them} in"
        words.append(f"removed before: {rows}; {lets_in}")
    return words
