"""Operations on a finished dataset: what `append`, `update` and `remove` begin with.

Their options are those given, and for all others what the dataset was made with.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tfrecorder import storage
from tfrecorder.conversion.operation import Operation
from tfrecorder.conversion.same_schema import refuse_other_schema
from tfrecorder.conversion.table import CopySearch, check_table
from tfrecorder.core.option import idle_options, spelled
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.options.changes import NewClasses
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import refuse
from tfrecorder.output.state import DatasetState, output_path
from tfrecorder.reading.commits import Commit, read_commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.open import open_dataset, open_own
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.schema.fields import Field
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import ValidationReport
from tfrecorder.validation.rules import Checked

#: Options that must be known before the dataset is opened.
_EARLY = ("runner_options", "progress", "private_hosts")


@dataclass
class OnDataset(Operation):
    """What adds to a finished dataset, or changes it.

    Attributes:
        refused: options that it does not take, each with what to do instead.
        source, directory: as the user gave them.
        given: options by name, as the user gave them.
    """

    refused: ClassVar[Mapping[str, str]]

    source: object
    directory: str | os.PathLike[str]
    given: Mapping[str, object]

    def __post_init__(self) -> None:
        given = self.given
        names = (name for name in (*_EARLY, *self.refused) if name in given)
        self.options = ConvertOptions.of({name: given[name] for name in names}, self.refused)
        self.path = output_path(self.directory, self.options, "directory")

    def look(self) -> DatasetState:
        """What is there at its start: a dataset; otherwise the claim would make a directory."""
        return own_state(self.where)

    def open(self, state: DatasetState) -> tuple[StoredDataset, ConvertOptions]:
        """The dataset of a state, and the options: those given, for all others what it has.

        Raises:
            OptionError: an option does not fit the dataset.
            DatasetError: it is not whole.
        """
        newest = own_dataset(state)
        dataset = open_own(state.where, newest)
        options = inherited_options(state.where, newest, self.given)
        check_runner(options)
        return dataset, options


def own_state(where: str) -> DatasetState:
    """What is in the directory of a dataset that can be added to.

    Raises:
        DatasetError: there is no finished dataset written by this package.
    """
    with storage.failing_as(DatasetError, where):
        state = DatasetState.read(where)
        own_dataset(state)
    return state


def own_dataset(state: DatasetState) -> Commit:
    """The newest commit of a dataset that can be added to.

    Raises:
        DatasetError: there is no finished dataset written by this package.
    """
    if state.newest is None or not state.version:
        open_dataset(state.where)  # says what is there instead
        raise DatasetError(
            f"{state.where} was not written by tfrecorder, which changes only its own datasets."
        )
    return state.newest


def checked_beside(
    where: str,
    known: Sequence[Field],
    table: Source,
    options: ConvertOptions,
    classes: NewClasses,
    compare: Callable[[Checked], Checked],
    copies: CopySearch | None = None,
) -> tuple[Checked, ValidationReport]:
    """A table that fits a dataset, checked; and the report on it.

    Args:
        known: the columns of the dataset.
        compare, copies: as for `check_table`.

    Raises:
        SourceError: its columns are not the dataset's.
        ValidationError: it has faults.
    """
    refuse_other_schema(where, known, table)
    severe = dataclasses.replace(options, warnings=classes.severe(options.warnings))
    checked, report = check_table(table, where, severe, known, compare, copies)
    refuse_other_schema(where, known, table, checked.fields)
    return checked, report


#: Options that say what the columns and classes are: taken from the newest generation, which may
#: have more classes than the first.
_OF_COLUMNS = ("columns", "schema")

#: The number of files in a generation follows from its own rows.
_NOT_TAKEN = ("num_shards",)


def inherited_options(
    directory: str,
    newest: Commit,
    given: Mapping[str, object],
) -> ConvertOptions:
    """The options of an append.

    Args:
        directory: the dataset's directory, for messages.
        newest: its newest commit.
        given: options by name, as the user gave them.

    Raises:
        OptionError: an option does not fit the dataset.
    """
    options = newest.plan.options
    chain = newest.dataset.chain
    first = newest if chain == newest.number else read_commit(directory, chain)
    recorded = first.plan.options | {n: options[n] for n in _OF_COLUMNS if n in options}
    if not given.keys().isdisjoint(_OF_COLUMNS):  # they exclude each other
        recorded = {name: recorded[name] for name in recorded.keys() - {*_OF_COLUMNS}}
    names = {item.name for item in dataclasses.fields(ConvertOptions) if item.metadata["content"]}
    kept = {name: value for name, value in recorded.items() if name in names.difference(_NOT_TAKEN)}
    if "name" in kept:
        kept["name"] = f"{kept['name']}:{recorded['version']}"
    stored = ConvertOptions(**kept)
    chosen = stored.updated(given)
    refuse(chosen, idle_options(chosen, given))
    _refuse_mixture(directory, stored, chosen)
    return chosen


def _refuse_mixture(
    directory: str,
    stored: ConvertOptions,
    now: ConvertOptions,
) -> None:
    """Refuse options that would make parts of a dataset differ in what readers expect of it."""
    reasons = {"name": "it keeps its name"}
    if "raw" in (stored.image_format, now.image_format):  # readers count these pixels
        words = "raw pixels can only be read if all images are alike"
        reasons |= dict.fromkeys(("image_format", "image_size", "short_side"), words)
    for name, reason in reasons.items():
        was = getattr(stored, name)
        is_now = getattr(now, name)
        if was != is_now:
            words = f"{directory} was made with {spelled(name, was)}, and {reason}. Leave it out."
            raise OptionError.of(name, is_now, words)
