"""Work in a pool of threads with its results in order, and never too much of it under way."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, wait
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Seconds for which Ctrl-C waits for work that was told to stop: as long as a request mostly takes.
PATIENCE = 2


def map_ahead(
    pool: Executor, work: Callable[[T], R], items: Iterable[T], ahead: int
) -> Iterator[R]:
    """`map` in a pool, in order, with at most `ahead` items under way: memory stays flat."""
    under_way: deque[Future[R]] = deque()
    try:
        for item in items:
            under_way.append(pool.submit(work, item))
            if len(under_way) >= ahead:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


def side_by_side(
    work: Callable[[T, threading.Event], R], items: Iterable[T], many: int, name: str
) -> Iterator[R]:
    """`map` in threads of its own, `many` at a time, in order, for long work that can be stopped.

    Args:
        work: is given an item, and an event: once that is set, nobody wants its result any more.
        name: of the threads.

    After Ctrl-C no thread is waited for longer than `PATIENCE` seconds, nor by the process's end.
    """
    unwanted, places = threading.Event(), threading.Semaphore(many)

    def run(item: T, future: Future[R]) -> None:
        with places:
            try:
                if unwanted.is_set():
                    raise CancelledError
                future.set_result(work(item, unwanted))
            except BaseException as error:
                future.set_exception(error)

    def begin(item: T) -> Future[R]:
        future: Future[R] = Future()
        threading.Thread(target=run, args=(item, future), name=name, daemon=True).start()
        return future

    under_way: deque[Future[R]] = deque()

    def first() -> R:
        result = under_way[0].result()  # it is under way until its result is there
        under_way.popleft()
        return result

    try:
        for item in items:
            under_way.append(begin(item))
            if len(under_way) > many:  # one more, for the thread that ends before its turn
                yield first()
        while under_way:
            yield first()
    except BaseException as error:
        unwanted.set()
        wait(under_way, timeout=PATIENCE if isinstance(error, KeyboardInterrupt) else None)
        raise


def run_in_order(
    pool: Executor,
    threads: int,
    work: Callable[[T], R],
    finish: Callable[[list[R]], None],
    items: Sequence[T],
    ahead: int,
    together: int = 1,
    weigh: Callable[[R], int] = lambda result: 0,
    weight: int = 0,
) -> None:
    """`finish` of the results of `work`: `work` in the threads of a pool, `finish` in order.

    No thread of its own finishes: whichever holds the next result does so, while the data are
    still in its core's cache, and then those that wait for it.  One thread at a time finishes.

    Args:
        pool: with at least `threads` threads.
        ahead: items under way at most, at least `threads * together`.
        together: items that a thread takes at a time, and whose results are finished at a time.
        weigh: what a result weighs while it waits for its turn.
        weight: while more than this waits, nothing further is begun.

    Raises:
        What `work` or `finish` raises, once every thread has stopped.
    """
    groups = [items[at : at + together] for at in range(0, len(items), together)]
    line = _Line(work, finish, groups, ahead // together, weigh, weight)
    runs = [pool.submit(line.run) for _ in range(min(threads, len(groups)))]
    try:
        for run in runs:
            run.result()
    finally:
        line.stop()  # after an error, or Ctrl-C in the thread that waits here
        wait(runs)


class _Line(Generic[T, R]):
    """Groups of items under way, and results that wait for their turn."""

    def __init__(
        self,
        work: Callable[[T], R],
        finish: Callable[[list[R]], None],
        groups: Sequence[Sequence[T]],
        ahead: int,
        weigh: Callable[[R], int],
        weight: int,
    ) -> None:
        self._work, self._finish, self._groups, self._ahead = work, finish, groups, ahead
        self._weigh, self._weight, self._waiting = weigh, weight, 0
        self._changed = threading.Condition()
        self._taken = self._finished = 0
        self._ready: dict[int, list[R]] = {}
        self._finishing = self._stopped = False

    def run(self) -> None:
        """What each thread does until there are no groups left."""
        try:
            while (number := self._take()) is not None:
                results = []
                for item in self._groups[number]:
                    if self._stopped:  # which a slow item should not keep from being heard
                        return
                    results.append(self._work(item))
                self._hand_in(number, results)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            # Whoever waits here holds nothing, so the next result in order is always on its way.
            while not self._stopped and (
                self._taken - self._finished >= self._ahead or self._waiting > self._weight
            ):
                self._changed.wait()
            if self._stopped or self._taken == len(self._groups):
                return None
            self._taken += 1
            return self._taken - 1

    def _hand_in(self, number: int, results: list[R]) -> None:
        weight = sum(map(self._weigh, results))
        with self._changed:
            self._ready[number] = results
            self._waiting += weight
            if self._finishing or number != self._finished:
                return  # the thread that finishes will come to it
            self._finishing = True
        while (following := self._next()) is not None:
            self._finish(following[0])
            with self._changed:
                self._finished += 1
                self._waiting -= sum(map(self._weigh, following[0]))
                self._changed.notify_all()

    def _next(self) -> tuple[list[R]] | None:
        """The next results if they are there; else nobody finishes any more."""
        with self._changed:
            if self._stopped or self._finished not in self._ready:
                self._finishing = False
                return None
            return (self._ready.pop(self._finished),)


def cores() -> int:
    """Cores that this process may use: fewer than the machine's in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
