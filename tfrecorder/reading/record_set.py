"""What a reader reads: the records of one or several datasets, all or chosen ones, by number.

Single records are read without whole shards and without TensorFlow.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.core.option import is_number
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.example import Values, parse_example
from tfrecorder.format.tfrecord import data_of
from tfrecorder.options.keywords import Datasets, Path
from tfrecorder.options.read import NO_KEYS, NamedKeys, ReadOptions
from tfrecorder.reading.choice import choose
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import class_column, labels_of, objects, table_of
from tfrecorder.reading.joined_datasets import LEFT_OUT, joined, renamed
from tfrecorder.reading.open import open_dataset
from tfrecorder.reading.order import (
    Order,
    SampledOrder,
    Sampling,
    block_of,
    checked_weights,
    sampling_of,
    weights_of,
)
from tfrecorder.reading.record_bytes import RecordReader
from tfrecorder.schema.fields import class_field
from tfrecorder.schema.kinds import Label
from tfrecorder.storage.cache_folder import CacheFolder


@dataclass(frozen=True)
class RecordSet:
    """Records by number, from 0, and how often an epoch has each.

    Attributes:
        members: the datasets.
        split: its name in the first of them.
        stored: all of them as one.
        shares: how much of an epoch each dataset is; None if that follows from their records.
        fingerprint: a short text that tells these records and counts from others.
        chosen: the numbers of the records among all of the datasets, ascending; None is all.
        sampling: which records an epoch has; None has each once.
        folder: keeps on this machine what is read from a bucket; None for none.
    """

    members: tuple[StoredDataset, ...]
    split: str
    stored: StoredDataset
    shares: tuple[float, ...] | None
    fingerprint: str
    chosen: np.ndarray | None = None
    sampling: Sampling | None = None
    folder: CacheFolder | None = None

    @property
    def records(self) -> int:
        """How many there are."""
        every = self.stored.records(self.split) or 0
        return every if self.chosen is None else len(self.chosen)

    @property
    def size(self) -> int:
        """How many records an epoch has."""
        return self.records if self.sampling is None else self.sampling.size

    @property
    def block(self) -> int:
        """Records that `shuffle="blocks"` keeps together."""
        every = max(1, self.stored.records(self.split) or 0)
        # Chosen records are as far apart as there are others between them.
        near = block_of(every, self.stored.bytes(self.split))
        return max(1, near * self.records // every)

    @property
    def generation(self) -> int:
        """The last one that is read, from 0."""
        return self.stored.commit or 0

    def mode(self, shuffle: Any) -> str:
        """The mode of the order, for a value of the option `shuffle`.

        Raises:
            OptionError: drawn records have no other order than the shuffled one.
        """
        if shuffle is None:
            shuffle = self.split == "TRAIN" or self.sampling is not None
        mode = shuffle if shuffle == "blocks" else ("exact" if shuffle else "stored")
        if self.sampling is not None and mode != "exact":
            raise OptionError.of(
                "shuffle",
                shuffle,
                "records that are drawn by weights or for `epoch_size` come in exact "
                "order; leave it out.",
            )
        return mode

    def reader(self) -> RecordReader:
        """Reads the records by these numbers."""
        return RecordReader(self.stored, self.split, self.chosen, self.folder)

    def order(
        self,
        mode: str,
        seed: int,
        epoch: int,
    ) -> Order:
        """The order of an epoch."""
        return SampledOrder(self.size, mode, seed, epoch, block=self.block, sampling=self.sampling)

    def members_of(self, numbers: np.ndarray) -> np.ndarray:
        """The place of each record's dataset among the members, int64."""
        counts = [member.records(member.split(self.split)) or 0 for member in self.members]
        every = numbers if self.chosen is None else self.chosen[numbers]
        return np.searchsorted(np.cumsum(counts), every, side="right")

    def table(self, names: Collection[str] | None = None) -> pd.DataFrame:
        """All columns but the pictures, in the order of the numbers; classes as they are joined.

        Args:
            names: as for `table_of`.
        """
        field = class_field(self.stored.fields)
        if names is not None and field is not None:
            names = {*names, field.column}
        frames = [table_of(member, member.split(self.split), names) for member in self.members]
        if field is not None and isinstance(field.kind, Label):
            maps = self.stored.class_maps.get(field.label_key or "", ())
            for member, frame, becomes in zip(self.members, frames, maps, strict=False):
                frame[field.column] = renamed(frame[field.column], member.fields, field, becomes)
        frame = pd.concat(frames, ignore_index=True) if frames[1:] else frames[0]
        return frame if self.chosen is None else frame.iloc[self.chosen].reset_index(drop=True)

    def labels(self, column: str | None = None) -> np.ndarray:
        """The classes of each record, as `labels_of` gives them; as they are joined."""
        every = [labels_of(member, member.split(self.split), column) for member in self.members]
        key = str(class_column(self.stored, column).label_key)
        if maps := self.stored.class_maps.get(key):
            every = list(map(_mapped, every, maps))
        labels = np.concatenate(every)
        return labels if self.chosen is None else labels[self.chosen]

    def sampled(
        self,
        balance: Any,
        epoch_size: int | None,
        frame: pd.DataFrame | None = None,
    ) -> RecordSet:
        """The same records, with how often an epoch has each.

        Args:
            balance: as `weights_of`; None weighs all records alike.
            epoch_size: the length of an epoch; None takes the number of the records.
            frame: `table()`, where it is there already.

        Raises:
            OptionError: `balance` does not fit these records, or a dataset that should be drawn
                from has none.
        """
        if balance is None and epoch_size is None and self.shares is None:
            return self
        parts = np.zeros(self.records, np.int64)
        if self.shares is not None:
            parts = self.members_of(np.arange(self.records))
        groups = parts
        if isinstance(balance, (str, Mapping)):
            frame = self.table(_needed(None, balance)) if frame is None else frame
            weights, groups = weights_of(balance, frame, class_field(self.stored.fields), parts)
        elif balance is not None:
            weights = checked_weights(balance)
            every = self.stored.records(self.split)
            if self.chosen is not None and weights.shape == (every,):
                weights = weights[self.chosen]
            if weights.shape != (self.records,):
                raise OptionError.of(
                    "balance",
                    ...,
                    f"it has the shape {weights.shape}, and there are {self.records:,} records.",
                )
        else:
            weights = np.ones(self.records)
        weights = checked_weights(weights)
        if self.shares is not None:
            totals = np.bincount(parts, weights, len(self.members))
            for member, share, total in zip(self.members, self.shares, totals, strict=True):
                if share and not total:
                    raise OptionError(
                        f"no record of {member.directory} is chosen, and its weight is {share!r}; "
                        "leave it out, or give it the weight 0."
                    )
            weights = weights * (np.array(self.shares) / np.where(totals, totals, 1))[parts]
        sampling = sampling_of(weights, groups, epoch_size or self.records)
        return replace(
            self,
            sampling=sampling,
            fingerprint=f"{self.fingerprint} balance:{sampling.fingerprint}",
        )


@dataclass(frozen=True)
class Record:
    """One record.

    Attributes:
        split: the one it is in.
        number: in the split, from 0, in shard order.
        features: its values by key.
    """

    split: str
    number: int
    features: dict[str, Values]


def record_set(
    members: Sequence[StoredDataset],
    split: str,
    options: ReadOptions,
    shares: tuple[float, ...] | None,
    balance: Any = None,
    epoch_size: int | None = None,
) -> RecordSet:
    """The records of a split that options choose.

    Args:
        members: the datasets.
        split: in any usual spelling.
        options: which records are read, and how classes are joined.
        shares: how much of an epoch each dataset is; None if that follows from their records.
        balance, epoch_size: as for `RecordSet.sampled`.

    Raises:
        OptionError: a condition holds for no record, or datasets do not fit together.
        DatasetError: the split is not there.
    """
    name = members[0].split(split)
    stored = joined(members, name, options)
    texts = [fingerprint_of(member, member.split(split)) for member in members]
    fingerprint = texts[0]
    if texts[1:]:
        fingerprint = _digest("".join(texts).encode())
    records = RecordSet(
        tuple(members),
        name,
        stored,
        shares,
        fingerprint,
        folder=options.cache_folder,
    )
    frame = None
    all_maps = itertools.chain.from_iterable(stored.class_maps.values())
    leaves_out = any(LEFT_OUT in becomes for becomes in all_maps)
    label = class_field(stored.fields)
    if leaves_out or options.where is not None:
        frame = records.table(_needed(options.where, balance))
        kept = np.ones(len(frame), bool)
        if leaves_out and label is not None:
            kept &= frame[label.column].notna().to_numpy()
        if options.where is not None:
            chosen, fault, _ = choose(frame, options.where)
            if fault is not None:
                raise fault
            kept &= chosen
        numbers = np.flatnonzero(kept)
        if not len(numbers):
            raise OptionError("`where` and `classes` together leave no record; change one of them.")
        records = replace(
            records,
            chosen=numbers,
            fingerprint=f"{fingerprint} where:{_digest(numbers.data)}",
        )
        # Texts of a million records are tens of megabytes: only what is weighed by goes on.
        needed = _needed(None, balance) or set()
        if label:
            needed.add(label.column)
        if needed <= {*frame.columns}:
            frame = frame[[name for name in frame if name in needed]]
        frame = frame.iloc[numbers]
    return records.sampled(balance, epoch_size, frame)


def open_members(
    datasets: Datasets, options: ReadOptions
) -> tuple[list[StoredDataset], tuple[float, ...] | None]:
    """One or several datasets, and their weights if they have any.

    Args:
        datasets: one, a list, or weights of several by directory.
        options: which of their records are read.

    Raises:
        OptionError: a weight is no number from 0, or an option is for one dataset alone.
        DatasetError: as `open_stored`.
    """
    shares = None
    if isinstance(datasets, Mapping):
        shares = tuple(datasets.values())
        are_weights = all(is_number(share) and 0 <= share < np.inf for share in shares)
        if not are_weights or not any(shares):
            raise OptionError.of(
                "directory",
                dict(datasets),
                "give each dataset a finite weight from 0, not all 0.",
            )
    every: Sequence[Any] = [datasets]
    if not isinstance(datasets, (str, os.PathLike)):
        if not datasets or not isinstance(datasets, (Sequence, Mapping)):
            raise OptionError.of(
                "directory",
                datasets,
                "give a dataset, a list of several, or a dict with how much of an epoch each is.",
            )
        every = list(datasets)
    if len(every) > 1 and options.at is not None:
        raise OptionError.of(
            "at",
            options.at,
            "each dataset has its own generations; give one dataset, or leave it out.",
        )
    return [open_stored(path, options.at, options.keys) for path in every], shares


def open_stored(
    directory: Path,
    at: int | None,
    named: NamedKeys = NO_KEYS,
) -> StoredDataset:
    """The dataset in a directory, for reading single records.

    Args:
        at: the last generation to read; None is the newest.
        named: the keys of the image and the label in records of other tools.

    Raises:
        DatasetError: it is not a whole dataset, or its single records cannot be read.
    """
    stored = open_dataset(directory, at, named)
    if words := stored.uncounted():
        raise DatasetError(words)
    return stored


def read_numbered(
    stored: StoredDataset,
    split: str,
    numbers: Iterable[int],
) -> Iterator[Record]:
    """The records of a split with these numbers, in ascending order.

    Raises:
        DatasetError: the index or a record is damaged.
    """
    reader = RecordReader(stored, split)

    def record(number: int) -> Record:
        features = reader.read([number], lambda framed, _: parse_example(data_of(framed)))[0]
        return Record(split, number, features)

    return map(record, sorted(map(int, numbers)))


def _needed(where: Any, balance: Any) -> set[str] | None:
    """The columns that are looked at beside that of the classes; None if a function may look."""
    if callable(where):
        return None
    columns = {*(where or ())}
    if isinstance(balance, str):
        columns.add(balance)
    return columns


def fingerprint_of(stored: StoredDataset, split: str) -> str:
    """A short text that tells the records of a split from others, wherever they are.

    A correction keeps it, so that a training goes on with the corrected values.
    """
    shards = stored.splits[split]
    if split in stored.contents:
        told: object = (split, stored.records(split), stored.contents[split])
    else:
        told = [(os.path.basename(shard.path), shard.records, shard.bytes) for shard in shards]
    return _digest(repr(told).encode())


def _mapped(labels: np.ndarray, becomes: np.ndarray) -> np.ndarray:
    if labels.dtype != object:
        return becomes[labels + 1]
    return objects([becomes[several + 1] for several in labels])


def _digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
