"""Commit: once every shard is done, replace `dataset_info.json`, and only then what follows it.

    checks ──► labels, features ──► new shards in place ──► manifest ──► `dataset_info.json`
    ──► lists of rows ──► old files and leftovers away ──► the claim away, `plan.json`

Whoever finds a plan that is committed, or nearly, does the rest with the same calls.  What cannot
be read is an UnreadableError here, which `output.directory.claim` and `worker.finish` put in words.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence

import google_crc32c

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.display.tables import counted
from tfrecorder.errors import OutputError, RejectedError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord, DoneRecords, add_up
from tfrecorder.format.layout import Shard, SplitStates
from tfrecorder.format.manifest import FileSums, Manifest, both_losses, lasting_losses
from tfrecorder.format.plan import Begins, Plan, PlanKind
from tfrecorder.output.directory import clear, is_whole
from tfrecorder.output.staging import Files, begun_now, list_output, shard_fault
from tfrecorder.output.state import DatasetState
from tfrecorder.reading.commits import (
    Commit,
    all_done,
    commits,
    entries_of,
    read_commit,
    stored_card,
)
from tfrecorder.reading.merged_rows import counted_rows, next_row_of
from tfrecorder.writing.after_commit import finish, outdated
from tfrecorder.writing.manifest import (
    earlier_of,
    given_up,
    info_without,
    manifest_of,
    nothing_after,
    taken_by,
)
from tfrecorder.writing.public_files import dataset_info_json, descriptions, lists_as_of, lists_of


def commit(
    state: DatasetState,
    plan: Plan,
    done: Iterable[DoneRecord],
    max_reject_fraction: float,
) -> str:
    """Check that every planned row is a record or a reject, and commit the plan.

    Args:
        state: of the directory just before.

    Returns:
        As `finish`.

    Raises:
        OutputError: rows are missing: a shard is not done, or was done by another plan; or another
            operation was committed since this one was planned.
        RejectedError: more than `max_reject_fraction` of the rows were rejected.
    """
    output_dir = state.where
    by_name = {record.shard: record for record in done}
    by_shard = {shard: by_name[shard.name] for shard in plan.layout.shards if shard.name in by_name}
    _refuse_overtaken(state, plan)
    previous = state.newest
    if previous is not None and previous.digest == plan.digest:
        return complete(state).left
    if not plan.carried.next_row:  # an earlier version staged it
        next_row = max(counted_rows(plan), next_row_of(output_dir, previous))
        plan = plan.carrying(next_row=next_row)
    plan = _with_losses(plan, previous, output_dir)
    _check_conservation(plan, by_shard)
    # A batch may have no good image.  Rejects that are tried again were accepted as such before.
    if plan.kind is not PlanKind.BATCH and plan.rows.in_source:
        _check_rejects(plan, by_shard, max_reject_fraction, output_dir)
    before = None if previous is None else previous.dataset
    earlier = {}
    # What it replaces, oldest first.
    replaced = commits(output_dir, previous) if previous is not None and plan.rewrites else []
    if plan.layout.kept:
        assert previous is not None
        every = replaced
        base = previous
        if plan.kind is PlanKind.UNDO:
            base = read_commit(output_dir, previous.number - 1)
            every = commits(output_dir, base)
        by_shard = _with_kept(plan, by_shard, every, previous, output_dir)
        earlier = {} if plan.follows.renumbers else earlier_of(every)
    row_lists = lists_of(plan, by_shard, output_dir)
    sums: dict[str, FileSums] = {}
    if before is not None and (plan.adds or plan.layout.kept):
        sums |= before.lists
    sums |= {file: FileSums.of(data) for file, data in row_lists.items()}
    card = None if before is None else stored_card(output_dir)
    manifest = manifest_of(
        plan,
        by_shard,
        before,
        sums,
        earlier=earlier,
        stated=None if card is None else card.stated,
        log_before=entries_of(replaced),
        undone=PlanKind.UPDATE.value if plan.kind is PlanKind.UNDO else "",
    )
    if plan.layout.kept and plan.kind is PlanKind.UNDO:
        manifest = manifest.with_dataset(since=base.dataset.since, contents=base.dataset.contents)
    later = _publish(state, plan, by_shard, manifest, row_lists)
    return finish(output_dir, plan, manifest, later)


def _publish(
    state: DatasetState,
    plan: Plan,
    done: DoneRecords,
    manifest: Manifest,
    row_lists: Mapping[str, bytes],
) -> Mapping[str, bytes]:
    """Write the public files of a commit, and the commit itself as the last of them.

    Args:
        state: of the directory just before.
        done: of all shards of the commit.
        row_lists: the lists of rows, by their names.

    Returns:
        The lists of rows that are to be written after it.
    """
    output_dir = state.where
    previous = state.newest
    version = state.version
    files = _check_standing(plan, done, output_dir)
    described = {}
    narrows = False
    if previous is not None and plan.rewrites:
        narrows = not covers(manifest, previous.manifest)
    with contextlib.ExitStack() as failing:
        if previous is not None and narrows and not covers(previous.manifest, manifest):
            # No file of features or labels fits both.  Better no dataset than a wrong one.
            failing.callback(_put_back, output_dir, previous)
            storage.move(output_dir, layout.COMMIT, layout.WAITING_COMMIT)
            version = ""
            narrows = False
        if not narrows:  # otherwise the old files fit both, and are replaced after the commit
            described = descriptions(plan, manifest.dataset)
            if previous is None:  # readers of a dataset with rejects want their list
                described = {**described, **row_lists}
                row_lists = {}
            storage.publish_all(output_dir, described, lasting=True)
        into_place(output_dir, plan, files)
        info_before = None if previous is None else previous.info
        info = dataset_info_json(plan, done, info_before, manifest.dataset)
        new = [file for shard in done for file in shard.files]
        replace_commit(output_dir, manifest, info, version, [*new, *described])
        failing.pop_all()
    return row_lists


def _put_back(output_dir: str, previous: Commit) -> None:
    """Make a dataset that was set aside the one that is there, unless another is there by now."""
    with contextlib.suppress(Exception):  # what failed before says more
        if not storage.exists(os.path.join(output_dir, layout.COMMIT)):
            _describe(output_dir, previous)
            storage.move(output_dir, layout.WAITING_COMMIT, layout.COMMIT)


def _describe(output_dir: str, commit: Commit) -> None:
    """Make features and classes in a directory those of a commit."""
    described = descriptions(commit.plan, commit.dataset)
    storage.publish_all(output_dir, described, lasting=True)
    storage.remove_files(output_dir, outdated(output_dir, commit.plan))


def _with_losses(
    plan: Plan,
    previous: Commit | None,
    output_dir: str,
) -> Plan:
    """A plan with what a repair noted as lost after it was staged."""
    if previous is None or is_whole(plan, output_dir):
        return plan
    noted = lasting_losses(previous.plan.carried.losses)
    return plan.carrying(losses=both_losses(plan.carried.losses, noted))


def replace_commit(
    output_dir: str,
    manifest: Manifest,
    info: bytes,
    version: str,
    files: Iterable[str] = (),
) -> None:
    """Write a manifest, then the `dataset_info.json` that names it: the one commit.

    What was written before is on the disk for good when the commit appears, and so is the commit
    when this returns.

    Args:
        version: what is to be replaced, as `storage.read_versioned` named it; "" for no file.
        files: the names of new files of the dataset.

    Raises:
        OutputError: another operation was committed in the meantime.
    """
    name = layout.manifest(manifest.plan.commit)
    own = manifest.to_json()
    try:
        other, standing = _versioned(output_dir, name)
        is_other = other not in (None, own)
        # Another plan's manifest gives way: of an operation that is abandoned, or its abandoning.
        if is_other and _versioned(output_dir, layout.COMMIT)[1] != version:
            raise storage.OtherStandsError
        standing = storage.publish_over(output_dir, name, own, standing)
        storage.sync(output_dir, [*files, name])
        try:
            storage.publish_over(output_dir, layout.COMMIT, info, version)
        except storage.OtherStandsError:
            if other is not None and is_other:  # which was committed in this moment
                storage.publish_over(output_dir, name, other, standing)
            raise
    except storage.OtherStandsError:
        raise _overtaken(output_dir) from None
    storage.sync(output_dir, [layout.COMMIT])


def _overtaken(output_dir: str) -> OutputError:
    return OutputError(
        f"{output_dir}: another operation was committed since this one was planned, or this one "
        "was abandoned. Nothing was committed; run the same call again."
    )


def complete(state: DatasetState) -> DatasetState:
    """Do what is left after a commit, and return what is there then.

    A plan that can never be committed is removed, for it may have been abandoned by who was killed.
    What was to be taken back is taken back, which is no commit of who calls.

    What of it cannot be done is in the state: who only reads says it, and who writes stops there.

    Raises:
        OSError: the commit that takes something back cannot be written; the next call continues.
    """
    pending = state.pending
    newest = state.newest
    if pending is None or newest is None:
        return state
    if state.is_overtaken:
        left = clear(state)
    elif state.undoes:
        left = take_back(state, pending)
    elif state.is_committed:
        left = finish(state.where, pending, newest.manifest)
        pending = pending if left else None
        return dataclasses.replace(state, pending=pending, was_left=True, left=left)
    else:
        return state
    return dataclasses.replace(state.again(), left=left)


def _with_kept(
    plan: Plan,
    done: DoneRecords,
    every: Sequence[Commit],
    newest: Commit,
    output_dir: str,
) -> dict[Shard, DoneRecord]:
    """The done-records of all shards of a plan that keeps some, which get their new names here.

    Args:
        every: the commits of which it keeps shards.
        newest: the last of these, or the update after it that is taken back.
    """
    written = all_done(every)
    splits = every[-1].dataset.splits
    moved = {}
    if newest is not every[-1]:
        moved = moved_by(newest, splits)
        # What binds the files of a shard that stayed is the newest manifest: a repair may have
        # made a table again since.
        for old in layout.shards_of(splits):
            now = kept_as(newest, old)
            if now is not None:
                written[old] = newest.done[now]
    names: dict[str, str] = {}
    whole = {}
    for shard in layout.shards_of(plan.own):
        if shard in done:
            whole[shard] = done[shard]
            continue
        split = shard.split
        index = plan.layout.kept[split][shard.index]
        old = Shard(split, index, splits[split].revision)
        if old != shard:
            names |= dict(zip(moved.get(old, old.files), shard.files, strict=True))
        whole[shard] = dataclasses.replace(written[old], plan=plan.digest, shard=shard.name)
    storage.each(lambda name: storage.link(output_dir, name, names[name]), names, output_dir)
    return whole


def moved_by(update: Commit, splits: SplitStates) -> dict[Shard, list[str]]:
    """Where the files of shards are since an update, where they have other names.

    Args:
        splits: of the manifest before it.
    """
    moved = {}
    for old in layout.shards_of(splits):
        now = kept_as(update, old)
        if now is None:
            moved[old] = [*map(layout.before, old.files)]
        elif now != old:
            moved[old] = now.files
    return moved


def kept_as(update: Commit, old: Shard) -> Shard | None:
    """The shard of an update that is a shard from before it, as it was; None if it is another."""
    kept = update.plan.layout.kept[old.split]
    if old.index not in kept:
        return None
    revision = update.dataset.splits[old.split].revision
    return Shard(old.split, kept.index(old.index), revision)


def into_place(
    output_dir: str,
    plan: Plan,
    listed: Files,
) -> None:
    """Move the shards of a plan that wait to their final names; those that are there stay."""
    is_local = storage.is_local(output_dir)
    waiting = [
        shard for shard in plan.layout.shards if plan.unfinished(shard, is_local) != shard.file
    ]
    storage.move_all(output_dir, {shard.waiting: shard.file for shard in waiting}, listed)


def covers(wide: Manifest, narrow: Manifest) -> bool:
    """True if what one manifest says of features and classes holds for the records of another."""
    a = wide.plan
    b = narrow.plan
    if a.features != b.features or a.options.get("image_format") != b.options.get("image_format"):
        return False
    if [field.for_tfds for field in a.fields] != [field.for_tfds for field in b.fields]:
        return False
    for key, names in b.vocabularies.items():
        first_names = names or ()
        every_name = a.vocabularies[key] or ()
        if every_name[: len(first_names)] != first_names:
            return False
        if a.classes[key] < b.classes[key]:
            return False
    for key, shape in narrow.dataset.image_shapes.items():
        for side, of_narrow in zip(wide.dataset.image_shapes[key], shape, strict=True):
            if side not in (None, of_narrow):
                return False
    return True


def abandon(state: DatasetState) -> DatasetState:
    """Give up the pending operation of a directory, and remove what it wrote.

    If the directory is committed, a commit that changes nothing takes the number of that operation,
    so that a committer of it that wakes up later fails.

    Returns:
        What is there then.

    Raises:
        OutputError: it was committed in the meantime.
    """
    output_dir = state.where
    pending = state.pending
    assert pending is not None
    now = state.again()
    _refuse_overtaken(now, pending)
    previous = now.newest
    if previous is not None and previous.digest == pending.digest:
        raise OutputError(f"{output_dir}: the operation was committed in the meantime.")
    if previous is not None:
        if pending.rewrites:
            _describe(output_dir, previous)
        next_row = next_row_of(output_dir, previous)
        plan = begun_now(nothing_after(previous.manifest, pending.digest, next_row))
        manifest = manifest_of(
            plan,
            {},
            previous.dataset,
            previous.dataset.lists,
            undone=pending.kind.value,
        )
        manifest = manifest.with_dataset(abandoned=pending.own)
        info = dataset_info_json(plan, {}, previous.info, manifest.dataset)
        replace_commit(output_dir, manifest, info, now.version)
        storage.publish_all(output_dir, descriptions(plan, manifest.dataset), lasting=True)
    left = clear(state)
    return dataclasses.replace(state.again(), left=left)


def take_back(state: DatasetState, plan: Plan) -> str:
    """Commit a staged plan of `plan_without`, unless it is committed, and remove what goes.

    Args:
        state: of the directory just before.

    Returns:
        As `finish`.

    Raises:
        OutputError: another operation was committed in the meantime.
    """
    output_dir = state.where
    _refuse_overtaken(state, plan)
    newest = state.newest
    assert newest is not None
    if newest.digest == plan.digest:
        return finish(output_dir, plan, newest.manifest)
    if plan.rewrites:  # an update
        return commit(state, plan, (), 1.0)
    plan = _with_losses(plan, newest, output_dir)
    taken, before = taken_by(output_dir, plan)
    row_lists = lists_as_of(before.manifest, output_dir)
    sums = dict(before.dataset.lists)
    sums |= {file: FileSums.of(data) for file, data in row_lists.items()}
    manifest = manifest_of(plan, {}, before.dataset, sums, undone=taken.plan.kind.value)
    manifest = manifest.with_dataset(abandoned=given_up(newest, taken))
    manifest = manifest.with_commit(log_undone=taken.manifest.commit.entry)
    info_before = info_without(newest.info, taken, before)
    info = dataset_info_json(plan, {}, info_before, manifest.dataset)
    replace_commit(output_dir, manifest, info, state.version)
    return finish(output_dir, plan, manifest, row_lists)


def _refuse_overtaken(state: DatasetState, plan: Plan) -> None:
    """Raise an OutputError if a plan follows another commit, and is not committed itself."""
    digest = "" if state.newest is None else state.newest.digest
    if digest not in (plan.follows.previous, plan.digest):
        raise _overtaken(state.where)


def _versioned(output_dir: str, name: str) -> tuple[bytes | None, str]:
    path = os.path.join(output_dir, name)
    return storage.unless_missing(lambda: storage.read_versioned(path)) or (None, "")


def _check_conservation(plan: Plan, done: DoneRecords) -> None:
    """Rows in = records + rejects, in every shard and in total."""
    for shard in plan.layout.shards:
        record = done.get(shard)
        if record is None or record.plan != plan.digest:
            raise OutputError(f"shard {shard.file} is not done; run the same conversion again.")
        if not record.rows == plan.layout.shard_rows(shard) == record.records + record.rejects:
            raise OutputError(
                f"shard {shard.file} was planned with {plan.layout.shard_rows(shard)} rows but has "
                f"{record.records} records and {record.rejects} rejects. This must not happen: "
                "please report it."
            )
    total = sum(record.records + record.rejects for record in done.values())
    if total != plan.rows.count:
        raise OutputError(
            f"{plan.rows.count} rows were planned, but {total} became records or rejects. This "
            "must not happen: please report it."
        )


def _check_standing(
    plan: Plan,
    done: DoneRecords,
    output_dir: str,
) -> Files:
    """Look once more whether what is in the directory is what was written there.

    Shards that are kept have their files under the names of this commit by now.

    Returns:
        What is there.
    """
    files = list_output(output_dir, done)
    written = {*plan.layout.shards}

    def fault(shard: Shard) -> str | None:
        reason = shard_fault(files, shard, done[shard])
        if reason is not None or shard not in written:
            return reason
        data = done[shard].to_json()
        file = files.get(shard.done)
        same = file is not None and file.is_of(len(data), google_crc32c.value(data))
        return None if same else f"{shard.done} differs from what was written"

    faults = list(filter(None, map(fault, done)))
    if faults:
        more = counted(len(faults) - 1, "more shard is", "more shards are")
        others = f", and {more} like it" if faults[1:] else ""
        raise OutputError(
            f"{output_dir}: {faults[0]}{others}: replaced after the shard was done, perhaps by a "
            "worker that was given up but kept running. Nothing was committed; run the same "
            "conversion again to write it again."
        )
    return files


def _check_rejects(
    plan: Plan,
    done: DoneRecords,
    max_reject_fraction: float,
    output_dir: str,
) -> None:
    """Raise a RejectedError, with the reasons counted, if too many rows were rejected."""
    # Not of shards written again, whose rejects were accepted before.
    done = {shard: record for shard, record in done.items() if plan.layout.is_new(shard)}
    totals = add_up(done.values())
    if not totals.rows:
        return
    share = totals.rejects / totals.rows
    if share <= max_reject_fraction and totals.records:
        return
    reasons = [f"{count:,} {why}" for why, count in totals.reasons.items()]
    row_lists = lists_of(dataclasses.replace(plan, follows=Begins()), done, output_dir)
    storage.publish_bytes(output_dir, layout.WAITING_REJECTS, row_lists[layout.REJECTS])
    where = os.path.join(output_dir, layout.WAITING_REJECTS)
    rows = counted(totals.rows, "row")
    allowed = spelled("max_reject_fraction", max_reject_fraction)
    raise RejectedError(
        f"{totals.rejects:,} of {rows} ({share:.1%}) were rejected, more than "
        f"{allowed} allows: {', '.join(reasons)}. Nothing was committed. "
        f"The rows are listed in {where}. Fix the images and run the same conversion again to "
        f"retry them; or raise {spelled('max_reject_fraction')}, or drop the rows."
    )
