"""How far a conversion is and why it stopped, from its directory alone, wherever it runs.

Workers may be threads, processes, or on other machines, and Beam's runners wrap an exception in
their own ways, down to a line in a log elsewhere.  So each worker leaves on disk how many rows are
through and why it failed; the status and the progress bar read that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from tfrecorder import errors, storage
from tfrecorder.display.bars import STARTING, bar_class, instead_of_the_log, watched
from tfrecorder.display.messages import command
from tfrecorder.display.tables import Report, Table, counted, readable_bytes
from tfrecorder.errors import DatasetError, TfrecorderError, UnreachableError
from tfrecorder.format import layout
from tfrecorder.format.documents import JsonValue, parse
from tfrecorder.format.done_records import DoneRecord, add_up
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.format.summary import Changes
from tfrecorder.output.result import SplitSums
from tfrecorder.output.staging import read_all_done
from tfrecorder.output.state import DatasetState, given_directory
from tfrecorder.plan.history import CONVERTED, Holdings, holdings, holdings_words
from tfrecorder.reading.commits import Commit, all_done, commits
from tfrecorder.reading.dataset import shard_faults
from tfrecorder.reading.dataset_files import nothing_begun
from tfrecorder.reading.shard_tables import reject_counts
from tfrecorder.schema.splits import SPLITS

POLL_SECONDS = 0.25
REMOTE_POLL_SECONDS = 5

#: Seconds between two notes of a shard's progress: on a disk, and on a bucket, which refuses to
#: replace an object more often than once a second.
NOTE_SECONDS = 0.2
REMOTE_NOTE_SECONDS = 5

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


@dataclass(frozen=True, repr=False)
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
        is_aside: that dataset has columns or classes of which no file fits both, and the commit was
            killed: until the call is repeated, there is no dataset.
        damage: for a finished dataset, each shard that is missing or has the wrong size, in words.
        appends: the number of the generation that an unfinished append writes; the dataset before
            it is still there.  0 if there is none.
        streams: for each source of a stream, the position that it was read up to; for a folder,
            how many files were taken.
        origins: for a finished dataset, its records by where they came from: "conversion",
            "append", the name of a stream; "removed", below 0, for those that are gone.
        generations: how many commits it has, without those that were taken back.
        updates: how many corrected it since its conversion.
        kind: what is not finished: "conversion", "append", "stream" (a batch), "compaction",
            "update", "removal" or, for a dataset from which the newest addition is being taken
            back, "undo".
        changes: what that changes or replaces, as in its dry run and its result.
    """

    _totals = ("rows", "rows_through", "shards", "shards_done", "records", "bytes")

    output_dir: str
    committed: bool
    splits: Mapping[str, SplitStatus]
    rejects: Mapping[str, int]
    failure: str | None
    overwrites: bool = False
    is_aside: bool = False
    damage: tuple[str, ...] = ()
    appends: int = 0
    streams: Mapping[str, JsonValue] = dataclasses.field(default_factory=dict)
    origins: Mapping[str, int] = dataclasses.field(default_factory=dict)
    generations: int = 0
    updates: int = 0
    kind: str = PlanKind.CONVERSION.value
    changes: Changes | None = None

    @property
    def rows_through(self) -> int:
        return self._sum("rows_through")

    @property
    def shards_done(self) -> int:
        return self._sum("shards_done")

    def _headline(self) -> str:
        share = f" ({self.rows_through / self.rows:.1%})" if self.rows else ""
        rows = f"{self.rows_through:,} of {counted(self.rows, 'row')}{share}"
        shards = f"{self.shards_done:,} of {counted(self.shards, 'shard')} done"
        return f"{self.output_dir}: {rows}, {shards}"

    def _tables(self) -> list[Table]:
        table = [["split", "rows", "through", "shards", "done", "records", "rejects", "bytes"]]
        for name, split in self.splits.items():
            *counts, size = dataclasses.astuple(split)
            table.append([name, *(f"{count:,}" for count in counts), readable_bytes(size)])
        return [Table(table)]

    def _notes(self) -> list[str]:
        held = Holdings(self.origins, self.updates, self.generations)
        is_changed = self.updates or self.origins.keys() - {CONVERTED}
        notes = [holdings_words(held)] if is_changed else []
        notes += [
            f"stream from {name}: read up to {json.dumps(position)}"
            for name, position in self.streams.items()
        ]
        if self.rejects:
            reasons = ", ".join(f"{count:,} {why}" for why, count in self.rejects.items())
            where = f"; see {os.path.join(self.output_dir, layout.REJECTS)}"
            notes.append(f"rejects: {reasons}{where if self.committed else ''}")
        if self.damage:
            shown = "; ".join(self.damage[:_SHOWN])
            more = f"; and {len(self.damage) - _SHOWN:,} more" if self.damage[_SHOWN:] else ""
            remedy = f"`{command('repair', self.output_dir)}` restores it from the source"
            return [*notes, f"committed, but no longer whole: {shown}{more}. {remedy}"]
        if self.kind == PlanKind.UNDO.value:
            notes.append("an undo is under way, or stopped; the same undo, run again, completes it")
        if self.committed:
            return [*notes, "committed: the dataset is finished, and its shards are there"]
        if self.failure is not None:
            notes.append(f"failed: {self.failure}")
        if self.changes is not None:
            notes.append(f"{self.kind}: {self.changes.words}")
        if self.is_aside:
            notes.append("overwrite: until it is complete there is no dataset")
        elif self.overwrites:
            notes.append("overwrite: the finished dataset stays until this one takes its place")
        if self.appends:
            notes.append(
                f"{self.kind}: the finished dataset stays as it is; this is generation "
                f"{self.appends}"
            )
        untouched = not self.rows_through or self.shards_done == self.shards
        if self.kind == PlanKind.CONVERSION.value and untouched:
            commit = f"`{command('commit', self.output_dir)}`"
            state = "all shards are written; the same conversion, run again, makes them a dataset"
            parts = f"{commit} does so too"
            if not self.shards_done:
                state = "planned; the same conversion, run again, writes it"
                parts = f"on many machines, `{command('work', self.output_dir)}`, then {commit}"
            return [*notes, f"not committed: {state}; {parts}"]
        state = f"under way, or stopped; the same {self.kind}, run again, continues it"
        return [*notes, f"not committed: {state}"]


def status(directory: str | os.PathLike[str]) -> ConversionStatus:
    """The progress of a conversion, whatever runs it.  Only reads its directory.

    Args:
        directory: the output directory of a conversion, local or on a bucket.

    Returns:
        How many of the planned rows and shards are done; records, rejects and bytes so far; and
        whether the dataset is committed and still has all its shards.

    Raises:
        OptionError: directory is not a path.
        DatasetError: no conversion was started there, or its notes cannot be read.
        OutputError: another version of this package planned it.

    Example:
        >>> print(tfrecorder.status("gs://my-bucket/photos"))  # doctest: +SKIP
    """
    where = given_directory("directory", directory)
    with storage.failing_as(DatasetError, where):
        return _status(where)


def _status(output_dir: str) -> ConversionStatus:
    state = DatasetState.read(output_dir)
    if state.pending is not None and not (state.is_committed or state.undoes):
        is_aside = state.newest is not None and not state.version
        unfinished = _of_unfinished(output_dir, state.pending)
        return dataclasses.replace(unfinished, is_aside=is_aside)
    if state.newest is None:
        raise DatasetError(
            nothing_begun(output_dir)
            or f"{output_dir}: no conversion was started here: {layout.PLAN} is missing. Give the "
            "directory of a conversion."
        )
    whole = _of_committed(output_dir, state.newest)
    return dataclasses.replace(whole, kind=PlanKind.UNDO.value) if state.undoes else whole


def _of_committed(output_dir: str, newest: Commit) -> ConversionStatus:
    """All commits together, from their manifests."""
    done = all_done(commits(output_dir, newest))
    splits = _splits(done, {})
    written = {shard.file: record.bytes for shard, record in done.items()}
    return ConversionStatus(
        output_dir,
        True,
        splits,
        reject_counts(output_dir) if any(split.rejects for split in splits.values()) else {},
        None,
        damage=tuple(shard_faults(storage.sizes(output_dir), written)),
        streams=newest.dataset.positions,
        **holdings(newest.manifest)._asdict(),
    )


def _of_unfinished(output_dir: str, plan: Plan) -> ConversionStatus:
    # The notes first: a shard that is done meanwhile is counted then, rather than in neither.
    noted = read_notes(output_dir, plan.layout.shards)
    done = read_all_done(output_dir, plan.layout.shards, plan.digest)
    failure = read_failure(output_dir)
    return ConversionStatus(
        output_dir,
        False,
        _splits(done, {shard: rows for shard, (rows, _) in noted.items()}, plan.layout.split_rows),
        add_up(filter(None, done.values())).reasons,
        None if failure is None else f"{failure.error}: {failure.message}",
        overwrites=plan.rewrites,
        appends=plan.commit if plan.adds else 0,
        kind=plan.kind.value,
        changes=plan.summary.changes,
    )


def _splits(
    done: Mapping[Shard, DoneRecord | None],
    noted: Mapping[Shard, int],
    planned: Mapping[str, int] | None = None,
) -> dict[str, SplitStatus]:
    """Each split of some shards.

    Args:
        done: the done-record of each shard; None if it is not done.
        noted: the rows that workers have noted as through, of shards that are under way.
        planned: the rows of each split; None if all shards are done.
    """
    splits = {}
    for name in SPLITS:
        if not (shards := [shard for shard in done if shard.split == name]):
            continue
        records = [record for shard in shards if (record := done[shard]) is not None]
        under_way = sum(noted.get(shard, 0) for shard in shards if done[shard] is None)
        totals = add_up(records)
        rows = totals.rows if planned is None else planned[name]
        splits[name] = SplitStatus(
            rows=rows,
            rows_through=min(rows, totals.rows + under_way),
            shards=len(shards),
            shards_done=len(records),
            records=totals.records,
            rejects=totals.rejects,
            bytes=totals.bytes,
        )
    return splits


class ShardProgress:
    """How many rows of a shard are through, noted in the directory every so often.

    Args:
        is_shown: somebody looks at the notes; otherwise there are none.

    Attributes:
        rows: how many.
        is_noted: there is a note.
    """

    def __init__(
        self,
        output_dir: str,
        shard: Shard,
        is_shown: bool,
    ) -> None:
        self._output_dir = output_dir
        self._shard = shard
        pause = NOTE_SECONDS if storage.is_local(output_dir) else REMOTE_NOTE_SECONDS
        self._pause = pause if is_shown else math.inf
        self._looked = time.monotonic()
        self.rows = 0
        self.is_noted = False

    def note(self) -> None:
        """Note it, and what its worker waits for, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._looked >= self._pause:
            self._looked = now
            self.is_noted = True
            note = f"{self.rows} {_waiting()}".strip()
            storage.overwrite(self._output_dir, self._shard.progress, note)


def _waiting() -> str:
    """What this process waits for; "" if nothing."""
    return next(map(str, storage.waits()), "")


def read_notes(output_dir: str, shards: Iterable[Shard]) -> dict[Shard, tuple[int, str]]:
    """What `ShardProgress` left for shards: rows, and what is waited for, "" if nothing is.

    If a note is half written, or gone because its shard ended, no row counts as through.
    """
    names = set(storage.names(os.path.join(output_dir, layout.PROGRESS)))
    noted = [shard for shard in shards if shard.name in names]

    def read(shard: Shard) -> tuple[int, str]:
        with contextlib.suppress(storage.UnreadableError, ValueError):
            note = storage.read_bytes(os.path.join(output_dir, shard.progress)).decode()
            rows, _, waiting = note.partition(" ")
            return int(rows), waiting
        return 0, ""

    return dict(zip(noted, storage.each(read, noted, output_dir), strict=True))


def _look(
    output_dir: str,
    plan: Plan,
    shards: Collection[Shard],
) -> tuple[int, str]:
    """How far some shards of a conversion have got, from what workers leave in the directory.

    Returns:
        How many rows are through, those of done shards and those that shards under way have noted;
        and what the conversion waits for, "" if for nothing.
    """
    done = set(storage.names(os.path.join(output_dir, layout.DONE)))
    ended = {shard for shard in shards if f"{shard.name}.json" in done}
    notes = read_notes(output_dir, (shard for shard in shards if shard not in ended))
    rows = sum(map(plan.layout.shard_rows, ended)) + sum(rows for rows, _ in notes.values())
    return rows, _waiting() or next((reason for _, reason in notes.values() if reason), "")


@contextlib.contextmanager
def progress_bar(
    output_dir: str,
    plan: Plan,
    shown: bool,
    shards: Collection[Shard] | None = None,
) -> Iterator[None]:
    """Show the progress of a conversion while the block runs, and what it waits for.

    Args:
        shards: which shards; all by default.
    """
    if not shown:
        yield
        return
    pause = POLL_SECONDS if storage.is_local(output_dir) else REMOTE_POLL_SECONDS
    shards = plan.layout.shards if shards is None else shards
    total = sum(map(plan.layout.shard_rows, shards))
    start = _look(output_dir, plan, shards)[0]
    bar = bar_class()(
        total=total,
        initial=start,
        unit=" images",
        dynamic_ncols=True,
        bar_format=STARTING,  # Beam and its workers start for some seconds
    )

    def advance() -> None:
        try:
            with storage.impatient():
                rows, waiting = _look(output_dir, plan, shards)
        except (storage.UnreadableError, UnreachableError) as error:
            rows = 0
            waiting = _waiting() or str(error)
        bar.set_postfix_str(waiting, refresh=False)
        if rows > start:
            bar.bar_format = None
        # A retried bundle starts its shard again: never move the bar backwards.
        bar.update(max(0, rows - bar.n))
        bar.refresh()

    def watch(ended: threading.Event) -> None:
        while not ended.wait(pause):
            advance()

    with bar, instead_of_the_log():
        try:
            with watched(watch, "progress"):
                yield
        except BaseException:
            advance()
            raise
        # It is committed, and perhaps no longer where it was written.
        bar.bar_format = None
        bar.set_postfix_str("", refresh=False)  # what the last look saw may have waited
        bar.update(max(0, total - bar.n))


@dataclass(frozen=True)
class Failure:
    """Why a worker or the commit stopped.

    Attributes:
        error: the name of the exception's class, one of ours.
        message: its text.
        launch: which launch the worker belongs to; workers outlive a killed launcher by some
            seconds.
        shard: the shard's name; "" for the commit.
    """

    error: str
    message: str
    launch: str = ""
    shard: str = ""

    def as_error(self) -> TfrecorderError:
        return _ERRORS.get(self.error, TfrecorderError)(self.message)


#: Our errors whose message is all they are made of, by their names.
_ERRORS: dict[str, type[TfrecorderError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TfrecorderError) and name != "ValidationError"
}


def note_failure(output_dir: str, failure: Failure) -> None:
    """Leave a failure in the directory, replacing an earlier one."""
    # The note may fail for the same reason as the output, a full disk or a bucket that is away: the
    # error itself is still raised, and at once.
    storage.overwrite(output_dir, layout.FAILURE, json.dumps(asdict(failure)))


def read_failure(output_dir: str) -> Failure | None:
    """The failure that was left last; None if there is none, or its shard was done since.

    Raises:
        UnreadableError: the directory cannot be read.
    """
    path = os.path.join(output_dir, layout.FAILURE)
    note = storage.unless_missing(lambda: storage.read_bytes(path))
    try:
        failure = Failure(**parse(note or b""))
    except (TypeError, ValueError):  # missing, or cut short by a full disk or a power failure
        return None
    if not all(isinstance(value, str) for value in asdict(failure).values()):
        return None
    done = os.path.join(output_dir, layout.DONE, f"{failure.shard}.json")
    return None if failure.shard and storage.exists(done) else failure
