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
from tfrecorder.dataset.forms import parse_metadata
from tfrecorder.errors import DatasetError
from tfrecorder.schema.fields import from_json, record_features
from tfrecorder.schema.splits import SPLITS
from tfrecorder.stored.dataset import Files, ShardFile, StoredDataset, check_shards, damaged


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
    metadata = read_metadata(where, files)
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


def read_metadata(directory: str, files: Files) -> dict[str, Any] | None:
    """What this package wrote of a dataset; None where there is none.

    Raises:
        DatasetError: it is damaged.
    """
    path = os.path.join(directory, layout.METADATA)
    try:
        return parse_metadata(files.read(path))
    except (storage.UnreadableError, OSError):
        return None
    except ValueError as error:
        raise damaged(directory, layout.METADATA, error) from error


def _open_own(directory: str, sizes: dict[str, int], metadata: dict[str, Any]) -> StoredDataset:
    written = {shard["file"]: shard["bytes"] for shard in metadata["shards"]}
    remedy = f"`tfrecorder repair {directory}` mends it from the source; or copy the files again."
    check_shards(directory, sizes, written, remedy)
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
    fields = from_json(metadata["fields"])
    return StoredDataset(
        directory=directory,
        form="tfrecorder",
        splits=splits,
        fields=fields,
        record=record_features(fields),
        shapes={key: tuple(shape) for key, shape in metadata["image_shapes"].items()},
        sides=_sides(metadata.get("image_sides")),
        raw=metadata.get("options", {}).get("image_format") == "raw",
    )


def _sides(found: Any) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Two pairs of JSON; none from a conversion that did not note them, or of no image."""
    if not found:
        return None
    shorter, longer = found
    return (shorter[0], shorter[1]), (longer[0], longer[1])
