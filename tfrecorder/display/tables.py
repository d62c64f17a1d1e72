"""Small tables for people: of text in a terminal, of HTML in a notebook."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, cast


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, the others to the right.

    >>> text_table([["split", "records"], ["TRAIN", "1,600"]])
    ['split  records', 'TRAIN    1,600']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first the header, as HTML; every cell is escaped.

    Texts are on the left, where notebooks put numbers and all else on the right.

    >>> html_table([["n"], ["7"]])
    '<table><thead><tr><th>n</th></tr></thead><tbody><tr><td>7</td></tr></tbody></table>'
    """
    if not rows:
        return ""
    head, *body = rows
    header = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in body)
    return f"<table><thead><tr>{header}</tr></thead><tbody>{lines}</tbody></table>"


def _html_cell(text: str) -> str:
    left = "" if text[:1].isdigit() else ' style="text-align:left"'
    return f"<td{left}>{html.escape(text)}</td>"


def _markdown_table(table: Table) -> str:
    cells = [[in_markdown(cell) for cell in row] for row in table.rows]
    cells.insert(1, ["---", *(["---:"] * (len(cells[0]) - 1))])
    lines = [f"| {' | '.join(row)} |" for row in cells]
    if table.below:
        lines.append(f"\n{in_markdown(table.below)}")
    return "\n".join(lines)


def in_markdown(text: str) -> str:
    """A text in one line in which nothing is markup of Markdown or HTML.

    >>> in_markdown("a|b <i>")
    'a&#124;b &#60;i&#62;'
    """
    # A `:` or `.` where a bare uri would become a link.
    return re.sub(
        r"[^\w\s.,:;/='%()+…-]|_|:(?=//)|(?<=www)\.",
        lambda mark: f"&#{ord(mark[0])};",
        " ".join(text.split()),
    )


def escaped(text: str) -> str:
    r"""A text with its lone surrogates escaped: no file and no terminal can hold them.

    They stand for the bytes of a file name that is not UTF-8.

    >>> print(escaped("caf\udce9.jpg"))
    caf\udce9.jpg
    """
    return text.encode(errors="backslashreplace").decode()


#: The most letters of a value's line in a REPL, without its class.
_REPR = 130


@dataclass(frozen=True)
class Table:
    """Rows of cells, the first the header, and a line below them, "" for none."""

    rows: Sequence[Sequence[str]]
    below: str = ""


class OneLine:
    """A value that is one line in a REPL, a log or a debugger; `print` shows all of it."""

    def _in_a_line(self) -> str:
        return str(self).partition("\n")[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {one_line(self._in_a_line(), _REPR)}>"


class Report(OneLine):
    """A value that prints itself, also in a notebook, as a headline, tables and notes."""

    #: What `as_dict` adds to the fields.
    _totals: ClassVar[Sequence[str]] = ()

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return dict(self._values())

    def _values(self) -> Mapping[str, object]:
        totals = {name: getattr(self, name) for name in self._totals}
        return {**asdict(cast(Any, self)), **totals}

    def _headline(self) -> str:
        raise NotImplementedError

    def _in_a_line(self) -> str:
        return self._headline()

    def _tables(self) -> list[Table]:
        return []

    def _notes(self) -> list[str]:
        return []

    def __str__(self) -> str:
        tables = [
            [*text_table(table.rows), *filter(None, [table.below])] for table in self._tables()
        ]
        blocks = [[self._headline()], *tables, self._notes()]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def as_markdown(self) -> str:
        """Its tables and notes in Markdown; nothing of the data is markup."""
        notes = "\n".join(f"- {in_markdown(note)}" for note in self._notes())
        return "\n\n".join([*(_markdown_table(table) for table in self._tables()), notes])

    def _repr_html_(self) -> str:
        tables = "".join(
            html_table(table.rows) + (f"<p>{html.escape(table.below)}</p>" if table.below else "")
            for table in self._tables()
        )
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self._notes())
        return f"<p>{html.escape(self._headline())}</p>{tables}<ul>{notes}</ul>"


def one_line(text: str, limit: int = 40) -> str:
    r"""A text of a data set as a cell: nothing in it moves the cursor, and it is not too long.

    >>> one_line("a\nb"), one_line("abcdef", limit=4)
    ('a\\nb', 'abc…')
    """
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return str(cut(shown, limit))


def cut(value: Any, limit: int = 100) -> Any:
    """A value as a message shows it: not too long."""
    if isinstance(value, str) and len(value) > limit:
        return f"{value[: limit - 1]}…"
    return value


def class_words(names: Sequence[str], most: int = 8) -> str:
    """How many classes there are, and the first names.

    >>> class_words(["cat", "dog", "eel"], most=2)
    "3: 'cat', 'dog', … 1 more"
    """
    more = len(names) - most
    shown = ", ".join(repr(cut(name)) for name in names[:most])
    return f"{len(names)}: {shown}" + (f", … {more} more" if more > 0 else "")


def unused_words(names: Sequence[str]) -> str:
    """Which classes nothing is of: a source and the result say it in the same words, once."""
    return f"classes without an image: {class_words(names, 10)}"


#: Files of a folder that made no row, by kind: one of them, and many.
_PASSED_OVER = {
    "hidden": ("hidden file", "hidden files"),
    "not images": ("file that is no image", "files that are no images"),
    "links astray": ("link that leads nowhere", "links that lead nowhere"),
    "system folders": ("folder that a system made", "folders that a system made"),
    "images without a row": ("image without a row", "images without a row"),
    "images without annotations": ("image without annotations", "images without annotations"),
    "listed images that are not there": (
        "listed image that is not there",
        "listed images that are not there",
    ),
}


def passed_over_words(counts: Mapping[str, int]) -> str:
    """Files of a folder that made no row in a line; "" where there are none.

    >>> passed_over_words({"hidden": 2, "not images": 0})
    'skipped in the folder: 2 hidden files'
    """
    passed = []
    for kind, words in _PASSED_OVER.items():
        if counts.get(kind):
            passed.append(counted(counts[kind], *words))
    return f"skipped in the folder: {', '.join(passed)}" if passed else ""


def counts_in_words(counts: Mapping[str, int], most: int | None = None) -> str:
    """Counts by name, the most frequent first.

    Args:
        most: how many are named.

    >>> counts_in_words({"duplicate_row": 4, "leakage": 18})
    'leakage 18, duplicate_row 4'
    >>> counts_in_words({"a": 1, "b": 2}, most=1)
    'b 2, …'
    """
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {count:,}" for name, count in ordered[:most])
    return shown if most is None or len(ordered) <= most else f"{shown}, …"


def counted(
    number: int,
    singular: str,
    plural: str = "",
) -> str:
    """A number with its noun.

    >>> counted(2000, "row"), counted(3, "class"), counted(2, "image is", "images are")
    ('2,000 rows', '3 classes', '2 images are')
    """
    ending = "es" if singular.endswith(("s", "x", "ch")) else "s"
    return f"{number:,} {singular if number == 1 else plural or singular + ending}"


def readable_bytes(size: int) -> str:
    """A size for people.

    >>> readable_bytes(999), readable_bytes(134_217_728), readable_bytes(86_000_000_000)
    ('999 B', '128 MiB', '80.1 GiB')
    """
    value = float(size)
    unit = "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + f" {unit}"
