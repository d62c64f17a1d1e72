"""The output directory before a conversion: who may write it, and what is already there."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator

from tfrecorder import storage
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.staging import read_plan
from tfrecorder.plan.plan import Plan, describe_difference
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.generations import own_metadata
from tfrecorder.storage import folders


@contextlib.contextmanager
def claim(output_dir: str, has_plan: bool = True) -> Iterator[None]:
    """Claim the directory for one conversion; the claim ends when its process ends.

    Args:
        has_plan: False if its plan is lost, so that nothing says which files are foreign.

    A bucket has no such claim.  Two runs of one plan do the same work there and write the same
    bytes; another plan is refused by `plan_to_continue`, and by workers that come across it.

    Raises:
        OutputError: the directory cannot be made or written, is foreign, or is already claimed.
    """
    try:
        with storage.failing_as(OutputError, output_dir):
            if has_plan:
                refuse_foreign(output_dir)
            if storage.is_local(output_dir):
                for folder in (output_dir, layout.next_of(output_dir)):
                    folders.refuse_links(folder, layout.PRIVATE_FOLDERS)
                with _locked(output_dir):
                    yield
            else:
                yield
    except OSError as error:
        raise OutputError(f"{output_dir} cannot be written: {error.strerror or error}.") from error


@contextlib.contextmanager
def _locked(output_dir: str) -> Iterator[None]:
    with folders.locked(output_dir, layout.LOCK) as is_ours:
        if not is_ours:
            raise OutputError(
                f"{output_dir}: another conversion is writing this directory; wait until it ends, "
                "or choose another `output_dir`."
            )
        yield


def refuse_foreign(output_dir: str) -> None:
    """Raise an OutputError if the directory holds anything not written by a conversion.

    Raises:
        DatasetError: it is a dataset that has lost its metadata.
    """
    if storage.is_local(output_dir) and os.path.exists(output_dir) != os.path.isdir(output_dir):
        words = "is a file; give a directory, new or empty, as `output_dir`."
        raise OutputError(f"{output_dir} {words}")
    plan = read_plan(output_dir)
    expected = {layout.PRIVATE, *layout.DESKTOP_FILES, *_public_files(plan)}
    foreign = set(storage.names(output_dir)) - expected
    if foreign and exchange_begun(output_dir):
        foreign -= _public_files(read_plan(layout.next_of(output_dir)))
    if layout.APPENDED in foreign and (plan is not None or exchange_begun(output_dir)):
        foreign.remove(layout.APPENDED)
        names = set(storage.names(os.path.join(output_dir, layout.APPENDED)))
        others = {name for name in names if layout.generation_number(name) is None}
        foreign |= {f"{layout.APPENDED}/{name}" for name in others - layout.DESKTOP_FILES}
    if foreign and plan is None:
        # A damaged dataset is named.
        own_metadata(output_dir, STORED_FILES.sizes(output_dir), STORED_FILES)
    if foreign:
        raise OutputError(
            f"{output_dir} holds {min(foreign)!r}, which does not belong to a dataset that "
            "tfrecorder wrote; choose a new or empty directory as `output_dir`."
        )


def refuse_nested(output_dir: str, options: ConvertOptions) -> None:
    """Raise an OutputError if the folder meant to hold a named dataset is itself a dataset."""
    if options.name is None:
        return
    above = os.path.dirname(os.path.dirname(output_dir.rstrip("/")))
    with storage.failing_as(OutputError, output_dir):
        is_dataset = _is_committed(above) or read_plan(above) is not None
    if is_dataset:
        raise OutputError(
            f"{above} is itself a dataset, and `name={options.name!r}` would put another one "
            "inside it. Give another folder as `output_dir`."
        )


def refuse_foreign_generations(output_dir: str) -> None:
    """Raise an OutputError if a generation of a dataset holds anything not written by an append."""
    for folder in _generation_folders(output_dir):
        refuse_foreign(os.path.join(output_dir, folder))


def _generation_folders(output_dir: str) -> list[str]:
    """The folders below a dataset directory with its generations, finished or not."""
    names = storage.names(os.path.join(output_dir, layout.APPENDED))
    numbers = filter(None, map(layout.generation_number, names))
    return [layout.generation_of("", number) for number in numbers]


def has_generations(output_dir: str) -> bool:
    """True if anything was appended to the dataset in a directory, or an append was started."""
    return bool(storage.names(os.path.join(output_dir, layout.APPENDED)))


def exchange_begun(output_dir: str) -> bool:
    """True if the old dataset's commit is gone and the new one's is not in its place yet."""
    return not _is_committed(output_dir) and _is_committed(layout.next_of(output_dir))


def _is_committed(folder: str) -> bool:
    return storage.exists(os.path.join(folder, layout.COMMIT))


def _public_files(plan: Plan | None) -> set[str]:
    """The names outside our private folder that a conversion with this plan writes."""
    if plan is None:
        return set()
    files = {layout.COMMIT, layout.FEATURES, layout.REJECTS, layout.SUSPECTS}
    files |= {*map(layout.labels_file, plan.vocabularies)}
    if plan.label_map:
        files |= {layout.LABEL_MAP_CSV, layout.LABEL_MAP_PBTXT}
    return files | {shard.file for shard in plan.shards}


def dataset_files(plan: Plan) -> set[str]:
    """The names of all files of a finished dataset, including those in our private folder."""
    private = {layout.PLAN, layout.PLAN_ROWS, layout.METADATA}
    for shard in plan.shards:
        private |= {shard.done, *shard.beside.values()}
    unnamed = {layout.labels_file(key) for key, names in plan.vocabularies.items() if names is None}
    return (_public_files(plan) - unnamed) | private


def folder_to_write(output_dir: str, options: ConvertOptions) -> str:
    """Where a conversion writes: below `next/` while a finished dataset must be kept."""
    replaces = options.overwrite and _is_committed(output_dir)
    return layout.next_of(output_dir) if replaces else output_dir


def is_finished(output_dir: str, wanted: Plan) -> bool:
    """True if the directory holds the finished dataset that this plan would make."""
    if not _is_committed(output_dir):
        return False
    staged = read_plan(output_dir)
    return staged is not None and not describe_difference(staged, wanted)


def plan_to_continue(folder: str, wanted: Plan, options: ConvertOptions) -> Plan | None:
    """The staged plan that this call continues, or None if it starts over.  Changes nothing.

    Args:
        folder: from `folder_to_write`.
        wanted: the plan of this call; its shard counts do not matter.

    Raises:
        OutputError: the directory is committed, or was planned with another source or options.
    """
    staged = read_plan(folder)
    if options.retry_rejects and _is_committed(folder) and has_generations(folder):
        raise OutputError(
            f"{folder} was appended to, and its records keep their numbers. Append the same table "
            "with `retry_rejects=True`: images that can be read now become a new generation."
        )
    if staged is None:
        return None
    differences = "; ".join(describe_difference(staged, wanted))
    if not differences:
        return staged
    if options.overwrite:
        return None
    committed = _is_committed(folder)
    if committed and not options.retry_rejects:
        raise OutputError(
            f"{differences}; {folder} is a finished dataset. Give `overwrite=True` to replace it, "
            "or another `output_dir`; `tfrecorder.append` adds to it."
        )
    if layout.grown_of(folder) != folder:
        raise OutputError(
            f"{folder} holds an unfinished append of another kind: {differences}. Run the same "
            "append again to complete it, or remove that folder to abandon it."
        )
    raise OutputError(
        f"{folder} holds {'a' if committed else 'an unfinished'} conversion of another kind: "
        f"{differences}. Give the same source and options to continue it, `overwrite=True` to "
        "start again, or another `output_dir`."
    )


def reopen(folder: str, staged: Plan, base: str, pending: Iterable[Shard]) -> Plan:
    """Make a folder ready for its conversion to continue.

    Args:
        base: the folder that relative uris start from, which may have moved since the plan was
            staged.
        pending: the shards to write, again or for the first time.
    """
    # The commit in `next/` first: on its own it would mean that an exchange had begun.
    for place in (layout.next_of(folder), folder):
        storage.remove(place, layout.COMMIT)
    private, done = _names_in(folder, layout.PRIVATE), _names_in(folder, layout.DONE)
    leftovers = private & {layout.FAILURE, layout.TMP, layout.PROGRESS}
    storage.remove_all(folder, leftovers | (done & {shard.done for shard in pending}))
    if staged.base != base:
        staged = dataclasses.replace(staged, base=base)
        storage.publish_bytes(folder, layout.PLAN, staged.to_json())
    return staged


def clear(folder: str, keep_spool: bool = False) -> None:
    """Remove what an unfinished conversion left in a folder before a new one starts.

    Args:
        keep_spool: keep the images that came as bytes; their names say what they hold.
    """
    storage.remove(layout.dataset_of(folder), layout.NEXT)
    if folder != layout.dataset_of(folder):
        return
    # Remove the plan last: it marks the directory as ours if we are interrupted on the way.
    refuse_foreign_generations(folder)
    remove_generations(folder)
    kept = {layout.PLAN, layout.SPOOL} if keep_spool else {layout.PLAN}
    remove_files(folder, read_plan(folder), keep=kept)
    storage.remove(folder, layout.PLAN)


def remove_generations(output_dir: str) -> None:
    """Remove everything appended to a dataset; if interrupted, nothing foreign is left."""
    for name in _generation_folders(output_dir):
        folder = os.path.join(output_dir, name)
        # Remove the plan last: it marks the others as ours.
        remove_files(folder, read_plan(folder), keep={layout.PLAN})
        storage.remove(folder, layout.PRIVATE)
        storage.remove(output_dir, name)
    storage.remove(output_dir, layout.APPENDED)


def remove_files(folder: str, plan: Plan | None, keep: Collection[str]) -> None:
    """Remove what a conversion with this plan wrote, and what its workers left behind.

    Args:
        keep: names of files to keep.
    """
    files = _public_files(plan).intersection(storage.names(folder))
    for name in _names_in(folder, layout.PRIVATE):
        if name in layout.SHARD_FOLDERS:
            files |= _names_in(folder, name)
        elif name in layout.PRIVATE_FILES:
            files.add(name)
    storage.remove_all(folder, files.difference(keep))


def _names_in(folder: str, name: str) -> set[str]:
    """The names below `folder` of what is in a folder below it."""
    return {f"{name}/{inner}" for inner in storage.names(os.path.join(folder, name))}
