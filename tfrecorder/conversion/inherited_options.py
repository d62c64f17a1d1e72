"""The options of an append: those given, and for all others what the dataset was made with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfrecorder.core.option import idle_options
from tfrecorder.errors import OptionError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import refuse
from tfrecorder.reading.commits import Commit, read_commit

#: Options that say what the columns and classes are: taken from the newest generation, which may
#: have more classes than the first.
_OF_COLUMNS = ("columns", "schema")

#: The number of files in a generation follows from its own rows.
_NOT_TAKEN = ("num_shards",)


def inherited_options(directory: str, newest: Commit, given: Mapping[str, Any]) -> ConvertOptions:
    """The options of an append.

    Args:
        directory: the dataset's directory, for messages.
        newest: its newest commit.
        given: options by name, as the user gave them.

    Raises:
        OptionError: an option does not fit the dataset.
    """
    options, chain = newest.manifest["options"], newest.manifest["chain"]
    first = newest if chain == newest.number else read_commit(directory, chain)
    recorded = first.manifest["options"] | {n: options[n] for n in _OF_COLUMNS if n in options}
    if not given.keys().isdisjoint(_OF_COLUMNS):  # they exclude each other
        recorded = {name: recorded[name] for name in recorded.keys() - {*_OF_COLUMNS}}
    names = {item.name for item in dataclasses.fields(ConvertOptions) if item.metadata["content"]}
    kept = {name: value for name, value in recorded.items() if name in names.difference(_NOT_TAKEN)}
    if "name" in kept:
        kept["name"] = f"{kept['name']}:{recorded['version']}"
    there = ConvertOptions(**kept)
    chosen = ConvertOptions(**{**kept, **given})
    refuse(chosen, idle_options(chosen, given))
    _refuse_mixture(directory, there, chosen)
    return chosen


def _refuse_mixture(directory: str, there: ConvertOptions, now: ConvertOptions) -> None:
    """Refuse options that would make parts of a dataset differ in what readers expect of it."""
    reasons = {"name": "it keeps its name"}
    if "raw" in (there.image_format, now.image_format):  # readers count these pixels
        words = "raw pixels can only be read if all images are alike"
        reasons |= dict.fromkeys(("image_format", "image_size", "short_side"), words)
    for name, reason in reasons.items():
        was, is_now = getattr(there, name), getattr(now, name)
        if was != is_now:
            words = f"{directory} was made with `{name}={was!r}`, and {reason}. Leave it out."
            raise OptionError.of(name, is_now, words)
