"""A job: an operation is planned for a directory, staged there, written, and committed.

Operation.plan ──► stage ──► runner ──► result
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, TypeAlias

from tfrecorder import storage
from tfrecorder.conversion.operation import Operation
from tfrecorder.conversion.staged import Staged, stage
from tfrecorder.conversion.table import warn_of_source
from tfrecorder.core.option import flag, spelled
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.display.messages import warn
from tfrecorder.errors import ImagesUnreachableError, OptionError, UnreachableError
from tfrecorder.options.option import require
from tfrecorder.options.runner import DIRECT
from tfrecorder.output.directory import claim
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.state import DatasetState
from tfrecorder.output.status import ConversionStatus, status
from tfrecorder.runners.run import run as run_staged
from tfrecorder.schema.fields import fields_of, validators_of
from tfrecorder.writing.commit import complete

if TYPE_CHECKING:
    from tfrecorder.conversion.dry_run import DryRun
    from tfrecorder.runners.dataflow.job import DataflowJob


#: What a call returns: of an operation that ended, was launched, staged or only tried.
CallResult: TypeAlias = "ConversionResult | DataflowJob | ConversionStatus | DryRun"


def run_as_asked(
    operation: Operation,
    *,
    is_staged: bool,
    is_tried: bool,
) -> CallResult:
    """Run an operation, stage it, or say what it would do.

    Args:
        is_staged: only stage it.
        is_tried: only say what it would do.
    """
    require(flag, stage_only=is_staged, dry_run=is_tried)
    if is_tried:
        from tfrecorder.conversion.dry_run import try_out

        return try_out(operation)
    return stage_only(operation) if is_staged else run(operation)


def stage_only(operation: Operation) -> ConversionStatus:
    """Stage an operation for other processes, which write and commit it.

    Raises:
        OptionError: a function checks files, or images need what only this process has.
        TfrecorderError: as the planning raises them.
    """
    schema = operation.options.schema
    names = validators_of(fields_of(schema)) if schema else {}
    if names:
        raise OptionError.of(
            "schema",
            schema,
            f"the validator of {[*names]} cannot reach other processes; leave it out here.",
        )
    with operation.accessing(), contextlib.ExitStack() as claimed:
        _stage(operation, claimed, only=True)
        return dataclasses.replace(status(operation.where), output_dir=operation.path)


def run(operation: Operation) -> ConversionResult | DataflowJob:
    """Run an operation to its commit, or to the launch of what commits it elsewhere.

    Raises:
        TfrecorderError: as the planning, the runner and the commit raise them.
        KeyboardInterrupt: its message says how to continue.
    """
    began = time.perf_counter()
    where = operation.where
    try:
        with operation.accessing(), contextlib.ExitStack() as claimed:
            result = _stage(operation, claimed)
            if isinstance(result, Staged):
                plan = result.plan
                handle = run_staged(plan, where, result.options)
                if handle is not None:
                    return handle
                result = dataclasses.replace(
                    read_result(where, plan.commit),
                    shards_before=len(result.before),
                    rows_before=sum(map(plan.layout.shard_rows, result.before)),
                )
    except (UnreachableError, KeyboardInterrupt) as error:
        if (explained := how_to_continue(error, where, f"the same {operation.verb}")) is None:
            raise
        raise explained from (error if isinstance(error, UnreachableError) else None)
    seconds = time.perf_counter() - began
    return dataclasses.replace(result, output_dir=operation.path, seconds=seconds)


def _stage(
    operation: Operation,
    claimed: contextlib.ExitStack,
    only: bool = False,
) -> Staged | ConversionResult:
    """Claim the directory and stage the rows, perhaps a million, which nothing holds afterwards.

    Args:
        only: other processes write them.
    """
    state = operation.look()
    if not operation.adds:
        return stage_rows(operation, state, claimed, only)
    state = complete(claimed.enter_context(claim(operation.where, state)))
    return stage_rows(operation, state, only=only)


def stage_rows(
    operation: Operation,
    state: DatasetState,
    unclaimed: contextlib.ExitStack | None = None,
    only: bool = False,
) -> Staged | ConversionResult:
    """Plan an operation and stage its rows.

    Args:
        state: of the directory.
        unclaimed: holds the claim, where the directory is not claimed yet.
        only: other processes write them.

    Raises:
        TfrecorderError: as the planning and `stage` raise them.
    """
    where = operation.where
    shown = is_shown(operation.options.progress)
    operation.prepare(state)
    with stage_line(shown) as say:
        planned = operation.plan(state, say)
    if isinstance(planned, ConversionResult):
        for note in planned.notes:
            warn(note)
        return planned
    read_here = storage.access().signed or storage.access().private_hosts
    if read_here and (only or planned.options.runner not in (None, DIRECT)):
        raise OptionError(
            "signed uris, and images of private hosts, are read on this machine alone: leave out "
            f"{spelled('runner')}, staging and {spelled('private_hosts')}, or copy the images to a "
            "bucket first."
        )
    warn_of_source(planned, operation.source, where)
    now = state.unless_claimed() if unclaimed is None else unclaimed.enter_context(claim(where))
    state = complete(now)
    with stage_line(shown) as say:
        say("planning")
        return stage(planned, state)


def how_to_continue(
    error: UnreachableError | KeyboardInterrupt,
    where: str,
    again: str,
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
