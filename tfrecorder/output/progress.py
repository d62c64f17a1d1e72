"""The progress bar: rows through, images per second and time left, from what workers leave on disk.

On disk, because workers may be threads, processes, or on other machines; a DoFn is pickled and
cannot carry a bar.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.display.bars import STARTING, bar_class, instead_of_the_log
from tfrecorder.errors import UnreachableError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.plan.plan import Plan

POLL_SECONDS = 0.25
REMOTE_POLL_SECONDS = 5


def note_progress(output_dir: str, shard: Shard, rows: int) -> None:
    """Note in the directory how many rows of a shard are through and what its worker waits for."""
    storage.overwrite(output_dir, shard.progress, f"{rows} {_waiting()}".strip())


def _waiting() -> str:
    """What this process waits for; "" if nothing."""
    return next(map(str, storage.waits()), "")


def read_notes(output_dir: str, shards: Iterable[Shard]) -> dict[Shard, tuple[int, str]]:
    """What `note_progress` left for shards: rows, and what is waited for, "" if nothing is.

    If a note is half written, or gone because its shard ended, no row counts as through.
    """
    there = set(storage.names(os.path.join(output_dir, layout.PROGRESS)))
    noted = [shard for shard in shards if shard.name in there]

    def read(shard: Shard) -> tuple[int, str]:
        with contextlib.suppress(storage.UnreadableError, ValueError):
            note = storage.read_bytes(os.path.join(output_dir, shard.progress)).decode()
            rows, _, words = note.partition(" ")
            return int(rows), words
        return 0, ""

    return dict(zip(noted, storage.each(read, noted, output_dir), strict=True))


@dataclass(frozen=True)
class Progress:
    """How far a conversion has got.

    Attributes:
        rows: how many are through: those of done shards, and what shards under way have noted.
        waiting: what it waits for; "" if nothing.
    """

    rows: int
    waiting: str


def look(output_dir: str, plan: Plan, shards: Collection[Shard]) -> Progress:
    """How far some shards of a conversion have got, from what workers leave in the directory."""
    done = set(storage.names(os.path.join(output_dir, layout.DONE)))
    ended = {shard for shard in shards if f"{shard.name}.json" in done}
    notes = read_notes(output_dir, (shard for shard in shards if shard not in ended))
    rows = sum(map(plan.shard_rows, ended)) + sum(rows for rows, _ in notes.values())
    waiting = _waiting() or next((words for _, words in notes.values() if words), "")
    return Progress(rows, waiting)


@contextlib.contextmanager
def progress_bar(
    output_dir: str, plan: Plan, shown: bool, shards: Collection[Shard] | None = None
) -> Iterator[None]:
    """Show the progress of a conversion while the block runs, and what it waits for.

    Args:
        shards: which shards; all by default.
    """
    if not shown:
        yield
        return
    ended = threading.Event()
    shards = plan.shards if shards is None else shards
    total, start = sum(map(plan.shard_rows, shards)), look(output_dir, plan, shards).rows
    bar = bar_class()(
        total=total,
        initial=start,
        unit=" images",
        dynamic_ncols=True,
        bar_format=STARTING,  # Beam and its workers start for some seconds
    )
    with bar, instead_of_the_log():
        run = copy_context().run  # it reads the directory as this thread does
        watching = (_watch, bar, ended, output_dir, plan, shards)
        watcher = threading.Thread(target=run, args=watching, name="progress", daemon=True)
        with contextlib.suppress(RuntimeError, MemoryError):  # no thread to spare: no bar meanwhile
            watcher.start()
        rows = None
        try:
            yield
            rows = total  # committed, and perhaps no longer where it was written
        finally:
            ended.set()
            if watcher.ident is not None:
                watcher.join()
            if rows is None:
                _advance(bar, output_dir, plan, shards)
            else:
                bar.bar_format = None
                bar.update(max(0, rows - bar.n))


def _watch(
    bar: Any, ended: threading.Event, output_dir: str, plan: Plan, shards: Collection[Shard]
) -> None:
    while not ended.wait(POLL_SECONDS if storage.is_local(output_dir) else REMOTE_POLL_SECONDS):
        _advance(bar, output_dir, plan, shards)


def _advance(bar: Any, output_dir: str, plan: Plan, shards: Collection[Shard]) -> None:
    try:
        with storage.impatient():
            found = look(output_dir, plan, shards)
    except (storage.UnreadableError, UnreachableError) as error:
        found = Progress(0, _waiting() or str(error))
    # A retried bundle starts its shard again: never move the bar backwards.
    bar.set_postfix_str(found.waiting, refresh=False)
    if found.rows > bar.initial:
        bar.bar_format = None
    bar.update(max(0, found.rows - bar.n))
    bar.refresh()
