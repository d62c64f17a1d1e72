"""`repair`: write missing and damaged files again, with exactly the bytes they had.

A shard is written from the rows of its table and the sources into a separate folder.  It takes its
place only if its CRC32C is the original one.  What follows from other files is made again from
them: indexes, tables, manifests, and the files that a dataset has once.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.threads import ThreadPool, cores
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.display.messages import warn
from tfrecorder.display.tables import OneLine, counted
from tfrecorder.errors import DatasetError, OutputError, SourceError, TfrecorderError
from tfrecorder.format import layout
from tfrecorder.format.layout import (
    BASE,
    RECORD_OF,
    REJECT_OF,
    STATED_OF,
    Shard,
    spool_columns,
    value_columns,
)
from tfrecorder.format.manifest import FORM, FileSums
from tfrecorder.format.plan import Begins, Layout, Plan, PlanKind
from tfrecorder.options.keywords import Path
from tfrecorder.output.directory import locked, refuse_foreign
from tfrecorder.output.staging import restage_rows
from tfrecorder.output.state import DatasetState
from tfrecorder.output.status import ShardProgress
from tfrecorder.reading.shard_tables import read_columns, those_of
from tfrecorder.schema.fields import primary_file, with_validators
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.kinds import FILES
from tfrecorder.verification.expectation import (
    LISTS,
    Expectation,
    can_be_undone,
    common_files,
    read_expectation,
    refuse,
)
from tfrecorder.verification.faults import Fault
from tfrecorder.verification.remade_manifest import Remade, remake
from tfrecorder.verification.remade_tables import is_nowhere
from tfrecorder.verification.shard import ShardFindings
from tfrecorder.verification.verify import byte_bar, check_all, verify
from tfrecorder.writing.after_commit import not_kept
from tfrecorder.writing.attempt import Attempt
from tfrecorder.writing.commit import complete, replace_commit
from tfrecorder.writing.public_files import whole_lists
from tfrecorder.writing.shards import Pool, ShardWriter


@dataclass(frozen=True, repr=False)
class RepairResult(OneLine):
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
    directory: Path,
    base: Path | None = None,
    progress: bool | None = None,
) -> RepairResult:
    """Write the missing and damaged files of a dataset directory again, with the bytes they had.

    It first checks everything that `verify` checks; sound files are not touched.  What an operation
    left to do after its commit is done first; one that is not committed is left alone.  Tables and
    manifests that are lost are made again from the records, as far as these hold them.  `lost` of
    the result says what they do not; it stays noted in the dataset, and calls that need it ask.

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
            with locked(where):
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


def _repair(
    directory: str,
    base: str | None,
    shown: bool,
    lost: list[str],
) -> list[str]:
    """Repair a dataset that is claimed; return the names of the files."""
    expected = read_expectation(directory)
    for fault in expected.faults:
        if fault.code == "unreadable" or fault.file == layout.PLAN:  # which is no loss
            raise _no_access(directory, fault)
    if expected.last is not None and expected.info is not None and not expected.lost:
        _refuse_foreign(directory)
        under_way = layout.shards_of(expected.pending.own) if expected.pending else ()
        late = {*layout.shards_of(expected.last.dataset.abandoned)}
        late -= {*expected.shards, *under_way}
        storage.remove_files(directory, [shard.file for shard in late])
        with contextlib.suppress(DatasetError):  # of what is damaged: it is done at the end
            complete(DatasetState.read(directory))
        if expected.pending is not None:
            expected = read_expectation(directory)
    with byte_bar(expected, shown) as bar:
        findings, faults = check_all(expected, expected.shards, advance=bar.update)
    if not faults:
        _remove_not_kept(expected)  # of a repair that was killed
        return []
    faulty = {fault.file for fault in faults}
    made = _remade(expected, findings, faults)
    lost += made.lost
    written = _publish(directory, made.files)
    storage.remove_files(directory, made.marks)
    expected = read_expectation(directory)
    damaged = [f.shard for f in findings if not f.sound]
    hopeless = {shard.index_file for shard in damaged if shard.table in faulty}
    indexes = [f.shard for f in findings if f.shard.index_file in faulty - hopeless]
    written += _publish(directory, {s.index_file: _index(directory, s) for s in indexes})
    with stage_line(shown) as say:
        say("writing shards again")
        rewritten, refusals = _write_shards(expected, damaged, faulty, base)
    written += rewritten
    if refusals:
        names = ", ".join(sorted(written))
        others = f" Other files were written again: {names}." if written else ""
        raise SourceError(
            f"{directory} is not repaired: "
            f"{'; '.join(refusals)}. These shards were left as they are. Bring the sources back "
            f"and repair again, or convert into another directory.{others}"
        )
    written += _write_common(expected, faulty)
    storage.sync(directory, written)
    warn(complete(DatasetState.read(directory)).left)
    _remove_not_kept(expected)
    _refuse_foreign(directory)
    again = [f.shard for f in findings if faulty & {*f.shard.files}]
    _, left = check_all(read_expectation(directory), again)
    if left:
        raise DatasetError(
            f"{directory}: {left[0].file} is as it was written, but it is still wrong: "
            f"{left[0]}. Writing it again does not help: convert into another directory, and "
            "please report it."
        )
    return sorted({*written})


def _remove_not_kept(expected: Expectation) -> None:
    """Remove what an update replaced, if it cannot be taken back any more."""
    newest = expected.commits[expected.note[0]]
    if expected.pending is None and not can_be_undone(newest):
        storage.remove_files(expected.directory, not_kept(expected.directory, newest))


def _no_access(directory: str, fault: Fault) -> DatasetError:
    return DatasetError(f"{directory}: {fault.file}: {fault.message}. Get access first.")


def _refuse_foreign(directory: str) -> None:
    try:
        refuse_foreign(DatasetState.read(directory))
    except OutputError as error:
        raise DatasetError(
            f"{directory} holds files that do not belong to the dataset; move them away first, "
            f"then repair again. ({error})"
        ) from error


def _remade(
    expected: Expectation,
    findings: Iterable[ShardFindings],
    faults: Iterable[Fault],
) -> Remade:
    """Lost manifests and damaged tables, made again from sound shards."""
    damaged = {fault.file for fault in faults if fault.code != "differs"}
    contradicted = {fault.file for fault in faults} - damaged
    tables = []
    other = []
    for finding in findings:
        shard = finding.shard
        if not finding.sound:
            continue
        if shard.table in damaged:
            tables.append(shard)
        elif not contradicted.isdisjoint([shard.table, shard.index_file]):
            other.append(shard)
    marks = {commit.plan.carried.marks for commit in expected.commits.values()} & damaged
    older = {layout.manifest(number) for number in expected.numbers}
    folders = (layout.BEFORE, layout.COMMITS, layout.REMOVED)
    kept = set()
    for file in damaged - older - marks:
        if os.path.dirname(file) in folders:
            kept.add(file)
    for fault in faults:
        if fault.code == "unreadable" and fault.file in marks | kept:  # which is no loss
            raise _no_access(expected.directory, fault)
    try:
        for finding in findings:
            if not finding.sound and finding.shard not in expected.done:
                raise ValueError(f"nothing proves what {finding.shard.file} held, which is damaged")
        return remake(expected, tables, other, marks, sorted(kept))
    except (storage.UnreadableError, LookupError, TfrecorderError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{expected.directory} cannot be repaired: what is left does not suffice to make lost "
            f"files again: {str(error).rstrip('.')}. Copy {layout.PRIVATE}/ from another copy of "
            "the dataset, or convert again."
        ) from error


def _publish(directory: str, files: Mapping[str, bytes]) -> list[str]:
    """Write files that are not as they should be, in this order; return their names."""
    written = []
    for file, data in files.items():
        path = os.path.join(directory, file)
        with contextlib.suppress(storage.UnreadableError):
            if storage.read_bytes(path) == data:
                continue
        _make_way(path)
        storage.publish_bytes(directory, file, data)
        written.append(file)
    return written


def _make_way(path: str) -> None:
    """Remove the empty folder that stands where a file belongs, if there is one."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.rmdir(path)


def _index(directory: str, shard: Shard) -> bytes:
    """The index of a shard, from its table."""
    table = read_columns(directory, shard.table, lambda _: [RECORD_OF.offset, RECORD_OF.size])
    places = (row.values() for row in table.to_pylist() if row[RECORD_OF.size] >= 0)
    return "".join(f"{offset} {size}\n" for offset, size in places).encode()


def _write_shards(
    expected: Expectation,
    damaged: Collection[Shard],
    faulty: Collection[str],
    base: str | None,
) -> tuple[list[str], list[str]]:
    """Write damaged shards again from the rows of their tables.

    Returns:
        The files that took their places, and a message for each shard that was refused.
    """
    written: list[str] = []
    refusals: list[str] = []
    if not damaged:
        return written, refusals
    owners = {shard: commit for commit in expected.commits.values() for shard in commit.own_shards}
    threads = cores()
    with tempfile.TemporaryDirectory(prefix="tfrecorder-") as folder, ThreadPool(threads) as run:
        pool = Pool(run, threads)
        for shard in damaged:
            done = expected.done[shard]
            try:
                if shard.table in faulty:
                    raise SourceError("its table is damaged too, which says what its rows were")
                owner = owners[shard]
                plan, rows = _plan_aside(expected, owner.plan, shard, base)
                restage_rows(plan, rows, folder)
                progress = ShardProgress(folder, shard, is_shown=False)
                attempt = Attempt(folder, shard, plan.digest)
                new = ShardWriter(plan, 0, pool, progress).write(attempt)
                if (new.bytes, new.crc32c) != (done.bytes, done.crc32c):
                    is_older = owner.manifest.form < FORM
                    raise SourceError(_difference(folder, plan, shard, rows, is_older))
            except SourceError as error:
                refusals.append(f"{shard.file}: {error}")
                continue
            with (
                storage.open_seekable(os.path.join(folder, shard.file)) as file,
                storage.publish(expected.directory, shard.file) as copy,
            ):
                while data := file.read(2**20):
                    storage.write_all(copy, data)
            storage.remove(folder, shard.file)
            written.append(shard.file)
    return written, refusals


def _plan_aside(
    expected: Expectation,
    owner: Plan,
    shard: Shard,
    base: str | None,
) -> tuple[Plan, pa.Table]:
    """A plan of one shard, and its rows as they were planned; what was a reject stays one.

    Raises:
        SourceError: images came as bytes.
    """
    table = read_columns(expected.directory, shard.table, lambda schema: schema.names)
    if any(any(table.column(name).to_pylist()) for name in spool_columns(table.column_names)):
        raise SourceError("its images came as bytes, which were kept only until the commit")
    bases = [base] * len(table) if base is not None else table.column(BASE).to_pylist()
    if "" in bases and is_nowhere(table, owner.fields):
        remedy = f"give it as {spelled('base')}"
        raise SourceError(f"nobody knows in which folder its images were: {remedy}")
    stated = those_of(STATED_OF)(table.schema)
    rows = table.select([SOURCE_ID, *value_columns(table.column_names), *stated, *REJECT_OF])
    if len({*bases}) > 1:  # then each path is given as that of a spooled image is
        for field in owner.fields:
            if isinstance(field.kind, FILES):
                uris = table.column(field.uri_key).to_pylist()
                paths = pa.array(list(map(storage.resolve, uris, bases)), pa.large_string())
                rows = rows.append_column(field.spool_key, paths)
    plan = replace(
        owner,
        # What passed the validator has the same bytes, which are compared, or is refused.
        fields=with_validators(owner.fields),
        kind=PlanKind.BATCH,
        layout=Layout(
            split_rows={shard.split: len(rows)},
            split_shards={shard.split: 1},
            starts={shard.split: shard.index},
            revisions=owner.layout.revisions,
        ),
        follows=Begins(),
        stands_for="",
    )
    return plan.with_rows(base=bases[0]), rows


def _difference(
    folder: str,
    plan: Plan,
    shard: Shard,
    before: pa.Table,
    is_older: bool,
) -> str:
    """Why a shard comes out different: the first row that became a reject, if one did.

    Args:
        is_older: an earlier version of the package wrote it.
    """
    now = read_columns(folder, shard.table, lambda schema: schema.names)
    image = primary_file(plan.fields)
    for old, new in zip(before.to_pylist(), now.to_pylist(), strict=True):
        if (reason := new[REJECT_OF.reason]) and not old[REJECT_OF.reason]:
            shown = f", image {new[image.uri_key]!r}," if image else ""
            return f"row {new[SOURCE_ID]}{shown} cannot be used now ({reason})"
    if is_older:
        return (
            "an earlier version of tfrecorder wrote it, which gave other pixels of some images "
            "(16 bits, CMYK, transparency, planes of a TIFF): repair it with that version; or an "
            "image has other bytes now"
        )
    return "an image has other bytes now, or another version of Pillow encodes it differently"


def _write_common(expected: Expectation, faulty: set[str]) -> list[str]:
    """Write the files that a dataset has once, where they are not as they must be."""
    directory = expected.directory
    manifest = expected.commits[expected.note[0]].manifest
    files = {file: data for file, data in common_files(expected).items() if file in faulty}
    info = files.pop(layout.COMMIT, None)
    if not faulty.isdisjoint(LISTS):
        rows = whole_lists(manifest.plan, expected.shards, directory)
        files |= rows
        lists = {file: FileSums.of(data) for file, data in rows.items()}
        manifest = manifest.with_dataset(lists=lists)
        files[layout.manifest(manifest.plan.commit)] = manifest.to_json()
    written = _publish(directory, files)
    if info is not None:
        path = expected.path(layout.COMMIT)
        _make_way(path)
        version = ""
        with contextlib.suppress(storage.UnreadableError):
            version = storage.read_versioned(path)[1]
        replace_commit(directory, manifest, info, version)
        written.append(layout.COMMIT)
    return written
