"""The fields of `rejects.csv` and `suspects.csv`, so that no spreadsheet runs one as a formula.

A spreadsheet runs a field that begins with = + - @, a tab or a line break, and a uri may be
`=HYPERLINK(...)`.  So such a field is written with a single quote before it, which a spreadsheet
takes as the sign of text.  A field that begins with a quote gets one more: whoever reads the file
takes one quote away from the begin of each field that has one, and has the exact value.

Source: OWASP, "CSV Injection".
"""

from __future__ import annotations

_QUOTE = "'"
#: The full-width forms are signs of a formula too, in East Asian versions.
_MARKED = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", _QUOTE)


def field_of(value: object) -> str:
    """A value as these files hold it.

    >>> field_of("=1+1"), field_of("a.jpg"), field_of("'a.jpg")
    ("'=1+1", 'a.jpg', "''a.jpg")
    """
    text = str(value)
    return _QUOTE + text if text.startswith(_MARKED) else text


def value_of(field: str) -> str:
    """The exact value of a field of these files.

    >>> value_of("'=1+1"), value_of("a.jpg"), value_of("''a.jpg")
    ('=1+1', 'a.jpg', "'a.jpg")
    """
    return field.removeprefix(_QUOTE)
