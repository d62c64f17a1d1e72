"""`repair`: write missing and damaged files again, with exactly the bytes they had.

A shard is written from the staged plan and the sources into a separate folder.  It takes its place
only if its CRC32C is the original one.  The files of the commit follow from the plan and the
done-records; the commit makes them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import google_crc32c

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool, cores
from tfrecorder.display.bars import is_shown
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, OutputError, SourceError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.format.tfrecord import read_places
from tfrecorder.output.directory import claim, exchange_begun, refuse_foreign
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.output.exchange import complete
from tfrecorder.reading.generations import committed_directories
from tfrecorder.storage import folders
from tfrecorder.verification.commit_files import check_commit, check_gathered
from tfrecorder.verification.expectation import (
    Expectation,
    Written,
    other_sums,
    read_expectation,
    refuse,
)
from tfrecorder.verification.faults import Fault
from tfrecorder.verification.rebuild import LOST, rebuild_lost, remove_folders
from tfrecorder.verification.shard import ShardFindings
from tfrecorder.verification.source_change import describe
from tfrecorder.verification.verify import (
    Advance,
    byte_bar,
    check_all,
    check_common,
    check_shards,
    verify,
)
from tfrecorder.writing.attempt import Attempt
from tfrecorder.writing.commit import commit
from tfrecorder.writing.shards import Pool, write_shard

_NO_PLAN = "Copy that file from another copy of the dataset, or convert again with overwrite=True."


@dataclass(frozen=True)
class RepairResult:
    """What `repair` did.

    Attributes:
        directory: the dataset directory, as it was given.
        files: the names of the files that were written again; empty if nothing was wrong.
        lost: where the plan was lost and was made again from the records: what they do not hold.
        bytes: the size of these files.
        seconds: how long it took.
    """

    directory: str
    files: tuple[str, ...]
    bytes: int
    seconds: float
    lost: tuple[str, ...] = ()

    @property
    def shards(self) -> tuple[str, ...]:
        """The shards among the files."""
        return tuple(file for file in self.files if layout.parse_shard(file))

    def __str__(self) -> str:
        if not self.files:
            return f"{self.directory}: all is well; nothing was written. ({self.seconds:.1f} s)"
        names = "".join(f"\n  {file}" for file in self.files)
        names += "".join(f"\nnot known any more: {words}" for words in self.lost)
        return (
            f"{self.directory}: {counted(len(self.files), 'file')} written again, as before "
            f"({counted(self.bytes, 'byte')}, {self.seconds:.1f} s):{names}"
        )


def repair(
    directory: str | os.PathLike[str],
    base: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> RepairResult:
    """Write the missing and damaged files of a dataset directory again, with the bytes they had.

    It first checks everything that `verify` checks; sound files are not touched.  If an overwrite
    was interrupted while its new dataset was replacing the old one, the overwrite is completed
    first.  If plan and metadata are both lost, they are made again from the records, as far as
    these hold them; `lost` of the result says what they do not.

    Args:
        directory: the output_dir of a finished conversion.
        base: the folder that relative image uris start from, if it has moved since the conversion.
        progress: show a bar while checking; None shows it only in a terminal or a notebook.

    Returns:
        The files that were written again.

    Raises:
        DatasetError: the directory holds no committed dataset, or too little of it is left.
        SourceError: sources have changed or vanished.  Their shards stay as they are, and other
            shards are repaired; the files of the commit are repaired once all shards are.
        OutputError: another conversion or repair is running here, or the disk cannot be written.

    Example:
        >>> tfrecorder.repair("out").files  # doctest: +SKIP
        ('train-00003-of-00012.tfrecord',)
    """
    started = time.perf_counter()
    where = storage.given_path(directory)
    with storage.failing_as(DatasetError, where):
        if exchange_begun(where):
            with claim(where):
                complete(where)
        refuse(where)
        folder = None if base is None else storage.absolute(storage.given_path(base))
        rebuilt = rebuild_lost(
            where, lambda one: _repair(read_expectation(one), folder, lambda size: None)
        )
        _refuse_foreign(where)
    try:
        with claim(where):
            files = [*rebuilt, *_repair_all(where, folder, progress)]
    except OutputError as error:
        # The system refuses to write (a link of ours has no errno).  If all is well, it need not.
        if not getattr(error.__cause__, "errno", None) or not verify(where, progress=progress).ok:
            raise
        files = []
    size = sum(storage.size_or_none(os.path.join(where, file)) or 0 for file in files)
    seconds = time.perf_counter() - started
    return RepairResult(where, tuple(files), size, seconds, LOST if rebuilt else ())


def _refuse_foreign(directory: str) -> None:
    expected = read_expectation(directory)
    if not expected.staged:
        raise DatasetError(
            f"{directory} cannot be repaired: its plan, {layout.PLAN}, is damaged or gone, so the"
            f" order of its rows is not known. {_NO_PLAN}"
        )
    try:
        refuse_foreign(directory)
    except OutputError as error:
        raise DatasetError(
            f"{directory} holds files that do not belong to the dataset; move them away first, "
            f"then repair again. ({error})"
        ) from error


def _repair_all(directory: str, base: str | None, progress: bool | None) -> list[str]:
    """Repair each generation; return the names of the files below the dataset directory."""
    written: list[str] = []
    refused: SourceError | None = None
    every = list(map(read_expectation, committed_directories(directory)))
    with byte_bar(every, is_shown(progress)) as advance:
        for number, expected in enumerate(every):
            folder = layout.generation_of("", number)
            try:
                written += [os.path.join(folder, file) for file in _repair(expected, base, advance)]
            except SourceError as error:
                refused = refused or error
    if refused is not None:
        raise refused
    return written


def _repair(expected: Expectation, base: str | None, advance: Advance) -> list[str]:
    directory = expected.directory
    shards, faults = check_all(expected, None, advance)
    if not faults:
        return []
    _refuse_damaged_plan(directory, faults)
    faulty = {fault.file for fault in faults}
    written = _write_plan(expected, faulty, base) + _write_indexes(expected, shards, faulty)
    groups = _groups_to_write(expected, shards, faulty - set(written))
    _refuse_unproved(expected, shards, groups)
    files, done, refusals = _write_shards(expected, shards, groups, base)
    written += files
    if not refusals:
        written += _commit_again(read_expectation(directory), done)
    written = sorted(set(written))
    if refusals:
        others = f" Other files were written again: {', '.join(written)}." if written else ""
        raise SourceError(
            f"{directory} is not repaired, because sources have changed: "
            f"{'; '.join(refusals)}. These shards were left as they are. Bring the sources back "
            f"and repair again, or convert again with overwrite=True.{others}"
        )
    _check_again(directory, [group for group, one in enumerate(shards) if one.faults])
    return written


def _check_again(directory: str, groups: Sequence[int]) -> None:
    """Raise a DatasetError if a repaired file still has a fault."""
    expected = read_expectation(directory)
    found = [*expected.faults]
    for one in check_shards(expected, groups):
        found += one.faults
    found += check_common(expected, expected.done, found)
    if found:
        raise DatasetError(
            f"{directory}: {found[0].file} is as it was written, but it is still wrong: "
            f"{found[0]}. Writing it again does not help: convert again with overwrite=True, and "
            "please report it."
        )


def _refuse_damaged_plan(directory: str, faults: Sequence[Fault]) -> None:
    for fault in faults:
        if fault.file == layout.PLAN_ROWS:
            raise DatasetError(
                f"{directory} cannot be repaired: its plan is damaged: {fault.file}: {fault}. "
                f"{_NO_PLAN}"
            )


def _write_plan(expected: Expectation, faulty: Collection[str], base: str | None) -> list[str]:
    """Write the plan's head, if everything that decides on records is unchanged.

    The folder of relative uris may have changed: `base` is used if it gives the original bytes.
    """
    if layout.PLAN not in faulty:
        return []
    known = expected.files.get(layout.PLAN)
    for folder in (expected.plan.base, base):
        if folder is not None:
            data = dataclasses.replace(expected.plan, base=folder).to_json()
            if not other_sums(layout.PLAN, len(data), google_crc32c.value(data), known):
                storage.publish_bytes(expected.directory, layout.PLAN, data)
                return [layout.PLAN]
    raise DatasetError(
        f"{expected.directory} cannot be repaired: {layout.PLAN} names a different folder for the "
        f"images than before: {expected.plan.base!r}. Give the right one as base. {_NO_PLAN}"
    )


def _write_indexes(
    expected: Expectation, shards: Sequence[ShardFindings], faulty: Collection[str]
) -> list[str]:
    """Write damaged indexes of sound shards again: the shard shows where records begin."""
    written = []
    for one in shards:
        file = one.shard.index_file
        if one.sound and file in faulty:
            with storage.open_seekable(expected.path(one.shard.file)) as shard:
                places = read_places(shard, one.bytes)
                lines = "".join(f"{offset} {size}\n" for offset, size in places)
            storage.publish_bytes(expected.directory, file, lines.encode())
            written.append(file)
    return written


def _groups_to_write(
    expected: Expectation, shards: Sequence[ShardFindings], faulty: Collection[str]
) -> list[int]:
    """The shards to write again: damaged ones, or ones whose index, lists or record are damaged."""
    return [
        group
        for group, one in enumerate(shards)
        if {one.shard.file, one.shard.done, *one.shard.beside.values()}.intersection(faulty)
    ]


def _refuse_unproved(
    expected: Expectation, shards: Sequence[ShardFindings], groups: Sequence[int]
) -> None:
    for group in groups:
        if not expected.written(shards[group].shard):
            raise DatasetError(
                f"{expected.directory} cannot be repaired: for {shards[group].shard.file} neither "
                f"the done-record nor {layout.METADATA} is left to prove the new file against. "
                "Convert again with overwrite=True."
            )


def _write_shards(
    expected: Expectation,
    shards: Sequence[ShardFindings],
    groups: Sequence[int],
    base: str | None,
) -> tuple[list[str], list[DoneRecord], list[str]]:
    """Write shards again; return the files that took their places, the done-records of these
    shards, and a message for each that was refused."""
    if not groups:
        return [], [], []
    if expected.plan.spooled:
        files = (shards[group].shard.file for group in groups)
        words = "its images came as bytes, which were kept only until the commit"
        return [], [], [f"{file}: {words}" for file in files]
    plan = expected.plan if base is None else dataclasses.replace(expected.plan, base=base)
    written: list[str] = []
    proved: list[DoneRecord] = []
    refusals: list[str] = []
    threads = cores()
    with _folder_aside(expected) as folder, ThreadPool(threads) as executor:
        aside = dataclasses.replace(expected, directory=folder, done={}, listed={}, standing={})
        pool = Pool(executor, threads)
        for group in groups:
            attempt = Attempt(folder, plan.shards[group], plan.digest)
            done = write_shard(plan, group, attempt, pool)
            shard, found = plan.shards[group], Written(done.records, done.bytes, done.crc32c)
            if found in expected.written(shard).values():
                written += _take_places(expected, aside, shard, shards[group].sound)
                proved.append(done)
            else:
                refusals.append(describe(expected, aside, group, done))
            storage.remove(folder, shard.file)
    return written, proved, refusals


@contextlib.contextmanager
def _folder_aside(expected: Expectation) -> Iterator[str]:
    """A local folder in which `write_shard` finds the rows of the plan."""
    with _empty_folder(expected.directory) as folder:
        with storage.publish(folder, layout.PLAN_ROWS) as lent:
            _copy(expected.path(layout.PLAN_ROWS), lent)
        yield folder


@contextlib.contextmanager
def _empty_folder(directory: str) -> Iterator[str]:
    """A folder on the disk of a local dataset, so that files need only be renamed."""
    if not storage.is_local(directory):
        with tempfile.TemporaryDirectory(prefix="tfrecorder-") as folder:
            yield folder
        return
    name = f"{layout.TMP}/repair-{uuid.uuid4().hex}"
    try:
        yield os.path.join(directory, name)
    finally:
        storage.remove(directory, name)


def _copy(path: str, file: BinaryIO) -> None:
    with storage.open_seekable(path) as found:
        while data := found.read(2**20):
            storage.write_all(file, data)


def _take_places(old: Expectation, new: Expectation, shard: Shard, sound: bool) -> list[str]:
    """Publish what is not in its place yet of a proved shard, the done-record last."""
    beside = (shard.index_file, shard.rejects, shard.suspects, shard.done)
    moved = [] if sound else [shard.file]
    moved += [file for file in beside if _bytes_or_none(old, file) != new.read(file)]
    for file in moved:
        if storage.is_local(old.directory):
            folders.move(old.directory, os.path.relpath(new.path(file), old.directory), file)
            continue
        with storage.publish(old.directory, file) as place:
            _copy(new.path(file), place)
    return moved


def _bytes_or_none(where: Expectation, file: str) -> bytes | None:
    try:
        return where.read(file)
    except storage.UnreadableError:
        return None


def _commit_again(expected: Expectation, proved: Sequence[DoneRecord]) -> list[str]:
    """Write all files of the commit if one is not as it must be; return those that were not.

    Args:
        proved: done-records just written again.  They may count other retries than before, and the
            commit's list must then count the same.
    """
    by_name = {one.shard: one for one in (*expected.done.values(), *proved)}
    done = {shard: by_name[shard.name] for shard in expected.plan.shards if shard.name in by_name}
    found = [*check_commit(expected, done), *check_gathered(expected, frozenset())]
    files = {fault.file for fault in (*expected.faults, *found)} - {shard.done for shard in done}
    remove_folders(map(expected.path, files))
    if files:
        # The conversion, which committed, has already judged the fraction.
        commit(expected.plan, done.values(), expected.directory, max_reject_fraction=1.0)
    return sorted(files)
