"""The dataset that a stream is written to: its generations, and the batch that comes next."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfrecorder import storage
from tfrecorder.conversion.inherited_options import inherited_options
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, OutputError, SourceError
from tfrecorder.format import layout
from tfrecorder.format.plan_columns import OF_PLAN_ALONE, spool_columns
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import clear, reopen
from tfrecorder.output.done_records import read_all_done
from tfrecorder.output.spool import Spool, clear_spools, is_whole, remove_spool
from tfrecorder.output.staging import read_plan, stage_plan
from tfrecorder.plan.plan import Plan, PlanKind
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.generations import Generation, before_next, read_metadata
from tfrecorder.reading.open import open_generations
from tfrecorder.reading.plan_rows import read_planned
from tfrecorder.reading.stream_positions import position_of, positions_in
from tfrecorder.schema.fields import from_json
from tfrecorder.schema.keys import SOURCE_ID, URI_COLUMN
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.streaming.batch import Batch
from tfrecorder.streaming.micro_batch import Target, plan_batch
from tfrecorder.streaming.reached import Reached, reached, saved
from tfrecorder.streaming.stream_source import OpenedSource
from tfrecorder.writing.worker import Task, finish, write_here


@dataclass
class StreamedDataset:
    """A dataset that batches of a stream are added to; only one may exist for it at a time.

    Attributes:
        where: its directory, which need not exist yet.
        source: the stream's source.
        given: options about the records, by name.
        generations: oldest first.
        reached: how far the source was read, rows of the current batch included.
        committed, rows, records, rejects: counts for the generations committed since it was opened.
    """

    where: str
    source: OpenedSource
    given: dict[str, Any]
    generations: list[Generation]
    reached: Reached
    committed: int = 0
    rows: int = 0
    records: int = 0
    rejects: Counter[str] = field(default_factory=Counter)

    @property
    def counts(self) -> str:
        """What was committed since it was opened, in words."""
        return f"{counted(self.rows, 'row')} in {counted(self.committed, 'generation')}"

    @property
    def options(self) -> ConvertOptions:
        """The options that were given, and for all others those of the dataset.

        Raises:
            OptionError: an option does not fit the dataset.
        """
        if not self.generations:
            return ConvertOptions.of(self.given)
        return inherited_options(self.where, self.generations, self.given)

    @property
    def _number(self) -> int:
        """The number of the generation that comes next."""
        return len(self.generations)

    @property
    def _folder(self) -> str:
        return layout.generation_of(self.where, self._number)

    def new_batch(self) -> Batch:
        options = self.options
        schema, columns = options.schema, options.columns or {}
        ours = [URI_COLUMN] if schema is None else [*schema.of(Image), *schema.of(Mask)]
        theirs = {name: given for given, name in columns.items()}
        named = [theirs.get(name, name) for name in ours]
        return Batch(Spool(self._folder), self._number, named, self.source.base)

    def add(self, batch: Batch, cells: Mapping[str, Any], position: Any) -> None:
        """Add a row to a batch; from here on the source is read behind this row.

        Called again with the same row after an outage, it continues where it stopped.

        Raises:
            SourceError: the row is not a dict, or its position cannot be saved.
            OSError: an image cannot be spooled.
            UnreachableError: a disk or a service was away for more than two minutes.
        """
        if not isinstance(cells, Mapping):
            raise SourceError(
                f"source {self.source.name} gave a row that is not a dict of columns: {cells!r}."
            )
        batch.add(cells, saved(self.source, position))
        self.reached.add(position)

    def stage(self, batch: Batch) -> str | None:
        """Stage the plan of a batch, which claims the next number.

        Returns:
            None; or if it has no row that could begin a dataset, what is wrong with the first.

        Raises:
            OutputError: another stream or append has written that generation in the meantime.
        """
        name, base = self.source.name, self.source.base or os.getcwd()
        read = {"from": position_of(self.generations, name), "to": self.reached.noted()}
        size = batch.mean_bytes(base)
        made = plan_batch(batch.rows, self._target(), self.options, base, name, {name: read}, size)
        if isinstance(made, str):
            return made
        plan, planned = made
        spooled = batch.spool.images  # including those of rows planned as rejects
        remote = plan.remote or (spooled > 0 and not storage.is_local(self.where))
        plan = dataclasses.replace(plan, spooled=spooled, remote=remote)
        batch.spool.flush()
        staged = read_plan(self._folder)
        if staged is None:
            stage_plan(plan, planned, self._folder)
        elif staged.digest != plan.digest:  # else it was staged, and only the answer was lost
            raise OutputError(
                f"{self._folder} is being written by another stream or append. Let only one write "
                "there at a time; to continue this stream, start it again."
            )
        return None

    def complete(self) -> bool:
        """Write and commit the batch that is staged.

        False if none is, if its spool is gone, or if a file of it was replaced.

        Called again after an outage, it continues where it stopped.

        Raises:
            OutputError: what is staged there is not from a stream; or it cannot be written.
            UnreachableError: a disk or a service was away for more than two minutes.
        """
        folder, number = self._folder, self._number
        plan = read_plan(folder)
        if plan is None:
            return False
        if plan.kind is not PlanKind.BATCH:
            verb = "append" if number else "conversion"
            raise OutputError(
                f"{folder} holds an unfinished {verb}: complete it with the same {verb}, or remove "
                "that folder to abandon it."
            )
        is_committed = storage.exists(os.path.join(folder, layout.COMMIT))
        if not (is_committed or self._write(folder, plan)):
            # Its rows are read again: only a commit makes positions count.
            clear(folder, keep_spool=True)
            return False
        remove_spool(folder)
        self._count()  # last: another attempt after an outage must find the same generation
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

    def _write(self, folder: str, plan: Plan) -> bool:
        """Write what is staged, and commit it; False if that cannot be, as in `complete`."""
        if not is_whole(folder, plan.spooled):
            return False
        done = read_all_done(folder, plan.shards, plan.digest)
        pending = [shard for shard, record in done.items() if record is None]
        plan = reopen(folder, plan, plan.base, pending)
        written = write_here(folder, plan, pending, self.options)
        if any(map(self.source.replaced, positions_in(folder, self.source.name))):
            return False
        # Many bad images in a batch say nothing about those still to come.
        finish(Task(folder, plan.digest), [*filter(None, done.values()), *written], 1.0)
        return True

    def _count(self) -> None:
        """Note the generation that was just committed."""
        files, folder = STORED_FILES, self._folder
        metadata = read_metadata(folder, files)
        self.generations.append(Generation(self._number, folder, files.sizes(folder), metadata))
        totals = metadata["totals"]
        self.committed += 1
        self.rows += totals["rows"]
        self.records += totals["records"]
        self.rejects.update(totals["reasons"])

    def _target(self) -> Target:
        if not self.generations:
            return Target(self.where, (), {}, None)
        newest = self.generations[-1]
        fields = from_json(newest.metadata["fields"])
        return Target(self.where, fields, _types(newest.directory), before_next(newest.metadata))


def open_streamed(where: str, source: OpenedSource, given: dict[str, Any]) -> StreamedDataset:
    """The dataset of a stream, as an earlier call left it: a batch that was staged is committed.

    Args:
        where, source, given: as in `StreamedDataset`.

    Raises:
        DatasetError: what is there is damaged, or another tool wrote it.
        OutputError: a conversion or an append was begun there and not finished.
        OptionError: an option does not fit the dataset.
    """
    generations = _generations(where)
    dataset = StreamedDataset(where, source, given, generations, reached(source, generations))
    if dataset.complete():
        dataset.reached = reached(source, dataset.generations)
    clear_spools(where)
    return dataset


def _generations(where: str) -> list[Generation]:
    if not storage.exists(os.path.join(where, layout.COMMIT)):
        return []
    generations = open_generations(where, STORED_FILES)[1]
    if not generations:
        raise DatasetError(
            f"{where} was not written by tfrecorder, which adds only to its own datasets."
        )
    return generations


def _types(directory: str) -> dict[str, Any]:
    """The type of each column that a generation was planned with, by key."""
    types: dict[str, Any] = {}

    def look(schema: Any) -> None:
        own = {SOURCE_ID, *OF_PLAN_ALONE, *spool_columns(schema.names)}
        types.update({column.name: column.type for column in schema if column.name not in own})

    read_planned(directory, look)
    return types
