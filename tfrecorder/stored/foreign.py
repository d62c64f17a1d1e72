"""Directories that other tools wrote: TFDS's, and bare TFRecord files with the usual image keys."""

from __future__ import annotations

import os
import re
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tfrecorder.dataset import layout
from tfrecorder.dataset.example import parse_example
from tfrecorder.errors import DatasetError
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import (
    DEFAULT_FEATURES,
    ENCODED,
    LABEL,
    LABEL_COLUMN,
    TEXT,
    URI_COLUMN,
    Feature,
)
from tfrecorder.schema.kinds import Bytes, Image, Kind, Label, Number, Text
from tfrecorder.schema.splits import SPELLINGS
from tfrecorder.stored.dataset import (
    Files,
    ShardFile,
    StoredDataset,
    check_shards,
    exchange_words,
    parse_json,
)

#: TFDS's own template, where a dataset names no other.
_TFDS_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"

#: What the further values of such records are; all others are bytes.
_VALUES: dict[str, Kind] = {
    **{"text": Text(), "float": Number()},
    **dict.fromkeys(("int64", "label"), Number(dtype="int64")),
}

_WORD = re.compile(r"[a-z]+")
_TEMPLATE_WORD = re.compile(r"\{([A-Z_]+)\}")
_TFDS_FEATURE = re.compile(r".*\.(\w+)$")


def open_uncommitted(directory: str, sizes: dict[str, int], files: Files) -> StoredDataset:
    """A directory without `dataset_info.json`: bare TFRecord files, or an error that says why."""
    if layout.COMMIT in files.sizes(layout.next_of(directory)):
        raise DatasetError(exchange_words(directory))
    if files.sizes(os.path.join(directory, layout.PRIVATE)):
        raise DatasetError(
            f"{directory} is not committed yet: its conversion is under way or was interrupted. "
            "Wait for it, or run the same conversion again to complete it."
        )
    paths = [os.path.join(directory, name) for name in sorted(sizes) if ".tfrecord" in name]
    if paths:
        return open_files(directory, paths, files)
    if not sizes and not files.glob(directory):
        raise DatasetError(f"{directory}: there is no such directory. Check the path.")
    raise DatasetError(
        f"{directory} is not a dataset: it has neither {layout.COMMIT} nor any "
        "*.tfrecord. Give the output_dir of a conversion, a TFDS directory with its version "
        "(as flowers/1.0.0), or a pattern of TFRecord files."
    )


def open_files(pattern: str, paths: list[str], files: Files) -> StoredDataset:
    """TFRecord files with the usual image keys; a file's name says its split, else it is TRAIN."""
    if not paths:
        raise DatasetError(f"{pattern}: no file matches. Check the folder and the pattern.")
    folders = {folder: files.sizes(folder) for folder in {os.path.dirname(path) for path in paths}}
    splits: dict[str, list[ShardFile]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        shard = ShardFile(path, files.count(path), folders[folder][name])
        splits.setdefault(_split_of(name), []).append(shard)
    return StoredDataset(
        directory=pattern,
        form="files",
        splits={name: tuple(shards) for name, shards in sorted(splits.items(), key=_split_order)},
        fields=_usual_fields(DEFAULT_FEATURES),
        record=DEFAULT_FEATURES,
    )


def as_found(stored: StoredDataset, read_first: Callable[[str], bytes]) -> StoredDataset:
    """Bare files as their first record shows them: only what it holds is there.

    Args:
        read_first: the first record of a file; raises ValueError if there is none.

    Raises:
        DatasetError: there is no record, or one without the usual keys.
    """
    shards = [shard for split in stored.splits.values() for shard in split]
    path = next((shard.path for shard in shards if shard.records != 0), None)
    if path is None:
        raise DatasetError(f"{stored.directory}: there is no record in any file. Check the path.")
    try:
        found = parse_example(read_first(path))
    except ValueError as error:
        raise DatasetError(f"{path} holds no tf.train.Example: {error}") from error
    if stored.image_key not in found:
        keys = ", ".join(sorted(found)) or "none"
        raise DatasetError(
            f"{path} has no feature {stored.image_key!r}; its first record has: {keys}. load knows "
            "the usual image keys; read other records with tf.data.TFRecordDataset."
        )
    label = found.get(LABEL, np.zeros(1, np.int64))
    if isinstance(label, list) or label.dtype != np.int64 or len(label) != 1:
        raise DatasetError(
            f"{path}: {LABEL} of its first record is {reprlib.repr(label)}, not one integer. "
            "Read such records with tf.data.TFRecordDataset."
        )
    record = tuple(one for one in stored.record if one.key in found)
    return replace(stored, fields=_usual_fields(record), record=record)


def _usual_fields(record: Sequence[Feature]) -> tuple[Field, ...]:
    return _fields(record, (URI_COLUMN, ENCODED), (LABEL_COLUMN, LABEL, TEXT))


def _fields(
    record: Sequence[Feature],
    image: tuple[str, str],
    label: tuple[str, ...],
    names: tuple[str, ...] | None = None,
) -> tuple[Field, ...]:
    """The columns of records of other tools: an image, its class, and the other keys as values.

    What such a record says of its image's size may be that of an earlier one, so it is a value.

    Args:
        record: every key.
        image: the column, and its key.
        label: the column, the key of the class, and that of its text; there may be none.
        names: of the classes.
    """
    of_image = (Feature(image[1], "image"),)
    keys = dict(zip(label[1:], ("label", "text"), strict=False))
    of_label = tuple(Feature(one.key, keys[one.key]) for one in record if one.key in keys)
    count = None if names is None else len(names)
    values = [one for one in record if one.key not in (image[1], *keys)]
    return (
        Field(image[0], Image(), image[1], held=of_image),
        Field(label[0], Label(), label[0], names, count, held=of_label),
        *(Field(one.key, _VALUES.get(one.kind, Bytes()), one.key, held=(one,)) for one in values),
    )


def _split_of(name: str) -> str:
    words = (SPELLINGS.get(word) for word in _WORD.findall(name.lower()))
    return next((word for word in words if word), "TRAIN")


def _split_order(split: tuple[str, Any]) -> int:
    return ("TRAIN", "VALIDATION", "TEST", "UNASSIGNED").index(split[0])


def open_tfds(directory: str, sizes: dict[str, int], files: Files) -> StoredDataset:
    """A TFDS directory that holds images with one class each."""
    info = parse_json(files.read(os.path.join(directory, layout.COMMIT)), directory, layout.COMMIT)
    if layout.FEATURES not in sizes:
        raise DatasetError(
            f"{directory} has a {layout.COMMIT} but no {layout.FEATURES}, so what its records hold "
            "is not known. Copy it again; for a TFDS dataset give the directory of one version."
        )
    document = parse_json(
        files.read(os.path.join(directory, layout.FEATURES)), directory, layout.FEATURES
    )
    if info.get("fileFormat", "tfrecord") != "tfrecord":
        raise DatasetError(
            f"{directory} holds {info['fileFormat']} files; load reads tfrecord only. "
            "Write it with file_format='tfrecord'."
        )
    forms = document.get("featuresDict", {}).get("features", {})
    kinds = {key: _kind(form) for key, form in forms.items()}
    image_key, label_key = _supervised(directory, info, kinds)
    splits = {
        SPELLINGS.get(split["name"], split["name"]): _tfds_shards(directory, sizes, info, split)
        for split in info.get("splits", ())
    }
    named = {os.path.basename(shard.path): None for shards in splits.values() for shard in shards}
    check_shards(directory, sizes, named, "Copy the files again from where they were written.")
    names = _tfds_names(directory, label_key, sizes, files)
    record = tuple(Feature(key, kind) for key, kind in kinds.items() if kind)
    return StoredDataset(
        directory=directory,
        form="tfds",
        splits=splits,
        fields=_fields(
            record, (image_key,) * 2, (label_key or LABEL_COLUMN, label_key or ""), names
        ),
        record=record,
        shapes={image_key: _tfds_shape(directory, forms[image_key])},
    )


def _kind(form: dict[str, Any]) -> str | None:
    """The kind of a feature in TFDS's form; None for those that image classification has not."""
    match = _TFDS_FEATURE.match(form.get("pythonClassName", ""))
    name = match[1] if match else ""
    if name in ("Image", "ClassLabel", "Text"):
        return {"Image": "image", "ClassLabel": "label", "Text": "text"}[name]
    tensor = form.get("tensor", {})
    if name not in ("Scalar", "Tensor") or tensor.get("shape", {}).get("dimensions"):
        return None
    dtype = tensor.get("dtype", "")
    if dtype in ("string", "object"):
        return "text"
    return "float" if dtype.startswith("float") else "int64"


def _supervised(
    directory: str, info: dict[str, Any], kinds: dict[str, str | None]
) -> tuple[str, str | None]:
    """The keys of the image and of its class."""
    items = info.get("supervisedKeys", {}).get("tuple", {}).get("items", [])
    keys = [item.get("featureKey") for item in items]
    images = [key for key, kind in kinds.items() if kind == "image"]
    if (
        len(keys) == 2
        and kinds.get(keys[0]) == "image"
        and kinds.get(keys[1]) in ("label", "int64")
    ):
        return keys[0], keys[1]
    labels = [key for key, kind in kinds.items() if kind == "label"]
    if len(images) != 1 or len(labels) > 1:
        raise DatasetError(
            f"{directory} is not an image classification: its features are {', '.join(kinds)}. "
            "load needs one image and at most one class; read others with "
            "tfds.builder_from_directory."
        )
    return images[0], labels[0] if labels else None


def _word_of(words: dict[str, str], match: re.Match[str]) -> str:
    return words[match[1]]


def _tfds_shards(
    directory: str, sizes: dict[str, int], info: dict[str, Any], split: dict[str, Any]
) -> tuple[ShardFile, ...]:
    lengths = [int(length) for length in split.get("shardLengths", ())]
    template = split.get("filepathTemplate") or _TFDS_TEMPLATE
    shards = []
    for index, length in enumerate(lengths):
        words = {
            "DATASET": info.get("name", ""),
            "SPLIT": split["name"],
            "FILEFORMAT": "tfrecord",
            "SHARD_INDEX": f"{index:05d}",
            "NUM_SHARDS": f"{len(lengths):05d}",
            "SHARD_X_OF_Y": f"{index:05d}-of-{len(lengths):05d}",
        }
        # Not `format`, which would look into attributes, or pad to any length, as a file asks it.
        name = _TEMPLATE_WORD.sub(partial(_word_of, words), template)
        shards.append(ShardFile(os.path.join(directory, name), length, sizes.get(name, 0)))
    return tuple(shards)


def _tfds_shape(directory: str, form: dict[str, Any]) -> tuple[int | None, int | None, int]:
    image = form.get("image", {})
    if image.get("dtype", "uint8") != "uint8":
        raise DatasetError(
            f"{directory} holds images of {image['dtype']}; load decodes to 8 bits. Read them "
            "with tfds.builder_from_directory."
        )
    sides = [int(side) for side in image.get("shape", {}).get("dimensions", ())] or [-1, -1, 3]
    height, width, channels = (None if side < 0 else side for side in sides)
    return height, width, channels or 3


def _tfds_names(
    directory: str, label_key: str | None, sizes: dict[str, int], files: Files
) -> tuple[str, ...] | None:
    name = layout.labels_file(label_key or "")
    if name not in sizes:
        return None
    text = files.read(os.path.join(directory, name)).decode()
    return tuple(line.strip() for line in text.split("\n") if line.strip())
