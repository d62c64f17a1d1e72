"""Validation: every fault of a table at once, before anything runs, and its values by key.

Works on whole columns with vectorised pandas; a rule goes row by row only through the rows it
found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.display.tables import counted, cut
from tfrecorder.format.layout import REJECT_OF, STATED_OF
from tfrecorder.schema.fields import Field, Fields, class_field, fields_of, primary_file
from tfrecorder.schema.keys import LABEL_COLUMN, NO_LABEL, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import (
    FILES,
    Boxes,
    Ignore,
    Image,
    Kind,
    Label,
    Labels,
    Split,
    columns_of,
)
from tfrecorder.schema.splits import SPLIT_TYPE, UNASSIGNED, Division, assign_splits
from tfrecorder.sources.files import line_numbers
from tfrecorder.sources.finding import Finding, flag
from tfrecorder.sources.table import Source, as_objects, as_texts, nearest_name
from tfrecorder.validation.boxes import BoxRows, check_boxes, gather
from tfrecorder.validation.columns import (
    Outcome,
    check_label,
    check_several,
    check_splits,
    check_uris,
    has_faults,
    sound_uris,
    unlabelled,
)
from tfrecorder.validation.report import (
    ValidationReport,
    as_errors,
    build_report,
    comparison_sentences,
    shown_rows,
)
from tfrecorder.validation.rows import check_divided, check_rows, describe_assigned
from tfrecorder.validation.values import check_values

if TYPE_CHECKING:
    from tfrecorder.sources.cells import Contents

DEFAULT_DIVISION = Division()

#: The stage of rejects whose image was never read.
STAGE = "row"

#: How many columns a message names.
MOST_NAMED = 20

#: What is odd in a dataset, but not in a table that is added to one.
_OF_WHOLE_DATASETS = ("no_train", "label_not_in_train", "few_images")


@dataclass(frozen=True)
class Checked:
    """A validated table.

    Attributes:
        frame: a row for each record: split (TRAIN, VALIDATION or TEST); image_uri, the first image,
            and label, the only one, if the schema has them.  The index is the row of the source.
            Complete only if the report holds no error.
        findings: every fault and warning.
        fields: the columns of the schema, with their vocabularies.
        values: for each key of the record that the source has, its value in each row; nothing for a
            column with a fault.
        files: the uris of every column of images or masks, each under its name; the index is the
            row of the source.
        contents: for those of these columns whose images came as bytes.
        missing: for columns with a default, which rows have it because their value is missing.
        unassigned: which rows came without a split.
        source_rows: rows in the source; more than records if boxes have a row each.
        assigned: how rows that came without a split got one, in words.
    """

    frame: pd.DataFrame
    findings: tuple[Finding, ...]
    fields: Fields = ()
    values: Mapping[str, pa.Array] = dataclasses.field(default_factory=dict)
    files: tuple[pd.Series, ...] = ()
    source_rows: int = 0
    assigned: str = ""
    contents: Mapping[str, Contents] = dataclasses.field(default_factory=dict)
    missing: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    unassigned: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, bool))

    def part(self, rows: np.ndarray) -> Checked:
        """Those of its rows for which the mask is true."""
        frame = self.frame[rows]
        keep = pa.array(rows)
        return dataclasses.replace(
            self,
            frame=frame,
            values={key: column.filter(keep) for key, column in self.values.items()},
            files=tuple(column.loc[frame.index] for column in self.files),
            missing={name: of_rows[rows] for name, of_rows in self.missing.items()},
            unassigned=self.unassigned[rows],
            source_rows=len(frame),
        )

    def with_findings(self, findings: Iterable[Finding]) -> Checked:
        """With more faults and warnings."""
        return dataclasses.replace(self, findings=(*self.findings, *findings))

    def report(
        self,
        table: Source,
        warnings: str | Sequence[str],
        notes: Sequence[str] = (),
    ) -> ValidationReport:
        """The findings as people see them, with line numbers.

        Args:
            table: what was checked.
            warnings: which of them are errors, as the option has it.
            notes: what else to say.
        """
        report = build_report(self.findings)
        lines = line_numbers(table, shown_rows(report))
        notes = (*self.notes, *table.notes, *notes, *comparison_sentences(report, lines))
        return ValidationReport.of(as_errors(report, warnings), len(table.frame), notes, lines)

    @property
    def notes(self) -> list[str]:
        """What is not a problem but should be known."""
        label = class_field(self.fields)
        notes = []
        is_bare = LABEL_COLUMN not in self.frame and not has_faults(self.findings)
        if label and not label.num_classes and is_bare:
            notes.append("labels: none; the dataset is unlabelled")
        elif LABEL_COLUMN in self.frame and label and f"{label.key}/label" in self.values:
            numbers = self.values[f"{label.key}/label"]
            if without := pc.sum(pc.equal(numbers, NO_LABEL)).as_py():
                notes.append(
                    f"labels: {counted(without, 'row has', 'rows have')} none, stored as -1"
                )
        if self.assigned:
            notes.append(f"splits: {self.assigned}")
        return notes


def check_source(
    source: Source,
    division: Division = DEFAULT_DIVISION,
    existing: Sequence[Field] = (),
    is_whole: bool = True,
) -> Checked:
    """Apply every rule to a source's table, based on the kinds of its columns.

    Args:
        source: the table with its schema.
        division: how rows without a split get one.
        existing: the columns of a dataset that the table will be added to; their classes keep
            their integers.
        is_whole: False for some rows of a stream, which say nothing about those that follow.
    """
    schema = source.schema
    table = source.frame
    findings = [*_check_columns(source, bool(existing)), *source.findings]
    if not len(table):
        findings.append(Finding("empty_frame", [None], "", [None], "the table has no rows"))
        return Checked(pd.DataFrame(index=table.index), tuple(findings))
    present = {
        name for name, kind in schema.fields if {*columns_of(name, kind)} <= {*table.columns}
    }
    boxes: BoxRows | None = None
    for name in present.intersection(schema.of(Boxes)):
        kind = schema.columns[name]
        (image,) = schema.of(Image)
        if image not in present:
            present.remove(name)
            continue
        assert isinstance(kind, Boxes)
        beside = {
            other: of
            for other, of in schema.fields
            if other in present and getattr(of, "of", None) == name
        }
        table, boxes, faults = gather(table, kind, image, beside, source.numbers)
        findings += faults
    words = None
    for name in present.intersection(schema.of(Split)):
        words, finding = check_splits(table[name])
        findings.append(finding)
    # A test set is often published without its labels.
    tested = np.zeros(len(table), bool)
    if words is not None and is_whole:
        tested = (words == "TEST").to_numpy(dtype=bool)
    outcomes = [
        _check_field(field, table, boxes, source, tested)
        for field in _with_existing_classes(fields_of(schema), existing)
        if field.column in present or not is_required(field.kind)
    ]
    frame = _rows_of(outcomes, table)
    values: dict[str, pa.Array] = {}
    files = []
    lacking = {}
    for outcome in outcomes:
        findings += outcome.findings
        values |= outcome.values
        if isinstance(outcome.field.kind, FILES) and outcome.column is not None:
            files.append(outcome.column)
        if outcome.missing is not None:
            lacking[outcome.field.column] = outcome.missing
    fields = tuple(outcome.field for outcome in outcomes)
    if words is not None:
        frame[SPLIT_COLUMN] = words
    was_open = (frame[SPLIT_COLUMN] == UNASSIGNED).to_numpy(dtype=bool)
    findings += _check_division(frame, source, division)
    _assign(frame, {} if has_faults(findings) else values, division, source)
    missing = {finding.column for finding in findings if finding.code == "missing_column"}
    if not missing:
        passed = _OF_WHOLE_DATASETS if existing else ()
        bad_texts = set[int | None]()
        for finding in findings:
            bad_texts.update(finding.rows if finding.code == "bad_text" else ())
        of_rows = check_rows(frame, source, fields, values, bad_texts)
        findings += (finding for finding in of_rows if finding.code not in passed)
        findings += check_divided(frame[SPLIT_COLUMN], was_open, division)
    described = describe_assigned(frame[SPLIT_COLUMN], was_open, division, source.groups)
    lacks_splits = not missing.isdisjoint(schema.of(Split))
    if source.sizes is not None:
        for key in STATED_OF:
            values[key] = pa.array(source.sizes.loc[frame.index, key])
    if source.rejects:
        values |= planned_rejects(source.rejects, frame.index)
        rows = list(source.rejects)
        messages = [reason.partition(": ")[2] for reason in source.rejects.values()]
        findings.append(Finding("not_decoded", rows, URI_COLUMN, messages, messages))
    return Checked(
        frame=frame,
        findings=tuple(findings),
        fields=fields,
        values=values,
        files=tuple(files),
        source_rows=len(source.frame),
        assigned="" if lacks_splits else described,
        contents=source.contents,
        missing=lacking,
        unassigned=was_open,
    )


def planned_rejects(rejects: Mapping[int, str], rows: Iterable[int]) -> dict[str, pa.Array]:
    """The columns of a plan that say which of its rows are rejects before any image is read."""
    reasons = [rejects.get(row, "") for row in rows]
    stages = [STAGE if reason else "" for reason in reasons]
    texts = {REJECT_OF.stage: stages, REJECT_OF.reason: reasons}
    return {name: pa.array(column, pa.large_string()) for name, column in texts.items()}


def _with_existing_classes(fields: Sequence[Field], existing: Sequence[Field]) -> list[Field]:
    """Columns with the classes that a dataset already has."""
    by_column = {field.column: field for field in existing}
    return [
        dataclasses.replace(
            field,
            names=old.names,
            num_classes=old.num_classes,
            integer=old.integer,
        )
        if (old := by_column.get(field.column))
        else field
        for field in fields
    ]


def is_required(kind: Kind) -> bool:
    """True if a source must have the column of a kind."""
    return not isinstance(kind, (Split, Label)) or kind.required


def _check_columns(source: Source, is_added: bool) -> Iterator[Finding]:
    """Columns that are missing, each with the one probably meant; and those left out.

    Args:
        is_added: to a dataset, whose rows may come without a split from now on.
    """
    renames = dict[str, str]()
    missing = list[tuple[str, str | None, str]]()
    for name, kind in source.schema.fields:
        is_needed = is_required(kind) and not (is_added and isinstance(kind, Split))
        for wanted in columns_of(name, kind):
            if wanted in source.frame or isinstance(kind, Ignore):
                continue
            near = _likely(source, wanted, kind)
            if near is None and not is_needed:
                continue
            if near is not None:
                renames[near] = wanted
            words = f"is it {near!r}?" if near else _what_is_there(source, kind)
            missing.append((wanted, near, f"there is no column {wanted!r}; {words}"))
    for wanted, near, message in missing:
        all_names = renames if near else {**renames, "…": wanted}
        value = near or "…"
        yield Finding("missing_column", [None], wanted, [value], message, renames=all_names)
    for name in source.left_out:
        if name not in renames:
            yield Finding("column_left_out", [None], name, [name], f"column {name!r} is left out")


def _likely(
    source: Source,
    wanted: str,
    kind: Kind,
) -> str | None:
    """The column that is left out and was probably meant."""
    near = nearest_name(wanted, [*source.left_out])
    if isinstance(kind, Split):
        return near or source.split_like
    if not isinstance(kind, Image):
        return near
    # What is in a column says more than its name.
    for name in source.left_out:
        if source.held.get(name) in ("bytes", "images"):
            return name
    return near if source.held.get(near or "", "str") == "str" else None


def _what_is_there(source: Source, kind: Kind) -> str:
    """The columns, where none is like one of this kind that is missing; and the remedy."""
    shown = []
    names = [*source.frame.columns, *source.left_out]
    for name in names[:MOST_NAMED]:
        held = source.held.get(name, "str")
        shown.append(f"{cut(name)!r} ({held})" if held != "str" else repr(cut(name)))
    words = f"the columns are {', '.join(shown)}"
    if len(names) > MOST_NAMED:
        words += f", and {len(names) - MOST_NAMED:,} more"
    if isinstance(kind, Image):
        several = [name for name, held in source.held.items() if held.endswith("of images")]
        for name in several[:1]:
            words += f"; `frame.explode({name!r})` gives each image a row"
    if source.text and source.text.headed:
        words += ", as the first line names them: if it is a row, put a heading above"
    if isinstance(kind, Split):
        words += "; `Split(required=False)` in the schema divides rows that have none"
    return words


def _check_field(
    field: Field,
    table: pd.DataFrame,
    boxes: BoxRows | None,
    source: Source,
    tested: np.ndarray,
) -> Outcome:
    if isinstance(field.kind, Boxes):
        assert boxes is not None
        return check_boxes(field, boxes)
    names = columns_of(field.column, field.kind)
    if not {*names} <= {*table.columns}:
        return unlabelled(field, len(table))
    if isinstance(field.kind, FILES):
        return _check_files(field, table[names[0]], source.contents.get(names[0]))
    if isinstance(field.kind, Label):
        means_none = field.kind.default in (NO_LABEL, "")
        optional = source.is_schema_given and (means_none or not field.kind.required)
        return check_label(field, table[names[0]], tested, optional)
    columns = [as_objects(table[name]) for name in names]
    if isinstance(field.kind, Labels):
        return check_several(field, columns)
    return check_values(field, columns[0])


def _check_files(
    field: Field,
    column: pd.Series,
    contents: Contents | None,
) -> Outcome:
    """A column of uris, or of images that came as bytes, which wait elsewhere."""
    uris = sound_uris(column)
    findings = list[Finding]()
    if uris is None:
        column, findings = check_uris(as_objects(column))
        if has_faults(findings):
            return Outcome(field, {}, findings, column)
        uris = pa.array(column, pa.large_string())
    values = {field.uri_key: uris}
    if contents is not None:
        rows = column.index.to_numpy()
        files = contents.files.take(rows)
        names = contents.names.take(rows)
        uris = pc.if_else(pc.equal(files, ""), uris, names)
        values = {field.uri_key: uris, field.spool_key: files}
    return Outcome(field, values, findings, column)


def _rows_of(outcomes: list[Outcome], table: pd.DataFrame) -> pd.DataFrame:
    """The first image and the only label of each row, if it has them; not split yet."""
    frame = pd.DataFrame(index=table.index)
    image = primary_file([outcome.field for outcome in outcomes])
    labels = []
    for outcome in outcomes:
        if outcome.field is image:
            frame[URI_COLUMN] = outcome.column
        if isinstance(outcome.field.kind, Label):
            labels.append(outcome.column)
    if len(labels) == 1 and labels[0] is not None:
        frame[LABEL_COLUMN] = labels[0]
    frame[SPLIT_COLUMN] = pd.Series(UNASSIGNED, index=table.index, dtype=SPLIT_TYPE)
    return frame


def _check_division(
    frame: pd.DataFrame,
    source: Source,
    division: Division,
) -> Iterator[Finding]:
    if source.groups is not None:
        missing = source.groups.isna().to_numpy(dtype=bool)
        yield flag("missing_value", missing, source.groups, "the group is missing")
    if division.stratify and LABEL_COLUMN not in frame:
        yield Finding(
            "no_strata",
            [None],
            LABEL_COLUMN,
            [None],
            "splits cannot be stratified: no column holds one label per row",
        )


def _assign(
    frame: pd.DataFrame,
    values: Mapping[str, pa.Array],
    division: Division,
    source: Source,
) -> None:
    """Assign rows without a split by the hash of their group, their image, or all they hold."""
    open_rows = (frame[SPLIT_COLUMN] == UNASSIGNED).to_numpy(dtype=bool)
    if not open_rows.any():
        return
    if source.groups is not None:
        keys = source.groups.loc[frame.index]
    elif URI_COLUMN in frame:
        keys = frame[URI_COLUMN]
    elif values:
        keys = _contents(values, frame.index)
    else:
        return
    open_rows = open_rows & keys.notna().to_numpy(dtype=bool)
    keys = keys[open_rows]
    texts: Any = as_texts(keys)
    if texts is None:
        texts = [*map(str, keys.astype(object).tolist())]
    labels = None
    if division.stratify and LABEL_COLUMN in frame:
        labels = frame.loc[open_rows, LABEL_COLUMN].tolist()
    frame.loc[open_rows, SPLIT_COLUMN] = assign_splits(texts, division, labels)


def _contents(values: Mapping[str, pa.Array], index: pd.Index) -> pd.Series:
    """All values of each row as a text, which identifies a row without an image."""
    columns = [map(repr, array.to_pylist()) for array in values.values()]
    return pd.Series(["\x1f".join(row) for row in zip(*columns, strict=True)], index=index)
