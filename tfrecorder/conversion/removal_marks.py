"""Marks of rows that were removed from a dataset, by which they are known if they come again.

A mark is a salted hash: of the places of a row's images, or of the sizes and CRC32Cs of their
bytes, so that neither a name nor a place of what was removed is kept.  The size of its images
stands beside them in the clear: new files are read only if they have one of these sizes.  Hashes of
uris tell a removal that is repeated what was removed before.

A plan names the file with the marks that hold once it is committed, and what follows takes the name
over (`as_next_commit`); a file that no commit names means nothing.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.conversion.row_keys import (
    content_keys,
    joined_texts,
    keys_of,
    stored_content_keys,
    stored_total_sizes,
    total_sizes,
)
from tfrecorder.core.arrays import Bools
from tfrecorder.core.option import spelled
from tfrecorder.display.tables import class_words, counted
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import seal, unseal
from tfrecorder.format.manifest import Loss
from tfrecorder.format.plan import Plan
from tfrecorder.reading.commits import Commit
from tfrecorder.schema.fields import Field, image_fields
from tfrecorder.schema.kinds import File, Image
from tfrecorder.sources.named_files import FileSums, file_sums_of
from tfrecorder.sources.table import Source

if TYPE_CHECKING:
    from tfrecorder.conversion.changed_rows import StoredRows

#: Digits of a hash: 64 bits, which no row of a million shares with one of a million by chance.
_BYTES = 8

#: So many records with the same bytes are named.
_NAMED = 10

#: The sets of a `Marks`.
_SETS = ("places", "contents", "sizes")


@dataclass(frozen=True)
class Marks:
    """What is known of the rows that were removed from a dataset.

    Attributes:
        salt: of all hashes; a dataset has one.
        places: hashes of the places of a row's images.
        contents: hashes of their sizes and CRC32Cs.
        sizes: of all images of each row together.
        names: by the hash of each uri of a row's images the hash of their sizes and CRC32Cs; "" if
            nobody knew these.
    """

    salt: str = dataclasses.field(default_factory=partial(secrets.token_hex, 16))
    places: frozenset[str] = frozenset()
    contents: frozenset[str] = frozenset()
    sizes: frozenset[int] = frozenset()
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.places or self.contents)

    def marking(
        self,
        rows: pa.Table,
        fields: Sequence[Field],
    ) -> Marks:
        """These marks, and those of some rows of a dataset.

        Args:
            rows: with all columns of the tables of shards.
            fields: the columns of the dataset.
        """
        images = _sorted_images(fields)
        if not images:
            return self
        places = self._hashes(keys_of(rows, images))
        contents = self._hashes(stored_content_keys(rows, images))
        sizes = stored_total_sizes(rows, images).drop_null().to_pylist()
        names = dict(self.names)
        for image in images:
            names |= zip(self._hashes(rows.column(image.uri_key)), contents, strict=True)
        return Marks(
            salt=self.salt,
            places=self.places.union(places) - {""},
            contents=self.contents.union(contents) - {""},
            sizes=self.sizes.union(sizes),
            names=names,
        )

    def __contains__(self, value: object) -> bool:
        """True for a uri of an image that was removed, which may have come in again."""
        return isinstance(value, str) and self._hash(value) in self.names

    def taken(
        self,
        stored: StoredRows,
        fields: Sequence[Field],
        named: Bools,
        repeated: Sequence[str],
        copies: bool,
    ) -> tuple[Bools, tuple[str, ...]]:
        """The rows that a further removal takes, one of each number; and what to say of them.

        Args:
            fields: the columns of the dataset.
            named: those that are asked for.
            repeated: uris that are asked for too, and were removed before.
            copies: records with the same bytes go too; otherwise they are named.
        """
        same = np.zeros(len(named), bool)
        images = _sorted_images(fields)
        if images:
            keys = stored_content_keys(stored.rows, images)
            of_named = keys.filter(pa.array(named))
            same |= np.asarray(pc.is_in(keys, value_set=of_named, skip_nulls=True))
            if repeated:
                wanted = frozenset(self.names[self._hash(uri)] for uri in repeated) - {""}
                same |= _are_in(wanted, self._hashes(keys))
            same &= stored.has_record & ~named
        taken = named | same if copies else named
        notes = unmarked_words(stored.rows.filter(pa.array(taken)), fields)
        if images:
            others = stored.has_record & ~taken
            asked = keys.filter(pa.array(taken))
            unknown = others & np.asarray(keys.is_null()) if asked.null_count == 0 else others
            notes += _not_compared_words(int(unknown.sum()))
        if copies and same.any():
            notes.append(f"copies with the same bytes go too: {same.sum():,}")
        elif same.any():
            uris = stored.rows.column(images[0].uri_key).filter(pa.array(same)).to_pylist()
            words = f"copies with the same bytes stay, {class_words(uris, _NAMED)}"
            notes.append(f"{words}; the option for copies removes them too")
        return taken, tuple(notes)

    def matches(
        self,
        images: Sequence[FileSums],
        every: bool = False,
    ) -> tuple[Bools, frozenset[str]]:
        """True for each row that was removed, by its images; and the marks of all of these.

        Args:
            every: look at the bytes also of rows whose places say enough.

        Raises:
            UnreachableError: a store does not answer.
        """
        places = self._hashes(joined_texts([of_file.places for of_file in images]))
        removed = _are_in(self.places, places)
        asked = np.isin(total_sizes(images), [*self.sizes]) & (every | ~removed)
        contents = self._hashes(content_keys(images, asked))
        removed |= _are_in(self.contents, contents)
        return removed, self.places.intersection(places) | self.contents.intersection(contents)

    def sift(
        self,
        table: Source,
        readmit: bool = False,
    ) -> tuple[Bools, Marks | None]:
        """True for each row of a table that was not removed; and the marks once they are in.

        Args:
            readmit: rows that were removed are let in, and lose their marks.

        Returns:
            The rows; and None if the marks stay as they are.

        Raises:
            UnreachableError: a store does not answer.
        """
        names = sorted(name for name in table.schema.of(Image, File) if name in table.frame)
        if not self or not names:
            return np.ones(len(table.frame), bool), None
        removed, marks = self.matches([file_sums_of(table, name) for name in names], every=readmit)
        return ~removed | readmit, self.without(marks) if readmit and marks else None

    def without(self, marks: frozenset[str]) -> Marks:
        """These marks without those of rows that come back."""
        places = self.places - marks
        contents = self.contents - marks
        return dataclasses.replace(self, places=places, contents=contents)

    def publish(
        self,
        where: str,
        plan: Plan,
    ) -> Plan:
        """Write these marks into a directory; the plan with whose commit they hold names them."""
        sets = {name: sorted(getattr(self, name)) for name in _SETS}
        data = seal({"salt": self.salt, "names": dict(sorted(self.names.items())), **sets})
        name = layout.removed(plan.commit, hashlib.sha256(data).hexdigest())
        storage.publish_bytes(where, name, data, lasting=True)
        return plan.carrying(marks=name)

    def _hashes(self, keys: pa.Array) -> list[str]:
        """A hash of each key; "" of a null."""
        return ["" if text is None else self._hash(text) for text in keys.to_pylist()]

    def _hash(self, text: str) -> str:
        data = text.encode(errors="surrogatepass")
        return hashlib.blake2b(data, key=self.salt.encode(), digest_size=_BYTES).hexdigest()


def _sorted_images(fields: Sequence[Field]) -> list[Field]:
    """The columns by whose files a row is known, in one order, however they were given."""
    return sorted(image_fields(fields), key=lambda field: field.column)


def _are_in(marks: frozenset[str], hashes: Sequence[str]) -> Bools:
    return np.fromiter(map(marks.__contains__, hashes), bool, len(hashes))


def refuse_lost_marks(
    where: str,
    newest: Commit,
    readmit: bool,
) -> None:
    """Ask where nobody knows any more which rows were removed.

    Args:
        readmit: rows that were removed are let in.

    Raises:
        DatasetError: they are not, and nobody knows which they are.
    """
    if Loss.MARKS.is_in(newest.plan.carried.losses) and not readmit:
        raise DatasetError(
            f"{where}: nobody knows any more which rows were removed from it, because the file "
            f"that told them was lost. Give {spelled('readmit', True)} to let in every row, also "
            "those that were removed; leave these out of the source if they must not come back."
        )


def unmarked_words(rows: pa.Table, fields: Sequence[Field]) -> list[str]:
    """What to say of removed rows without a mark: they have no image, or nobody knows what it was.

    Args:
        rows: one of each number, with all columns of the tables of shards.
        fields: the columns of the dataset.
    """
    images = _sorted_images(fields)
    if not len(rows):
        return []
    if not images:
        they = "it has" if len(rows) == 1 else "they have"
        return [f"{counted(len(rows), 'removed row')} may come in again: {they} no image"]
    has_no_place = np.asarray(pc.is_null(keys_of(rows, images)))
    has_no_content = np.asarray(pc.is_null(stored_content_keys(rows, images)))
    words = []
    if count := (has_no_place & has_no_content).sum():
        they = "it was or what bytes it" if count == 1 else "they were or what bytes they"
        removed = counted(count, "removed image")
        words.append(f"{removed} may come in again: nothing says where {they} had")
    if count := (~has_no_place & has_no_content).sum():
        they = "it" if count == 1 else "they"
        name = "another name" if count == 1 else "other names"
        removed = counted(count, "removed image")
        words.append(
            f"{removed} may come in again under {name}: nothing says what bytes {they} had"
        )
    return words


def _not_compared_words(count: int) -> list[str]:
    """What to say of images that may be copies of removed ones, by a count of them."""
    if not count:
        return []
    are = "is" if count == 1 else "are"
    images = counted(count, "image")
    return [f"{images} {are} not compared: nothing says what bytes these or the removed ones had"]


def without_rows(table: Source, out: pd.DataFrame) -> Source:
    """A table without some of its rows, nor the rows of further boxes on their images."""
    files = [name for name in table.schema.of(Image, File) if name in table.frame]
    every = pd.MultiIndex.from_frame(table.frame[files])
    left_out = pd.MultiIndex.from_frame(out[files])
    return table.only(~every.isin(left_out))


def read_marks(where: str, newest: Commit | None) -> Marks:
    """The marks of a dataset as of its newest commit.

    Raises:
        DatasetError: they cannot be read, or are damaged.
    """
    name = "" if newest is None else newest.plan.carried.marks
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
    sets = {name: frozenset(values[name]) for name in _SETS}
    return Marks(
        values["salt"],
        names=values.get("names", {}),
        **sets,
    )  # an earlier version has none
