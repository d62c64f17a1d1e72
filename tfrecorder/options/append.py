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
        help="Also add rows whose images, by place or bytes, were removed from the dataset before. "
        "Default: skip and count them.",
    )


@dataclass(frozen=True, kw_only=True)
class NewClasses(Options):
    """What is done with classes that the dataset does not have."""

    new_classes: str = option(
        "warn",
        OneOf("warn", "refuse", "allow"),
        "What to do with classes that the dataset does not have. warn: add them, and name those "
        "that look like one it has; refuse: raise an error; allow: add them.",
    )

    def severe(self, warnings: str | tuple[str, ...]) -> str | tuple[str, ...]:
        """The option `warnings` of a conversion, so that a refused new class is an error."""
        if self.new_classes != "refuse" or warnings == "error":
            return warnings
        return ("new_class",) if warnings == "show" else (*warnings, "new_class")


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(NewClasses, Readmission):
    """What an update does with rows that one of the two does not have.

    Raises:
        OptionError: a value has the wrong type or is out of range.
    """

    missing: str = option(
        "keep",
        OneOf("keep", "remove"),
        "What to do with rows of the dataset that the source does not have. keep: nothing; remove: "
        "remove their records.",
    )
    reread: bool = option(
        False,
        help="Also read images again whose files have changed since they were converted.",
    )


@dataclass(frozen=True, kw_only=True)
class AppendOptions(NewClasses, Readmission):
    """What an append does with rows that are in the dataset, and with classes that are not.

    Raises:
        OptionError: a value has the wrong type or is out of range.
    """

    duplicates: str = option(
        "name",
        OneOf("name", "content", "keep"),
        "What to do with rows whose images are already in the dataset. name: skip those of the "
        "same place, warn of the same bytes under another name; content: skip both; keep: add all.",
    )
    retry_rejects: bool = option(
        False,
        help="Also add rows that the dataset has only as rejects: their images may exist now.",
        idle_with={"duplicates": "keep".__eq__},
    )
