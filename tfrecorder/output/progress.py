"""The progress bar: rows through, images per second and time left, from what workers leave on disk.

On disk, because workers may be threads, processes, or on other machines; a DoFn is pickled and
cannot carry a bar.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator

from tfrecorder import storage
from tfrecorder.display.bars import STARTING, bar_class, instead_of_the_log, watched
from tfrecorder.errors import UnreachableError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan import Plan

POLL_SECONDS = 0.25
REMOTE_POLL_SECONDS = 5


#: Seconds between two notes of a shard's progress: on a disk, and on a bucket, which refuses to
#: replace an object more often than once a second.
NOTE_SECONDS = 0.2
REMOTE_NOTE_SECONDS = 5


class ShardProgress:
    """How many rows of a shard are through, noted in the directory every so often.

    Args:
        is_shown: somebody looks at the notes; otherwise there are none.

    Attributes:
        rows: how many.
        is_noted: there is a note.
    """

    def __init__(self, output_dir: str, shard: Shard, is_shown: bool) -> None:
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


def _look(output_dir: str, plan: Plan, shards: Collection[Shard]) -> tuple[int, str]:
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
    output_dir: str, plan: Plan, shown: bool, shards: Collection[Shard] | None = None
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
