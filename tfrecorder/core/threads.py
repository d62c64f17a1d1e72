"""Work in threads, and what of the machine it may use: memory and cores.

The results of a pool come in order, and never too much is under way.  Pixels that several threads
decode share one budget of bytes.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import queue
import resource
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, TimeoutError as FutureTimeout, wait
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: Seconds between two checks for Ctrl-C: if another thread gets the signal, it does not wake a main
#: thread that waits for a lock.
LISTEN = 0.1

#: Once any of these is set, nobody wants the result of what this thread does.
_STOPS: ContextVar[tuple[threading.Event, ...]] = ContextVar("stops", default=())

_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class ThreadPool(Executor):
    """Threads that neither Ctrl-C nor the end of the process waits for.

    A decoder cannot be interrupted and may take seconds, and the standard library's pool would make
    us wait for it.  If the system gives fewer threads than asked for (`ulimit -u`, `ulimit -v`, a
    container's limit), those that started do the work.  If none did, `submit` does it itself.

    Args:
        threads: the most to start; by default one per core.
        name: of the threads.
    """

    def __init__(
        self,
        threads: int | None = None,
        name: str = "tfrecorder",
    ) -> None:
        self._name = name
        self._most = threads or cores()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started: list[threading.Thread] = []
        self._closed = False
        self._end = weakref.finalize(self, self._tasks.put, None)  # also if the pool is dropped

    def submit(
        self,
        work: Callable[..., R],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Future[R]:
        future: Future[R] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if len(self._started) < self._most:
                self._start()
            self._tasks.put((future, work, args, kwargs))
        if not self._started:
            _run_one(self._tasks)
        return future

    def _start(self) -> None:
        thread = threading.Thread(
            target=_run_all,
            args=(self._tasks,),
            name=self._name,
            daemon=True,
        )
        try:
            thread.start()
        except (RuntimeError, MemoryError):  # "can't start new thread"
            self._most = len(self._started)
        else:
            self._started.append(thread)

    def shutdown(
        self,
        wait: bool = True,
        *,
        cancel_futures: bool = False,
    ) -> None:
        with self._lock:
            self._closed = True
        # At the exit of the process it has ended, and the modules of this one may be gone.
        if cancel_futures and self._end.alive:
            with contextlib.suppress(queue.Empty):
                while task := self._tasks.get_nowait():
                    task[0].cancel()
        self._end()
        if wait:
            for thread in self._started:
                thread.join()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        *_: Any,
    ) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.shutdown(wait=not interrupted, cancel_futures=kind is not None)


def _run_all(tasks: queue.SimpleQueue[_Task | None]) -> None:
    """What each thread of a pool does until the pool is closed."""
    while _run_one(tasks):
        pass
    tasks.put(None)  # for the next thread


def _run_one(tasks: queue.SimpleQueue[_Task | None]) -> bool:
    """Do the next piece of work; False once there is no more."""
    task = tasks.get()
    if task is None:
        return False
    future, work, args, kwargs = task
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
            # The error refers to this frame, and the future to the error.  If the frame went on
            # referring to the future, all that the work held would stay in memory.
            del task, future
    return True


def result_of(future: Future[R]) -> R:
    """Wait for a future's result, but notice Ctrl-C."""
    while not future.done():
        with contextlib.suppress(FutureTimeout):  # which may also be an error of the work
            return future.result(LISTEN)
    return future.result()


class UnwantedError(Exception):
    """Nobody wants the result any more: other work failed, or Ctrl-C was pressed."""


def is_unwanted() -> bool:
    """True once nobody wants the result of what this thread does; it should then end soon."""
    return any(stop.is_set() for stop in _STOPS.get())


def stoppable(work: Callable[[T], R], stop: threading.Event) -> Callable[[T], R]:
    """`work` to run in other threads: unwanted once it is unwanted here, or `stop` is set.

    It sees the context variables of this thread.
    """
    here = copy_context()
    here.run(_STOPS.set, (*_STOPS.get(), stop))
    return lambda item: here.copy().run(work, item)


def map_ahead(
    pool: Executor,
    work: Callable[[T], R],
    items: Iterable[T],
    ahead: int,
    patience: float = 0,
) -> Generator[R, None, None]:
    """`map` in a pool, in order, with at most `ahead` items under way: memory stays flat.

    Args:
        patience: if this ends early, even by Ctrl-C, the seconds to wait for what is under way:
            work that checks `is_unwanted` ends soon.
    """
    under_way: deque[Future[R]] = deque()
    stop = threading.Event()
    run = stoppable(work, stop)
    try:
        for item in items:
            under_way.append(pool.submit(run, item))
            if len(under_way) >= ahead:
                yield result_of(under_way.popleft())
        while under_way:
            yield result_of(under_way.popleft())
    finally:
        stop.set()
        left = [future for future in under_way if not future.cancel()]
        if patience:  # at the exit of the process, `wait` may be gone
            wait(left, timeout=patience)


def map_at_once(
    work: Callable[[T], R],
    items: Iterable[T],
    threads: int,
) -> list[R]:
    """`map` in this many threads; the first error ends them."""
    with ThreadPool(threads) as pool:
        return list(map_ahead(pool, work, items, ahead=2 * threads))


@contextlib.contextmanager
def taken(places: threading.Semaphore) -> Iterator[None]:
    """A block of work that takes one of the places, and waits for it.

    Raises:
        UnwantedError: nobody wants the work any more.
    """
    while not places.acquire(timeout=LISTEN):
        if is_unwanted():
            raise UnwantedError
    try:
        yield
    finally:
        places.release()


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
    """Run `work` in the threads of a pool, and `finish` its results in order.

    There is no separate thread for `finish`: the thread that has the next result calls it, while
    the data are still in its core's cache, and then does the same for the results that waited for
    that one.  Only one thread at a time does this.

    Args:
        pool: with at least `threads` threads.
        ahead: the most items under way; at least `threads * together`.
        together: items that a thread takes at a time; their results are finished together.
        weigh: what a result weighs while it waits for its turn.
        weight: while more than this waits, no new work is started.

    Raises:
        The first error of `work` or `finish`, once every thread has stopped.  After Ctrl-C a thread
        may still be running `work`, and its result is dropped; none is running `finish`.
        UnwantedError: nobody wants the results any more.
    """
    groups = [items[start : start + together] for start in range(0, len(items), together)]
    line = _Line(
        work=work,
        finish=finish,
        groups=groups,
        ahead=ahead // together,
        weigh=weigh,
        weight=weight,
    )
    run_line = stoppable(_Line[T, R].run, line.stopped)
    runs = [pool.submit(run_line, line) for _ in range(min(threads, len(groups)))]
    patience: float | None = None
    try:
        for run in runs:
            result_of(run)
        if line.error is not None:
            raise line.error
    except KeyboardInterrupt:  # in the thread that waits here
        patience = 0
        raise
    finally:
        line.stop()
        wait(runs, timeout=patience)
        with line.turn:  # no thread is running `finish` any more, and none will
            pass


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
        self._work = work
        self._finish = finish
        self._groups = groups
        self._ahead = ahead
        self._weigh = weigh
        self._weight = weight
        self._waiting = 0
        self._changed = threading.Condition()
        self._taken = self._finished = 0
        self._ready: dict[int, list[R]] = {}
        self.turn = threading.Lock()  # held by the thread that finishes
        self.error: BaseException | None = None
        self.stopped = threading.Event()

    def run(self) -> None:
        """What each thread does until there are no groups left."""
        try:
            while (number := self._take()) is not None:
                results = []
                for item in self._groups[number]:
                    if is_unwanted():  # asked for each item, as one may be slow
                        raise UnwantedError
                    results.append(self._work(item))
                self._hand_in(number, results)
        except BaseException as error:
            self.stop(error)

    def stop(self, error: BaseException | None = None) -> None:
        with self._changed:
            # The first error is the reason; later ones may only say that nobody waits any more.
            if not self.stopped.is_set():
                self.error = error
            self.stopped.set()
            self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            # A thread that waits here holds no result, so the next in order is always on its way.
            while not self.stopped.is_set() and (
                self._taken - self._finished >= self._ahead or self._waiting > self._weight
            ):
                self._changed.wait()
            if self.stopped.is_set() or self._taken == len(self._groups):
                return None
            self._taken += 1
            return self._taken - 1

    def _hand_in(
        self,
        number: int,
        results: list[R],
    ) -> None:
        weight = sum(map(self._weigh, results))
        with self._changed:
            self._ready[number] = results
            self._waiting += weight
        # A thread that has the turn looks again once it has given it back, so none is left behind.
        while self._has_next() and self.turn.acquire(blocking=False):
            try:
                if self._has_next():
                    self._finish_next()
            finally:
                self.turn.release()

    def _has_next(self) -> bool:
        return not self.stopped.is_set() and self._finished in self._ready

    def _finish_next(self) -> None:
        results = self._ready.pop(self._finished)
        self._finish(results)
        with self._changed:
            self._finished += 1
            self._waiting -= sum(map(self._weigh, results))
            self._changed.notify_all()


def cores() -> int:
    """Cores that this process may use; in a container, maybe fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        machine = len(os.sched_getaffinity(0))
    else:
        machine = os.cpu_count() or 1
    return max(1, math.ceil(min(machine, cpu_quota())))


#: One part in this many of the memory that a process may still take is for pixels; the rest is for
#: their files, the records, and threads.
_PIXELS_SHARE = 3
_LEAST_PIXELS = 2**26

#: Bytes for decoded pixels, which all threads share.
DECODING_BYTES = 2**30

#: Entered with a number of bytes, and left when they are free again.
Room = Callable[[int], AbstractContextManager[None]]


def spare_bytes(most: int) -> int:
    """Bytes of memory for pixels: `most`, or fewer if the process or its container has little.

    >>> spare_bytes(2**20)
    1048576
    """
    left = memory_limit() - memory_used()
    return min(most, max(left // _PIXELS_SHARE, _LEAST_PIXELS))


def unlimited(size: int) -> AbstractContextManager[None]:
    """Room without a limit."""
    return contextlib.nullcontext()


class Budget:
    """A number of bytes that threads share; a thread that finds too few left waits.

    >>> budget = Budget(100)
    >>> with budget.room(70):
    ...     pass
    """

    def __init__(self, total: int) -> None:
        self.total = self._free = total
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def room(self, size: int) -> Iterator[None]:
        """Take bytes for as long as the block lasts: all of them if `size` exceeds the total."""
        size = min(size, self.total)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            with self._changed:
                self._free += size
                self._changed.notify_all()


def is_address_space_limited() -> bool:
    """Whether `ulimit -v` limits the address space of this process."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def memory_used() -> int:
    """Bytes of this process that are in memory."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes of the machine's memory, or of the least that a control group of this process allows.

    Args:
        root: of the file system.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):  # versions 2 and 1
            with contextlib.suppress(OSError, ValueError):  # "max"
                limits.append(int((folder / name).read_text()))
    return min(limit for limit in limits if limit > 0)


@functools.cache
def cpu_quota(root: Path = Path("/")) -> float:
    """Cores by the quota of this process's control group, or of one above it; inf without one.

    Args:
        root: of the file system.
    """
    return min(map(_quota_of, control_groups("cpu", root)), default=math.inf)


def _quota_of(folder: Path) -> float:
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (folder / "cpu.max").read_text().split()  # version 2
        return int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota = (folder / "cpu.cfs_quota_us").read_text()
        if int(quota) > 0:
            return int(quota) / int((folder / "cpu.cfs_period_us").read_text())
    return math.inf


def control_groups(controller: str, root: Path = Path("/")) -> list[Path]:
    """The folders of this process's control group and of those above it; none but on Linux.

    Args:
        controller: "cpu" or "memory", which version 1 keeps apart.
        root: of the file system.
    """
    folders: list[Path] = []
    try:
        text = os.fsdecode((root / "proc/self/cgroup").read_bytes())  # names may hold any byte
    except OSError:
        return folders
    for line in text.split("\n"):
        _, _, of_group = line.partition(":")
        names, _, path = of_group.partition(":")
        top = root / "sys/fs/cgroup"
        if names:
            if controller not in names.split(","):
                continue
            top /= controller
        inner = top
        if ".." not in path.split("/"):  # else it is outside of what this process sees
            inner /= path.lstrip("/")
        folders += [inner, *(above for above in inner.parents if above.is_relative_to(top)), top]
    return list(dict.fromkeys(folders))
