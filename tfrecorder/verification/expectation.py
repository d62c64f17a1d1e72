"""What a committed dataset says about itself: the plan, the done-records and the commit's list.

Each of these documents proves itself by its last field.  The list's checksums prove the plan's
files and the done-records; a done-record proves its shard, index and lists.  If one of the three is
damaged, the others show which.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import google_crc32c

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import parse_metadata
from tfrecorder.format.layout import Shard
from tfrecorder.output.directory import exchange_begun
from tfrecorder.output.done_records import DoneRecord, list_output
from tfrecorder.plan.plan import Plan
from tfrecorder.reading.dataset import exchange_words
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.generations import is_own
from tfrecorder.schema.fields import from_json
from tfrecorder.verification.faults import Fault

T = TypeVar("T")

#: Records, bytes and CRC32C of a file as it was written, by these names; records of a shard only.
Written = Mapping[str, int]


@dataclass(frozen=True)
class Expectation:
    """What a dataset directory must hold.

    Attributes:
        directory: absolute or relative, as it was given.
        plan: the staged plan, or if that is gone, what the commit's list says about it.
        staged: True if it is the staged plan.
        done: the done-records that are sound.
        listed: by the name of a shard's file, what the commit's list says; empty if the list is
            damaged.
        files: by the name of a file of the plan, or of the lists of all shards, its size and CRC32C
            from the commit's list; empty likewise.
        faults: those found on the way.
        standing: by the name of a shard or of a file next to one, what a bucket's listing says
            about it; empty on a disk, which keeps no checksums.
    """

    directory: str
    plan: Plan
    staged: bool
    done: Mapping[Shard, DoneRecord]
    listed: Mapping[str, Written]
    files: Mapping[str, Written]
    faults: tuple[Fault, ...]
    standing: Mapping[str, storage.Description] = field(default_factory=dict)

    def path(self, name: str) -> str:
        """The path of a file of the dataset."""
        return os.path.join(self.directory, name)

    def read(self, name: str) -> bytes:
        """A file of the dataset, whole.

        Raises:
            UnreadableError: as for `storage.read_bytes`.
        """
        return storage.read_bytes(self.path(name))

    def stands_as(self, name: str, crc32c: int | None) -> bool:
        """True if the store itself reports this checksum for a file, so it need not be read."""
        standing = self.standing.get(name)
        return crc32c is not None and standing is not None and standing.crc32c == crc32c

    def written(self, shard: Shard) -> Written | None:
        """A shard's file as it was written; None if neither its done-record nor the list is left.

        If both are left they agree: a done-record that is not as the list says is not in `done`.
        """
        done = self.done.get(shard)
        if done is None:
            return self.listed.get(shard.file)
        return {"records": done.records, "bytes": done.bytes, "crc32c": done.crc32c}


def read_expectation(directory: str) -> Expectation:
    """What a dataset says about itself.

    Raises:
        DatasetError: there is no committed dataset, or it was not written by this package.
    """
    refuse(directory)
    metadata, plan = read_metadata(directory), read_plan(directory)
    names = storage.names(os.path.join(directory, layout.DONE))
    done_files = [f"{layout.DONE}/{name}" for name in names]
    read = functools.partial(_read, directory, DoneRecord.from_json)
    records = dict(zip(done_files, storage.each(read, done_files, directory), strict=True))
    digests = {done.plan for done in records.values() if isinstance(done, DoneRecord)}
    if not isinstance(metadata, Fault):
        digests.add(metadata["plan"])
    if isinstance(plan, Plan) and digests and plan.digest not in digests:
        plan = Fault(layout.PLAN, "damaged", "it is not the plan of this dataset")
    if isinstance(plan, Plan) and isinstance(metadata, dict) and metadata["plan"] != plan.digest:
        metadata = Fault(layout.METADATA, "differs", "it belongs to another plan")
    documents = (metadata, plan, *records.values())
    faults = [document for document in documents if isinstance(document, Fault)]
    staged = isinstance(plan, Plan)
    if isinstance(plan, Fault):
        if isinstance(metadata, Fault):
            raise _nothing_left(directory, faults)
        plan = _plan_of(metadata)
    shards = [] if isinstance(metadata, Fault) else metadata["shards"]
    sums = {shard["file"]: shard["done"] for shard in shards}
    return Expectation(
        directory=directory,
        plan=plan,
        staged=staged,
        done=dict(_sound_done(plan, records, sums, faults)),
        listed={shard["file"]: shard for shard in shards},
        files={} if isinstance(metadata, Fault) else metadata["files"],
        faults=tuple(faults),
        standing={}
        if storage.is_local(directory)
        else list_output(directory, ("", *layout.SHARD_FOLDERS)),
    )


def read_metadata(directory: str) -> dict[str, Any] | Fault:
    """The commit's list; or why it is not as it was written.

    Raises:
        DatasetError: another version of the package wrote it.
    """
    path = os.path.join(directory, layout.METADATA)
    return _read(directory, functools.partial(parse_metadata, path=path), layout.METADATA)


def read_plan(directory: str) -> Plan | Fault:
    """The staged plan; or why it is not as it was written."""
    return _read(directory, Plan.from_json, layout.PLAN)


def _read(directory: str, parse: Callable[[bytes], T], file: str) -> T | Fault:
    try:
        return parse(storage.read_bytes(os.path.join(directory, file)))
    except storage.UnreadableError as error:
        return unread(file, error)
    except ValueError as error:
        return Fault(file, "damaged", str(error))


def is_lost(directory: str) -> bool:
    """True if neither the plan nor the commit's list is as it was written.

    Raises:
        DatasetError: they may not be read, which is no loss.
    """
    documents = (read_metadata(directory), read_plan(directory))
    faults = [document for document in documents if isinstance(document, Fault)]
    if any(fault.code == "unreadable" for fault in faults):
        raise _nothing_left(directory, faults)
    return len(faults) == len(documents)


def _nothing_left(directory: str, faults: list[Fault]) -> DatasetError:
    for fault in faults:
        if fault.code == "unreadable":
            return DatasetError(f"{directory}: {fault.file}: {fault.message}. Get access first.")
    return DatasetError(
        f"{directory}: both {layout.PLAN} and {layout.METADATA} are damaged or gone, so there is "
        f"nothing to check the shards against. Copy them again; or "
        f"`{command('repair', layout.grown_of(directory))}` makes them again from the shards."
    )


def _plan_of(metadata: Mapping[str, Any]) -> Plan:
    """The plan as far as the commit's list has it, without the sources."""
    shards = [layout.parse_shard(shard["file"]) for shard in metadata["shards"]]
    return Plan(
        rows=metadata["totals"]["rows"],
        source_rows=metadata["source_rows"],
        split_rows=metadata["split_rows"],
        split_shards={shard.split: shard.count for shard in shards if shard},
        fields=from_json(metadata["fields"]),
        statistics=metadata["statistics"],
        base="",
        fingerprint="",
        options=metadata["options"],
        before=metadata.get("before"),
        streams=metadata.get("streams"),
        stands_for=metadata["plan"],
    )


def _sound_done(
    plan: Plan,
    records: Mapping[str, DoneRecord | Fault],
    sums: Mapping[str, int],
    faults: list[Fault],
) -> Iterator[tuple[Shard, DoneRecord]]:
    """The done-record of each shard, if it is the one that was written, as far as can be seen.

    Args:
        sums: for each shard, by its file, the CRC32C of its done-record, from the commit's list.
    """
    for shard in plan.shards:
        done = records.get(shard.done)
        if isinstance(done, Fault):
            continue
        if done is None:
            faults.append(Fault(shard.done, "missing", "the shard's done-record is missing"))
        elif (done.plan, done.shard) != (plan.digest, shard.name):
            faults.append(Fault(shard.done, "damaged", "it names another plan or another shard"))
        elif fault := other_crc(
            shard.done, google_crc32c.value(done.to_json()), sums.get(shard.file)
        ):
            faults.append(fault)
        else:
            yield shard, done


def parquet_errors() -> tuple[type[Exception], ...]:
    """What reading a damaged Parquet file may raise."""
    import pyarrow as pa

    builtin = (ArithmeticError, LookupError, MemoryError, OSError, TypeError, ValueError)
    return (*builtin, pa.ArrowException)


def refuse(directory: str) -> None:
    """Raise a DatasetError unless a directory holds a committed dataset of this package."""
    refusal = storage.refusal(storage.scheme(directory))
    if refusal is not None:
        raise DatasetError(f"{directory} cannot be read: {refusal}.")
    try:
        is_folder = storage.is_folder(directory)
    except storage.UnreadableError as error:
        raise DatasetError(f"{error}.") from error
    if not is_folder:
        raise DatasetError(f"{directory}: there is no such directory. Check the path.")
    committed = storage.exists(os.path.join(directory, layout.COMMIT))
    private = storage.exists(os.path.join(directory, layout.PRIVATE))
    names = storage.names(directory)
    if not private and not (committed and is_own(directory, names, STORED_FILES)):
        if committed or any(".tfrecord" in name for name in names):
            raise DatasetError(
                f"{directory} was not written by tfrecorder: there is no {layout.PRIVATE}/ with "
                "the checksums to compare with. `tfrecorder.load` and `tfrecorder.info` read it."
            )
        raise DatasetError(
            f"{directory} is not a dataset: it has no {layout.COMMIT}. Give the `output_dir` of "
            "a conversion."
        )
    if not committed and exchange_begun(directory):
        raise DatasetError(exchange_words(directory))
    if not committed:
        raise DatasetError(
            f"{directory} is not committed: it has no {layout.COMMIT}. Its conversion is under way "
            "or was interrupted: wait for it, or run the same conversion again to complete it."
        )
    if storage.is_local(directory) and (special := _special_file(directory)):
        raise DatasetError(
            f"{directory}: {special} is a pipe, a device or a socket; no dataset holds one, and "
            "reading it might never end. Remove it."
        )


def _special_file(directory: str) -> str | None:
    """The first file of a local directory that is neither a regular file nor a folder."""
    for where, _, names in os.walk(storage.resolve(directory, "")):
        for name in names:
            path = os.path.join(where, name)
            if os.path.exists(path) and not os.path.isfile(path):
                return os.path.relpath(path, storage.resolve(directory, ""))
    return None


def other_sums(file: str, size: int, crc: int, known: Written | None) -> Fault | None:
    """The fault of a file whose size or CRC32C is not the known one; None if none is known."""
    if known is not None and size != known["bytes"]:
        words = f"it has {size:,} bytes; {known['bytes']:,} were written"
        return Fault(file, "size", words)
    return other_crc(file, crc, None if known is None else known["crc32c"])


def other_crc(file: str, crc: int, known: int | None) -> Fault | None:
    """The fault of a file whose CRC32C is not the known one; None if none is known."""
    if known is None or crc == known:
        return None
    return Fault(file, "checksum", f"its CRC32C is {crc:08x}; {known:08x} was written")


def unread(file: str, error: storage.UnreadableError | OSError) -> Fault:
    """The fault of a file that cannot be read."""
    if isinstance(error, OSError):
        is_missing, reason = isinstance(error, FileNotFoundError), error.strerror
    else:
        is_missing = error.code in ("not_found", "not_a_file", "bad_name")
        reason = error.detail
    code = "missing" if is_missing else "unreadable"
    return Fault(file, code, f"it cannot be read: {reason}")


def check_sums(expected: Expectation, file: str) -> Iterator[Fault]:
    """Find a file that has not the size and CRC32C that the commit's list notes."""
    try:
        fault = other_sums(file, *storage.sums(expected.path(file)), expected.files.get(file))
    except (storage.UnreadableError, OSError) as error:
        fault = unread(file, error)
    if fault:
        yield fault
