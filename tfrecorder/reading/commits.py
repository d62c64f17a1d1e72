"""The commits of a dataset: what `dataset_info.json` stands for, and the manifest of each.

`dataset_info.json` names its commit; the commit's manifest says what it added or rewrote, and what
a reader must know of the whole dataset then.  A generation is the number of a commit.
Which commit the card describes is here too.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tfrecorder import storage
from tfrecorder.core.option import Whole, spelled
from tfrecorder.display.messages import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import TfdsInfo, parse_commit_note, seal, unseal
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import Shard, ShardRange
from tfrecorder.format.manifest import (
    COUNTS,
    DatasetRecord,
    Log,
    LogEntry,
    Loss,
    Manifest,
    merged_batches,
)
from tfrecorder.format.plan import Plan
from tfrecorder.options.keywords import Path
from tfrecorder.options.option import require
from tfrecorder.reading.dataset import parse_json


@dataclass(frozen=True)
class Commit:
    """One commit of a dataset.

    Attributes:
        number: from 0.
        manifest: as it is stored.
        info: those of `dataset_info.json`, for the newest commit; else empty.
    """

    number: int
    manifest: Manifest
    info: TfdsInfo = field(default_factory=TfdsInfo)

    @property
    def digest(self) -> str:
        """Of its plan."""
        return self.manifest.commit.digest

    @property
    def plan(self) -> Plan:
        return self.manifest.plan

    @property
    def dataset(self) -> DatasetRecord:
        """What is so of the whole dataset as of it."""
        return self.manifest.dataset

    @property
    def done(self) -> dict[Shard, DoneRecord]:
        """The done-records of the shards that it added or rewrote."""
        return self.manifest.commit.done

    @property
    def shards(self) -> list[Shard]:
        """All shards of the dataset as of this commit."""
        return layout.shards_of(self.dataset.splits)

    @property
    def own_shards(self) -> list[Shard]:
        """The shards that it added or rewrote."""
        return layout.shards_of(self.manifest.commit.own)


def newest_commit(
    directory: str,
    name: str = layout.COMMIT,
    plan: str = "",
) -> Commit | None:
    """The newest commit of a dataset; None if there is none, or if another tool wrote it.

    Args:
        name: of the file that stands for it.
        plan: the digest of the only plan whose commit is asked for; the manifest of another one,
            which may be large, is not read.

    Raises:
        DatasetError: its manifest is missing, cannot be read, or is damaged.
    """
    return newest_versioned(directory, name, plan)[0]


def newest_versioned(
    directory: str,
    name: str = layout.COMMIT,
    plan: str = "",
    known: Commit | None = None,
) -> tuple[Commit | None, str]:
    """The newest commit as `newest_commit` gives it, and the version of the file that names it.

    The version is "" if there is no such file.

    Args:
        known: a commit whose manifest was read; it is not read again if it is still the newest.

    Raises:
        DatasetError: as `newest_commit`.
    """
    path = os.path.join(directory, name)
    try:
        data, version = storage.read_versioned(path)
    except storage.UnreadableError as error:
        if error.code in ("not_found", "bad_name", "not_a_file"):
            return None, ""
        raise DatasetError(f"{path} cannot be read: {error}.") from error
    info = parse_json(data, directory, layout.COMMIT)
    note = parse_commit_note(info)
    if note is None or plan not in ("", note[1]):
        return None, version
    number, digest = note
    commit = known
    if commit is None or note != (commit.number, commit.digest):
        commit = read_commit(directory, number)
    if commit.digest != digest:
        raise _no_manifest(directory, number, "belongs to another commit")
    return replace(commit, info=info), version


def commit_numbers(directory: str) -> list[int]:
    """The numbers of the commits whose manifests are there, in their order."""
    numbers = map(layout.commit_of, storage.names(os.path.join(directory, layout.COMMITS)))
    return sorted(number for number in numbers if number is not None)


def read_commit(directory: str, number: int) -> Commit:
    """A commit by its number, from its manifest.

    Raises:
        DatasetError: the manifest is missing, cannot be read, or is damaged.
    """
    path = os.path.join(directory, layout.manifest(number))
    try:
        manifest = Manifest.from_json(storage.read_bytes(path), path)
    except storage.UnreadableError as error:
        raise _no_manifest(directory, number, error) from error
    except ValueError as error:
        raise _no_manifest(directory, number, f"is damaged: {error}") from error
    return Commit(number, manifest)


def commit_of(
    directory: str,
    number: int,
    digest: str,
) -> Commit | None:
    """The commit with this number of the plan with this digest; None if it cannot be read."""
    try:
        commit = read_commit(directory, number)
    except DatasetError:
        return None
    return commit if commit.digest == digest else None


def _no_manifest(
    directory: str,
    number: int,
    fault: storage.UnreadableError | str,
) -> DatasetError:
    access = ""
    if isinstance(fault, storage.UnreadableError) and fault.code == "not_found":
        fault = "is missing"
    elif isinstance(fault, storage.UnreadableError):
        fault = f"cannot be read: {fault}"
        access = " If you may not read it, ask for access; otherwise"
    return DatasetError(
        f"{os.path.join(directory, layout.manifest(number))} {fault}. It says which records the "
        f"dataset has.{access} `{command('repair', directory)}` writes it again."
    )


def commit_at(
    directory: str,
    newest: Commit,
    at: int | None,
) -> Commit:
    """The commit that `at` asks for: the newest one if it is None.

    Raises:
        DatasetError: there is no such commit, or the dataset was rewritten since.
        OptionError: `at` is not a whole number from 0.
    """
    if at is None:
        return newest
    require(Whole(0), at=at)
    if at == newest.number:
        return newest
    numbers = _readable(directory, newest)
    chain = newest.dataset.chain
    if at not in numbers:
        first = numbers[0]
        last = newest.number
        has = f"only generation {first}" if first == last else f"generations {first} to {last}"
        why = f" Generation {at} was taken back by `undo`." if first < at < last else ""
        if layout.manifest(at) in newest.plan.carried.losses.get(Loss.GENERATIONS.value, ()):
            why = " Its manifest was lost, and nobody knows any more which records it had."
        elif at < first:
            why = f" Generation {first} replaced what was there before it."
            if first == chain:
                plan = read_commit(directory, first).plan
                why = f" Generation {first} replaced what was there before it ({plan.kind.value})."
                if plan.stands_for:
                    why = f" What was before generation {first} was lost, and nobody knows it."
        raise DatasetError(f"{spelled('at', at)}: {directory} has {has}.{why}")
    return read_commit(directory, at) if at >= chain else _earlier(directory, chain, at)


def opened_commit(directory: str, number: int) -> Commit:
    """The generation of this number, of a dataset that was opened as of it.

    Raises:
        DatasetError: it was replaced or taken back since.
    """
    newest = newest_commit(directory)
    if newest is None:
        raise DatasetError(f"{os.path.join(directory, layout.COMMIT)} was replaced; open it again.")
    return commit_at(directory, newest, number)


def _readable(directory: str, newest: Commit) -> list[int]:
    """The numbers of the generations of a dataset, oldest first."""
    numbers = [*chain_before(newest), newest.number]
    chain = newest.dataset.chain
    if newest.dataset.since == chain:
        return numbers
    return sorted(read_commit(directory, chain).dataset.earlier) + numbers


def _earlier(
    directory: str,
    chain: int,
    number: int,
) -> Commit:
    """A generation before a correction, with the values as they are corrected.

    Args:
        chain: the number of the correction, whose manifest has the done-records of all its shards.
    """
    whole = read_commit(directory, chain)
    then = whole.dataset.earlier[number]
    splits = {
        split: whole.dataset.splits[split]._replace(shards=count)
        for split, count in then.splits.items()
    }
    own = {split: ShardRange(revision, 0, count) for split, (revision, count) in splits.items()}
    done = [whole.done[shard].values() for shard in layout.shards_of(own)]
    dataset = replace(
        whole.dataset,
        splits=splits,
        contents=then.contents,
        chain=number,
    )
    commit = replace(whole.manifest.commit, own=own, done_values=done)
    return Commit(number, replace(whole.manifest, commit=commit, dataset=dataset))


def chain_before(upto: Commit) -> list[int]:
    """The numbers of the commits before one that the records then come from, oldest first."""
    numbers = range(upto.dataset.chain, upto.number)
    return [number for number in numbers if number not in upto.dataset.skips]


def commits(directory: str, upto: Commit) -> list[Commit]:
    """The commits that the records of a dataset come from, oldest first: one request for each.

    Raises:
        DatasetError: a manifest cannot be read.
    """
    read = partial(read_commit, directory)
    return [*storage.each(read, chain_before(upto), directory), upto]


def all_done(every: Iterable[Commit]) -> dict[Shard, DoneRecord]:
    """The done-records of some commits together."""
    return {shard: record for commit in every for shard, record in commit.done.items()}


def generations(directory: Path, at: int | None = None) -> list[int]:
    """The numbers of the commits that `at=` can read a dataset as of, newest first.

    A conversion is generation 0; each append or batch of a stream that follows is one more.
    Whatever replaces the records, such as an overwrite, begins again with its own number.  What
    `undo` took back is not among them.

    Args:
        directory: what `convert` and `append` wrote.
        at: list generations only up to this one; None is the newest.

    Raises:
        DatasetError: the directory is not a dataset written by this package, or there is no
            generation `at`.
        OptionError: `at` is not a whole number from 0.

    Example:
        >>> tfrecorder.generations("out")  # doctest: +SKIP
        [2, 1, 0]
    """
    where = storage.given_path(directory)
    with storage.failing_as(DatasetError, where):
        newest = _newest(where)
        last = commit_at(where, newest, at)
        numbers = _readable(where, newest)
    return [number for number in reversed(numbers) if number <= last.number]


def _newest(where: str) -> Commit:
    if (newest := newest_commit(where)) is None:
        raise DatasetError(f"{where} is not a finished dataset that tfrecorder wrote.")
    return newest


def history(directory: Path) -> list[LogEntry]:
    """What was done to a dataset: an entry for each commit, newest first.

    What `undo` took back stays, marked; the undo's own entry has the counts of it.  Batches of a
    stream that follow one another may be one entry, and so are commits of which nothing is known.
    No entry names what was removed.

    Args:
        directory: what `convert` and `append` wrote.

    Raises:
        DatasetError: the directory is not a dataset written by this package, or a manifest of it
            cannot be read.

    Example:
        >>> print(*tfrecorder.history("out"), sep="\\n")  # doctest: +SKIP
        1  2026-11-28 15:26:33  update: 3 corrected, 1 moved
        0  2026-11-28 15:20:01  conversion: 298 added, 2 rejected
    """
    where = storage.given_path(directory)
    with storage.failing_as(DatasetError, where):
        entries = entries_of(commits(where, _newest(where)))
    if begin := entries[0].first:  # of form 4, or it was lost
        entries = (LogEntry(commit=begin - 1, first=0, kind=""), *entries)
    by_number = {entry.commit: entry for entry in entries}
    undone = {entry.undoes for entry in entries}
    told = []
    for entry in reversed(entries):
        was = by_number.get(entry.undoes)
        counts = {} if was is None else {name: getattr(was, name) for name in COUNTS}
        told.append(replace(entry, taken_back=entry.commit in undone, **counts))
    return told


def entries_of(every: Sequence[Commit]) -> Log:
    """The entries of a chain of commits, and of those before it, as the next chain keeps them.

    Args:
        every: the chain, oldest first.
    """
    entries = []
    for commit in every:
        entries += commit.manifest.commit.entries
    return merged_batches(entries)


def is_own(names: Collection[str]) -> bool:
    """True if the files and folders left in a directory show that this package wrote it."""
    shards = layout.FEATURES in names and any(map(layout.parse_shard, names))
    return shards or layout.PRIVATE in names


@dataclass(frozen=True)
class StoredCard:
    """A card as it was written.

    Attributes:
        commit: the number of the commit that it describes.
        files: the SHA-256 of each of its files, by name.
        shards: the CRC32C and the SHA-256 of each shard, by the name of its file.
        stated: what `card.yaml` states, in the fields that TFDS has for it.
    """

    commit: int
    files: dict[str, str]
    shards: dict[str, tuple[int, str]]
    stated: dict[str, object] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return seal(vars(self))


def stored_card(directory: str) -> StoredCard | None:
    """The card of a dataset; None if it has none, or if what is kept of it is damaged."""
    try:
        return StoredCard(**unseal(storage.read_bytes(os.path.join(directory, layout.CARD))))
    except (storage.UnreadableError, ValueError, TypeError):
        return None
