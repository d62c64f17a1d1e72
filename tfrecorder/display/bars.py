"""Progress bars: where there is one, and one that counts the items of each stage."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

#: Counts records that are through.
Advance = Callable[[int], object]
#: Begins a stage: what is done, and with how many records; gives the function that counts them.
Stage = Callable[[str, int], Advance]


#: Seconds after which a stage is shown, so that a short one does not flash.
SHOWN_AFTER = 1.0

#: A bar before there is anything to count.
STARTING = "starting [{elapsed}{postfix}]"


@contextlib.contextmanager
def record_bar(shown: bool, unit: str = " records") -> Iterator[Stage]:
    """A bar that starts again with each stage, as a record may take 100 times longer in one.

    It is gone at the end, when the page itself says how many records were looked at.
    """
    if not shown:
        yield lambda stage, records: lambda count: None
        return
    with bar_class()(
        unit=unit,
        dynamic_ncols=True,
        leave=False,
        bar_format=STARTING,
    ) as bar:

        def begin(stage: str, records: int) -> Advance:
            if not records:
                return lambda count: None
            bar.refresh()  # how the last stage ended, however short it was
            bar.bar_format = None
            bar.set_description(stage, refresh=False)
            bar.reset(records)
            return bar.update

        yield begin
        bar.refresh()


def counting(items: Iterable[T], advance: Advance) -> Iterator[T]:
    """The same items, each counted when the next one is asked for."""
    for item in items:
        yield item
        advance(1)


@contextlib.contextmanager
def stage_line(shown: bool) -> Iterator[Callable[[str], None]]:
    """A status line for work without a count: the current stage, and its time so far.

    It appears after a second, and is gone at the end.  The function that it yields begins a stage.
    """
    if not shown:
        yield lambda stage: None
        return
    stages = deque(["starting"], maxlen=1)
    with watched(partial(_draw_stages, stages), "stage"):
        yield stages.append


def _draw_stages(stages: Sequence[str], ended: threading.Event) -> None:
    form = "{desc}[{elapsed}]"
    with bar_class()(
        dynamic_ncols=True,
        leave=False,
        bar_format=form,
        delay=SHOWN_AFTER,
    ) as line:
        pause = SHOWN_AFTER
        while not ended.wait(pause):
            line.set_description_str(f"{stages[-1]} ", refresh=False)
            line.update(0)
            pause = 0.25


@contextlib.contextmanager
def watched(watch: Callable[[threading.Event], object], name: str) -> Iterator[None]:
    """Run `watch` in a thread beside a block, in the same context, until the block ends.

    The block's end sets the event that `watch` gets.  Without a thread to spare nobody watches.
    """
    ended = threading.Event()
    run = copy_context().run
    watcher = threading.Thread(
        target=run,
        args=(watch, ended),
        name=name,
        daemon=True,
    )
    with contextlib.suppress(RuntimeError, MemoryError):
        watcher.start()
    try:
        yield
    finally:
        ended.set()
        if watcher.ident is not None:
            watcher.join()


@contextlib.contextmanager
def instead_of_the_log() -> Iterator[None]:
    """Silence the package's log while a bar is shown: its lines would tear the bar apart."""
    logger = logging.getLogger("tfrecorder")
    # A filter of this block alone, as blocks may overlap; no logger has its name.
    nothing_passes = logging.Filter("no such logger")
    logger.addFilter(nothing_passes)
    try:
        yield
    finally:
        logger.removeFilter(nothing_passes)


def is_shown(progress: bool | None) -> bool:
    """Whether to show a bar: as asked, or in a terminal and in a notebook that somebody watches."""
    if progress is not None:
        return progress
    ipython: Any = sys.modules.get("IPython")
    if "ipykernel" in sys.modules and ipython and (shell := ipython.get_ipython()):
        return not _run_by_nbclient(shell)
    return sys.stderr is not None and sys.stderr.isatty()


def _run_by_nbclient(shell: Any) -> bool:
    """True if nbclient runs the notebook, as papermill and `jupyter nbconvert --execute` do.

    Each state of a bar of text would stay in the notebook.  nbclient says of each cell that nobody
    is there to answer `input()`; what people look at says the opposite.  `allow_stdin` is a field
    of Jupyter's messaging protocol; `get_parent` is seen in ipykernel 7.4.  Without either, the
    bar is drawn.
    """
    with contextlib.suppress(Exception):  # another kernel than ipykernel
        return shell.kernel.get_parent()["content"]["allow_stdin"] is False
    return False


def bar_class() -> type[Any]:
    """tqdm's bar for where this runs: a terminal or a notebook."""
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # In a notebook without ipywidgets it draws a bar of text, and would say so at length.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm
