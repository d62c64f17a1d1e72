"""Sources: a frame, a CSV or a folder becomes one frame with our column names.

Only what must be known to read the source is checked here; the rest is up to `validation`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, TypeGuard, cast

import pandas as pd

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.display.tables import escaped
from tfrecorder.errors import OptionError, SourceError
from tfrecorder.format import layout
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.text_form import TextForm
from tfrecorder.schema.keys import COLUMNS
from tfrecorder.schema.kinds import (
    BOX_COLUMNS,
    DEFAULT_SCHEMA,
    Boxes,
    Ignore,
    Label,
    Schema,
    Split,
    with_boxes,
)
from tfrecorder.schema.splits import SPELLINGS, SPLITS
from tfrecorder.sources.automl import Table
from tfrecorder.sources.content_names import with_contents
from tfrecorder.sources.default_schema import MASK_COLUMN, obvious_schema, schema_of
from tfrecorder.sources.files import (
    IMAGE_ENDINGS,
    Spooled,
    has_header,
    is_json_lines,
    read_file,
    refuse_form,
)
from tfrecorder.sources.folder import read_folder
from tfrecorder.sources.hugging_face import is_hugging_face, read_rows, with_classes
from tfrecorder.sources.table import Source, Text

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def read_source(
    source: Any,
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    schema: Schema | None = None,
    split_by: str | None = None,
    form: TextForm = TextForm(),  # noqa: B008
    base: str | None = None,
) -> Source:
    """A frame, a dataset of Hugging Face, a CSV file or a folder of images as one table.

    Args:
        source: a frame (left unmodified); a `Dataset` or `DatasetDict`; the path of a CSV, with a
            header or in AutoML's or Vertex AI's own order without one; the path of Vertex AI's JSON
            Lines; the path of a folder `split/label/file` or `label/file`; or an open file, from
            which a CSV is read.
        columns: the source's names for our columns, such as {"path": "image_uri"}.
        labels: all class names, if given: labels of a CSV that are among them are names, even if
            they are digits.
        schema: what the columns hold; None takes the schema that follows from the source's form or
            from the names of its columns.
        split_by: the column whose rows with the same value belong together.
        form: how a CSV's text is written.
        base: the folder that relative uris start from.  Default: the CSV's folder; for a frame or
            an open file, the current folder.

    Raises:
        OptionError: columns or base do not fit the source.
        SourceError: there is no such file, or it cannot be read as a table.
    """
    if base is not None:
        base = storage.absolute(storage.given_path(base))
        if storage.is_local(base) and not os.path.isdir(base):
            raise OptionError.of("base", base, "there is no such folder.")
        if isinstance(source, (str, os.PathLike)) and os.path.isdir(storage.given_path(source)):
            raise OptionError(
                f"base={base!r}: the images of a folder are in that folder; leave base out."
            )
        return replace(read_source(source, columns, labels, schema, split_by, form), base=base)
    named = columns or {}
    if isinstance(source, pd.DataFrame):
        refuse_form(form, "a frame has been read already")
        return _as_source(source, os.getcwd(), named, labels, schema, split_by)
    if is_hugging_face(source):
        refuse_form(form, "the source is a dataset of Hugging Face")
        return _read_hugging_face(source, named, labels, schema, split_by)
    if _is_open_file(source):
        spooled = Spooled(source)
        name = getattr(source, "name", None)
        called = name if isinstance(name, str) and name != "<stdin>" else "standard input"
        copy, base = spooled.path, os.getcwd()
        found = _read_csv(called, copy, base, named, labels, schema, split_by, form)
        return replace(found, text=_text(copy, called, named, schema, form), spooled=spooled)
    if not isinstance(source, (str, os.PathLike)):
        raise SourceError(
            f"source is a {type(source).__name__}; give a pandas frame, a Dataset of Hugging Face, "
            "or the path of a CSV file or of a folder of images."
        )
    path = storage.given_path(source)
    refusal = storage.refusal(storage.scheme(path))
    if refusal is not None:
        raise SourceError(f"source {path!r}: {storage.scheme(path)}:// cannot be read: {refusal}.")
    with storage.failing_as(SourceError, path):
        return _read_path(path, named, labels, schema, split_by, form)


def read_with(source: Any, options: ConvertOptions) -> Source:
    """`read_source` with the options of a conversion; images that came as bytes are hashed."""
    chosen = options
    named, form, base = chosen.columns, chosen.text_form, chosen.base
    found = read_source(source, named, chosen.labels, chosen.schema, chosen.split_by, form, base)
    schema = with_boxes(found.schema, chosen.background_class, chosen.tfds_features)
    found = replace(found, schema=schema)
    return found if found.is_folder else with_contents(found)


def refuse_idle(table: Source, options: ConvertOptions) -> None:
    """Raise an OptionError if an option would have no effect on a table."""
    if options.background_class and not table.schema.of(Boxes):
        raise OptionError(
            "background_class=True is for the classes of boxes, and the source has no boxes; "
            "leave it out."
        )


def _read_hugging_face(
    source: Any,
    columns: Mapping[str, str],
    labels: Sequence[str] | None,
    schema: Schema | None,
    split_by: str | None,
) -> Source:
    rows = read_rows(source, columns, schema, split_by)
    ours = {name: rows.columns.get(name, name) for name in rows.frame.columns}
    schema = schema or schema_of(rows.frame.rename(columns=ours), labels)
    classes = {ours[name]: names for name, names in rows.classes.items()}
    schema = with_classes(schema, classes, isinstance(source, Mapping))
    found = _as_source(rows.frame, os.getcwd(), rows.columns, labels, schema, split_by)
    return replace(found, cells={ours[name]: cells for name, cells in rows.cells.items()})


def _read_path(
    path: str,
    columns: Mapping[str, str],
    labels: Sequence[str] | None,
    schema: Schema | None,
    split_by: str | None,
    form: TextForm,
) -> Source:
    whole = storage.absolute(path)
    # On a bucket, one name may be both an object and a folder: a name ending in .csv is the object.
    is_file = not storage.is_local(whole) and storage.size(whole) is not None
    if path and not is_file and storage.is_folder(whole):
        refuse_form(form, "a folder has none")
        if columns:
            raise OptionError("columns is for a frame or a CSV; a folder has no columns to rename.")
        if storage.exists(os.path.join(whole, layout.COMMIT)):
            raise SourceError(
                f"source {path!r} is already a dataset; `{command('info', path)}` shows it, and "
                f"tfrecorder.load({path!r}) reads it."
            )
        table, passed_over = read_folder(whole)
        found = _as_source(table, whole, {}, labels, schema, split_by)
        return replace(found, is_folder=True, passed_over=passed_over)
    if not is_file and not os.path.isfile(whole):
        looked = f" (looked in {os.getcwd()})" if storage.is_local(path) else ""
        hint = storage.backslash_hint(path)
        raise SourceError(f"source {path!r}: there is no such file or folder{looked}{hint}.")
    if path.lower().endswith(IMAGE_ENDINGS):
        raise SourceError(
            f"source {path!r} is an image; give its folder, or a CSV that lists images."
        )
    with storage.local_copy(whole) as copy:
        found = _read_csv(
            path, copy, storage.parent(whole), columns, labels, schema, split_by, form
        )
    if storage.is_local(whole):
        found = replace(found, text=_text(whole, path, columns, schema, form))
    return found


def _text(
    copy: str,
    path: str,
    columns: Mapping[str, str],
    schema: Schema | None,
    form: TextForm,
) -> Text:
    """The text file that the user calls `path`, with what is needed to count its lines."""
    json_lines = is_json_lines(path)
    needed = (schema or DEFAULT_SCHEMA).source_columns()
    headed = not json_lines and has_header(copy, {*columns, *needed}, form)
    return Text(copy, json_lines, headed, form)


def _read_csv(
    path: str,
    copy: str,
    base: str,
    columns: Mapping[str, str],
    labels: Sequence[str] | None,
    schema: Schema | None,
    split_by: str | None,
    form: TextForm,
) -> Source:
    """A CSV or JSON Lines that can be opened at `copy`."""
    needed = (schema or DEFAULT_SCHEMA).source_columns()
    table, stated = read_file(path, copy, {*columns, *needed}, form)
    found = _as_source(table, base, columns, labels, schema or stated, split_by)
    return found if stated else replace(found, frame=_with_integers(found.frame, found.schema))


def read_table(
    source: pd.DataFrame | str | os.PathLike[str] | IO[Any],
    form: TextForm = TextForm(),  # noqa: B008
) -> Table:
    """Every column of a source unchanged, and the schema if its form has one.

    Raises:
        SourceError: the source cannot be read as a table.
    """
    if isinstance(source, pd.DataFrame):
        _refuse_twice(map(str, source.columns))
        return source, obvious_schema(source) if _is_plain(source) else None
    if is_hugging_face(source):
        raise SourceError(
            "a dataset of Hugging Face names the types of its columns itself: give it to "
            "tfrecorder.validate as it is, or some of its rows as a frame: source.to_pandas()."
        )
    if _is_open_file(source):
        spooled = Spooled(source)  # kept until it is read
        return _text_table("standard input", spooled.path, form)
    path = storage.given_path(cast("str | os.PathLike[str]", source))
    whole = storage.absolute(path)
    with storage.failing_as(SourceError, path):
        is_file = os.path.isfile(whole) or storage.size(whole) is not None
    if not is_file:
        return read_source(path, form=form).frame, None
    with storage.failing_as(SourceError, path), storage.local_copy(whole) as copy:
        return _text_table(path, copy, form)


def _text_table(path: str, copy: str, form: TextForm) -> Table:
    table, stated = read_file(path, copy, (), form)
    _refuse_twice(table.columns)
    return (table if stated else _with_integers(table, DEFAULT_SCHEMA)), stated


def _is_open_file(source: object) -> TypeGuard[IO[Any]]:
    return hasattr(source, "read") and not isinstance(source, (pd.DataFrame, str, os.PathLike))


def _is_plain(table: pd.DataFrame) -> bool:
    """True if a frame has only columns that an obvious schema knows."""
    return set(table.columns) <= {*COLUMNS, *BOX_COLUMNS, MASK_COLUMN}


def _as_source(
    table: pd.DataFrame,
    base: str,
    columns: Mapping[str, str],
    labels: Sequence[str] | None,
    schema: Schema | None,
    split_by: str | None,
) -> Source:
    """Rename, keep the schema's columns, and remember the others; the table is not modified."""
    have = [str(name) for name in table.columns]
    if bad := [name for name in have if escaped(name) != name]:
        raise SourceError(f"the source's column {bad[0]!r} is not valid Unicode; rename it.")
    _refuse_index(table, {*COLUMNS, *columns, *(schema.source_columns() if schema else ())})
    for theirs, ours in columns.items():
        if theirs not in have:
            raise OptionError(f"columns: the source has no column {theirs!r}; it has: {have}.")
        if ours in have and theirs != ours and ours not in columns:
            raise OptionError(
                f"columns: {theirs!r} is mapped to {ours!r}, but the source also has a column "
                f"{ours!r}; drop or rename one of them."
            )
    names = [columns.get(name, name) for name in have]
    needed = schema.source_columns() if schema else [*COLUMNS, *BOX_COLUMNS, MASK_COLUMN]
    _refuse_twice(name for name in have if columns.get(name, name) in needed or name == split_by)
    schema = schema or schema_of(table.set_axis(names, axis=1), labels)
    kept = schema.source_columns()
    picked = {name: table.iloc[:, at] for at, name in enumerate(names) if name in kept}
    rows = pd.RangeIndex(len(table))
    frame = pd.DataFrame(
        {name: picked[name].set_axis(rows) for name in kept if name in picked}, index=rows
    )
    passed = {*kept, *schema.of(Ignore)}
    left_out = {name: at for at, name in enumerate(names) if name not in passed}
    split_like = None
    if not any(name in picked for name in schema.of(Split)):
        holding = (name for name, at in left_out.items() if _holds_splits(table.iloc[:, at]))
        split_like = next(holding, None)
    return Source(
        frame,
        base,
        tuple(name for name in left_out if name != split_by),
        schema=schema,
        groups=None if split_by is None else _groups(table, have, split_by).set_axis(rows),
        split_like=split_like,
    )


def _refuse_twice(names: Iterable[str]) -> None:
    """Raise a SourceError if two columns have the same name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SourceError(f"the source has more than one column {twice[0]!r}; drop all but one.")


def _groups(table: pd.DataFrame, names: list[str], split_by: str) -> pd.Series:
    if split_by not in names:
        raise SourceError(f"split_by={split_by!r}: the source has no such column; it has: {names}.")
    return table.iloc[:, names.index(split_by)]


def _holds_splits(column: pd.Series) -> bool:
    """True if every value is the word of a split."""
    if pd.api.types.is_numeric_dtype(column) or not len(column):
        return False
    if not _are_splits(column.head(100)):  # nearly always: a million others need not be looked at
        return False
    return _are_splits(column)


def _are_splits(column: pd.Series) -> bool:
    words = column.drop_duplicates() if column.map(type).isin([str]).all() else [None]
    return all(
        isinstance(word, str) and SPELLINGS.get(word.strip().lower()) in SPLITS for word in words
    )


def _refuse_index(table: pd.DataFrame, ours: Collection[str]) -> None:
    """Raise a SourceError if a column of ours is in the frame's index, where it would be lost."""
    hidden = [name for name in table.index.names if name in ours and name not in table.columns]
    if hidden:
        raise SourceError(
            f"{hidden[0]!r} is in the frame's index, not among its columns: give df.reset_index()."
        )


def _with_integers(table: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """A CSV whose labels become integers if all are whole numbers, unless they are given names."""
    table = table.copy(deep=False)
    for name, kind in schema.fields:
        column = kind.label if isinstance(kind, Boxes) else name
        if not isinstance(kind, (Boxes, Label)) or column not in table:
            continue
        if _are_numbers(table[column], frozenset(kind.names or ())):
            table[column] = table[column].astype("int64")
    return table


def _are_numbers(labels: pd.Series, names: frozenset[str]) -> bool:
    """True if every text is an integer as `str` writes it ("7", "-1", not "007" or "7.0").

    But not if all of them are class names that were given.
    """
    is_text = isinstance(labels.dtype, pd.StringDtype) and not labels.hasnans
    if not is_text and not labels.map(lambda label: isinstance(label, str)).all():
        return False
    distinct = set(labels.unique())
    if not distinct or distinct <= names:
        return False
    return all(_WHOLE_NUMBER.fullmatch(text) for text in distinct)
