"""Ranges of remote files, read through a local folder that keeps them."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tfrecorder.core.threads import UnwantedError, is_unwanted
from tfrecorder.storage.cache_folder import (
    BLOCK,
    FULL,
    HERE,
    OURS,
    THEIRS,
    CachedFile,
    CacheFolder,
    blocks_of,
    close_all,
    equal_first,
    read_part,
    read_whole,
)
from tfrecorder.storage.store import Description

#: Reads the bytes from one offset up to, not including, another from the remote file.
Fetch = Callable[[int, int], bytes]

#: Whether these are the places of all records of a file.
Fits = Callable[[np.ndarray], bool]

#: Seconds between two looks at a block that somebody else fetches.
_LOOK_SECONDS = 0.002

#: Seconds after which a full folder is looked through again for a dataset that nobody uses.
_LOOK_AGAIN_SECONDS = 60

logger = logging.getLogger("tfrecorder")


class LocalCache:
    """What is kept of some files; threads may share it, and a forked process has it too.

    If the folder cannot be used, or its disk is full, everything that is not kept yet is read
    without it: that is logged once.

    Args:
        folder: shared by any number of processes.
        files: what the stores said of them when their datasets were opened, by path.
    """

    def __init__(
        self,
        folder: CacheFolder,
        files: Mapping[str, Description],
    ) -> None:
        self._folder = folder
        # What has no version may be replaced without notice.
        self._files = {
            path: folder.file(path, told)
            for path, told in files.items()
            if told.version or told.written
        }
        self._here: dict[str, np.ndarray] = {}  # as each map was when it was last read
        self._entered: dict[str, list[int]] = {}  # the descriptors that are locks
        self._most: int | None = None  # nothing more is kept
        self._failed = False
        self._next_look = 0.0

    def read(
        self,
        path: str,
        start: int,
        end: int,
        fetch: Fetch,
    ) -> bytes:
        """The bytes of a file from `start` up to, not including, `end`; what is missing is kept."""
        file = self._file(path)
        if file is None:
            return fetch(start, end)
        parts = []
        at = start
        while at < end:
            whose, after = self._whose(file, at, end)
            until = min(after * BLOCK, end)
            if whose == THEIRS:
                if is_unwanted():
                    raise UnwantedError
                time.sleep(_LOOK_SECONDS)
                continue
            if whose == OURS:
                first = at // BLOCK
                begin = first * BLOCK
                data = self._fill(file, first, after, fetch)[at - begin : until - begin]
            else:
                data = self._kept(path, at, until) if whose == HERE else fetch(at, until)
                if len(data) < until - at:  # the folder was emptied meanwhile
                    data = fetch(at, until)
            parts.append(data)
            at = until
        return b"".join(parts)

    def has(
        self,
        path: str,
        start: int,
        end: int,
    ) -> bool:
        """Whether this range is there, as far as this process has seen."""
        file = self._file(path)
        if file is None:
            return False
        here = self._here.get(file.path)
        here = self._look(file) if here is None else here
        return bool(here[start // BLOCK : blocks_of(end)].all())

    def forget(
        self,
        path: str,
        start: int,
        end: int,
    ) -> None:
        """Fetch the blocks of this range anew when they are next read: they are damaged."""
        if (file := self._file(path)) is not None:
            self._here.pop(file.path, None)
            with self._said_once():
                file.mark(start // BLOCK, blocks_of(end))

    def index(
        self,
        path: str,
        read: Callable[[], np.ndarray],
        fits: Fits,
    ) -> np.ndarray:
        """Where the records of a file are, int64 of two columns: kept, or else read and kept."""
        file = self._file(path)
        if file is None:
            return read()
        with self._said_once():
            data = read_whole(f"{file.path}.index")
            end_of_rows = len(data) // 16 * 16
            kept = np.frombuffer(data[:end_of_rows], np.int64).reshape(-1, 2)
            if data and fits(kept):
                return kept
        places = read()
        with self._said_once():
            if self._most is not None:
                self._folder.keep_index(file, places.astype(np.int64).tobytes(), self._most)
        return places

    def _file(self, path: str) -> CachedFile | None:
        """What is kept of a file; None if nothing can be.  The folder is used from now on."""
        if not self._entered and not self._failed:
            with self._said_once():
                os.makedirs(self._folder.path, exist_ok=True)
                locks = self._folder.enter(self._files)
                self._most = self._folder.most()
                if self._entered.setdefault("locks", locks) is not locks:
                    close_all(locks)  # another thread was faster
        return self._files.get(path)

    def _look(self, file: CachedFile) -> np.ndarray:
        """Of each block of a file, whether it is there now."""
        with self._said_once():
            here = self._here[file.path] = file.are_here()
            return here
        return np.zeros(blocks_of(file.size), bool)

    def _whose(
        self,
        file: CachedFile,
        start: int,
        end: int,
    ) -> tuple[int, int]:
        """As `CacheFolder.claim`; without its lock, if the first block is there."""
        first = start // BLOCK
        last = blocks_of(end)
        here = self._here.get(file.path)
        if here is None or not here[first]:
            here = self._look(file)
        if here[first]:
            return HERE, first + equal_first(here[first:last])
        most = self._most
        with self._said_once():
            if most is not None:
                answer = self._folder.claim(file, start, end, most)
                if answer[0] != FULL or time.monotonic() < self._next_look:
                    return answer
                self._next_look = time.monotonic() + _LOOK_AGAIN_SECONDS
                if self._folder.clear(oldest=True):
                    self._next_look = 0
                return self._whose(file, start, end)
        return FULL, last

    def _kept(
        self,
        path: str,
        start: int,
        end: int,
    ) -> bytes:
        """What is there of a range, which should be all of it."""
        data = b""
        with self._said_once():
            data = read_part(f"{self._files[path].path}.data", start, end - start)
        if len(data) < end - start:
            self.forget(path, start, end)
        return data

    def _fill(
        self,
        file: CachedFile,
        first: int,
        after: int,
        fetch: Fetch,
    ) -> bytes:
        """Fetch blocks that are ours, from `first` up to, not including, `after`, and keep them."""
        is_kept = False
        try:
            data = fetch(first * BLOCK, min(after * BLOCK, file.size))
            with self._said_once():
                file.put(first, data)
                is_kept = True
                if (here := self._here.get(file.path)) is not None:
                    here[first:after] = True
        finally:
            if not is_kept:
                with self._said_once():
                    file.mark(first, after)
        return data

    @contextlib.contextmanager
    def _said_once(self) -> Iterator[None]:
        """A block that uses the folder; once it fails, nothing more is kept there."""
        try:
            yield
        except OSError as error:
            self._most = None
            if not self._failed:
                self._failed = True
                logger.warning(
                    "local cache %r cannot be used: %s. What it does not have is not kept.",
                    self._folder.path,
                    error.strerror or error,
                )

    def __del__(self, close: Callable[[list[int]], None] = close_all) -> None:
        close(self._entered.get("locks", []))
