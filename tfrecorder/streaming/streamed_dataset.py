"""The dataset that a stream is written to: its generations, and how far its source was read."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfrecorder import storage
from tfrecorder.conversion.inherited_options import taken_over
from tfrecorder.display.tables import counted, escaped
from tfrecorder.errors import DatasetError, OutputError, SourceError
from tfrecorder.format import layout
from tfrecorder.format.plan_columns import OF_PLAN_ALONE, spool_columns
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import clear, reopen
from tfrecorder.output.done_records import read_all_done
from tfrecorder.output.spool import Spool, clear_spools, is_whole, remove_spool
from tfrecorder.output.staging import read_plan, stage_plan
from tfrecorder.plan.plan import Plan
from tfrecorder.reading.dataset_files import files_of
from tfrecorder.reading.generations import Generation, before_next, read_metadata
from tfrecorder.reading.open import open_generations
from tfrecorder.reading.plan_rows import read_planned
from tfrecorder.reading.stream_positions import position_of, positions_in, taken_positions
from tfrecorder.schema.fields import from_json
from tfrecorder.schema.keys import SOURCE_ID, URI_COLUMN
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.streaming.micro_batch import Row, Target, plan_batch, row_of
from tfrecorder.streaming.stream_source import StreamSource, Unusable
from tfrecorder.writing.worker import Task, Worker, finish

#: How many images have their sizes looked up to decide on the shards of an unspooled batch.
SIZED = 20


@dataclass
class Batch:
    """The rows of a batch as they come.

    Attributes:
        number: the number of the generation that it becomes.
        columns: the columns of images and masks, as the source names them.
        began: when its first row came, by `time.monotonic`.
    """

    spool: Spool
    number: int
    columns: list[str]
    began: float = field(default_factory=time.monotonic)
    rows: list[Row] = field(default_factory=list)


@dataclass
class StreamedDataset:
    """A dataset that batches of a stream are added to; only one may exist for it at a time.

    Attributes:
        where: its directory, which need not exist yet.
        source: the stream's source.
        given: options about the records, by name.
        found: its generations, oldest first.
        position: the position behind the last row added to a batch; for rows without an order, the
            set of their positions.
        committed, rows, records, rejects: counts for the generations committed since it was opened.
    """

    where: str
    source: StreamSource
    given: dict[str, Any]
    found: list[Generation]
    position: Any = None
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
        if not self.found:
            return ConvertOptions.of(self.given)
        return taken_over(self.where, self.found, self.given)

    @property
    def _ordered(self) -> bool:
        return getattr(self.source, "ordered", True)

    @property
    def _number(self) -> int:
        """The number of the generation that comes next."""
        return len(self.found)

    @property
    def _folder(self) -> str:
        return layout.generation_of(self.where, self._number)

    def new_batch(self) -> Batch:
        options = self.options
        schema, columns = options.schema, options.columns or {}
        ours = [URI_COLUMN] if schema is None else [*schema.of(Image), *schema.of(Mask)]
        theirs = {name: given for given, name in columns.items()}
        named = [theirs.get(name, name) for name in ours]
        return Batch(Spool(self._folder), self._number, named)

    @property
    def _base(self) -> str | None:
        """The folder of relative uris; None if uris are made absolute as they come."""
        return getattr(self.source, "base", None)

    def reached(self) -> Any:
        """The position that its source reads behind; the source may keep it: it never changes."""
        return self.position if self._ordered else frozenset(self.position)

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
        try:
            text = _saved(position, self._ordered)
        except (TypeError, ValueError, RecursionError) as error:
            raise SourceError(
                f"source {self.source.name}: the position {position!r} is not "
                f"{'a JSON value' if self._ordered else 'a text'}: {error}."
            ) from None
        name = f"{batch.number:05d}/{len(batch.rows):08d}"
        put = batch.spool.put
        batch.rows.append(row_of(cells, batch.columns, text, name, self._base, put))
        if self._ordered:
            self.position = position
        else:
            self.position.add(text)

    def stage(self, batch: Batch) -> str | None:
        """Stage the plan of a batch, which claims the next number.

        Returns:
            None; or if it has no row that could begin a dataset, what is wrong with the first.

        Raises:
            OutputError: another stream or append has written that generation in the meantime.
        """
        name = self.source.name
        until = self.position if self._ordered else len(self.position)
        streams = {name: {"from": position_of(self.found, name), "to": until}}
        base = self._base or os.getcwd()
        made = plan_batch(
            batch.rows,
            self._target(),
            self.options,
            base,
            name,
            streams,
            _mean_bytes(batch, base),
        )
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
        if not plan.streams:
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
        replaced = {row.position: row.name for row in batch.rows if self._is_replaced(row.position)}
        batch.rows = [row for row in batch.rows if row.position not in replaced]
        self.position.difference_update(replaced)
        return list(replaced.values())

    def _is_replaced(self, position: str) -> bool:
        return hasattr(self.source, "replaced") and self.source.replaced(position)

    def _write(self, folder: str, plan: Plan) -> bool:
        """Write what is staged, and commit it; False if that cannot be, as in `complete`."""
        if not is_whole(folder, plan.spooled):
            return False
        done = read_all_done(folder, plan.shards, plan.digest)
        pending = [at for at, shard in enumerate(plan.shards) if done[shard] is None]
        plan = reopen(folder, plan, plan.base, [plan.shards[at] for at in pending])
        task = Task(folder, plan.digest, self.options.num_threads or 0)
        written = [one.done for one in Worker(task).write(pending)]
        if any(map(self._is_replaced, positions_in(folder, self.source.name))):
            return False
        # Many bad images in a batch say nothing about those still to come.
        finish(task, [*filter(None, done.values()), *written], max_reject_fraction=1.0)
        return True

    def _count(self) -> None:
        """Note the generation that was just committed."""
        files, folder = files_of(self.where), self._folder
        metadata = read_metadata(folder, files)
        self.found.append(Generation(self._number, folder, files.sizes(folder), metadata))
        totals = metadata["totals"]
        self.committed += 1
        self.rows += totals["rows"]
        self.records += totals["records"]
        self.rejects.update(totals["reasons"])

    def _target(self) -> Target:
        if not self.found:
            return Target(self.where, (), {}, None)
        newest = self.found[-1]
        fields = from_json(newest.metadata["fields"])
        return Target(self.where, fields, _types(newest.directory), before_next(newest.metadata))


def open_streamed(where: str, source: StreamSource, given: dict[str, Any]) -> StreamedDataset:
    """The dataset of a stream, as an earlier call left it: a batch that was staged is committed.

    Args:
        where, source, given: as in `StreamedDataset`.

    Raises:
        DatasetError: what is there is damaged, or another tool wrote it.
        OutputError: a conversion or an append was begun there and not finished.
        OptionError: an option does not fit the dataset.
    """
    dataset = StreamedDataset(where, source, given, _generations(where))
    dataset.complete()
    clear_spools(where)
    ordered = getattr(source, "ordered", True)
    read = position_of if ordered else taken_positions
    dataset.position = read(dataset.found, source.name)
    return dataset


def _saved(position: Any, ordered: bool) -> str:
    """A position as the text that is saved with its row.

    Raises:
        TypeError, ValueError, RecursionError: after a restart, the source would get another value.
    """
    text = json.dumps(position, allow_nan=False)
    same = json.loads(text) if ordered else str(position)
    if position is None:
        raise ValueError("None stands for the very beginning")
    if same != position:
        raise ValueError(f"after a restart, the source would get {same!r}")
    plain = json.dumps(position, ensure_ascii=False)
    if escaped(plain) != plain:
        raise ValueError("it holds half of a surrogate pair, which is not valid Unicode")
    return text if ordered else position


def _generations(where: str) -> list[Generation]:
    if not storage.exists(os.path.join(where, layout.COMMIT)):
        return []
    found = open_generations(where, files_of(where))[1]
    if not found:
        raise DatasetError(
            f"{where} was not written by tfrecorder, which adds only to its own datasets."
        )
    return found


def _types(directory: str) -> dict[str, Any]:
    """The type of each column that a generation was planned with, by key."""
    found: dict[str, Any] = {}

    def look(schema: Any) -> None:
        own = {SOURCE_ID, *OF_PLAN_ALONE, *spool_columns(schema.names)}
        found.update({one.name: one.type for one in schema if one.name not in own})

    read_planned(directory, look)
    return found


def _mean_bytes(batch: Batch, base: str) -> float:
    """The mean size of an image of a batch."""
    spool = batch.spool
    if spool.images:
        return spool.bytes / spool.images
    uris = [row.name for row in batch.rows if not isinstance(row.cells, Unusable)][:SIZED]
    paths = [storage.resolve(uri, base) for uri in uris]
    sizes = [size for size in storage.each(storage.size_or_none, paths, base) if size]
    return sum(sizes) / len(sizes) if sizes else 0.0
