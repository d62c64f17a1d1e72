"""A job: rows are planned for a directory, staged there, written by an executor, and committed.

    Job.rows ──► stage ──► runner ──► result

`convert`, `append` and `compact` are jobs, and differ in how they plan their rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tfrecorder import storage
from tfrecorder.conversion.staged import PlannedRows, Staged, stage
from tfrecorder.conversion.table import Say, rows_of_source, warn_of_source
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.display.warning import warn
from tfrecorder.errors import ImagesUnreachableError, OptionError, UnreachableError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.runner import DIRECT
from tfrecorder.output.directory import claim
from tfrecorder.output.path import output_path
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.status import ConversionStatus, status
from tfrecorder.runners.run import run as run_staged
from tfrecorder.schema.fields import fields_of, validators_of

if TYPE_CHECKING:
    from tfrecorder.runners.dataflow.job import DataflowJob


@dataclass(frozen=True)
class Job:
    """What a call writes into a directory.

    Attributes:
        verb: what is run again to continue: "conversion", "append" or "compaction".
        path: the dataset directory, as the user gave it.
        options: as the user gave them.
        rows: plans the rows; returns the result instead if there is nothing to write.
        source: what they come from, as the user gave it.
        adds: the rows depend on what the directory holds, so it is claimed first.
    """

    verb: str
    path: str
    options: ConvertOptions
    rows: Callable[[Say], PlannedRows | ConversionResult]
    source: Any = None
    adds: bool = False

    @property
    def where(self) -> str:
        """The directory as an absolute path."""
        return storage.absolute(self.path)


def conversion(source: Any, output_dir: str | os.PathLike[str], options: ConvertOptions) -> Job:
    """The job that writes a source as a dataset."""
    path = output_path(output_dir, options)
    rows = partial(rows_of_source, source, storage.absolute(path), options)
    return Job("conversion", path, options, rows, source)


def stage_only(job: Job) -> ConversionStatus:
    """Stage a job for other processes, which write and commit it.

    Raises:
        OptionError: a function checks files, or images need what only this process has.
        TfrecorderError: as the planning raises them.
    """
    if job.options.schema and (names := validators_of(fields_of(job.options.schema))):
        words = f"the validator of {[*names]} cannot reach other processes; leave it out here."
        raise OptionError.of("schema", job.options.schema, words)
    with accessing(job.options), contextlib.ExitStack() as claimed:
        _stage(job, claimed, only=True)
        return dataclasses.replace(status(job.where), output_dir=job.path)


def run(job: Job) -> ConversionResult | DataflowJob:
    """Run a job to its commit, or to the launch of what commits it elsewhere.

    Raises:
        TfrecorderError: as the planning, the runner and the commit raise them.
        KeyboardInterrupt: its message says how to continue.
    """
    began = time.perf_counter()
    try:
        with accessing(job.options), contextlib.ExitStack() as claimed:
            result = _stage(job, claimed)
            if isinstance(result, Staged):
                plan, options, before = result
                if (handle := run_staged(plan, job.where, options)) is not None:
                    return handle
                result = dataclasses.replace(
                    read_result(job.where, plan.commit),
                    shards_before=len(before),
                    rows_before=sum(map(plan.shard_rows, before)),
                )
    except (UnreachableError, KeyboardInterrupt) as error:
        if (explained := how_to_continue(error, job.where, f"the same {job.verb}")) is None:
            raise
        raise explained from (error if isinstance(error, UnreachableError) else None)
    seconds = time.perf_counter() - began
    return dataclasses.replace(result, output_dir=job.path, seconds=seconds)


def accessing(options: ConvertOptions) -> contextlib.AbstractContextManager[None]:
    """A block that reads files as the options say."""
    return storage.acting_as(options.account, options.private_hosts)


def _stage(
    job: Job, claimed: contextlib.ExitStack, only: bool = False
) -> Staged | ConversionResult:
    """Claim the directory and stage the rows, perhaps a million, which nothing holds afterwards.

    Args:
        only: other processes write them.
    """
    shown = is_shown(job.options.progress)
    if job.adds:
        claimed.enter_context(claim(job.where))
    with stage_line(shown) as say:
        rows = job.rows(say)
    if isinstance(rows, ConversionResult):
        for note in rows.notes:
            warn(note)
        return rows
    read_here = storage.access().signed or storage.access().private_hosts
    if read_here and (only or rows.options.runner not in (None, DIRECT)):
        raise OptionError(
            "signed uris, and images of private hosts, are read on this machine alone: leave out "
            "`runner`, staging and `private_hosts`, or copy the images to a bucket first."
        )
    warn_of_source(rows, job.source, job.where)
    if not job.adds:
        claimed.enter_context(claim(job.where))
    with stage_line(shown) as say:
        say("planning")
        return stage(rows, job.where)


def how_to_continue(
    error: UnreachableError | KeyboardInterrupt, where: str, again: str
) -> UnreachableError | KeyboardInterrupt | None:
    """The error with a message on what is left and how to continue; None if it says enough itself.

    Not a context manager, which would add its lines to the traceback of each Ctrl-C.

    Args:
        again: what to run again: "the same conversion".
    """
    # Nothing was written, or a job continues elsewhere.
    if isinstance(error, ImagesUnreachableError):
        return None
    if isinstance(error, UnreachableError):
        return UnreachableError(
            f"{error} Shards that are done are kept in {where}: run {again} again to continue."
        )
    if error.args:
        return None
    return KeyboardInterrupt(
        f"Interrupted: no partial file is left under a final name in {where}. Run {again} again "
        "to continue where it stopped."
    )
