"""Running the pipeline on Beam's runners."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator

from tfrecorder import errors, layout, storage
from tfrecorder.errors import OptionError, TfrecorderError
from tfrecorder.options import RUNNERS, ConvertOptions
from tfrecorder.plan import Plan


def run(plan: Plan, output_dir: str, options: ConvertOptions, progress: bool) -> None:
    """Run a staged plan to its commit.

    Raises:
        OptionError: the runner is unknown, or cannot reach the files.
        RejectedError, OutputError: as the workers and the commit raise them.
        KeyboardInterrupt: bare, also where Beam has wrapped it.
    """
    try:
        with _quiet_beam(), _as_in_a_script():
            _run_locally(plan, output_dir, options, progress)
    except BaseException as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        failure = _read_failure(output_dir) or _find_failure(str(error))
        if failure is None:
            raise
        raise failure from None  # Beam's own hundred lines of traceback say nothing more


def _is_interrupt(error: BaseException | None) -> bool:
    """True for Ctrl-C, also where Beam has wrapped it into another error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@contextlib.contextmanager
def _quiet_beam() -> Iterator[None]:
    """Keep Beam's chatter out of the terminal, unless the user set its log level.

    What fails is raised all the same.  Beam also calls `logging.basicConfig` in passing: what it
    adds to the root logger is taken away, or the user's own basicConfig would have no effect later.
    """
    logger, root = logging.getLogger("apache_beam"), logging.getLogger()
    level, handlers = logger.level, list(root.handlers)
    if level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
        for handler in [handler for handler in root.handlers if handler not in handlers]:
            root.removeHandler(handler)


@contextlib.contextmanager
def _as_in_a_script() -> Iterator[None]:
    """Keep Beam from noticing that it is in a notebook.

    There it would import its interactive runner, only to put the cell's number into each step's
    label: seconds of imports, which fail with pandas 3 (apache-beam 2.77).
    """
    from apache_beam import pipeline as beam_pipeline

    found = {
        name: getattr(beam_pipeline, name)
        for name in ("is_in_ipython", "alter_label_if_ipython")
        if hasattr(beam_pipeline, name)
    }
    for name in found:
        setattr(beam_pipeline, name, lambda *_: False)
    try:
        yield
    finally:
        for name, original in found.items():
            setattr(beam_pipeline, name, original)


def check_runner(options: ConvertOptions, output_dir: str) -> None:
    """Raise an OptionError unless the runner is known and its workers can reach the output."""
    if options.runner not in RUNNERS.values():
        known = ", ".join(RUNNERS.values())
        raise OptionError(f"runner={options.runner!r}: there is no such runner; there are {known}.")
    if options.runner == "DataflowRunner":
        raise OptionError(
            f"runner='DataflowRunner': its workers cannot reach output_dir={output_dir!r}, a path "
            "of this machine. Use the DirectRunner."
        )


def _run_locally(plan: Plan, output_dir: str, options: ConvertOptions, progress: bool) -> None:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    from tfrecorder import pipeline

    workers, environment = options.num_workers or 1, None
    if workers > 1:
        # Beam's own command for direct_running_mode="multi_processing", but deaf to Ctrl-C, which a
        # terminal sends to all of them: the launcher ends its workers, they need not complain too.
        environment = SubprocessSDKEnvironment.from_command_string(
            f"trap '' INT; exec {shlex.quote(sys.executable)} "
            "-m apache_beam.runners.worker.sdk_worker_main"
        )
    threads = options.num_threads or max(1, _cores() // workers)
    # The class itself: the name "DirectRunner" may first try to download another runner's binary,
    # and would then differ between a script, a notebook and another machine.
    runner = FnApiRunner(default_environment=environment)
    with beam.Pipeline(runner, PipelineOptions([], direct_num_workers=workers)) as pipe:
        pipeline.build(
            pipe,
            plan,
            output_dir,
            threads=threads,
            on_error=options.on_error,
            max_reject_fraction=float(options.max_reject_fraction),
            progress=progress,
        )


def _cores() -> int:
    """Cores that this process may use: fewer than the machine's in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _read_failure(output_dir: str) -> TfrecorderError | None:
    """The error that a worker left in the directory, where its runner wrapped it."""
    path = os.path.join(output_dir, layout.FAILURE)
    if not storage.exists(path):
        return None
    note = json.loads(storage.read_bytes(path))
    kind: type[TfrecorderError] = getattr(errors, note["error"], TfrecorderError)
    return kind(note["message"])


#: One of our errors in what Beam makes of a worker's: a traceback, with a word of its own.
_FAILURE = re.compile(
    r"^(?:tfrecorder\.errors\.)(\w+): (.*?)(?: \[while running .*)?$", re.MULTILINE
)


def _find_failure(words: str) -> TfrecorderError | None:
    """The error that a worker could not leave in the directory, because the disk is full."""
    found = _FAILURE.search(words)
    kind = getattr(errors, found[1], None) if found else None
    return kind(found[2]) if found and kind else None
