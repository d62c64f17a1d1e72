"""What a dataset should hold after each call, and pictures with bytes of their own."""

from __future__ import annotations

import dataclasses
import hashlib
import random
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: Pictures in files, and pictures that come through a stream as bytes.
IMAGES, FED = 24, 12

#: No file is there under these names at first; `Sources.appear` puts one there.
MISSING = ("img-20", "img-21")

#: The file under this name is no image.
BROKEN = "img-22"

#: The file of the first has the bytes of the second.
TWIN, SIBLING = "img-19", "img-18"

SPLITS = ("TRAIN", "TEST", "VALIDATION")
LABELS = ("ant", "bee", "cat", "dog", "elk")


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        name: of its picture.
        text: which of many captions it has, where there are captions.
    """

    name: str
    label: str
    split: str
    text: int = 0


@dataclasses.dataclass(frozen=True)
class Fact:
    """What is known of a picture in the dataset.

    Attributes:
        data: its bytes as they are stored.
        caption: "" where there are none.
        copies: how many records have it.
    """

    label: str
    split: str
    data: bytes
    caption: str
    copies: int = 1


@dataclasses.dataclass(frozen=True)
class Kind:
    """What differs from one life to another.

    Attributes:
        raw: pictures are stored as pixels.
        captions: there is a column of texts.
        sizes: pictures have several sizes, so that records have several lengths.
        relative: tables name pictures from a folder that is given with them.
        bare: there are no pictures at all, and rows are known by their captions.
    """

    raw: bool = False
    captions: bool = False
    sizes: bool = False
    relative: bool = False
    bare: bool = False

    @staticmethod
    def by(chance: random.Random) -> Kind:
        if chance.random() < 0.08:
            return Kind(captions=True, bare=True)
        raw = chance.random() < 0.25
        sizes = not raw and chance.random() < 0.4
        return Kind(raw, chance.random() < 0.4, sizes, chance.random() < 0.5)


class Sources:
    """The pictures of a life, each with bytes of its own.

    Attributes:
        files: the bytes of the file under each name; names without a file are not in it.
        stored: the bytes of its record's image; names that give a reject are not in it.
    """

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.folder, self.kind = folder, kind
        self.files: dict[str, bytes] = {}
        self.stored: dict[str, bytes] = {}
        self._of_captions: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(IMAGES):
            name = f"img-{number:02d}"
            if kind.bare or name not in MISSING:
                self._add(name)
        for number in range(FED):
            self._add(f"fed-{number:02d}")

    def _add(self, name: str) -> None:
        if self.kind.bare:
            self.stored[name] = b""
            self._of_captions[self.caption(Row(name, "", ""))] = name
            return
        if name == BROKEN:
            self.files[name] = b"no picture"
        else:
            data, pixels = picture(SIBLING if name == TWIN else name, self.kind)
            self.files[name] = data
            self.stored[name] = pixels if self.kind.raw else data
        if not name.startswith("fed"):
            (self.folder / f"{name}.png").write_bytes(self.files[name])

    def appear(self, name: str) -> None:
        """A file that was missing is there from now on."""
        self._add(name)

    def uri(self, name: str) -> str:
        """What a record says where its image came from."""
        if self.kind.bare:
            return ""
        is_plain = self.kind.relative or name.startswith("fed")
        return f"{name}.png" if is_plain else str(self.folder / f"{name}.png")

    def name(self, uri: str, caption: str = "") -> str:
        """The name of the picture of a record, or of a row without pictures."""
        return self._of_captions.get(caption, "?") if self.kind.bare else Path(uri).stem

    def cell(self, name: str) -> Any:
        """What stands in a table for a picture."""
        if name.startswith("fed"):
            return {"bytes": self.files[name], "path": self.uri(name)}
        return self.uri(name)

    def caption(self, row: Row) -> str:
        """A text that no other row has; "" where there are no captions."""
        if not self.kind.captions:
            return ""
        return hashlib.sha256(f"{row.name} {row.text}".encode()).hexdigest()[:12]

    def values(self, name: str) -> list[bytes]:
        """Bytes by which its picture is known, wherever they are."""
        whole = [self.files.get(name, b""), self.stored.get(name, b"")]
        return [data[-60:-20] for data in whole if len(data) > 80]


def picture(name: str, kind: Kind) -> tuple[bytes, bytes]:
    """A PNG of noise that no other name has, and its pixels; its length follows from its size."""
    digest = hashlib.sha256(name.encode()).digest()
    height, width = (8, 8) if kind.raw else (4, 5)
    if kind.sizes:
        height += digest[0] % 5
    pixels = random.Random(name).randbytes(height * width * 3)
    line = width * 3
    lines = (pixels[at : at + line] for at in range(0, len(pixels), line))
    plain = zlib.compress(b"".join(b"\0" + one for one in lines), 0)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", plain), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks), pixels


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@dataclasses.dataclass(frozen=True)
class State:
    """What a dataset holds.

    Attributes:
        records: by the names of their pictures.
        rejects: names of pictures that gave no record, each with its split.
        gone: names that were removed, and stay out.
        gone_files: the bytes of their files, which stay out under any name.
        position: how far the stream was read.
        grown: rows came in that are not of the conversion.
        order: the names of each split's records, as they were found.
        numbers: the name of each row's number that was ever seen.
        maybe: names that were removed, and may come back, as the package said then.
        sizes: the records of each split that each generation had that `at=` names.
    """

    records: Mapping[str, Fact] = dataclasses.field(default_factory=dict)
    rejects: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    gone_files: frozenset[bytes] = frozenset()
    position: int = 0
    grown: bool = False
    order: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    numbers: Mapping[int, str] = dataclasses.field(default_factory=dict)
    maybe: frozenset[str] = frozenset()
    sizes: Mapping[int, Mapping[str, int]] = dataclasses.field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """Of all that is there."""
        return {*self.records, *self.rejects}

    def added(
        self,
        rows: Sequence[Row],
        sources: Sources,
        *,
        readmit: bool = False,
        duplicates: str = "name",
        retry: bool = False,
    ) -> State:
        """With the rows of a table that are not there yet, and were not removed."""
        records = dict(self.records)
        rejects = dict(self.rejects)
        gone = set(self.gone)
        gone_files = set(self.gone_files)
        there = {sources.files.get(name, b"") for name in self.records}
        for row in rows:
            name = row.name
            data = sources.files.get(name)
            is_known = name in self.records or (name in self.rejects and not retry)
            is_known |= duplicates == "content" and data in there
            if is_known and duplicates != "keep":
                continue
            if (name in self.gone or data in self.gone_files) and not readmit:
                continue
            gone.discard(name)
            gone_files.discard(data or b"")
            if name in sources.stored:
                rejects.pop(name, None)
                copies = self.records[name].copies + 1 if name in self.records else 1
                records[name] = fact_of(row, sources, copies)
            else:
                rejects[name] = row.split
        return dataclasses.replace(
            self,
            records=records,
            rejects=rejects,
            gone=frozenset(gone),
            gone_files=frozenset(gone_files),
            grown=self.grown or records != self.records or rejects != self.rejects,
        )

    def corrected(self, rows: Sequence[Row], sources: Sources, missing: str) -> State:
        """With the values of a table, and perhaps without what it does not have."""
        of_name = {row.name: row for row in rows}
        records = {}
        for name, fact in self.records.items():
            if name in of_name:
                records[name] = fact_of(of_name[name], sources)
            elif missing == "keep":
                records[name] = fact
        rejects = {}
        for name, split in self.rejects.items():
            if name in of_name:
                rejects[name] = of_name[name].split
            elif missing == "keep":
                rejects[name] = split
        return dataclasses.replace(self, records=records, rejects=rejects)

    def without(self, names: Collection[str], sources: Sources) -> State:
        """Without some of it, which stays out."""
        files = {sources.files[name] for name in names if name in sources.files}
        return dataclasses.replace(
            self,
            records={name: fact for name, fact in self.records.items() if name not in names},
            rejects={name: split for name, split in self.rejects.items() if name not in names},
            gone=self.gone | {*names},
            gone_files=self.gone_files | files,
        )

    def renumbers(self, after: State) -> bool:
        """True if what comes after has other splits, or lacks something."""
        before = {name: fact.split for name, fact in self.records.items()} | dict(self.rejects)
        now = {name: fact.split for name, fact in after.records.items()} | dict(after.rejects)
        return any(now.get(name) != split for name, split in before.items())


def fact_of(row: Row, sources: Sources, copies: int = 1) -> Fact:
    """What a record of a row holds."""
    data = sources.stored[row.name]
    return Fact(row.label, row.split, data, sources.caption(row), copies)
