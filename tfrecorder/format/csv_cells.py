"""Every CSV that we write.

A spreadsheet runs a field that begins with = + - @, a tab or a line break, and a uri may be
`=HYPERLINK(...)`.  So in a list for people such a field is written with a single quote before it,
which marks it as text for a spreadsheet.  A field that begins with a quote gets one more.  To get
the exact values back, remove one quote from the start of each field that has one.

A table that programs read has the exact values.

Source: OWASP, "CSV Injection".
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

import pandas as pd

from tfrecorder.display.tables import escaped

_QUOTE = "'"
#: In East Asian versions the full-width forms also start a formula.
_MARKED = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", _QUOTE)


def field_of(value: object) -> str:
    """A value as written in lists for people.

    >>> field_of("=1+1"), field_of("a.jpg"), field_of("'a.jpg")
    ("'=1+1", 'a.jpg', "''a.jpg")
    """
    text = str(value)
    return _QUOTE + text if text.startswith(_MARKED) else text


def to_csv(rows: Iterable[Iterable[object]]) -> str:
    """Rows as a CSV of exact values; lines end in a bare newline.

    >>> to_csv([["a"], ["=1"], [None], ["x\\ry"]])
    'a\\n=1\\n""\\n"x\\ry"\\n'
    """
    text = io.StringIO(newline="")
    plain = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        cells = [*row]
        # Older Pythons leave a carriage return unquoted, and a reader would begin a new row there.
        returns = any(isinstance(cell, str) and "\r" in cell for cell in cells)
        (quoted if returns else plain).writerow(cells)
    return text.getvalue()


def csv_of(table: pd.DataFrame, *, exact: bool = False) -> str:
    """A table as a CSV, without its index: for people, or exact for programs.

    Numbers are written as they are: -1 is no formula.  What is missing is an empty field.
    """

    def shown(cell: Any) -> Any:
        return cell if exact or not isinstance(cell, str) else field_of(escaped(cell))

    cells = table.astype(object).where(table.notna(), None)
    rows: list[Iterable[Any]] = [table.columns, *cells.itertuples(index=False, name=None)]
    return to_csv([shown(cell) for cell in row] for row in rows)


def value_of(field: str) -> str:
    """The exact value of a field in lists for people.

    >>> value_of("'=1+1"), value_of("a.jpg"), value_of("''a.jpg")
    ('=1+1', 'a.jpg', "'a.jpg")
    """
    return field.removeprefix(_QUOTE)
