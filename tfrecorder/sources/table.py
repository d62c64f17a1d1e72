"""A source as one table, which every form of source becomes; and the schema it suggests."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field as dataclass_field, replace
from datetime import date, time, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.errors import SourceError
from tfrecorder.options.convert_values import TextForm
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import BOX_COLUMNS, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import (
    DEFAULT_SCHEMA,
    Boxes,
    Image,
    Kind,
    Label,
    Labels,
    Mask,
    Schema,
    Split,
)
from tfrecorder.sources.finding import Finding

if TYPE_CHECKING:
    from tfrecorder.sources.cells import Cells, Contents

MASK_COLUMN = "mask_uri"

#: The column in which Hugging Face has the objects of each image.
OBJECTS = "objects"

#: Other names that people give to columns; used for suggestions.
_SYNONYMS = {
    URI_COLUMN: ("uri", "url", "path", "file", "filename", "file_name", "filepath", "image", "img"),
    LABEL_COLUMN: ("labels", "class", "category", "target", "class_name", "y"),
    SPLIT_COLUMN: ("set", "subset", "ml_use", "partition", "fold"),
}

#: A fraction that is less than a pixel of any image.
ROUNDED = 1e-5

#: An integer as `str` writes it, also with ".0" as pandas does beside a missing one.
WHOLE_NUMBER = re.compile(r"(0|-?[1-9][0-9]{0,17})(\.0*)?")


@dataclass(frozen=True)
class _Rows:
    """The rows of a source.

    Attributes:
        frame: the rows in the source's order.
        base: the folder that relative uris start from.
        passed_over: for a folder, how many hidden files and how many other files made no row;
            empty for any other source.
        text: the text file that the rows come from, if it is on this machine.
        cells: the cells of image columns that are not in the frame, which has empty texts for them.
        typed: False if every cell was a text, as in a CSV, even if it is a number.
        findings: what is wrong beyond what the table shows.
        notes: what is no problem but should be known, such as what is not stored.
        rejects: why a row becomes a reject, by its number, where the source says so already.
        sizes: the sizes that it states of its images, by row, as `stated_sizes` gives them; None
            where it states none.
    """

    frame: pd.DataFrame
    base: str
    passed_over: Mapping[str, int] = dataclass_field(default_factory=dict)
    text: TextFile | None = None
    cells: Mapping[str, Cells] = dataclass_field(default_factory=dict)
    typed: bool = True
    findings: Sequence[Finding] = ()
    notes: Sequence[str] = ()
    rejects: Mapping[int, str] = dataclass_field(default_factory=dict)
    sizes: pd.DataFrame | None = None


@dataclass(frozen=True)
class RawTable(_Rows):
    """A source as its form has it: every column, under the source's own name.

    Attributes:
        schema: what the columns hold, if it was given or the form of the source states it.
        columns: the source's names for our columns.
        classes: class names in the order of their integers, by our name of the column, for those
            that the schema has none for.
        older_classes: these names as versions before 3.1 read them, where that may have been
            otherwise.
        upright: what its form means by the coordinates of boxes, as of `Boxes`.
    """

    schema: Schema | None = None
    columns: Mapping[str, str] = dataclass_field(default_factory=dict)
    classes: Mapping[str, Sequence[str]] = dataclass_field(default_factory=dict)
    older_classes: Mapping[str, Sequence[str]] = dataclass_field(default_factory=dict)
    upright: bool | None = None


@dataclass(frozen=True)
class Source(_Rows):
    """A table of images: the rows of a source under our names.

    The frame has those of the schema's columns that the source has, and the index 0 to n-1.

    Attributes:
        left_out: the source's other columns, which make no feature.
        schema: what each column holds.
        groups: what the rows of a group have in common; all of them get the same split.
        split_like: for a source without splits, a left-out column whose words are all splits.
        contents: the contents of columns whose images came as bytes, once they have been looked at.
        stated: the numbers that its column of `to_frame` states, of whatever dataset; -1 for none.
        numbers: of the rows of a dataset that its rows are, once these have been compared; -1 for
            none.
        is_schema_given: the schema is one that the user gave.
        held: what the columns that are left out hold, by name, if no column holds the images.
    """

    left_out: tuple[str, ...] = ()
    schema: Schema = DEFAULT_SCHEMA
    groups: pd.Series | None = None
    split_like: str | None = None
    contents: Mapping[str, Contents] = dataclass_field(default_factory=dict)
    stated: pd.Series | None = None
    numbers: pd.Series | None = None
    is_schema_given: bool = False
    held: Mapping[str, str] = dataclass_field(default_factory=dict)

    def only(self, rows: np.ndarray) -> Source:
        """Those of its rows for which this is True, under their numbers."""
        if rows.all():
            return self  # not a copy of millions of texts
        names = ("groups", "stated", "numbers", "sizes")
        columns = {name: getattr(self, name) for name in names}
        taken = {name: of[rows] for name, of in columns.items() if of is not None}
        return replace(self, frame=self.frame[rows], **taken)


def nearest_name(wanted: str, names: list[str]) -> str | None:
    """The one of some names that was probably meant, ignoring case; None if none is close."""
    by_lower = {name.strip().lower(): name for name in names}
    near = [synonym for synonym in _SYNONYMS.get(wanted, ()) if synonym in by_lower]
    near = near or difflib.get_close_matches(wanted.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


class TextFile(NamedTuple):
    """A text file on this machine, whose lines can be counted.

    Attributes:
        path: the path of the file.
        json_lines: it holds JSON Lines, not a CSV.
        headed: it starts with the names of its columns.
        form: how it is written.
        spooled: what keeps the file there, if it came through a pipe.
        rows: the row of the file that each row of the table begins with; None if it is the same.
    """

    path: str
    json_lines: bool
    headed: bool
    form: TextForm
    spooled: object = None
    rows: np.ndarray | None = None


def refuse_twice(names: Iterable[str]) -> None:
    """Raise a SourceError if two columns have the same name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SourceError(f"the source has more than one column {twice[0]!r}; drop all but one.")


def as_objects(column: pd.Series) -> pd.Series:
    """Any column - object, string, categorical, Arrow - as Python values, None if missing."""
    return column.astype(object).where(column.notna(), None)


def held_by(column: pd.Series) -> str:
    """What a column holds, by its first cell: "images", or a type with what is in it."""
    first = column.first_valid_index()
    cell = None if first is None else column.loc[first]
    name = type(cell).__name__
    if isinstance(cell, Mapping):
        is_image = {*cell} == {"bytes", "path"}
        return "images" if is_image else f"{name} of {', '.join(map(str, [*cell][:9]))}"
    if is_list(cell) and len(cell):
        return f"{name} of {held_by(pd.Series([cell[0]], dtype=object))}"
    return name


def is_time(value: Any) -> bool:
    """True for a date, a time or a duration, which no record can hold."""
    return isinstance(value, (date, time, timedelta, np.datetime64, np.timedelta64))


def is_list(value: Any) -> bool:
    """True for what holds the values of a cell with several."""
    return isinstance(value, (list, tuple, np.ndarray))


def in_lists(values: Sequence[Any] | np.ndarray, sizes: np.ndarray) -> pd.Series:
    """Values given one after the other, as a column of lists of these sizes."""
    ends = np.cumsum(sizes).tolist()
    cells = np.empty(len(sizes), dtype=object)
    for place, (start, end) in enumerate(itertools.pairwise([0, *ends])):
        cells[place] = values[start:end]
    return pd.Series(cells)


def as_texts(column: pd.Series) -> pa.LargeStringArray | None:
    """A column of pandas' own text as the Arrow array behind it; None for any other column.

    Also None if a value is missing, or its bytes are not Unicode.  Ten million texts in Arrow take
    a tenth of the time and of the memory of as many Python values.
    """
    if not isinstance(column.dtype, pd.StringDtype) or column.dtype.storage != "pyarrow":
        return None
    texts = pa.array(column.array, pa.large_string())
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return None if texts.null_count else texts


def schema_of(table: pd.DataFrame) -> Schema:
    """The schema of a table, which may have boxes or a mask in columns with the known names."""
    by_name = kinds_by_name(table)
    has_more = URI_COLUMN in by_name and not {MASK_COLUMN, "boxes"}.isdisjoint(by_name)
    if has_more:
        return Schema(by_name)
    if isinstance(by_name.get(LABEL_COLUMN), Labels):
        return Schema({**DEFAULT_SCHEMA.columns, LABEL_COLUMN: Labels()})
    return DEFAULT_SCHEMA


def schema_beside(
    suggested: Schema,
    names: Sequence[str],
    known: Sequence[Field],
) -> Schema:
    """The schema of a dataset, for a table that has all its columns; otherwise the suggested one.

    Of a source such as COCO's JSON, a dataset has columns whose names alone say nothing.
    """
    stored: dict[str, Kind] = {SPLIT_COLUMN: Split(required=False)}
    for field in known:
        stored[field.column] = field.kind
        if getattr(field.kind, "names", None):  # its classes are no limit for those of the table
            stored[field.column] = dataclasses.replace(field.kind, names=None)  # type: ignore[type-var]
    if not known:
        return suggested
    of_dataset = Schema(stored)
    needed = {*of_dataset.source_columns()} - {SPLIT_COLUMN}
    told = ({*suggested.source_columns()} & {*names}) - {SPLIT_COLUMN}
    return of_dataset if told < needed <= {*names} else suggested


def with_classes(schema: Schema, classes: Mapping[str, Sequence[str]]) -> Schema:
    """A schema with the class names of a source by column, where it has none itself."""
    named = {}
    for name, kind in schema.fields:
        column = getattr(kind, "label", name) or name
        if hasattr(kind, "names") and kind.names is None and column in classes:
            kind = dataclasses.replace(kind, names=tuple(classes[column]))  # type: ignore[type-var]
        named[name] = kind
    return Schema(named)


def kinds_by_name(table: pd.DataFrame) -> dict[str, Kind]:
    """The kinds of those columns of a table that have the known names."""
    names = {str(name) for name in table.columns}
    usual = {SPLIT_COLUMN: Split(), URI_COLUMN: Image(), MASK_COLUMN: Mask()}
    made: dict[str, Kind] = {name: kind for name, kind in usual.items() if name in names}
    if names.issuperset(BOX_COLUMNS):
        label = LABEL_COLUMN if LABEL_COLUMN in names else None
        made["boxes"] = Boxes(unit=_box_unit(table), label=label)
    elif LABEL_COLUMN in names:
        has_lists = table[LABEL_COLUMN].dtype == object and table[LABEL_COLUMN].map(is_list).any()
        made[LABEL_COLUMN] = Labels() if has_lists else Label()
    return made


def _box_unit(table: pd.DataFrame) -> str:
    """ "pixel" if any edge is beyond 1, and not by rounding."""
    for name in BOX_COLUMNS:
        cells = as_objects(table[name]).dropna()
        flat = [value for cell in cells for value in (cell if is_list(cell) else [cell])]
        numbers = pd.to_numeric(pd.Series(flat, dtype=object), errors="coerce")
        if (numbers > 1 + ROUNDED).any():
            return "pixel"
    return "fraction"
