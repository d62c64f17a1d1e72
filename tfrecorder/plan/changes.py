"""What changes or replaces the records of a dataset did, or would do, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfrecorder.display.tables import counted, counts_in_words, readable_bytes

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
