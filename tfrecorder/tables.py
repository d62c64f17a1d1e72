"""Small tables of text, for people."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, the others to the right.

    >>> text_table([["split", "records"], ["TRAIN", "1,600"]])
    ['split  records', 'TRAIN    1,600']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def one_line(text: str, limit: int = 40) -> str:
    r"""A text of a data set as a cell: nothing in it moves the cursor, and it is not too long.

    >>> one_line("a\nb"), one_line("abcdef", limit=4)
    ('a\\nb', 'abc…')
    """
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
