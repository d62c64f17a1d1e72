"""What a committed dataset says about itself: `dataset_info.json`, and the chain of manifests.

`dataset_info.json` names the newest commit; a manifest proves itself by its last field, and the
done-records in it prove the shards with their indexes and tables.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfrecorder import storage
from tfrecorder.errors import DatasetError, OutputError
from tfrecorder.format import layout
from tfrecorder.format.documents import parse, parse_commit_note, parse_manifest
from tfrecorder.format.layout import Shard
from tfrecorder.output.done_records import DoneRecord, list_output
from tfrecorder.output.staging import read_plan
from tfrecorder.plan.plan import Plan
from tfrecorder.reading.commits import Commit, check_at, commit_at, is_own, read_commit
from tfrecorder.verification.faults import Fault
from tfrecorder.writing.manifest import manifest_of


@dataclass(frozen=True)
class Expectation:
    """What a dataset directory must hold.

    Attributes:
        directory: absolute or relative, as it was given.
        note: the number and the plan's digest of the newest commit.
        info: the values of `dataset_info.json`; None if it is damaged.
        numbers: of the commits that the records come from, oldest first.
        commits: those of them whose manifests are sound, by number.
        done: the done-records in these.
        shards: those to check, in the order of the commits; those of lost manifests come last.
        every_shard: those of the whole dataset, also of later commits than these.
        faults: those found on the way.
        pending: the plan of an operation under way, or of one whose cleaning up was interrupted.
        standing: by the name of a shard or of a file next to one, what a bucket's listing says
            about it; empty on a disk, which keeps no checksums.
    """

    directory: str
    note: tuple[int, str]
    info: Mapping[str, Any] | None
    numbers: Sequence[int]
    commits: Mapping[int, Commit]
    done: Mapping[Shard, DoneRecord]
    shards: Sequence[Shard]
    every_shard: Sequence[Shard]
    faults: tuple[Fault, ...]
    pending: Plan | None = None
    standing: Mapping[str, storage.Description] = field(default_factory=dict)

    @property
    def lost(self) -> list[int]:
        """The commits whose manifests are damaged or gone."""
        return [number for number in self.numbers if number not in self.commits]

    @property
    def last(self) -> Commit | None:
        """The last of these commits, if its manifest is sound."""
        return self.commits.get(self.numbers[-1])

    def before(self, number: int) -> Mapping[str, Any] | None:
        """The manifest before that of a commit, or what is known of it where it was replaced."""
        if number - 1 in self.commits:
            return self.commits[number - 1].manifest
        manifest = self.commits[number].manifest if number in self.commits else {}
        if "replaced" not in manifest:
            return None
        major = int(manifest["stated"].partition(".")[0])
        return {"splits": manifest["replaced"], "stated": f"{major - 1}.0.0"}

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


def read_expectation(directory: str, at: int | None = None) -> Expectation:
    """What a dataset says about itself.

    Args:
        at: the last commit to look at; None is the newest.

    Raises:
        DatasetError: there is no committed dataset, it was not written by this package, or nothing
            of what it says about itself is left.
        OptionError: `at` is not a whole number from 0.
    """
    refuse(directory)
    check_at(at)
    faults: list[Fault] = []
    pending = _pending(directory, faults)
    info = _info(directory, faults)
    note = parse_commit_note(info) or _newest_number(directory, pending, faults)
    read = functools.partial(_read_manifest, directory)
    newest = read(note[0])
    if isinstance(newest, Commit) and note[1] not in ("", newest.digest):
        words = f"it is not the one that {layout.COMMIT} names"
        newest = Fault(layout.manifest(note[0]), "differs", words)
    if isinstance(newest, Commit):
        splits = newest.manifest["splits"]
    elif info is not None:
        splits = splits_of(info)
    else:
        raise _nothing_left(directory, newest)
    every_shard = layout.shards_of(splits)
    if at is not None:
        newest = commit_at(directory, read_commit(directory, note[0]), at)
    if isinstance(newest, Commit):
        last, since = newest.number, newest.manifest["since"]
        listed = newest.shards
    else:
        last, since = note[0], _since(directory, note[0], splits)
        listed = every_shard
    numbers = range(since, last + 1)
    rest = storage.each(read, numbers[:-1], directory)
    commits: dict[int, Commit] = {}
    done: dict[Shard, DoneRecord] = {}
    for number, commit in zip(numbers, [*rest, newest], strict=True):
        if isinstance(commit, Fault):
            faults.append(commit)
        else:
            commits[number] = commit
            done |= _done_of(commit)
    expected = Expectation(
        directory=directory,
        note=note,
        info=info,
        numbers=numbers,
        commits=commits,
        done=done,
        shards=[*done, *(shard for shard in listed if shard not in done)],
        every_shard=every_shard,
        faults=tuple(faults),
        pending=pending,
        standing={} if storage.is_local(directory) else list_output(directory, every_shard),
    )
    return replace(expected, faults=(*faults, *_differing(expected)))


def _pending(directory: str, faults: list[Fault]) -> Plan | None:
    try:
        return read_plan(directory)
    except OutputError as error:
        faults.append(Fault(layout.PLAN, "damaged", str(error)))
        return None


def _info(directory: str, faults: list[Fault]) -> Mapping[str, Any] | None:
    """The values of `dataset_info.json`; None if it is damaged."""
    try:
        info = parse(storage.read_bytes(os.path.join(directory, layout.COMMIT)))
        if parse_commit_note(info) is None:
            raise ValueError("it does not name its commit")
        splits_of(info)
    except storage.UnreadableError as error:
        faults.append(unread(layout.COMMIT, error))
    except (KeyError, TypeError, ValueError) as error:
        faults.append(Fault(layout.COMMIT, "damaged", str(error)))
    else:
        return dict(info)
    return None


def splits_of(info: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """For each split, its revision and the number of its shards."""
    splits = {}
    for split in info["splits"]:
        name = split["name"].upper()
        first = split["filepathTemplate"].format(
            SPLIT=name.lower(), SHARD_INDEX="00000", FILEFORMAT="tfrecord"
        )
        if (shard := layout.parse_shard(first)) is None or shard.split != name:
            raise ValueError(f"its shards have other names than ours: {first}")
        splits[name] = (shard.revision, len(split["shardLengths"]))
    return splits


def _newest_number(directory: str, pending: Plan | None, faults: list[Fault]) -> tuple[int, str]:
    """The newest commit by the manifests that are there, where `dataset_info.json` is damaged."""
    numbers = _numbers(directory)
    if pending is not None:  # its manifest is written before it is committed
        numbers = [number for number in numbers if number < pending.commit]
    if not numbers:
        raise _nothing_left(directory, faults[-1])
    return numbers[-1], ""


def _numbers(directory: str) -> list[int]:
    names = storage.names(os.path.join(directory, layout.COMMITS))
    numbers = map(layout.commit_of, names)
    return sorted(number for number in numbers if number is not None)


def _since(directory: str, last: int, splits: Mapping[str, Sequence[int]]) -> int:
    """The commit that began a dataset whose newest manifest is lost, by the newest of the others.

    If none is of the same revisions, it is the newest itself, as far as anybody knows.
    """
    for number in reversed(_numbers(directory)):
        if number >= last or isinstance(commit := _read_manifest(directory, number), Fault):
            continue
        same = all(
            split in splits and splits[split][0] == revision and splits[split][1] >= count
            for split, (revision, count) in commit.manifest["splits"].items()
        )
        return int(commit.manifest["since"]) if same else last
    return last


def _read_manifest(directory: str, number: int) -> Commit | Fault:
    """A commit; or why its manifest is not as it was written."""
    file = layout.manifest(number)
    path = os.path.join(directory, file)
    try:
        manifest = parse_manifest(storage.read_bytes(path), path)
        plan = Plan.of(manifest)
        names = [shard.name for shard in Commit(number, manifest).own_shards]
        done = [DoneRecord(**values) for values in manifest["done"]]
        if (plan.commit, plan.digest) != (number, manifest["plan"]):
            raise ValueError("its values are not those of its plan")
        if [(record.shard, record.plan) for record in done] != [(n, plan.digest) for n in names]:
            raise ValueError("it names other shards than its plan")
    except storage.UnreadableError as error:
        return unread(file, error)
    except (KeyError, TypeError, ValueError) as error:
        return Fault(file, "damaged", str(error))
    return Commit(number, manifest)


def _done_of(commit: Commit) -> dict[Shard, DoneRecord]:
    records = (DoneRecord(**values) for values in commit.manifest["done"])
    return dict(zip(commit.own_shards, records, strict=True))


def _differing(expected: Expectation) -> Iterator[Fault]:
    """Find manifests that do not follow from their plans, done-records and the one before."""
    for number, commit in expected.commits.items():
        file, manifest, plan = layout.manifest(number), commit.manifest, Plan.of(commit.manifest)
        done = {shard: expected.done[shard] for shard in commit.own_shards}
        for shard, record in done.items():
            is_kept = shard.index < len(plan.kept.get(shard.split, ()))  # at first, if they are
            planned = record.rows if is_kept else plan.shard_rows(shard)
            if not record.rows == planned == record.records + record.rejects:
                words = (
                    f"{planned:,} rows were planned for {shard.file}, and it has {record.rows:,}: "
                    f"{record.records:,} records and {record.rejects:,} rejects"
                )
                yield Fault(file, "rows_lost", words)
        before = expected.before(number)
        if number - 1 in expected.lost:
            continue
        if before is not None and manifest["previous"] != before.get("plan", plan.previous):
            yield Fault(file, "differs", "it follows another commit than the one before it")
        made = json.loads(json.dumps(manifest_of(plan, done, before, manifest["lists"])))
        for key in (key for key, value in made.items() if manifest[key] != value):
            words = f"its {key!r} is not what follows from its plan and done-records"
            yield Fault(file, "differs", words)


def _nothing_left(directory: str, fault: Fault) -> DatasetError:
    if fault.code == "unreadable":
        return DatasetError(f"{directory}: {fault.file}: {fault.message}. Get access first.")
    return DatasetError(
        f"{directory}: both {layout.COMMIT} and the manifest of its newest commit are damaged or "
        f"gone, so there is nothing to check the shards against. Copy one of them again."
    )


def refuse(directory: str) -> None:
    """Raise a DatasetError unless a directory holds a committed dataset of this package."""
    refusal = storage.refusal(storage.scheme(directory))
    if refusal is not None:
        raise DatasetError(f"{directory} cannot be read: {refusal}.")
    with storage.failing_as(DatasetError, directory):
        if not storage.is_folder(directory):
            raise DatasetError(f"{directory}: there is no such directory. Check the path.")
        names = storage.names(directory)
        is_committed = layout.COMMIT in names
        is_pending = storage.exists(os.path.join(directory, layout.PLAN))
        numbers = _numbers(directory)
    if not is_own(names, names):
        if is_committed or any(".tfrecord" in name for name in names):
            raise DatasetError(
                f"{directory} was not written by tfrecorder: there is no {layout.PRIVATE}/ with "
                "the checksums to compare with. `tfrecorder.load` and `tfrecorder.info` read it."
            )
        raise DatasetError(
            f"{directory} is not a dataset: it has no {layout.COMMIT}. Give the `output_dir` of "
            "a conversion."
        )
    if not is_committed and (is_pending or not numbers):
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


def other_sums(file: str, size: int, crc: int, written: tuple[int, int]) -> Fault | None:
    """The fault of a file whose size or CRC32C are not those written; None if they are."""
    if size != written[0]:
        return Fault(file, "size", f"it has {size:,} bytes; {written[0]:,} were written")
    return other_crc(file, crc, written[1])


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
