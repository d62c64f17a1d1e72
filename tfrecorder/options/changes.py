"""The options of calls that add to a dataset or change it, which a conversion does not have.

They say what to do with what is there already, and with classes that are not; and when a stream
writes a batch.  Of the options of `convert`, some do not apply to other calls: for each of these,
what to do instead.
"""

from __future__ import annotations

import typing
from collections.abc import Container
from dataclasses import dataclass

from tfrecorder.core.option import OneOf, Size, Whole, option, parse_size, seconds
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import CompactKeywords, RemoveKeywords, ValidateKeywords
from tfrecorder.options.option import Options, names_of


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


def _others(
    keywords: type,
    shell: Container[str],
    remedy: str,
) -> dict[str, str]:
    """The remedy for every option that a call does not take, nor its command in a shell."""
    taken = typing.get_type_hints(keywords)
    names = (name for name in names_of(ConvertOptions) if name not in taken and name not in shell)
    return dict.fromkeys(names, remedy)


_OF_WORK = "stage writes no images; give it to `tfrecorder.parts.work`"
_OF_RUNNERS = (
    "stage starts no workers; leave it out, and run `tfrecorder.parts.work` on each machine"
)

#: Options that do not apply to `stage`.
NOT_STAGED = {
    **dict.fromkeys(("num_threads", "progress"), _OF_WORK),
    "max_reject_fraction": "stage commits nothing; give it to `tfrecorder.parts.commit`",
    "private_hosts": "other processes read public addresses alone; leave it out",
    **dict.fromkeys(("runner", "runner_options", "wait"), _OF_RUNNERS),
    **dict.fromkeys(("project", "region", "num_workers"), _OF_RUNNERS),
}

#: Options that do not apply to `append`.
NOT_APPENDED = {
    "name": "the dataset keeps its name; leave it out",
    "overwrite": "an append keeps what is there; leave it out",
}

#: Options that do not apply to `update`.
NOT_UPDATED = {**NOT_APPENDED, "group_copies": "an update moves no row by itself; leave it out"}

_OF_MANY = "the process that reads a stream also writes it; leave it out"
_OF_TEXT = "a stream gets rows, not text; leave it out"

#: Options that do not apply to `stream`.
NOT_STREAMED = {
    **dict.fromkeys(("runner", "runner_options", "wait"), _OF_MANY),
    **dict.fromkeys(("project", "region", "num_workers"), _OF_MANY),
    **dict.fromkeys(("sep", "encoding"), _OF_TEXT),
    "base": "relative uris start at the current folder, or where the source says; leave it out",
    "form": "a stream gets rows, not annotations; leave it out",
    "group_copies": "a stream does not know its later images; leave it out",
    "overwrite": "a stream adds to what is there; leave it out, or give another directory",
    "max_reject_fraction": "a stream continues however many rows are rejected; leave it out",
    "warnings": "a stream continues despite warnings; leave it out",
    "private_hosts": "a stream reads public addresses alone; leave it out",
}

#: Options that decide the file and position of each record.
OF_ORDER = ("num_shards", "shard_size", "shuffle", "seed")

#: Options that do not apply to `compact`.
NOT_COMPACTED = _others(
    CompactKeywords,
    ("wait",),
    "compact copies records as they are; leave it out",
)

#: Options that do not apply to `remove`.
NOT_REMOVED = _others(RemoveKeywords, ("wait",), "remove leaves all else as it is; leave it out")

#: Options that count for images alone, where `validate` looks at them; and that do not apply to it.
OF_IMAGES = ("check", "max_pixels", "private_hosts", "group_copies")
NOT_VALIDATED = _others(
    ValidateKeywords,
    ("columns", "sep", "encoding"),
    "validate writes nothing; leave it out",
)
