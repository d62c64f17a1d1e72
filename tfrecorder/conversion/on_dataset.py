"""Jobs on a finished dataset: what `append`, `update`, `remove` and `compact` begin with.

Their options are those given, and for all others what the dataset was made with.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tfrecorder import storage
from tfrecorder.conversion import dry_run as trial, job
from tfrecorder.conversion.same_schema import refuse_other_schema
from tfrecorder.conversion.staged import PlannedRows
from tfrecorder.conversion.table import Say, check_table
from tfrecorder.core.checks import flag
from tfrecorder.core.option import idle_options
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.options.append import NewClasses
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import refuse, require
from tfrecorder.options.subsets import NOT_APPENDED, NOT_REMOVED, NOT_UPDATED
from tfrecorder.output.path import output_path
from tfrecorder.output.result import ConversionResult
from tfrecorder.reading.commits import Commit, newest_commit, read_commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.open import open_dataset
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.schema.fields import Field
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import ValidationReport
from tfrecorder.validation.rules import Checked
from tfrecorder.writing.commit import complete

#: Options that a job does not take, each with what to do instead.
_REFUSED = {"append": NOT_APPENDED, "update": NOT_UPDATED, "removal": NOT_REMOVED}

#: Options that must be known before the dataset is opened.
_EARLY = ("runner_options", "progress", "private_hosts")


def run_on(
    verb: str,
    directory: str | os.PathLike[str],
    given: Mapping[str, Any],
    rows: Callable[[Opened, Say], PlannedRows | ConversionResult],
    source: Any = None,
    *,
    stage_only: bool,
    dry_run: bool,
) -> Any:
    """Run a job on a dataset, stage it, or say what it would do.

    Args:
        verb, source: as in `Job`.
        given: options by name, as the user gave them.
        rows: plans the rows, given the dataset.

    Raises:
        OptionError: an option cannot be given, or does not fit the dataset.
        DatasetError: there is no finished dataset written by this package.
        TfrecorderError: as the job raises them.
    """
    refused = _REFUSED[verb]
    names = (name for name in (*_EARLY, *refused) if name in given)
    chosen = ConvertOptions.of({name: given[name] for name in names}, refused)
    require(flag, stage_only=stage_only, dry_run=dry_run)
    path = output_path(directory, chosen, "directory")
    where = storage.absolute(path)
    with storage.acting_as(chosen.account):
        own_dataset(where)  # otherwise the claim would make a directory

    def planned(say: Say) -> PlannedRows | ConversionResult:
        return rows(opened(where, given, dry_run), say)

    work = job.Job(verb, path, chosen, planned, source, adds=True)
    return run_as_asked(work, stage_only=stage_only, dry_run=dry_run)


def run_as_asked(work: job.Job, *, stage_only: bool, dry_run: bool) -> Any:
    """Run a job, stage it, or say what it would do."""
    if dry_run:
        return trial.of_job(work)
    return job.stage_only(work) if stage_only else job.run(work)


def own_dataset(where: str) -> Commit:
    """The newest commit of a dataset that can be added to.

    Raises:
        DatasetError: there is no finished dataset written by this package.
    """
    with storage.failing_as(DatasetError, where):
        newest = newest_commit(where)
        if newest is None:
            open_dataset(where)  # says what is there instead
            raise DatasetError(
                f"{where} was not written by tfrecorder, which changes only its own datasets."
            )
    return newest


class Opened(NamedTuple):
    """A dataset that a job adds to or changes.

    Attributes:
        where: its absolute path.
        dataset: as readers see it.
        newest: its newest commit.
        options: those given, and for all others what the dataset was made with.
        dry_run: nothing is to be written.
        was_left: a call was killed after the newest commit, and this one did the rest.
    """

    where: str
    dataset: StoredDataset
    newest: Commit
    options: ConvertOptions
    dry_run: bool
    was_left: bool


def opened(where: str, given: Mapping[str, Any], dry_run: bool) -> Opened:
    """The dataset of a job, once what an earlier call left is done.

    Raises:
        OptionError: an option does not fit the dataset.
        DatasetError: it is not whole.
    """
    was_left = not dry_run and complete(where)
    dataset, newest = open_dataset(where), own_dataset(where)
    options = inherited_options(where, newest, given)
    check_runner(options)
    return Opened(where, dataset, newest, options, dry_run, was_left)


def checked_beside(
    where: str,
    known: Sequence[Field],
    table: Source,
    options: ConvertOptions,
    classes: NewClasses,
    beside: Callable[[Checked], Checked],
    look: Callable[[Checked], Checked] | None = None,
) -> tuple[Checked, ValidationReport]:
    """A table that fits a dataset, checked; and the report on it.

    Args:
        known: the columns of the dataset.
        beside: compares it with the dataset, as for `check_table`.
        look: as for `check_table`.

    Raises:
        SourceError: its columns are not the dataset's.
        ValidationError: it has faults.
    """
    refuse_other_schema(where, known, table)
    severe = dataclasses.replace(options, warnings=classes.severe(options.warnings))
    checked, report = check_table(table, where, severe, known, beside, look)
    refuse_other_schema(where, known, table, checked.fields)
    return checked, report


#: Options that say what the columns and classes are: taken from the newest generation, which may
#: have more classes than the first.
_OF_COLUMNS = ("columns", "schema")

#: The number of files in a generation follows from its own rows.
_NOT_TAKEN = ("num_shards",)


def inherited_options(directory: str, newest: Commit, given: Mapping[str, Any]) -> ConvertOptions:
    """The options of an append.

    Args:
        directory: the dataset's directory, for messages.
        newest: its newest commit.
        given: options by name, as the user gave them.

    Raises:
        OptionError: an option does not fit the dataset.
    """
    options, chain = newest.plan.options, newest.dataset.chain
    first = newest if chain == newest.number else read_commit(directory, chain)
    recorded = first.plan.options | {n: options[n] for n in _OF_COLUMNS if n in options}
    if not given.keys().isdisjoint(_OF_COLUMNS):  # they exclude each other
        recorded = {name: recorded[name] for name in recorded.keys() - {*_OF_COLUMNS}}
    names = {item.name for item in dataclasses.fields(ConvertOptions) if item.metadata["content"]}
    kept = {name: value for name, value in recorded.items() if name in names.difference(_NOT_TAKEN)}
    if "name" in kept:
        kept["name"] = f"{kept['name']}:{recorded['version']}"
    stored = ConvertOptions(**kept)
    chosen = ConvertOptions(**{**kept, **given})
    refuse(chosen, idle_options(chosen, given))
    _refuse_mixture(directory, stored, chosen)
    return chosen


def _refuse_mixture(directory: str, stored: ConvertOptions, now: ConvertOptions) -> None:
    """Refuse options that would make parts of a dataset differ in what readers expect of it."""
    reasons = {"name": "it keeps its name"}
    if "raw" in (stored.image_format, now.image_format):  # readers count these pixels
        words = "raw pixels can only be read if all images are alike"
        reasons |= dict.fromkeys(("image_format", "image_size", "short_side"), words)
    for name, reason in reasons.items():
        was, is_now = getattr(stored, name), getattr(now, name)
        if was != is_now:
            words = f"{directory} was made with `{name}={was!r}`, and {reason}. Leave it out."
            raise OptionError.of(name, is_now, words)
