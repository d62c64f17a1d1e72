"""An operation: what a call writes into a directory, and what it has planned to write.

Each call is a class of `Operation`, in the file of its name; those on a dataset begin from
`OnDataset`.  `job.py` runs every one of them in the same way, and a dry run plans as it does.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.conversion.removal_marks import Marks
from tfrecorder.core.arrays import Ints
from tfrecorder.format.layout import CHANGE, READ
from tfrecorder.format.plan import Plan
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.result import ConversionResult
from tfrecorder.output.staging import spool_images
from tfrecorder.output.state import DatasetState
from tfrecorder.plan.preflight import open_some, sizes_of_some
from tfrecorder.validation.report import ValidationReport
from tfrecorder.validation.rules import Checked

#: Shows what is being done, in a word or two.
Say = Callable[[str], None]


class Operation(ABC):
    """What a call writes into a directory.

    Attributes:
        verb: what is run again to continue, such as "append".
        adds: its rows depend on what the directory holds, so that is claimed first.
        path: the dataset directory, as the user gave it.
        options: as the user gave them.
        source: what the rows come from, as the user gave it.
    """

    verb: ClassVar[str]
    adds: bool = True
    path: str
    options: ConvertOptions
    source: object

    @property
    def where(self) -> str:
        """The directory as an absolute path."""
        return storage.absolute(self.path)

    def accessing(self) -> contextlib.AbstractContextManager[None]:
        """A block that reads files as the options say."""
        return storage.acting_as(self.options.account, self.options.private_hosts)

    def look(self) -> DatasetState:
        """What is there at its start.

        Raises:
            TfrecorderError: it cannot begin there.
        """
        return DatasetState.read(self.where)

    def prepare(self, state: DatasetState) -> None:
        """What may be written once the directory is claimed, before anything is planned."""
        return

    @abstractmethod
    def plan(
        self,
        state: DatasetState,
        say: Say,
    ) -> Planned | ConversionResult:
        """Plan its rows; writes nothing.

        Args:
            state: of the directory.

        Returns:
            The rows, or the result if there is nothing to write.
        """


@dataclass(frozen=True, kw_only=True)
class Planned:
    """What an operation is to write, before it is staged.

    Attributes:
        plan: its numbers of shards are not decided yet.
        rows: in the order of the shards.
        options: with which the runner writes them; `plan.options` are those that the dataset keeps.
            Rejects that come into new shards count, so who copies them allows all.
        new: the rows whose images are read; None if all come from records.
        record_bytes: of a copied record, about.
        marks: of what was removed, if others hold from its commit on.
        report: on their source; None if none was checked.
        retried: numbers of rejects of the dataset that are among the rows, and keep theirs.
    """

    plan: Plan
    rows: pa.Table
    options: ConvertOptions
    new: Checked | None = None
    record_bytes: int | None = None
    marks: Marks | None = None
    report: ValidationReport | None = None
    retried: Ints | None = None

    @cached_property
    def sizes(self) -> Sequence[float]:
        """Sizes in bytes of some of the images, from which the number of shards follows.

        Raises:
            ImagesUnreachableError: a store does not answer.
        """
        if self.new is not None:
            return sizes_of_some(self.new, self.plan.rows.base, self.options)
        return [] if self.record_bytes is None else [self.record_bytes]

    def check_images(self) -> None:
        """Open some of the images.

        Raises:
            ImagesUnreachableError: most of them are not there.
        """
        if self.new is not None:
            open_some(self.new, self.plan.rows.base, self.options)

    def spool(
        self,
        where: str,
        rows: pa.Table,
    ) -> None:
        """Put the images of some rows that came as bytes below the directory."""
        if self.new is None:
            return
        if CHANGE in rows.column_names:  # the others come from records
            rows = rows.filter(pc.equal(rows.column(CHANGE), READ))
        spool_images(self.new.contents.values(), where, rows)
