"""What a conversion would write, before it writes it: what `tfrecorder convert --dry-run` shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfrecorder.display.tables import (
    Report,
    Table,
    class_words,
    counted,
    passed_over_words,
    readable_bytes,
)
from tfrecorder.plan.plan import RECORD_OVERHEAD, Plan
from tfrecorder.schema.fields import class_field
from tfrecorder.validation.report import (
    ValidationReport,
    count_warnings,
    problems,
    summarize,
)


@dataclass(frozen=True)
class PlannedSplit:
    """One split of a conversion that was not made.

    Attributes:
        rows: how many would be written.
        shards: how many files.
        bytes: the size of these files, estimated from the sizes of at most 1,000 images; None if it
            is not known, because the images would be encoded again.
    """

    rows: int
    shards: int
    bytes: int | None


@dataclass(frozen=True)
class DryRun(Report):
    """What a conversion would write.

    Attributes:
        output_dir: the dataset directory, as it was given.
        splits: by name, TRAIN first.
        class_names: by integer; for integer labels the numbers as text; None without labels.
        pending: for a conversion that was begun, the shards still to write; None if it is new.
        passed_over: for a folder source, the files that made no row, by kind.
        report: what `tfrecorder.validate` says.
        free: bytes that the disk of the directory has left; None if that is not known.
    """

    output_dir: str
    splits: dict[str, PlannedSplit]
    class_names: tuple[str, ...] | None
    pending: int | None
    passed_over: Mapping[str, int]
    report: ValidationReport
    free: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "dry_run": True,
            "output_dir": self.output_dir,
            "splits": {name: dataclasses.asdict(split) for name, split in self.splits.items()},
            "class_names": None if self.class_names is None else list(self.class_names),
            "pending_shards": self.pending,
            "passed_over": dict(self.passed_over),
            "free_bytes": self.free,
            "notes": list(self.report.notes),
            "warnings": count_warnings(self.report),
            "problems": problems(self.report),
        }

    def _headline(self) -> str:
        rows = counted(sum(split.rows for split in self.splits.values()), "row")
        if self.pending is None:
            return f"dry run: {rows} would go to {self.output_dir}; nothing was written"
        if not self.pending:
            return f"dry run: {self.output_dir} is finished; nothing would be written"
        shards = sum(split.shards for split in self.splits.values())
        return (
            f"dry run: the conversion in {self.output_dir} would continue with {self.pending:,} of "
            f"{counted(shards, 'shard')}; nothing was written"
        )

    def _tables(self) -> list[Table]:
        table = [["split", "rows", "shards", "bytes"]]
        for name, split in self.splits.items():
            size = "unknown" if split.bytes is None else f"about {readable_bytes(split.bytes)}"
            table.append([name, f"{split.rows:,}", f"{split.shards:,}", size])
        return [Table(table)]

    def _notes(self) -> list[str]:
        notes = [] if self.class_names is None else [class_words(self.class_names)]
        if words := passed_over_words(self.passed_over):
            notes.append(words)
        notes += self.report.notes
        size = sum(split.bytes or 0 for split in self.splits.values())
        if self.pending is None and self.free is not None and size > self.free:
            notes.append(
                f"the disk has too little room: {readable_bytes(self.free)} are free, about "
                f"{readable_bytes(size)} would be written; free some, or choose another directory"
            )
        found = summarize(self.report, shell=True, lines=self.report.lines)
        return [*notes, found] if len(self.report) else notes


def estimate(
    plan: Plan,
    *,
    output_dir: str,
    sizes: Sequence[int] | None,
    pending: int | None,
    report: ValidationReport,
    passed_over: Mapping[str, int],
    free: int | None,
) -> DryRun:
    """What a plan would write.

    Args:
        sizes: file sizes in bytes of some of the images; None if they do not matter.
        pending: for a plan that is already staged, its shards that are not done.
        free: as in `DryRun`.
    """
    row_bytes = None if not sizes else float(np.mean(sizes)) + RECORD_OVERHEAD
    splits = {
        name: PlannedSplit(
            rows=rows,
            shards=plan.split_shards[name],
            bytes=None if row_bytes is None else round(rows * row_bytes),
        )
        for name, rows in plan.split_rows.items()
    }
    labels = class_field(plan.fields)
    names = labels.class_names if labels else None
    return DryRun(output_dir, splits, names, pending, passed_over, report, free)
