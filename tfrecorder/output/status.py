"""How far a conversion is, read only from its directory, whatever runs it and wherever."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.display.tables import Report, Table, counted, readable_bytes
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format import layout
from tfrecorder.output.directory import exchange_begun
from tfrecorder.output.done_records import DoneRecord, add_up, read_all_done
from tfrecorder.output.failure import read_failure
from tfrecorder.output.progress import read_notes
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
class ConversionStatus(Report):
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
    def rows(self) -> int:
        return sum(split.rows for split in self.splits.values())

    @property
    def rows_through(self) -> int:
        return sum(split.rows_through for split in self.splits.values())

    @property
    def shards(self) -> int:
        return sum(split.shards for split in self.splits.values())

    @property
    def shards_done(self) -> int:
        return sum(split.shards_done for split in self.splits.values())

    @property
    def records(self) -> int:
        return sum(split.records for split in self.splits.values())

    @property
    def bytes(self) -> int:
        return sum(split.bytes for split in self.splits.values())

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values, with the totals; what `status --json` prints."""
        totals = ("rows", "rows_through", "shards", "shards_done", "records", "bytes")
        found = {**dataclasses.asdict(self), "damage": list(self.damage)}
        return {**found, **{name: getattr(self, name) for name in totals}}

    def _headline(self) -> str:
        share = f"{self.rows_through / self.rows:.1%}"
        rows = f"{self.rows_through:,} of {counted(self.rows, 'row')} ({share})"
        shards = f"{self.shards_done:,} of {counted(self.shards, 'shard')} done"
        return f"{self.output_dir}: {rows}, {shards}"

    def _tables(self) -> list[Table]:
        table = [["split", "rows", "through", "shards", "done", "records", "rejects", "bytes"]]
        for name, split in self.splits.items():
            counts = [split.rows, split.rows_through, split.shards, split.shards_done]
            counts += [split.records, split.rejects]
            size = readable_bytes(split.bytes)
            table.append([name, *(f"{count:,}" for count in counts), size])
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
            words = f"all shards are written; {commit} makes them a dataset"
            if not self.shards_done:
                work = f"`{command('work', self.output_dir)}`"
                words = f"planned; no shard is written yet. {work} writes them, then {commit}"
            return [*notes, f"not committed: {words}. The same conversion, run again, does so too"]
        words = f"under way, or stopped; the same {self.kind}, run again, continues it"
        return [*notes, f"not committed: {words}"]


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
    files = STORED_FILES
    sizes = files.sizes(output_dir)
    plan = read_plan(output_dir)
    if plan is None and own_metadata(output_dir, sizes, files) is None:
        raise DatasetError(
            f"{output_dir}: no conversion was started here: {layout.PLAN} is missing. Give the "
            "output_dir of a conversion."
        )
    following = layout.next_of(output_dir)
    new = read_plan(following)
    if layout.COMMIT in sizes:
        if new is None:
            return _of_generations(output_dir)
        found = _of_unfinished(following, new)
        return dataclasses.replace(found, output_dir=output_dir, overwrites=True)
    if plan is not None and not exchange_begun(output_dir):
        return _of_unfinished(output_dir, plan)
    waits = storage.exists(os.path.join(following, layout.METADATA))
    found = _of_committed(following if waits else output_dir)
    return dataclasses.replace(found, output_dir=output_dir, committed=False, damage=())


def _of_generations(output_dir: str) -> ConversionStatus:
    """All committed generations together; or the append under way, if there is one."""
    every = committed_directories(output_dir)
    unfinished = layout.generation_of(output_dir, len(every))
    if (new := read_plan(unfinished)) is not None:
        found = _of_unfinished(unfinished, new)
        return dataclasses.replace(found, output_dir=output_dir, appends=len(every))
    found = _of_committed(output_dir)
    for number, directory in enumerate(every[1:], 1):
        one = _of_committed(directory)
        folder = layout.generation_of("", number)
        damage = tuple(os.path.join(folder, words) for words in one.damage)
        found = dataclasses.replace(
            found,
            splits=_added(found.splits, one.splits),
            rejects=Counter(found.rejects) + Counter(one.rejects),
            damage=found.damage + damage,
            streams={**found.streams, **one.streams},
        )
    return dataclasses.replace(found, rejects=dict(found.rejects))


def _added(
    splits: Mapping[str, SplitStatus], more: Mapping[str, SplitStatus]
) -> dict[str, SplitStatus]:
    def both(name: str) -> SplitStatus:
        pairs = [dataclasses.astuple(one[name]) for one in (splits, more) if name in one]
        return SplitStatus(*map(sum, zip(*pairs, strict=True)))

    return {name: both(name) for name in SPLITS if name in splits or name in more}


def _of_committed(output_dir: str) -> ConversionStatus:
    """From the metadata: one file, instead of one for each shard."""
    known = read_metadata(output_dir, STORED_FILES)
    splits = {}
    for name, rows in known["split_rows"].items():
        shards = [shard for shard in known["shards"] if shard["split"] == name]
        records = sum(shard["records"] for shard in shards)
        splits[name] = SplitStatus(
            rows=rows,
            rows_through=rows,
            shards=len(shards),
            shards_done=len(shards),
            records=records,
            rejects=rows - records,
            bytes=sum(shard["bytes"] for shard in shards),
        )
    sizes = storage.sizes(output_dir)
    damage = shard_faults(sizes, {shard["file"]: shard["bytes"] for shard in known["shards"]})
    reasons = known["totals"]["reasons"]
    streams = {name: one["to"] for name, one in known.get("streams", {}).items()}
    return ConversionStatus(
        output_dir, True, splits, reasons, None, damage=tuple(damage), streams=streams
    )


def _of_unfinished(output_dir: str, plan: Plan) -> ConversionStatus:
    # The notes first: a shard that is done meanwhile is counted then, rather than in neither.
    noted = read_notes(output_dir, plan.shards)
    found = read_all_done(output_dir, plan.shards, plan.digest)
    done = {shard: one for shard, one in found.items() if one is not None}
    splits = {}
    for name, rows in plan.split_rows.items():
        of_split = [one for shard, one in done.items() if shard.split == name]
        pending = [shard for shard in noted if shard.split == name and shard not in done]
        under_way = sum(noted[shard][0] for shard in pending)
        splits[name] = _split_status(rows, plan.split_shards[name], of_split, under_way)
    failure = read_failure(output_dir)
    words = None if failure is None else f"{failure.error}: {failure.message}"
    reasons = add_up(done.values()).reasons
    kind = plan.kind.value
    return ConversionStatus(output_dir, False, splits, reasons, words, kind=kind)


def _split_status(rows: int, shards: int, done: list[DoneRecord], under_way: int) -> SplitStatus:
    totals = add_up(done)
    return SplitStatus(
        rows=rows,
        rows_through=min(rows, totals.rows + under_way),
        shards=shards,
        shards_done=len(done),
        records=totals.records,
        rejects=totals.rejects,
        bytes=totals.bytes,
    )
