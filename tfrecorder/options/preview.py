"""The options of `preview` that say what it looks at."""

from __future__ import annotations

from dataclasses import dataclass

from tfrecorder.core.checks import Whole, flag_or_none, seconds as check_seconds
from tfrecorder.core.option import option
from tfrecorder.options.read import RecordOptions

#: The most records of a split that a page shows.
MOST_SHOWN = 200


@dataclass(frozen=True, kw_only=True)
class PreviewOptions(RecordOptions):
    """What a preview looks at.

    Raises:
        OptionError: a value has the wrong type or is out of range.
    """

    num_records: int = option(
        1000,
        Whole(1),
        "How many random records of each split to decode, at most.",
    )
    per_split: int = option(24, Whole(1, MOST_SHOWN), "How many records of each split to show.")
    seconds: float = option(
        60.0,
        check_seconds,
        "Seconds, from 0, that the search for duplicates may take. It compares all records by a "
        "hash of the image's bytes, then those that may be near copies; if time runs out, the page "
        "says how many it compared.",
        metavar="SECONDS",
    )
    seed: int = option(0, Whole(0), "Seed of the choice of records.")
    progress: bool | None = option(
        None, flag_or_none, "Show a progress bar. Default: only in a terminal or a notebook."
    )
