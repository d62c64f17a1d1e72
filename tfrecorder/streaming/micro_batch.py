"""A micro-batch: some rows of a stream, as they come and as the plan of one commit.

Their images are spooled as they come.  A row that cannot be a record, whatever its image holds, is
planned as a reject that gives the rule it breaks: one bad message must not stop a stream.
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.conversion.operation import Operation, Planned, Say
from tfrecorder.conversion.removal_marks import Marks
from tfrecorder.conversion.same_schema import refuse_other_schema
from tfrecorder.core.option import is_text, is_whole
from tfrecorder.display.tables import cut, escaped
from tfrecorder.errors import SourceError
from tfrecorder.format.layout import POSITION_OF
from tfrecorder.format.plan import PlanKind
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.staging import Spool
from tfrecorder.output.state import DatasetState
from tfrecorder.plan.make_plan import make_plan
from tfrecorder.reading.merged_rows import next_row_of, position_of
from tfrecorder.schema.fields import Field, primary_file
from tfrecorder.schema.keys import COLUMNS, SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, Label, columns_of
from tfrecorder.schema.splits import assign_splits
from tfrecorder.sources.cells import Content, File, content_in, file_in
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.named_files import FileSums, file_sums
from tfrecorder.sources.places import places
from tfrecorder.sources.source import read_source
from tfrecorder.sources.table import Source
from tfrecorder.streaming.stream_source import Cells, Unusable
from tfrecorder.validation.rules import Checked, check_source, planned_rejects

#: How many images have their sizes looked up to decide on the shards of an unspooled batch.
SIZED = 20


class NothingSoundError(Exception):
    """No row of a batch can be a record, and so none can begin a dataset."""


class Row(NamedTuple):
    """A row of a batch.

    Attributes:
        cells: by column; a spooled `Content` in place of each image that came as bytes; or
            `Unusable`.
        position: the row's position in its source, as JSON.
        name: the name under which the row is listed if it is a reject.
    """

    cells: Cells
    position: str
    name: str


@dataclass
class Batch:
    """The rows of a batch as they come.

    Attributes:
        spool: where images go that come as bytes.
        number: the number of the generation that it becomes.
        columns: the columns of images and masks, as the source names them.
        base: the folder of relative uris; None makes them absolute as they come.
        marks: of what was removed from the dataset.
        images: the columns of images, in the order of the marks.
        readmit: rows that were removed are let in.
        began: when its first row came, by `time.monotonic`.
        came: the marks of those rows that came.
    """

    spool: Spool
    number: int
    columns: list[str]
    base: str | None
    marks: Marks
    images: list[str]
    readmit: bool
    began: float = field(default_factory=time.monotonic)
    rows: list[Row] = field(default_factory=list)
    came: frozenset[str] = frozenset()

    def add(
        self,
        cells: Cells,
        position: str,
    ) -> bool:
        """Add a row; its images are spooled if they came as bytes.  False if it was removed before.

        Args:
            position: as in `Row`.

        Raises:
            OSError: an image cannot be spooled.
        """
        if self.marks and self.images and not isinstance(cells, Unusable):
            images = [self._image(cells.get(column)) for column in self.images]
            removed, marks = self.marks.matches(images, every=self.readmit)
            if removed.any() and not self.readmit:
                return False
            self.came |= marks
        self.rows.append(self._row(cells, position))
        return True

    def _image(self, cell: Any) -> FileSums:
        """The image in a cell of a row; one without a place in a row that becomes a reject."""
        cell = content_in(self._cell(cell))
        if isinstance(cell, Content):
            name = pa.array([cell.file], pa.large_string())
            return file_sums(name, came=np.array([[cell.size], [cell.crc32c]]))
        uri = pa.array([cell if isinstance(cell, str) else None], pa.large_string())
        return file_sums(places(uri, self.base or os.getcwd()))

    def _cell(self, cell: Any) -> Any:
        """What a cell of a column of images holds, as `file_in` gives it."""
        cell = os.fspath(cell) if isinstance(cell, os.PathLike) else cell
        if self.base is None or not isinstance(cell, str):  # a file may be called "data:…"
            cell = file_in(cell)
        return storage.put_aside(cell) if isinstance(cell, str) else cell

    def _row(
        self,
        cells: Cells,
        position: str,
    ) -> Row:
        name = f"{self.number:05d}/{len(self.rows):08d}"  # if it has no image
        if isinstance(cells, Unusable):
            return Row(cells, position, escaped(cells.name) or name)
        kept = dict(cells)
        for column in self.columns:
            cell = self._cell(kept.get(column))
            if isinstance(cell, File):
                if cell.name and (fault := _name_fault(cell.name)) is not None:
                    return Row(Unusable(name, fault), position, name)
                data = cell.data
                cell = content_in(cell)
                self.spool.put(cell.file, data)
            elif isinstance(cell, str) and cell and self.base is None:
                cell = storage.resolve(cell, os.getcwd())
            if column in kept:
                kept[column] = cell
        first = kept.get(self.columns[0]) if self.columns else None
        shown = first.name if isinstance(first, Content) else first
        return Row(kept, position, escaped(shown) if isinstance(shown, str) and shown else name)

    def mean_bytes(self, base: str) -> float:
        """The mean size of an image; relative uris start from `base`."""
        spool = self.spool
        if spool.images:
            return spool.bytes / spool.images
        uris = [row.name for row in self.rows if not isinstance(row.cells, Unusable)][:SIZED]
        paths = [storage.resolve(uri, base) for uri in uris]
        sizes = [size for size in storage.each(storage.size_or_none, paths, base) if size]
        return sum(sizes) / len(sizes) if sizes else 0.0


@dataclass(frozen=True, kw_only=True)
class PlannedBatch(Planned):
    """A batch before it is staged, some of its images still in memory."""

    batch: Batch

    @cached_property
    def sizes(self) -> Sequence[float]:
        return [self.batch.mean_bytes(self.plan.rows.base)]

    def spool(
        self,
        where: str,
        rows: pa.Table,
    ) -> None:
        self.batch.spool.flush()


@dataclass
class MicroBatch(Operation):
    """Adds some rows of a stream to a dataset, or begins one with them.

    Attributes:
        path: the dataset's directory, which is claimed.
        source: the name of the stream's source.
        batch: the rows.
        noted: how far the source was read with them, as a JSON value.
        base: the folder that relative uris start from.
        types: the type of each column of the dataset's plan, by key; empty before the first batch.
        fields: the dataset's columns; empty before the first batch.
        first: the number of the first row.
        faults: what is wrong with rows that cannot be records, by their places.
    """

    verb = "stream"

    path: str
    source: str
    options: ConvertOptions
    batch: Batch
    noted: Any
    base: str
    types: Mapping[str, pa.DataType]
    fields: Sequence[Field] = ()
    first: int = 0
    faults: dict[int, str] = dataclasses.field(default_factory=dict)

    def plan(
        self,
        state: DatasetState,
        say: Say,
    ) -> Planned:
        """All rows, those that cannot be records as rejects.

        Raises:
            NothingSoundError: none of them can be a record, and there is no dataset yet.
            SourceError: the columns of all rows do not fit the dataset.
        """
        batch = self.batch
        newest = state.newest
        if newest is not None:
            self.fields = newest.plan.fields
            self.first = next_row_of(self.path, newest)
        checked = self._checked()
        if checked is None and not self.types:
            raise NothingSoundError(self.faults[0])
        read = {"from": position_of(newest, self.source), "to": self.noted}
        whole = self._with_rejects(checked)
        plan, table = make_plan(whole, self.base, self.options, PlanKind.BATCH)
        spooled = batch.spool.images  # including those of rows planned as rejects
        plan = plan.with_rows(
            streams={self.source: read},
            spooled=spooled,
            remote=plan.rows.remote or (spooled > 0 and not storage.is_local(self.path)),
            signed=bool(storage.access().signed),
        )
        marks = batch.marks.without(batch.came) if batch.came else None
        return PlannedBatch(
            plan=plan,
            rows=table,
            options=self.options,
            marks=marks,
            batch=batch,
        )

    def _checked(self) -> Checked | None:
        """The rows in which validation finds no fault; notes what is wrong with the others."""
        cells = [_in_types(row.cells, self.fields) for row in self.batch.rows]
        self.faults |= {at: cell for at, cell in enumerate(cells) if isinstance(cell, str)}
        while True:
            sound = [at for at in range(len(cells)) if at not in self.faults]
            if not sound:
                return None
            try:
                checked, faulty = self._judged([cells[at] for at in sound])
            except SourceError:
                faulty = self._misfits([cells[at] for at in sound])
                if not self.fields or not faulty:
                    raise
            if not faulty:
                index = np.asarray(sound)[checked.frame.index.to_numpy()]
                return dataclasses.replace(checked, frame=checked.frame.set_axis(index))
            self.faults.update({sound[at]: words for at, words in faulty.items()})

    def _judged(self, cells: Sequence[Any]) -> tuple[Checked, dict[int, str]]:
        """Rows, checked, and what is wrong with some of them.

        Raises:
            SourceError: together they do not fit the dataset.
        """
        table = self._table(cells)
        if self.fields:
            refuse_other_schema(self.path, self.fields, table)
        if table.schema.of(Boxes):
            raise SourceError(
                "boxes: a stream has one row for each image; add a table of boxes with "
                "`append` instead."
            )
        checked = check_source(table, self.options.division, self.fields, is_whole=False)
        faulty = _faults(checked.findings)
        if self.fields and not faulty:
            refuse_other_schema(self.path, self.fields, table, checked.fields)
        return checked, faulty

    def _misfits(self, cells: Sequence[Any]) -> dict[int, str]:
        """Why rows do not fit the dataset, of each kind of row one by itself."""
        words = {}
        faults = {}
        for at, row in enumerate(cells):
            kind = frozenset((name, type(value)) for name, value in row.items())
            if kind not in words:
                words[kind] = ""
                try:
                    self._judged([row])
                except SourceError as error:
                    said = str(error).removeprefix(f"the table does not fit {self.path}: ")
                    words[kind] = f"no_fit: {said.removesuffix('. Nothing was written.')}"
            if words[kind]:
                faults[at] = words[kind]
        return faults

    def _table(self, cells: Sequence[Any]) -> Source:
        options = self.options
        # No column can have a name that is not text, or not Unicode: it is left out.
        given = dict.fromkeys(name for row in cells for name in row)
        names = [name for name in given if is_text(name)]
        if self.fields:
            wanted = {*(options.columns or ()), *COLUMNS}
            for field in self.fields:
                wanted.update(columns_of(field.column, field.kind))
            if options.schema is not None:
                wanted.update(options.schema.source_columns())
            # A further column of a message means nothing to a dataset that already exists.
            names = [name for name in names if name in wanted or name == options.split_by]
            renamed = (options.columns or {}).values()
            labelled = (field.column for field in self.fields if field.num_classes)
            names += (name for name in labelled if name not in renamed)
        if options.split_by is not None:
            names.append(options.split_by)
        frame = pd.DataFrame(
            {name: pd.Series([row.get(name) for row in cells], dtype=object) for name in names}
        )
        return read_source(frame, options)

    def _with_rejects(self, checked: Checked | None) -> Checked:
        """All rows in their order, the faulty ones planned as rejects, each with its position."""
        rows = self.batch.rows
        bad = sorted(self.faults)
        names = [rows[at].name for at in bad]
        splits = pd.Series(assign_splits(names, self.options.division), index=bad)
        frame = pd.DataFrame({SPLIT_COLUMN: splits})
        fields = self.fields
        types = self.types
        if checked is not None:
            fields = checked.fields
            frame = pd.concat([checked.frame[[SPLIT_COLUMN]], frame])
            types = {key: column.type for key, column in checked.values.items()}
        order = np.argsort(frame.index.to_numpy(np.int64), kind="stable")
        image = primary_file(fields)
        values = {}
        for key, kind in types.items():
            is_uri = image is not None and key == image.uri_key
            filler = pa.array(names if is_uri else [_nothing(kind)] * len(bad), kind)
            column = filler if checked is None else pa.concat_arrays([checked.values[key], filler])
            values[key] = column.take(order)
        missing = {} if checked is None else checked.missing
        texts = {
            POSITION_OF.source: [self.source] * len(rows),
            POSITION_OF.position: [row.position for row in rows],
        }
        values |= planned_rejects(self.faults, range(len(rows)))
        values |= {name: pa.array(column, pa.large_string()) for name, column in texts.items()}
        return Checked(
            frame=frame.iloc[order].set_axis(np.arange(len(rows)) + self.first),
            findings=(),
            fields=tuple(fields),
            values=values,
            files=() if checked is None else checked.files,
            source_rows=len(rows),
            missing={name: np.pad(flags, (0, len(bad)))[order] for name, flags in missing.items()},
        )


def _name_fault(name: str) -> str | None:
    """Why a name cannot be an image's name; it comes from a message, which anyone may have sent."""
    parts = name.split("/")
    sound = posixpath.normpath(name) == name and ".." not in parts and not name.startswith("/")
    short = all(len(part.encode()) <= 200 for part in parts)
    if sound and short and name.isprintable() and "://" not in name:
        return None
    return f"bad_name: {name[:80]!r} cannot be the name of an image; give a relative path"


def _in_types(cells: Cells, fields: Sequence[Field]) -> Cells | str:
    """A row with its labels in the dataset's type; or what is wrong with the row."""
    if isinstance(cells, Unusable):
        return escaped(cells.reason)
    row = dict(cells)
    for column in fields:
        name = column.column
        if not isinstance(column.kind, Label) or row.get(name) is None:
            continue
        label = row[name]
        if not column.num_classes:
            return f"no_fit: {name} {cut(str(label))!r}: the dataset has no labels"
        if not column.integer and is_whole(label):
            row[name] = str(label)
        elif column.integer and isinstance(label, str) and label.strip().isdecimal():
            row[name] = int(label)
        elif column.integer and not is_whole(label):
            return f"mixed_label_types: {name} {label!r}: the classes of the dataset are integers"
    return row


def _faults(findings: Sequence[Finding]) -> dict[int, str]:
    """The first error of each row, in words.

    Raises:
        SourceError: an error concerns all rows.
    """
    faults: dict[int, str] = {}
    for finding in findings:
        if not finding.is_error:
            continue
        for at, row in enumerate(finding.rows):
            words = finding.messages if isinstance(finding.messages, str) else finding.messages[at]
            if row is None:
                raise SourceError(f"the rows of the stream: {words}.")
            faults.setdefault(int(row), f"{finding.code}: {words}")
    return faults


def _nothing(kind: pa.DataType) -> Any:
    """A value of a type, for a row that does not become a record."""
    if pa.types.is_nested(kind):
        return []
    return 0 if pa.types.is_primitive(kind) else ""
