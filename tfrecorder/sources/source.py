"""Sources: a frame, a CSV or a folder becomes one frame with our column names.

Only what must be known to read the source is checked here; the rest is up to `validation`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import is_text
from tfrecorder.display.tables import counted
from tfrecorder.errors import OptionError, SourceError
from tfrecorder.format.summary import UPRIGHT
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.convert_values import FORMS as FORM_WORDS
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import (
    BOX_COLUMNS,
    COLUMNS,
    FILE_NAME,
    LABEL_COLUMN,
    URI_COLUMN,
    number_column,
)
from tfrecorder.schema.kinds import Boxes, Ignore, Image, Label, Schema, Split
from tfrecorder.schema.splits import SPELLINGS, SPLITS
from tfrecorder.sources.arrow import read_arrow, read_parquet
from tfrecorder.sources.coco import read_coco
from tfrecorder.sources.datumaro import read_datumaro
from tfrecorder.sources.files import read_files, read_open_file
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.folder import read_folder
from tfrecorder.sources.hugging_face import read_dataset, with_objects
from tfrecorder.sources.named_files import with_contents, without_signatures
from tfrecorder.sources.objects import grouped, sizes_shown
from tfrecorder.sources.path_source import PathSource, path_source
from tfrecorder.sources.table import (
    MASK_COLUMN,
    WHOLE_NUMBER,
    RawTable,
    Source,
    held_by,
    refuse_twice,
    schema_beside,
    schema_of,
    with_classes,
)
from tfrecorder.sources.yolo import read_yolo

#: Usual names of the columns of a table of boxes: in lower case, without what is neither a letter
#: nor a digit.
_USUAL = {
    "x_min": ("xmin", "x1", "left"),
    "y_min": ("ymin", "y1", "top"),
    "x_max": ("xmax", "x2", "right"),
    "y_max": ("ymax", "y2", "bottom"),
    URI_COLUMN: ("filename", "imagepath", "image", "path", "filepath", "file", "imagename"),
    LABEL_COLUMN: ("class", "classname", "labelname", "category", "categoryname", "name"),
}

#: In how many columns images are looked for, if none is known to hold them.
MOST_HELD = 1000


def read_source(
    source: Any,
    options: ConvertOptions = ConvertOptions(),  # noqa: B008
    known: Sequence[Field] = (),
) -> Source:
    """`read_table`; images that came as bytes are hashed, and signatures put aside."""
    table = read_table(source, options, known)
    # In a folder, every uri is the name of a file, so none is an image itself.
    return without_signatures(table if table.passed_over else with_contents(table))


def read_table(
    source: Any,
    options: ConvertOptions = ConvertOptions(),  # noqa: B008
    known: Sequence[Field] = (),
) -> Source:
    """A source as one table with our column names; of the options, those about reading it.

    Args:
        source: a frame (left unmodified); a `Dataset` or `DatasetDict` of Hugging Face; a dataset
            of Datumaro; the path of a CSV, with a header or in AutoML's or Vertex AI's own order
            without one; of Vertex AI's JSON Lines; of a Parquet file; of a folder
            `split/label/file` or `label/file`, or
            with a table `metadata.*`; of COCO's JSON, or of a folder of it; of a folder of YOLO or
            of Pascal VOC; several such files; or an open file, from which a CSV is read.
        known: the columns of the dataset that it is added to or compared with.

    Raises:
        OptionError: columns, base, split_by or group_by do not fit the source.
        SourceError: there is no such file, or it cannot be read as a table.
    """
    base = options.base
    if base is not None:
        base = storage.absolute(storage.given_path(base))
        if storage.is_local(base) and not os.path.isdir(base):
            hint = storage.hint_beside(base)
            raise OptionError.of("base", base, f"there is no such folder{hint}.")
    raw = _with_classes_there(read_raw(source, options), known)
    if base is not None and raw.passed_over:
        raise OptionError.of("base", base, "the images of a folder are in it; leave this out.")
    frame = raw.frame
    names = _our_names(raw, options.split_by)
    suggested = raw.schema or schema_beside(schema_of(frame.set_axis(names, axis=1)), names, known)
    schema = with_classes(suggested, raw.classes)
    kept = schema.source_columns()
    rows = pd.RangeIndex(len(frame))
    columns: dict[str, pd.Series] = {}
    for place, name in enumerate(names):
        columns.setdefault(name, frame.iloc[:, place].set_axis(rows))
    picked = {name: columns[name] for name in kept if name in columns}
    passed = {*kept, *schema.of(Ignore)}
    left_out = [name for name in columns if name not in passed]
    number = number_column(kept, beside=left_out)
    stated = None
    if number in left_out and number != options.split_by:
        stated = stated_numbers(columns[number])
    if stated is not None:
        left_out.remove(number)
    split_like = None
    if picked.keys().isdisjoint(schema.of(Split)):
        split_like = next((name for name in left_out if holds_splits(columns[name])), None)
    held = {}
    if picked.keys().isdisjoint(schema.of(Image)):
        for name in left_out[:MOST_HELD]:
            held[name] = "images" if name in raw.cells else held_by(columns[name])
    table = pd.DataFrame(picked, index=rows)
    base = base or raw.base
    schema, decided = with_orientation(schema, raw, known, table, base)
    groups = None
    if (split_by := options.split_by) is not None:
        have = [*map(str, frame.columns)]
        if split_by not in have:
            words = f"the source has no such column; it has: {have}."
            raise OptionError.of("split_by", split_by, words)
        groups = columns[names[have.index(split_by)]].rename(split_by)
    text = raw.text
    sizes = raw.sizes if schema.of(Boxes) else None
    findings = raw.findings
    headings = _repeated_headings(frame)
    if options.group_by is not None:
        if raw.cells or raw.findings:
            raise OptionError.of(
                "group_by",
                options.group_by,
                "it is for tables of texts, such as a frame or a CSV; leave it out.",
            )
        table, first, findings = grouped(table, schema, options.group_by)
        groups = None if groups is None else groups.iloc[first].set_axis(table.index)
        stated = None if stated is None else stated.iloc[first].set_axis(table.index)
        sizes = None if sizes is None else sizes.iloc[first].set_axis(table.index)
        text = text and text._replace(rows=first)
        headings = np.flatnonzero(np.isin(first, headings))
    words = "the row repeats the names of the columns"
    repeated = Finding("repeated_heading", [*headings], "", [""] * len(headings), words)
    return Source(
        frame=table if raw.typed else with_integers(table, schema, known),
        base=base,
        left_out=tuple(name for name in left_out if name != options.split_by),
        passed_over=raw.passed_over,
        schema=schema,
        groups=groups,
        split_like=split_like,
        text=text,
        cells=raw.cells,
        typed=raw.typed,
        findings=(*findings, repeated),
        notes=[*raw.notes, *decided],
        rejects=raw.rejects,
        sizes=sizes,
        stated=stated,
        held=held,
        is_schema_given=options.schema is not None,
    )


def with_orientation(
    schema: Schema,
    raw: RawTable,
    known: Sequence[Field],
    table: pd.DataFrame,
    base: str,
) -> tuple[Schema, list[str]]:
    """A schema that says what boxes are of, as far as that is known; and what decided it.

    What it says itself counts, else what a dataset has, else stated sizes, else the form.

    Args:
        raw: with what its form means, and the sizes that it states.
        known: the columns of the dataset that the table is added to.
        table: its columns under our names.
        base: the folder that uris start from.
    """
    notes = []
    for name in schema.of(Boxes):
        kind = schema.columns[name]
        if not isinstance(kind, Boxes) or kind.upright is not None:
            continue
        upright = raw.upright
        for field in known:
            upright = field.kind.upright if isinstance(field.kind, Boxes) else upright
        (image,) = schema.of(Image)
        if not known and raw.sizes is not None and image in table:
            count, looked = sizes_shown(raw.sizes, table[image], base)
            if count:
                upright = True
                notes.append(
                    f"{UPRIGHT}the stated sizes of {count:,} of {counted(looked, 'image')} that "
                    "were looked at are of these turned upright, so all boxes are taken to be; "
                    "`Boxes(upright=False)` in a schema says otherwise"
                )
        schema = Schema({**schema.columns, name: replace(kind, upright=upright)})
    return schema, notes


def _with_classes_there(raw: RawTable, known: Sequence[Field]) -> RawTable:
    """A source whose classes have the names that an older version gave them in a dataset."""
    for field in known:
        column = getattr(field.kind, "label", field.column) or field.column
        there = field.names or ()
        names = raw.classes.get(column, ())
        is_older = there == tuple(raw.older_classes.get(column, ())[: len(there)])
        if not is_older or there == tuple(names[: len(there)]):
            continue
        spelled = dict(zip(names, [*there, *names[len(there) :]], strict=True))
        lists = [[spelled[name] for name in cells] for cells in raw.frame[column]]
        labels = pd.Series(lists, raw.frame.index, object)
        classes = {**raw.classes, column: [*spelled.values()]}
        raw = replace(raw, frame=raw.frame.assign(**{column: labels}), classes=classes)
    return raw


def read_raw(source: Any, options: ConvertOptions) -> RawTable:
    """Every column of a source unchanged, and the schema if one is given or its form has one.

    Raises:
        OptionError, SourceError: as for `read_table`.
    """
    given = path_source(source) or source
    with storage.failing_as(SourceError, given.path if isinstance(given, PathSource) else ""):
        for read in FORMS if options.form is None else _FORMED:
            if (table := read(given, options)) is not None:
                table = replace(table, schema=table.schema or options.schema)
                return _with_usual_names(with_objects(table))
    if options.form is not None:
        lacks = FORM_WORDS.get(options.form, "a folder or a file")
        words = f"the source is not of this form: it lacks {lacks}."
        raise OptionError.of("form", options.form, words)
    package = type(source).__module__.partition(".")[0]
    raise SourceError(
        f"source is a {package}.{type(source).__name__}; give a frame of pandas or polars, a table "
        "of Arrow, a dataset of Hugging Face or Datumaro, or the path of a CSV or Parquet file, or "
        "of a folder of images."
    )


def _with_usual_names(table: RawTable) -> RawTable:
    """A table of boxes whose columns have other usual names, such as `xmin` and `filename`."""
    have = [str(name) for name in table.frame.columns]
    taken = {*have, *table.columns.values()}
    taken |= {URI_COLUMN} if FILE_NAME in taken else set()
    plain = {re.sub(r"[\W_]", "", name).lower(): name for name in have}
    columns = {}
    for ours, names in _USUAL.items():
        usual = [plain[name] for name in names if name in plain]
        if usual and ours not in taken:
            columns[usual[0]] = ours
    if not {*BOX_COLUMNS} <= {*columns.values()}:
        return table
    if table.schema is not None:
        # As a schema that was proposed has our names.
        stated = table.schema.source_columns()
        columns = {
            name: ours for name, ours in columns.items() if ours in stated and name not in stated
        }
    return replace(table, columns={**columns, **table.columns})


def _read_frame(source: Any, options: ConvertOptions) -> RawTable | None:
    if not isinstance(source, pd.DataFrame):
        return None
    return RawTable(source, os.getcwd(), columns=options.columns or {})


#: What a source may be: each function reads one form, and returns None for a source of another.
FORMS: tuple[Callable[[Any, ConvertOptions], RawTable | None], ...] = (
    _read_frame,
    read_dataset,
    read_datumaro,
    read_arrow,
    read_open_file,
    read_coco,
    read_yolo,
    read_parquet,
    read_folder,
    read_files,
)


#: Those that the option `form` chooses from.
_FORMED = (read_datumaro, read_coco, read_yolo, read_folder)


def _our_names(raw: RawTable, split_by: str | None) -> list[str]:
    """The names of a table's columns, renamed to ours; refused if one would be lost."""
    columns = dict(raw.columns)
    have = [str(name) for name in raw.frame.columns]
    if bad := [name for name in have if not is_text(name)]:
        raise SourceError(f"the source's column {bad[0]!r} is not valid Unicode; rename it.")
    stated = raw.schema.source_columns() if raw.schema else []
    has_uris = URI_COLUMN in have or URI_COLUMN in columns.values()
    is_file_name_taken = FILE_NAME in columns or FILE_NAME in stated
    if FILE_NAME in have and not has_uris and not is_file_name_taken:
        columns[FILE_NAME] = URI_COLUMN
    ours = {*COLUMNS, *columns, *stated}
    if hidden := [name for name in raw.frame.index.names if name in ours and name not in have]:
        raise SourceError(
            f"{hidden[0]!r} is in the frame's index, not among its columns: give df.reset_index()."
        )
    for theirs, our in columns.items():
        words = ""
        if theirs not in have:
            words = f"the source has no column {theirs!r}; it has: {have}."
        elif our in have and theirs != our and our not in columns:
            words = f"the source also has a column {our!r}; drop or rename one of them."
        if words:
            raise OptionError.of("columns", dict(columns), words)
    needed = stated or [*COLUMNS, *BOX_COLUMNS, MASK_COLUMN]
    renamed = [columns.get(name, name) for name in have]
    both = zip(have, renamed, strict=True)
    refuse_twice(name for name, our in both if our in needed or name == split_by)
    return renamed


def stated_numbers(column: pd.Series) -> pd.Series | None:
    """What may be numbers of rows as `to_frame` gives them, -1 for none; None for other values."""
    try:
        numbers = pd.to_numeric(column.replace("", None), errors="raise")
        whole = numbers.fillna(-1).astype("int64")
    except (TypeError, ValueError, OverflowError):
        return None
    sound = numbers.isna() | ((numbers == whole) & (whole >= 0))
    return whole if numbers.dtype != bool and sound.all() else None


def _repeated_headings(frame: pd.DataFrame) -> np.ndarray:
    """The rows that are the names of the columns again, as where files were joined."""
    names = [*frame.columns]
    first = frame.iloc[:, 0] if names else pd.Series(dtype=object)
    is_text = isinstance(first.dtype, pd.StringDtype)
    if not is_text and pd.api.types.infer_dtype(first) != "string":
        return np.zeros(0, np.int64)
    # Nearly always, this leaves none of the rows.
    rows = np.flatnonzero((first == names[0]).fillna(False).to_numpy(dtype=bool))
    are_all = [[*map(repr, frame.iloc[row])] == [*map(repr, names)] for row in rows]
    return rows[np.array(are_all, bool)]


def holds_splits(column: pd.Series) -> bool:
    """True if every value is the word of a split."""
    if len(column) > 100 and not holds_splits(column.head(100)):
        return False  # nearly always, and a million others need not be looked at
    if not len(column) or not column.map(type).isin([str]).all():
        return False
    words = column.drop_duplicates()
    return all(SPELLINGS.get(word.strip().lower()) in SPLITS for word in words)


def with_integers(
    table: pd.DataFrame,
    schema: Schema,
    known: Sequence[Field] = (),
) -> pd.DataFrame:
    """A CSV whose labels become integers if all are whole numbers, unless they are given names.

    Args:
        known: the columns of a dataset, in which classes that have names keep them.
    """
    table = table.copy(deep=False)
    named = {field.column for field in known if field.num_classes and not field.integer}
    for name, kind in schema.fields:
        column = kind.label if isinstance(kind, Boxes) else name
        if not isinstance(kind, (Boxes, Label)) or column not in table or name in named:
            continue
        has_default = isinstance(kind, Label) and isinstance(kind.default, str)
        numbers = _as_integers(table[column], frozenset(kind.names or ()), has_default)
        if numbers is not None:
            table[column] = numbers
    return table


def _as_integers(
    labels: pd.Series,
    names: frozenset[str],
    has_default: bool,
) -> pd.Series | None:
    """Texts as the integers that they are ("7", "-1", "7.0", not "007"); empty ones stay.

    None if a text is no integer, if all of them are class names that were given, or if a text
    takes the place of the empty ones.
    """
    if pd.api.types.infer_dtype(labels) != "string":
        return None
    codes, texts = pd.factorize(labels)
    found = [WHOLE_NUMBER.fullmatch(text) for text in texts]
    distinct = {*texts} - {""}
    has_empty = labels.hasnans or "" in texts
    are_whole = len([*filter(None, found)]) == len(distinct) > 0
    if distinct <= names or not are_whole or (has_empty and has_default):
        return None
    # A row with too few cells has the code -1, and so the last value.
    values: list[int | str] = [*(int(match[1]) if match else "" for match in found), ""]
    whole = np.array(values if has_empty else values[:-1], object if has_empty else np.int64)
    return pd.Series(whole[codes], labels.index)
