"""`stream`: rows that keep coming, as generations of micro-batches, each row exactly once.

    collect rows, spool ──► stage the plan, with the range of positions ──► write ──► commit

The commit of a generation makes its positions count, and they are kept nowhere else.  If anything
ends the process before the commit, the next start completes the batch whose plan is staged, or
reads its rows again.

The user names a source: an object, a folder, or a Kafka topic.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tfrecorder import storage
from tfrecorder.conversion.operation import Say
from tfrecorder.core.option import is_text, seconds
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.display.messages import warn
from tfrecorder.display.tables import Report, counted, counts_in_words
from tfrecorder.errors import (
    OptionError,
    OutputError,
    SourceError,
    UnreachableError,
    refuse_missing,
)
from tfrecorder.format.summary import left_out_words
from tfrecorder.options.changes import NOT_STREAMED, StreamOptions
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import Path, StreamKeywords, Unpack
from tfrecorder.options.option import names_of, takes
from tfrecorder.output.directory import claim, refuse_nested
from tfrecorder.output.state import output_path
from tfrecorder.streaming.micro_batch import Batch, NothingSoundError
from tfrecorder.streaming.stream_source import OpenedSource, StreamSource
from tfrecorder.streaming.streamed_dataset import StreamedDataset, open_streamed
from tfrecorder.streaming.watched_folder import SETTLE, WatchedFolder

T = TypeVar("T")

#: Seconds of one call of a source's `wait`, which may hear neither Ctrl-C nor that a batch is due.
LOOK_EVERY = 1.0

#: If none of this many rows can be a record, a stream into a new dataset gives up.
GIVES_UP_AFTER = 1000


@dataclass(frozen=True, repr=False)
class StreamResult(Report):
    """What one call of `stream` added to a dataset.

    Attributes:
        output_dir: the dataset directory.
        source: the name of the source.
        generations: how many were committed.
        newest: the number of the last generation of the dataset; -1 if there is none yet.
        rows: how many rows these generations hold, as records or rejects.
        records: how many of them are records.
        rejects: how many of them are rejects, by "stage/code".
        removed: how many rows were left out because they were removed from the dataset before.
        seconds: how long the call took.
    """

    output_dir: str
    source: str
    generations: int
    newest: int
    rows: int
    records: int
    rejects: dict[str, int]
    seconds: float
    removed: int = 0

    def _headline(self) -> str:
        written = f"{counted(self.records, 'record')} in {counted(self.generations, 'generation')}"
        return f"{self.output_dir}, from {self.source}: {written} ({self.seconds:.1f} s)"

    def _notes(self) -> list[str]:
        rejects = [f"rejects: {counts_in_words(self.rejects)}"] if self.rejects else []
        return [*rejects, *left_out_words(0, self.removed)]


@takes(StreamKeywords, StreamOptions, ConvertOptions)
def stream(
    source: StreamSource | Path,
    output_dir: Path,
    *,
    source_options: Mapping[str, Any] | None = None,
    **options: Unpack[StreamKeywords],
) -> StreamResult:
    """Write rows into a dataset as they come: each batch becomes a new generation of it.

    It runs until Ctrl-C, or until no row has come for `until_idle` seconds.  The same call
    continues where the last one ended, however it ended: each row becomes one record or one reject,
    once.  A row that cannot be a record is listed as a reject, and the stream continues.  Rows
    that were removed from the dataset before stay out.

    Args:
        source: a local folder that images are put into; `kafka://host:port/topic`; or an object
            with the methods of `tfrecorder.streaming.StreamSource`.
        output_dir: a directory that is new or empty, or that of a finished dataset.
        source_options: for a folder, "settle": the seconds for which a file must not change before
            it counts; for Kafka, see docs/stream-kafka.md.
        **options: those about batches have these defaults; those about records, which are those
            of `tfrecorder.convert`, are by default as they were for the dataset.

    Returns:
        How many rows, records and rejects were added.

    Raises:
        OptionError: an option's name or value is wrong.
        SourceError: the source cannot be read; or no row of the first batch can be a record.
        OutputError: the directory cannot be written, or something else is being written there.
        TfrecorderError: otherwise as `tfrecorder.append` raises them.
        KeyboardInterrupt: its message says how to continue.

    Example:
        >>> tfrecorder.stream("incoming/", "out", every_seconds=300)  # doctest: +SKIP
    """
    started = time.perf_counter()
    given: dict[str, Any] = dict(options)
    limits = StreamOptions.out_of(given)
    chosen = ConvertOptions.of(given, NOT_STREAMED)
    shown = is_shown(chosen.progress)
    given["progress"] = False  # of a batch: the line of the stream says enough
    path = output_path(output_dir, chosen)
    where = storage.absolute(path)
    refuse_nested(where, chosen)
    opened = open_source(source, where, source_options or {})
    with contextlib.ExitStack() as stack:
        stack.callback(opened.close)
        stack.enter_context(storage.acting_as(None))
        state = stack.enter_context(claim(where))
        say = stack.enter_context(stage_line(shown))
        dataset = open_streamed(state, opened, given, limits.readmit)
        try:
            _follow(dataset, limits, say)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Stopped: {dataset.counts} committed in {where}. Run the same stream again to "
                "continue with the next row."
            ) from None
    return StreamResult(
        output_dir=path,
        source=opened.name,
        generations=dataset.committed,
        newest=-1 if dataset.newest is None else dataset.newest.number,
        rows=dataset.totals.rows,
        records=dataset.totals.records,
        rejects=dataset.totals.reasons,
        seconds=time.perf_counter() - started,
        removed=dataset.removed,
    )


def _follow(
    dataset: StreamedDataset,
    limits: StreamOptions,
    say: Say,
) -> None:
    """Read rows and write batches until no row has come for long enough."""
    source = dataset.source
    batch: Batch | None = None
    heard = time.monotonic()
    may_have_more = True
    while True:
        asked = time.monotonic()
        if may_have_more or _idle_left(source, limits, asked - heard) <= 0:
            for cells, position in source.rows(dataset.reached.position()):
                heard = time.monotonic()
                batch = batch or dataset.new_batch()
                _through_outages(partial(dataset.add, batch, cells, position))
                is_full = len(batch.rows) >= limits.every_rows
                if is_full or batch.spool.bytes >= limits.spool_bytes or _is_old(batch, limits):
                    batch = _written(batch, dataset, say)
        # Only rows that were asked for after that time may be missed.
        ends = _idle_left(source, limits, asked - heard) <= 0
        if batch is not None and (ends or _is_old(batch, limits)):
            batch = _written(batch, dataset, say, ends)
        if ends:
            return
        _say(say, dataset, batch)
        # Until something must be done even if no row comes.
        seconds = [LOOK_EVERY, _idle_left(source, limits, time.monotonic() - heard)]
        if batch is not None:
            seconds.append(batch.began + limits.every_seconds - time.monotonic())
        may_have_more = source.wait(max(0.01, min(seconds))) is not False


def _is_old(batch: Batch, limits: StreamOptions) -> bool:
    return time.monotonic() - batch.began >= limits.every_seconds


def _idle_left(
    source: OpenedSource,
    limits: StreamOptions,
    idle: float,
) -> float:
    """Seconds until the stream ends, unless a row comes; infinite if it does not."""
    if limits.until_idle is None or source.pending():
        return math.inf
    return limits.until_idle - idle


def _written(
    batch: Batch,
    dataset: StreamedDataset,
    say: Say,
    last: bool = False,
) -> Batch | None:
    """Make a batch into a generation, however long a service is away; return what is left of it.

    Args:
        last: no further row will come that could join those of the batch.
    """
    if not batch.rows:  # all of them were removed before
        return None
    say(f"{dataset.counts}; writing {counted(len(batch.rows), 'row')}")
    try:
        while batch.rows:
            _through_outages(partial(dataset.stage, batch))
            if _through_outages(dataset.complete):
                return None
            replaced = dataset.drop_replaced(batch)
            if not replaced:
                raise OutputError(
                    f"{dataset.where}: what was staged or spooled for the next generation is gone. "
                    "Start the stream again: it reads these rows again."
                )
            warn(
                f"{counted(len(replaced), 'file')} changed while the stream read them, such as "
                f"{replaced[0]!r}; it takes each again once it has settled."
            )
    except NothingSoundError as fault:
        if last or len(batch.rows) >= GIVES_UP_AFTER:
            raise SourceError(
                f"none of the first {counted(len(batch.rows), 'row')} could become a record, so no "
                f"dataset was started; {batch.rows[0].name}: {fault}."
            ) from None
        return batch
    return None


def _through_outages(step: Callable[[], T]) -> T:
    began = time.monotonic()
    while True:
        try:
            return step()
        except UnreachableError as error:
            # Python shows warnings of the same words only once.
            waited = time.monotonic() - began
            warn(f"{error} The stream waits for it ({waited:,.0f} s so far).")


def _say(
    say: Say,
    dataset: StreamedDataset,
    batch: Batch | None,
) -> None:
    waiting = len(batch.rows) if batch else 0
    words = f"{dataset.counts}; {waiting:,} waiting"
    behind = dataset.source.behind(dataset.reached.position())
    if behind is not None:
        words += f", {behind:,} not read"
    say(words)


def open_source(
    source: Any,
    where: str,
    options: Mapping[str, Any],
) -> OpenedSource:
    """The source that a user names.

    Args:
        where: the output directory.
        options: the source's options.

    Raises:
        SourceError, OptionError: there is no such source, or its options are wrong.
    """
    if isinstance(source, (str, os.PathLike)):
        path = storage.given_path(source)
        is_topic = path.startswith("kafka://")
        source = _topic(path, options) if is_topic else _folder(path, where, options)
    elif not (hasattr(source, "rows") and hasattr(source, "wait")):
        raise SourceError(
            f"source is a {type(source).__name__}; give a folder, kafka://host:port/topic, or an "
            "object with the methods of tfrecorder.streaming.StreamSource."
        )
    elif options:
        raise OptionError.of("source_options", ..., "a source object has none; leave it out.")
    name = getattr(source, "name", None)
    if not is_text(name):
        raise SourceError(
            f"source {name!r}: positions are saved under its `name`; give it one, and in Unicode."
        )
    return OpenedSource(source)


def _topic(url: str, options: Mapping[str, Any]) -> StreamSource:
    refuse_missing("confluent_kafka")
    from tfrecorder.streaming.kafka import KafkaOptions, open_kafka

    # All settings of librdkafka have a dot in their names.
    settings = {name: value for name, value in options.items() if "." in name}
    others = {name: value for name, value in options.items() if "." not in name}
    _refuse_unknown(others, "Kafka", names_of(KafkaOptions))
    return open_kafka(url, config=settings, **others)


def _folder(
    path: str,
    where: str,
    options: Mapping[str, Any],
) -> WatchedFolder:
    _refuse_unknown(options, "a folder", ("settle",))
    settle = options.get("settle", SETTLE)
    with contextlib.suppress(TypeError, ValueError):
        settle = float(settle)  # a shell passes text
    if remedy := seconds(settle):
        raise OptionError.of("source_options", {"settle": settle}, remedy)
    folder = WatchedFolder(path, settle)
    if f"{where}/".startswith(f"{folder.base}/"):
        words = "it is inside the watched folder; give a directory outside it."
        raise OptionError.of("output_dir", where, words)
    return folder


def _refuse_unknown(
    options: Mapping[str, Any],
    kind: str,
    names: Sequence[str],
) -> None:
    if unknown := sorted(set(options).difference(names)):
        words = f"{kind} has no option {unknown[0]!r}; it has {', '.join(names)}."
        raise OptionError.of("source_options", ..., words)  # some values are passwords
