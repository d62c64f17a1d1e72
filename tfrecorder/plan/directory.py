"""The output directory before a conversion: who may write it, and what stands there already."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.layout import Shard
from tfrecorder.errors import OutputError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.plan.plan import Plan, describe_difference
from tfrecorder.plan.staging import read_plan
from tfrecorder.storage import folders


@contextlib.contextmanager
def claim(output_dir: str) -> Iterator[None]:
    """Hold the directory for one conversion; the claim dies with its process.

    A bucket has no such claim: two runs of one plan do the same work there, and write the same
    bytes; another plan is refused by `plan_to_continue`, and by workers that meet it.

    Raises:
        OutputError: the directory cannot be made or written, is foreign, or is claimed already.
    """
    try:
        with storage.failing_as(OutputError, output_dir):
            refuse_foreign(output_dir)
            if storage.is_local(output_dir):
                folders.refuse_links(output_dir, layout.PRIVATE_FOLDERS)
                with _locked(output_dir):
                    yield
            else:
                yield
    except OSError as error:
        words = error.strerror or error
        raise OutputError(f"{output_dir} cannot be written: {words}.") from error


@contextlib.contextmanager
def _locked(output_dir: str) -> Iterator[None]:
    with folders.locked(output_dir, layout.LOCK) as is_ours:
        if not is_ours:
            raise OutputError(
                f"{output_dir}: another conversion is writing this directory; wait for its end, or "
                "choose another output_dir."
            )
        yield


def refuse_foreign(output_dir: str) -> None:
    """Raise an OutputError where the directory holds anything that no conversion wrote."""
    if storage.is_local(output_dir) and os.path.exists(output_dir) != os.path.isdir(output_dir):
        raise OutputError(f"{output_dir} is a file; give a directory, new or empty, as output_dir.")
    known = {layout.PRIVATE, *layout.DESKTOP_FILES, *_public_files(read_plan(output_dir))}
    for name in storage.names(output_dir):
        if name not in known:
            raise OutputError(
                f"{output_dir} holds {name!r}, which is not of a dataset that tfrecorder wrote; "
                "choose a new or empty directory as output_dir."
            )


def _public_files(plan: Plan | None) -> set[str]:
    """The names outside our private folder that a conversion by this plan writes."""
    if plan is None:
        return set()
    others = {layout.COMMIT, layout.FEATURES, layout.REJECTS, layout.SUSPECTS}
    return (
        {shard.file for shard in plan.shards}
        | others
        | set(map(layout.labels_file, plan.vocabularies))
    )


def plan_to_continue(output_dir: str, wanted: Plan, options: ConvertOptions) -> Plan | None:
    """The staged plan that this call goes on with, or None where it begins anew.  Changes nothing.

    Args:
        wanted: the plan of this call; its shard counts do not matter.

    Raises:
        OutputError: the directory is committed, or was planned with another source or options.
    """
    staged = read_plan(output_dir)
    if staged is None or options.overwrite:
        return None
    differences = describe_difference(staged, wanted)
    committed = storage.exists(os.path.join(output_dir, layout.COMMIT))
    if committed and not options.retry_rejects:
        raise OutputError(
            f"{output_dir} is a finished dataset; give overwrite=True to replace it"
            + ("." if differences else ", or retry_rejects=True to try its unread images again.")
        )
    if differences:
        raise OutputError(
            f"{output_dir} holds {'a' if committed else 'an unfinished'} conversion of another "
            f"kind: {'; '.join(differences)}. Give the same source and options to continue it, "
            "overwrite=True to start anew, or another output_dir."
        )
    return staged


def reopen(output_dir: str, staged: Plan, base: str, pending: Iterable[Shard]) -> Plan:
    """Make a directory ready for its conversion to go on.

    Args:
        base: the folder of relative uris, which may have moved since the plan was staged.
        pending: the shards to write, again or for the first time.
    """
    private = os.path.join(output_dir, layout.PRIVATE)
    done = storage.names(os.path.join(output_dir, layout.DONE))
    there = {f"{layout.DONE}/{name}" for name in done}
    storage.remove(output_dir, layout.COMMIT)
    leftovers = {f"{layout.PRIVATE}/{name}" for name in storage.names(private)}
    leftovers &= {layout.FAILURE, layout.TMP, layout.PROGRESS}
    storage.remove_all(output_dir, leftovers | (there & {shard.done for shard in pending}))
    if staged.base != base:
        staged = dataclasses.replace(staged, base=base)
        storage.publish_bytes(output_dir, layout.PLAN, staged.to_json())
    return staged


def clear(output_dir: str) -> None:
    """Remove a dataset: the commit first, so that no reader takes the rest for a whole one."""
    there = set(storage.names(output_dir))
    public = _public_files(read_plan(output_dir)) & there
    private = {
        f"{layout.PRIVATE}/{name}"
        for name in storage.names(os.path.join(output_dir, layout.PRIVATE))
    }
    # The plan last: it makes the directory known as ours should we be interrupted on the way.
    if layout.COMMIT in there:
        storage.remove(output_dir, layout.COMMIT)
    storage.remove_all(output_dir, (public | private) - {layout.COMMIT, layout.LOCK, layout.PLAN})
    if layout.PLAN in private:
        storage.remove(output_dir, layout.PLAN)
