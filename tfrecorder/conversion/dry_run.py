"""What a job would write, before it writes it: what `--dry-run` shows."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfrecorder import storage
from tfrecorder.conversion.operation import Operation
from tfrecorder.conversion.staged import find_or_begin
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.display.tables import (
    Report,
    Table,
    class_words,
    counted,
    passed_over_words,
    readable_bytes,
)
from tfrecorder.errors import OutputError
from tfrecorder.format.plan import Plan
from tfrecorder.format.summary import Summary, left_out_words
from tfrecorder.output.directory import refuse_foreign
from tfrecorder.output.result import ConversionResult
from tfrecorder.plan.make_plan import RECORD_OVERHEAD
from tfrecorder.schema.fields import class_field
from tfrecorder.validation.report import ValidationReport, problems


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


@dataclass(frozen=True, kw_only=True, repr=False)
class DryRun(Summary, Report):
    """What a job would write, and what it says of itself in the words of its result.

    Attributes:
        output_dir: the dataset directory, as it was given.
        splits: by name, TRAIN first.
        class_names: by integer; for integer labels the numbers as text; None without labels.
        pending: for a job that was begun, the shards still to write; None if it is new.
        verb: "conversion", "append" or "compaction".
        report: what `tfrecorder.validate` says; None if no source was checked.
        free: bytes that the disk of the directory has left; None if that is not known.
        nothing: for an append without a new row, what there is instead, in words.
    """

    output_dir: str
    splits: dict[str, PlannedSplit]
    class_names: tuple[str, ...] | None
    pending: int | None
    verb: str
    report: ValidationReport | None = None
    free: int | None = None
    nothing: str = ""

    def _values(self) -> Mapping[str, object]:
        return {
            "dry_run": True,
            "output_dir": self.output_dir,
            "splits": {name: dataclasses.asdict(split) for name, split in self.splits.items()},
            "class_names": self.class_names,
            "pending_shards": self.pending,
            "free_bytes": self.free,
            **dataclasses.asdict(Summary(**self.said)),
            "problems": [] if self.report is None else problems(self.report),
        }

    def _headline(self) -> str:
        rows = counted(sum(split.rows for split in self.splits.values()), "row")
        if self.changes is not None and not self.pending:
            return f"dry run: {self.output_dir}: {self.changes.words}; nothing was written"
        if self.nothing:
            return f"dry run: {self.output_dir}: {self.nothing}"
        if self.pending is None:
            how = "be added" if self.verb == "append" else "go"
            return f"dry run: {rows} would {how} to {self.output_dir}; nothing was written"
        if not self.pending:
            return f"dry run: {self.output_dir} is finished; nothing would be written"
        shards = sum(split.shards for split in self.splits.values())
        return (
            f"dry run: the {self.verb} in {self.output_dir} would continue with {self.pending:,} "
            f"of {counted(shards, 'shard')}; nothing was written"
        )

    def _tables(self) -> list[Table]:
        if not self.splits or self.verb in ("update", "removal"):  # not of rows alone
            return []
        table = [["split", "rows", "shards", "bytes"]]
        for name, split in self.splits.items():
            size = "unknown" if split.bytes is None else f"about {readable_bytes(split.bytes)}"
            table.append([name, f"{split.rows:,}", f"{split.shards:,}", size])
        return [Table(table)]

    def _notes(self) -> list[str]:
        notes = left_out_words(self.rows_there if self.splits else 0, self.removed)
        if self.class_names is not None:
            notes.append(f"classes: {class_words(self.class_names)}")
        if words := passed_over_words(self.passed_over):
            notes.append(words)
        notes += self.notes
        size = sum(split.bytes or 0 for split in self.splits.values())
        if self.pending is None and self.free is not None and size > self.free:
            notes.append(
                f"the disk has too little room: {readable_bytes(self.free)} are free, about "
                f"{readable_bytes(size)} would be written; free some, or choose another directory"
            )
        if self.report is not None and len(self.report):
            notes.append("\n".join(self.report.lines_of_groups()))
        return notes


def try_out(operation: Operation) -> DryRun:
    """What an operation would write, after the same checks; nothing is written.

    Raises:
        TfrecorderError: what the operation raises before its launch.
    """
    with operation.accessing():
        state = operation.look()
        with stage_line(is_shown(operation.options.progress)) as say:
            planned = operation.plan(state, say)
        if isinstance(planned, ConversionResult):  # there is nothing to write
            return DryRun(
                output_dir=operation.path,
                splits={},
                class_names=planned.class_names,
                pending=0,
                verb=operation.verb,
                nothing="" if planned.splits else planned.there,
                **planned.said,
            )
        with storage.failing_as(OutputError, state.where):
            refuse_foreign(state)
            staged, plan, pending = find_or_begin(planned, state)
        sizes = () if planned.options.transforms else planned.sizes
        planned.check_images()
        labels = class_field(plan.fields)
        return DryRun(
            output_dir=operation.path,
            splits=_splits(plan, sizes),
            class_names=labels.class_names if labels else None,
            pending=None if staged is None else len(pending),
            verb=operation.verb,
            report=planned.report,
            free=_free_bytes(state.where),
            **plan.summary.said,
        )


def _splits(plan: Plan, sizes: Sequence[float]) -> dict[str, PlannedSplit]:
    """What each split of a plan would be, by the file sizes in bytes of some of its images."""
    row_bytes = float(np.mean(sizes)) + RECORD_OVERHEAD if sizes else None
    return {
        split: PlannedSplit(
            rows=rows,
            shards=plan.layout.split_shards[split],
            bytes=None if row_bytes is None else round(rows * row_bytes),
        )
        for split, rows in plan.layout.split_rows.items()
    }


def _free_bytes(where: str) -> int | None:
    """What the disk of a directory, which may not be there yet, has left; None for a bucket."""
    if not storage.is_local(where):
        return None
    while not os.path.exists(where):
        where = os.path.dirname(where)
    return shutil.disk_usage(where).free
