"""A folder that images are put into, as the source of a stream; no server is needed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Set
from typing import Any

from tfrecorder import storage
from tfrecorder.errors import MissingSourceError, SourceError
from tfrecorder.reading.merged_rows import FOLDER
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.splits import SPELLINGS
from tfrecorder.sources.folder import listed
from tfrecorder.streaming.stream_source import Unusable

#: Seconds for which a file must keep its size and time before it counts.  A program that writes a
#: file seldom pauses for so long, and one that renames it into the folder loses no more than that.
SETTLE = 1.0

#: Seconds between two looks at a folder; longer if needed, so that looking takes at most a
#: twentieth of the time.
LOOK_EVERY = 0.5
LOOKING = 20


class WatchedFolder:
    """The images of a folder, both those already there and those to come.

    They are arranged as for `tfrecorder.convert`: `split/label/file`, `label/file` or `file`.  A
    file counts once it has kept its size and time for `settle` seconds.  It is identified by its
    name, size and time: a file that is written again is another row.

    Args:
        folder: a local directory.
        settle: seconds.

    Raises:
        SourceError: there is no such folder, or it is not a local one.
    """

    ordered = False

    def __init__(
        self,
        folder: str,
        settle: float,
    ) -> None:
        if not storage.is_local(folder):
            raise SourceError(
                f"source {folder!r}: only a local folder can be watched; for a bucket, mount it, "
                "or give a source of your own (tfrecorder.streaming.StreamSource)."
            )
        self.base = storage.absolute(folder)
        if not os.path.isdir(self.base):
            hint = storage.hint_beside(folder)
            raise MissingSourceError(
                f"source {folder!r}: there is no such folder (looked in {os.getcwd()}){hint}. A "
                "stream watches a folder; the rows of a file are written once, by `convert` or "
                "`append`."
            )
        self.name = f"{FOLDER}{self.base}"
        self._settle = settle
        #: For each file that may still change: its position, and since when it has had that
        #: position.
        self._seen: dict[str, tuple[str, float]] = {}
        self._settling = 0
        self._behind = 0
        self._next_look = 0.0

    def rows(self, taken: Set[str]) -> Iterator[tuple[dict[str, Any], str]]:
        """The files that no longer change and were not taken yet; see `StreamSource`.

        Raises:
            SourceError: the folder, or one in it, cannot be listed.
        """
        began = time.monotonic()
        ready = self._ready(taken or frozenset())
        ended = time.monotonic()
        self._next_look = ended + max(LOOK_EVERY, LOOKING * (ended - began))
        self._behind = len(ready)
        for parts, position in ready:
            self._behind -= 1
            yield _cells(parts), position

    def wait(self, seconds: float) -> bool:
        """Sleep until the next look at the folder; False if it is still to wait for."""
        left = max(0.0, self._next_look - time.monotonic())
        time.sleep(min(seconds, left))
        return left <= seconds

    def pending(self) -> bool:
        """True while files are there that may still change."""
        return self._settling > 0

    def behind(self, taken: Set[str]) -> int:
        """Files that were ready at the last look and not yet taken."""
        return self._behind

    def replaced(self, position: str) -> bool:
        """True if another size or time shows that a file was written again."""
        name, size, changed = json.loads(position)
        status = _status(os.path.join(self.base, name))
        return status is not None and (status.st_size, status.st_mtime_ns) != (size, changed)

    def _ready(self, taken: Set[str]) -> list[tuple[tuple[str, ...], str]]:
        """The path parts of the files to take, oldest first, and their positions."""
        now = time.monotonic()
        seen = {}
        settled = []
        for parts in self._files():
            name = "/".join(parts)
            if (status := _status(os.path.join(self.base, name))) is None:
                continue
            position = json.dumps([name, status.st_size, status.st_mtime_ns])
            if position in taken:
                continue
            before = self._seen.get(name)
            since = before[1] if before and before[0] == position else now
            seen[name] = position, since
            if now - since >= self._settle:
                settled.append((status.st_mtime_ns, parts, position))
        self._seen = seen
        self._settling = len(seen) - len(settled)
        return [(parts, position) for _, parts, position in sorted(settled)]

    def _files(self) -> list[tuple[str, ...]]:
        # A mount that is away for a moment must not end the stream; nothing is taken then.
        return listed(self.base).images if os.path.isdir(self.base) else []


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # removed, out of reach now, or a link to what is not there: later looks decide
        return None


def _cells(parts: tuple[str, ...]) -> dict[str, Any]:
    """The row of a file, from the folders it is in."""
    name = "/".join(parts)
    cells = {URI_COLUMN: name}
    if len(parts) == 1:
        return cells
    if len(parts) == 2:
        return {**cells, LABEL_COLUMN: parts[0]}
    if len(parts) == 3 and parts[0].lower() in SPELLINGS:
        return {**cells, SPLIT_COLUMN: parts[0], LABEL_COLUMN: parts[1]}
    return Unusable(name, "bad_place: the file is not at split/label/file, label/file or file")
