"""Everything that reaches past Beam's public interface: one function for each thing to mend.

Each says what it mends, in which version of Beam that was seen, and what happens without it.  If
the name that it reaches for is gone, a conversion runs as Beam alone would run it.  A test takes
each name away in turn.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
from collections.abc import Iterator
from typing import Any

#: Objects that are made before Python looks for garbage, while Beam is imported.
OBJECTS_MADE = 20_000

#: Milliseconds between two looks at which step runs, as defaults of a function: of Beam, and ours.
BEAM_SAMPLES = (200,)
OUR_SAMPLES = (10,)


def import_beam() -> None:
    """Import Beam while Python seldom looks for garbage.

    Mends: the import makes many objects and leaves none behind.  Python looks through all of them
    at every 700th, for a seventh of a small conversion.
    Its threshold is put back, unless another thread has set it meanwhile.  Of two threads that are
    here at once, the one that found the user's puts it back.
    Seen in: apache-beam 2.77, with Python 3.11.
    Without it: the first conversion of a process takes a fifth of a second longer.
    """
    before = gc.get_threshold()[0]
    is_raised = 0 < before < OBJECTS_MADE
    if is_raised:
        gc.set_threshold(OBJECTS_MADE)
    try:
        # Every thread begins with the same module, and so waits for the one that is first.
        importlib.import_module("apache_beam.runners.portability.fn_api_runner")
    finally:
        if is_raised and gc.get_threshold()[0] == OBJECTS_MADE:
            gc.set_threshold(before)


@contextlib.contextmanager
def quiet_beam() -> Iterator[None]:
    """Keep Beam's log messages out of the terminal, unless the user set its log level.

    Mends: hundreds of lines of warnings and tracebacks before our one line; failures are still
    raised.  Beam also calls `logging.basicConfig` along the way: the handler it adds to the root
    logger is removed, because the user's own basicConfig would otherwise have no effect later.
    Seen in: apache-beam 2.77.
    Without it: Beam's messages are printed.
    """
    logger = logging.getLogger("apache_beam")
    root = logging.getLogger()
    level = logger.level
    handlers = list(root.handlers)
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
        credentials = importlib.import_module("apache_beam.internal.gcp.auth")._Credentials
        if credentials._credentials_init:
            credentials._credentials_init = False


@contextlib.contextmanager
def as_in_a_script() -> Iterator[None]:
    """Keep Beam from noticing that it runs in a notebook.

    Mends: in a notebook Beam imports its interactive runner to put the cell's number into each
    step's label.  That takes seconds, and fails with pandas 3.  And its DaskRunner refuses to run.
    Seen in: apache-beam 2.77, `is_in_ipython` of `utils.interactive_utils`, and its copy in
    `pipeline`, without which each run would leave an empty temporary folder.
    Without it: Beam notices, and does what it does in notebooks.
    """
    import_beam()
    with contextlib.ExitStack() as stack:
        for name in ("apache_beam.utils.interactive_utils", "apache_beam.pipeline"):
            module = importlib.import_module(name)
            if hasattr(module, "is_in_ipython"):
                stack.callback(setattr, module, "is_in_ipython", module.is_in_ipython)
                module.is_in_ipython = lambda: False  # type: ignore[attr-defined]
        yield


@contextlib.contextmanager
def sampled_often() -> Iterator[None]:
    """A block in which Beam's steps end at once.

    Mends: a thread looks every 200 ms which step runs, and a bundle waits for its last look before
    it ends.
    Seen in: apache-beam 2.77, StateSampler, which takes the pause as its last argument.
    Without it: a conversion of a second or more ends a tenth of a second later.
    """
    module = importlib.import_module("apache_beam.runners.worker.statesampler")
    begin: Any = getattr(getattr(module, "StateSampler", None), "__init__", None)
    if getattr(begin, "__defaults__", None) != BEAM_SAMPLES:
        yield
        return
    begin.__defaults__ = OUR_SAMPLES
    try:
        yield
    finally:
        begin.__defaults__ = BEAM_SAMPLES


def stop_sampler() -> None:
    """End the thread that Beam has forgotten; call it when no pipeline runs.

    Mends: Beam notes that such a thread runs only after starting it. An interrupt between the two
    leaves it running forever, and Python waits for it when it exits.
    Seen in: apache-beam 2.77, StateSampler, the tracker of the thread that called Beam.
    Without it: after such a Ctrl-C the process does not end.
    """
    with contextlib.suppress(ImportError, AttributeError):  # or its thread was not made yet
        sampler = importlib.import_module(
            "apache_beam.runners.worker.statesampler"
        ).get_current_tracker()
        if sampler is not None and not sampler.finished:
            sampler.stop()
