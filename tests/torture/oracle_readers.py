"""What the package's own readers find, beside what the independent one found."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import tfrecorder
from torture.oracle import Contents, Record, must

#: Readers give what is stored, undecoded.
STORED: dict[str, Any] = {"inputs": "all", "decode": False}


def compare(directory: Path, contents: Contents, chance: random.Random, columns: list[str]) -> None:
    """Every reader of the package must find the records that the independent one found.

    Args:
        columns: those of a table beside its split, its image and its label.

    Raises:
        WrongError: one finds something else.
    """
    out = str(directory)
    info = tfrecorder.info(out)
    counts = {name: split.records for name, split in info.splits.items() if split.records}
    wanted = {name: len(records) for name, records in contents.splits.items() if records}
    must(counts == wanted, f"info says {counts}, and there are {wanted}")
    must(tuple(info.class_names or ()) == contents.classes, f"info has {info.class_names}")
    frame = tfrecorder.to_frame(out)
    must(len(frame) == len(contents.records), f"to_frame has {len(frame)} rows")
    for split, records in contents.splits.items():
        if records:
            of_split = frame[frame["split"] == split]
            _same_rows(of_split, records, columns, f"to_frame, {split}")
            numbers = [record.number for record in records]
            must([*of_split.index] == numbers, f"to_frame, {split}: rows {[*of_split.index]}")
            _compare_split(out, split, records, chance, columns)


def compare_at(
    directory: Path, contents: Contents, number: int, sizes: Mapping[int, Mapping[str, int]]
) -> None:
    """Earlier generations must be the first records of each split.

    Args:
        number: of one that is read.
        sizes: how many there are of each split, in each generation.

    Raises:
        WrongError: there are other generations, or it has other records.
    """
    out = str(directory)
    found = tfrecorder.generations(out)
    must({*found} == {*sizes}, f"there are the generations {found}, and not {[*sizes]}")
    frame = tfrecorder.to_frame(out, at=number)
    for split, records in contents.splits.items():
        first = records[: sizes[number].get(split, 0)]
        rows = [*frame[frame["split"] == split].index]
        words = f"to_frame at {number}, {split}: rows {rows}, of {len(first)}"
        must(rows == [record.number for record in first], words)
    must(len(frame) == sum(sizes[number].values()), f"to_frame at {number}: {len(frame)} rows")


def _compare_split(
    out: str, split: str, records: Sequence[Record], chance: random.Random, columns: list[str]
) -> None:
    reader = tfrecorder.Records(out, split, **STORED)
    must(len(reader) == len(records), f"Records, {split}: {len(reader)} records")
    _same_records([*reader], records, f"Records, {split}")
    one = chance.randrange(len(records))
    _same_records([reader[one]], [records[one]], f"Records, {split}, number {one}")
    _same_rows(reader.table(), records, columns, f"Records.table, {split}")
    labels = [record.label for record in records]
    must(reader.labels().tolist() == labels, f"labels, {split}: {reader.labels().tolist()}")
    for name in sorted({record.name for record in records} - {""}):
        chosen = tfrecorder.Records(out, split, where={"label": name}, **STORED)
        of_name = [record for record in records if record.name == name]
        _same_records([*chosen], of_name, f"Records, {split}, where label is {name}")
    batches = tfrecorder.batches(
        out, split, batch_size=3, shuffle=False, drop_remainder=False, **STORED
    )
    found: list[Any] = []
    for batch in batches:
        keys = [*batch]
        rows = zip(*(batch[key] for key in keys), strict=True)
        found += [dict(zip(keys, row, strict=True)) for row in rows]
    _same_records(found, records, f"batches, {split}")


def _same_records(found: Sequence[Any], records: Sequence[Record], where: str) -> None:
    must(len(found) == len(records), f"{where}: {len(found)} records, and not {len(records)}")
    for place, (one, record) in enumerate(zip(found, records, strict=True)):
        for key, values in record.features.items():
            value = one[key]
            if isinstance(value, str):
                value = value.encode()
            if isinstance(values[0], float):
                value = float(value)
            must(
                value == values[0], f"{where}, record {place}, {record.uri}: {key} is {value!r:.80}"
            )


def _same_rows(
    frame: pd.DataFrame, records: Sequence[Record], columns: list[str], where: str
) -> None:
    must(len(frame) == len(records), f"{where}: {len(frame)} rows, and not {len(records)}")
    names = {"split": [record.split for record in records]}
    if "image_uri" in frame:
        names["image_uri"] = [record.uri for record in records]
    if "label" in frame:
        names["label"] = [record.name for record in records]
    names |= {column: [record.text(column) for record in records] for column in columns}
    for name, values in names.items():
        must([*frame[name]] == values, f"{where}: {name} is {[*frame[name]]}, and not {values}")


def compare_tfds(directory: Path, contents: Contents) -> None:
    """TFDS must find the same records.

    Raises:
        WrongError: it finds others.
    """
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(directory))
    in_order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    skipped = {"image/encoded": tfds.decode.SkipDecoding()}
    for split, records in contents.splits.items():
        if not records:
            continue
        decoders = skipped if records[0].image else None
        data = builder.as_dataset(split.lower(), decoders=decoders, read_config=in_order)
        found = [*data.as_numpy_iterator()]
        must(len(found) == len(records), f"TFDS, {split}: {len(found)} records")
        for one, record in zip(found, records, strict=True):
            for key, (stored,) in record.features.items():
                if key not in one:  # what TFDS is not told of
                    continue
                value = one[key]
                if key == "image/encoded" and not isinstance(value, bytes):
                    value = value.tobytes()
                must(value == stored, f"TFDS, {split}, {record.uri}: {key} is {value!r:.80}")
