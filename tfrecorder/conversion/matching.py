"""Which row of a dataset is a row of a table.

In this order: the one with its number, as `to_frame` states it, if also the uris agree; the one
whose images and masks are in the same places; the one whose uris are spelled the same, if the files
are gone from the places that they name in the table, or have the bytes of those of the dataset.  If
they have others, only the user knows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.changed_rows import StoredRows
from tfrecorder.conversion.row_keys import (
    content_keys,
    joined_texts,
    keys_of,
    partners,
    stored_content_keys,
    stored_total_sizes,
    total_sizes,
)
from tfrecorder.core.arrays import Bools, Ints
from tfrecorder.core.option import spelled
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import SourceError
from tfrecorder.format.layout import BASE
from tfrecorder.plan.preflight import before_the_launch
from tfrecorder.schema.fields import Field, file_fields, image_fields
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.sources.named_files import file_sums_of
from tfrecorder.sources.places import column_places, column_uris, known_places
from tfrecorder.sources.table import Source


@dataclass(frozen=True)
class Pairs:
    """The rows of a dataset that the rows of a table are.

    Attributes:
        places: for each row of the table, its place among the rows of the dataset; -1 for a new
            one.
        bases: the folder that its relative uris start from.
        remade: which rows have another mask.
    """

    places: Ints
    bases: pa.Array
    remade: Bools


def match_rows(
    stored: StoredRows,
    table: Source,
    fields: Sequence[Field],
    has_base: bool,
    values: Mapping[str, pa.Array],
    takes_base: bool = True,
) -> Pairs:
    """Find the row of a dataset that each row of a table is.

    Of several rows with the same uris, the first is the first.

    Args:
        table: with its numbers, as `with_numbers` compared them.
        has_base: the user said from which folder relative uris of the table start.
        values: of the table, by which rows without images or other files are known.
        takes_base: the call has such an option.

    Raises:
        DatasetError: the folder that a relative uri starts from is needed, and nobody noted it.
        SourceError: two rows have one number, or only the user knows what a row is.
    """
    matching = _Matching(stored, table, fields)
    matching.by_number()
    by_place = matching.by_place(values)
    if matching.images:
        matching.by_spelling(has_base, takes_base)
    found = matching.found()
    bases = [table.base] * len(by_place)
    if matching.images and not has_base:
        bases = matching.bases(found, by_place)
    remade = matching.remade(found, by_place)
    return Pairs(matching.places, pa.array(bases, pa.large_string()), remade)


class _Found(NamedTuple):
    """Which rows of a table were found; and they, with the rows of the dataset beside them."""

    is_old: Bools
    here: Source
    there: pa.Table


class _Matching:
    """The rows of a dataset that those of a table are, as far as they are found by now."""

    def __init__(
        self,
        stored: StoredRows,
        table: Source,
        fields: Sequence[Field],
    ) -> None:
        self._stored = stored
        self._table = table
        self._files = file_fields(fields)
        self.images = image_fields(self._files)
        self.places: Ints = np.full(len(table.frame), -1)

    def by_number(self) -> None:
        """Find rows by the numbers that they state."""
        if self._table.numbers is None:
            return
        numbers = self._table.numbers
        _refuse_doubles(numbers)
        of_table = pa.array(numbers.to_numpy(), mask=(numbers < 0).to_numpy())
        self._pair(pa.array(self._stored.numbers), of_table)

    def by_place(self, values: Mapping[str, pa.Array]) -> Bools:
        """Find rows by the places of their files, or by their values; True for those found so."""
        files = self._files
        names = [] if files else sorted(values)
        was_open = self.places < 0
        comparisons = [files]
        if len(files) > len(self.images) > 0:
            # With another mask, it is a correction of the row with the image.
            comparisons.append(self.images)
        for compared in comparisons:
            if (self.places < 0).any():
                of_stored = keys_of(self._stored.rows, compared, names, self._stored.where)
                keys = [_places(self._table, field) for field in compared]
                keys += [values[name] for name in names]
                self._pair(of_stored, joined_texts(keys))
        return was_open & (self.places >= 0)

    def by_spelling(
        self,
        has_base: bool,
        takes_base: bool,
    ) -> None:
        """Find rows by their uris, where no file says that they are others.

        Raises:
            SourceError: files say so, and the user did not say from which folder uris start.
        """
        was_open = self.places < 0
        if not was_open.any():
            return
        of_stored = _stored_uris(self._stored.rows, self.images)
        self._pair(of_stored, _uris(self._table, self.images))
        found = was_open & (self.places >= 0)
        here = self._table.only(found)
        there = self._stored.rows.take(pa.array(self.places[found]))
        same = _are_gone_or_copies(here, there, self.images)
        if not same.all() and not has_base:
            there = there.filter(pa.array(~same))
            words = _question(here.only(~same), there, self.images[0], takes_base=takes_base)
            raise SourceError(words)
        self.places[np.flatnonzero(found)[~same]] = -1

    def found(self) -> _Found:
        """What was found by now."""
        is_old = self.places >= 0
        there = self._stored.rows.take(pa.array(self.places[is_old]))
        return _Found(is_old, self._table.only(is_old), there)

    def remade(
        self,
        found: _Found,
        by_place: Bools,
    ) -> Bools:
        """Which rows have another mask.

        Args:
            by_place: those that were found by the places of their files.
        """
        remade = np.zeros(len(self.places), bool)
        masks = [field for field in self._files if field not in self.images]
        if masks:
            is_old, here, there = found
            alike = _equal(_uris(here, masks), _stored_uris(there, masks))
            # What is known by its spelling has masks, too, where they were.
            same = alike & ~by_place[is_old] | _are_in_one_place(here, there, masks)
            asked = alike & ~same
            there = there.filter(pa.array(asked))
            same[asked] = _are_gone_or_copies(here.only(asked), there, masks)
            remade[is_old] = ~same
        return remade

    def bases(
        self,
        found: _Found,
        by_place: Bools,
    ) -> list[str]:
        """The folder of each row: that of the dataset's row, if it was not found by its place."""
        is_old, here, there = found
        stays = _equal(_uris(here, self.images), _stored_uris(there, self.images))
        stays &= ~by_place[is_old]
        bases = np.full(len(self.places), self._table.base, object)
        kept = there.column(BASE).filter(pa.array(stays))
        bases[np.flatnonzero(is_old)[stays]] = kept.to_pylist()
        return list(bases)

    def _pair(
        self,
        of_stored: pa.Array,
        keys: pa.Array,
    ) -> None:
        """Give each row of the table without one a row of the dataset with the same key."""
        is_free = self._stored.is_newest.copy()
        is_free[self.places[self.places >= 0]] = False
        free = np.flatnonzero(is_free)
        free = free[np.argsort(self._stored.numbers[free], kind="stable")]
        wanted = np.flatnonzero(self.places < 0)
        matches = partners(keys.take(pa.array(wanted)), of_stored.take(pa.array(free)))
        self.places[wanted] = np.append(free, -1)[matches]


def with_numbers(
    table: Source,
    rows: pa.Table,
    fields: Sequence[Field],
) -> Source:
    """A table with the numbers of those of its rows that are these rows of a dataset.

    Their uris agree, as texts or by their places; or the bytes, of images that came as such.

    Args:
        rows: of the dataset, one of each number.
        fields: its columns.
    """
    images = image_fields(fields)
    columns = {field.column for field in images}
    if table.stated is None or not columns or not columns <= {*table.frame}:
        return table
    stated = table.stated.to_numpy()
    known = pc.index_in(pa.array(stated), value_set=rows.column(SOURCE_ID).combine_chunks())
    is_known = np.asarray(known.is_valid())
    here = table.only(is_known)
    there = rows.take(known.drop_null())
    agrees = _equal(_uris(here, images), _stored_uris(there, images))
    agrees |= _are_in_one_place(here, there, images)
    if columns <= {*here.contents}:
        agrees |= _are_copies(here, there, images)
    numbers = np.full(len(stated), -1)
    numbers[is_known] = np.where(agrees, stated[is_known], -1)
    return dataclasses.replace(table, numbers=pd.Series(numbers, table.frame.index))


def _refuse_doubles(numbers: pd.Series[int]) -> None:
    again = numbers[(numbers >= 0) & numbers.duplicated(keep=False)]
    if len(again):
        first = again[again == again.iloc[0]]
        raise SourceError(
            f"the rows {', '.join(map(str, first.index[:3]))} of the table are all the row "
            f"{first.iloc[0]} of the dataset. Drop all but one. Nothing was written."
        )


def _places(table: Source, field: Field) -> pa.Array:
    return column_places(table, field.column)


def _uris(table: Source, fields: Sequence[Field]) -> pa.Array:
    return joined_texts([column_uris(table, field.column) for field in fields])


def _stored_uris(rows: pa.Table, fields: Sequence[Field]) -> pa.Array:
    return joined_texts([rows.column(field.uri_key).combine_chunks() for field in fields])


def _are_in_one_place(
    here: Source,
    there: pa.Table,
    fields: Sequence[Field],
) -> Bools:
    """True for each row of a table whose files are those of the row of a dataset beside it."""
    return _equal(joined_texts([_places(here, f) for f in fields]), keys_of(there, fields))


def _are_copies(
    here: Source,
    there: pa.Table,
    fields: Sequence[Field],
) -> Bools:
    """True for each row of a table whose files have the bytes of the row beside it."""
    with before_the_launch():
        sums = [file_sums_of(here, field.column) for field in fields]
        alike = _equal(pa.array(total_sizes(sums)), stored_total_sizes(there, fields))
        return _equal(content_keys(sums, alike), stored_content_keys(there, fields))


def _are_gone_or_copies(
    here: Source,
    there: pa.Table,
    fields: Sequence[Field],
) -> Bools:
    """True for each row of a table that names no other files than the row beside it was made of."""
    if not len(there):
        return np.zeros(0, bool)
    with before_the_launch():
        sizes = [file_sums_of(here, field.column).sizes for field in fields]
    return np.all(np.array(sizes) < 0, axis=0) | _are_copies(here, there, fields)


def _equal(ones: pa.Array, others: pa.Array) -> Bools:
    return np.array(pc.fill_null(pc.equal(ones, others), False))


def _question(
    here: Source,
    there: pa.Table,
    image: Field,
    *,
    takes_base: bool,
) -> str:
    """What only the user knows of rows whose files are not those of the dataset."""
    then = known_places(*(there.column(name).combine_chunks() for name in (image.uri_key, BASE)))
    base = there.column(BASE)[0].as_py()
    remedy = "Give the column `row` of `to_frame` if these are the same images"
    if takes_base:
        remedy = (
            f"Give {spelled('base', base)} if these are the same images, or the column `row` of "
            f"`to_frame`; {spelled('base', here.base)} if they are others"
        )
    return (
        f"{counted(len(there), 'row')} may be in the dataset or new: "
        f"{cut(there.column(image.uri_key)[0].as_py())!r} is {_places(here, image)[0]} here, with "
        f"other bytes than in the dataset, where it was {then[0].as_py() or 'nobody knows where'}. "
        f"{remedy}. Nothing was written."
    )
