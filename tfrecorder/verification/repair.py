"""`repair`: write missing and damaged files again, with exactly the bytes they had.

A shard is written from the staged plan and the sources into a separate folder.  It takes its place
only if its CRC32C is the original one.  The files of the commit follow from the plan and the
done-records; the commit makes them again.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import os
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool, cores
from tfrecorder.display.bars import is_shown
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, OutputError, SourceError
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import value_of
from tfrecorder.format.layout import Shard
from tfrecorder.format.tfrecord import read_places
from tfrecorder.output.directory import claim, exchange_begun, refuse_foreign
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.output.exchange import complete
from tfrecorder.reading.generations import committed_directories
from tfrecorder.storage import folders
from tfrecorder.verification.commit_files import check_commit, check_gathered
from tfrecorder.verification.expectation import Expectation, read_expectation, refuse
from tfrecorder.verification.faults import Fault
from tfrecorder.verification.rebuild import LOST, rebuild_lost, remove_folders
from tfrecorder.verification.shard import ShardFindings
from tfrecorder.verification.verify import Advance, byte_bar, check_all, no_bar, verify
from tfrecorder.writing.attempt import Attempt
from tfrecorder.writing.commit import commit
from tfrecorder.writing.shards import REJECT_HEADER, Pool, rows_of_csv, to_csv, write_shard

_NO_PLAN = (
    "Copy that file from another copy of the dataset, or convert again with `overwrite=True`."
)


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
        ('train-00003.tfrecord',)
    """
    started = time.perf_counter()
    where = storage.given_path(directory)
    with storage.failing_as(DatasetError, where):
        if exchange_begun(where):
            with claim(where):
                complete(where)
        refuse(where)
        folder = None if base is None else storage.absolute(storage.given_path(base))
        rebuilt = rebuild_lost(where, lambda path: _repair(read_expectation(path), folder))
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
    _refuse_damaged_plan(directory, read_expectation(directory).faults)
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


def _repair(expected: Expectation, base: str | None, advance: Advance = no_bar) -> list[str]:
    directory = expected.directory
    shards, faults = check_all(expected, advance=advance)
    if not faults:
        return []
    _refuse_damaged_plan(directory, faults)
    faulty = {fault.file for fault in faults}
    written = _write_indexes(expected, shards, faulty)
    own_files = [{f.shard.file, f.shard.done, *f.shard.beside.values()} for f in shards]
    groups = [group for group, own in enumerate(own_files) if own & faulty.difference(written)]
    files, done, refusals = _write_shards(expected, shards, groups, base)
    written += files
    if refusals:
        others = f" Other files were written again: {', '.join(sorted(written))}." * bool(written)
        raise SourceError(
            f"{directory} is not repaired, because sources have changed: "
            f"{'; '.join(refusals)}. These shards were left as they are. Bring the sources back "
            f"and repair again, or convert again with `overwrite=True`.{others}"
        )
    written += _commit_again(read_expectation(directory), done)
    _, left = check_all(read_expectation(directory), [g for g, f in enumerate(shards) if f.faults])
    if left:
        raise DatasetError(
            f"{directory}: {left[0].file} is as it was written, but it is still wrong: "
            f"{left[0]}. Writing it again does not help: convert again with `overwrite=True`, and "
            "please report it."
        )
    return sorted(set(written))


def _refuse_damaged_plan(directory: str, faults: Iterable[Fault]) -> None:
    for fault in faults:
        if fault.file in (layout.PLAN, layout.PLAN_ROWS):
            raise DatasetError(
                f"{directory} cannot be repaired: its plan is damaged or gone, so the order of its "
                f"rows is not known: {fault.file}: {fault}. {_NO_PLAN}"
            )


def _write_indexes(
    expected: Expectation, shards: Sequence[ShardFindings], faulty: Collection[str]
) -> list[str]:
    """Write damaged indexes of sound shards again: the shard shows where records begin."""
    written = []
    for findings in shards:
        file = findings.shard.index_file
        if findings.sound and file in faulty:
            with storage.open_seekable(expected.path(findings.shard.file)) as shard:
                places = read_places(shard, findings.bytes)
                lines = "".join(f"{offset} {size}\n" for offset, size in places)
            storage.publish_bytes(expected.directory, file, lines.encode())
            written.append(file)
    return written


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
        pool = Pool(executor, threads)
        for group in groups:
            shard = plan.shards[group]
            if (sums := expected.written(shard)) is None:
                raise DatasetError(
                    f"{expected.directory} cannot be repaired: for {shard.file} neither the "
                    f"done-record nor {layout.METADATA} is left to prove the new file against. "
                    "Convert again with `overwrite=True`."
                )
            done = write_shard(plan, group, Attempt(folder, shard, plan.digest), pool)
            if (done.bytes, done.crc32c) == (sums["bytes"], sums["crc32c"]):
                written += _take_places(expected, folder, shard, shards[group].sound)
                proved.append(done)
            else:
                refusals.append(f"{shard.file}: {_difference(expected, folder, shard)}")
            storage.remove(folder, shard.file)
    return written, proved, refusals


def _difference(expected: Expectation, folder: str, shard: Shard) -> str:
    """Why a shard comes out different: the first row that became a reject, if one did."""
    lists = (expected.path(shard.rejects), os.path.join(folder, shard.rejects))
    before, now = (_bytes_or_none(path) or b"" for path in lists)
    header = to_csv(REJECT_HEADER, [])
    rejects = rows_of_csv(now.removeprefix(header))
    for number, row in rejects if before.startswith(header) else ():
        if row not in before:
            _, uri, _, reason = next(csv.reader([row.decode()]))
            return f"row {number}, image {value_of(uri)!r}, cannot be used now ({reason})"
    return "an image has other bytes now, or another version of Pillow encodes it differently"


@contextlib.contextmanager
def _folder_aside(expected: Expectation) -> Iterator[str]:
    """A local folder in which `write_shard` finds the rows of the plan.

    It is on the disk of a local dataset, so that files need only be renamed.
    """
    directory, name = expected.directory, f"{layout.TMP}/repair-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        if storage.is_local(directory):
            folder = os.path.join(directory, name)
            stack.callback(storage.remove, directory, name)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tfrecorder-"))
        _copy(expected.path(layout.PLAN_ROWS), folder, layout.PLAN_ROWS)
        yield folder


def _copy(path: str, directory: str, name: str) -> None:
    with storage.open_seekable(path) as file, storage.publish(directory, name) as copy:
        while data := file.read(2**20):
            storage.write_all(copy, data)


def _take_places(old: Expectation, folder: str, shard: Shard, sound: bool) -> list[str]:
    """Publish what is not in its place yet of a proved shard, the done-record last."""
    moved = [] if sound else [shard.file]
    for file in (*shard.beside.values(), shard.done):
        if _bytes_or_none(old.path(file)) != storage.read_bytes(os.path.join(folder, file)):
            moved.append(file)
    for file in moved:
        path = os.path.join(folder, file)
        if storage.is_local(old.directory):
            folders.move(old.directory, os.path.relpath(path, old.directory), file)
        else:
            _copy(path, old.directory, file)
    return moved


def _bytes_or_none(path: str) -> bytes | None:
    try:
        return storage.read_bytes(path)
    except storage.UnreadableError:
        return None


def _commit_again(expected: Expectation, proved: Sequence[DoneRecord]) -> list[str]:
    """Write all files of the commit if one is not as it must be; return those that were not.

    Args:
        proved: done-records just written again.  They may count other retries than before, and the
            commit's list must then count the same.
    """
    by_name = {done.shard: done for done in (*expected.done.values(), *proved)}
    done = {shard: by_name[shard.name] for shard in expected.plan.shards if shard.name in by_name}
    faults = [*check_commit(expected, done), *check_gathered(expected)]
    files = {fault.file for fault in (*expected.faults, *faults)} - {shard.done for shard in done}
    remove_folders(map(expected.path, files))
    if files:
        # The conversion, which committed, has already judged the fraction.
        commit(expected.plan, done.values(), expected.directory, max_reject_fraction=1.0)
    return sorted(files)
