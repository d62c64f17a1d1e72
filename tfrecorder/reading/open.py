"""Opening a dataset directory: what is in it, and whether all its files are there.

Three forms are known: a directory of this package, one of TFDS, and TFRecord files without metadata
(`foreign.py` handles the last two).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.display.messages import command
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format import layout
from tfrecorder.format.documents import commit_note
from tfrecorder.format.tfrecord import HEADER_BYTES
from tfrecorder.options.keywords import Path
from tfrecorder.options.read import NO_KEYS, NamedKeys
from tfrecorder.reading import foreign
from tfrecorder.reading.commits import Commit, all_done, commit_at, commits, newest_commit
from tfrecorder.reading.dataset import Shards, StoredDataset, check_shards, damaged
from tfrecorder.reading.dataset_files import files_in, has_private_folder, matching
from tfrecorder.schema.fields import record_features
from tfrecorder.schema.splits import SPLITS


def open_dataset(
    directory: Path,
    at: int | None = None,
    named: NamedKeys = NO_KEYS,
) -> StoredDataset:
    """The dataset in a directory; checks the names and sizes of its shards.

    Args:
        directory: in a known form, or a pattern of TFRecord files such as "in/*.tfrecord".
        at: the last generation to read, for a dataset that was appended to; None is the newest.
        named: the keys of the image and the label in records of other tools.

    Raises:
        DatasetError: the form is not known, the dataset is not committed yet, a shard is missing or
            has the wrong size, there is no generation `at`, or the records do not have a named key.
        OptionError: a key is named for a dataset of this package.
    """
    where = storage.given_path(directory)
    with storage.failing_as(DatasetError, where):
        # The commit before the listing: what it names is there.
        newest = newest_commit(where)
        if newest is not None:
            _refuse_named_keys(where, named)
            return open_own(where, newest, at)
        files = files_in(where)
        if layout.COMMIT in files and has_private_folder(where):
            raise DatasetError(
                f"{where} was written by another version of tfrecorder, or its {layout.COMMIT} was "
                f"replaced: it names no commit. `{command('repair', where)}` writes it again, or "
                "says that it cannot: then convert again."
            )
        paths = None if files else _paths(where)
        if paths is not None:
            stored = foreign.open_files(where, paths, named)
        elif layout.COMMIT not in files:
            stored = foreign.open_uncommitted(where, files, named)
        else:
            with foreign.in_tfds_form(where):
                stored = foreign.open_tfds(where, files, named)
    if at:
        raise DatasetError(
            f"{spelled('at', at)}: {where} has no generations; only `append` makes them."
        )
    return stored


def _refuse_named_keys(where: str, named: NamedKeys) -> None:
    for option, key in named._asdict().items():
        if key is not None:
            words = f"it is for records of other tools, but tfrecorder wrote {where}; leave it out"
            more = ", or choose columns with `inputs` and `targets`."
            raise OptionError.of(option, key, words + more)


def _paths(where: str) -> list[str] | None:
    """The files of a path that is one itself, or a pattern; None for a directory without files."""
    if storage.is_folder(where):
        return None
    if os.path.isfile(where) if storage.is_local(where) else storage.describe(where):
        return [where]
    names_records = foreign.is_record_file(os.path.basename(where))
    return matching(where) if names_records or any(mark in where for mark in "*?[") else None


def open_own(
    directory: str,
    newest: Commit,
    at: int | None = None,
) -> StoredDataset:
    """A dataset of this package, whose newest commit was read just before; as `open_dataset`."""
    with storage.failing_as(DatasetError, directory):
        files = files_in(directory)
        commit = commit_at(directory, newest, at)
    then = commit.dataset
    splits = {}
    is_whole = True
    folder = os.path.join(directory, "")
    with foreign.in_tfds_form(directory):
        infos = {split["name"]: split for split in newest.info["splits"]}
        for split, (revision, count) in newest.dataset.splits.items():
            info = infos.get(split.lower())
            lengths = ["0"] * count if info is None else info["shardLengths"]
            size_of_split = 0 if info is None else int(info["numBytes"])
            names = layout.files_of({split: (revision, count)})
            shards = []
            for name, records in zip(names, lengths, strict=True):
                file = files.data.get(name)
                size = file[0] if file else -1
                shards.append((folder + name, int(records), size, "", file))
            is_whole = is_whole and sum(shard[2] for shard in shards) == size_of_split
            if split in then.splits:
                splits[split] = Shards(shards[: then.splits[split].shards])
    if not is_whole:
        _refuse_damaged(directory, newest, files)
    for path, count, size, *_ in chain(*(shards.data for shards in splits.values())):
        if not 0 <= count * HEADER_BYTES <= size:
            raise damaged(directory, layout.COMMIT, f"{path} cannot hold {count} records")
    fields = commit.plan.fields
    return StoredDataset(
        directory=directory,
        form="tfrecorder",
        splits={split: splits[split] for split in sorted(splits, key=SPLITS.index)},
        fields=fields,
        record=record_features(fields),
        shapes=dict(then.image_shapes),
        sides=(then.image_sides[0], then.image_sides[1]) if then.image_sides else None,
        raw=commit.plan.options.get("image_format") == "raw",
        commit=commit.number,
        note=commit_note(newest.number, newest.digest),
        since=then.since,
        contents=then.contents,
    )


def _refuse_damaged(
    directory: str,
    newest: Commit,
    files: Mapping[str, storage.Description],
) -> None:
    """Name the shards that are missing or have the wrong size: only the manifests know which."""
    done = all_done(commits(directory, newest))
    written = {shard.file: record.bytes for shard, record in done.items()}
    check_shards(
        directory,
        files,
        written,
        f"`{command('repair', directory)}` restores it from the source; or copy the files again.",
    )
