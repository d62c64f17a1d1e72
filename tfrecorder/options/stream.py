"""The options of `stream` beside those of a conversion."""

from __future__ import annotations

from dataclasses import dataclass

from tfrecorder.core.checks import Size, Whole, parse_size, seconds
from tfrecorder.core.option import option
from tfrecorder.options.append import Readmission


@dataclass(frozen=True, kw_only=True)
class StreamOptions(Readmission):
    """When a batch is full, when the stream ends, and what was removed before.

    Raises:
        OptionError: a value has the wrong type or is out of range.
    """

    every_rows: int = option(1000, Whole(1), "Write a batch once it has this many rows.")
    every_seconds: float = option(
        60.0,
        seconds,
        "Write a batch once its first row is this many seconds old, from 0.",
        metavar="SECONDS",
        normal=float,
    )
    spool_size: int | str = option(
        "1GiB",
        Size((1, "1 byte"), "1GiB"),
        "Write a batch once its images take this much space in the output directory (only for "
        "sources whose rows contain images).",
        metavar="SIZE",
    )
    until_idle: float | None = option(
        None,
        seconds,
        "Stop once no image has arrived for this many seconds, from 0. Default: run until Ctrl-C.",
        metavar="SECONDS",
        normal=float,
    )

    @property
    def spool_bytes(self) -> int:
        """`spool_size` in bytes."""
        return parse_size(self.spool_size)
