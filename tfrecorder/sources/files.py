"""CSV and JSON Lines files as frames."""

from __future__ import annotations

import csv
import importlib
import itertools
import os
import tempfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.text import encoding_of
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.convert_values import TextForm
from tfrecorder.schema.keys import COLUMNS
from tfrecorder.schema.kinds import DEFAULT_SCHEMA
from tfrecorder.schema.splits import SPELLINGS
from tfrecorder.sources.automl import read_headerless, read_json_lines, wide_fields
from tfrecorder.sources.cells import is_data_uri
from tfrecorder.sources.path_source import PathSource, refuse_form, with_named_splits
from tfrecorder.sources.table import RawTable, Source, TextFile

#: Files in a folder with these extensions are its images; all other files are skipped and counted.
IMAGE_ENDINGS = (
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".png",
    ".apng",
    ".gif",
    ".bmp",
    ".dib",
    ".webp",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".pbm",
    ".pnm",
    ".avif",
    ".heic",
    ".heif",
    ".ico",
    ".tga",
)


#: The endings of archives; a ZIP is told by its beginning, as a workbook is one too.
_ARCHIVES = (".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z")


def read_files(source: Any, options: ConvertOptions) -> RawTable | None:
    """A CSV, or JSON Lines; or several, one after the other."""
    if not isinstance(source, PathSource) or not source.files:
        return None
    if len(source.files) > 1:
        return _joined(source.files, options)
    (whole,) = source.files
    if source.path.lower().endswith(IMAGE_ENDINGS):
        raise SourceError(
            f"source {source.path!r} is an image; give its folder, or a CSV that lists images."
        )
    if source.path.lower().endswith(_ARCHIVES):
        raise SourceError(f"source {source.path!r} is an archive; unpack it, and give its folder.")
    if source.path.lower().endswith(".xml"):
        raise SourceError(f"source {source.path!r} is XML; give the folder of its images too.")
    with storage.local_copy(whole) as copy:
        raw = _read_unpacked(source.path, copy, storage.parent(whole), options)
    return raw if storage.is_local(whole) else replace(raw, text=None)


def _joined(files: Sequence[str], options: ConvertOptions) -> RawTable:
    """Files of one form as one table.

    Raises:
        SourceError: their columns differ, or they are in several folders and `base` is not given.
    """
    tables = [*filter(None, (read_files(PathSource(file, (file,)), options) for file in files))]
    first, *others = tables
    names = [*first.frame.columns]
    for file, table in zip(files[1:], others, strict=True):
        names_here = [*table.frame.columns]
        if names_here != names or table.schema != first.schema:
            raise SourceError(
                f"{file} has other columns than {files[0]}: {', '.join(names_here)}, not "
                f"{', '.join(names)}. Convert one, and append the other."
            )
        if table.base != first.base and options.base is None:
            raise SourceError(
                f"{file} and {files[0]} are in two folders; {spelled('base')} says where relative "
                "uris start."
            )
    frame = pd.concat([table.frame for table in tables], ignore_index=True)
    frame = with_named_splits(frame, files, [len(table.frame) for table in tables])
    return replace(first, frame=frame, text=None)


def read_open_file(source: Any, options: ConvertOptions) -> RawTable | None:
    """The rest of an open file or a pipe, as a CSV or JSON Lines."""
    if not hasattr(source, "read"):
        return None
    name = getattr(source, "name", None)
    called = name if isinstance(name, str) and name != "<stdin>" else "standard input"
    spooled = _spooled(source)
    raw = _read_unpacked(called, spooled.name, os.getcwd(), options)
    keeps = (raw.text and raw.text.spooled) or spooled
    return replace(raw, text=raw.text and raw.text._replace(spooled=keeps))


def _spooled(source: Any) -> Any:
    """The rest of an open file in a file that is deleted with what keeps it."""
    spooled = tempfile.NamedTemporaryFile(prefix="tfrecorder-")
    while block := source.read(2**20):
        with storage.failing_writes(tempfile.gettempdir(), ", or set TMPDIR to a larger disk"):
            spooled.write(block.encode() if isinstance(block, str) else block)
            spooled.flush()
    return spooled


#: How packed files begin, and what they are packed with.
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\0": "lzma", b"\x28\xb5\x2f\xfd": "zstd"}

#: The endings of their names, which say nothing of what is in them.
_PACKED_ENDINGS = (".gz", ".gzip", ".bz2", ".xz", ".zst")


def _read_unpacked(
    path: str,
    copy: str,
    base: str,
    options: ConvertOptions,
) -> RawTable:
    """`_read_file`, of a file that may be packed: it is unpacked to a disk, as long as it is used.

    Raises:
        SourceError: it cannot be unpacked; also as `_read_file`.
    """
    try:
        with open(copy, "rb") as file:
            begin = file.read(8)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}.") from error
    packed = next((form for magic, form in _PACKED.items() if begin.startswith(magic)), None)
    if packed is None:
        return _read_file(path, copy, base, options)
    module: Any = pa if packed == "zstd" else importlib.import_module(packed)
    damages = (EOFError, OSError, ValueError, zlib.error, getattr(module, "LZMAError", OSError))
    try:
        # Python unpacks Zstandard from 3.14 on.
        is_arrow = module is pa
        opened = pa.input_stream(copy, compression=packed) if is_arrow else module.open(copy)
        with opened:
            spooled = _spooled(opened)
    except damages as error:
        raise SourceError(f"{path}: its {packed} cannot be unpacked: {error}.") from error
    inside = path
    if path.lower().endswith(_PACKED_ENDINGS):
        inside = os.path.splitext(path)[0]
    raw = _read_file(inside, spooled.name, base, options)
    return replace(raw, text=raw.text and raw.text._replace(spooled=spooled))


def _read_file(
    path: str,
    copy: str,
    base: str,
    options: ConvertOptions,
) -> RawTable:
    """A CSV as text columns, or JSON Lines.

    Args:
        path: the name the user gave.
        copy: where it can be opened.
        base: the folder that relative uris start from.
    """
    form = options.text_form
    columns = options.columns or {}
    needed = (options.schema or DEFAULT_SCHEMA).source_columns()
    names = {*COLUMNS, *columns, *needed}
    # Vertex AI writes training-00001-of-00004, which has no ending.
    is_named = bool(os.path.splitext(path)[1])
    json_lines = path.lower().endswith((".jsonl", ".ndjson"))
    headed = False
    stated = None
    try:
        if not is_named:
            json_lines = _is_json(copy)
        if json_lines:
            refuse_form(form, "JSON Lines are UTF-8 without a separator")
            frame, stated = read_json_lines(path, copy)
        else:
            form = _spaced(copy, _marked(copy, form))
            first = _first_row(copy, form)
            if not form.sep:
                _refuse_other_separator(path, first, names)
            if headed := _is_header(first, names):
                frame = _read_headed(path, copy, first, form)
            else:
                frame, stated = read_headerless(path, copy, looks_like_image, form)
    except UnicodeError as error:
        raise SourceError(_not_decoded(path, copy, form, json_lines)) from error
    except pd.errors.EmptyDataError as error:
        raise SourceError(f"{path}: the file is empty.") from error
    except (pd.errors.ParserError, csv.Error) as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise SourceError(
            f"{path}: not a well-formed CSV: {reason}. Put a value that contains a comma, a quote "
            "or a line break in quotes."
        ) from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}.") from error
    text = TextFile(copy, json_lines, headed, form)
    typed = stated is not None
    schema = options.schema or stated
    return RawTable(
        frame,
        base,
        text=text,
        typed=typed,
        schema=schema,
        columns=columns,
    )


def _read_headed(
    path: str,
    copy: str,
    header: list[str],
    form: TextForm,
) -> pd.DataFrame:
    if (plain := _read_plain(copy, header, form)) is not None:
        return plain
    table = pd.read_csv(
        copy,
        dtype=str,
        keep_default_na=False,
        encoding=form.codec,
        skip_blank_lines=True,
        **form.dialect,
    )
    if not isinstance(table.index, pd.RangeIndex):
        raise SourceError(
            f"{path}: the rows have more values than the header has names; put a value that "
            "contains a comma in quotes."
        )
    if len(set(header)) < len(header):
        # pandas makes names differ: "label.1"; a column without a name keeps the one it gave it.
        table.columns = [name or made for name, made in zip(header, table.columns, strict=True)]
    return table


#: The smallest file that Arrow reads, in bytes.  Arrow's threads take address space, and end the
#: process if the system has none to spare: too high a price for a smaller file.
ARROW_BYTES = 2**25

#: With any of these bytes, a CSV holds more than plain values between separators.
_MEANINGFUL = (b'"', b"\r", b"\0")


def _read_plain(
    copy: str,
    header: list[str],
    form: TextForm,
) -> pd.DataFrame | None:
    """Read a CSV of nothing but values, separators and line ends with Arrow; None for any other.

    The result is the same as from pandas, in a tenth of the time and a third of the memory.
    """
    from pyarrow import csv as arrow_csv

    if len(header) < 2 or not all(header) or len(set(header)) < len(header):
        return None
    if form.encoding or form.is_spaced or not form.separator.isascii():
        return None
    if os.path.getsize(copy) < ARROW_BYTES:
        return None
    with open(copy, "rb") as file:
        while block := file.read(2**20):
            if any(byte in block for byte in _MEANINGFUL):
                return None
    try:
        table = arrow_csv.read_csv(
            copy,
            parse_options=arrow_csv.ParseOptions(delimiter=form.separator, quote_char=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.large_string()),
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowInvalid, OSError):  # such as a short row, which pandas reads or names
        return None
    if table.column_names != header or not table.num_rows:
        return None
    return table.combine_chunks().to_pandas()


def line_numbers(source: Source, rows: Collection[int]) -> dict[int, int]:
    """The line, from 1, where each of these rows starts in its text file; none for other sources.

    Args:
        rows: from 0.
    """
    if source.text is None or not rows:
        return {}
    path, _, headed, form, _, first = source.text
    wanted = {row if first is None else int(first[row]): row for row in rows}
    try:
        with open(path, newline="", encoding=form.codec) as file, wide_fields():
            lines = enumerate(_first_lines(file, source.text), -headed)
            needed = itertools.islice(lines, max(wanted) + headed + 1)
            return {wanted[row]: line for row, line in needed if row in wanted}
    except (csv.Error, OSError, UnicodeError):  # such as a cell too large: rows have numbers
        return {}


def _first_lines(file: TextIO, text: TextFile) -> Iterator[int]:
    """The first line of each row, counting rows as the readers do."""
    if text.json_lines:
        yield from (number for number, line in enumerate(file, 1) if line.strip())
        return
    reader = csv.reader(file, **text.form.dialect)
    before = 0
    for cells in reader:
        if any(cells) or (text.headed and cells):
            yield before + 1
        before = reader.line_num


def _is_json(copy: str) -> bool:
    with open(copy, "rb") as file:
        return file.read(1) == b"{"


def _first_row(path: str, form: TextForm) -> list[str]:
    with open(path, newline="", encoding=form.codec) as file, wide_fields():
        return next(filter(None, csv.reader(file, **form.dialect)), [])


def _marked(copy: str, form: TextForm) -> TextForm:
    """The form of a CSV that a byte order mark says is UTF-16, unless its encoding was given."""
    with open(copy, "rb") as file:
        is_utf_16 = encoding_of(file.read(4)) == "utf-16"
    return replace(form, encoding="utf-16") if is_utf_16 and not form.encoding else form


def _spaced(path: str, form: TextForm) -> TextForm:
    """The form of a CSV, in whose first row a blank may follow each separator."""
    spaced = replace(form, is_spaced=True)
    values = _first_row(path, form)[1:]
    if form.separator.isspace() or not values or any(value[:1] != " " for value in values):
        return form
    # What is still there stands in quotes, and is meant.
    is_meant = any(value[:1] == " " for value in _first_row(path, spaced))
    return form if is_meant else spaced


def _refuse_other_separator(
    path: str,
    first: list[str],
    names: set[str],
) -> None:
    """Spreadsheets of some countries write semicolons: say so, or no column would be recognised."""
    if len(first) != 1:
        return
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), (" ", "blanks")):
        cells = [cell.strip() for cell in first[0].split(separator)]
        is_known = not names.isdisjoint(cells) or cells[0].lower() in SPELLINGS
        is_known |= looks_like_image(cells[0]) and not looks_like_image(first[0])
        # A heading in any language; but a blank may stand in a name.
        is_known |= separator != " " and not looks_like_image(first[0])
        if len(cells) > 1 and is_known:
            by_pandas = f"pandas.read_csv({path!r}, sep={separator!r})"
            raise SourceError(
                f"{path}: its values are separated by {name}; read it with "
                f"{spelled('sep', separator, by_pandas)}, or save it with commas."
            )


#: How a ZIP archive begins, which a workbook is; and what is in a workbook.
_ZIP = b"PK\3\4"
_SHEETS = (b"xl/workbook", b"opendocument.spreadsheet")


def _not_decoded(
    path: str,
    copy: str,
    form: TextForm,
    is_json: bool,
) -> str:
    if form.encoding:
        words = f"it cannot be read with {spelled('encoding', form.encoding)}"
        return f"{path}: {words}; give the file's own encoding."
    data = Path(copy).read_bytes()
    if data.startswith(_ZIP):
        if not any(mark in data for mark in _SHEETS):
            return f"{path}: it is a ZIP archive; unpack it, and give the folder, or its table."
        return (
            f"{path}: it is a workbook, not a CSV; save its sheet as CSV, or, in Python, give the "
            f"frame of `pandas.read_excel({path!r})`."
        )
    line = 1
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
    words = f"{path}: line {line} is not UTF-8"
    if is_json:
        return f"{words}; save the file as UTF-8."
    with_it = spelled("encoding", "cp1252", f"pandas.read_csv({path!r}, encoding='cp1252')")
    return f"{words}; read it in its own encoding, as with {with_it}, or save the file as UTF-8."


def _is_header(first: list[str], names: set[str]) -> bool:
    """A first line is data if it starts with a split word or holds what can only be an image."""
    if not first or names.intersection(first):
        return True
    return not (first[0].strip().lower() in SPELLINGS or any(map(looks_like_image, first)))


def looks_like_image(cell: str) -> bool:
    """True for what can only be the path or uri of an image."""
    return is_data_uri(cell) or "://" in cell or cell.lower().endswith(IMAGE_ENDINGS)
