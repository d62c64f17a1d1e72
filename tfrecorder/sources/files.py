"""CSV and JSON Lines files as frames."""

from __future__ import annotations

import csv
import itertools
import os
import tempfile
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, TextIO

import pandas as pd

from tfrecorder.core.limits import address_space_left
from tfrecorder.errors import SourceError
from tfrecorder.options.text_form import TextForm
from tfrecorder.schema.keys import COLUMNS
from tfrecorder.schema.splits import SPELLINGS
from tfrecorder.sources.automl import Table, read_headerless, read_json_lines, wide_fields
from tfrecorder.sources.cells import is_data_uri
from tfrecorder.sources.table import Source

#: Files in a folder with these extensions are its images; all other files are skipped and counted.
IMAGE_ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".gif", ".bmp"),
    *(".dib", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"),
)


JSON_LINES = (".jsonl", ".ndjson")


def read_file(
    path: str,
    copy: str,
    columns: Collection[str],
    form: TextForm = TextForm(),  # noqa: B008
) -> Table:
    """A CSV as text columns, or JSON Lines.

    Args:
        path: the name the user gave.
        copy: where it can be opened.
        columns: further names that a header may hold, in addition to ours.
        form: how a CSV is written.
    """
    try:
        if is_json_lines(path):
            refuse_form(form, "JSON Lines are UTF-8 without a separator")
            return read_json_lines(path, copy)
        first = _first_row(copy, form)
        if not form.sep:
            _refuse_other_separator(path, first, columns)
        if not _is_header(first, columns):
            return read_headerless(path, copy, looks_like_image, form)
        if (plain := _read_plain(copy, first, form)) is not None:
            return plain, None
        table = pd.read_csv(
            copy,
            dtype=str,
            keep_default_na=False,
            sep=form.separator,
            encoding=form.codec,
            skip_blank_lines=True,
        )
    except UnicodeError as error:
        raise SourceError(_not_decoded(path, copy, form)) from error
    except pd.errors.EmptyDataError as error:
        raise SourceError(f"{path}: the file is empty.") from error
    except (pd.errors.ParserError, csv.Error) as error:
        words = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise SourceError(
            f"{path}: not a well-formed CSV: {words}. Put a value that contains a comma, a quote "
            "or a line break in quotes."
        ) from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}.") from error
    if not isinstance(table.index, pd.RangeIndex):
        raise SourceError(
            f"{path}: the rows have more values than the header has names; put a value that "
            "contains a comma in quotes."
        )
    if len(set(first)) < len(first):
        # pandas makes names differ: "label.1"; a column without a name keeps the one it gave it.
        table.columns = [name or made for name, made in zip(first, table.columns, strict=True)]
    return table, None


#: The smallest file that Arrow reads, in bytes.  Arrow's threads take address space, and end the
#: process if the system has none to spare: too high a price for a smaller file.
ARROW_BYTES = 2**25

#: With any of these bytes, a CSV holds more than plain values between separators.
_MEANINGFUL = (b'"', b"\r", b"\0")


def _read_plain(copy: str, header: list[str], form: TextForm) -> pd.DataFrame | None:
    """Read a CSV of nothing but values, separators and line ends with Arrow; None for any other.

    The result is the same as from pandas, in a tenth of the time and a third of the memory.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names_are_plain = len(header) > 1 and len(set(header)) == len(header) and all(header)
    if form.encoding or not form.separator.isascii() or not names_are_plain:
        return None
    if os.path.getsize(copy) < ARROW_BYTES or address_space_left() is not None:
        return None
    with open(copy, "rb") as file:
        while block := file.read(2**20):
            if any(one in block for one in _MEANINGFUL):
                return None
    try:
        found = arrow_csv.read_csv(
            copy,
            parse_options=arrow_csv.ParseOptions(delimiter=form.separator, quote_char=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.large_string()), strings_can_be_null=False
            ),
        )
    except (pa.ArrowInvalid, OSError):  # such as a short row, which pandas reads or names
        return None
    if found.column_names != header or not found.num_rows:
        return None
    return found.combine_chunks().to_pandas()


def line_numbers(source: Source, rows: Collection[int]) -> dict[int, int]:
    """The line, from 1, where each of these rows starts in its text file; none for other sources.

    Args:
        rows: from 0.
    """
    if source.text is None or not rows:
        return {}
    path, json_lines, headed, form = source.text
    try:
        with open(path, newline="", encoding=form.codec) as file, wide_fields():
            starts = _starts(file, json_lines, headed, form)
            found = itertools.islice(starts, max(rows) + headed + 1)
            return {at - headed: line for at, line in enumerate(found) if at - headed in rows}
    except (csv.Error, OSError, UnicodeError):  # such as a cell too large: rows have numbers
        return {}


def _starts(file: TextIO, json_lines: bool, headed: bool, form: TextForm) -> Iterator[int]:
    """The first line of each row, counting rows as the readers do."""
    if json_lines:
        yield from (number for number, line in enumerate(file, 1) if line.strip())
        return
    reader, before = csv.reader(file, delimiter=form.separator), 0
    for cells in reader:
        if any(cells) or (headed and cells):
            yield before + 1
        before = reader.line_num


def is_json_lines(path: str) -> bool:
    """True if a text file with this name holds JSON Lines, not a CSV."""
    return path.lower().endswith(JSON_LINES)


def has_header(path: str, columns: Collection[str], form: TextForm) -> bool:
    """True if a CSV starts with the names of its columns; see `read_file`."""
    return _is_header(_first_row(path, form), columns)


def _first_row(path: str, form: TextForm) -> list[str]:
    with open(path, newline="", encoding=form.codec) as file, wide_fields():
        return next(filter(None, csv.reader(file, delimiter=form.separator)), [])


def _refuse_other_separator(path: str, first: list[str], columns: Collection[str]) -> None:
    """Spreadsheets of some countries write semicolons: say so, or nothing would be found."""
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        cells = [cell.strip() for cell in first[0].split(separator)] if len(first) == 1 else []
        known = {*COLUMNS, *columns}
        if len(cells) > 1 and (known.intersection(cells) or cells[0].lower() in SPELLINGS):
            raise SourceError(
                f"{path}: its values are separated by {name}; give sep={separator!r}, or save it "
                "with commas."
            )


class Spooled:
    """A temporary file with the rest of an open file or a pipe; it is deleted with this value.

    Attributes:
        path: the path of the file.
    """

    def __init__(self, stream: IO[Any]) -> None:
        handle, self.path = tempfile.mkstemp(prefix="tfrecorder-")
        weakref.finalize(self, os.unlink, self.path)
        with open(handle, "wb") as copy:
            while block := stream.read(2**20):
                copy.write(block.encode() if isinstance(block, str) else block)


def refuse_form(form: TextForm, words: str) -> None:
    """Raise a SourceError if a separator or an encoding was given for what is not CSV."""
    if form.stated:
        raise SourceError(f"{form.stated} is for a CSV file; leave it out: {words}.")


def _not_decoded(path: str, copy: str, form: TextForm) -> str:
    if form.encoding:
        return (
            f"{path}: it cannot be read with encoding={form.encoding!r}; give the file's own "
            "encoding."
        )
    return (
        f"{path}: line {_undecodable_line(copy)} is not UTF-8; give its encoding, such as "
        "encoding='cp1252', or save the file as UTF-8."
    )


def _undecodable_line(copy: str) -> int:
    """The number, from 1, of the first line that is not UTF-8."""
    data = Path(copy).read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1
    return 1


def _is_header(first: list[str], columns: Collection[str]) -> bool:
    """A first line is data if it starts with a split word or holds what can only be an image."""
    known = {*COLUMNS, *columns}
    if not first or any(cell in known for cell in first):
        return True
    return not (first[0].strip().lower() in SPELLINGS or any(map(looks_like_image, first)))


def looks_like_image(cell: str) -> bool:
    """True for what can only be the path or uri of an image."""
    return is_data_uri(cell) or "://" in cell or cell.lower().endswith(IMAGE_ENDINGS)
