"""Which rows of a table are already in a dataset, by the places or contents of their images.

The tables of the shards hold the uris of records and of rejects, and the folder that they start
from.  They stay in Arrow, where a million of them are searched in a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.new_classes import named_classes
from tfrecorder.conversion.row_keys import file_keys, joined_texts
from tfrecorder.conversion.same_bytes import SameBytes, same_bytes
from tfrecorder.format.plan_columns import BASE, REJECT_OF
from tfrecorder.options.append import AppendOptions
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import known_rows
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SOURCE_ID, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.sources.places import column_places
from tfrecorder.sources.table import Source
from tfrecorder.validation.columns import cut, has_faults
from tfrecorder.validation.report import Finding
from tfrecorder.validation.rules import Checked, check_source


class _Compared(NamedTuple):
    """What of a dataset is compared.

    Attributes:
        directory: of the dataset.
        newest: its newest commit.
        files: the columns of images and masks whose places are compared.
        values: the keys of the values that are compared.
        retry_rejects: rows that became rejects are not there.
    """

    directory: str
    newest: Commit
    files: Sequence[Field]
    values: Sequence[str]
    retry_rejects: bool


class Sifted(NamedTuple):
    """A table without the rows that are in a dataset.

    Attributes:
        table: the others.
        known: how many rows were left out.
        retried: for each row of the table the number that it has as a reject of the dataset, which
            is tried again; -1 for a new row.
        findings: on rows that were left out.
        same: those of the table whose bytes are in the dataset under other names; None without.
    """

    table: Source
    known: int
    retried: np.ndarray
    findings: tuple[Finding, ...] = ()
    same: SameBytes | None = None

    def beside(
        self, existing: Sequence[Field], adding: AppendOptions, checked: Checked
    ) -> Iterator[Finding]:
        """What the comparison with the dataset finds, once the table is checked.

        Args:
            existing: the columns of the dataset.
        """
        yield from self.findings
        if self.same is not None and SPLIT_COLUMN in checked.frame:
            yield from self.same.findings(checked.frame[SPLIT_COLUMN])
        yield from named_classes(existing, adding, checked)


def pass_over_known(
    table: Source,
    directory: str,
    newest: Commit,
    fields: Sequence[Field],
    adding: AppendOptions,
) -> Sifted:
    """Leave out the rows of a table that are in the dataset.

    A row is there if one row there has all its images and masks, each from the same place.  A row
    without images is there if one row there has all its values.

    Args:
        newest: the newest commit of the dataset.
        fields: the columns of the dataset.
        adding: what else is left out, or stays.

    Raises:
        DatasetError: a table cannot be read, or the folder of the images is not known.
        ImagesUnreachableError: the store of an image does not answer.
    """
    files = [field for field in fields if isinstance(field.kind, (Image, Mask))]
    nothing = Sifted(table, 0, np.full(len(table.frame), -1))
    has_files = {field.column for field in files} <= {*table.frame}
    if adding.duplicates == "keep" or not len(table.frame) or not has_files:
        return nothing
    compared = _Compared(directory, newest, files, (), adding.retry_rejects)
    findings: list[Finding] = []
    if files:
        keys = joined_texts([column_places(table, field.column) for field in files])
        matches = _matches(keys, compared)
        there = _are_there(keys, matches)
        findings += _other_values(table.only(there), keys, compared, fields)
    elif (checked := _checked(table, fields)) is not None:
        keys = joined_texts([*checked.values.values()])
        matches = _matches(keys, compared._replace(values=(*checked.values,)))
        there = _are_there(keys, matches)
    else:
        return nothing
    a_row_each = not any(field.gathered for field in fields)
    retried = _retried_numbers(keys.filter(~there), matches, a_row_each)
    rest = table.only(~there)
    same = same_bytes(rest, directory, newest, files) if files else None
    if same is not None and adding.duplicates == "content":
        again = rest.frame.index.isin(same.rows.index)
        findings += same.findings()
        rest, retried, same = rest.only(~again), retried[~again], None
    known = len(table.frame) - len(rest.frame)
    return Sifted(rest, known, retried, tuple(findings), same)


def _checked(table: Source, fields: Sequence[Field]) -> Checked | None:
    """A table with its values; None if it has faults or other columns than the dataset."""
    checked = check_source(table, existing=fields)
    fits = {field.column for field in checked.fields} == {field.column for field in fields}
    return checked if fits and not has_faults(checked.findings) else None


def _other_values(
    table: Source, places_of_all: pa.Array, compared: _Compared, fields: Sequence[Field]
) -> list[Finding]:
    """Rows of images that are there with other values, such as another caption."""
    if not len(table.frame) or (checked := _checked(table, fields)) is None:
        return []
    of_files = {name for field in compared.files for name in (field.uri_key, field.spool_key)}
    values = {name: field for name, field in checked.values.items() if name not in of_files}
    rows = checked.frame.index.to_numpy()
    keys = joined_texts([places_of_all.take(rows), *values.values()])
    matches = _matches(keys, compared._replace(values=(*values,)))
    others = checked.frame[~_are_there(keys, matches)]
    uris = others[URI_COLUMN].tolist()
    messages = [repr(cut(uri)) for uri in uris]
    return [Finding("other_values", others.index.tolist(), URI_COLUMN, uris, messages)]


def _are_there(keys: pa.Array, matches: pa.Table) -> np.ndarray:
    """True for each row of a table whose key a row of the dataset has that is not tried again."""
    sound = pa.array(matches.column(_NUMBER).to_numpy() < 0)
    there = pc.is_in(keys, value_set=matches.column(_KEY).filter(sound), skip_nulls=True)
    return np.asarray(there.to_numpy(zero_copy_only=False))


def _retried_numbers(keys: pa.Array, matches: pa.Table, a_row_each: bool) -> np.ndarray:
    """The number of the reject with the same key for each key, as `Sifted` has them.

    Args:
        a_row_each: of several rejects with one key, each is another row; otherwise rows with one
            key, such as boxes of one image, are one row of the dataset.
    """
    rejects = matches.to_pandas().drop_duplicates().sort_values(_NUMBER, ignore_index=True)
    rows = pd.DataFrame({_KEY: keys.to_pandas()})
    for frame in (rejects, rows):
        frame["turn"] = frame.groupby(_KEY, dropna=False).cumcount() if a_row_each else 0
    rejects = rejects.drop_duplicates([_KEY, "turn"])
    numbers = rows.merge(rejects, "left", [_KEY, "turn"])[_NUMBER]
    return numbers.fillna(-1).to_numpy(np.int64)


#: The columns of matches.
_KEY, _NUMBER = "key", "number"


def _matches(keys: pa.Array, compared: _Compared) -> pa.Table:
    """The keys of a table that are in the dataset.

    With the number of a reject that is tried again, and -1 for all others.
    """
    wanted = keys.drop_null()
    types = {_KEY: pa.large_string(), _NUMBER: pa.int64()}
    matches = [pa.schema(types.items()).empty_table()]
    names = {name: None for field in compared.files for name in (field.uri_key, field.spool_key)}
    columns = [SOURCE_ID, BASE, REJECT_OF.reason, *names, *compared.values]
    for rows in known_rows(compared.directory, compared.newest, list(dict.fromkeys(columns))):
        for base in rows.column(BASE).unique().to_pylist():
            known = _keys(rows.filter(pc.equal(rows.column(BASE), base)), base, compared)
            matches.append(known.filter(pc.is_in(known.column(_KEY), value_set=wanted)))
    return pa.concat_tables(matches)


def _keys(rows: pa.Table, base: str, compared: _Compared) -> pa.Table:
    """The keys of rows whose relative uris start from one folder."""
    of = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    of_files = [file_keys(compared.directory, of, base, compared.files)] if compared.files else []
    keys = joined_texts([*of_files, *(of[name] for name in compared.values)])
    is_new = pc.equal(of[REJECT_OF.reason], "") if compared.retry_rejects else True
    return pa.table({_KEY: keys, _NUMBER: pc.if_else(is_new, pa.scalar(-1), of[SOURCE_ID])})
