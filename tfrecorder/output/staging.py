"""Write and read the staged plan: `plan.json`, and `plan.parquet` with a row group per shard.

A worker reads only the row groups of its own shards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import os
import time
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.plan import Plan, PlannedRow
from tfrecorder.format.plan_columns import parquet_options
from tfrecorder.schema.fields import primary_file
from tfrecorder.schema.keys import SOURCE_ID

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


def stage_plan(plan: Plan, planned: pa.Table | None, output_dir: str) -> None:
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


def restage_rows(plan: Plan, planned: pa.Table, output_dir: str) -> None:
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


def _stage_rows(plan: Plan, planned: pa.Table, output_dir: str) -> None:
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


def required_plan(output_dir: str, plan: Plan | None, digest: str) -> Plan:
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


def read_row_group(output_dir: str, group: int, footer: Footer | None = None) -> pa.Table:
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
            path, listed
        ) as opened:  # refuses what is not a file, such as a pipe
            # On a disk by its path: Arrow's threads hold what they read of a Python file.  A thread
            # that lets go of it while Python shuts down, for example after Ctrl-C, aborts the
            # process (pyarrow 25).
            source = storage.resolve(path, "") if storage.is_local(path) else opened
            # Each column of a row group is requested once, and whole.
            file = pq.ParquetFile(
                source, metadata=metadata, pre_buffer=True, page_checksum_verification=True
            )
            # With several threads, each would keep memory for itself.
            return file.read_row_group(group, use_threads=False)
    except storage.UnreadableError as error:
        kind = FileNotFoundError if error.code == "not_found" else OSError
        raise kind(f"{path}: {error}") from error
