"""An opened dataset as a value object, and its files."""

from __future__ import annotations

import difflib
import os
from collections import UserList
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field as dataclass_field
from typing import Any, NamedTuple

import numpy as np

from tfrecorder import storage
from tfrecorder.errors import DatasetError, OptionError, SplitError
from tfrecorder.format.documents import parse
from tfrecorder.format.plan import Shape
from tfrecorder.images.geometry import Sides
from tfrecorder.schema.fields import Fields, class_field, primary_image
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.splits import split_meant


def image_shape(extremes: Iterable[Sequence[int | None]]) -> Shape:
    """(height, width, channels) that hold for every image; None for what differs between images.

    If channels differ, or are 2, they become 3: what a decoder is then asked for.

    Args:
        extremes: the smallest and the largest (height, width, channels) of some images each, or
            what holds for some.
    """
    common = []
    for axis in zip(*extremes, strict=True):
        lengths = {*axis}
        common.append(lengths.pop() if len(lengths) == 1 else None)
    height, width, channels = common or (None, None, None)
    return height or None, width or None, channels if channels in (1, 3, 4) else 3


class ShardFile(NamedTuple):
    """One file of records.

    Attributes:
        path: of the file, with its scheme.
        records: number of records; None if that is not known without reading the file.
        bytes: size of the file.
        compression: of the whole file: "GZIP", "ZLIB", or "" for none.
        listed: what the store said of it when the dataset was opened, as `storage.describe`.
    """

    path: str
    records: int | None
    bytes: int
    compression: str = ""
    listed: storage.Described | None = None


class Shards(UserList[Any]):
    """The shards of a split; each is made when it is asked for, of a plain tuple in `data`.

    The reason is that of `storage.Descriptions`.
    """

    def __getitem__(self, at: Any) -> Any:
        values = super().__getitem__(at)
        return values if isinstance(at, slice) else ShardFile._make(values)

    def __iter__(self) -> Iterator[ShardFile]:
        return map(ShardFile._make, self.data)


@dataclass(frozen=True)
class StoredDataset:
    """What a directory holds.

    Attributes:
        directory: as the user gave it.
        form: "tfrecorder", "tfds" or "files".
        splits: the shards of each split, in order.
        fields: the columns.
        record: every key of a record.
        unread: keys of images, labels, boxes and masks in other tools' records that we do not
            understand, with a sentence on each.
        shapes: for each key of encoded images, their common (height, width, channels), with None
            where they differ.
        sides: (smallest, largest) of the shorter sides and of the longer sides of the first image
            column, in pixels; None if not known.
        raw: images are stored as pixels.
        commit: the number of the commit that it was opened as of; None for other tools' datasets.
        note: what `dataset_info.json` said of its commit when it was opened; empty likewise.
        since: the commit that began it: what was there before was replaced.
        contents: for each split a checksum of all its shards; empty likewise.
        class_maps: for several datasets as one, by the key of integers of classes: what those of
            each dataset become, with the class -1 first.
        looked: the records from which its columns were concluded, in words; empty if it is stated.
        seen: the keys of which these records have values.
    """

    directory: str
    form: str
    splits: Mapping[str, Sequence[ShardFile]]
    fields: Fields
    record: tuple[Feature, ...]
    unread: Mapping[str, str] = dataclass_field(default_factory=dict)
    shapes: Mapping[str, Shape] = dataclass_field(default_factory=dict)
    sides: Sides | None = None
    raw: bool = False
    commit: int | None = None
    note: str = ""
    since: int = 0
    contents: Mapping[str, int] = dataclass_field(default_factory=dict)
    class_maps: Mapping[str, Sequence[np.ndarray]] = dataclass_field(default_factory=dict)
    looked: str = ""
    seen: frozenset[str] = frozenset()

    @property
    def features(self) -> dict[str, str]:
        """The kind of each key of a record, such as "image" or "int64"."""
        return {feature.key: feature.kind for feature in self.record}

    @property
    def image_key(self) -> str:
        """The key of the first encoded image; "" if there is none."""
        first = primary_image(self.fields)
        return first.encoded_key if first else ""

    @property
    def image_shape(self) -> Shape:
        """(height, width, channels) of the images under `image_key`, None where they differ."""
        return self.shape_of(self.image_key)

    @property
    def depth(self) -> int:
        """Bits of a channel of the images under `image_key`."""
        first = primary_image(self.fields)
        return first.depth if first else 8

    def shape_of(self, key: str) -> Shape:
        """(height, width, channels) of the images under a key, None where they differ."""
        return self.shapes.get(key, (None, None, 3))

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Indexed by the class's integer; None if no column or several columns have classes."""
        labels = class_field(self.fields)
        return labels.class_names if labels else None

    def split(self, word: str) -> str:
        """The name of the split that a user's word means.

        Raises:
            SplitError: there is no such split here.
            OptionError: it is not text.
        """
        if not isinstance(word, str):
            words = "give one name, such as 'TRAIN', or None for all; "
            splits = f"{self.directory} has {', '.join(self.splits)}."
            raise OptionError.of("split", word, words + splits)
        name = split_meant(word, self.splits)
        if name in self.splits:
            return name
        near = difflib.get_close_matches(word.upper(), self.splits, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise SplitError(
            f"{self.directory} has no split {word!r}; {hint}it has {', '.join(self.splits)}."
        )

    def records(self, split: str) -> int | None:
        """The number of records of a split, or None if not known."""
        counts = [shard.records for shard in self.splits[split]]
        return None if None in counts else sum(count or 0 for count in counts)

    def uncounted(self) -> str | None:
        """Why records cannot be read by number, and the remedy; None if they can."""
        splits = self.splits.values()
        packed = next((shard for shards in splits for shard in shards if shard.compression), None)
        if packed is not None:
            return (
                f"{packed.path} is compressed ({packed.compression}) and has no random access: "
                "unpack it first, or read it in order with load."
            )
        if any(shard.records is None for shards in splits for shard in shards):
            return (
                f"{self.directory}: without metadata, records are found only on a disk; copy the "
                "files first."
            )
        return None

    def bytes(self, split: str) -> int:
        """The bytes of a split's files."""
        return sum(shard.bytes for shard in self.splits[split])


def shard_faults(sizes: Mapping[str, int | None], written: Mapping[str, int | None]) -> list[str]:
    """A sentence on each shard that is missing or has the wrong size; see `check_shards`."""
    faults = [f"{name} is missing" for name in written if name not in sizes]
    for name, size in written.items():
        if size is not None and name in sizes and sizes[name] != size:
            faults.append(f"{name} has {sizes[name]:,} bytes, but {size:,} were written")
    return faults


def check_shards(
    directory: str,
    files: Mapping[str, storage.Description],
    written: Mapping[str, int | None],
    remedy: str,
) -> None:
    """Compare the files that are there with those that were written.

    Args:
        directory: for the message.
        files: what the store says about each file found.
        written: the size of each shard as written; None if only its name is known.
        remedy: a sentence for the message.

    Raises:
        DatasetError: names the first few files that are missing or have another size.
    """
    faults = shard_faults({name: file.size for name, file in files.items()}, written)
    if faults:
        more = f"; and {len(faults) - 5:,} more" if len(faults) > 5 else ""
        for name in written:
            if name in files and storage.is_lfs_pointer(os.path.join(directory, name)):
                remedy = f"{name} is {storage.LFS_WORDS}."
                break
        raise DatasetError(f"{directory} is not whole: {'; '.join(faults[:5])}{more}. {remedy}")


def parse_json(
    data: bytes,
    directory: str,
    name: str,
) -> Any:
    """The content of a metadata file.

    Raises:
        DatasetError: it is not JSON.
    """
    try:
        return parse(data)
    except ValueError as error:
        raise damaged(directory, name, error) from error


def damaged(
    directory: str,
    name: str,
    fault: object,
) -> DatasetError:
    """The error for a file that is not as it was written."""
    path = os.path.join(directory, name)
    return DatasetError(f"{path} is damaged: {fault}. Copy it again, or convert again.")
