"""What follows a commit: the lists of rows, and everything that is not needed any more goes.

Whoever finds a committed plan does all of it again; what is done already is passed over.  The
dataset is whole without it, so what fails here is told, and fails no call that committed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfrecorder import storage
from tfrecorder.errors import UnreachableError
from tfrecorder.format import layout
from tfrecorder.format.layout import ShardNumbers, SplitStates
from tfrecorder.format.manifest import Manifest
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.output.directory import names_in, remove_leftovers
from tfrecorder.output.staging import Files, list_folders
from tfrecorder.output.state import Outage
from tfrecorder.reading.commits import Commit, commit_numbers, stored_card
from tfrecorder.writing.public_files import class_files, descriptions, lists_as_of, lists_of

#: More files than these are listed, with a request for 1,000 of a folder, and not asked for each.
FEW_FILES = 40


def finish(
    output_dir: str,
    plan: Plan,
    manifest: Manifest,
    row_lists: Mapping[str, bytes] | None = None,
) -> str:
    """What follows the commit of a plan: the lists, and everything that is not needed any more.

    Args:
        row_lists: those still to be written; None gathers them again.

    Returns:
        What could not be done, in words; "" if all is done.
    """
    is_away = False
    try:
        left = _follow(output_dir, plan, manifest, row_lists)
    except (OSError, storage.UnreadableError, UnreachableError) as error:
        left = f"{output_dir} is not tidied up: {str(error).rstrip('.')}."
        is_away = isinstance(error, UnreachableError)
    if not left:
        return ""
    words = f"{left} The dataset is committed and whole, and the next call tries again."
    return Outage(words) if is_away else words


def _follow(
    output_dir: str,
    plan: Plan,
    manifest: Manifest,
    row_lists: Mapping[str, bytes] | None,
) -> str:
    """`finish`, which may fail on the way."""
    undoes = plan.kind is PlanKind.UNDO
    commit = manifest.commit
    dataset = manifest.dataset
    if row_lists is None:
        if undoes:
            row_lists = lists_as_of(manifest, output_dir)
        else:
            row_lists = lists_of(plan, commit.done, output_dir)
    files = dict(row_lists)
    gone = set()
    if plan.rewrites or undoes:
        files |= descriptions(plan, dataset)
        gone = outdated(output_dir, plan)
    if plan.rewrites:
        gone |= {*_files(commit.replaced or {}, dataset.splits), layout.ROWS}
    elif undoes:
        taken = map(layout.manifest, dataset.skips)
        gone |= _files(dataset.abandoned, dataset.splits) | {layout.ROWS, *taken}
    if plan.kind is PlanKind.UPDATE and not plan.follows.renumbers:  # any other is never taken back
        # What it wrote again goes where nobody reads it, until the next commit.
        kept: dict[str, str] = {}
        for shard in layout.shards_of(commit.replaced or {}):
            if shard.index not in plan.layout.kept.get(shard.split, ()):
                kept |= {name: layout.before(name) for name in shard.files}
        listed: Files = {}
        if len(kept) > FEW_FILES and not storage.is_local(output_dir):
            listed = list_folders(output_dir, ("", layout.INDEX, layout.TABLES))
        storage.move_all(output_dir, kept, listed)
        gone -= kept.keys()
        gone |= names_in(output_dir, layout.BEFORE) - {*kept.values()}  # of an update before it
    elif plan.rewrites or dataset.ends_undo:
        gone |= _before(output_dir, manifest, plan.rewrites)
    storage.publish_all(output_dir, files, lasting=True)
    if plan.rewrites and plan.follows.renumbers and (card := stored_card(output_dir)):
        storage.remove_files(output_dir, card.files)  # which show and name records that may be gone
        gone.add(layout.CARD)  # until then it says that these files are ours
    return remove_leftovers(output_dir, gone)


def _files(gone: ShardNumbers, stays: SplitStates) -> set[str]:
    """The files of some shards, but for those that stay; both as `layout.shards_of` takes them."""
    shards = {*layout.shards_of(gone)} - {*layout.shards_of(stays)}
    return {file for shard in shards for file in shard.files}


def not_kept(output_dir: str, newest: Commit) -> set[str]:
    """What is left of before the newest commit's chain, which only `undo` of an update needs."""
    numbers = commit_numbers(output_dir)
    old = {layout.manifest(number) for number in numbers if number < newest.dataset.chain}
    return old | names_in(output_dir, layout.BEFORE)


def _before(
    output_dir: str,
    manifest: Manifest,
    rewrites: bool,
) -> set[str]:
    """What is needed no more to take back the commit before one, or to read as of it.

    The marks of what was removed before an addition are those from then on, if it is taken back.
    """
    old = not_kept(output_dir, Commit(manifest.plan.commit, manifest))
    if rewrites:
        old |= names_in(output_dir, layout.REMOVED) - {manifest.plan.carried.marks}
    return old


def outdated(output_dir: str, plan: Plan) -> set[str]:
    """Files of another commit than a plan's that say what records hold."""
    maps = (layout.LABEL_MAP_CSV, layout.LABEL_MAP_PBTXT)
    names = storage.names(output_dir)
    of_classes = {name for name in names if name in maps or name.endswith(layout.LABELS)}
    return of_classes - {*class_files(plan)}
