"""What waits in a dataset directory for the commit: the staged plan, spooled images, done-records.

The plan is two files: `plan.json`, and `plan.parquet` with a row group per shard, so that a worker
reads only the rows of its own shards.

Images that came as bytes are spooled until what is written from them is committed, each once, under
the name of its content.  So workers on other machines see them, and a conversion that was begun can
be completed without its source.

A done-record says that a shard is whole, and what its bytes are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import NewFiles, Shard, parquet_options, spool_columns
from tfrecorder.format.plan import Plan, PlannedRow
from tfrecorder.reading.commits import newest_commit
from tfrecorder.schema.fields import primary_file
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.sources.cells import Contents

#: The key under which `plan.parquet` names the digest of its plan: if two plans are staged at once
#: in a bucket, where nothing is locked, each may leave one of the two files.
PLAN_OF_ROWS = "tfrecorder.plan.plan"

#: The key under which `plan.parquet` names the column of the uris that rejects are listed with.
URI_OF_ROWS = "tfrecorder.plan.uri"


def begun_now(plan: Plan) -> Plan:
    """A plan that notes when it was begun: this second.

    Or the second that SOURCE_DATE_EPOCH states, for whoever needs the same private files again:
    https://reproducible-builds.org/specs/source-date-epoch/
    """
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(stated) if stated.isdecimal() else time.time()
    then = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return dataclasses.replace(plan, begun=f"{then:%Y-%m-%dT%H:%M:%SZ}")


def stage_plan(
    plan: Plan,
    planned: pa.Table | None,
    output_dir: str,
) -> None:
    """Write the plan's two files; `plan.json` last, so that it is never there without its rows.

    Args:
        planned: its rows; None if it has none.

    Raises:
        OutputError: another plan was staged there in the meantime, in a bucket.
        OSError: they cannot be written.
    """
    if planned is not None:
        _stage_rows(plan, planned, output_dir)
    if not storage.publish_new(output_dir, layout.PLAN, plan.to_json()):
        raise OutputError(
            f"{output_dir}: another conversion started there at the same moment. Wait until it "
            "ends, or choose another directory."
        )


def restage_rows(
    plan: Plan,
    planned: pa.Table,
    output_dir: str,
) -> None:
    """Write the rows of a staged plan again, if they are gone or belong to another plan.

    If two plans were staged at once in a bucket, each may leave one file: the plan of one, the rows
    of the other.

    Raises:
        OSError: they cannot be written.
    """
    with contextlib.suppress(OutputError, OSError, pa.ArrowException):
        if rows_plan(read_footer(output_dir)) == plan.digest:
            return
    _stage_rows(plan, planned, output_dir)


def rows_plan(footer: Footer) -> str:
    """The digest of the plan that staged rows belong to; "" if they do not say."""
    return str(
        (footer.metadata.metadata or {}).get(PLAN_OF_ROWS.encode(), b"").decode(errors="replace")
    )


def _stage_rows(
    plan: Plan,
    planned: pa.Table,
    output_dir: str,
) -> None:
    first = primary_file(plan.fields)
    about = {PLAN_OF_ROWS: plan.digest, URI_OF_ROWS: "" if first is None else first.uri_key}
    table = planned.replace_schema_metadata(about)

    def write(file: BinaryIO) -> None:
        buffered = io.BufferedWriter(file)
        with pq.ParquetWriter(buffered, table.schema, **parquet_options(plan.fields)) as writer:
            start = 0
            for shard in plan.layout.shards:
                size = plan.layout.shard_rows(shard)
                writer.write_table(table.slice(start, size), row_group_size=size)
                start += size
        buffered.flush()
        buffered.detach()

    storage.publish_by(output_dir, layout.PLAN_ROWS, write)


def read_plan(output_dir: str) -> Plan | None:
    """The plan that is staged in a directory, or None.

    Raises:
        OutputError: another version of this package staged it.
    """
    path = os.path.join(output_dir, layout.PLAN)
    try:
        return Plan.from_json(storage.read_bytes(path))
    except storage.UnreadableError as error:
        if error.code in ("not_found", "bad_name"):
            return None
        raise OutputError(f"{path} cannot be read: {error}.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"{path} is not a plan that this version of tfrecorder can read ({error}); choose a "
            "new or empty directory."
        ) from error


def staged_plan(output_dir: str, digest: str) -> Plan:
    """The plan of this launch, unless another conversion has replaced it with its own.

    Worker processes outlive a killed launcher by some seconds, and may meet the next one; and on a
    bucket two conversions may start at once.

    Raises:
        OutputError: the plan is now a different one, or gone.
    """
    return required_plan(output_dir, read_plan(output_dir), digest)


def required_plan(
    output_dir: str,
    plan: Plan | None,
    digest: str,
) -> Plan:
    """What was read as the plan of this launch; raises as `staged_plan`."""
    if plan is None:
        raise OutputError(f"{output_dir}: the staged plan is gone; run the conversion again.")
    if plan.digest != digest:
        raise OutputError(
            f"{output_dir} was planned again in the meantime by another conversion, so this one "
            "stops. Let only one write there at a time, or give another directory."
        )
    return plan


@dataclasses.dataclass
class StagedPlan:
    """The plan of a launch, for a worker that needs it for hours; threads may share it.

    With 100,000 classes a plan takes a tenth of a second to read, so it is read again only if its
    file was replaced.
    """

    output_dir: str
    digest: str
    _latest: tuple[str | None, Plan] | None = None

    def read(self) -> Plan:
        """The plan as `staged_plan` gives it; raises the same errors if it has been replaced."""
        path = os.path.join(self.output_dir, layout.PLAN)
        with storage.failing_as(OutputError, path):
            version = storage.version(path)  # taken before reading: what is read is this or newer
        latest = self._latest
        if latest is None or version is None or version != latest[0]:
            self._latest = latest = version, staged_plan(self.output_dir, self.digest)
        return latest[1]


class Footer(NamedTuple):
    """Where the row groups of the staged plan begin, for callers that read several of them.

    Attributes:
        metadata: Parquet's.
        file: what a bucket says of the file; None on a disk.
    """

    metadata: pq.FileMetaData
    file: storage.Description | None


def read_footer(output_dir: str) -> Footer:
    """The footer of the staged plan's rows.

    Raises:
        OutputError: the file cannot be read.
    """
    path = os.path.join(output_dir, layout.PLAN_ROWS)
    with storage.failing_as(OutputError, path):
        file = None if storage.is_local(path) else storage.describe(path)
        with storage.open_seekable(path, file) as opened:
            return Footer(pq.read_metadata(opened), file)


#: How many rows a worker holds as objects at a time: a shard of small images has 100,000 and more.
BLOCK_ROWS = 8192


def row_blocks(rows: pa.Table) -> Iterator[list[PlannedRow]]:
    """The rows of a shard, which `read_row_group` gave, some thousand at a time."""
    names = rows.column_names
    uri = (rows.schema.metadata or {}).get(URI_OF_ROWS.encode(), b"").decode()
    for batch in rows.to_batches(max_chunksize=BLOCK_ROWS):
        columns = {name: batch.column(name).to_pylist() for name in names}
        cells = zip(*columns.values(), strict=True)
        values = [dict(zip(names, row, strict=True)) for row in cells]
        uris = columns.get(uri) or [""] * len(values)
        yield list(map(PlannedRow, columns[SOURCE_ID], uris, values))


def read_row_group(
    output_dir: str,
    group: int,
    footer: Footer | None = None,
) -> pa.Table:
    """The rows of one shard; `group` is its row group in the staged plan.

    Args:
        footer: what `read_footer` returned; without it, the footer is read again.

    Raises:
        FileNotFoundError, OSError, ValueError: the plan's rows are missing or damaged.
    """
    path = os.path.join(output_dir, layout.PLAN_ROWS)
    try:
        metadata, listed = footer or (None, None)
        with storage.open_seekable(
            path,
            listed,
        ) as opened:  # refuses what is not a file, such as a pipe
            # On a disk by its path: Arrow's threads hold what they read of a Python file.  A thread
            # that lets go of it while Python shuts down, for example after Ctrl-C, aborts the
            # process (pyarrow 25).
            source = storage.resolve(path, "") if storage.is_local(path) else opened
            # Each column of a row group is requested once, and whole.
            file = pq.ParquetFile(
                source,
                metadata=metadata,
                pre_buffer=True,
                page_checksum_verification=True,
            )
            # With several threads, each would keep memory for itself.
            return file.read_row_group(group, use_threads=False)
    except storage.UnreadableError as error:
        kind = FileNotFoundError if error.code == "not_found" else OSError
        raise kind(f"{path}: {error}") from error


#: Bytes kept in memory to be written together, many images at a time into a bucket.
SPOOLED_TOGETHER = 2**25


class Spool:
    """The spool of the operation that is under way, or is to begin.

    Args:
        output_dir: the dataset directory.

    Attributes:
        bytes: the total size of the images in it.
        images: how many there are.
    """

    def __init__(self, output_dir: str) -> None:
        self._directory = output_dir
        self._sizes: dict[str, int | None] = {}
        self._waiting: NewFiles = {}
        self._waiting_bytes = 0
        self.bytes = 0

    @property
    def images(self) -> int:
        return len(self._sizes)

    def look(self) -> None:
        """Find what an earlier call left behind."""
        self._sizes = storage.sizes(os.path.join(self._directory, layout.SPOOL))
        self.bytes = sum(size or 0 for size in self._sizes.values())

    def holds(
        self,
        file: str,
        size: int,
    ) -> bool:
        return self._sizes.get(file) == size

    def put(
        self,
        file: str,
        data: bytes,
    ) -> None:
        """Add an image unless it is already there; it is written by the next `flush` at the latest.

        Raises:
            OSError: the disk is full, or something else went wrong; the image was not added.
        """
        if self.holds(file, len(data)):
            return
        if self._waiting_bytes >= SPOOLED_TOGETHER:
            self.flush()
        self._sizes[file] = len(data)
        self.bytes += len(data)
        self._waiting[f"{layout.SPOOL}/{file}"] = data
        self._waiting_bytes += len(data)

    def flush(self) -> None:
        """Write what is still held in memory."""
        storage.publish_all(self._directory, self._waiting)
        self._waiting = {}
        self._waiting_bytes = 0


def spool_images(
    contents: Iterable[Contents],
    output_dir: str,
    planned: pa.Table,
) -> None:
    """Write the images of planned rows that came as bytes, except those that are already there.

    Args:
        output_dir: as for `Spool`.
        contents: the contents of all columns whose images came as bytes.

    Raises:
        OSError: they cannot be written.
        UnreadableError: what is there cannot be listed.
    """
    wanted = [planned.column(name) for name in spool_columns(planned.column_names)]
    if not wanted:
        return
    files = pa.concat_arrays([chunk for column in wanted for chunk in column.chunks]).unique()
    spool = Spool(output_dir)
    spool.look()
    for column in contents:
        rows = [row for row in column.first_rows(files).tolist() if column.holds(row)]
        names = {row: column.files[row].as_py() for row in rows}
        missing = [row for row in rows if not spool.holds(names[row], column.sizes[row])]
        for row, data in zip(missing, column.data(missing), strict=True):
            spool.put(names[row], data)
    spool.flush()


def is_spool_whole(output_dir: str, images: int) -> bool:
    """True if the spool still has all its images."""
    return not images or len(storage.names(os.path.join(output_dir, layout.SPOOL))) == images


#: Shards and the files next to them, by their names below an output directory.
Files = Mapping[str, storage.Description]

#: Of so many shards each file is asked for; of more of them, the folders are listed, on a bucket
#: with a request per 1,000 files.  A batch of a stream has no more, and may be the 10,000th.
FEW_SHARDS = 4


def list_output(output_dir: str, shards: Collection[Shard]) -> Files:
    """What there is of some shards in an output directory."""
    if len(shards) <= FEW_SHARDS:
        names = [n for s in shards for n in (*s.files, s.waiting, s.done)]
        paths = [os.path.join(output_dir, name) for name in names]
        described = storage.each(storage.describe, paths, output_dir)
        return {name: file for name, file in zip(names, described, strict=True) if file is not None}
    return list_folders(output_dir)


#: The folders that the files of shards are in.
FOLDERS = ("", layout.WAITING, layout.INDEX, layout.TABLES, layout.DONE)


def list_folders(output_dir: str, folders: Collection[str] = FOLDERS) -> Files:
    """What there is of all shards in an output directory, or in some folders of it."""

    def files_of(folder: str) -> Files:
        files = storage.descriptions(os.path.join(output_dir, folder) if folder else output_dir)
        return {os.path.join(folder, name): file for name, file in files.items()}

    listed = storage.each(files_of, folders, output_dir)
    return {name: file for files in listed for name, file in files.items()}


def shard_fault(
    files: Files,
    shard: Shard,
    done: DoneRecord,
) -> str | None:
    """Why a shard in a listed directory is not what its done-record says; None if it is.

    It may wait for the commit, or be in its place already.
    """
    file = files.get(shard.waiting) or files.get(shard.file)
    if file is None:
        return f"{shard.file} is missing"
    if file.size != done.bytes:
        return f"{shard.file} has {file.size:,} bytes, but {done.bytes:,} were written"
    if not file.is_of(done.bytes, done.crc32c):
        return f"{shard.file} has the CRC32C {file.crc32c:08x}, not {done.crc32c:08x}"
    for name, path in shard.beside.items():
        beside = files.get(path)
        # After a power failure a file may lack its bytes.
        if beside is None or (done.records and not beside.size):
            return f"{path} is missing"
        if not beside.is_of(done.beside_bytes.get(name, beside.size), done.beside[name]):
            return f"{path} is not as it was written with the shard"
    return None


def read_done(
    output_dir: str,
    shard: Shard,
    plan_digest: str,
    files: Files | None = None,
) -> DoneRecord | None:
    """The done-record of a shard whose file is whole, or None if it must be written (again).

    Args:
        files: the directory, if it was listed.
    """
    path = os.path.join(output_dir, shard.done)
    with storage.failing_as(OutputError, path):
        data = storage.unless_missing(lambda: storage.read_bytes(path))
    try:
        done = DoneRecord.from_json(data or b"")
    except ValueError:  # missing, or after a power failure without its bytes
        return None
    if done.plan != plan_digest:
        return None
    if files is None:
        with storage.failing_as(OutputError, f"{output_dir}/{shard.file}"):
            files = list_output(output_dir, [shard])
    return None if shard_fault(files, shard, done) else done


def read_all_done(
    output_dir: str,
    shards: Collection[Shard],
    plan_digest: str,
) -> dict[Shard, DoneRecord | None]:
    """`read_done` for many shards; those without a done-record are not looked up."""
    files = list_output(output_dir, shards)
    begun = [shard for shard in shards if shard.done in files]

    def read(shard: Shard) -> DoneRecord | None:
        return read_done(output_dir, shard, plan_digest, files)

    records = storage.each(read, begun, output_dir)
    return {**dict.fromkeys(shards), **dict(zip(begun, records, strict=True))}


def committed_done(output_dir: str, plan_digest: str) -> dict[Shard, DoneRecord]:
    """The done-records of the newest commit if it is that of a plan; else none."""
    newest = newest_commit(output_dir, plan=plan_digest)
    return {} if newest is None else newest.done
