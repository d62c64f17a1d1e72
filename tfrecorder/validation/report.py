"""The validation report: what can be wrong with a frame, and a frame that lists what is."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pandas as pd

from tfrecorder.display.tables import Report, Table, counted
from tfrecorder.options.report_codes import ERROR, SEVERITIES, WARNING
from tfrecorder.sources.finding import Finding

REPORT_COLUMNS = ("severity", "code", "row", "column", "value", "message", "remedy", "other_row")


def build_report(findings: Iterable[Finding]) -> pd.DataFrame:
    """All findings as one frame, errors first and notes last, then by row; empty if none."""
    # One frame for all, not one for each: a table may have a finding for each of its columns.
    columns: dict[str, list[Any]] = {name: [] for name in REPORT_COLUMNS}
    for finding in findings:
        for name, cells in finding.cells().items():
            columns[name].extend(cells)
    report = pd.DataFrame(columns, dtype=object)
    return _sorted(report.astype({"row": "Int64", "other_row": "Int64"}))


def _sorted(report: pd.DataFrame) -> pd.DataFrame:
    return report.sort_values(
        ["severity", "row"],
        key=lambda column: column.map(SEVERITIES.index) if column.name == "severity" else column,
        kind="stable",
        na_position="first",
        ignore_index=True,
    )


def as_errors(report: pd.DataFrame, warnings: str | Sequence[str]) -> pd.DataFrame:
    """The report with warnings as errors: none for "show", all for "error", or those codes."""
    if warnings == "show":
        return report
    if warnings == "error":
        return report.replace({"severity": {WARNING: ERROR}})
    severity = report["severity"].mask(report["code"].isin(warnings), ERROR)
    return _sorted(report.assign(severity=severity))


def count_warnings(report: pd.DataFrame) -> dict[str, int]:
    """How many warnings there are of each code."""
    counts = report.loc[report["severity"] == WARNING, "code"].value_counts()
    return {str(code): int(count) for code, count in counts.items()}


def has_errors(report: pd.DataFrame) -> bool:
    return bool((report["severity"] == ERROR).any())


def problems(report: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a report as JSON values."""
    rows = report.astype(object).where(report.notna(), None).to_dict("records")
    return [{str(name): _as_json(cell) for name, cell in row.items()} for row in rows]


def _as_json(cell: Any) -> Any:
    return cell if isinstance(cell, (str, int, float, type(None))) else str(cell)


#: What a comparison with the dataset finds, by code: a sentence for one row, and for many.
COMPARISON = {
    "new_class": ("1 new class", "{:,} new classes"),
    "same_bytes_leakage": (
        "leakage: 1 row has the bytes of an image of another split:",
        "leakage: {:,} rows have the bytes of images of other splits:",
    ),
    "same_bytes": (
        "1 row has the bytes of an image that is there under another name:",
        "{:,} rows have the bytes of images that are there under other names:",
    ),
    "same_bytes_skipped": (
        "1 row is skipped: its bytes are there under another name:",
        "{:,} rows are skipped: their bytes are there under other names:",
    ),
    "near_there_leakage": (
        "leakage: 1 row is a near copy of an image of another split:",
        "leakage: {:,} rows are near copies of images of other splits:",
    ),
    "near_there": (
        "1 row is a near copy of an image that is there:",
        "{:,} rows are near copies of images that are there:",
    ),
    "other_values": (
        "1 row is skipped: its image is there with other values (`update` corrects it):",
        "{:,} rows are skipped: their images are there with other values (`update` corrects them):",
    ),
}

#: How many findings of a code such a sentence names.
_NAMED = 5


def comparison_sentences(report: pd.DataFrame, lines: Mapping[int, int]) -> list[str]:
    """What the comparison of a table with its dataset found, in sentences.

    With the same words before an operation, in its dry run and in its result.

    Args:
        lines: as in `ValidationReport`.
    """
    sentences = []
    for code, (single, many) in COMPARISON.items():
        rows = report[report["code"] == code]
        shown = [
            f"{'' if pd.isna(row) else f'{_place(row, lines)}, '}{message}"
            for row, message in zip(rows["row"][:_NAMED], rows["message"], strict=False)
        ]
        if more := len(rows) - len(shown):
            shown.append(f"… {more:,} more")
        if shown:
            words = single if len(rows) == 1 else many.format(len(rows))
            sentences.append(f"{words} {', '.join(shown)}")
    return sentences


#: Codes that any column of a schema may have.
_OF_COLUMNS = ("missing_value", "wrong_value", "rounded_number")

#: How many findings of a code people see.
EXAMPLES = 3


class ValidationReport(Report, pd.DataFrame):
    """A row for each problem, as `tfrecorder.validate` describes; people see them in groups.

    Attributes:
        source_rows: how many rows were checked.
        notes: what is not a problem but should be known.
        lines: for a text file, the line of each row that is shown, counted as an editor does.
        thumbnails: small JPEGs of some rows that are shown, for a notebook.
    """

    # What pandas carries along with the columns.
    _metadata: ClassVar[list[str]] = ["source_rows", "notes", "lines", "thumbnails"]

    source_rows: int
    notes: tuple[str, ...]
    lines: dict[int, int]
    thumbnails: dict[int, bytes]

    @classmethod
    def of(
        cls,
        report: pd.DataFrame,
        source_rows: int,
        notes: Iterable[str] = (),
        lines: Mapping[int, int] | None = None,
    ) -> ValidationReport:
        made = cls(report)
        made.source_rows = source_rows
        made.notes = tuple(notes)
        made.lines = dict(lines or {})
        made.thumbnails = {}
        return made

    @property
    def errors(self) -> ValidationReport:
        """Only the errors."""
        errors = self[self["severity"] == ERROR]
        return ValidationReport.of(errors, self.source_rows, lines=self.lines)

    def __str__(self) -> str:
        return "\n".join([self._headline(), *self.lines_of_groups(), *self.notes])

    def lines_of_groups(self) -> Iterator[str]:
        """The problems as lines: each code with its count, examples and remedy."""
        for severity, code, number, examples, remedy in self._groups():
            yield f"{severity}: {code} ({number})"
            yield from (f"  {example}" for example in examples)
            yield f"  -> {remedy}"

    def _tables(self) -> list[Table]:
        groups = [
            [severity, code, number, "; ".join(examples), remedy]
            for severity, code, number, examples, remedy in self._groups()
        ]
        return [Table([["", "problem", "count", "examples", "remedy"], *groups])] if groups else []

    def _notes(self) -> list[str]:
        return list(self.notes)

    def _repr_html_(self) -> str:
        figures = [
            f'<figure style="display:inline-block;margin:4px">'
            f'<img src="data:image/jpeg;base64,{b64encode(jpeg).decode()}" alt="">'
            f"<figcaption>{_place(row, self.lines)}</figcaption></figure>"
            for row, jpeg in self.thumbnails.items()
        ]
        return super()._repr_html_() + "".join(figures)

    def _groups(self) -> Iterator[tuple[str, str, str, list[str], str]]:
        """Of each code its severity, the code, how many there are, examples, and the remedy."""
        for code, rows in self.groupby("code", sort=False):
            first = rows.iloc[0]
            examples = []
            shown = rows.head(EXAMPLES)
            cells = shown[["row", "column", "message", "other_row"]]
            for row, column, message, other in cells.itertuples(index=False, name=None):
                named = f", column {column!r}" if code in _OF_COLUMNS else ""
                where = "" if pd.isna(row) else f"{_place(row, self.lines)}{named}: "
                elsewhere = "" if pd.isna(other) else f" ({_place(other, self.lines)})"
                examples.append(f"{where}{message}{elsewhere}")
            if len(rows) > len(shown):
                examples.append(f"... and {len(rows) - len(shown):,} more")
            yield first["severity"], str(code), f"{len(rows):,}", examples, first["remedy"]

    def _headline(self) -> str:
        counts = self["severity"].value_counts()
        parts = [counted(counts[name], name) for name in SEVERITIES if name in counts]
        if not {ERROR, WARNING} & {*counts.index}:
            parts.insert(0, "no problems")
        *before, last = parts
        problems = f"{', '.join(before)} and {last}" if before else last
        return f"{problems} in {counted(self.source_rows, 'row')}"


def _place(row: int, lines: Mapping[int, int]) -> str:
    """Where a row stands in its source."""
    line = lines.get(int(row))
    return f"row {row}" if line is None else f"line {line}"


def shown_rows(report: pd.DataFrame) -> list[int]:
    """The rows that a report names, in its groups or in `comparison_sentences`."""
    shown = report.groupby("code", sort=False).head(max(EXAMPLES, _NAMED))
    named = pd.concat([shown["row"], shown["other_row"]]).dropna()
    return sorted({int(row) for row in named})
