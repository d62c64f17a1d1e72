"""The options of `convert` that other calls accept: for each that does not apply, what to do."""

from __future__ import annotations

import typing
from collections.abc import Container

from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import CompactKeywords, RemoveKeywords, ValidateKeywords
from tfrecorder.options.option import names_of


def _others(keywords: type, shell: Container[str], remedy: str) -> dict[str, str]:
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
    CompactKeywords, ("wait",), "compact copies records as they are; leave it out"
)

#: Options that do not apply to `remove`.
NOT_REMOVED = _others(RemoveKeywords, ("wait",), "remove leaves all else as it is; leave it out")

#: Options that count for images alone, where `validate` looks at them; and that do not apply to it.
OF_IMAGES = ("check", "max_pixels", "private_hosts", "group_copies")
NOT_VALIDATED = _others(
    ValidateKeywords, ("columns", "sep", "encoding"), "validate writes nothing; leave it out"
)
