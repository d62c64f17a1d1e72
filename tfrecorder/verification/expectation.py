"""What a committed dataset says about itself: the plan, the done-records and the commit's list.

The list proves itself by its last field.  Its checksums prove the plan's files and the
done-records; a done-record proves its shard, index and lists.  If one of the three is damaged, the
others show which.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import google_crc32c

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.crc32c import is_sealed
from tfrecorder.format.forms import DONE, VERSIONED, plan_form, refuse_other_version
from tfrecorder.format.json_form import each, parse, record, table, text, whole
from tfrecorder.format.layout import Shard
from tfrecorder.output.directory import exchange_begun
from tfrecorder.output.done_records import DoneRecord, list_output
from tfrecorder.plan.plan import Plan
from tfrecorder.reading.dataset import exchange_words
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.generations import is_own
from tfrecorder.schema.fields import from_json
from tfrecorder.verification.faults import Fault

_CRC = whole(0, 2**32 - 1)
_SHARDS = each(
    record({"file": text, "records": whole(), "bytes": whole(), "crc32c": whole()}, {"done": _CRC})
)
_FILES = table(record({"bytes": whole(), "crc32c": _CRC}))
_UNUSABLE = (AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Written:
    """A shard's file as it was written: records, bytes and CRC32C."""

    records: int
    bytes: int
    crc32c: int


@dataclass(frozen=True)
class Expectation:
    """What a dataset directory must hold.

    Attributes:
        directory: absolute or relative, as it was given.
        plan: the staged plan, or if that is gone, what the commit's list says about it.
        staged: True if it is the staged plan.
        digest: the digest of the plan that wrote the dataset.
        done: the done-records that are sound.
        listed: by the name of a shard's file, what the commit's list says; empty if the list is
            damaged.
        files: by the name of a file of the plan, or of the lists of all shards, its size and CRC32C
            from the commit's list; empty if the list proves nothing.
        faults: those found on the way.
        standing: by the name of a shard or of a file next to one, what a bucket's listing says
            about it; empty on a disk, which keeps no checksums.
    """

    directory: str
    plan: Plan
    staged: bool
    digest: str
    done: Mapping[Shard, DoneRecord]
    listed: Mapping[str, Written]
    files: Mapping[str, Mapping[str, int]]
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
        found = self.standing.get(name)
        return crc32c is not None and found is not None and found.crc32c == crc32c

    def written(self, shard: Shard) -> dict[str, Written]:
        """What is known about a shard's file, by the file that says it: two, which should agree."""
        known = {}
        if shard in self.done:
            one = self.done[shard]
            known[shard.done] = Written(one.records, one.bytes, one.crc32c)
        if shard.file in self.listed:
            known[layout.METADATA] = self.listed[shard.file]
        return known


def read_expectation(directory: str) -> Expectation:
    """What a dataset says about itself.

    Raises:
        DatasetError: there is no committed dataset, or it was not written by this package.
    """
    refuse(directory)
    faults: list[Fault] = []
    listed = _read_list(directory, faults)
    folders = ("", *layout.SHARD_FOLDERS)
    standing = {} if storage.is_local(directory) else list_output(directory, folders)
    found = dict(_read_done(directory, faults))
    votes = Counter(one.plan for one in found.values())
    if listed.plan is not None:
        votes[listed.digest] += 1
    staged = _read_plan(directory, votes, faults)
    if staged is not None and listed.plan is not None and listed.digest != staged.digest:
        faults.append(Fault(layout.METADATA, "differs", "it belongs to another plan"))
        listed = _NO_LIST
    if staged is not None and (fault := _fault_of_plan(directory, staged, listed)):
        faults.append(fault)
    plan = staged or listed.plan
    if plan is None:
        raise _nothing_left(directory, faults)
    digest = listed.digest if staged is None else staged.digest
    done = dict(_sound_done(directory, plan, digest, found, listed.done, faults))
    return Expectation(
        directory=directory,
        plan=plan,
        staged=staged is not None,
        digest=digest,
        done=done,
        listed=listed.shards,
        files=listed.files,
        faults=tuple(faults),
        standing=standing,
    )


def _nothing_left(directory: str, faults: list[Fault]) -> DatasetError:
    for fault in faults:
        if fault.code == "unreadable":
            return DatasetError(f"{directory}: {fault.file}: {fault.message}.")
    return DatasetError(
        f"{directory}: both {layout.PLAN} and {layout.METADATA} are damaged or gone, so there is "
        f"nothing to check the shards against. Copy them again; or "
        f"`{command('repair', layout.grown_of(directory))}` makes them again from the shards."
    )


def _sound_done(
    directory: str,
    plan: Plan,
    digest: str,
    found: Mapping[str, DoneRecord],
    known: Mapping[str, int],
    faults: list[Fault],
) -> Iterator[tuple[Shard, DoneRecord]]:
    """The done-record of each shard, if it is the one that was written, as far as can be seen."""
    for shard in plan.shards:
        one = found.get(shard.done)
        if one is None:
            if not storage.exists(os.path.join(directory, shard.done)):
                faults.append(Fault(shard.done, "missing", "the shard's done-record is missing"))
        elif (one.plan, one.shard) != (digest, shard.name):
            faults.append(Fault(shard.done, "damaged", "it names another plan or another shard"))
        elif fault := other_crc(
            shard.done, google_crc32c.value(one.to_json()), known.get(shard.file)
        ):
            faults.append(fault)
        else:
            yield shard, one


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
        there = storage.is_folder(directory)
    except storage.UnreadableError as error:
        raise DatasetError(f"{error}.") from error
    if not there:
        raise DatasetError(f"{directory}: there is no such directory. Check the path.")
    committed = storage.exists(os.path.join(directory, layout.COMMIT))
    private = storage.exists(os.path.join(directory, layout.PRIVATE))
    names = storage.names(directory)
    if not private and not (committed and is_own(directory, names, STORED_FILES)):
        if committed or any(".tfrecord" in name for name in names):
            raise DatasetError(
                f"{directory} was not written by tfrecorder: there is no {layout.PRIVATE}/ with "
                "the checksums to compare with. tfrecorder.load and tfrecorder.info read it."
            )
        raise DatasetError(
            f"{directory} is not a dataset: it has no {layout.COMMIT}. Give the output_dir of a "
            "conversion."
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


@dataclass(frozen=True)
class _List:
    """What the commit's list says.

    Attributes:
        plan: as far as it is known; None if the list is damaged.
        digest: the plan's digest.
        shards: as in `Expectation.listed`.
        files: as in `Expectation.files`.
        done: for each shard, by its file, the CRC32C of its done-record; empty when `files` is.
    """

    plan: Plan | None = None
    digest: str = ""
    shards: Mapping[str, Written] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    done: Mapping[str, int] = field(default_factory=dict)


_NO_LIST = _List()


def _read_list(directory: str, faults: list[Fault]) -> _List:
    path = os.path.join(directory, layout.METADATA)
    try:
        data = storage.read_bytes(path)
        metadata = parse(data, VERSIONED)
    except storage.UnreadableError as error:
        faults.append(unread(layout.METADATA, error))
        return _NO_LIST
    except ValueError as error:
        faults.append(Fault(layout.METADATA, "damaged", f"it is not metadata: {error}"))
        return _NO_LIST
    proved = is_sealed(data)
    if proved:
        refuse_other_version(metadata, path)
    else:
        words = "it does not end with its own CRC32C: it has changed since it was written"
        faults.append(Fault(layout.METADATA, "checksum", words))
    plan = _plan_of_metadata(metadata)
    if plan is None:
        return _NO_LIST
    files, done = _listed_sums(metadata) if proved else ({}, {})
    return _List(plan, metadata["plan"], _listed_shards(metadata), files, done)


def _listed_sums(metadata: Any) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """What a proved list says about the plan's files and the done-records."""
    try:
        if _FILES(metadata["files"]):
            return {}, {}
        return metadata["files"], {one["file"]: one["done"] for one in metadata["shards"]}
    except _UNUSABLE:
        return {}, {}


def _plan_of_metadata(metadata: Any) -> Plan | None:
    """The plan as far as the commit's list has it, without the sources; None if it is damaged."""
    try:
        shards = [layout.parse_shard(listed["file"]) for listed in metadata["shards"]]
        _listed_shards(metadata)
        plan = Plan(
            rows=int(metadata["totals"]["rows"]),
            source_rows=metadata["source_rows"],
            split_rows=dict(metadata["split_rows"]),
            split_shards={shard.split: shard.count for shard in shards if shard},
            fields=from_json(metadata["fields"]),
            statistics=metadata["statistics"],
            base="",
            fingerprint="",
            options=dict(metadata["options"]),
            before=metadata.get("before"),
            streams=metadata.get("streams"),
        )
        agree = shards == plan.shards and plan.split_rows.keys() == plan.split_shards.keys()
        sound = agree and isinstance(metadata["plan"], str)
        return plan if sound and plan_form(json.loads(plan.to_json())) is None else None
    except _UNUSABLE:
        return None


def _listed_shards(metadata: Any) -> dict[str, Written]:
    if fault := _SHARDS(metadata["shards"]):
        raise ValueError(fault)
    return {
        one["file"]: Written(one["records"], one["bytes"], one["crc32c"])
        for one in metadata["shards"]
    }


def _read_plan(directory: str, votes: Mapping[str, int], faults: list[Fault]) -> Plan | None:
    """The staged plan, if it is the one that wrote the dataset."""
    try:
        plan = Plan.from_json(storage.read_bytes(os.path.join(directory, layout.PLAN)))
        if plan.digest in votes or not votes:  # or nothing is left to contradict it
            return plan
        why = "it is not the plan of this dataset"
    except storage.UnreadableError as error:
        faults.append(unread(layout.PLAN, error))
        return None
    except _UNUSABLE as error:
        why = f"it is not a plan: {error}"
    faults.append(Fault(layout.PLAN, "damaged", why))
    return None


def _fault_of_plan(directory: str, plan: Plan, listed: _List) -> Fault | None:
    """What is wrong with the file of a plan that decides each record as before."""
    data = storage.read_bytes(os.path.join(directory, layout.PLAN))
    known = listed.files.get(layout.PLAN)
    if fault := other_sums(layout.PLAN, len(data), google_crc32c.value(data), known):
        return fault
    if json.dumps(json.loads(data), indent=1).encode() == data:
        return None
    return Fault(layout.PLAN, "damaged", "it has changed since it was written")


def _read_done(directory: str, faults: list[Fault]) -> Iterator[tuple[str, DoneRecord]]:
    """The done-records that still have the form they were written in, by their files."""

    def read(file: str) -> DoneRecord | Fault:
        return _read_one(directory, file)

    names = storage.names(os.path.join(directory, layout.DONE))
    files = [f"{layout.DONE}/{name}" for name in names]
    for file, found in zip(files, storage.each(read, files, directory), strict=True):
        if isinstance(found, Fault):
            faults.append(found)
        else:
            yield file, found


def _read_one(directory: str, file: str) -> DoneRecord | Fault:
    try:
        data = storage.read_bytes(os.path.join(directory, file))
        fields = parse(data, DONE)
        one = DoneRecord(**fields)
        if one.to_json() == data:
            return one
        why = "it has changed since it was written"
    except storage.UnreadableError as error:
        return unread(file, error)
    except _UNUSABLE as error:
        why = f"it is not a done-record: {error}"
    return Fault(file, "damaged", why)


def other_sums(file: str, size: int, crc: int, known: Mapping[str, int] | None) -> Fault | None:
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


def unread(file: str, error: storage.UnreadableError) -> Fault:
    """The fault of a file that cannot be read."""
    code = "missing" if error.code == "not_found" else "unreadable"
    return Fault(file, code, f"it cannot be read: {error.detail}")
