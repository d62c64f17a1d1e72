"""Opening a dataset directory: what is in it, and whether its files are all there.

Three forms are known: a directory of this package, one of TFDS with images and labels, and bare
TFRecord files with the usual image keys (`foreign.py` knows the last two).  No TensorFlow here:
whoever opens gives the functions that read files.
"""

from __future__ import annotations

import os
from typing import Any

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.forms import METADATA
from tfrecorder.errors import DatasetError
from tfrecorder.schema import keys
from tfrecorder.schema.fields import dataset_fields, primary_image
from tfrecorder.schema.splits import SPLITS
from tfrecorder.stored.dataset import Files, ShardFile, StoredDataset, check_shards, parse_json


def open_dataset(directory: str | os.PathLike[str], files: Files) -> StoredDataset:
    """The dataset in a directory, its shards checked by name and size.

    Args:
        directory: of one of the known forms, or a pattern of TFRecord files, as "in/*.tfrecord".
        files: how to read them.

    Raises:
        DatasetError: no known form, not committed yet, or a shard is missing, of another size
            than was written, or of another conversion.
    """
    from tfrecorder.stored import foreign  # it builds on the types above

    where = os.fspath(directory)
    if _is_pattern(where):
        return foreign.open_files(where, files.glob(where), files)
    sizes = files.sizes(where)
    if layout.COMMIT not in sizes:
        return foreign.open_uncommitted(where, sizes, files)
    metadata = _read_metadata(where, files)
    if metadata is None:
        try:
            return foreign.open_tfds(where, sizes, files)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{where}: {layout.COMMIT} and {layout.FEATURES} do not have the form that TFDS "
                f"writes: {type(error).__name__}: {error}. Copy them again."
            ) from error
    return _open_own(where, sizes, metadata)


def _is_pattern(where: str) -> bool:
    """True for TFRecord files, as "in/*.tfrecord"; a directory may have such a name too."""
    if storage.is_local(where) and os.path.isdir(where):
        return False
    return any(character in where for character in "*?[") or where.endswith(".tfrecord")


def _read_metadata(directory: str, files: Files) -> dict[str, Any] | None:
    try:
        data = files.read(os.path.join(directory, layout.METADATA))
    except (storage.UnreadableError, OSError):
        return None
    return parse_json(data, directory, layout.METADATA, METADATA)


def _open_own(directory: str, sizes: dict[str, int], metadata: dict[str, Any]) -> StoredDataset:
    check_shards(directory, sizes, {shard["file"]: shard["bytes"] for shard in metadata["shards"]})
    splits = {
        split: tuple(
            ShardFile(
                os.path.join(directory, shard["file"]),
                shard["records"],
                shard["bytes"],
                shard.get("crc32c"),
            )
            for shard in metadata["shards"]
            if shard["split"] == split
        )
        for split in sorted(metadata["split_rows"], key=SPLITS.index)
    }
    names = metadata["class_names"]
    raw = metadata.get("options", {}).get("image_format") == "raw"
    fields = dataset_fields(metadata) if raw or metadata.get("stated") else None
    shape = tuple(metadata["image_shape"])
    shapes = {key: tuple(one) for key, one in metadata.get("image_shapes", {}).items()}
    first = primary_image(fields or ())
    return StoredDataset(
        directory=directory,
        form="tfrecorder",
        splits=splits,
        features=dict(metadata["features"]),
        image_key=keys.ENCODED if fields is None else f"{first.key}/encoded" if first else "",
        label_key=keys.LABEL if keys.LABEL in metadata["features"] else None,
        image_shape=shape,
        class_names=None if names is None else tuple(names),
        sides=_sides(metadata.get("image_sides")),
        fields=fields,
        shapes=shapes or {keys.ENCODED: shape},
        raw=raw,
    )


def _sides(found: Any) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Two pairs of JSON; none from a conversion that did not note them, or of no image."""
    if not found:
        return None
    shorter, longer = found
    return (shorter[0], shorter[1]), (longer[0], longer[1])
