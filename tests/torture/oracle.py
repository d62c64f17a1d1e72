"""A reader of datasets that shares nothing with the package: what it finds is the truth.

It has its own parsers of TFRecord frames and of `tf.train.Example`, and takes from the directory
what is public and specified: `dataset_info.json`, the shards, the labels file, the indexes.  No
line of `tfrecorder` is imported here, so that a fault of it cannot hide itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

#: A value of a record: bytes, floats or integers.
Values = list[Any]


class WrongError(AssertionError):
    """What is there is not what must be there."""


def must(holds: object, words: str) -> None:
    """Raise a WrongError unless something holds."""
    if not holds:
        raise WrongError(words)


# ------------------------------------------------------------------------------------ TFRecord


@dataclass(frozen=True)
class Frame:
    """A record as a shard holds it.

    Attributes:
        offset: where it begins in its shard.
        raw: length, checksum, data, checksum.
    """

    offset: int
    raw: bytes

    @property
    def data(self) -> bytes:
        return self.raw[12:-4]


def frames(shard: Path) -> Iterator[Frame]:
    """The records of a shard, in order.

    Raises:
        WrongError: a length or a checksum is wrong, or the shard ends within a record.
    """
    data = shard.read_bytes()
    at = 0
    while at < len(data):
        must(at + 12 <= len(data), f"{shard.name} ends within the length at {at}")
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + 12 + length + 4
        must(end <= len(data), f"{shard.name} ends within the record at {at}")
        raw = data[at:end]
        stated = struct.unpack_from("<I", raw, 8)[0], struct.unpack_from("<I", raw, 12 + length)[0]
        found = _masked(raw[:8]), _masked(raw[12:-4])
        must(stated == found, f"{shard.name}: a checksum of the record at {at} is wrong")
        yield Frame(at, raw)
        at = end


def _masked(data: bytes) -> int:
    """The CRC32C of data as TFRecord files have it."""
    plain = google_crc32c.value(data)
    turned = (plain >> 15) | (plain << 17)
    return (turned + 0xA282EAD8) & 0xFFFFFFFF


# ----------------------------------------------------------------------------- tf.train.Example


def example(data: bytes) -> dict[str, Values]:
    """The features of a serialized `tf.train.Example`."""
    features: dict[str, Values] = {}
    for _, block in _fields(data, {1}):
        for _, pair in _fields(block, {1}):
            entry = dict(_fields(pair, {1, 2}))
            name = entry[1].decode()
            must(name not in features, f"the feature {name} stands twice")
            features[name] = _feature(entry[2])
    return features


def _feature(data: bytes) -> Values:
    lists = [*_fields(data, {1, 2, 3})]
    must(len(lists) <= 1, "a feature has two lists")
    if not lists:
        return []
    kind, block = lists[0]
    values: Values = []
    for _, one in _fields(block, {1}):
        if kind == 1:
            values.append(one)
        elif kind == 2:
            values += [value for (value,) in struct.iter_unpack("<f", one)]
        elif isinstance(one, int):
            values.append(_signed(one))
        else:
            values += map(_signed, _varints(one))
    return values


def _fields(data: bytes, known: set[int]) -> Iterator[tuple[int, Any]]:
    """The fields of a message: the number of each, and its bytes or its integer."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number = key >> 3
        must(number in known, f"the field {number} is not one of an Example")
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 5:
            size = 4
        else:
            must(wire == 2, f"the wire type {wire} is not one of an Example")
            size, at = _varint(data, at)
        must(at + size <= len(data), "a field ends behind its message")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


# --------------------------------------------------------------------------------- the dataset


@dataclass(frozen=True)
class Record:
    """A record, as it is in its shard.

    Attributes:
        split: in upper case.
        shard: the name of its file.
        features: all of them, by key.
    """

    split: str
    shard: str
    frame: Frame
    features: Mapping[str, Values]

    def text(self, key: str) -> str:
        """A feature that is one text; "" where the record does not have it."""
        values = self.features.get(key, [])
        return values[0].decode() if values else ""

    @cached_property
    def uri(self) -> str:
        return self.text("image/filename")

    @cached_property
    def number(self) -> int:
        """Of the row in its source."""
        return int(self.text("image/source_id"))

    @property
    def _class(self) -> str:
        """Keys of the class begin so; without images its column has its own name."""
        return "image/class" if "image/class/label" in self.features else "label"

    @cached_property
    def label(self) -> int:
        (value,) = self.features[f"{self._class}/label"]
        return int(value)

    @cached_property
    def name(self) -> str:
        """Of its class."""
        return self.text(f"{self._class}/text")

    @cached_property
    def image(self) -> bytes:
        values = self.features.get("image/encoded", [])
        return bytes(values[0]) if values else b""


@dataclass(frozen=True)
class Contents:
    """What a directory holds, in the eyes of a reader that knows what is public alone.

    Attributes:
        commit: the number of the newest commit.
        version: of the dataset.
        splits: the records of each split, in order.
        classes: the names by their integers.
        rejects: uris of the rows that gave no record, in the order of the list.
    """

    commit: int
    version: str
    splits: Mapping[str, Sequence[Record]]
    classes: tuple[str, ...]
    rejects: tuple[str, ...]

    @property
    def records(self) -> list[Record]:
        return [record for split in self.splits.values() for record in split]


def read(directory: Path) -> Contents | None:
    """What a directory holds; None if it has no `dataset_info.json`.

    Raises:
        WrongError: a shard is missing or damaged, has another length than is stated, a class
            integer is not that of its name, or a row's number stands twice.
    """
    path = directory / "dataset_info.json"
    if not path.exists():
        return None
    info = json.loads(path.read_text())
    version = info["version"]
    (commit,) = re.findall(r"commit (\d+), plan", info["releaseNotes"][version])
    splits: dict[str, list[Record]] = {}
    for split in info["splits"]:
        splits[split["name"].upper()] = _split(directory, split)
    labels = [*directory.glob("*.labels.txt")]
    must(len(labels) == 1, f"there are the files of labels {labels}")
    classes = tuple(labels[0].read_text().splitlines())
    contents = Contents(int(commit), version, splits, classes, _rejects(directory))
    _check(contents)
    return contents


def _split(directory: Path, info: Mapping[str, Any]) -> list[Record]:
    records: list[Record] = []
    name = info["name"]
    size = 0
    for index, length in enumerate(info["shardLengths"]):
        file = info["filepathTemplate"]
        for word, value in (
            ("SPLIT", name),
            ("SHARD_INDEX", f"{index:05d}"),
            ("FILEFORMAT", "tfrecord"),
        ):
            file = file.replace(f"{{{word}}}", value)
        must("{" not in file, f"the template {file} names something else")
        shard = directory / file
        must(shard.exists(), f"{file} is not there")
        found = [Record(name.upper(), file, one, example(one.data)) for one in frames(shard)]
        must(len(found) == int(length), f"{file} has {len(found)} records, and {length} are stated")
        records += found
        size += shard.stat().st_size
    must(size == int(info["numBytes"]), f"{name} has {size} bytes, and not what is stated")
    return records


def _rejects(directory: Path) -> tuple[str, ...]:
    path = directory / "rejects.csv"
    if not path.exists():
        return ()
    lines = path.read_text().splitlines()
    column = lines[0].split(",").index("image_uri") if lines else 0
    return tuple(line.split(",")[column].strip('"') for line in lines[1:])


def _check(contents: Contents) -> None:
    records = contents.records
    numbers = [record.number for record in records]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    must(not twice, f"the row numbers {twice} stand twice: {numbers}")
    for record in records:
        label = record.label
        if label == -1:
            must(record.name == "", f"{record.uri} has no class, and the name {record.name!r}")
            continue
        must(
            label < len(contents.classes), f"{record.uri} has the class {label}, which has no name"
        )
        name = contents.classes[label]
        must(name == record.name, f"class {label} is {name!r}, and {record.name!r} in a record")


def check_beside(directory: Path, contents: Contents) -> None:
    """What stands beside each shard must have each of its frames, in their order, and no others.

    Indexes are as DALI reads them; tables as the specification of the directory has them.

    Raises:
        WrongError: they have not, or the directory has shards that are not of the dataset.
    """
    shards: dict[str, list[Record]] = {}
    for record in contents.records:
        shards.setdefault(record.shard, []).append(record)
    for shard, records in shards.items():
        frames = [record.frame for record in records]
        places = [(frame.offset, len(frame.raw)) for frame in frames]
        index = directory / "_tfrecorder/index" / f"{shard}.idx"
        must(index.exists(), f"{index.name} is not there")
        lines = [f"{offset} {size}" for offset, size in places]
        must(index.read_text().splitlines() == lines, f"{index.name} is not of its shard")
        table = directory / "_tfrecorder/tables" / f"{shard.removesuffix('.tfrecord')}.parquet"
        must(table.exists(), f"{table.name} is not there")
        of_table = _rows_of(table)
        wanted = [
            (record.number, *place, google_crc32c.value(record.frame.raw))
            for record, place in zip(records, places, strict=True)
        ]
        must(of_table == wanted, f"{table.name} says {of_table}, and its shard {wanted}")
    there = {path.name for path in directory.glob("*.tfrecord")}
    others = sorted(there - shards.keys())
    empty = [name for name in others if (directory / name).stat().st_size == 0]
    must(others == empty, f"shards that the dataset does not have: {others}")


def _rows_of(table: Path) -> list[tuple[int, int, int, int]]:
    """Number, offset, size and CRC32C of each record in the table of a shard."""
    names = ["image/source_id", *(f"tfrecorder.record/{n}" for n in ("offset", "size", "crc32c"))]
    columns = pq.ParquetFile(table).read(names).to_pydict()
    rows = zip(*(columns[name] for name in names), strict=True)
    return [(int(number), *of_frame) for number, *of_frame in rows if of_frame[1] >= 0]


# ------------------------------------------------------------------------------- what is absent


class Search:
    """Looks for bytes in all files below a directory, values of Parquet files decoded.

    What a file says is kept by the digest of its bytes, since most files stay as they are.
    """

    def __init__(self) -> None:
        self._decoded: dict[bytes, bytes] = {}

    def find(self, directory: Path, wanted: Mapping[str, Sequence[bytes]]) -> list[str]:
        """Which of some values are in which files.

        Args:
            wanted: by what they are of.
        """
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        found = []
        for path in files:
            text = path.name.encode() + b"\0" + self._text(path)
            hits = [name for name, values in wanted.items() if any(one in text for one in values)]
            if hits:
                found.append(f"{path.relative_to(directory)} has something of {', '.join(hits)}")
        return found

    def _text(self, path: Path) -> bytes:
        data = path.read_bytes()
        if data[:4] != b"PAR1":
            return data
        digest = hashlib.sha256(data).digest()
        if digest not in self._decoded:
            self._decoded[digest] = data + b"\0" + _values_of(path)
        return self._decoded[digest]


def _values_of(path: Path) -> bytes:
    """All texts and bytes of a Parquet file, one after another."""
    table = pq.ParquetFile(path).read()
    parts: list[bytes] = [str(table.schema.metadata).encode()]
    for column in table.columns:
        if not _has_texts(column.type):
            continue
        for value in column.to_pylist():
            parts += _plain(value)
    return b"\0".join(parts)


def _has_texts(kind: pa.DataType) -> bool:
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return not number


def _plain(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode()
    elif isinstance(value, dict):
        for one in value.values():
            yield from _plain(one)
    elif isinstance(value, list):
        for one in value:
            yield from _plain(one)
