"""Directories written by other tools: TFDS's, and TFRecord files without metadata.

This module finds the files and what their records are; `foreign_keys.py` decides what the keys
mean.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tfrecorder import storage
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, MissingDatasetError, OptionError
from tfrecorder.format import layout
from tfrecorder.options.read import NamedKeys
from tfrecorder.reading.dataset import ShardFile, StoredDataset, check_shards, parse_json
from tfrecorder.reading.dataset_files import (
    compression_in,
    count_records,
    files_in,
    has_private_folder,
    matching,
    nothing_begun,
)
from tfrecorder.reading.first_records import (
    FirstLook,
    features_of,
    stated_features,
    take_samples,
)
from tfrecorder.reading.foreign_keys import (
    USUAL_KINDS,
    Meaning,
    RecordKeys,
    TfdsKey,
    meaning_of,
    tfds_keys,
)
from tfrecorder.schema.keys import LABEL_COLUMN
from tfrecorder.schema.splits import SPELLINGS, SPLITS, UNASSIGNED

#: TFDS's own template, used if a dataset names no other.
_TFDS_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"

#: Names of record files: with the usual endings, or numbered as one of several shards.
_RECORDS = re.compile(r"(\.(tfrec|records?)|-\d{3,}-of-\d{3,})(\.(gz|gzip|zlib|zz))?$")
#: Endings of the files that other tools put next to them under nearly the same name.
_SIDE_FILES = (".idx", ".index", ".json", ".txt", ".csv", ".crc", ".md5", ".sha256", ".pbtxt")

#: The split in file names that follow TFDS's template.
_TFDS_SPLIT = re.compile(r"-([a-z]+)\.tfrecord-\d+-of-\d+$")

#: Splits in the file names of COCO's scripts, in addition to the usual spellings.
_SPLITS = {**SPELLINGS, "minival": "VALIDATION", "eval": "VALIDATION", "testdev": "TEST"}

#: The folder of a conversion of tensorflow-recorder 2.0, and where below it the classes are.
_JOB = re.compile(r"tfrecorder-\d{8}-\d{6}")
_VOCABULARY = "transform_fn/assets/vocab_compute_and_apply_vocabulary_vocabulary"

_WORD = re.compile(r"[a-z]+")
_TEMPLATE_WORD = re.compile(r"\{([A-Z_]+)\}")


def is_record_file(name: str) -> bool:
    """Whether a file of this name holds records: "a.tfrecord", "train-00000-of-00002", "a.record".

    >>> is_record_file("train-00000-of-00002"), is_record_file("a.tfrecord.idx")
    (True, False)
    """
    # What tensorflow-recorder 2.0 discarded has no image.
    hidden_or_other = name.startswith((".", "discarded-data")) or name.endswith(_SIDE_FILES)
    return not hidden_or_other and (".tfrecord" in name or bool(_RECORDS.search(name)))


def open_uncommitted(
    directory: str,
    files: Collection[str],
    named: NamedKeys,
) -> StoredDataset:
    """A directory without `dataset_info.json`: files of records, or an error that says why."""
    if has_private_folder(directory):
        if words := nothing_begun(directory):
            raise DatasetError(words)
        raise DatasetError(
            f"{directory} is not committed yet: its conversion is under way or was interrupted. "
            "Wait for it, or run the same conversion again to complete it."
        )
    paths = [os.path.join(directory, name) for name in sorted(files) if is_record_file(name)]
    if paths:
        return open_files(directory, paths, named)
    jobs = [name for name in storage.names(directory) if _JOB.match(name)]
    if jobs:
        raise DatasetError(
            f"{directory} holds {counted(len(jobs), 'dataset')} of tensorflow-recorder 2.0; give "
            f"one of them, such as {os.path.join(directory, max(jobs))}."
        )
    if not files and not matching(directory):
        raise MissingDatasetError(nothing_begun(directory))
    raise MissingDatasetError(
        f"{directory} is not a dataset: it has neither {layout.COMMIT} nor any file of records, "
        "such as a.tfrecord or train-00000-of-00002. Give the output directory of a conversion, a "
        "TFDS directory with its version (as flowers/1.0.0), or a pattern of TFRecord files."
    )


def open_files(
    pattern: str,
    paths: list[str],
    named: NamedKeys,
) -> StoredDataset:
    """Record files without metadata; the file's name gives its split, or else it is TRAIN.

    If none of them has a record, there are no columns.

    Raises:
        DatasetError: there is no file, or a named key does not fit.
    """
    if not paths:
        raise MissingDatasetError(f"{pattern}: no file matches. Check the folder and the pattern.")
    lasts: dict[str, int] = {}
    folders = {folder: files_in(folder) for folder in {os.path.dirname(path) for path in paths}}
    splits: dict[str, list[ShardFile]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        if name not in folders[folder]:
            raise DatasetError(
                f"{pattern}: {path}, which matches, is a directory. Give a dataset by its own "
                f"name, or a pattern of files, such as {os.path.join(path, '*.tfrecord')}."
            )
        of_split = splits.setdefault(_split_of(name), [])
        of_split.append(_shard(path, folders[folder][name], of_split, lasts))
    in_order = {
        name: tuple(splits[name]) for name in sorted(splits, key=[*SPLITS, UNASSIGNED].index)
    }
    folder, files = next(iter(folders.items()))
    if len(folders) == 1 and layout.FEATURES in files:
        keys = _tfds_keys(folder)
        meaning = meaning_of(_keys_by_tfds(folder, files, keys, None, named))
        return StoredDataset(pattern, "files", in_order, *meaning, shapes=_shapes(keys))
    look = take_samples(in_order, lasts)
    meaning = _meaning_by_samples(look, partial(_names, folder, files), named)
    seen = {key for sample in look.samples for key, values in sample.items() if len(values)}
    return StoredDataset(
        pattern,
        "files",
        in_order,
        *meaning,
        looked=look.words,
        seen=frozenset(seen.union(named.features or ())),
    )


def _shard(
    path: str,
    file: storage.Description,
    before: Sequence[ShardFile],
    lasts: dict[str, int],
) -> ShardFile:
    """One record file.

    In a bucket each check is a request, so the compression is taken from the files before it.

    Args:
        file: what the store says about it.
        before: the files of its split found so far.
        lasts: receives the byte where its last record begins, if it has one and that is known.
    """
    others = [shard.compression for shard in before if shard.bytes]
    is_local = storage.is_local(path)
    if is_local and storage.is_lfs_pointer(path):
        raise DatasetError(f"{path} is {storage.LFS_WORDS}.")
    compression = others[0] if others and not is_local else compression_in(path)
    records = None
    if is_local and not compression:
        records, last = count_records(path)
        if records:
            lasts[path] = last
    return ShardFile(path, records, file.size, compression, file)


def _meaning_by_samples(
    look: FirstLook,
    names: Callable[[str], tuple[str, ...] | None],
    named: NamedKeys,
) -> Meaning:
    """What the keys mean, judging by some records of each split."""
    samples = look.samples
    if not samples:
        return Meaning((), (), {})
    features, faults = features_of(samples, USUAL_KINDS)
    for key, feature in stated_features(named.features or {}):
        features[key] = feature
        faults.pop(key, None)
    return meaning_of(RecordKeys(look.where, features, samples, faults, named=named, names=names))


def _split_of(name: str) -> str:
    """The split that a file's name mentions; TRAIN if none."""
    words = _TFDS_SPLIT.findall(name.lower()) + _WORD.findall(name.lower())
    return next((_SPLITS[word] for word in words if word in _SPLITS), "TRAIN")


@contextlib.contextmanager
def in_tfds_form(directory: str) -> Iterator[None]:
    """A block that parses TFDS's metadata, which may have been written by anybody else too."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{directory}: {layout.COMMIT} and {layout.FEATURES} do not have the form that TFDS "
            f"writes: {type(error).__name__}: {str(error).rstrip('.')}. Copy them again."
        ) from error


def open_tfds(
    directory: str,
    files: Mapping[str, storage.Description],
    named: NamedKeys,
) -> StoredDataset:
    """A TFDS directory.

    Raises:
        DatasetError: it is not whole, or a named key does not fit.
    """
    info = _parsed(directory, layout.COMMIT)
    if layout.FEATURES not in files:
        raise DatasetError(
            f"{directory} has a {layout.COMMIT} but no {layout.FEATURES}, so what its records hold "
            "is not known. Copy it again; for a TFDS dataset give the directory of one version."
        )
    if info.get("fileFormat", "tfrecord") != "tfrecord":
        raise DatasetError(
            f"{directory} holds {info['fileFormat']} files; load reads tfrecord only. "
            "Write it with file_format='tfrecord'."
        )
    keys = _tfds_keys(directory)
    splits = {
        SPELLINGS.get(split["name"], split["name"]): _tfds_shards(directory, files, info, split)
        for split in info.get("splits", ())
    }
    listed = {os.path.basename(shard.path): None for shards in splits.values() for shard in shards}
    check_shards(directory, files, listed, "Copy the files again from where they were written.")
    record_keys = _keys_by_tfds(directory, files, keys, _supervised(info), named)
    return StoredDataset(directory, "tfds", splits, *meaning_of(record_keys), shapes=_shapes(keys))


def _tfds_keys(directory: str) -> list[TfdsKey]:
    with in_tfds_form(directory):
        return tfds_keys(_parsed(directory, layout.FEATURES))


def _parsed(directory: str, name: str) -> Any:
    return parse_json(storage.read_bytes(os.path.join(directory, name)), directory, name)


def _keys_by_tfds(
    directory: str,
    files: Collection[str],
    keys: Sequence[TfdsKey],
    supervised: tuple[str, str] | None,
    named: NamedKeys,
) -> RecordKeys:
    """The keys listed in `features.json`."""
    if named.features:
        words = f"{layout.FEATURES} of {directory} says what its records hold; leave it out."
        raise OptionError.of("features", dict(named.features), words)
    return RecordKeys(
        where=os.path.join(directory, layout.FEATURES),
        features={key.feature.key: key.feature for key in keys if key.feature.kind},
        faults={key.feature.key: key.fault for key in keys if key.fault},
        classes={key.feature.key: key.classes for key in keys if key.feature.kind == "label"},
        units={key.feature.key: key.unit for key in keys if key.unit},
        supervised=supervised,
        named=named,
        names=partial(_names, directory, files),
    )


def _shapes(keys: Sequence[TfdsKey]) -> dict[str, Any]:
    return {key.feature.key: key.shape for key in keys if key.feature.kind in ("image", "mask")}


def _supervised(info: Mapping[str, Any]) -> tuple[str, str] | None:
    """The keys of the image and of the target, if the dataset names them."""
    items = info.get("supervisedKeys", {}).get("tuple", {}).get("items", [])
    keys = [item.get("featureKey") for item in items]
    return (keys[0], keys[1]) if len(keys) == 2 and all(keys) else None


def _tfds_shards(
    directory: str,
    files: Mapping[str, storage.Description],
    info: dict[str, Any],
    split: dict[str, Any],
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
        # Not `format`: a file could make it read attributes or pad to any length.
        name = _TEMPLATE_WORD.sub(lambda match, words=words: words[match[1]], template)
        file = files.get(name)
        size = 0 if file is None else file.size
        shards.append(ShardFile(os.path.join(directory, name), length, size, listed=file))
    return tuple(shards)


def _names(
    directory: str,
    files: Collection[str],
    key: str,
) -> tuple[str, ...] | None:
    """The class names of a key from the file that TFDS keeps for them; None if there is none.

    TFDS writes a dot for a slash in a feature's name, and a hyphen between nested features.
    """
    usual = (layout.labels_file(key), layout.labels_file(key.replace("/", "-")))
    name = next((name for name in usual if name in files), _VOCABULARY)
    if name == _VOCABULARY and not (
        key == LABEL_COLUMN and storage.exists(os.path.join(directory, name))
    ):
        return None
    text = storage.read_bytes(os.path.join(directory, name)).decode()
    return tuple(line.strip() for line in text.split("\n") if line.strip())
