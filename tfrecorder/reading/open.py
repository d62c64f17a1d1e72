"""Opening a dataset directory: what is in it, and whether all its files are there.

Three forms are known: a directory of this package with its generations, one of TFDS, and TFRecord
files without metadata (`foreign.py` handles the last two).  No TensorFlow here: the caller passes
the functions that read files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format import layout
from tfrecorder.options.read import NO_KEYS, NamedKeys
from tfrecorder.reading import foreign
from tfrecorder.reading.dataset import ShardFile, StoredDataset, check_shards
from tfrecorder.reading.dataset_files import StoredFiles
from tfrecorder.reading.generations import (
    Generation,
    check_at,
    own_metadata,
    read_generations,
)
from tfrecorder.schema.fields import from_json, record_features
from tfrecorder.schema.splits import SPLITS


def open_dataset(
    directory: str | os.PathLike[str],
    files: StoredFiles,
    at: int | None = None,
    named: NamedKeys = NO_KEYS,
) -> StoredDataset:
    """The dataset in a directory; checks the names and sizes of its shards.

    Args:
        directory: in a known form, or a pattern of TFRecord files such as "in/*.tfrecord".
        files: how to read them.
        at: the last generation to read, for a dataset that was appended to; None is the newest.
        named: the keys of the image and the label in records of other tools.

    Raises:
        DatasetError: the form is not known, the dataset is not committed yet, a shard is missing,
            has the wrong size or is from another conversion, there is no generation `at`, or the
            records do not have a named key.
        OptionError: a key is named for a dataset of this package.
    """
    return open_generations(directory, files, at, named)[0]


def open_generations(
    directory: str | os.PathLike[str],
    files: StoredFiles,
    at: int | None = None,
    named: NamedKeys = NO_KEYS,
    known: Sequence[Generation] = (),
) -> tuple[StoredDataset, list[Generation]]:
    """`open_dataset`, with the generations, oldest first; other tools' datasets have none.

    Args:
        known: generations that an earlier call found; only later ones are read.
    """
    where = storage.given_path(directory)
    check_at(at)
    with storage.failing_as(DatasetError, where):
        sizes = {} if _is_pattern(where) else files.sizes(where)
        metadata = own_metadata(where, sizes, files)
        if metadata is not None:
            _refuse_named_keys(where, named)
            generations = read_generations(where, sizes, metadata, files, at, known)
            return _open_own(where, generations), generations
        stored = _open_foreign(where, sizes, files, named)
    if at:
        raise DatasetError(
            f"`at={at}`: {where} has no generations; only `tfrecorder.append` makes them."
        )
    return stored, []


def _refuse_named_keys(where: str, named: NamedKeys) -> None:
    for option, key in named._asdict().items():
        if key is not None:
            words = f"it is for records of other tools, but tfrecorder wrote {where}; leave it out"
            more = ", or choose columns with `inputs` and `targets`."
            raise OptionError.of(option, key, words + more)


def _open_foreign(
    where: str, sizes: dict[str, int], files: StoredFiles, named: NamedKeys
) -> StoredDataset:
    if _is_file(where):
        return foreign.open_files(where, [where], files, named)
    if _is_pattern(where):
        return foreign.open_files(where, files.glob(where), files, named)
    if layout.COMMIT not in sizes:
        return foreign.open_uncommitted(where, sizes, files, named)
    with foreign.in_tfds_form(where):
        return foreign.open_tfds(where, sizes, files, named)


def _is_file(where: str) -> bool:
    return storage.is_local(where) and os.path.isfile(where)


def _is_pattern(where: str) -> bool:
    """True for TFRecord files, such as "in/*.tfrecord"; a directory may have such a name too."""
    if storage.is_local(where) and os.path.isdir(where):
        return False
    named = foreign.is_record_file(os.path.basename(where))
    return named or _is_file(where) or any(mark in where for mark in "*?[")


def _open_own(directory: str, generations: Sequence[Generation]) -> StoredDataset:
    """All generations as one dataset: in each split the oldest generation comes first."""
    remedy = (
        f"`{command('repair', directory)}` restores it from the source; or copy the files again."
    )
    splits: dict[str, list[ShardFile]] = {}
    for generation in generations:
        written = {shard["file"]: shard["bytes"] for shard in generation.metadata["shards"]}
        check_shards(generation.directory, generation.sizes, written, remedy)
        for split in generation.metadata["split_rows"]:
            splits.setdefault(split, [])
        for shard in generation.metadata["shards"]:
            path = os.path.join(generation.directory, shard["file"])
            file = ShardFile(path, shard["records"], shard["bytes"], shard.get("crc32c"))
            splits.setdefault(shard["split"], []).append(file)
    metadata = generations[-1].metadata
    fields = from_json(metadata["fields"])
    return StoredDataset(
        directory=directory,
        form="tfrecorder",
        splits={split: tuple(splits[split]) for split in sorted(splits, key=SPLITS.index)},
        fields=fields,
        record=record_features(fields),
        shapes={key: tuple(shape) for key, shape in metadata["image_shapes"].items()},
        sides=_sides(metadata["image_sides"]),
        raw=metadata["options"].get("image_format") == "raw",
        generations=tuple(generation.directory for generation in generations),
    )


def _sides(pairs: Any) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Two pairs from JSON; None if there is no image."""
    if not pairs:
        return None
    shorter, longer = pairs
    return (shorter[0], shorter[1]), (longer[0], longer[1])
