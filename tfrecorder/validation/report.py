"""The validation report: what can be wrong with a frame, and a frame that lists what is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

ERROR = "error"
WARNING = "warning"

REPORT_COLUMNS = ("severity", "code", "row", "column", "value", "message", "remedy")

#: Every reason code: its severity and its remedy.
CODES = {
    "missing_column": (
        ERROR,
        "Rename the column, or map it: columns={{'{value}': '{column}'}}; a schema names the "
        "source's own columns (`tfrecorder schema` prints one). Drop it if it is something else.",
    ),
    "empty_frame": (ERROR, "Give at least one row."),
    "null_uri": (ERROR, "Drop the row or give its image."),
    "null_label": (
        ERROR,
        "Label the row or drop it; leave the label column out for a data set without labels. "
        "(pandas reads 'NA' and 'null' as missing: read_csv(keep_default_na=False) keeps them.)",
    ),
    "unknown_split": (ERROR, "Use TRAIN, VALIDATION, TEST or UNASSIGNED."),
    "not_text": (ERROR, "Give each image as the text of its path or uri."),
    "bad_text": (ERROR, "Rename the file or label to valid Unicode."),
    "unsupported_scheme": (ERROR, "Bring the images to a file system, and give their paths."),
    "mixed_label_types": (ERROR, "Make all labels text (.astype(str)) or all integers."),
    "unsupported_label": (ERROR, "Make the labels text (.astype(str)) or integers."),
    "negative_label": (ERROR, "Number the classes from 0; -1 stands for no label."),
    "unknown_label": (ERROR, "Add it to labels=[...], or correct the row."),
    "missing_value": (
        ERROR,
        "Give the value or drop the row; or say in the schema what stands for it: default=….",
    ),
    "wrong_value": (ERROR, "Correct the value, or give the column another kind."),
    "bad_box": (ERROR, "Correct the box or drop its row."),
    "conflicting_rows": (
        ERROR,
        "Rows with boxes of one image must agree in every other column: correct or drop one.",
    ),
    "no_train": (WARNING, "Assign rows to TRAIN, or leave the splits out for 80/10/10."),
    "leakage": (WARNING, "Keep each image in one split, or the evaluation is too good."),
    "duplicate_row": (WARNING, "Drop it, or it counts twice: df.drop_duplicates()."),
    "conflicting_labels": (WARNING, "Keep one label for each image."),
    "similar_labels": (WARNING, "Write it in one way if it is one class."),
    "label_not_in_train": (WARNING, "Add training images of it, or drop the label."),
    "few_images": (WARNING, "Add images of it, or merge it with another label."),
    "column_left_out": (
        WARNING,
        "Nothing to do if it is not needed: it makes no feature. To keep it, give a schema.",
    ),
    "unusable_image": (ERROR, "Mend or drop the image; a conversion would list it as a reject."),
    "box_outside": (
        ERROR,
        "Correct the box or drop it; a conversion would list its image as a reject.",
    ),
}


@dataclass(frozen=True)
class Finding:
    """One rule's findings: for each a row, a value and a message.

    Attributes:
        code: a key of `CODES`.
        rows: row numbers from 0; (None,) for a finding about the whole frame.
        column: the column concerned.
        values: what stands there, one for each row.
        messages: words for each row, or one text for all.
    """

    code: str
    rows: Sequence[int | None]
    column: str
    values: Sequence[Any]
    messages: Sequence[str] | str

    def cells(self) -> dict[str, Sequence[Any]]:
        """The columns of a report, as long as there are rows."""
        severity, remedy = CODES[self.code]
        size = len(self.rows)
        values = [_short(value) for value in self.values]
        remedies = (
            [remedy.format(value=value, column=self.column) for value in values]
            if "{value}" in remedy
            else [remedy] * size
        )
        messages = [self.messages] * size if isinstance(self.messages, str) else self.messages
        return {
            "severity": [severity] * size,
            "code": [self.code] * size,
            "row": self.rows,
            "column": [self.column] * size,
            "value": values,
            "message": messages,
            "remedy": remedies,
        }


def build_report(findings: Iterable[Finding]) -> pd.DataFrame:
    """All findings as one frame, errors first, then by row; empty where all is well."""
    # One frame of all, not one of each: a table may have a finding for each of its columns.
    columns: dict[str, list[Any]] = {name: [] for name in REPORT_COLUMNS}
    for finding in findings:
        for name, cells in finding.cells().items():
            columns[name].extend(cells)
    if not columns["row"]:
        return pd.DataFrame({name: pd.Series(dtype=object) for name in REPORT_COLUMNS})
    report = pd.DataFrame(
        {
            **columns,
            "row": pd.array(columns["row"], dtype="Int64"),
            "value": pd.Series(columns["value"], dtype=object),
        }
    )
    return report.sort_values(
        ["severity", "row"], kind="stable", na_position="first", ignore_index=True
    )


def has_errors(report: pd.DataFrame) -> bool:
    return bool((report["severity"] == ERROR).any())


def summarize(report: pd.DataFrame, examples: int = 3) -> str:
    """A report as lines for people: each code with its count, examples and remedy."""
    lines = []
    for code, found in report.groupby("code", sort=False):
        first = found.iloc[0]
        lines.append(f"{first['severity']}: {code} ({len(found):,})")
        for _, finding in found.head(examples).iterrows():
            where = "" if pd.isna(finding["row"]) else f"row {finding['row']}: "
            lines.append(f"  {where}{finding['message']}")
        if len(found) > examples:
            lines.append(f"  ... and {len(found) - examples:,} more")
        lines.append(f"  -> {first['remedy']}")
    return "\n".join(lines)


def _short(value: Any, limit: int = 200) -> Any:
    """A value as the report shows it: a text that can be printed, and does not fill the screen."""
    if not isinstance(value, str):
        return value
    if len(value) > limit:
        value = value[: limit - 1] + "…"
    return value if value.isascii() else value.encode(errors="backslashreplace").decode()
