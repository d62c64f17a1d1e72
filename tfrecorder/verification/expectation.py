"""What a committed dataset says about itself: `dataset_info.json`, and the chain of manifests.

`dataset_info.json` names the newest commit; a manifest proves itself by its last field, and the
done-records in it prove the shards with their indexes and tables.  The commit before the newest one
says what `undo` of an update must find.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeVar

from tfrecorder import storage
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import TfdsInfo, parse, parse_commit_note, unseal
from tfrecorder.format.done_records import DoneRecords
from tfrecorder.format.layout import NewFiles, Shard
from tfrecorder.format.manifest import DatasetRecord, Loss, Manifest
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.output.staging import list_folders
from tfrecorder.reading.commits import Commit, all_done, chain_before, commit_numbers, is_own
from tfrecorder.reading.dataset_files import nothing_begun
from tfrecorder.schema.fields import Fields
from tfrecorder.verification.faults import Fault
from tfrecorder.writing.commit import moved_by
from tfrecorder.writing.manifest import manifest_of
from tfrecorder.writing.public_files import dataset_info_json, descriptions, with_shards

T = TypeVar("T")

#: The reasons for which a file cannot be read because there is none under its name.
GONE = ("not_found", "not_a_file", "bad_name")

#: Of these files a manifest has the checksums.
LISTS = (layout.REJECTS, layout.SUSPECTS)


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
        shards: all, in the order of the commits; those of lost manifests come last.
        faults: those found on the way.
        pending: the plan of an operation under way, or of one whose cleaning up was interrupted.
        standing: by the name of a shard or of a file next to one, what a bucket's listing says
            about it; empty on a disk, which keeps no checksums.
    """

    directory: str
    note: tuple[int, str]
    info: TfdsInfo | None
    numbers: Sequence[int]
    commits: Mapping[int, Commit]
    done: DoneRecords
    shards: Sequence[Shard]
    faults: tuple[Fault, ...]
    pending: Plan | None = None
    standing: Mapping[str, storage.Description] = field(default_factory=dict)

    @property
    def lost(self) -> list[int]:
        """The commits whose manifests are damaged or gone."""
        return [number for number in self.numbers if number not in self.commits]

    @property
    def last(self) -> Commit | None:
        """The newest commit, if its manifest is sound."""
        return self.commits.get(self.numbers[-1])

    @cached_property
    def fields(self) -> Fields:
        """The columns of the dataset; none if the newest manifest is lost."""
        return self.last.plan.fields if self.last else ()

    def before(self, number: int) -> Manifest | None:
        """The manifest before that of a commit, if it is sound and was not replaced."""
        commit = self.commits.get(self.number_before(number))
        return None if commit is None else commit.manifest

    def dataset_before(self, number: int) -> DatasetRecord | None:
        """The dataset before a commit, or what is known of it where it was replaced."""
        if (before := self.before(number)) is not None:
            return before.dataset
        commit = self.commits.get(number)
        if commit is None or commit.manifest.commit.replaced is None:
            return None
        major = int(commit.dataset.stated.partition(".")[0])
        return DatasetRecord(
            splits=commit.manifest.commit.replaced,
            stated=f"{major - 1}.0.0",
            commit=number - 1,
        )

    def number_before(self, number: int) -> int:
        """The commit that another follows, which was not taken back; -1 for the first."""
        return max((n for n in self.numbers if n < number), default=-1)

    def path(self, name: str) -> str:
        """The path of a file of the dataset."""
        return os.path.join(self.directory, name)

    def read(self, name: str) -> bytes:
        """A file of the dataset, whole.

        Raises:
            UnreadableError: as for `storage.read_bytes`.
        """
        return storage.read_bytes(self.path(name))

    def read_whole(self, name: str) -> bytes:
        """The same; raises a DatasetError that names the file."""
        with storage.failing_as(DatasetError, self.path(name)):
            return self.read(name)

    def stands_as(
        self,
        name: str,
        crc32c: int | None,
    ) -> bool:
        """True if the store itself reports this checksum for a file, so it need not be read."""
        standing = self.standing.get(name)
        return crc32c is not None and standing is not None and standing.crc32c == crc32c


def read_expectation(directory: str) -> Expectation:
    """What a dataset says about itself.

    Raises:
        DatasetError: there is no committed dataset, it was not written by this package, or nothing
            of what it says about itself is left.
    """
    refuse(directory)
    faults: list[Fault] = []
    pending = read_or_fault(directory, layout.PLAN, Plan.from_json, faults)
    faults = [fault for fault in faults if fault.code != "missing"]
    info = read_or_fault(directory, layout.COMMIT, _parsed_info, faults)
    # A manifest is written before it is committed.
    limit = math.inf if pending is None else pending.commit
    numbers = [number for number in commit_numbers(directory) if number < limit]
    note = parse_commit_note(info) or (max(numbers, default=0), "")
    newest = read_commit_or_fault(directory, note[0], faults)
    if newest is not None and note[1] not in ("", newest.digest):
        faults.append(
            Fault(
                layout.manifest(note[0]),
                "differs",
                f"it is not the one that {layout.COMMIT} names",
            )
        )
        newest = None
    if newest is None and info is None:
        raise DatasetError(
            f"{directory}: {faults[-1].file}: {faults[-1].message}; and {layout.COMMIT} is damaged "
            "or gone, so nothing says what the dataset holds. Get access, or copy one again."
        )
    listed = newest.shards if newest else _shards_there(directory, info or {})
    # What is known of the commits before it.
    latest = newest
    taken_back = set()
    if latest is None:
        # The newest before the lost one that has none but its shards; those between were taken
        # back.  Without one, the lost one came alone, as far as anybody knows.
        for number in reversed(commit_numbers(directory)):
            commit = read_commit_or_fault(directory, number, []) if number < note[0] else None
            if commit is not None and {*commit.shards} <= {*listed}:
                latest = commit
                break
            if commit is not None:
                taken_back.add(number)
        if latest is not None and _is_rewrite(latest, info or {}, listed):
            latest = None
    numbers = [note[0]]
    if latest is not None:
        # What came between and left no shard was taken back.
        has_more = {*latest.shards} != {*listed}
        between = range(latest.number + 1, note[0]) if has_more else ()
        numbers = sorted({*chain_before(latest), latest.number, *between, note[0]} - taken_back)
    read = partial(read_commit_or_fault, directory, faults=faults)
    chain = [*storage.each(read, numbers[:-1], directory), newest]
    commits = {commit.number: commit for commit in chain if commit is not None}
    done = all_done(commits.values())
    expected = Expectation(
        directory=directory,
        note=note,
        info=info,
        numbers=numbers,
        commits=commits,
        done=done,
        shards=[*done, *(shard for shard in listed if shard not in done)],
        faults=tuple(faults),
        pending=pending,
        standing={} if storage.is_local(directory) else list_folders(directory),
    )
    return replace(expected, faults=(*faults, *_differing(expected)))


def read_or_fault(
    directory: str,
    file: str,
    parsed: Callable[[bytes], T],
    faults: list[Fault],
) -> T | None:
    """A file; None, with a fault that is added to the others, if it is not as it was written.

    Raises:
        DatasetError: another version of the package wrote it.
    """
    try:
        return parsed(storage.read_bytes(os.path.join(directory, file)))
    except storage.UnreadableError as error:
        faults.append(unread(file, error))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        faults.append(Fault(file, "damaged", str(error)))
    return None


def _parsed_info(data: bytes) -> TfdsInfo:
    info: TfdsInfo = parse(data)
    if parse_commit_note(info) is None:
        raise ValueError("it does not name its commit")
    _shards_of(info)
    return info


def _shards_of(info: TfdsInfo) -> list[Shard]:
    """The shards that are listed; those of another tool, whose names are others, are none."""
    parts = {"SHARD_INDEX": "{:05d}", "FILEFORMAT": "tfrecord"}
    named = (
        split["filepathTemplate"].format(SPLIT=split["name"], **parts).format(index)
        for split in info["splits"]
        for index in range(len(split["shardLengths"]))
    )
    return [shard for shard in map(layout.parse_shard, named) if shard]


def _shards_there(directory: str, info: TfdsInfo) -> list[Shard]:
    """The shards that are listed, and those of splits without a record, which TFDS is not told."""
    listed = _shards_of(info)
    empty = (
        layout.parse_shard(name) for name, size in storage.sizes(directory).items() if not size
    )
    splits = {shard.split for shard in listed}
    return [*listed, *(shard for shard in empty if shard and shard.split not in splits)]


def _is_rewrite(
    before: Commit,
    info: TfdsInfo,
    shards: Collection[Shard],
) -> bool:
    """True if a lost commit cannot have added to one before it, as the dataset's version proves.

    An addition raises the minor number.  What takes one back raises the major number as a rewrite
    does, but leaves no further shard.
    """
    major, minor, _ = map(int, info["version"].split("."))
    raises_major = major > int(before.dataset.stated.partition(".")[0])
    return raises_major and not minor and not {*shards} <= {*before.shards}


def read_commit_or_fault(
    directory: str,
    number: int,
    faults: list[Fault],
) -> Commit | None:
    """A commit; None, with a fault that is added to the others, if its manifest is damaged."""
    file = layout.manifest(number)

    def parsed(data: bytes) -> Commit:
        commit = Commit(number, Manifest.from_json(data, os.path.join(directory, file)))
        is_whole = 0 <= commit.dataset.since <= commit.dataset.chain <= number == commit.plan.commit
        if not is_whole or commit.plan.digest != commit.digest:
            raise ValueError("its values are not those of its plan")
        assert commit.done is not None  # raises if these are no done-records
        return commit

    return read_or_fault(directory, file, parsed, faults)


def _differing(expected: Expectation) -> Iterator[Fault]:
    """Find manifests that do not follow from their plans, done-records and the one before."""
    for number, commit in expected.commits.items():
        file = layout.manifest(number)
        plan = commit.plan
        done = commit.done
        for shard, record in done.items():
            planned = record.rows
            if plan.layout.split_shards.get(shard.split) and plan.layout.is_new(shard):
                planned = plan.layout.shard_rows(shard)
            if not record.rows == planned == record.records + record.rejects:
                yield Fault(
                    file,
                    "rows_lost",
                    f"{planned:,} rows were planned for {shard.file}, and it has {record.rows:,}: "
                    f"{record.records:,} records and {record.rejects:,} rejects",
                )
            if (record.plan, record.shard) != (plan.digest, shard.name):
                yield Fault(file, "damaged", f"what it says of {shard.file} is of another")
        last = expected.number_before(number)
        if last in expected.lost:
            continue
        before = expected.before(number)
        if (
            before is not None
            and last == number - 1
            and plan.follows.previous != before.commit.digest
        ):
            yield Fault(file, "differs", "it follows another commit than the one before it")
        made = manifest_of(plan, done, expected.dataset_before(number), commit.dataset.lists)
        made = with_said_of(made.as_read(), commit.manifest)
        for key in commit.manifest.differing(made):
            yield Fault(
                file,
                "differs",
                f"its {key!r} is not what follows from its plan and done-records",
            )


def with_said_of(made: Manifest, said: Manifest) -> Manifest:
    """A manifest with what another one of its commit alone says.

    That follows from other commits, of which some may be gone, or from the card.
    """
    then = said.dataset
    if not made.plan.follows.renumbers:
        made = made.with_dataset(since=then.since, contents=then.contents)
    made = made.with_dataset(
        abandoned=then.abandoned,
        ends_undo=then.ends_undo,
        earlier=then.earlier,
        stated_by_card=then.stated_by_card,
    )
    return made.with_commit(
        log=said.commit.log,
        log_before=said.commit.log_before,
        log_undone=said.commit.log_undone,
    )


def common_files(expected: Expectation) -> NewFiles:
    """Each file that follows from the newest manifest, `dataset_info.json` from all of them.

    Empty if its manifest is lost.
    """
    last = expected.last
    if last is None:
        return {}
    done = {shard: expected.done[shard] for shard in last.own_shards}
    files = descriptions(last.plan, last.dataset)
    if not expected.lost:
        before = _info_before(expected)
        files[layout.COMMIT] = dataset_info_json(last.plan, done, before, last.dataset)
    return files


def _info_before(expected: Expectation) -> TfdsInfo | None:
    """What the `dataset_info.json` before the newest one said, as far as the new one needs it."""
    number = expected.note[0]
    if (before := expected.before(number)) is None:
        return None
    own = {*expected.commits[number].own_shards}
    others = {shard: done for shard, done in sorted(expected.done.items()) if shard not in own}
    return {"version": before.dataset.stated, "splits": [*with_shards((), others).values()]}


def refuse(directory: str) -> None:
    """Raise a DatasetError unless a directory holds a committed dataset of this package."""
    with storage.failing_as(DatasetError, directory):
        names = storage.names(directory)
        is_committed = layout.COMMIT in names
        is_pending = storage.exists(os.path.join(directory, layout.PLAN))
        numbers = commit_numbers(directory)
    if not is_own(names):
        if is_committed or any(".tfrecord" in name for name in names):
            raise DatasetError(
                f"{directory} was not written by tfrecorder: there is no {layout.PRIVATE}/ with "
                "the checksums to compare with. `load` and `info` read it."
            )
        raise DatasetError(nothing_begun(directory))
    if not is_committed and (is_pending or not numbers):
        raise DatasetError(
            nothing_begun(directory)
            or f"{directory} is not committed: it has no {layout.COMMIT}. Its conversion is under "
            "way or was interrupted: wait for it, or run the same conversion again to complete it."
        )


def other_sums(
    file: str,
    sums: tuple[int, int],
    written: tuple[int, int],
) -> Fault | None:
    """The fault of a file whose size and CRC32C are not those written; None if they are."""
    if sums[0] != written[0]:
        return Fault(file, "size", f"it has {sums[0]:,} bytes; {written[0]:,} were written")
    words = f"its CRC32C is {sums[1]:08x}; {written[1]:08x} was written"
    return None if sums == written else Fault(file, "checksum", words)


def unread(file: str, error: storage.UnreadableError | OSError) -> Fault:
    """The fault of a file that cannot be read."""
    is_missing = getattr(error, "code", "") in GONE
    reason = getattr(error, "strerror", error)
    return Fault(file, "missing" if is_missing else "unreadable", f"it cannot be read: {reason}")


def can_be_undone(newest: Commit) -> bool:
    """True if the newest commit is an update that can be taken back."""
    plan = newest.plan
    is_correction = plan.kind is PlanKind.UPDATE and not plan.follows.renumbers
    return is_correction and not Loss.KEPT.is_in(plan.carried.losses)


def faults_of_replaced(directory: str, newest: Commit) -> list[Fault]:
    """Find manifests and files of before the newest commit that are not as they were written."""
    faults: list[Fault] = []
    if not can_be_undone(newest):
        return faults
    before = read_commit_or_fault(directory, newest.number - 1, faults)
    if before is None:
        return faults
    marks = before.plan.carried.marks
    if marks not in (
        "",
        newest.plan.carried.marks,
        *newest.plan.carried.losses.get(Loss.MARKS.value, ()),
    ):
        read_or_fault(directory, marks, unseal, faults)
    chain = [read_commit_or_fault(directory, n, faults) for n in chain_before(before)]
    done = all_done([*filter(None, chain), before])
    for shard, names in moved_by(newest, before.dataset.splits).items():
        if shard not in done or os.path.dirname(names[0]) != layout.BEFORE:
            continue
        of = done[shard]
        written = [(of.bytes, of.crc32c)]
        # Form 4 has no sizes of what is beside a shard.
        written += [(of.beside_bytes.get(name, -1), of.beside[name]) for name in shard.beside]
        for name, (size, crc) in zip(names, written, strict=True):
            faults += changed(directory, name, size, crc)
    return faults


def changed(
    directory: str,
    name: str,
    size: int,
    crc: int,
) -> Iterator[Fault]:
    """The fault of a file that is not as it was written, if it is not.

    Args:
        size: -1 if nobody knows it.
    """
    try:
        sums = storage.sums(os.path.join(directory, name))
    except (storage.UnreadableError, OSError) as error:
        yield unread(name, error)
    else:
        if fault := other_sums(name, sums, (sums[0] if size < 0 else size, crc)):
            yield fault
