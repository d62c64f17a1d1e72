"""How far the source of a stream was read: one value for sources with and without an order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfrecorder.errors import SourceError
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import merge_rows
from tfrecorder.reading.stream_positions import position_of, taken_positions
from tfrecorder.streaming.stream_source import OpenedSource


@dataclass
class Reached:
    """How far a source was read.

    Attributes:
        ordered: whether the source's rows have an order.
        at: with an order, a position; without one, the positions of all rows that were read.
    """

    ordered: bool
    at: Any

    def position(self) -> Any:
        """What the source's `rows` is given; it never changes."""
        return self.at if self.ordered else frozenset(self.at)

    def noted(self) -> Any:
        """What a commit notes of it, as a JSON value."""
        return self.at if self.ordered else len(self.at)

    def add(self, position: Any) -> None:
        """From here on the source is read behind this row."""
        if self.ordered:
            self.at = position
        else:
            self.at.add(position)

    def drop(self, positions: Iterable[Any]) -> None:
        """The source gives these rows again; what has an order is never replaced."""
        if not self.ordered:
            self.at.difference_update(positions)


def reached(source: OpenedSource, where: str, newest: Commit | None) -> Reached:
    """How far a source was read by the commits of a dataset."""
    if source.ordered:
        return Reached(True, position_of(newest, source.name))
    if newest is not None:
        merge_rows(where, newest)
    return Reached(False, taken_positions(where, newest, source.name))


def saved(source: OpenedSource, position: Any) -> str:
    """A row's position as the text that is saved with the row.

    Raises:
        SourceError: after a restart, the source would get another value.
    """
    try:
        json.dumps(position, ensure_ascii=False).encode()  # half of a surrogate pair is no Unicode
        text = json.dumps(position, allow_nan=False)
        # None stands for the very beginning, and a tuple would come back as a list.
        is_kept = position is not None and json.loads(text) == position
    except (TypeError, ValueError, RecursionError):
        is_kept = False
    if source.ordered and is_kept:
        return text
    if is_kept and isinstance(position, str):
        return position
    kind = "JSON value" if source.ordered else "text"
    raise SourceError(
        f"source {source.name}: the position {position!r} is not a {kind} that comes back as it is."
    )
