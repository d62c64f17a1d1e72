"""The options of what adds to a dataset: what is there already, and classes that are not."""

from __future__ import annotations

from dataclasses import dataclass

from tfrecorder.core.checks import OneOf
from tfrecorder.core.option import option
from tfrecorder.options.option import Options


@dataclass(frozen=True, kw_only=True)
class Readmission(Options):
    """What is done with rows that were removed from the dataset before."""

    readmit: bool = option(
        False,
        help="Let rows in again whose images were removed from the dataset, by their places or "
        "their bytes. Default: they stay out, and are counted.",
    )


@dataclass(frozen=True, kw_only=True)
class AppendOptions(Readmission):
    """What an append does with rows that are in the dataset, and with classes that are not.

    Raises:
        OptionError: a value has the wrong type or is out of range.
    """

    duplicates: str = option(
        "name",
        OneOf("name", "content", "keep"),
        "Rows whose images are already in the dataset. name: skip those of the same place, warn of "
        "the same bytes under another name; content: skip both; keep: add all.",
    )
    new_classes: str = option(
        "warn",
        OneOf("warn", "refuse", "allow"),
        "Classes that the dataset does not have. warn: name them, and which look like one that it "
        "has; refuse: an error; allow: add them.",
    )
    retry_rejects: bool = option(
        False,
        help="Also add rows that the dataset has only as rejects: their images may exist now.",
        idle_with={"duplicates": "keep".__eq__},
    )
