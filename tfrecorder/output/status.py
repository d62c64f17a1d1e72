"""How far a conversion is, read only from its directory, whatever runs it and wherever."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.display.tables import Report, Table, counted, readable_bytes
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format import layout
from tfrecorder.output.directory import exchange_begun
from tfrecorder.output.done_records import add_up, read_all_done
from tfrecorder.output.failure import read_failure
from tfrecorder.output.progress import read_notes
from tfrecorder.output.result import SplitSums, split_results
from tfrecorder.output.staging import read_plan
from tfrecorder.plan.plan import Plan, PlanKind
from tfrecorder.reading.dataset import shard_faults
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.generations import committed_directories, own_metadata, read_metadata
from tfrecorder.schema.splits import SPLITS

#: How many damaged shards the printed status names.
_SHOWN = 5


@dataclass(frozen=True)
class SplitStatus:
    """One split of a conversion.

    Attributes:
        rows: planned.
        rows_through: rows that are records or rejects by now, as far as workers have reported.
        shards: planned.
        shards_done: complete under their final names.
        records: in these shards.
        rejects: rejected rows of these shards.
        bytes: the size of these shards.
    """

    rows: int
    rows_through: int
    shards: int
    shards_done: int
    records: int
    rejects: int
    bytes: int


@dataclass(frozen=True)
class ConversionStatus(SplitSums, Report):
    """The progress of a conversion.

    Attributes:
        output_dir: the dataset directory.
        committed: the dataset is finished.
        splits: by name, TRAIN first.
        rejects: rejected rows of the done shards by "stage/code".
        failure: why the conversion last stopped; None if nothing was noted, or if what had failed
            was done since.
        overwrites: True for an overwrite that is not finished; the old dataset is still there.
        damage: for a finished dataset, each shard that is missing or has the wrong size, in words.
        appends: the number of the generation that an unfinished append writes; the dataset before
            it is still there.  0 if there is none.
        streams: for each source of a stream, the position that it was read up to; for a folder,
            how many files were taken.
        kind: what is not finished: "conversion", "append", "stream" (a batch) or "compaction".
    """

    output_dir: str
    committed: bool
    splits: Mapping[str, SplitStatus]
    rejects: Mapping[str, int]
    failure: str | None
    overwrites: bool = False
    damage: tuple[str, ...] = ()
    appends: int = 0
    streams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    kind: str = PlanKind.CONVERSION.value

    @property
    def rows_through(self) -> int:
        return sum(split.rows_through for split in self.splits.values())

    @property
    def shards_done(self) -> int:
        return sum(split.shards_done for split in self.splits.values())

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values, with the totals; what `status --json` prints."""
        totals = ("rows", "rows_through", "shards", "shards_done", "records", "bytes")
        values = {**dataclasses.asdict(self), "damage": list(self.damage)}
        return {**values, **{name: getattr(self, name) for name in totals}}

    def _headline(self) -> str:
        share = f"{self.rows_through / self.rows:.1%}"
        rows = f"{self.rows_through:,} of {counted(self.rows, 'row')} ({share})"
        shards = f"{self.shards_done:,} of {counted(self.shards, 'shard')} done"
        return f"{self.output_dir}: {rows}, {shards}"

    def _tables(self) -> list[Table]:
        table = [["split", "rows", "through", "shards", "done", "records", "rejects", "bytes"]]
        for name, split in self.splits.items():
            *counts, size = dataclasses.astuple(split)
            table.append([name, *(f"{count:,}" for count in counts), readable_bytes(size)])
        return [Table(table)]

    def _notes(self) -> list[str]:
        notes = [
            f"stream from {name}: read up to {json.dumps(position)}"
            for name, position in self.streams.items()
        ]
        if self.rejects:
            reasons = ", ".join(f"{count:,} {why}" for why, count in self.rejects.items())
            lists = layout.REJECTS if self.committed else layout.SHARD_REJECTS
            folder = layout.generation_of(self.output_dir, self.appends)
            folder = layout.next_of(folder) if self.overwrites else folder
            notes.append(f"rejects: {reasons}; see {os.path.join(folder, lists)}")
        if self.damage:
            shown = "; ".join(self.damage[:_SHOWN])
            more = f"; and {len(self.damage) - _SHOWN:,} more" if self.damage[_SHOWN:] else ""
            remedy = f"`{command('repair', self.output_dir)}` restores it from the source"
            return [*notes, f"committed, but no longer whole: {shown}{more}. {remedy}"]
        if self.committed:
            return [*notes, "committed: the dataset is finished, and its shards are there"]
        if self.failure is not None:
            notes.append(f"failed: {self.failure}")
        if self.overwrites:
            notes.append("overwrite: the finished dataset stays until this one takes its place")
        if self.appends:
            notes.append(
                f"{self.kind}: the finished dataset stays as it is; this is generation "
                f"{self.appends}"
            )
        untouched = not self.rows_through or self.shards_done == self.shards
        if self.kind == PlanKind.CONVERSION.value and untouched:
            commit = f"`{command('commit', self.output_dir)}`"
            state = f"all shards are written; {commit} makes them a dataset"
            if not self.shards_done:
                work = f"`{command('work', self.output_dir)}`"
                state = f"planned; no shard is written yet. {work} writes them, then {commit}"
            return [*notes, f"not committed: {state}. The same conversion, run again, does so too"]
        state = f"under way, or stopped; the same {self.kind}, run again, continues it"
        return [*notes, f"not committed: {state}"]


def status(output_dir: str | os.PathLike[str]) -> ConversionStatus:
    """The progress of a conversion, whatever runs it.  Only reads its directory.

    Args:
        output_dir: the output directory of a conversion, local or on a bucket.

    Returns:
        How many of the planned rows and shards are done; records, rejects and bytes so far; and
        whether the dataset is committed and still has all its shards.

    Raises:
        OptionError: output_dir is not a path.
        DatasetError: no conversion was started there, or its notes cannot be read.
        OutputError: another version of this package planned it.

    Example:
        >>> print(tfrecorder.status("gs://my-bucket/flowers"))  # doctest: +SKIP
    """
    if not isinstance(output_dir, (str, os.PathLike)) or not os.fspath(output_dir):
        raise OptionError.of("output_dir", output_dir, "give the directory of a conversion.")
    where = storage.given_path(output_dir)
    with storage.failing_as(DatasetError, where):
        return _status(where)


def _status(output_dir: str) -> ConversionStatus:
    sizes = STORED_FILES.sizes(output_dir)
    plan = read_plan(output_dir)
    if plan is None and own_metadata(output_dir, sizes, STORED_FILES) is None:
        raise DatasetError(
            f"{output_dir}: no conversion was started here: {layout.PLAN} is missing. Give the "
            "`output_dir` of a conversion."
        )
    next_dir = layout.next_of(output_dir)
    new = read_plan(next_dir)
    if layout.COMMIT in sizes:
        if new is None:
            return _of_generations(output_dir)
        status = _of_unfinished(next_dir, new)
        return dataclasses.replace(status, output_dir=output_dir, overwrites=True)
    if plan is not None and not exchange_begun(output_dir):
        return _of_unfinished(output_dir, plan)
    waits = storage.exists(os.path.join(next_dir, layout.METADATA))
    status = _of_committed(next_dir if waits else output_dir)
    return dataclasses.replace(status, output_dir=output_dir, committed=False, damage=())


def _of_generations(output_dir: str) -> ConversionStatus:
    """All committed generations together; or the append under way, if there is one."""
    directories = committed_directories(output_dir)
    unfinished = layout.generation_of(output_dir, len(directories))
    if (new := read_plan(unfinished)) is not None:
        status = _of_unfinished(unfinished, new)
        return dataclasses.replace(status, output_dir=output_dir, appends=len(directories))
    generations = list(map(_of_committed, directories))
    rejects: Counter[str] = Counter()
    damage: list[str] = []
    streams: dict[str, Any] = {}
    for number, generation in enumerate(generations):
        folder = layout.generation_of("", number)
        damage += [os.path.join(folder, fault) for fault in generation.damage]
        rejects.update(generation.rejects)
        streams |= generation.streams
    splits = _added([generation.splits for generation in generations])
    return ConversionStatus(
        output_dir, True, splits, dict(rejects), None, damage=tuple(damage), streams=streams
    )


def _added(generations: Sequence[Mapping[str, SplitStatus]]) -> dict[str, SplitStatus]:
    sums = {}
    for name in SPLITS:
        counts = [dataclasses.astuple(splits[name]) for splits in generations if name in splits]
        if counts:
            sums[name] = SplitStatus(*map(sum, zip(*counts, strict=True)))
    return sums


def _of_committed(output_dir: str) -> ConversionStatus:
    """From the metadata: one file, instead of one for each shard."""
    metadata = read_metadata(output_dir, STORED_FILES)
    splits = {
        name: SplitStatus(
            **dataclasses.asdict(split),
            rows_through=split.rows,
            shards_done=split.shards,
            rejects=split.rejects,
        )
        for name, split in split_results(metadata).items()
    }
    sizes = {shard["file"]: shard["bytes"] for shard in metadata["shards"]}
    damage = tuple(shard_faults(storage.sizes(output_dir), sizes))
    reasons = metadata["totals"]["reasons"]
    streams = {name: stream["to"] for name, stream in metadata.get("streams", {}).items()}
    return ConversionStatus(output_dir, True, splits, reasons, None, damage=damage, streams=streams)


def _of_unfinished(output_dir: str, plan: Plan) -> ConversionStatus:
    # The notes first: a shard that is done meanwhile is counted then, rather than in neither.
    noted = read_notes(output_dir, plan.shards)
    done = read_all_done(output_dir, plan.shards, plan.digest)
    splits = {}
    for name, rows in plan.split_rows.items():
        shards = [shard for shard in plan.shards if shard.split == name]
        records = [record for shard in shards if (record := done[shard]) is not None]
        pending = [shard for shard in shards if done[shard] is None and shard in noted]
        totals, under_way = add_up(records), sum(noted[shard][0] for shard in pending)
        splits[name] = SplitStatus(
            rows=rows,
            rows_through=min(rows, totals.rows + under_way),
            shards=len(shards),
            shards_done=len(records),
            records=totals.records,
            rejects=totals.rejects,
            bytes=totals.bytes,
        )
    failure = read_failure(output_dir)
    reason = None if failure is None else f"{failure.error}: {failure.message}"
    reasons = add_up(filter(None, done.values())).reasons
    kind = plan.kind.value
    return ConversionStatus(output_dir, False, splits, reasons, reason, kind=kind)
