"""Marks of rows that were removed from a dataset, by which they are known if they come again.

A mark is a salted hash: of the places of a row's images, or of the sizes and CRC32Cs of their
bytes, so that neither a name nor a place of what was removed is kept.  A size stands beside them
in the clear: a new file is read only if it has one of these sizes.

A plan names the file with the marks that hold once it is committed, and what follows takes the name
over (`placed`); a file that no commit names means nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.conversion.row_keys import NOWHERE
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import seal, unseal
from tfrecorder.format.plan_columns import BASE, source_of
from tfrecorder.plan.plan import Plan
from tfrecorder.reading.commits import Commit
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Image
from tfrecorder.sources.places import column_places, places
from tfrecorder.sources.table import Source

#: Digits of a hash: 64 bits, which no row of a million shares with one of a million by chance.
_BYTES = 8


class Picture(NamedTuple):
    """An image of a row that may have been removed.

    Attributes:
        place: as `sources.places` makes it; "" without one.
        data: gives its bytes, if they are not to be read from this place.
        size: of these bytes.
    """

    place: str
    data: Callable[[], bytes] | None = None
    size: int | None = None

    def stated_size(self) -> int | None:
        """Its size; None if the file is not there."""
        return storage.size_or_none(self.place) if self.data is None else self.size

    def sums(self) -> tuple[int, int] | None:
        """Its size and CRC32C; None if the file cannot be read."""
        if self.data is not None:
            data = self.data()
            return len(data), google_crc32c.value(data)
        try:
            return storage.sums(self.place)
        except storage.UnreadableError:
            return None


@dataclass(frozen=True)
class Marks:
    """What is known of the rows that were removed from a dataset.

    Attributes:
        salt: of all hashes; a dataset has one.
        places: hashes of the places of a row's images.
        contents: hashes of their sizes and CRC32Cs.
        sizes: of the first image of each row.
    """

    salt: str = dataclasses.field(default_factory=partial(secrets.token_hex, 16))
    places: frozenset[str] = frozenset()
    contents: frozenset[str] = frozenset()
    sizes: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.places or self.contents)

    def marking(self, rows: pa.Table, fields: Sequence[Field]) -> Marks:
        """These marks, and those of some rows of a dataset.

        Args:
            rows: with all columns of the tables of shards.
            fields: the columns of the dataset.
        """
        images = sorted((f for f in fields if isinstance(f.kind, Image)), key=lambda f: f.column)
        by_place, by_bytes, sizes = set[str](), set[str](), set[int]()
        for base in rows.column(BASE).unique().to_pylist() if images else ():
            part = rows.filter(pc.equal(rows.column(BASE), base))
            of_rows = [_known_places(part, field, base) for field in images]
            by_place |= {self._hash(row) for row in zip(*of_rows, strict=True) if None not in row}
            of_files = [name for field in images for name in source_of(field)[:2]]
            sums = [part.column(name).to_pylist() for name in of_files]
            read = [row for row in zip(*sums, strict=True) if None not in row]
            by_bytes |= set(map(self._hash, read))
            sizes |= {row[0] for row in read}
        return Marks(
            self.salt, self.places | by_place, self.contents | by_bytes, self.sizes | sizes
        )

    def found(self, row: Sequence[Picture], every: bool = False) -> frozenset[str]:
        """The marks of a row, by its images; none for a row that was not removed.

        Args:
            every: look at the bytes also if the places say enough.
        """
        if not row or not all(image.place for image in row):
            return frozenset()
        found = {self._hash([image.place for image in row])} & self.places
        if (every or not found) and self.sizes and row[0].stated_size() in self.sizes:
            sums = [image.sums() for image in row]
            known = [value for of_image in sums if of_image is not None for value in of_image]
            if None not in sums:
                found |= {self._hash(known)} & self.contents
        return frozenset(found)

    def without(self, marks: frozenset[str]) -> Marks:
        """These marks without those of rows that come back."""
        places, contents = self.places - marks, self.contents - marks
        return dataclasses.replace(self, places=places, contents=contents)

    def sift(self, table: Source, readmit: bool = False) -> tuple[np.ndarray, Marks]:
        """True for each row of a table that was not removed; and the marks once it is in.

        Args:
            readmit: rows that were removed are let in, and lose their marks.
        """
        names = sorted(name for name in table.schema.of(Image) if name in table.frame)
        rows = table.frame.index.to_list()
        if not self or not names or not rows:
            return np.ones(len(rows), bool), self
        of_columns = [_pictures(table, name) for name in names]
        pictures = list(zip(*of_columns, strict=True))
        somewhere = next((image.place for row in pictures for image in row if image.place), "")
        found = storage.each(partial(self.found, every=readmit), pictures, somewhere)
        stays = np.array([readmit or not marks for marks in found])
        return stays, self.without(frozenset().union(*found)) if readmit else self

    def publish(self, where: str, plan: Plan) -> Plan:
        """Write these marks into a directory; the plan with whose commit they hold names them."""
        values = {**dataclasses.asdict(self), "salt": self.salt}
        data = seal({name: v if name == "salt" else sorted(v) for name, v in values.items()})
        name = layout.removed(plan.commit, hashlib.sha256(data).hexdigest())
        storage.publish_bytes(where, name, data, lasting=True)
        return dataclasses.replace(plan, removed=name)

    def _hash(self, values: Sequence[Any]) -> str:
        text = "\0".join(map(str, values)).encode(errors="surrogateescape")
        return hashlib.blake2b(text, key=self.salt.encode(), digest_size=_BYTES).hexdigest()


def read_marks(where: str, newest: Commit | None) -> Marks:
    """The marks of a dataset as of its newest commit.

    Raises:
        DatasetError: they cannot be read, or are damaged.
    """
    name = "" if newest is None else newest.manifest.get("removed", "")
    if not name:
        return Marks()
    path = os.path.join(where, name)
    try:
        values = unseal(storage.read_bytes(path))
    except (storage.UnreadableError, ValueError) as error:
        raise DatasetError(
            f"{path} cannot be read: {error}. It says which rows were removed and must not come "
            "back. Copy it again from where it is whole, or convert into another directory."
        ) from error
    sets = {name: frozenset(values[name]) for name in ("places", "contents", "sizes")}
    return Marks(values["salt"], **sets)


def _known_places(rows: pa.Table, field: Field, base: str) -> list[str | None]:
    """The places of a dataset's images; None where nobody knows the folder any more."""
    has = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    wholes = places(has[field.uri_key], base or NOWHERE, has.get(field.spool_key)).to_pylist()
    return [place if base or not place.startswith(NOWHERE) else None for place in wholes]


def _pictures(table: Source, name: str) -> Iterator[Picture]:
    """The images of a column of a source."""
    contents = table.contents.get(name)
    of_rows = column_places(table, name).fill_null("").to_pylist()
    for row, place in zip(table.frame.index.to_list(), of_rows, strict=True):
        if contents is None or not contents.holds(row):
            yield Picture(place)
        else:
            yield Picture(place, partial(contents.file, row), int(contents.sizes[row]))
