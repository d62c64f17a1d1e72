"""A whole dataset directory: every shard, and what all shards have in common.

Shards are checked in parallel, each record by record, so that memory holds a few records, the plan
of a few shards, and the faults.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from tfrecorder import storage
from tfrecorder.checking.expectation import Expectation
from tfrecorder.checking.faults import Fault, at_most
from tfrecorder.checking.metadata_check import (
    check_commit,
    check_gathered,
    check_names,
    check_plan_rows,
)
from tfrecorder.checking.shard_check import Decode, ShardFindings, check_shard
from tfrecorder.dataset.layout import Shard
from tfrecorder.display.bars import bar_class, is_shown
from tfrecorder.metadata import DoneRecord
from tfrecorder.threads import map_ahead


def check_all(
    expected: Expectation, decode: Decode | None = None, progress: bool | None = None
) -> tuple[list[ShardFindings], list[Fault]]:
    """All shards, and the faults of the whole directory, those of one file together."""
    groups = range(len(expected.plan.shards))
    shards = check_shards(expected, groups, decode, progress)
    done = {one.shard: one.done for one in shards if one.done is not None}
    faults = [*expected.faults, *(fault for one in shards for fault in one.faults)]
    return shards, _sorted([*faults, *check_common(expected, done, faults)])


def check_shards(
    expected: Expectation,
    groups: Iterable[int],
    decode: Decode | None = None,
    progress: bool | None = None,
) -> list[ShardFindings]:
    """Some shards, by their places in the plan, in parallel."""
    groups = list(groups)
    local = storage.is_local(expected.directory)
    threads = (os.cpu_count() or 1) if local else storage.REMOTE_THREADS
    with (
        _byte_bar(expected, groups, is_shown(progress)) as advance,
        ThreadPoolExecutor(threads, thread_name_prefix="verify") as pool,
    ):

        def check(group: int) -> ShardFindings:
            return check_shard(expected, group, decode, advance)

        return list(map_ahead(pool, check, groups, ahead=2 * threads))


def check_common(
    expected: Expectation, done: Mapping[Shard, DoneRecord], faults: Iterable[Fault]
) -> list[Fault]:
    """The faults of what the shards have in common.

    Args:
        done: the done-records, as the shards prove them.
        faults: found so far.
    """
    damaged = frozenset(fault.file for fault in faults)
    return [
        *check_commit(expected, done),
        *check_gathered(expected, damaged),
        *check_names(expected),
        *check_plan_rows(expected),
    ]


def _sorted(faults: list[Fault]) -> list[Fault]:
    """Faults, each once, by file; the files in the order in which they were met."""
    places: dict[str, int] = {}
    for fault in faults:
        places.setdefault(fault.file, len(places))
    distinct = dict.fromkeys(faults)
    return list(at_most(sorted(distinct, key=lambda fault: places[fault.file])))


@contextlib.contextmanager
def _byte_bar(
    expected: Expectation, groups: Iterable[int], shown: bool
) -> Iterator[Callable[[int], None]]:
    """A progress bar over the bytes of shards; gives the function that moves it."""
    if not shown:
        yield lambda size: None
        return
    files = [expected.path(expected.plan.shards[group].file) for group in groups]
    total = sum(size or 0 for size in storage.each(storage.size_or_none, files, expected.directory))
    lock = threading.Lock()
    with bar_class()(total=total, unit="B", unit_scale=True, dynamic_ncols=True) as bar:

        def advance(size: int) -> None:
            with lock:  # tqdm counts without one
                bar.update(size)

        yield advance
