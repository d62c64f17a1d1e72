"""The options of `convert` that other calls accept: for each that does not apply, what to do."""

from __future__ import annotations

from collections.abc import Container

from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import names_of


def _all_but(names: Container[str], remedy: str) -> dict[str, str]:
    """The remedy for every option that is not named."""
    return dict.fromkeys((name for name in names_of(ConvertOptions) if name not in names), remedy)


_OF_WORK = "stage writes no images; give it to `tfrecorder.parts.work`"
_OF_RUNNERS = (
    "stage starts no workers; leave it out, and run `tfrecorder.parts.work` on each machine"
)

#: Options that do not apply to `stage`.
NOT_STAGED = {
    **dict.fromkeys(("num_threads", "progress"), _OF_WORK),
    "max_reject_fraction": "stage commits nothing; give it to `tfrecorder.parts.commit`",
    **dict.fromkeys(("runner", "runner_options", "wait"), _OF_RUNNERS),
    **dict.fromkeys(("project", "region", "num_workers"), _OF_RUNNERS),
}

#: Options that do not apply to `append`.
NOT_APPENDED = {
    "name": "the dataset keeps its name; leave it out",
    "overwrite": "an append keeps what is there; leave it out, or replace the dataset with "
    "`tfrecorder.convert`",
}

_OF_MANY = "the process that reads a stream also writes it; leave it out"
_OF_TEXT = "a stream gets rows, not text; leave it out"

#: Options that do not apply to `stream`.
NOT_STREAMED = {
    **dict.fromkeys(("runner", "runner_options", "wait"), _OF_MANY),
    **dict.fromkeys(("project", "region", "num_workers"), _OF_MANY),
    **dict.fromkeys(("sep", "encoding"), _OF_TEXT),
    "base": "a stream resolves relative uris from the current folder; give absolute ones",
    "overwrite": "a stream adds to what is there; leave it out, or remove the directory first",
    "max_reject_fraction": "a stream continues however many rows are rejected; leave it out",
    "warnings": "a stream continues despite warnings; leave it out",
}

#: Options that decide the file and position of each record; and all that `compact` accepts.
OF_ORDER = ("num_shards", "shard_size", "shuffle", "seed")
_OF_COMPACT = (
    *OF_ORDER,
    *("name", "overwrite", "runner", "runner_options", "wait", "project", "region"),
    *("num_workers", "num_threads", "progress"),
)
NOT_COMPACTED = _all_but(
    _OF_COMPACT, f"compact copies records as they are; its options are {', '.join(_OF_COMPACT)}"
)

#: Options that change what `validate` finds; those that count for images; and all it accepts.
OF_FINDINGS = (
    *("columns", "schema", "sep", "encoding", "base"),
    *("seed", "splits", "stratify", "split_by"),
)
OF_IMAGES = ("check", "max_pixels")
NOT_VALIDATED = _all_but(
    (*OF_FINDINGS, *OF_IMAGES, "warnings", "progress"), "validate writes nothing; leave it out"
)
