"""The dataset that a stream is written to: its newest commit, and the batch that comes next.

How far the source was read is one value, whether its rows have an order or not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tfrecorder import storage
from tfrecorder.conversion.job import stage_rows
from tfrecorder.conversion.on_dataset import inherited_options, own_dataset
from tfrecorder.conversion.removal_marks import Marks, read_marks, refuse_lost_marks
from tfrecorder.conversion.staged import Staged
from tfrecorder.display.tables import counted
from tfrecorder.errors import OutputError, SourceError
from tfrecorder.format import layout
from tfrecorder.format.done_records import Counts, add_up
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import clear, reopen
from tfrecorder.output.staging import Spool, is_spool_whole
from tfrecorder.output.state import DatasetState, refuse_left
from tfrecorder.plan.preflight import ask_rights
from tfrecorder.reading.commits import Commit, read_commit
from tfrecorder.reading.merged_rows import merge_rows, position_of, positions_in, taken_positions
from tfrecorder.reading.shard_tables import types_of
from tfrecorder.runners import local_workers
from tfrecorder.schema.kinds import DEFAULT_SCHEMA, File, Image, Mask
from tfrecorder.streaming.micro_batch import Batch, MicroBatch
from tfrecorder.streaming.stream_source import Cells, OpenedSource
from tfrecorder.writing.commit import complete
from tfrecorder.writing.worker import Task, finish


@dataclass
class Reached:
    """How far a source was read.

    Attributes:
        ordered: whether the source's rows have an order.
        at: with an order, a position; without one, the positions of all rows that were read.
    """

    ordered: bool
    at: Any

    def position(self) -> Any:
        """What the source's `rows` is given; it never changes."""
        return self.at if self.ordered else frozenset(self.at)

    def noted(self) -> Any:
        """What a commit notes of it, as a JSON value."""
        return self.at if self.ordered else len(self.at)

    def add(self, position: Any) -> None:
        """From here on the source is read behind this row."""
        if self.ordered:
            self.at = position
        else:
            self.at.add(position)

    def drop(self, positions: Iterable[Any]) -> None:
        """The source gives these rows again; what has an order is never replaced."""
        if not self.ordered:
            self.at.difference_update(positions)


def reached(
    source: OpenedSource,
    where: str,
    newest: Commit | None,
) -> Reached:
    """How far a source was read by the commits of a dataset."""
    if source.ordered:
        return Reached(True, position_of(newest, source.name))
    if newest is not None:
        merge_rows(where, newest)
    return Reached(False, taken_positions(where, newest, source.name))


def saved(source: OpenedSource, position: Any) -> str:
    """A row's position as the text that is saved with the row.

    Raises:
        SourceError: after a restart, the source would get another value.
    """
    try:
        json.dumps(position, ensure_ascii=False).encode()  # half of a surrogate pair is no Unicode
        text = json.dumps(position, allow_nan=False)
        # None stands for the very beginning, and a tuple would come back as a list.
        is_kept = position is not None and json.loads(text) == position
    except (TypeError, ValueError, RecursionError):
        is_kept = False
    if source.ordered and is_kept:
        return text
    if is_kept and isinstance(position, str):
        return position
    kind = "JSON value" if source.ordered else "text"
    raise SourceError(
        f"source {source.name}: the position {position!r} is not a {kind} that comes back as it is."
    )


@dataclass
class StreamedDataset:
    """A dataset that batches of a stream are added to; only one may exist for it at a time.

    Attributes:
        where: its directory, which need not exist yet.
        source: the stream's source.
        given: options about the records, by name.
        newest: its newest commit; None before the first.
        reached: how far the source was read, rows of the current batch included.
        staged: the digest of the batch that was staged last.
        committed: how many batches were committed since it was opened.
        totals: the counts of all of these.
        readmit: rows that were removed from it before are let in.
        removed: how many such rows came, and stay out.
    """

    where: str
    source: OpenedSource
    given: dict[str, Any]
    newest: Commit | None
    reached: Reached = field(init=False)
    staged: str = ""
    committed: int = 0
    totals: Counts = field(default_factory=partial(add_up, ()))
    readmit: bool = False
    removed: int = 0
    _seen: DatasetState | None = None
    _marks: Marks | None = None
    _inherited: ConvertOptions | None = None
    _types: Mapping[str, Any] = field(default_factory=dict)

    @property
    def counts(self) -> str:
        """What was committed since it was opened, in words."""
        return f"{counted(self.totals.rows, 'row')} in {counted(self.committed, 'generation')}"

    @property
    def options(self) -> ConvertOptions:
        """The options that were given, and for all others those of the dataset.

        Raises:
            OptionError: an option does not fit the dataset.
        """
        if self.newest is None:
            return ConvertOptions.of(self.given)
        # A stream changes none of them: looked up once.
        if self._inherited is None:
            self._inherited = inherited_options(self.where, self.newest, self.given)
        return self._inherited

    def new_batch(self) -> Batch:
        schema = self.options.schema or DEFAULT_SCHEMA
        columns = self.options.columns or {}
        images = schema.of(Image, File)
        theirs = {name: given for given, name in columns.items()}
        named = [theirs.get(name, name) for name in (*images, *schema.of(Mask))]
        number = 0 if self.newest is None else self.newest.number + 1
        of_images = [theirs.get(name, name) for name in sorted(images)]
        self._marks = read_marks(self.where, self.newest) if self._marks is None else self._marks
        return Batch(
            spool=Spool(self.where),
            number=number,
            columns=named,
            base=self.source.base,
            marks=self._marks,
            images=of_images,
            readmit=self.readmit,
        )

    def add(
        self,
        batch: Batch,
        cells: Cells,
        position: Any,
    ) -> None:
        """Add a row to a batch; from here on the source is read behind this row.

        Called again with the same row after an outage, it continues where it stopped.

        Raises:
            SourceError: the row is not a dict, or its position cannot be saved.
            OSError: an image cannot be spooled.
            UnreachableError: a disk or a service was away for more than two minutes.
        """
        if not isinstance(cells, Mapping):
            raise SourceError(
                f"source {self.source.name} gave a row that is no dict of columns but a "
                f"{type(cells).__name__}."
            )
        self.removed += not batch.add(cells, saved(self.source, position))
        self.reached.add(position)

    def stage(self, batch: Batch) -> None:
        """Stage the plan of a batch, which claims the next commit.

        Raises:
            NothingSoundError: it has no row that could begin a dataset.
            OutputError: another operation is under way there.
        """
        if self.newest is not None and not self._types:
            self._types = types_of(self.where, self.newest.dataset.splits)
        operation = MicroBatch(
            path=self.where,
            source=self.source.name,
            options=self.options,
            batch=batch,
            noted=self.reached.noted(),
            base=self.source.base or os.getcwd(),
            types=self._types,
        )
        staged = stage_rows(operation, DatasetState(self.where, self.newest, "", None))
        assert isinstance(staged, Staged)
        self.staged = staged.plan.digest
        self._seen = staged.state
        if batch.came:
            self._marks = None  # others hold once it is committed

    def complete(self) -> bool:
        """Write and commit the batch that is staged.

        False if none is, if its rows, signatures or spool are gone, or if a file of it was
        replaced.

        Called again after an outage, it continues where it stopped.

        Raises:
            OutputError: what is staged there is not from a stream; or it cannot be written.
            UnreachableError: a disk or a service was away for more than two minutes.
        """
        is_new = self._seen is not None
        state = complete(self._seen or DatasetState.read(self.where, self.newest))
        refuse_left(state.left)
        self._seen = None  # of the next call, after an outage, there may be another
        plan = state.pending
        newest = state.newest
        if plan is not None:
            if plan.kind is not PlanKind.BATCH:
                kind = plan.kind.value
                raise OutputError(
                    f"{self.where} holds an unfinished {kind}: complete it with the same {kind}, "
                    "or `undo` abandons it."
                )
            self.staged = self.staged or plan.digest  # of an earlier call
            if not is_new:
                plan = reopen(self.where, plan, plan.rows.base, ())
            if not self._write(plan):
                # Its rows are read again: only a commit makes positions count.
                clear(state, keep_spool=True)
                return False
            newest = read_commit(self.where, plan.commit)
        if newest is None or newest.digest != self.staged:
            return False
        if self.newest is None or self.newest.number != newest.number:
            self.newest = newest
            self.committed += 1
            storage.access().signed.clear()  # a stream may run for months
            self.totals = add_up([self.totals, *newest.done.values()])
        return True

    def drop_replaced(self, batch: Batch) -> list[str]:
        """Leave out the rows whose files were replaced; the source gives the new files later.

        Returns:
            The names of these rows.
        """
        replaced = {
            row.position: row.name for row in batch.rows if self.source.replaced(row.position)
        }
        batch.rows = [row for row in batch.rows if row.position not in replaced]
        self.reached.drop(replaced)
        return list(replaced.values())

    def _write(self, plan: Plan) -> bool:
        """Write what is staged, and commit it; False if that cannot be, as in `complete`."""
        where = self.where
        # Without its rows an `undo` that was killed gave it up.
        has_rows = storage.exists(os.path.join(where, layout.PLAN_ROWS))
        is_known = bool(storage.access().signed) or not plan.rows.signed
        if not (has_rows and is_known and is_spool_whole(where, plan.rows.spooled)):
            return False
        done = local_workers.write(plan, where, plan.layout.shards, self.options)
        if any(map(self.source.replaced, positions_in(where, self.source.name))):
            return False
        # Many bad images in a batch say nothing about those still to come.
        finish(Task(where, plan.digest, plan.commit), done, 1.0)
        return True


def open_streamed(
    state: DatasetState,
    source: OpenedSource,
    given: dict[str, Any],
    readmit: bool,
) -> StreamedDataset:
    """The dataset of a stream, as an earlier call left it: a batch that was staged is committed.

    Args:
        state: of its directory, which is claimed.
        source, given, readmit: as in `StreamedDataset`.

    Raises:
        DatasetError: what is there is damaged, or another tool wrote it; or nobody knows which rows
            were removed.
        OutputError: a conversion or an append was begun there and not finished.
        OptionError: an option does not fit the dataset.
    """
    where = state.where
    state = complete(state)  # an undo that was killed moves the positions back
    refuse_left(state.left)
    ask_rights(where)
    newest = own_dataset(state) if state.version else None
    if newest is not None:
        refuse_lost_marks(where, newest, readmit)
    dataset = StreamedDataset(where, source, given, newest, readmit=readmit, _seen=state)
    dataset.complete()
    dataset.reached = reached(source, where, dataset.newest)
    storage.remove(where, layout.SPOOL)  # what is in it was never planned
    return dataset
