"""Which rows of a table are already in a dataset, or were removed from it.

They are known by their numbers, by the places of their images, by their bytes, or by all values of
a row without images.  The tables of the shards hold what is known of records and of rejects; it
stays in Arrow, where a million rows are searched in a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.matching import with_numbers
from tfrecorder.conversion.removal_marks import Marks, read_marks, refuse_lost_marks
from tfrecorder.conversion.row_keys import (
    findings_of,
    joined_texts,
    keys_of,
    names_of_keys,
    partners,
    same_bytes,
)
from tfrecorder.conversion.same_schema import named_classes
from tfrecorder.core.arrays import Bools, Ints, Pixels
from tfrecorder.display.tables import cut
from tfrecorder.format.layout import REJECT_OF, source_of
from tfrecorder.images.fingerprint import Fingerprint
from tfrecorder.images.near_copies import picture_of
from tfrecorder.inspection.duplicates import looks_of
from tfrecorder.inspection.record_values import image_of
from tfrecorder.options.changes import AppendOptions
from tfrecorder.plan.preflight import before_the_launch
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.merged_rows import KEY, rows_with
from tfrecorder.reading.record_set import read_numbered
from tfrecorder.reading.shard_tables import columns_of, joined, types_of
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.keys import SOURCE_ID, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.places import column_places
from tfrecorder.sources.table import Source
from tfrecorder.validation.columns import has_faults
from tfrecorder.validation.images import KnownImages
from tfrecorder.validation.rules import Checked, check_source


class Sifted(NamedTuple):
    """A table without the rows that are in a dataset, or were removed from it.

    Attributes:
        table: the others.
        retried: for each row of the table the number that it has as a reject of the dataset, which
            is tried again; -1 for a new row.
        existing: the columns of the dataset.
        adding: what an append does with rows that are there.
        known: how many rows were left out because they are there.
        removed: how many because they were removed before.
        marks: of what was removed, once the table is in; None if they stay.
        findings: on rows that were left out.
        same: those of the table whose bytes are in the dataset, as `same_bytes` gives them; None if
            nobody looked, or they were left out.
    """

    table: Source
    retried: Ints
    existing: Sequence[Field]
    adding: AppendOptions
    known: int = 0
    removed: int = 0
    marks: Marks | None = None
    findings: tuple[Finding, ...] = ()
    same: pd.DataFrame | None = None

    def compared(self, checked: Checked) -> Checked:
        """The checked table, with what the comparison with the dataset finds."""
        findings = [*self.findings]
        if self.same is not None and SPLIT_COLUMN in checked.frame:
            findings += findings_of(self.same, checked.frame[SPLIT_COLUMN])
        findings += named_classes(self.existing, self.adding, checked)
        return checked.with_findings(findings)


def known_images(stored: StoredDataset) -> KnownImages:
    """The images of a dataset, to find near copies of them.

    Raises:
        DatasetError: nobody noted what they look like.
    """
    looks = looks_of(stored, named=True)
    looks.index -= len(looks)

    def read(places: Sequence[int]) -> Iterator[Pixels | None]:
        for split, rows in looks.loc[[*places]].groupby("split", sort=False):
            for record in read_numbered(stored, str(split), rows["number"]):
                yield picture_of(image_of(record.features, stored))

    known = looks[[*Fingerprint._fields, "content", "split", "row"]]
    return KnownImages(known, looks["uri"], read)


def pass_over_known(
    table: Source,
    directory: str,
    newest: Commit,
    fields: Sequence[Field],
    adding: AppendOptions,
) -> Sifted:
    """Leave out the rows of a table that are in a dataset, and those that were removed from it.

    A row is there if one row there has all its images and masks, each from the same place, or has
    its number, as `to_frame` states it, and its uris.  A row without images is there if one row
    there has all its values.

    Args:
        newest: the newest commit of the dataset.
        fields: the columns of the dataset.
        adding: what else is left out, or stays.

    Raises:
        DatasetError: a table cannot be read, or the folder of the images is not known, or which
            rows were removed.
        ImagesUnreachableError: the store of an image does not answer.
    """
    refuse_lost_marks(directory, newest, adding.readmit)
    files = file_fields(fields)
    rows = len(table.frame)
    is_old = np.zeros(rows, bool)
    retried = np.full(rows, -1)
    same = None
    findings: list[Finding] = []
    if not rows or not {field.column for field in files} <= {*table.frame}:
        return Sifted(table, retried, fields, adding)
    with before_the_launch():
        if adding.duplicates != "keep":
            is_old, retried, findings = _known(table, directory, newest, fields, adding)
        # What stays out is not compared with images that are there: what that finds is kept.
        enters, marks = read_marks(directory, newest).sift(table.only(~is_old), adding.readmit)
        is_removed = ~is_old
        is_removed[~is_old] = ~enters
        rest = table.only(~is_old & ~is_removed)
        if adding.duplicates != "keep" and files and len(rest.frame):
            same = same_bytes(rest, directory, newest, files)
        if same is not None and adding.duplicates == "content":
            is_old |= table.frame.index.isin(same["row"])
            findings += findings_of(same)
            same = None
    stays_out = is_old | is_removed
    return Sifted(
        table.only(~stays_out),
        retried[~stays_out],
        fields,
        adding,
        known=int(is_old.sum()),
        removed=int(is_removed.sum()),
        marks=marks,
        findings=tuple(findings),
        same=same,
    )


def _known(
    table: Source,
    directory: str,
    newest: Commit,
    fields: Sequence[Field],
    adding: AppendOptions,
) -> tuple[Bools, Ints, list[Finding]]:
    """True for each row that is there; the numbers of rejects, as in `Sifted`; what is to be said.

    Rows without files are known by all their values, if these have no fault.
    """
    files = file_fields(fields)
    keys = [column_places(table, field.column) for field in files]
    values: tuple[str, ...] = ()
    if not files and (checked := _checked(table, fields)) is not None:
        keys = [*checked.values.values()]
        values = (*checked.values,)
    is_own = np.zeros(len(table.frame), bool)
    if not keys:
        return is_own, np.full(len(is_own), -1), []
    key = joined_texts(keys)
    if files and table.stated is not None:
        is_own, own_keys = _by_number(table, directory, newest, fields)
        key = pc.if_else(pa.array(is_own), own_keys, key)
    needed = None if is_own.all() else directory
    of_keys = names_of_keys(files)
    types = types_of(directory, newest.dataset.splits)
    columns = [*dict.fromkeys([SOURCE_ID, REJECT_OF.reason, *of_keys, *types])]
    of_rows = partial(
        keys_of,
        files=files,
        values=values,
        directory=needed,
    )
    rows = joined([*rows_with(directory, newest, columns, of_rows, key, of_keys)])
    again = pc.and_(pc.not_equal(rows.column(REJECT_OF.reason), ""), adding.retry_rejects)
    sound = rows.filter(pc.invert(again))
    is_old = is_own | np.asarray(pc.is_in(key, value_set=sound.column(KEY), skip_nulls=True))
    # A reject may come twice.  Boxes that are rows of one image are one row of the dataset.
    rejects = rows.filter(again).group_by([KEY, SOURCE_ID]).aggregate([]).sort_by(SOURCE_ID)
    a_row_each = not any(field.gathered for field in fields)
    matches = partners(key, rejects.column(KEY).combine_chunks(), in_turn=a_row_each)
    retried = np.append(rejects.column(SOURCE_ID).to_numpy(), -1)[matches]
    findings = list[Finding]()
    if files and is_old.any():
        findings += _other_values(table.only(is_old), key, sound, fields)
    return is_old, retried, findings


def _by_number(
    table: Source,
    directory: str,
    newest: Commit,
    fields: Sequence[Field],
) -> tuple[Bools, pa.Array]:
    """True for each row that states the number of a record with its uris; and the keys of these."""
    files = file_fields(fields)
    of_bytes = [name for field in files for name in source_of(field)[:2]]
    columns = [SOURCE_ID, REJECT_OF.reason, *names_of_keys(files), *of_bytes]
    stated = pa.array(table.stated)
    rows = joined([*rows_with(directory, newest, columns, _numbers_of, stated)])
    rows = rows.filter(pc.equal(rows.column(REJECT_OF.reason), "")).combine_chunks()
    numbers = with_numbers(table, rows, fields).numbers
    if numbers is None:
        return np.zeros(len(stated), bool), pa.nulls(len(stated), pa.large_string())
    places = pc.index_in(pa.array(numbers), value_set=rows.column(SOURCE_ID).combine_chunks())
    return numbers.to_numpy() >= 0, keys_of(rows, files).take(places)


def _numbers_of(rows: pa.Table) -> pa.Array:
    return rows.column(SOURCE_ID)


def _other_values(
    table: Source,
    places: pa.Array,
    rows: pa.Table,
    fields: Sequence[Field],
) -> Iterator[Finding]:
    """Rows of images that are there with other values, such as another caption.

    Args:
        places: of the images of all rows, also of those that are not in the table.
        rows: of the dataset, with the same places, and no other columns than their values.
    """
    if (checked := _checked(table, fields)) is None:
        return
    names = sorted({*checked.values} & {*rows.column_names})
    columns = columns_of(rows)
    of_table = places.take(checked.frame.index.to_numpy())
    keys = joined_texts([of_table, *(checked.values[name] for name in names)])
    stored_keys = joined_texts([columns[name] for name in (KEY, *names)])
    others = checked.frame[~np.asarray(pc.is_in(keys, value_set=stored_keys, skip_nulls=True))]
    uris = others[URI_COLUMN].tolist()
    messages = [repr(cut(uri)) for uri in uris]
    yield Finding("other_values", others.index.tolist(), URI_COLUMN, uris, messages)


def _checked(table: Source, fields: Sequence[Field]) -> Checked | None:
    """A table with its values; None if it has faults or other columns than the dataset."""
    checked = check_source(table, existing=fields)
    fits = {field.column for field in checked.fields} == {field.column for field in fields}
    return checked if fits and not has_faults(checked.findings) else None
