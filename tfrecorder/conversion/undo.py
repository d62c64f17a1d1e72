"""`undo`: abandon what was begun and not committed; else take the newest change back."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfrecorder import storage
from tfrecorder.core.option import flag, spelled
from tfrecorder.display.messages import warn
from tfrecorder.display.tables import Report, class_words, counted
from tfrecorder.errors import DatasetError
from tfrecorder.format.documents import JsonValue
from tfrecorder.format.manifest import Loss
from tfrecorder.format.plan import PlanKind
from tfrecorder.options.option import require
from tfrecorder.output.directory import claim, clear, refuse_links, stage_next
from tfrecorder.output.staging import begun_now
from tfrecorder.output.state import DatasetState, refuse_left
from tfrecorder.plan.preflight import ask_rights
from tfrecorder.reading.commits import Commit, chain_before, commits, read_commit
from tfrecorder.reading.dataset_files import nothing_begun
from tfrecorder.reading.merged_rows import next_row_of
from tfrecorder.verification.expectation import faults_of_replaced
from tfrecorder.writing.commit import abandon, complete, take_back
from tfrecorder.writing.manifest import plan_back, plan_without, taken_by, taken_number


@dataclass(frozen=True, repr=False)
class UndoResult(Report):
    """What `undo` abandoned or took back, or with `dry_run` would.

    Attributes:
        output_dir: the dataset directory.
        kind: what it was: "conversion", "append", "stream" (a batch) or "compaction".
        rows: how many rows it had, or had planned; 0, like the shards, if a call that was killed
            had taken it back.
        shards: in how many shards.
        generation: the newest generation: the one that stays as it is, or the one without what was
            taken back; None if there was no dataset yet.
        taken_back: the generation that was taken back; None if nothing was committed.
        classes: the classes that went with it.
        streams: for each source of a stream whose rows went, the position that it was read up to
            before; None for its beginning.
        line: the line of `history` that was taken back; "" if nothing was committed.
        dry_run: True if nothing was done.
    """

    output_dir: str
    kind: str
    rows: int
    shards: int
    generation: int | None
    taken_back: int | None = None
    classes: tuple[str, ...] = ()
    streams: Mapping[str, JsonValue] = field(default_factory=dict)
    line: str = ""
    dry_run: bool = False

    def _headline(self) -> str:
        what = f"{counted(self.rows, 'row')} in {counted(self.shards, 'shard')}"
        if self.taken_back is None:
            stays = "" if self.generation is None else "; the dataset stays as it was"
            done = "would abandon" if self.dry_run else "abandoned"
            return f"{self.output_dir}: {done} an unfinished {self.kind}, {what}{stays}"
        done = "would take back" if self.dry_run else "took back"
        name = PlanKind(self.kind).words
        what = f"that wrote {what}" if self.kind == PlanKind.UPDATE else f"of {what}"
        if self.classes:
            what += f", {counted(len(self.classes), 'class', 'classes')}"
        what = f" {what}" if self.shards else ""  # that a killed call took back is not known
        return f"{self.output_dir}: {done} generation {self.taken_back}, {name}{what}"

    def _notes(self) -> list[str]:
        notes = [f"in the history: {self.line}"] if self.line else []
        if self.classes:
            notes.append(f"classes that go: {class_words(self.classes)}")
        for name, position in self.streams.items():
            behind = "its beginning" if position is None else json.dumps(position)
            notes.append(f"stream from {name}: its rows come again; it is read on from {behind}")
        return notes


def undo(directory: str | os.PathLike[str], *, dry_run: bool = False) -> UndoResult:
    """Abandon what was begun in a directory and not committed; else take the newest change back.

    What is abandoned or taken back is removed, and no later process can commit it.  If an operation
    is pending, the dataset that was there before stays as it is.  If none is, the rows of the
    newest append, or of the newest batch of a stream, go, with the classes that they brought; a
    stream goes on with these rows again.  A second `undo` takes back the addition before.  If the
    newest commit is an update, its corrections and new rows go, unless it removed rows or moved
    some to another split.

    Args:
        directory: the dataset directory.
        dry_run: only say what would go; nothing is changed.

    Returns:
        What went.

    Raises:
        OptionError: `dry_run` is neither True nor False.
        DatasetError: there is nothing to abandon, and the newest commit is no addition.
        OutputError: another process is writing the directory, or it cannot be written.

    Example:
        >>> tfrecorder.undo("out").kind  # doctest: +SKIP
        'append'
    """
    require(flag, dry_run=dry_run)
    given = os.fspath(directory)
    where = storage.absolute(storage.given_path(directory))
    refuse_links(where)
    with storage.failing_as(DatasetError, where):
        begun = DatasetState.read(where)
        if begun.is_empty:
            raise DatasetError(
                nothing_begun(where)
                or f"{where}: nothing is pending, and no dataset of tfrecorder is there, so "
                "there is no addition to take back."
            )
        if dry_run:
            if begun.is_committed and not begun.undoes:
                raise _committed(where)
            return _result(given, begun, dry_run)
    with claim(where, begun) as state:
        pending = state.pending
        newest = state.newest
        is_gone = begun.pending is not None and pending is None
        done = state if state.undoes else complete(state)
        refuse_left(done.left)
        if done.was_left or is_gone:
            raise _committed(where)
        with storage.failing_as(DatasetError, where):
            result = _result(given, state)
        ask_rights(where)
        left = ""
        if state.undoes:  # of a call that was killed
            left = complete(state).left
        elif pending is None and newest is not None:
            if newest.plan.kind is PlanKind.UPDATE:
                every = commits(where, read_commit(where, newest.number - 1))
                plan = plan_back(newest, every, next_row_of(where, newest))
            else:
                taken, before = _newest_addition(where, newest)
                plan = plan_without(newest, taken, before, next_row_of(where, newest))
            plan = begun_now(plan)
            stage_next(plan, None, state)
            left = take_back(state.again(), plan)
        elif newest is None:
            refuse_left(clear(state))
        elif not state.is_overtaken:
            left = abandon(state).left
    warn(left)
    return result


def _committed(where: str) -> DatasetError:
    return DatasetError(
        f"{where}: it was committed; nothing is pending any more. Call `undo` again to take "
        "back what was added."
    )


def _not_kept(
    where: str,
    commit: Commit,
    why: str,
) -> DatasetError:
    return DatasetError(
        f"{where}: generation {commit.number}, an update, is not taken back: {why}. Correct what "
        "is wrong with `update` and the table as it should be."
    )


def _newest_addition(where: str, newest: Commit) -> tuple[Commit, Commit]:
    """The newest addition that was not taken back, and the commit that it was added to.

    Raises:
        DatasetError: the newest commit that changed records is no addition.
    """
    commit = newest
    for number in reversed(chain_before(newest)):
        if commit.manifest.commit.own:
            break
        commit = read_commit(where, number)
    if commit is newest and commit.plan.kind is PlanKind.UPDATE:
        if Loss.KEPT.is_in(commit.plan.carried.losses):
            raise _not_kept(where, commit, "what it replaced was lost")
        if faults := faults_of_replaced(where, commit):
            words = f"{faults[0].file}, which it replaced, is not as it was ({faults[0]})"
            raise _not_kept(where, commit, words)
        if not commit.plan.follows.renumbers:
            return commit, read_commit(where, commit.number - 1)
        raise _not_kept(where, commit, "it removed rows or moved some to another split")
    before = chain_before(commit)
    kind = commit.plan.kind
    if not before or kind not in (PlanKind.APPEND, PlanKind.BATCH):
        since = f"nothing was added since generation {commit.number} ({kind.value}), which"
        if kind is PlanKind.UNDO:  # of an update: it holds all that came before
            since = f"generation {commit.number} took an update back; what was added before that"
        if commit.plan.stands_for:
            since = f"what generation {commit.number} added is not known any more, so it"
        raise DatasetError(
            f"{where}: {since} is not taken back. `update` corrects and adds rows, and `remove` "
            f"removes records; `convert` with {spelled('overwrite', True)} replaces all of them."
        )
    return commit, read_commit(where, before[-1])


def _result(
    given: str,
    state: DatasetState,
    dry_run: bool = False,
) -> UndoResult:
    """What `undo` does to a directory.

    Args:
        given: the directory as it was given.
    """
    where = state.where
    pending = state.pending
    newest = state.newest
    if pending is not None and not state.undoes:
        return UndoResult(
            output_dir=given,
            kind=pending.kind.value,
            rows=pending.rows.count,
            shards=len(pending.layout.shards),
            generation=None if newest is None else newest.number,
            dry_run=dry_run,
        )
    assert newest is not None
    if pending is not None and state.is_committed:
        # Of a call that was killed; what it took back may be gone already.
        kind = newest.manifest.commit.entry.undone or PlanKind.APPEND.value
        return UndoResult(
            output_dir=given,
            kind=kind,
            rows=0,
            shards=0,
            generation=newest.number,
            taken_back=taken_number(pending),
            line=str(newest.manifest.commit.log_undone or ""),
        )
    taken, before = taken_by(where, pending) if pending else _newest_addition(where, newest)
    plan = taken.plan
    classes = list[str]()
    for now, was in zip(plan.fields, before.plan.fields, strict=True):
        known = len(was.class_names or ())
        classes += (now.class_names or ())[known:]
    return UndoResult(
        output_dir=given,
        kind=plan.kind.value,
        rows=plan.rows.count,
        shards=len(plan.layout.shards),
        generation=pending.commit if pending else newest.number + 1,
        taken_back=taken.number,
        classes=tuple(classes),
        streams={
            name: stream["from"]
            for name, stream in (plan.rows.streams or {}).items()
            if "from" in stream
        },
        line=str(taken.manifest.commit.entry),
        dry_run=dry_run,
    )
