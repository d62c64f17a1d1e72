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

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.changed_rows import StoredRows
from tfrecorder.conversion.row_keys import joined_texts, keys_of, partners
from tfrecorder.core.arrays import Bools, Ints
from tfrecorder.core.wording import spelled
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import SourceError
from tfrecorder.format.plan_columns import BASE, source_of
from tfrecorder.plan.preflight import before_the_launch
from tfrecorder.reading.shard_tables import columns_of
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.kinds import Mask
from tfrecorder.sources.file_sums import file_sums_of
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
) -> Pairs:
    """Find the row of a dataset that each row of a table is.

    Of several rows with the same uris, the first is the first.

    Args:
        table: with its numbers, as `with_numbers` compared them.
        has_base: the user said from which folder relative uris of the table start.
        values: of the table, by which rows without images or other files are known.

    Raises:
        DatasetError: the folder that a relative uri starts from is needed, and nobody noted it.
        SourceError: two rows have one number, or only the user knows what a row is.
    """
    files = file_fields(fields)
    images = _images(fields)
    found = _Found(stored, np.full(len(table.frame), -1), stored.is_newest.copy())
    if table.numbers is not None:
        numbers = table.numbers.to_numpy()
        _refuse_doubles(table.numbers)
        found.pair(pa.array(stored.numbers), pa.array(numbers, mask=numbers < 0))
    by_number = found.places >= 0
    # With another mask, it is a correction of the row with the image.
    for compared in [files, images] if len(files) > len(images) > 0 else [files]:
        if (found.places < 0).any():
            names = [] if files else sorted(values)
            keys = [column_places(table, field.column) for field in compared]
            keys += [values[name] for name in names]
            of_stored = keys_of(stored.rows, compared, names, stored.where)
            found.pair(of_stored, joined_texts(keys))
    by_place = ~by_number & (found.places >= 0)
    if images and (found.places < 0).any():
        _by_spelling(found, table, images, has_base)
    return _pairs(found.places, by_place, stored, table, fields, has_base)


@dataclass
class _Found:
    """What was found so far.

    Attributes:
        places: as in `Pairs`.
        free: which rows of the dataset no row of the table is yet.
    """

    stored: StoredRows
    places: Ints
    free: Bools

    def candidates(self, of_stored: pa.Array, keys: pa.Array) -> tuple[Ints, Ints]:
        """The rows of the table without one; and for each a free one with its key, or -1."""
        free = np.flatnonzero(self.free)
        free = free[np.argsort(self.stored.numbers[free], kind="stable")]
        wanted = np.flatnonzero(self.places < 0)
        matches = partners(keys.take(pa.array(wanted)), of_stored.take(pa.array(free)))
        return wanted, np.append(free, -1)[matches]

    def pair(self, of_stored: pa.Array, keys: pa.Array) -> None:
        """Give each row of the table without one a free one with the same key."""
        wanted, places = self.candidates(of_stored, keys)
        self.take(wanted, places)

    def take(self, rows: Ints, places: Ints) -> None:
        self.places[rows] = places
        self.free[places[places >= 0]] = False


def with_numbers(table: Source, rows: pa.Table, fields: Sequence[Field]) -> Source:
    """A table with the numbers of those of its rows that are these rows of a dataset.

    Their uris agree, as texts or by their places; or the bytes, of images that came as such.

    Args:
        rows: of the dataset, one of each number.
        fields: its columns.
    """
    images = _images(fields)
    if table.stated is None or not images or not {f.column for f in images} <= {*table.frame}:
        return table
    stated = table.stated.to_numpy()
    known = pc.index_in(pa.array(stated), value_set=rows.column(SOURCE_ID).combine_chunks())
    places = pc.fill_null(known, -1).to_numpy()
    is_known = places >= 0
    here = table.only(is_known)
    there = rows.take(pa.array(places[is_known]))
    numbers = np.full(len(stated), -1)
    agrees = _are_spelled_alike(here, there, images) | _are_in_one_place(here, there, images)
    agrees |= _came_with_the_bytes(here, there, images)
    numbers[is_known] = np.where(agrees, stated[is_known], -1)
    return dataclasses.replace(table, numbers=pd.Series(numbers, table.frame.index))


def _images(fields: Sequence[Field]) -> list[Field]:
    return [field for field in file_fields(fields) if not isinstance(field.kind, Mask)]


def _refuse_doubles(numbers: pd.Series[int]) -> None:
    again = numbers[(numbers >= 0) & numbers.duplicated(keep=False)]
    if len(again):
        first = again[again == again.iloc[0]]
        raise SourceError(
            f"the rows {', '.join(map(str, first.index[:3]))} of the table are all the row "
            f"{first.iloc[0]} of the dataset. Drop all but one. Nothing was written."
        )


def _are_spelled_alike(here: Source, there: pa.Table, fields: Sequence[Field]) -> Bools:
    """True for each row of a table whose uris are texts of the row of a dataset beside it."""
    alike = np.ones(len(there), bool)
    for field in fields:
        alike &= _equal(column_uris(here, field.column), there.column(field.uri_key))
    return alike


def _are_in_one_place(here: Source, there: pa.Table, fields: Sequence[Field]) -> Bools:
    """True for each row of a table whose files are those of the row of a dataset beside it."""
    columns = columns_of(there)
    alike = np.ones(len(there), bool)
    for field in fields:
        spooled = columns.get(field.spool_key)
        places = known_places(columns[field.uri_key], columns[BASE], spooled)
        alike &= _equal(column_places(here, field.column), places)
    return alike


def _came_with_the_bytes(here: Source, there: pa.Table, fields: Sequence[Field]) -> Bools:
    """True for each row of a table whose images came as bytes, which the row beside it had."""
    rows = here.frame.index.to_numpy()
    alike = np.ones(len(there), bool)
    for field in fields:
        contents = here.contents.get(field.column)
        if contents is None:
            return np.zeros(len(there), bool)
        of = source_of(field)
        alike &= _equal(pa.array(contents.sizes[rows]), there.column(of.bytes))
        alike &= _equal(pa.array(contents.crcs[rows]), there.column(of.crc32c))
    return alike


def _equal(ones: pa.Array, others: pa.Array) -> Bools:
    return np.asarray(pc.fill_null(pc.equal(ones, others), False))


def _by_spelling(found: _Found, table: Source, images: Sequence[Field], has_base: bool) -> None:
    """Pair rows with the same uris in other places: these may be gone, or copies.

    Raises:
        SourceError: files of some have other bytes, and the user did not say where they are.
    """
    columns = columns_of(found.stored.rows.select([field.uri_key for field in images]))
    uris = [column_uris(table, field.column) for field in images]
    rows, places = found.candidates(joined_texts([*columns.values()]), joined_texts(uris))
    for field in images:
        contents = table.contents.get(field.column)
        if contents is not None:  # bytes say themselves what they are
            places[contents.holds(table.frame.index.to_numpy()[rows])] = -1
    rows = rows[places >= 0]
    places = places[places >= 0]
    is_row = np.zeros(len(table.frame), bool)
    is_row[rows] = True
    here = table.only(is_row)
    there = found.stored.rows.take(pa.array(places))
    same = _are_gone_or_copies(here, there, images)
    if not same.all() and not has_base:
        other = np.flatnonzero(~same)
        raise SourceError(_question(here.only(~same), there.take(pa.array(other)), images[0]))
    found.take(rows[same], places[same])


def _are_gone_or_copies(here: Source, there: pa.Table, images: Sequence[Field]) -> Bools:
    """True for each row of a table that names no other files than the row beside it was made of."""
    same = np.ones(len(there), bool)
    for field in images if len(there) else ():
        of = source_of(field)
        with before_the_launch():
            of_files = file_sums_of(here, field.column)
            is_copy = _equal(pa.array(of_files.sizes), there.column(of.bytes))
            crcs = of_files.crcs(is_copy & same)
        is_copy &= _equal(pa.array(crcs), there.column(of.crc32c))
        same &= is_copy | (of_files.sizes < 0)
    return same


def _question(here: Source, there: pa.Table, image: Field) -> str:
    """What only the user knows of rows whose files are not those of the dataset."""
    columns = columns_of(there)
    uris = columns[image.uri_key]
    came = image.spool_key in columns and columns[image.spool_key][0].as_py()
    then = known_places(uris, columns[BASE])[0].as_py()
    if came or then is None:
        then = "given as bytes" if came else "in a place that nobody noted"
        remedy = "Leave the rows the column `row` of `to_frame`"
    else:
        remedy = f"Give {spelled('base', columns[BASE][0].as_py())}"
    now = column_places(here, image.column)[0].as_py()
    return (
        f"{counted(len(there), 'row')} may be in the dataset or new: {cut(uris[0].as_py())!r} is "
        f"{now} here, with other bytes than in the dataset, where it was {then}. {remedy} if these "
        f"are the same images, {spelled('base', here.base)} if they are others. "
        "Nothing was written."
    )


def _pairs(
    places: Ints,
    by_place: Bools,
    stored: StoredRows,
    table: Source,
    fields: Sequence[Field],
    has_base: bool,
) -> Pairs:
    """The pairs, with what differs in their files."""
    is_old = places >= 0
    here = table.only(is_old)
    there = stored.rows.take(pa.array(places[is_old]))
    # What is known by its spelling has masks, too, where they were.
    by_spelling = ~by_place[is_old]
    stays = by_spelling & _are_spelled_alike(here, there, _images(fields)) & (not has_base)
    remade = np.zeros(len(places), bool)
    for mask in file_fields(fields):
        if isinstance(mask.kind, Mask):
            alike = _are_spelled_alike(here, there, [mask])
            same = alike & by_spelling | _are_in_one_place(here, there, [mask])
            if (asked := alike & ~same).any():
                some = there.filter(pa.array(asked))
                same[asked] = _are_gone_or_copies(here.only(asked), some, [mask])
            remade[is_old] |= ~same
    own = pa.scalar(table.base, pa.large_string())
    bases = np.full(len(places), table.base, object)
    bases[is_old] = pc.if_else(pa.array(stays), there.column(BASE), own).to_numpy()
    return Pairs(places, pa.array(bases, pa.large_string()), remade)
