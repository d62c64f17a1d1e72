"""Progress bars: where there is one, of which kind, and one that counts the items of each stage."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

#: Counts records that are through.
Advance = Callable[[int], object]
#: Begins a stage: what is done, and with how many records; gives the function that counts them.
Stage = Callable[[str, int], Advance]


#: Seconds of a stage that are nothing to speak of.
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
    with bar_class()(unit=unit, dynamic_ncols=True, leave=False, bar_format=STARTING) as bar:

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
    """A line for work that nothing can be counted of: what is done, and for how long.

    It comes after a second, so that it does not flash, and is gone at the end.  The function that
    it gives begins a stage.
    """
    if not shown:
        yield lambda stage: None
        return
    stages, ended = deque(["starting"], maxlen=1), threading.Event()
    # Whether somebody watches, the thread of the cell knows alone.
    watcher = threading.Thread(
        target=_tell, args=(bar_class(), stages, ended), name="stage", daemon=True
    )
    with contextlib.suppress(RuntimeError, MemoryError):  # no thread to spare: no line
        watcher.start()
    try:
        yield stages.append
    finally:
        ended.set()
        if watcher.ident is not None:
            watcher.join()


def _tell(bar: type[Any], stages: Sequence[str], ended: threading.Event) -> None:
    form = "{desc}[{elapsed}]"
    with bar(dynamic_ncols=True, leave=False, bar_format=form, delay=SHOWN_AFTER) as line:
        pause = SHOWN_AFTER
        while not ended.wait(pause):
            line.set_description_str(f"{stages[-1]} ", refresh=False)
            line.update(0)
            pause = 0.25


@contextlib.contextmanager
def instead_of_the_log() -> Iterator[None]:
    """A block with a bar that says itself what the package would log: lines would tear it apart."""
    logger = logging.getLogger("tfrecorder")
    logger.addFilter(_no_record)
    try:
        yield
    finally:
        logger.removeFilter(_no_record)


def _no_record(record: logging.LogRecord) -> bool:
    return False


def is_shown(progress: bool | None) -> bool:
    """Whether to show a bar: as asked, or in a terminal and in a notebook."""
    if progress is not None:
        return progress
    return _in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def _in_notebook() -> bool:
    kernel = sys.modules.get("ipykernel")
    ipython = sys.modules.get("IPython")
    return kernel is not None and ipython is not None and ipython.get_ipython() is not None


def _nobody_watches() -> bool:
    """True in a notebook that is executed from its first cell to its last, and looked at later.

    nbclient, and with it papermill and `jupyter nbconvert --execute`, says of each cell that nobody
    is there to answer `input()`; what people look at says the opposite.  `allow_stdin` is a field
    of Jupyter's messaging protocol; `get_parent` is seen in ipykernel 7.4.  Without either, the
    bar is drawn as if somebody watched.
    """
    if not _in_notebook():
        return False
    kernel: Any = getattr(sys.modules["IPython"].get_ipython(), "kernel", None)
    with contextlib.suppress(Exception):  # another kernel than ipykernel: as if watched
        return kernel.get_parent()["content"]["allow_stdin"] is False
    return False


def _line_at_the_end() -> type[Any]:
    """A bar that shows nothing on its way: each of its states would stay in the notebook."""
    from tqdm.std import tqdm

    class LineAtTheEnd(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "file": io.StringIO()})

        def display(self, *args: Any, **kwargs: Any) -> None:
            pass

        def close(self) -> None:
            if not self.disable and self.leave:
                shown = "{desc}{n_fmt}/{total_fmt}{unit} [{elapsed}, {rate_fmt}{postfix}]"
                print(self.format_meter(**{**self.format_dict, "bar_format": shown, "rate": None}))
            super().close()

    return LineAtTheEnd


def bar_class() -> type[Any]:
    """tqdm's bar for where this runs: a terminal, a notebook, or one that nobody watches."""
    if _nobody_watches():
        return _line_at_the_end()
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # In a notebook without ipywidgets it draws a bar of text, and would say so at length.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm
