"""What a committed dataset says of itself: the plan, the done-records and the list of the commit.

The three overlap, on purpose: where one is damaged the others tell which.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.forms import DONE, plan_form
from tfrecorder.dataset.json_form import anything, each, parse, record, text, whole, word
from tfrecorder.dataset.layout import Shard
from tfrecorder.errors import DatasetError
from tfrecorder.plan.directory import exchange_begun
from tfrecorder.plan.plan import Plan
from tfrecorder.stored.dataset import exchange_words
from tfrecorder.verification.faults import Fault
from tfrecorder.writing.done import DoneRecord
from tfrecorder.writing.metadata import PlanSums, plan_list

_SHARDS = each(record({"file": text, "records": whole(), "bytes": whole(), "crc32c": whole()}))
_PLAN_FILES = "plan_files"
_FILE = word(layout.PLAN, layout.PLAN_ROWS)
_PLAN_LIST = each(record({"file": _FILE, "bytes": whole(), "crc32c": whole()}))
_UNUSABLE = (AttributeError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class Written:
    """A shard's file as it was written: records, bytes and CRC32C."""

    records: int
    bytes: int
    crc32c: int


@dataclass(frozen=True)
class Expectation:
    """What must stand in a dataset directory.

    Attributes:
        directory: absolute or relative, as it was given.
        plan: the staged one, or, where that is gone, what the commit's list tells of it.
        staged: True if it is the staged one.
        digest: of the plan that wrote the dataset.
        done: the done-records that are sound.
        listed: by the name of a shard's file, what the commit's list says; empty if it is damaged.
        plan_sums: size and CRC32C of the plan's files, as the commit's list says; None of a dataset
            of an earlier version, which does not list them; empty if the list is damaged.
        faults: found on the way.
    """

    directory: str
    plan: Plan
    staged: bool
    digest: str
    done: Mapping[Shard, DoneRecord]
    listed: Mapping[str, Written]
    plan_sums: PlanSums | None
    faults: tuple[Fault, ...]

    def path(self, name: str) -> str:
        """The path of a file of the dataset."""
        return os.path.join(self.directory, name)

    def read(self, name: str) -> bytes:
        """A file of the dataset, whole.

        Raises:
            UnreadableError: as `storage.read_bytes`.
        """
        return storage.read_bytes(self.path(name))

    def written(self, shard: Shard) -> dict[str, Written]:
        """What is known of a shard's file, by the file that says it: two, which should agree."""
        known = {}
        if shard in self.done:
            one = self.done[shard]
            known[shard.done] = Written(one.records, one.bytes, one.crc32c)
        if shard.file in self.listed:
            known[layout.METADATA] = self.listed[shard.file]
        return known


def read_expectation(directory: str) -> Expectation:
    """What a dataset says of itself.

    Raises:
        DatasetError: there is no committed dataset, or none of this package.
    """
    refuse(directory)
    faults: list[Fault] = []
    metadata = _read_metadata(directory, faults)
    found = dict(_read_done(directory, faults))
    votes = Counter(one.plan for one in found.values())
    listed = _plan_of_metadata(metadata)
    if listed is not None:
        votes[metadata["plan"]] += 1
    plan = _read_plan(directory, votes, faults)
    staged = plan is not None
    plan = plan or listed
    if plan is None:
        for fault in faults:
            if fault.code == "unreadable":
                raise DatasetError(f"{directory}: {fault.file}: {fault.message}.")
        raise DatasetError(
            f"{directory}: both {layout.PLAN} and {layout.METADATA} are damaged or gone, so there "
            "is nothing to check the shards against. Copy them again, or convert again with "
            "overwrite=True."
        )
    digest = plan.digest if staged else metadata["plan"]
    done = {}
    for shard in plan.shards:
        one = found.get(shard.done)
        if one is not None and (one.plan, one.shard) == (digest, shard.name):
            done[shard] = one
        elif one is not None:
            faults.append(Fault(shard.done, "damaged", "it names another plan or another shard"))
        elif not storage.exists(os.path.join(directory, shard.done)):
            faults.append(Fault(shard.done, "missing", "the shard's done-record is not there"))
    files = {} if listed is None else _listed_shards(metadata)
    sums = _listed_plan(metadata)
    return Expectation(directory, plan, staged, digest, done, files, sums, tuple(faults))


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
    if not storage.exists(os.path.join(directory, layout.PRIVATE)):
        if committed or any(".tfrecord" in name for name in storage.names(directory)):
            raise DatasetError(
                f"{directory} was not written by tfrecorder: there is no {layout.PRIVATE}/ with "
                "the checksums to compare with. tfrecorder.load and tfrecorder.info read it."
            )
        raise DatasetError(
            f"{directory} is no dataset: it has no {layout.COMMIT}. Give the output_dir of a "
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
            f"{directory}: {special} is a pipe, a device or a socket; no dataset holds one, and it "
            "might never end. Remove it."
        )


def _special_file(directory: str) -> str | None:
    """The first file of a local directory that is neither a regular one nor a folder."""
    for where, _, names in os.walk(storage.resolve(directory, "")):
        for name in names:
            path = os.path.join(where, name)
            if os.path.exists(path) and not os.path.isfile(path):
                return os.path.relpath(path, storage.resolve(directory, ""))
    return None


def _read_metadata(directory: str, faults: list[Fault]) -> Any:
    try:
        return parse(storage.read_bytes(os.path.join(directory, layout.METADATA)), anything)
    except storage.UnreadableError as error:
        faults.append(unread(layout.METADATA, error))
    except ValueError as error:
        faults.append(Fault(layout.METADATA, "damaged", f"it is no JSON: {error}"))
    return None


def _plan_of_metadata(metadata: Any) -> Plan | None:
    """The plan as far as the commit's list tells it: without the sources; None if it is damaged."""
    try:
        shards = [layout.parse_shard(listed["file"]) for listed in metadata["shards"]]
        names = metadata["class_names"]
        _listed_shards(metadata)
        plan = Plan(
            rows=int(metadata["totals"]["rows"]),
            split_rows=dict(metadata["split_rows"]),
            split_shards={shard.split: shard.count for shard in shards if shard},
            label_kind=str(metadata["label_kind"]),
            class_names=None if names is None else tuple(names),
            num_classes=int(metadata["num_classes"]),
            base="",
            fingerprint="",
            options=dict(metadata["options"]),
            stated=metadata.get("stated"),
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


def _listed_plan(metadata: Any) -> PlanSums | None:
    if not isinstance(metadata, dict) or _PLAN_FILES not in metadata:
        return None
    listed = metadata[_PLAN_FILES]
    if _PLAN_LIST(listed) is not None:
        return {}
    sums = {one["file"]: (one["bytes"], one["crc32c"]) for one in listed}
    return sums if plan_list(sums).items() <= metadata.items() else {}


def _read_plan(directory: str, votes: Mapping[str, int], faults: list[Fault]) -> Plan | None:
    """The staged plan, if it is the one that wrote the dataset."""
    try:
        data = storage.read_bytes(os.path.join(directory, layout.PLAN))
        plan = Plan.from_json(data)
        if plan.digest in votes or not votes:  # or nothing is left that could contradict it
            if plan.to_json() != data:
                faults.append(Fault(layout.PLAN, "damaged", "it is not as it was written"))
            return plan
        why = "it is not the plan of this dataset"
    except storage.UnreadableError as error:
        faults.append(unread(layout.PLAN, error))
        return None
    except _UNUSABLE as error:
        why = f"it is no plan: {error}"
    faults.append(Fault(layout.PLAN, "damaged", why))
    return None


def _read_done(directory: str, faults: list[Fault]) -> Iterator[tuple[str, DoneRecord]]:
    """The done-records that are in the form in which they were written, by their files."""
    names = storage.names(os.path.join(directory, layout.DONE))
    files = [f"{layout.DONE}/{name}" for name in names]
    for file, found in zip(
        files, storage.each(lambda file: _read_one(directory, file), files, directory), strict=True
    ):
        if isinstance(found, Fault):
            faults.append(found)
        else:
            yield file, found


def _read_one(directory: str, file: str) -> DoneRecord | Fault:
    try:
        data = storage.read_bytes(os.path.join(directory, file))
        fields = parse(data, DONE)
        one = DoneRecord(**fields)
        # Of the fields that are there: an earlier version wrote fewer.
        if json.dumps(fields, indent=1, sort_keys=True).encode() == data:
            return one
        why = "it is not as it was written"
    except storage.UnreadableError as error:
        return unread(file, error)
    except _UNUSABLE as error:
        why = f"it is no done-record: {error}"
    return Fault(file, "damaged", why)


def unread(file: str, error: storage.UnreadableError) -> Fault:
    """The fault of a file that cannot be read."""
    code = "missing" if error.code == "not_found" else "unreadable"
    return Fault(file, code, f"it cannot be read: {error.detail}")
