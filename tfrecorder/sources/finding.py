"""What is wrong or odd about some rows of a source, by one rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.display.tables import cut, escaped
from tfrecorder.options.report_codes import CODES, ERROR, remedy_of


@dataclass(frozen=True)
class Finding:
    """One rule's findings: for each a row, a value and a message.

    Attributes:
        code: a key of `CODES`.
        rows: row numbers from 0; (None,) for a finding about the whole frame.
        column: the column concerned.
        values: the value in each of these rows.
        messages: one message for each row, or one for all.
        others: for each row, another row that it conflicts with; empty if there is none.
        renames: of columns, by the names that they have in the source.
    """

    code: str
    rows: Sequence[int | None]
    column: str
    values: Sequence[Any]
    messages: Sequence[str] | str
    others: Sequence[int] = ()
    renames: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_error(self) -> bool:
        return CODES[self.code][0] == ERROR

    def cells(self) -> dict[str, Sequence[Any]]:
        """The columns of a report, as long as the number of rows."""
        size = len(self.rows)
        severity = CODES[self.code][0]
        values = [_short(value) for value in self.values]
        messages = [self.messages] * size if isinstance(self.messages, str) else self.messages
        return {
            "severity": [severity] * size,
            "code": [self.code] * size,
            "row": self.rows,
            "column": [self.column] * size,
            "value": values,
            "message": messages,
            "remedy": [remedy_of(self.code, values, self.renames)] * size,
            "other_row": self.others or [None] * size,
        }


def _short(value: Any) -> Any:
    """A value as the report shows it: printable text that does not fill the screen."""
    return escaped(cut(value, 200)) if isinstance(value, str) else value


def bad_annotation(
    row: int | None,
    column: str,
    value: Any,
    message: str,
) -> Finding:
    return Finding("bad_annotation", [row], column, [value], message)


def flag(
    code: str,
    mask: np.ndarray,
    column: pd.Series,
    message: str,
) -> Finding:
    """A finding for each row under a mask; the message may use {value} and {type}."""
    flagged = column[mask]
    values = flagged.tolist()
    messages = (
        [message.format(value=cut(value), type=type(value).__name__) for value in values]
        if "{" in message
        else message
    )
    return Finding(code, list(flagged.index), str(column.name), values, messages)


def conflicts(
    column: pd.Series,
    codes: np.ndarray,
    group: str,
) -> Finding:
    """The rows that say something else than the first row of their group.

    Args:
        column: Python values.
        codes: the number of each row's group, in the order of their first rows.
        group: what the rows of a group have in common, in words.
    """
    first = np.unique(codes, return_index=True)[1]
    shown = column.map(repr).to_numpy()
    differing = column[shown != shown[first][codes]]
    words = f"differs from the value in the first row of this {group}"
    messages = [f"{cut(value)!r} {words}" for value in differing]
    rows = list(differing.index)
    values = differing.tolist()
    return Finding("conflicting_rows", rows, str(column.name), values, messages)
