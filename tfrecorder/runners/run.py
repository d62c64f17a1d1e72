"""Running a staged plan: on one of Beam's runners, or without Beam in this process."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from tfrecorder import storage
from tfrecorder.display.bars import is_shown
from tfrecorder.errors import (
    RunnerError,
    TfrecorderError,
    UnreachableError,
    is_installed,
    limit_reached,
)
from tfrecorder.format.plan import Plan
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.runner import DIRECT
from tfrecorder.output.directory import is_in_place
from tfrecorder.output.status import Failure, progress_bar, read_failure
from tfrecorder.reading.commits import newest_commit
from tfrecorder.runners import beam_options, local_workers
from tfrecorder.runners.beam_patches import (
    as_in_a_script,
    quiet_beam,
    sampled_often,
    stop_sampler,
)
from tfrecorder.writing.worker import Task

if TYPE_CHECKING:
    from tfrecorder.runners.dataflow.job import DataflowJob

#: In a Dask graph: its grouping step turns 128 into 4,000 tasks, and a thousand into 70,000.
MOST_PARTITIONS = 128


def run(
    plan: Plan,
    output_dir: str,
    options: ConvertOptions,
) -> DataflowJob | None:
    """Run a staged plan to its commit, unless a Dataflow job does that without us.

    Args:
        output_dir: the dataset directory, where the plan is staged.

    Returns:
        The handle of a job that is still running; None if the dataset is committed.

    Raises:
        OptionError: the runner is unknown, or cannot reach the files.
        RejectedError, OutputError: as the workers and the commit raise them.
        RunnerError: the runner failed for another reason.
        KeyboardInterrupt: even if Beam wrapped it; it says so if a job is still running.
    """
    stays = options.wait or options.runner != "DataflowRunner"
    shown = is_shown(options.progress) and stays
    threads = options.num_threads or 0
    launch = uuid.uuid4().hex
    task = Task.of(
        plan,
        output_dir,
        threads=threads,
        progress=shown,
        launch=launch,
    )
    with progress_bar(output_dir, plan, shown):
        without_beam = options.runner is None and not is_installed("apache_beam")
        is_direct = (options.runner or DIRECT) == DIRECT
        workers = local_workers.workers_of(plan, output_dir, options) if is_direct else 1
        # A pipeline over nothing would commit nothing.
        if without_beam or workers > 1 or not plan.layout.shards:
            local_workers.run(plan, task, options.max_reject_fraction, workers)
            return None
        return _run_on_beam(plan, task, options)


def _run_on_beam(
    plan: Plan,
    task: Task,
    options: ConvertOptions,
) -> DataflowJob | None:
    output_dir = task.output_dir
    runner = options.runner or DIRECT
    try:
        with quiet_beam(), as_in_a_script(), sampled_often():
            if runner == "DataflowRunner":
                return _run_on_dataflow(plan, output_dir, options)
            _run_and_wait(plan, task, options)
    except BaseException as error:
        if _is_interrupt(error):
            stop_sampler()
            message = error.args if isinstance(error, KeyboardInterrupt) else ()
            raise KeyboardInterrupt(*message) from None
        failure = _noted_failure(output_dir, task.launch) or _as_raised(error)
        if failure is not None:
            raise failure from None  # Beam's own hundred lines of traceback add nothing
        if at_limit := limit_reached(error):  # in one of Beam's own threads or buffers
            raise RunnerError(at_limit) from None
        ours = isinstance(error, TfrecorderError) or not isinstance(error, Exception)
        if ours or runner == DIRECT:
            raise
        raise RunnerError(
            f"the {runner} failed: {_in_short(error)}. Shards that are done are kept: run "
            "the same conversion again to continue."
        ) from error
    if runner != DIRECT and not is_in_place(
        output_dir,
        newest_commit(output_dir),
        plan.commit,
        plan.digest,
    ):
        raise RunnerError(
            f"the {runner} ended without the commit and gave no reason; its log may say "
            "more. Run the same conversion again to continue."
        )
    return None


def _is_interrupt(error: BaseException | None) -> bool:
    """True for Ctrl-C, even if Beam has wrapped it in another error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _as_raised(error: BaseException) -> TfrecorderError | None:
    """A worker's error as it was raised: Beam raises a copy of it that names its step.

    From another process Beam brings the text of its traceback alone, which may go on to an error
    that came of ours.
    """
    original = error.__context__
    if isinstance(original, TfrecorderError) and str(original) in str(error):
        return original.with_traceback(None)
    quoted = str(error).rpartition("\ntfrecorder.errors.")[2]
    name, _, message = quoted.partition(": ")
    message, step, _ = message.partition(" [while running ")
    return Failure(name, message).as_error() if step and "\nTraceback" not in message else None


def _run_and_wait(
    plan: Plan,
    task: Task,
    options: ConvertOptions,
) -> None:
    """Run on this machine or a cluster, and wait for the end."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    from tfrecorder.writing import pipeline

    name = options.runner or DIRECT
    flags = beam_options.beam_flags(options)
    is_direct = name == DIRECT
    partitions = {"dask_npartitions", "dask_partition_size"}
    if name == "DaskRunner" and partitions.isdisjoint(options.runner_options or {}):
        # By default Dask would give 128 shards to one worker, and lose them all with it.
        flags.append(f"--dask_npartitions={min(len(plan.layout.shards), MOST_PARTITIONS)}")
    # The class itself: the name "DirectRunner" may first try to download another runner's binary,
    # and so differ between a script, a notebook and another machine.
    runner = FnApiRunner if is_direct else beam_options.load_runner(name)
    pipe = beam.Pipeline(runner(), PipelineOptions(flags))
    pipeline.build(
        pipe,
        len(plan.layout.shards),
        task,
        options.max_reject_fraction,
        together=is_direct,
    )
    result = pipe.run()
    try:
        result.wait_until_finish()
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            result.cancel()
        raise
    finally:
        if client := getattr(result, "client", None):
            client.close()  # Dask's, which Beam leaves open, with the local cluster it may own


def _run_on_dataflow(
    plan: Plan,
    output_dir: str,
    options: ConvertOptions,
) -> DataflowJob | None:
    from tfrecorder.runners.dataflow import launcher

    job = launcher.launch(plan, output_dir, options)
    if not options.wait:
        return job
    job.wait()
    return None


def _noted_failure(output_dir: str, launch: str) -> TfrecorderError | None:
    """The error that a worker of this launch left in the directory."""
    # Do not retry for long: the error at hand should be reported soon.
    with storage.impatient(), contextlib.suppress(storage.UnreadableError, UnreachableError):
        failure = read_failure(output_dir)
        if failure is not None and failure.launch == launch:
            return failure.as_error()
    return None


def _in_short(error: BaseException) -> str:
    """An error in one line: its first line and its last, the most useful of a remote traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = type(error).__name__
    for line in dict.fromkeys(lines[:1] + lines[-1:]):
        words += f" … {line[:300]}"
    return words.rstrip(".")
