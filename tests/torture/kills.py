"""Every state that an operation leaves if it is killed: before each write, rename, removal, upload.

An operation is run once, and what is there is kept before each change that it makes: what a kill
at this moment leaves, since nothing of a dead process matters but its files. In each state TFDS and
our readers find the old dataset or the new one; the same call completes it, to the bytes of one
that nobody disturbed; or `undo` gives it up, and the old dataset stands.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
from helpers.agreement import agree, of_records, of_tfds
from helpers.growing_cases import drawn, timeless
from helpers.streaming_cases import TO_ITS_END, Numbered
from services.gcs.control import in_thread
from services.gcs.objects import Preconditions, Store, StoredObject, Upload
from support import forget_services

import tfrecorder
from tfrecorder import TfrecorderError
from tfrecorder.errors import DatasetError
from torture.counts import BrokenError, Count, demand

#: The files of a dataset by their names below it.
Files = dict[str, bytes]

QUIET: dict[str, Any] = {"progress": False}

#: What is there for a process alone, and not for what follows it.
PASSING = ("lock", "tmp/", "progress/")

#: What no reader looks at.
PENDING = ("plan.", "done/", "spool/", "waiting/train", "waiting/test", "waiting/validation")


def rows(first: int, end: int, *labels: str) -> pd.DataFrame:
    """Some of twenty images, one in four of them for the test."""
    paths = drawn("images", 20, (12, 10))[first:end]
    for path in paths:
        os.utime(path, (1e9, 1e9))  # tables hold when an image was modified
    splits = ["TEST" if number % 4 == 3 else "TRAIN" for number in range(first, end)]
    texts = [labels[number % len(labels)] for number in range(first, end)]
    return pd.DataFrame({"split": splits, "image_uri": paths, "label": texts})


def convert(out: str, table: pd.DataFrame, **options: Any) -> None:
    tfrecorder.convert(table, out, num_shards=2, **QUIET, **options)


def append(out: str) -> None:
    """Of ten rows four are there already, one is a reject, one brings a new class."""
    table = rows(8, 18, "a", "b")
    table.loc[5, "image_uri"] += ".missing"
    table.loc[6, "label"] = "c"
    more = {"num_shards": {"TRAIN": 2, "TEST": 1}, "max_reject_fraction": 0.5}
    tfrecorder.append(table, out, **more, **QUIET)


@dataclass(frozen=True)
class Operation:
    """A call on a dataset.

    Attributes:
        start: makes the dataset that is there before.
        call: on it.
        parts: while it rewrites features or classes that do not fit both, there may be no dataset.
        undoes: it is `undo` itself, which nothing gives up.
    """

    start: Callable[[str], object]
    call: Callable[[str], object]
    parts: bool = False
    undoes: bool = False


def _streamed_twice(out: str) -> None:
    for rows in (10, 20):
        tfrecorder.stream(Numbered(rows), out, **TO_ITS_END)


def _grown(out: str) -> None:
    convert(out, rows(0, 12, "a", "b"))
    append(out)


def update(out: str) -> None:
    """Two labels are corrected, one to a new class; rows are added, one of them a reject."""
    table = rows(0, 20, "a", "b")
    table.loc[[2, 9], "label"] = ["b", "d"]
    table.loc[19, "image_uri"] += ".missing"
    tfrecorder.update(table, out, max_reject_fraction=0.5, **QUIET)


def update_splits(out: str) -> None:
    """A row goes to another split, some go, and one is corrected."""
    table = rows(0, 10, "a", "b")
    table.loc[4, ["split", "label"]] = ["TEST", "b"]
    table.loc[6, "label"] = "b"
    tfrecorder.update(table, out, missing="remove", **QUIET)


def _removed_one(out: str) -> None:
    """So that the salt of the marks is known."""
    _grown(out)
    tfrecorder.remove(out, {"row": 0}, **QUIET)


def _updated(out: str) -> None:
    _grown(out)
    update(out)


OPERATIONS = {
    "convert": Operation(lambda out: None, lambda out: convert(out, rows(0, 12, "a", "b"))),
    "append": Operation(lambda out: convert(out, rows(0, 12, "a", "b")), append),
    "stream": Operation(
        lambda out: tfrecorder.stream(Numbered(10), out, **TO_ITS_END),
        lambda out: tfrecorder.stream(Numbered(20), out, **TO_ITS_END),
    ),
    "compact": Operation(_grown, lambda out: tfrecorder.compact(out, num_shards=1, **QUIET)),
    "compact, large shards stay": Operation(
        _grown, lambda out: tfrecorder.compact(out, shard_size="3KB", **QUIET)
    ),
    "update": Operation(_grown, update),
    "update, rows move and go": Operation(_grown, update_splits),
    "remove": Operation(
        _removed_one, lambda out: tfrecorder.remove(out, {"row": [1, 3, 9]}, **QUIET)
    ),
    "undo an update": Operation(_updated, lambda out: tfrecorder.undo(out), undoes=True),
    "undo an append": Operation(_grown, lambda out: tfrecorder.undo(out), undoes=True),
    "undo a batch": Operation(_streamed_twice, lambda out: tfrecorder.undo(out), undoes=True),
    "overwrite": Operation(
        _grown, lambda out: convert(out, rows(4, 16, "a", "c", "b"), overwrite="all")
    ),
    "overwrite, other classes": Operation(
        _grown, lambda out: convert(out, rows(4, 16, "x", "y"), overwrite="all"), parts=True
    ),
}


# ---------------------------------------------------------------------------------- where it is


class Recorder:
    """Keeps the files as they are before each change, while somebody asks for it."""

    _states: list[Files] | None = None

    @contextmanager
    def recorded(self) -> Iterator[list[Files]]:
        self._states = states = []
        try:
            yield states
        finally:
            self._states = None


class Disk(Recorder):
    """A dataset in a folder, each state of which is kept while it is recorded."""

    def __init__(self, folder: Path) -> None:
        self.out = str(folder / "out")
        self._lock = threading.Lock()
        sys.addaudithook(self._hear)

    def files(self) -> Files:
        return files_below(Path(self.out))

    def restore(self, files: Files) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        write(Path(self.out), files)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An audit hook: the interpreter calls it before each change."""
        changes = event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
        if self._states is not None and (changes or writes) and self._lock.acquire(blocking=False):
            try:
                keep(self._states, self.files())
            except FileNotFoundError:  # another thread goes on; its next change is looked at too
                pass
            finally:
                self._lock.release()


class Bucket(Recorder, Store):
    """A dataset in a bucket of a loopback server.

    Attributes:
        held: the first upload whose name ends so waits, once it has `reached` the server, until it
            is `released`.
    """

    out = "gs://bkt/sets/out"

    def __init__(self) -> None:
        super().__init__()
        self.create_bucket("bkt")
        self.held = ""
        self.reached, self.released = threading.Event(), threading.Event()

    def files(self) -> Files:
        with self._lock:
            objects = self.bucket("bkt").values()
            start = "sets/out/"
            return {one.name[len(start) :]: one.data for one in objects if one.name[:9] == start}

    def restore(self, files: Files) -> None:
        for name in self.files():
            self.delete("bkt", f"sets/out/{name}", Preconditions())
        for name, data in files.items():
            must, name = Preconditions(), f"sets/out/{name}"
            self.put(Upload("bkt", name, "", {}, None, None, must), data)

    def put(self, upload: Upload, data: bytes) -> StoredObject:
        if self.held and upload.name.endswith(self.held):
            self.held = ""
            self.reached.set()
            self.released.wait(120)
        with self._each_alone():
            return super().put(upload, data)

    def delete(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        with self._each_alone():
            super().delete(bucket, name, preconditions)

    @contextmanager
    def _each_alone(self) -> Iterator[None]:
        """What is there before a change is kept, of two uploads at once as well."""
        with self._lock:
            if self._states is not None:
                keep(self._states, self.files())
            yield


def files_below(folder: Path) -> Files:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def keep(states: list[Files], files: Files) -> None:
    """Add a state, unless only what passes is another."""
    if not states or lasting(states[-1]) != lasting(files):
        states.append(files)


def lasting(files: Files, but: tuple[str, ...] = PASSING) -> Files:
    private = tuple(f"_tfrecorder/{name}" for name in but)
    return {name: data for name, data in files.items() if not name.startswith(private)}


def write(folder: Path, files: Files) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@contextmanager
def bucket() -> Iterator[Bucket]:
    """A bucket to which this process talks."""
    store = Bucket()
    with in_thread(store) as gcs, patch.dict(os.environ, gcs.environment()):
        forget_services()
        yield store
    forget_services()


# ------------------------------------------------------------------------------ what must hold


class Attacked:
    """An operation that nobody disturbed, the states it went through, and what these may hold."""

    def __init__(self, operation: Operation, place: Disk | Bucket, folder: Path) -> None:
        self._operation, self._place, self._copy = operation, place, folder / "copy"
        operation.start(place.out)
        self.start = start = place.files()
        #: What each commit holds.
        self._held = self._agreed() if start else {}
        with place.recorded() as self.states:
            operation.call(place.out)
        self._whole = timeless(lasting(place.files()))
        keep(self.states, place.files())
        self._held |= self._agreed()
        self._old, self.new = min(self._held) if start else None, max(self._held)

    def _copied(self) -> Path:
        """The dataset on a disk, for TFDS and other readers of files."""
        shutil.rmtree(self._copy, ignore_errors=True)
        write(self._copy, self._place.files())
        return self._copy

    def _agreed(self) -> dict[int, Any]:
        """The newest commit, and what all readers find."""
        found = agree(self._copied(), self._place.out)
        number = tfrecorder.generations(self._place.out)[0]
        return {number: {split: sorted(records) for split, records in found.items()}}

    def look(self, state: Files) -> int | None:
        """The commit that TFDS and our readers find in a state; None if there is no dataset."""
        self._place.restore(state)
        if "dataset_info.json" not in state:
            demand(self._old is None or self._operation.parts, "there is no dataset")
            try:
                tfrecorder.info(self._place.out)
            except DatasetError as error:
                demand("\n" not in str(error), str(error))
                return None
            raise BrokenError("ours reads a dataset that is not committed")
        number = tfrecorder.generations(self._place.out)[0]
        by_tfds = of_tfds(self._copied())
        for split, records in by_tfds.items():
            demand([*of_records(self._place.out, split)] == records, f"{split}: TFDS reads others")
            demand(sorted(records) == self._held[number][split], f"{split}: not of {number}")
        demand(by_tfds.keys() == self._held[number].keys(), f"{number}: other splits")
        return number

    def complete(self, state: Files) -> None:
        """The same call again ends with the bytes of one that nobody disturbed."""
        self._place.restore(state)
        self._operation.call(self._place.out)
        found = timeless(lasting(self._place.files()))
        names = found.keys() | self._whole.keys()
        others = sorted(name for name in names if found.get(name) != self._whole.get(name))
        demand(not others, f"after the same call these files are others: {others}")

    def undo(self, state: Files, seen: int | None) -> None:
        """`undo` instead: what was seen stands, or the old dataset if there was none."""
        pending = "_tfrecorder/plan.json" in state
        if not pending and seen != self.new:
            return  # it had not begun: an older addition would be taken back
        self._place.restore(state)
        try:
            tfrecorder.undo(self._place.out)
        except DatasetError as error:
            demand(seen == self.new or not pending, str(error))
        else:
            if not pending:  # it had ended, and is taken back as a whole
                seen = self._old
        if self._operation.undoes:
            seen = self.new
        if seen is None and self._old is None:
            left = {*lasting(self._place.files())}
            demand(left <= {"_tfrecorder/plan.parquet"}, f"left over: {left}")
            return
        (found,) = self._agreed().values()
        wanted = self._held[self._old if seen is None else seen]
        demand(found == wanted, f"commit {seen} was there, and another is after undo")


def attack(
    name: str, place: Disk | Bucket, folder: Path, steps: tuple[int, int, int] = (1, 1, 1)
) -> Count:
    """Look at each state of an operation; complete it, and undo it.

    Args:
        steps: every how many states these three are done.

    Raises:
        BrokenError: a promise does not hold.
    """
    folder.mkdir(parents=True)
    attacked = Attacked(OPERATIONS[name], place, folder)
    seen: list[int | None] = []
    visible = None
    for number, state in enumerate(attacked.states):
        try:
            if not all(number % step for step in (steps[0], steps[2])):
                before, visible = visible, lasting(state, PASSING + PENDING)
                seen.append(seen[-1] if before == visible else attacked.look(state))
            # After its end an overwrite would begin once more.
            if number % steps[1] == 0 and state is not attacked.states[-1]:
                attacked.complete(state)
            if number % steps[2] == 0:
                attacked.undo(state, seen[-1])
        except (AssertionError, TfrecorderError) as error:
            write(folder / "broken", state)
            raise BrokenError(f"{name}, state {number}, in {folder}/broken: {error}") from error
    note = ", ".join(f"{seen.count(one)} {one}" for one in dict.fromkeys(seen))
    return Count(f"{name}, killed at any change", len(seen), 0, 0, f"commits found: {note}")


def kill(folder: Path) -> list[Count]:
    """Everything, on a disk and in a bucket."""
    before = os.getcwd()
    folder.mkdir(parents=True)
    os.chdir(folder)
    try:
        counts = [attack(name, Disk(folder / name), folder / name) for name in OPERATIONS]
        for name in OPERATIONS:
            with bucket() as place:
                counts.append(attack(name, place, folder / f"{name} in a bucket"))
    finally:
        os.chdir(before)
    return counts
