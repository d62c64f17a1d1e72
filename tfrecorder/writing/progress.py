"""The progress bar: rows through, images a second and time left, from what workers leave on disk.

On disk, because workers may be threads, processes, or on other machines; a DoFn is pickled and can
carry no bar.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.display.bars import bar_class
from tfrecorder.plan.plan import Plan

POLL_SECONDS = 0.25
REMOTE_POLL_SECONDS = 5


def count_rows(output_dir: str, plan: Plan) -> int:
    """Rows that are through: those of the done shards, and what shards under way have noted."""
    done = set(storage.names(os.path.join(output_dir, layout.DONE)))
    rows = 0
    for shard in plan.shards:
        if f"{shard.name}.json" in done:
            rows += plan.shard_rows(shard)
    for name in storage.names(os.path.join(output_dir, layout.PROGRESS)):
        if f"{name}.json" not in done:
            with contextlib.suppress(storage.UnreadableError, ValueError):
                rows += int(storage.read_bytes(os.path.join(output_dir, layout.PROGRESS, name)))
    return rows


@contextlib.contextmanager
def progress_bar(output_dir: str, plan: Plan, shown: bool) -> Iterator[None]:
    """Show the progress of a conversion while the block runs."""
    if not shown:
        yield
        return
    ended = threading.Event()
    start = count_rows(output_dir, plan)
    with bar_class()(total=plan.rows, initial=start, unit=" images", dynamic_ncols=True) as bar:
        watcher = threading.Thread(
            target=_watch, args=(bar, ended, output_dir, plan), name="progress", daemon=True
        )
        with contextlib.suppress(RuntimeError, MemoryError):  # no thread to spare: no bar meanwhile
            watcher.start()
        rows = None
        try:
            yield
            rows = plan.rows  # committed, and perhaps no longer where it was written
        finally:
            ended.set()
            if watcher.ident is not None:
                watcher.join()
            _advance(bar, count_rows(output_dir, plan) if rows is None else rows)


def _watch(bar: Any, ended: threading.Event, output_dir: str, plan: Plan) -> None:
    while not ended.wait(POLL_SECONDS if storage.is_local(output_dir) else REMOTE_POLL_SECONDS):
        _advance(bar, count_rows(output_dir, plan))


def _advance(bar: Any, rows: int) -> None:
    # A retried bundle starts its shard again: never move the bar backwards.
    bar.update(max(0, rows - bar.n))
