"""Everything that reaches past Beam's public interface: one function for each thing to mend.

Each says what it mends, in which version of Beam that was seen, and what happens without it.  If
the name that it reaches for is gone, a conversion runs as Beam alone would run it.  A test takes
each name away in turn.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def quiet_beam() -> Iterator[None]:
    """Keep Beam's log messages out of the terminal, unless the user set its log level.

    Mends: hundreds of lines of warnings and tracebacks before our one line; failures are still
    raised.  Beam also calls `logging.basicConfig` along the way: the handler it adds to the root
    logger is removed, because the user's own basicConfig would otherwise have no effect later.
    Seen in: apache-beam 2.77.
    Without it: Beam's messages are printed.
    """
    logger, root = logging.getLogger("apache_beam"), logging.getLogger()
    level, handlers = logger.level, list(root.handlers)
    if level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL + 1)
        root.addFilter(_is_not_of_beam)
    try:
        yield
    finally:
        logger.setLevel(level)
        root.removeFilter(_is_not_of_beam)
        for handler in [handler for handler in root.handlers if handler not in handlers]:
            root.removeHandler(handler)


def _is_not_of_beam(record: logging.LogRecord) -> bool:
    """False for what Beam logs outside its own logger: its PortableRunner, and workers' reports."""
    return "/apache_beam/" not in record.pathname


@contextlib.contextmanager
def credentials_looked_for() -> Iterator[None]:
    """A block for which Beam looks for credentials again, and once more after it.

    Mends: Beam keeps the first credentials that it finds in a process, so a launch as one account
    would decide the account of all later ones.
    Seen in: apache-beam 2.77, `_Credentials.get_service_credentials`.
    Without it: the first launch of a process decides.
    """
    _forget_credentials()
    try:
        yield
    finally:
        _forget_credentials()


def _forget_credentials() -> None:
    with contextlib.suppress(ImportError, AttributeError):
        found = importlib.import_module("apache_beam.internal.gcp.auth")._Credentials
        if found._credentials_init:
            found._credentials_init = False


@contextlib.contextmanager
def quiet_threads() -> Iterator[None]:
    """Keep Beam's threads from printing tracebacks of a worker process that is gone.

    Mends: forty lines above our one after Ctrl-C, or when a worker was killed.  That is noticed
    and raised elsewhere.
    Seen in: apache-beam 2.77, `beam_control_read` and `read_grpc_client_inputs`.
    Without it: the tracebacks are printed.
    """
    before = threading.excepthook

    def print_others(failed: threading.ExceptHookArgs) -> None:
        if not failed.exc_type.__module__.startswith("grpc"):
            before(failed)

    with _replaced(threading, "excepthook", print_others):
        yield


@contextlib.contextmanager
def as_in_a_script() -> Iterator[None]:
    """Keep Beam from noticing that it runs in a notebook.

    Mends: in a notebook Beam imports its interactive runner to put the cell's number into each
    step's label. That takes seconds, and fails with pandas 3. And its DaskRunner refuses to run.
    Seen in: apache-beam 2.77.
    Without it: Beam notices, and does what it does in notebooks.
    """
    pipeline = importlib.import_module("apache_beam.pipeline")
    # A runner's module is loaded only once that runner is asked for.
    modules = (pipeline, sys.modules.get("apache_beam.runners.dask.dask_runner"))
    names = ("is_in_ipython", "alter_label_if_ipython", "is_in_notebook")
    with contextlib.ExitStack() as stack:
        for module in modules:
            for name in names:
                stack.enter_context(_replaced(module, name, lambda *_: False))
        yield


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """A block in which an attribute has another value; nothing changes if there is none."""
    if not hasattr(owner, name):
        yield
        return
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def late_workers_end() -> Iterator[None]:
    """A block after which worker processes that are still starting end too.

    Mends: Beam announces the end only to workers that have connected, and waits forever for the
    others: Ctrl-C while they start would hang.
    Seen in: apache-beam 2.77, BeamFnControlServicer and ControlConnection.
    Without it: such a Ctrl-C has to be pressed twice.
    """
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    connection: Any = getattr(worker_handlers, "ControlConnection", None)
    servicer: Any = getattr(worker_handlers, "BeamFnControlServicer", None)
    unstarted = getattr(servicer, "UNSTARTED_STATE", None)
    done = getattr(servicer, "_DONE_MARKER", None)
    close: Callable[[Any], None] | None = getattr(connection, "close", None)
    if unstarted is None or done is None or close is None:
        yield
        return

    def close_and_announce(self: Any) -> None:
        if getattr(self, "_state", None) == unstarted:
            self.push(done)
        close(self)

    with _replaced(connection, "close", close_and_announce):
        yield


def stop_samplers() -> None:
    """End the threads that Beam has forgotten; call it when no pipeline runs.

    Mends: Beam notes that such a thread runs only after starting it. An interrupt between the two
    leaves it running forever, and Python waits for it when it exits.
    Seen in: apache-beam 2.77, StateSampler.
    Without it: after such a Ctrl-C the process does not end.
    """
    for thread in threading.enumerate():
        sampler: Any = getattr(getattr(thread, "_target", None), "__self__", None)
        beams = type(sampler).__module__.startswith("apache_beam.")
        running = beams and not getattr(sampler, "finished", True)
        if running and hasattr(sampler, "stop_if_still_running"):
            sampler.stop()


def silent_worker() -> None:
    """Keep a worker process from printing the tracebacks that it also sends to its launcher.

    Mends: 200 lines above the launcher's one, on the terminal that they share.  Only Beam's module
    `sdk_worker` stops printing; an error that ends the process is still printed.
    Seen in: apache-beam 2.77, `_execute`.
    Without it: the tracebacks are printed.
    """
    from apache_beam.runners.worker import sdk_worker

    vars(sdk_worker)["print"] = lambda *words, **to: None


def options_parser() -> Any | None:
    """Beam's parser with the options of every loaded runner; None if Beam does not give it.

    Mends: Beam drops options that it does not know, so a misspelt one has no effect.  A public call
    gives the parser, but only argparse's `_actions` lists the options that it knows.
    Seen in: apache-beam 2.77, Python 3.10 to 3.13.
    Without it: options are passed to Beam unchecked.
    """
    from apache_beam.options.pipeline_options import PipelineOptions

    found: list[Any] = []
    with contextlib.suppress(TypeError):  # no such argument
        PipelineOptions([]).get_all_options(add_extra_args_fn=found.append)
    return found[0] if found and hasattr(found[0], "_actions") else None
