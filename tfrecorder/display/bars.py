"""The progress bar of a page while it is made: one line that counts the records of each stage."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

#: Counts records that are through.
Advance = Callable[[int], object]
#: Begins a stage: what is done, and with how many records; gives the function that counts them.
Stage = Callable[[str, int], Advance]


@contextlib.contextmanager
def record_bar(shown: bool) -> Iterator[Stage]:
    """A bar that begins anew with each stage, as a record takes a hundred times longer in one.

    It is gone at the end, when the page itself says how many records were looked at.
    """
    if not shown:
        yield lambda stage, records: lambda count: None
        return
    with bar_class()(unit=" records", dynamic_ncols=True, leave=False) as bar:

        def begin(stage: str, records: int) -> Advance:
            if not records:
                return lambda count: None
            bar.refresh()  # how the last stage ended, however short it was
            bar.set_description(stage, refresh=False)
            bar.reset(records)
            return bar.update

        yield begin


def counting(items: Iterable[T], advance: Advance) -> Iterator[T]:
    """The same items, each counted when the next one is asked for."""
    for item in items:
        yield item
        advance(1)


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


def bar_class() -> type[Any]:
    """tqdm's bar for where this runs: a terminal, or a notebook."""
    from tqdm import TqdmWarning

    with warnings.catch_warnings():
        # In a notebook without ipywidgets it draws a bar of text, and would say so at length.
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm
    return tqdm
