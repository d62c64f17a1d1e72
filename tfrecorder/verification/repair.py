"""`repair`: write missing and damaged files again, with exactly the bytes they had.

A shard is written from the rows of its table and the sources into a separate folder.  It takes its
place only if its CRC32C is the original one.  What follows from other files is made again from
them: indexes, tables, manifests, and the files that a dataset has once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool, cores
from tfrecorder.display.bars import is_shown
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, OptionError, OutputError, SourceError
from tfrecorder.format import layout
from tfrecorder.format.documents import seal
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import BASE, REJECT_OF, spool_columns, value_columns
from tfrecorder.format.tfrecord import read_places
from tfrecorder.output.directory import claim, refuse_foreign
from tfrecorder.output.staging import restage_rows
from tfrecorder.plan.plan import Plan, PlanKind
from tfrecorder.reading.shard_tables import read_columns
from tfrecorder.schema.fields import primary_image
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.storage import folders
from tfrecorder.verification.common_files import LISTS, common_files, gathered_lists
from tfrecorder.verification.expectation import Expectation, read_expectation, refuse
from tfrecorder.verification.faults import Fault
from tfrecorder.verification.rebuild import remake
from tfrecorder.verification.shard import ShardFindings
from tfrecorder.verification.verify import byte_bar, check_all, verify
from tfrecorder.writing.attempt import Attempt
from tfrecorder.writing.commit import complete, replace_commit
from tfrecorder.writing.manifest import sums_of
from tfrecorder.writing.shards import Pool, write_shard

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RepairResult:
    """What `repair` did.

    Attributes:
        directory: the dataset directory, as it was given.
        files: the names of the files that were written again; empty if nothing was wrong.
        lost: of what was made again from the records: what they do not hold.
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
            f"{self.directory}: {counted(len(self.files), 'file')} written again"
            f"{'' if self.lost else ', as before'} "
            f"({counted(self.bytes, 'byte')}, {self.seconds:.1f} s):{names}"
        )


def repair(
    directory: str | os.PathLike[str],
    base: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> RepairResult:
    """Write the missing and damaged files of a dataset directory again, with the bytes they had.

    It first checks everything that `verify` checks; sound files are not touched.  What an operation
    left to do after its commit is done first; one that is not committed is left alone.  Tables and
    manifests that are lost are made again from the records, as far as these hold them; `lost` of
    the result says what they do not.

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
    folder = None if base is None else storage.absolute(storage.given_path(base))
    lost: list[str] = []
    with storage.failing_as(DatasetError, where):
        refuse(where)
        try:
            # What is lost says which files are foreign: that is looked at later.
            with claim(where, has_plan=False):
                files = _repair(where, folder, is_shown(progress), lost)
        except OutputError as error:
            # The system refuses to write (a link of ours has no errno).  If all is well, it need
            # not.
            refused = getattr(error.__cause__, "errno", None)
            if not refused or not verify(where, progress=progress).ok:
                raise
            files = []
    size = sum(storage.size_or_none(os.path.join(where, file)) or 0 for file in files)
    return RepairResult(where, tuple(files), size, time.perf_counter() - started, tuple(lost))


def _repair(directory: str, base: str | None, shown: bool, lost: list[str]) -> list[str]:
    """Repair a dataset that is claimed; return the names of the files."""
    expected = read_expectation(directory)
    _refuse_unreadable(expected)
    if not expected.lost and expected.info and complete(directory):
        expected = read_expectation(directory)
    with byte_bar(expected, shown) as advance:
        findings, faults = check_all(expected, expected.shards, advance=advance)
    if not faults:
        return []
    faulty = {fault.file for fault in faults}
    _refuse_foreign(expected, faults)
    files = _remade(expected, findings, faulty, lost)
    written = _publish(directory, files)
    expected = read_expectation(directory)
    written += _write_indexes(expected, findings, faulty - {*written})
    others, refusals = _write_shards(expected, findings, base)
    written += others
    if refusals:
        more = f" Other files were written again: {', '.join(sorted(written))}." * bool(written)
        raise SourceError(
            f"{directory} is not repaired, because sources have changed: "
            f"{'; '.join(refusals)}. These shards were left as they are. Bring the sources back "
            f"and repair again, or convert again with `overwrite=True`.{more}"
        )
    written += _write_common(expected, faulty)
    storage.sync(directory, written)
    again = [checked.shard for checked in findings if faulty & {*checked.shard.files}]
    _, left = check_all(read_expectation(directory), again)
    if left:
        raise DatasetError(
            f"{directory}: {left[0].file} is as it was written, but it is still wrong: "
            f"{left[0]}. Writing it again does not help: convert again with `overwrite=True`, and "
            "please report it."
        )
    return sorted({*written})


def _refuse_unreadable(expected: Expectation) -> None:
    """What may not be read is not lost."""
    for fault in expected.faults:
        if fault.code == "unreadable" or fault.file == layout.PLAN:
            remedy = (
                "Get access first."
                if fault.code == "unreadable"
                else ("If no operation is under way, remove it.")
            )
            raise DatasetError(
                f"{expected.directory} is not repaired: {fault.file}: {fault.message}. {remedy}"
            )


def _refuse_foreign(expected: Expectation, faults: Iterable[Fault]) -> None:
    try:
        if not expected.lost and expected.info:
            refuse_foreign(expected.directory)
        reason = next((str(fault) for fault in faults if fault.code == "foreign_shard"), None)
    except OutputError as error:
        reason = str(error)
    if reason is not None:
        raise DatasetError(
            f"{expected.directory} holds files that do not belong to the dataset; move them away "
            f"first, then repair again. ({reason})"
        )


def _remade(
    expected: Expectation,
    findings: Sequence[ShardFindings],
    faulty: Collection[str],
    lost: list[str],
) -> dict[str, bytes]:
    """Lost manifests and damaged tables, made again from sound shards."""
    tables = []
    for checked in findings:
        shard = checked.shard
        if not checked.sound and shard not in expected.done:
            raise DatasetError(
                f"{expected.directory} cannot be repaired: {shard.file} is damaged, and of the "
                "manifests none that is left lists it, so nothing proves what it held. Copy "
                f"{layout.PRIVATE}/ from another copy of the dataset, or convert again."
            )
        if checked.sound and shard.table in faulty:
            tables.append(shard)
    try:
        made = remake(expected, tables)
    except (
        storage.UnreadableError,
        DatasetError,
        LookupError,
        OptionError,
        TypeError,
        ValueError,
    ) as error:
        raise DatasetError(
            f"{expected.directory} cannot be repaired: what is left does not suffice to make lost "
            f"files again: {error}. Copy {layout.PRIVATE}/ from another copy of the dataset, or "
            "convert again."
        ) from error
    lost += made.lost
    return made.files


def _publish(directory: str, files: Mapping[str, bytes]) -> list[str]:
    """Write files that are not as they should be, in this order; return their names."""
    written = []
    for file, data in files.items():
        if _bytes_or_none(os.path.join(directory, file)) != data:
            _remove_folder(os.path.join(directory, file))
            storage.publish_bytes(directory, file, data)
            written.append(file)
    return written


def _remove_folder(path: str) -> None:
    """Remove an empty folder that stands where a file belongs."""
    if os.path.isdir(path) and not os.path.islink(path):
        if os.listdir(path):
            raise storage.UnwritableError(f"{path} is a folder with files; move it away")
        os.rmdir(path)


def _write_indexes(
    expected: Expectation, findings: Sequence[ShardFindings], faulty: Collection[str]
) -> list[str]:
    """Write damaged indexes of sound shards again: the shard shows where records begin."""
    written = []
    for checked in findings:
        file = checked.shard.index_file
        if checked.sound and file in faulty:
            with storage.open_seekable(expected.path(checked.shard.file)) as shard:
                written += _publish(expected.directory, {file: _index(shard, checked.bytes)})
    return written


def _index(shard: Any, size: int) -> bytes:
    return "".join(f"{offset} {size}\n" for offset, size in read_places(shard, size)).encode()


def _write_shards(
    expected: Expectation, findings: Sequence[ShardFindings], base: str | None
) -> tuple[list[str], list[str]]:
    """Write damaged shards again from the rows of their tables.

    Returns:
        The files that took their places, and a message for each shard that was refused.
    """
    damaged = {checked.shard for checked in findings if not checked.sound}
    if not damaged:
        return [], []
    written: list[str] = []
    refusals: list[str] = []
    threads = cores()
    with _folder_aside(expected.directory) as folder, ThreadPool(threads) as executor:
        pool = Pool(executor, threads)
        for commit in expected.commits.values():
            for shard in (shard for shard in commit.own_shards if shard in damaged):
                done = expected.done[shard]
                try:
                    plan, rows = _plan_aside(expected, Plan.of(commit.manifest), shard, base)
                    restage_rows(plan, rows, folder)
                    new = write_shard(plan, 0, Attempt(folder, shard, plan.digest), pool)
                    if (new.bytes, new.crc32c) != (done.bytes, done.crc32c):
                        raise SourceError(_difference(expected, folder, plan, shard))
                except (DatasetError, SourceError) as error:
                    refusals.append(f"{shard.file}: {error}")
                    continue
                for file in (shard.file, shard.index_file):
                    path = os.path.join(folder, file)
                    if file != shard.file and _bytes_or_none(
                        expected.path(file)
                    ) == storage.read_bytes(path):
                        continue
                    _take_place(expected.directory, path, file)
                    written.append(file)
    return written, refusals


def _plan_aside(
    expected: Expectation, plan: Plan, shard: Shard, base: str | None
) -> tuple[Plan, pa.Table]:
    """A plan of one shard, and its rows as they were planned.

    Rows that were rejects stay rejects, whatever their images are now.

    Raises:
        DatasetError: the table is damaged too.
        SourceError: images came as bytes.
    """
    import pyarrow as pa

    if sums_of(expected.read(shard.table))["crc32c"] != expected.done[shard].beside["table"]:
        raise DatasetError("its table is damaged too, which says what its rows were")
    files = [field for field in plan.fields if isinstance(field.kind, (Image, Mask))]
    table = read_columns(expected.directory, shard.table, lambda schema: schema.names)
    assert table is not None
    if any(any(table.column(name).to_pylist()) for name in spool_columns(table.column_names)):
        raise SourceError("its images came as bytes, which were kept only until the commit")
    bases = [base] * len(table) if base is not None else table.column(BASE).to_pylist()
    rows = table.select([SOURCE_ID, *value_columns(table.column_names), *REJECT_OF])
    if len({*bases}) > 1:
        for field in files:
            uris = zip(table.column(field.uri_key).to_pylist(), bases, strict=True)
            paths = pa.array([storage.resolve(*pair) for pair in uris], pa.large_string())
            rows = rows.append_column(field.spool_key, paths)
    alone = dataclasses.replace(
        plan,
        rows=len(rows),
        split_rows={shard.split: len(rows)},
        split_shards={shard.split: 1},
        starts={shard.split: shard.index},
        base=bases[0] if len({*bases}) == 1 else "",
        kind=PlanKind.BATCH,
        previous="",
        follows=None,
        streams=None,
        stands_for="",
    )
    return alone, rows


def _difference(expected: Expectation, folder: str, plan: Plan, shard: Shard) -> str:
    """Why a shard comes out different: the first row that became a reject, if one did."""
    image = primary_image(plan.fields)
    columns = [SOURCE_ID, *([image.uri_key] if image else []), REJECT_OF.reason]
    tables = [
        read_columns(path, shard.table, lambda _: columns) for path in (expected.directory, folder)
    ]
    for old, new in zip(*(table.to_pylist() for table in tables if table), strict=True):
        if new[REJECT_OF.reason] and not old[REJECT_OF.reason]:
            uri = new[image.uri_key] if image else ""
            return (
                f"row {new[SOURCE_ID]}, image {uri!r}, cannot be used now ({new[REJECT_OF.reason]})"
            )
    return "an image has other bytes now, or another version of Pillow encodes it differently"


@contextlib.contextmanager
def _folder_aside(directory: str) -> Iterator[str]:
    """A local folder to write shards in; beside a local dataset, so that files are renamed."""
    name = f"{layout.TMP}/repair-{uuid.uuid4().hex}"
    if storage.is_local(directory):
        try:
            yield os.path.join(directory, name)
        finally:
            storage.remove(directory, name)
    else:
        with tempfile.TemporaryDirectory(prefix="tfrecorder-") as folder:
            yield folder


def _take_place(directory: str, path: str, file: str) -> None:
    if storage.is_local(directory):
        folders.move(directory, os.path.relpath(path, directory), file)
        return
    with storage.open_seekable(path) as data, storage.publish(directory, file) as copy:
        while piece := data.read(2**20):
            storage.write_all(copy, piece)


def _bytes_or_none(path: str) -> bytes | None:
    try:
        return storage.read_bytes(path)
    except storage.UnreadableError:
        return None


def _write_common(expected: Expectation, faulty: set[str]) -> list[str]:
    """Write the files that a dataset has once, where they are not as they must be."""
    manifest = {**expected.commits[expected.note[0]].manifest}
    files = {file: data for file, data in common_files(expected).items() if file in faulty}
    info = files.pop(layout.COMMIT, None)
    written = []
    if not faulty.isdisjoint(LISTS):
        lists = {file: data for file, data in gathered_lists(expected).items() if file in faulty}
        sums = {file: sums_of(data) for file, data in lists.items()}
        manifest["lists"] = {**manifest["lists"], **sums}
        files |= lists
        files[layout.manifest(manifest["commit"])] = seal(manifest)
    written += _publish(expected.directory, files)
    if info is not None:
        _remove_folder(expected.path(layout.COMMIT))
        replace_commit(expected.directory, manifest, info, _version(expected.path(layout.COMMIT)))
        written.append(layout.COMMIT)
    return written


def _version(path: str) -> str:
    """The version of a file that is to be replaced; "" for no file."""
    try:
        return storage.read_versioned(path)[1]
    except storage.UnreadableError:
        return ""
