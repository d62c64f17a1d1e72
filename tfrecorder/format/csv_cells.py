"""Every CSV that we write: its fields, so that no spreadsheet runs one as a formula.

A spreadsheet runs a field that begins with = + - @, a tab or a line break, and a uri may be
`=HYPERLINK(...)`.  So such a field is written with a single quote before it, which marks it as text
for a spreadsheet.  A field that begins with a quote gets one more.  To get the exact values back,
remove one quote from the start of each field that has one.

Source: OWASP, "CSV Injection".
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from tfrecorder.display.tables import escaped

_QUOTE = "'"
#: In East Asian versions the full-width forms also start a formula.
_MARKED = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", _QUOTE)


def field_of(value: object) -> str:
    """A value as written in these files.

    >>> field_of("=1+1"), field_of("a.jpg"), field_of("'a.jpg")
    ("'=1+1", 'a.jpg', "''a.jpg")
    """
    text = str(value)
    return _QUOTE + text if text.startswith(_MARKED) else text


def csv_of(table: pd.DataFrame) -> str:
    """A table as a CSV, without its index.

    Numbers are written as they are: -1 is no formula.
    """

    def shown(cell: Any) -> Any:
        return field_of(escaped(cell)) if isinstance(cell, str) else cell

    columns = {shown(name): list(map(shown, column)) for name, column in table.items()}
    return str(pd.DataFrame(columns, dtype=object).to_csv(index=False))


def value_of(field: str) -> str:
    """The exact value of a field in these files.

    >>> value_of("'=1+1"), value_of("a.jpg"), value_of("''a.jpg")
    ('=1+1', 'a.jpg', "'a.jpg")
    """
    return field.removeprefix(_QUOTE)
