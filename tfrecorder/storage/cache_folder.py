"""A local folder that keeps blocks of remote files, for any number of processes.

    FOLDER/counters                  bytes: see `Counters`; its lock guards every decision
    FOLDER/DATASET/uri               the remote folder; whoever uses it holds a shared lock
    FOLDER/DATASET/FILE@VERSION.data     the blocks, where the remote file has them; else holes
    FOLDER/DATASET/FILE@VERSION.map      the state of each block
    FOLDER/DATASET/FILE@VERSION.index    where the records are

Nothing else in the folder is touched, and no link is followed.

A block is written and then marked, so after a kill everything that is marked is whole.  A claim to
fetch a block is the second in which it was made, so it ends by itself if its holder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfrecorder.storage.store import Description

#: Bytes of a block: from a bucket, they take about as long as the bytes of one image.
BLOCK = 2**19

#: What the map says of a block: nothing, that its claim has ended, or that it is there; any other
#: number is the second in which it was claimed.  Of all but the first the room is counted.
_NOTHING = 0
_ENDED = 1
_THERE = 2**32 - 1
_STATE = np.dtype("<u4")

#: Whose a block is: it is there, another thread or process fetches it, the caller has to fetch it,
#: or there is no room for it.
HERE, THEIRS, OURS, FULL = range(4)

#: Seconds after which a claim ends; and after which nobody waits for the lock any more.
EXPIRY = 10

_LOOK_SECONDS = 0.001

#: What a disk gives at a time.  A file takes two pages beside its blocks: its map, and the disk's
#: own list of where the blocks are.
_PAGE = 4096
_FILE_BYTES = 2 * _PAGE

_COUNTERS = "counters"
_URI = "uri"
_UNREADY = ".unready"

#: The names of the folders of datasets, also of those that earlier versions were removing, and of
#: the files in them.
_FOLDER = re.compile(r"[0-9a-f]{20}(\.\d+\.unready)?")
_FILE = re.compile(r"[0-9a-f]{20}@[0-9a-f]{20}\.(data|map|index|index\.unready)")


class Counters(NamedTuple):
    """Bytes, of all processes together.

    Attributes:
        used: on the disk, now.
        kept: fetched and kept, since the folder was made.
        passed: fetched and not kept, because there was no room.
    """

    used: int = 0
    kept: int = 0
    passed: int = 0


_FORM = struct.Struct("<3Q")


def blocks_of(size: int) -> int:
    """How many blocks hold so many bytes."""
    return -(-size // BLOCK)


def equal_first(values: np.ndarray) -> int:
    """How many values at the beginning are the same."""
    return int(np.append(values != values[0], True).argmax())


@dataclass(frozen=True)
class CachedFile:
    """What is kept of one version of a remote file.

    Attributes:
        path: without the ending.
        size: of the remote file, in bytes.
    """

    path: str
    size: int

    def states(self) -> np.ndarray:
        states = np.zeros(blocks_of(self.size), _STATE)
        kept = _states(f"{self.path}.map")[: len(states)]
        states[: len(kept)] = kept
        return states

    def are_here(self) -> np.ndarray:
        """Of each block, whether it is there."""
        return self.states() == _THERE

    def mark(
        self,
        first: int,
        end: int,
        state: int = _ENDED,
    ) -> None:
        """Note of the blocks from `first` up to, not including, `end` that they have this state."""
        data = np.full(end - first, state, _STATE).tobytes()
        _write_part(f"{self.path}.map", first * _STATE.itemsize, data)

    def put(
        self,
        first: int,
        data: bytes,
    ) -> None:
        """Keep blocks, beginning with this one."""
        _write_part(f"{self.path}.data", first * BLOCK, data)
        self.mark(first, first + blocks_of(len(data)), _THERE)


@dataclass(frozen=True)
class CacheFolder:
    """The folder of a cache, and the most that it may hold.

    Attributes:
        path: on a local disk.
        limit: in bytes; None for nine tenths of what the disk has left.
    """

    path: str
    limit: int | None = None

    def most(self) -> int:
        """`limit`, as it is now."""
        if self.limit is not None:
            return self.limit
        return self.counters().used + shutil.disk_usage(self.path).free * 9 // 10

    def counters(self) -> Counters:
        data = read_part(os.path.join(os.path.realpath(self.path), _COUNTERS), 0, _FORM.size)
        return Counters(*_FORM.unpack(data)) if len(data) == _FORM.size else Counters()

    def is_there(self) -> bool:
        return os.path.isfile(os.path.join(self.path, _COUNTERS))

    def file(
        self,
        path: str,
        told: Description,
    ) -> CachedFile:
        """What is kept of a remote file, in the version that the store told."""
        folder = os.path.join(self.path, _digest(os.path.dirname(path)))
        return CachedFile(f"{folder}/{_digest(path)}@{_digest(repr(told))}", told.size)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """A block that only one thread of one process is in: the descriptor of the counters."""
        counters = os.path.join(self.path, _COUNTERS)
        descriptor = os.open(counters, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        until = time.monotonic() + EXPIRY
        try:
            while not _lock(descriptor):
                if time.monotonic() > until:
                    raise TimeoutError(f"a process that does nothing has locked {self.path}")
                time.sleep(_LOOK_SECONDS)
            yield descriptor
        finally:
            # Closing alone is not enough: a process forked in the meantime has the descriptor too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def enter(self, files: Mapping[str, CachedFile]) -> list[int]:
        """Use what is kept of files, by their paths, until the returned descriptors are closed.

        If those of a dataset do not fit and no other process uses it, what is kept of its other
        files goes: they are of older versions or generations.

        Raises:
            OSError: the folder cannot be used, as everywhere here.
        """
        datasets: dict[str, list[CachedFile]] = {}
        for path, file in files.items():
            datasets.setdefault(os.path.dirname(path), []).append(file)
        return [self._enter(uri, of_dataset) for uri, of_dataset in datasets.items()]

    def _enter(
        self,
        uri: str,
        files: Sequence[CachedFile],
    ) -> int:
        folder = os.path.dirname(files[0].path)
        while True:
            os.makedirs(folder, exist_ok=True)
            try:
                descriptor = _open(os.path.join(folder, _URI), os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:  # somebody has just removed the folder
                continue
            if _lock(descriptor):
                self._recount()
                if self.counters().used + sum(file.size for file in files) > self.most():
                    stems = {os.path.basename(file.path) for file in files}
                    for name in os.listdir(folder):
                        if _FILE.fullmatch(name) and name.partition(".")[0] not in stems:
                            os.remove(os.path.join(folder, name))
                    self._recount()
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(os.path.join(folder, _URI))):
                    break
            os.close(descriptor)  # the folder was removed before we had the lock
        os.pwrite(descriptor, uri.encode(), 0)
        os.ftruncate(descriptor, len(uri.encode()))
        return descriptor

    def claim(
        self,
        file: CachedFile,
        start: int,
        end: int,
        most: int,
    ) -> tuple[int, int]:
        """Whose the blocks of a range are, from its beginning as far as they are the same's.

        Returns:
            HERE, THEIRS, OURS or FULL; and the block that ends these.
        """
        first = start // BLOCK
        now = int(time.time())
        with self._locked() as descriptor:
            states = file.states().astype(np.int64)
            counters = self.counters()
            own = 0 if states.any() else _FILE_BYTES
            states = states[first : blocks_of(end)]
            is_new = states == _NOTHING
            used = np.cumsum(is_new) * BLOCK + own + counters.used  # with each block
            whose = np.full(len(states), OURS)
            whose[is_new & (used > most)] = FULL
            whose[(states > _ENDED) & (abs(now - states) < EXPIRY)] = THEIRS
            whose[states == _THERE] = HERE
            count = equal_first(whose)
            after = first + count
            if whose[0] == OURS:
                kept = counters.kept + min(after * BLOCK, file.size) - first * BLOCK
                # First, because if it is killed here there is less room, and never too much used.
                _put(descriptor, Counters(int(used[count - 1]), kept, counters.passed))
                file.mark(first, after, now)
            elif whose[0] == FULL:
                passed = counters.passed + min(after * BLOCK, end) - start
                _put(descriptor, counters._replace(passed=passed))
        return int(whose[0]), after

    def keep_index(
        self,
        file: CachedFile,
        data: bytes,
        most: int,
    ) -> None:
        """Keep where the records of a file are, if there is room."""
        path = f"{file.path}.index"
        with self._locked() as descriptor:
            counters = self.counters()
            used = counters.used + _paged(len(data)) - _paged(_size(path))
            if used <= most:
                _put(descriptor, counters._replace(used=used))
                _write_part(f"{path}{_UNREADY}", 0, data)
                os.replace(f"{path}{_UNREADY}", path)

    def clear(self, oldest: bool = False) -> list[str]:
        """Remove the datasets that no process uses, or the oldest of them: their uris."""
        held = {}
        removed: list[str] = []
        with self._locked():
            for uri, folder in self._datasets():
                descriptor = _open(os.path.join(folder, _URI), os.O_RDWR)
                if _lock(descriptor) and not (oldest and removed):
                    held[folder] = descriptor
                    removed.append(uri)
                else:
                    os.close(descriptor)
        for folder in held:
            _empty(folder)
        close_all(held.values())
        self._recount()
        return removed

    def datasets(self) -> dict[str, int]:
        """The bytes that are kept of each dataset, by its uri."""
        return {uri: _used(folder) for uri, folder in self._datasets()}

    def _datasets(self) -> list[tuple[str, str]]:
        """The uri and the folder of each dataset; the one that was used longest ago first."""
        datasets = []
        for folder in self._folders():
            path = os.path.join(folder, _URI)
            with contextlib.suppress(OSError):  # no file of ours, or somebody is removing it
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    uri = read_part(path, 0, _PAGE).decode(errors="backslashreplace")
                    datasets.append((status.st_mtime, uri, folder))
        return [(uri, folder) for _, uri, folder in sorted(datasets)]

    def _folders(self) -> list[str]:
        """The folders, not links to any, that have a name of ours."""
        with os.scandir(self.path) as entries:
            return [
                entry.path
                for entry in entries
                if _FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]

    def _recount(self) -> None:
        """Count again what is used: who is killed may have counted what it did not write."""
        with self._locked() as descriptor:
            used = sum(map(_used, self._folders()))
            _put(descriptor, self.counters()._replace(used=used))


def _open(path: str, flags: int) -> int:
    """A descriptor of a file in a folder; neither may be a link, and no pipe is waited for."""
    plain = os.O_NOFOLLOW | os.O_NONBLOCK
    folder = os.open(os.path.dirname(path), os.O_DIRECTORY | plain)
    try:
        return os.open(os.path.basename(path), flags | plain, 0o666, dir_fd=folder)
    finally:
        os.close(folder)


def _empty(folder: str) -> None:
    """Remove our files from the folder of a dataset, and the folder if none stays.

    First the maps: what is not marked is not there.  Last the uri, whose lock is held.
    """
    names = os.listdir(folder)
    for name in sorted(names, key=lambda name: (name == _URI, not name.endswith(".map"))):
        if name == _URI or _FILE.fullmatch(name):
            os.remove(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def read_part(
    path: str,
    offset: int,
    size: int,
) -> bytes:
    """Bytes of a local file; fewer where it ends, none if it is not there."""
    try:
        descriptor = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)


def read_whole(path: str) -> bytes:
    """All bytes of a local file; none if it is not there."""
    return read_part(path, 0, _size(path))


def _write_part(
    path: str,
    offset: int,
    data: bytes,
) -> None:
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT)
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], offset + written)
    finally:
        os.close(descriptor)


def close_all(descriptors: Iterable[int], close: Callable[[int], None] = os.close) -> None:
    # A default, because at the interpreter's exit this module's own names may be None.
    for descriptor in descriptors:
        close(descriptor)


def _put(descriptor: int, counters: Counters) -> None:
    # Of counters that were damaged only `used` is counted again.
    os.pwrite(descriptor, _FORM.pack(*(count % 2**64 for count in counters)), 0)


def _lock(descriptor: int) -> bool:
    """Take a lock, or return False if somebody else has it."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _used(folder: str) -> int:
    """What is used in the folder of a dataset, which somebody may be removing."""
    used = 0
    with contextlib.suppress(FileNotFoundError):
        for name in filter(_FILE.fullmatch, os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".map"):
                used += int(np.count_nonzero(_states(path))) * BLOCK + _FILE_BYTES
            elif not name.endswith(".data"):
                used += _paged(_size(path))
    return used


def _states(path: str) -> np.ndarray:
    """The states in a map; none if it is not there."""
    data = read_whole(path)
    return np.frombuffer(data[: len(data) // _STATE.itemsize * _STATE.itemsize], _STATE)


def _size(path: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return os.lstat(path).st_size
    return 0


def _paged(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=10).hexdigest()
