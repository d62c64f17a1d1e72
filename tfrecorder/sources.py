"""Sources: a frame, a CSV or a folder becomes one frame with our column names.

Nothing is judged here beyond what must be known to read at all; that is `validation`'s work.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from tfrecorder import storage
from tfrecorder.automl import Table, read_headerless, read_json_lines
from tfrecorder.dataset import layout
from tfrecorder.errors import SourceError
from tfrecorder.kinds.inference import MASK_COLUMN, obvious_schema
from tfrecorder.schema.keys import COLUMNS, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import BOX_COLUMNS, Ignore, Label, Schema
from tfrecorder.schema.splits import SPELLINGS

#: A folder's files with these endings are its images; every other file is passed over and counted.
IMAGE_ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".gif", ".bmp"),
    *(".dib", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Source:
    """A table of images.

    Attributes:
        frame: the rows in the source's order, index 0 to n-1, with those of the columns split,
            image_uri and label that the source has.
        base: the folder that relative uris are taken from.
        left_out: the source's further columns, which make no feature.
        passed_over: of a folder, how many hidden files and how many other files made no row.
        schema: of the columns, as it was stated or as the source's form tells; None for the three
            columns of the default.
    """

    frame: pd.DataFrame
    base: str
    left_out: tuple[str, ...] = ()
    passed_over: Mapping[str, int] = field(default_factory=dict)
    schema: Schema | None = None


def read_source(
    source: pd.DataFrame | str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    schema: Schema | None = None,
) -> Source:
    """A frame, a CSV file or a folder of images as one table.

    Args:
        source: a frame (left unmodified); the path of a CSV, with a header or in AutoML's or
            Vertex AI's own order without one; of Vertex AI's JSON Lines; or of a folder
            `split/label/file` or `label/file`.
        columns: the source's names of our columns, as {"path": "image_uri"}.
        labels: all class names, where given: a CSV's labels that are among them are names, even
            if they are digits.
        schema: of the columns, where one was stated.

    Raises:
        SourceError: there is no such file, or it cannot be read as a table.
    """
    if isinstance(source, pd.DataFrame):
        return _map_columns(source, columns or {}, os.getcwd(), schema)
    if not isinstance(source, (str, os.PathLike)):
        raise SourceError(
            f"source is a {type(source).__name__}; give a pandas frame, or the path of a CSV file "
            "or of a folder of images."
        )
    path = os.fspath(source)
    refusal = storage.refusal(storage.scheme(path))
    if refusal is not None:
        raise SourceError(f"source {path!r}: {storage.scheme(path)}:// cannot be read: {refusal}.")
    with storage.failing_as(SourceError, path):
        return _read_path(path, columns or {}, frozenset(labels or ()), schema)


def _read_path(
    path: str, columns: Mapping[str, str], names: frozenset[str], schema: Schema | None
) -> Source:
    whole = storage.absolute(path)
    # On a bucket a name may be an object and a folder: what ends in .csv is the object.
    is_file = not storage.is_local(whole) and storage.size(whole) is not None
    if path and not is_file and storage.is_folder(whole):
        if columns:
            raise SourceError("columns is for a frame or a CSV; a folder has no columns to rename.")
        found = read_folder(whole)
        return found if schema is None else _with_schema(found, schema)
    if not is_file and not os.path.isfile(whole):
        looked = f" (looked in {os.getcwd()})" if storage.is_local(path) else ""
        raise SourceError(f"source {path!r}: there is no such file or folder{looked}.")
    parent = storage.parent(whole)
    with storage.local_copy(whole) as copy:
        stated = schema.source_columns() if schema else []
        known = {**columns, **{name: name for name in stated}}
        table, form = read_file(path, copy, known)
    if form is None:
        table = _as_integers(table, columns, names, schema)
    return _map_columns(table, columns, parent, schema or form)


def read_table(source: pd.DataFrame | str | os.PathLike[str]) -> Table:
    """Every column of a source as it stands, and the schema where its form tells it.

    Raises:
        SourceError: it cannot be read as a table.
    """
    if isinstance(source, pd.DataFrame):
        return source, obvious_schema(source) if _is_plain(source) else None
    path = os.fspath(source)
    whole = storage.absolute(path)
    with storage.failing_as(SourceError, path):
        is_file = os.path.isfile(whole) or storage.size(whole) is not None
    if not is_file:
        found = read_source(path)
        return found.frame, found.schema
    with storage.failing_as(SourceError, path), storage.local_copy(whole) as copy:
        table, form = read_file(path, copy, {})
    return (table if form else _as_integers(table, {}, frozenset(), None)), form


def _is_plain(table: pd.DataFrame) -> bool:
    """True if a frame has no columns but those that an obvious schema knows."""
    return set(table.columns) <= {*COLUMNS, *BOX_COLUMNS, MASK_COLUMN}


def _with_schema(source: Source, schema: Schema) -> Source:
    found = _map_columns(source.frame, {}, source.base, schema)
    return replace(found, passed_over=source.passed_over)


def _map_columns(
    table: pd.DataFrame, columns: Mapping[str, str], base: str, schema: Schema | None
) -> Source:
    """Rename, keep our columns, and remember the others; the table itself is not touched."""
    have = [str(name) for name in table.columns]
    for theirs, ours in columns.items():
        if theirs not in have:
            raise SourceError(f"columns: the source has no column {theirs!r}; it has: {have}.")
        if ours in have and theirs != ours and ours not in columns:
            raise SourceError(
                f"columns: {theirs!r} is to stand for {ours!r}, which the source has too; "
                "drop or rename one of them."
            )
    names = [columns.get(name, name) for name in have]
    if schema is None and len(set(names)) == len(names):
        schema = obvious_schema(table.set_axis(names, axis=1))
    kept = COLUMNS if schema is None else tuple(schema.source_columns())
    wanted = set(kept)
    twice = sorted({name for name in names if name in wanted and names.count(name) > 1})
    if twice:
        raise SourceError(f"the source has more than one column {twice[0]!r}; drop all but one.")
    picked = {name: table.iloc[:, at] for at, name in enumerate(names) if name in kept}
    rows = pd.RangeIndex(len(table))
    frame = pd.DataFrame(
        {name: picked[name].set_axis(rows) for name in kept if name in picked}, index=rows
    )
    passed = set(kept) | set(schema.of(Ignore) if schema else ())
    left_out = tuple(name for name in names if name not in passed)
    return Source(frame, base, left_out, schema=schema)


def read_file(path: str, copy: str, columns: Mapping[str, str]) -> Table:
    """A CSV as text columns, or JSON Lines.

    Args:
        path: what the user calls it.
        copy: where it can be opened.
    """
    try:
        if path.lower().endswith((".jsonl", ".ndjson")):
            return read_json_lines(path, copy)
        with open(copy, newline="", encoding="utf-8-sig") as file:
            first = next(filter(None, csv.reader(file)), [])
        _refuse_other_separator(path, first, columns)
        if not _is_header(first, columns):
            return read_headerless(path, copy, looks_like_image)
        table = pd.read_csv(
            copy, dtype=str, keep_default_na=False, encoding="utf-8-sig", skip_blank_lines=True
        )
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path}: line {_undecodable_line(copy)} is not UTF-8; save the file as UTF-8, or read "
            "it with pandas (encoding=...) and convert the frame."
        ) from error
    except pd.errors.EmptyDataError as error:
        raise SourceError(f"{path}: the file is empty.") from error
    except (pd.errors.ParserError, csv.Error) as error:
        words = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise SourceError(
            f"{path}: not a well-formed CSV: {words}. A value with a comma, a quote or a line "
            "break in it is written in quotes."
        ) from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}.") from error
    if not isinstance(table.index, pd.RangeIndex):
        raise SourceError(
            f"{path}: the rows have more values than the header has names; a value with a comma in "
            "it is written in quotes."
        )
    return table, None


def _as_integers(
    table: pd.DataFrame,
    columns: Mapping[str, str],
    names: frozenset[str],
    schema: Schema | None,
) -> pd.DataFrame:
    """A CSV's labels that are all whole numbers as integers, unless these are names given."""
    labels: dict[str, frozenset[str]] = {LABEL_COLUMN: names}
    if schema is not None:
        kinds = schema.columns
        labels = {n: frozenset(kinds[n].names or ()) for n in schema.of(Label)}  # type: ignore[attr-defined]
    for name in table.columns:
        ours = columns.get(name, name)
        if ours in labels and _are_numbers(table[name], labels[ours]):
            table[name] = table[name].astype("int64")
    return table


def _refuse_other_separator(path: str, first: list[str], columns: Mapping[str, str]) -> None:
    """Spreadsheets of some countries write semicolons: named here, or nothing would be found."""
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        cells = [cell.strip() for cell in first[0].split(separator)] if len(first) == 1 else []
        known = {*COLUMNS, *columns}
        if len(cells) > 1 and (known.intersection(cells) or cells[0].lower() in SPELLINGS):
            raise SourceError(
                f"{path}: its values are separated by {name}; save it with commas, or read it with "
                f"pandas (sep={separator!r}) and convert the frame."
            )


def _undecodable_line(copy: str) -> int:
    """The number, from 1, of the first line that is not UTF-8."""
    data = Path(copy).read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1
    return 1


def _is_header(first: list[str], columns: Mapping[str, str]) -> bool:
    """A first line is data if it begins with a split word or holds what can only be an image."""
    known = {*COLUMNS, *columns}
    if not first or any(cell in known for cell in first):
        return True
    return not (first[0].strip().lower() in SPELLINGS or any(map(looks_like_image, first)))


def looks_like_image(cell: str) -> bool:
    """True for what can only be the path or uri of an image."""
    return "://" in cell or cell.lower().endswith(IMAGE_ENDINGS)


def _are_numbers(labels: pd.Series, names: frozenset[str]) -> bool:
    """True if every text is an integer as `str` writes it ("7", "-1", not "007" nor "7.0").

    But not where all of them are class names that were given.
    """
    if not labels.map(lambda label: isinstance(label, str)).all():
        return False
    distinct = set(labels.unique())
    if not distinct or distinct <= names:
        return False
    return all(_WHOLE_NUMBER.fullmatch(text) for text in distinct)


def read_folder(folder: str) -> Source:
    """A folder `split/label/file` or `label/file`, in the order of the relative paths.

    The first level is splits if every folder in it is named like one.  Folder names are class
    names, so they stay text even where they are digits, as in Keras and TFDS.  An image's uri is
    its path relative to the folder.

    Raises:
        SourceError: an image lies at another depth, or no image was found.
    """
    files, passed_over = _sorted_out(_walk(folder) if storage.is_local(folder) else _list(folder))
    if not files:
        seen = sum(passed_over.values())
        raise SourceError(
            f"{folder}: no images found ({seen} other files passed over); expected "
            f"split/label/file or label/file with endings {' '.join(IMAGE_ENDINGS)}."
        )
    tops = {parts[0] for parts in files if len(parts) > 1}
    no_splits = sorted(top for top in tops if top.lower() not in SPELLINGS)
    with_split = bool(tops) and not no_splits
    depth = 3 if with_split else 2
    wrong = next((parts for parts in files if len(parts) != depth), None)
    if wrong is not None:
        hint = "put every image into the folder of its label"
        if len(wrong) == 3:
            hint = f"or, if that is split/label/file, name the folder {no_splits[0]!r} like a split"
        raise SourceError(
            f"{folder}: image {'/'.join(wrong)!r} is not at "
            f"{'split/label/file' if with_split else 'label/file'}; {hint}."
        )
    data: dict[str, Any] = {
        URI_COLUMN: ["/".join(parts) for parts in files],
        LABEL_COLUMN: [parts[-2] for parts in files],
    }
    if with_split:
        data = {SPLIT_COLUMN: [parts[0] for parts in files], **data}
    # Not dtype=str: Arrow cannot hold a name that is not UTF-8, which validation is to report.
    frame = pd.DataFrame(data, dtype=object)
    return Source(frame, base=folder, passed_over=passed_over)


def _sorted_out(
    found: Iterable[tuple[str, ...]],
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """The path parts of all images, sorted, and counts of the other files."""
    images: list[tuple[str, ...]] = []
    hidden = others = 0
    for parts in found:
        if any(part.startswith(".") for part in parts) or parts[-1] in layout.DESKTOP_FILES:
            hidden += 1
        elif parts[-1].lower().endswith(IMAGE_ENDINGS):
            images.append(parts)
        else:
            others += 1
    return sorted(images), {"hidden": hidden, "not images": others}


def _list(folder: str) -> Iterator[tuple[str, ...]]:
    """The path parts of all files below a folder on a remote store."""
    for file in storage.files_below(folder):
        yield tuple(file.split("/"))


def _walk(folder: str) -> Iterator[tuple[str, ...]]:
    """The path parts of all files below a local folder; a hidden folder counts as one file.

    Links to folders are followed, but for those that lead back up.
    """
    for where, folders, names in os.walk(folder, onerror=_refuse_unlisted, followlinks=True):
        above = Path(where).relative_to(folder).parts
        for name in folders:
            if name.startswith("."):
                yield (*above, name)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not _leads_up(where, name)
        )
        for name in names:
            yield (*above, name)


def _leads_up(where: str, name: str) -> bool:
    """True for a link to a folder that it lies in, which a walk would never leave."""
    link = Path(where, name)
    return link.is_symlink() and any(link.samefile(above) for above in link.absolute().parents)


def _refuse_unlisted(error: OSError) -> None:
    raise SourceError(
        f"{error.filename}: the folder cannot be listed: {error.strerror}."
    ) from error
