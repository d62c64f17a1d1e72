"""One shard: a worker loads and checks its images, and streams the records into its file."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import chain
from threading import Semaphore
from typing import BinaryIO

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.threads import DECODING_BYTES, Budget, cores, run_in_order, spare_bytes
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import COPY_OF, Shard, source_of
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.format.tfrecord import crc_of_data, joined_crc
from tfrecorder.output.staging import Footer, read_row_group, row_blocks
from tfrecorder.output.status import ShardProgress
from tfrecorder.schema.fields import Field, class_field, primary_image
from tfrecorder.schema.keys import NO_LABEL
from tfrecorder.schema.kinds import Label
from tfrecorder.writing.attempt import Attempt
from tfrecorder.writing.changing import (
    Rewritten,
    RowChanger,
    old_shard,
    write_again,
)
from tfrecorder.writing.outcomes import Outcomes, RecordAt
from tfrecorder.writing.rows import FileReader, KeyedImages, Loaded, Rejected, RowLoader

#: Tasks under way for each thread of the pool, images under way in all of them, and the fewest and
#: most images of one task.  With fewer images per task, threads hand over more often than they load
#: (a fifth of the time with check="header").  With more under way, an image has left the core's
#: cache by the time it is written (half as much again).
TASKS_AHEAD = 2
UNDER_WAY = 32
TASK_ROWS = (2, 8)

#: Bytes of records that may wait for their turn; while more wait, no further image is read.  A
#: worker with 2 cores and 8 GiB can spare these and `DECODING_BYTES`, whatever the images.
WAITING_BYTES = 2**28

#: Shards that a process writes at a time if the output is remote.  To start and end one takes a
#: dozen requests that wait for each other; meanwhile the other one's images are loaded.
SIDE_BY_SIDE = 2


@dataclass(frozen=True)
class Pool:
    """What the shards of one process share.

    Attributes:
        executor: its threads load images.
        threads: how many it has.
        folders: those that images were read from.
        places: limit the shards under way, and so memory and disk, however many are asked for.
        budget: memory for the images that must be decoded whole.
        waiting: bytes of records that may wait for their turn.
    """

    executor: Executor
    threads: int
    folders: storage.FoldersRead = field(default_factory=storage.FoldersRead)
    places: Semaphore = field(default_factory=lambda: Semaphore(SIDE_BY_SIDE))
    budget: Budget = field(default_factory=lambda: Budget(spare_bytes(DECODING_BYTES)))
    waiting: int = field(default_factory=lambda: spare_bytes(WAITING_BYTES))


def default_threads(plan: Plan, processes: int = 1) -> int:
    """How many threads load images in each of the worker processes of a machine.

    In all of them together, one per core; more if images are remote, because most of the time is
    then spent waiting for them.
    """
    return storage.REMOTE_THREADS if plan.rows.remote else max(1, cores() // processes)


@dataclass
class ShardWriter:
    """Writes one shard with all that belongs to it, its done-record last.

    Attributes:
        plan: the staged plan.
        group: the shard's index in `plan.layout.shards`, which is also its row group.
        pool: loads rows; its threads limit how far loading runs ahead of writing.
        progress: of the shard.
        footer: the footer of the plan's rows, from `staging.read_footer`.
        before: as `done_before` gives it.
    """

    plan: Plan
    group: int
    pool: Pool
    progress: ShardProgress
    footer: Footer | None = None
    before: Mapping[str, DoneRecord] = field(default_factory=dict)

    def write(self, attempt: Attempt) -> DoneRecord:
        """Write it, in an attempt that decides what may be replaced, since others may be under way.

        Raises:
            UnreachableError: the store or disk of an image, or of the output, is away.
            UnwantedError: nobody wants the shard any more (`threads.is_unwanted`).
            ShardDoneError, OvertakenError: as the attempt raises them.
            OSError: the output cannot be written.
        """
        plan = self.plan
        out = attempt.output_dir
        rows = read_row_group(out, self.group, self.footer)
        name = plan.unfinished(attempt.shard, storage.is_local(out))
        self._tally = Tally(plan.fields)
        self.progress.rows = 0
        with storage.publish(out, name, attempt) as file:
            self._write_records(rows, out, file)
            attempt.look_again()
            # Inside this block, because an upload of the shard is still running.
            self._tally.publish(plan, rows, attempt)
        return attempt.finish(self._tally.done_record(plan.digest, attempt.shard))

    def _write_records(
        self,
        rows: pa.Table,
        out: str,
        file: BinaryIO,
    ) -> None:
        """Write records of files, or those of older shards as they are or changed."""
        plan = self.plan
        room = self.pool.budget.room
        spool = os.path.join(out, layout.SPOOL)
        reader = FileReader(plan.rows.base, spool, self.pool.folders, self.progress)
        if not plan.copies_records:
            self._write_loaded(RowLoader(plan, room, reader), rows, file)
            return
        directory = plan.rows.base if plan.kind is PlanKind.COMPACTION else out
        changer = RowChanger(plan, directory, room, reader)
        old = old_shard(plan, rows, self.before)
        if old is None:
            self._write_loaded(changer, rows, file)
        else:
            self._tally.add_again(old.done, rows, write_again(rows, out, old, changer, file))

    def _write_loaded(
        self,
        loader: RowLoader,
        rows: pa.Table,
        file: BinaryIO,
    ) -> None:
        """Write records that are made row by row."""
        pool = self.pool
        fewest, most = TASK_ROWS
        together = min(most, max(fewest, UNDER_WAY // (TASKS_AHEAD * pool.threads)))
        self._file = file
        for block in row_blocks(rows):
            run_in_order(
                pool.executor,
                pool.threads,
                loader.load,
                self._write_rows,
                block,
                ahead=TASKS_AHEAD * pool.threads * together,
                together=together,
                weigh=_weigh,
                weight=pool.waiting,
            )

    def _write_rows(self, outcomes: list[Loaded | Rejected]) -> None:
        parts = []
        for outcome in outcomes:
            if isinstance(outcome, Loaded):
                self._tally.add_record(outcome)
                parts += outcome.parts
            else:
                self._tally.add_reject(outcome)
            self.progress.rows += 1
            self.progress.note()
        storage.write_all(self._file, *parts)


def _weigh(outcome: Loaded | Rejected) -> int:
    return outcome.size if isinstance(outcome, Loaded) else 0


#: The smallest and the largest value at each position of some tuples of integers; () if none.
Extremes = tuple[tuple[int, ...], ...]


def _widened(extremes: Extremes, values: tuple[int, ...]) -> Extremes:
    if values in extremes:  # nearly always: most data sets have few sizes
        return extremes
    low, high = extremes or (values, values)
    return tuple(map(min, low, values)), tuple(map(max, high, values))


class Tally:
    """Counts and side files of a shard under way."""

    def __init__(self, fields: Sequence[Field]) -> None:
        labels = class_field(fields)
        self._label_key = "" if labels is None else labels.label_key or ""
        self._has_one = labels is not None and isinstance(labels.kind, Label)
        image = primary_image(fields)
        self._image_key = "" if image is None else image.key
        self._hash_key = "" if image is None else source_of(image).hash
        self.retries = 0
        self.reasons: Counter[str] = Counter()
        self.formats: Counter[str] = Counter()
        self.reduced: Counter[str] = Counter()
        self.classes: Counter[int] = Counter()
        self.levels: dict[str, Counter[str]] = defaultdict(Counter)
        self.shapes: dict[str, Extremes] = {}
        self.sides: Extremes = ()
        self.records = self.suspects = self.oriented = self.input_bytes = self.fingerprints = 0
        self.bytes = 0
        self.outcomes = Outcomes(fields)
        self.beside: dict[str, int] = {}
        self.beside_bytes: dict[str, int] = {}

    def add_record(self, outcome: Loaded) -> None:
        self.records += 1
        self.retries += outcome.retries
        self.input_bytes += outcome.input_bytes
        self.fingerprints += self._has_fingerprint(outcome)
        warning = self._add_images(outcome.images) if outcome.images else ""
        if self._label_key:
            row = outcome.row
            key = self._label_key
            for number in [row.number(key)] if self._has_one else {*row.numbers(key)}:
                self.classes[number] += 1
        for column, levels in outcome.levels.items():
            self.levels[column].update(levels)
        unseen = [word for _, image in outcome.images for word in image.reduced]
        if unseen:
            self.reduced.update(unseen)
        crc = crc_of_data(outcome.parts)
        self.outcomes.add_record(
            RecordAt(outcome.row.row, self.bytes, outcome.size, warning, crc),
            unseen,
            outcome.sources,
        )
        self.bytes += outcome.size

    def _has_fingerprint(self, outcome: Loaded) -> bool:
        """Whether its first image was seen, now or when it first became a record."""
        of_file = outcome.sources.get(self._image_key)
        is_seen = of_file is not None and of_file.look is not None
        return is_seen or outcome.row.values.get(self._hash_key) is not None

    def _add_images(self, images: KeyedImages) -> str:
        """Count the images of a record; returns the warning that stands with the first."""
        first = images[0][1]
        self.formats[first.format] += 1
        self.oriented += first.orientation != 1
        self.sides = _widened(self.sides, tuple(sorted((first.height, first.width))))
        self.suspects += first.warning is not None
        for key, image in images:
            shape = (image.height, image.width, image.channels)
            self.shapes[key] = _widened(self.shapes.get(key, ()), shape)
        return first.warning or ""

    def add_reject(self, outcome: Rejected) -> None:
        reject = outcome.reject
        self.retries += outcome.retries
        self.reasons[f"{reject.stage}/{reject.code}"] += 1
        self.outcomes.add_reject(outcome.row.row, reject.stage, str(reject), outcome.sources)

    def add_again(
        self,
        old: DoneRecord,
        rows: pa.Table,
        written: Rewritten,
    ) -> None:
        """Count a shard that is written again with some other values.

        Args:
            old: its done-record.  What it says of images holds: the rows and their images are the
                same, and the bytes that were read had its checksum.
            rows: as they are planned.
            written: as `write_again` gives it.

        Raises:
            OutputError: what the table says of the records is not what was written.
        """
        if joined_crc(written.crcs, written.sizes) != written.crc:
            raise OutputError(
                f"{old.shard}: the checksums of its records are not those of the bytes that were "
                "written. Nothing was committed. This must not happen: please report it."
            )
        self.bytes = int(written.sizes.sum())
        self.suspects = self.outcomes.add_all(written.sizes, written.crcs, rows)
        is_record = pc.greater_equal(rows.column(COPY_OF.size), 0)
        if self._hash_key in rows.column_names:
            is_seen = pc.and_(is_record, rows.column(self._hash_key).is_valid())
            self.fingerprints = pc.sum(is_seen).as_py() or 0
        if self._label_key:
            of_rows = rows.column(self._label_key).filter(is_record).to_pylist()
            flat = of_rows if self._has_one else chain.from_iterable(map(set, of_rows))
            self.classes.update(flat)
        self.records = old.records
        self.oriented = old.oriented
        self.input_bytes = old.input_bytes
        self.formats = Counter(old.formats)
        self.reasons = Counter(old.reasons)
        self.reduced = Counter(old.reduced)
        for column, levels in old.levels.items():
            self.levels[column].update(levels)
        for key, extremes in old.shapes.items():
            self.shapes[key] = tuple(map(tuple, extremes))
        self.sides = tuple(map(tuple, old.sides))

    def publish(
        self,
        plan: Plan,
        rows: pa.Table,
        attempt: Attempt,
    ) -> None:
        """Write the files next to the shard, given its planned rows."""
        made = {"index": self.outcomes.index(), "table": self.outcomes.table(plan, rows)}
        self.beside = {name: google_crc32c.value(data) for name, data in made.items()}
        self.beside_bytes = {name: len(data) for name, data in made.items()}
        files = {file: made[name] for name, file in attempt.shard.beside.items()}
        storage.publish_all(attempt.output_dir, files, claim=attempt)

    def done_record(
        self,
        plan_digest: str,
        shard: Shard,
    ) -> DoneRecord:
        return DoneRecord(
            plan=plan_digest,
            shard=shard.name,
            rows=len(self.outcomes),
            records=self.records,
            reasons=dict(self.reasons),
            suspects=self.suspects,
            oriented=self.oriented,
            input_bytes=self.input_bytes,
            bytes=self.bytes,
            crc32c=self.outcomes.crc32c(),
            formats=dict(self.formats),
            reduced=dict(self.reduced),
            shapes={key: list(map(list, shapes)) for key, shapes in self.shapes.items()},
            sides=[list(sides) for sides in self.sides],
            retries=self.retries,
            fingerprints=self.fingerprints,
            beside=self.beside,
            beside_bytes=self.beside_bytes,
            levels={column: dict(levels) for column, levels in self.levels.items()},
            classes={str(n): self.classes[n] for n in sorted(self.classes) if n != NO_LABEL},
        )
