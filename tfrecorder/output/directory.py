"""The output directory before an operation: who may write it, and what is already there."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.format.manifest import Loss
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.staging import read_plan, stage_plan
from tfrecorder.output.state import DatasetState
from tfrecorder.plan.history import (
    OptionDiffers,
    describe_difference,
    grown,
    holdings,
    holdings_words,
)
from tfrecorder.reading.commits import Commit, is_own, read_commit, stored_card
from tfrecorder.storage import folders


@contextlib.contextmanager
def claim(output_dir: str, seen: DatasetState | None = None) -> Iterator[DatasetState]:
    """Claim the directory for one operation; the claim ends when its process ends.

    A bucket has no such claim.  Two runs of one plan do the same work there and write the same
    bytes; another plan is refused by `find`, and by workers that come across it.

    Args:
        seen: what was there just before.

    Yields:
        What is there after the claim.

    Raises:
        OutputError: the directory cannot be made or written, is foreign, or is already claimed.
    """
    with locked(output_dir):
        state = seen
        if state is None or storage.is_local(output_dir):  # whose lock may have been waited for
            state = DatasetState.read(output_dir)
        refuse_foreign(state)
        yield state


@contextlib.contextmanager
def locked(output_dir: str) -> Iterator[None]:
    """The lock of a directory on a disk, held until the block ends; nothing on a bucket.

    Raises:
        OutputError: the directory cannot be made or written, is no place for a dataset, or is
            locked already.
    """
    with storage.failing_writes(output_dir), storage.failing_as(OutputError, output_dir):
        refuse_links(output_dir)
        if not storage.is_local(output_dir):
            yield
            return
        # The lock would make a folder in it.
        refuse_not_ours(output_dir)
        with folders.locked(output_dir, layout.LOCK) as is_ours:
            if not is_ours:
                raise OutputError(
                    f"{output_dir}: another conversion is writing this directory; wait until it "
                    "ends, or choose another one."
                )
            yield


def refuse_links(output_dir: str) -> None:
    """Raise an OutputError if a folder of ours in the directory is a link to another."""
    with storage.failing_writes(output_dir):
        if storage.is_local(output_dir) and os.path.isdir(output_dir):
            folders.refuse_links(output_dir, layout.PRIVATE_FOLDERS)


_ELSEWHERE = "choose a new or empty directory"

#: Names that any directory may have.
_ALLOWED = {layout.PRIVATE, *layout.DESKTOP_FILES, *layout.SYSTEM_FOLDERS}


def refuse_not_ours(output_dir: str) -> set[str]:
    """Raise an OutputError if what a directory holds was not written by a conversion.

    Returns:
        The names in it.
    """
    if storage.is_local(output_dir) and os.path.exists(output_dir) != os.path.isdir(output_dir):
        words = "is a file; give a new or empty directory."
        raise OutputError(f"{output_dir} {words}")
    names = {*storage.names(output_dir)}
    foreign = names - _ALLOWED
    if foreign and not is_own(names):
        raise _foreign(output_dir, foreign, _ELSEWHERE)
    return names


def refuse_foreign(state: DatasetState) -> None:
    """Raise an OutputError if a directory holds anything not written by a conversion."""
    output_dir = state.where
    names = refuse_not_ours(output_dir)
    foreign = names - _ALLOWED - public_names(state)
    if not foreign:
        return
    card = stored_card(output_dir) if foreign & {*layout.CARD_FILES} else None
    foreign -= {layout.CARD_YAML, *(card.files if card else ())}
    if state.is_empty and layout.COMMIT in names:
        raise OutputError(
            f"{output_dir} was written by another version of tfrecorder, or its "
            f"{layout.COMMIT} was replaced; {_ELSEWHERE}."
        )
    if foreign:
        raise _foreign(output_dir, foreign, _ELSEWHERE if state.is_empty else "move it away")


def _foreign(
    output_dir: str,
    foreign: Iterable[str],
    remedy: str,
) -> OutputError:
    return OutputError(
        f"{output_dir} holds {min(foreign) or '//'!r}, which does not belong to a dataset that "
        f"tfrecorder wrote; {remedy}."
    )


def public_names(state: DatasetState) -> set[str]:
    """The names outside our private folder that a dataset and the operation under way may have."""
    names: set[str] = set()
    if state.newest is not None:
        newest = state.newest
        gone = (newest.manifest.commit.replaced or {}, newest.dataset.abandoned)
        names |= _public_names(newest.plan, newest.dataset.splits, *gone)
    if state.pending is not None:
        names |= _public_names(state.pending, state.pending.own)
    return names


def _public_names(plan: Plan, *shards: Mapping[str, Sequence[int]]) -> set[str]:
    files = {layout.COMMIT, layout.FEATURES, layout.REJECTS, layout.SUSPECTS}
    files |= {*map(layout.labels_file, plan.vocabularies)}
    if plan.label_map:
        files |= {layout.LABEL_MAP_CSV, layout.LABEL_MAP_PBTXT}
    return files.union(*map(layout.files_of, shards))


def refuse_nested(output_dir: str, options: ConvertOptions) -> None:
    """Raise an OutputError if the folder meant to hold a named dataset is itself a dataset."""
    if options.name is None:
        return
    above = os.path.dirname(os.path.dirname(output_dir.rstrip("/")))
    with storage.failing_as(OutputError, output_dir):
        committed = storage.exists(os.path.join(above, layout.COMMIT))
        is_dataset = committed or read_plan(above) is not None
    if is_dataset:
        raise OutputError(
            f"{above} is itself a dataset, and {spelled('name', options.name)} would put another "
            "one inside it. Give another output directory."
        )


def is_in_place(
    output_dir: str,
    newest: Commit | None,
    commit: int,
    digest: str,
) -> bool:
    """True if the plan of this digest became this commit of the dataset in a directory."""
    if newest is None or newest.number < commit:
        return False
    named = newest if newest.number == commit else read_commit(output_dir, commit)
    return named.digest == digest


def begun_plan(newest: Commit) -> Plan:
    """The plan that began a dataset, as far as that of a call is compared with it."""
    return Plan.of({**newest.plan.values(), **newest.dataset.history.begun_by})


def is_whole(plan: Plan, output_dir: str) -> bool:
    """True if a plan makes a whole dataset, which replaces one that is there."""
    in_place = plan.rows.base == output_dir
    return plan.kind is PlanKind.CONVERSION or (plan.kind is PlanKind.COMPACTION and not in_place)


def find(
    state: DatasetState,
    wanted: Plan,
    options: ConvertOptions,
) -> Plan | Commit | None:
    """What is there already of the plan of a call.  Changes nothing.

    Args:
        wanted: the plan of this call; its shard counts and its place do not matter.

    Returns:
        The pending plan that the call continues, or the commit that has all of it; None if it
        starts over.

    Raises:
        OutputError: the directory is committed, or was planned with another source or options.
    """
    output_dir = state.where
    begins = is_whole(wanted, output_dir)
    newest = state.newest
    overwrite = spelled("overwrite", True)
    pending = None if state.is_committed else state.pending
    differences: list[str] = []
    if newest is not None and begins:
        differences = describe_difference(begun_plan(newest), wanted)
        is_its_own = state.was_left and newest.plan.kind is wanted.kind
        if not differences and pending is None and (is_its_own or not options.overwrite):
            return newest
    is_lost = newest is not None and Loss.HISTORY.is_in(newest.plan.carried.losses)
    if newest is not None and (is_lost or grown(newest.dataset.history.origins)):
        every = spelled("overwrite", "all")
        if begins and options.overwrite is True:
            lost = ", and nobody knows any more whether rows were appended" if is_lost else ""
            raise OutputError(
                f"{output_dir}: {overwrite} would replace {described(newest)}{lost}. "
                f"{_remedies(wanted, ())}, or {every} to replace these too."
            )
        overwrite = every
    if pending is not None:
        differences = describe_difference(pending, wanted)
        if pending.rewrites and pending.kind is PlanKind.CONVERSION and not options.overwrite:
            differences.append(f"it replaces the dataset, but {overwrite} is not given")
        if not differences:
            return pending
        if wanted.kind is PlanKind.BATCH:  # of a stream, which completes its own before
            raise OutputError(
                f"{output_dir} is being written by another stream or append. Let only one write "
                "there at a time; to continue this stream, start it again."
            )
        if pending.kind is PlanKind.UNDO:
            raise OutputError(f"{output_dir} holds an unfinished undo, which `undo` completes.")
        if options.overwrite and wanted.kind is PlanKind.CONVERSION:
            return None
        undo = "`undo` abandons it"
        if pending.kind is not PlanKind.CONVERSION or wanted.kind is not PlanKind.CONVERSION:
            words = f"an unfinished {pending.kind.value}: run the same {pending.kind.value} again"
            raise OutputError(
                f"{output_dir} holds {words} to complete it, or {undo}. This call is another: "
                f"{'; '.join(differences)}."
            )
        raise OutputError(
            f"{output_dir} holds an unfinished conversion of another kind: "
            f"{'; '.join(differences)}. Give the same source and options to continue it, or "
            f"another output directory; {undo}, and {overwrite} starts again."
        )
    if newest is None or options.overwrite or not begins:
        return None
    if wanted.kind is PlanKind.CONVERSION and begun_plan(newest).kind is PlanKind.COMPACTION:
        differences = ["it is a copy that `compact` made"]
    raise OutputError(
        f"{'; '.join(differences)}; {output_dir} is a finished dataset of {described(newest)}. "
        f"{_remedies(wanted, differences)}, or {overwrite} to replace it."
    )


def described(newest: Commit) -> str:
    """What the dataset of a commit holds, in words."""
    return holdings_words(holdings(newest.manifest))


def _remedies(wanted: Plan, differences: Sequence[str]) -> str:
    """What to do instead of replacing a dataset."""
    if wanted.kind is not PlanKind.CONVERSION:
        return "Give another output directory"
    if differences and all(isinstance(differs, OptionDiffers) for differs in differences):
        return "Give these as they were to get its result, another directory for another dataset"
    return (
        "`update` corrects it after this table, and `append` adds rows that are new. Give another "
        "output directory for another dataset"
    )


def stage_next(
    plan: Plan,
    planned: pa.Table | None,
    seen: DatasetState,
) -> DatasetState:
    """Stage a plan, which claims the next commit, and look whether that is still the next.

    Args:
        planned: its rows; None if it has none.
        seen: what the directory held when it was planned.

    Returns:
        What it holds now.

    Raises:
        OutputError: another operation claims it, or was committed in the meantime.
    """
    output_dir = seen.where
    stage_plan(plan, planned, output_dir)
    if storage.is_local(output_dir):  # the lock is held
        return dataclasses.replace(seen, pending=plan)
    # Another one may have come and gone since we looked, and our shards would have the names of
    # its shards.
    state = seen.again()
    if state.is_overtaken:
        storage.remove(output_dir, layout.PLAN)
        raise OutputError(
            f"{output_dir} was written by another operation since this one began. Let only one "
            "write there at a time, and run this one again. Nothing was written."
        )
    return state


def reopen(
    output_dir: str,
    pending: Plan,
    base: str,
    shards: Iterable[Shard],
) -> Plan:
    """Make a directory ready for its operation to continue.

    Args:
        base: the folder that relative uris start from, which may have moved since the plan was
            staged.
        shards: those to write, again or for the first time.
    """
    private = names_in(output_dir, layout.PRIVATE)
    done = names_in(output_dir, layout.DONE)
    leftovers = private & {layout.FAILURE, layout.TMP, layout.PROGRESS}
    storage.each(lambda name: storage.remove(output_dir, name), leftovers, output_dir)
    storage.remove_files(output_dir, done & {shard.done for shard in shards})
    if pending.rows.base != base:
        pending = pending.with_rows(base=base)
        storage.publish_bytes(output_dir, layout.PLAN, pending.to_json())
    return pending


def clear(state: DatasetState, keep_spool: bool = False) -> str:
    """Remove what an unfinished operation left, and what an abandoned one wrote late.

    Args:
        keep_spool: keep the images that came as bytes; their names say what they hold.

    Returns:
        As `remove_leftovers`.
    """
    output_dir = state.where
    pending = state.pending
    newest = state.newest
    shards = set() if pending is None else {*layout.shards_of(pending.own)}
    if newest is not None:
        shards |= {*layout.shards_of(newest.dataset.abandoned)}
        if shards:
            shards -= {*newest.shards}
    names = {file for shard in shards for file in shard.files}
    if pending is not None and newest is None:
        names |= {*_public_names(pending), layout.manifest(pending.commit)}
    if pending is not None and (
        newest is None or pending.carried.marks != newest.plan.carried.marks
    ):
        names.add(pending.carried.marks)
    if names:
        private = names_in(output_dir, layout.INDEX, layout.TABLES, layout.COMMITS, layout.REMOVED)
        names &= {*storage.names(output_dir), *private}
    return remove_leftovers(output_dir, names, keep_spool)


def remove_leftovers(
    output_dir: str,
    names: Iterable[str],
    keep_spool: bool = False,
) -> str:
    """Remove these files and all that an operation needs only until its commit, its plan last.

    The plan marks the directory as ours, and the others as its own, if we are interrupted.  It
    stays with what cannot be removed, which the next call tries again.

    Returns:
        What cannot be removed, in words; "" if nothing is left.
    """
    there = names_in(output_dir, layout.PRIVATE)
    leftovers = there & {*layout.LEFTOVERS}
    if not keep_spool:
        leftovers |= there & {layout.SPOOL}
    gone = {name for name in names if name != layout.ROWS or name in there}
    left = storage.remove_possible(output_dir, gone, leftovers)
    if layout.PLAN in there and not left:
        left = storage.remove_possible(output_dir, [layout.PLAN])
    if not left:
        return ""
    such = f"{len(left):,} files, such as " if left[1:] else ""
    return f"{output_dir} is not tidied up: {such}{left[0]}."


def names_in(output_dir: str, *folders: str) -> set[str]:
    """The names below a directory of what is in some folders below it."""
    return {
        f"{folder}/{name}"
        for folder in folders
        for name in storage.names(os.path.join(output_dir, folder))
    }
