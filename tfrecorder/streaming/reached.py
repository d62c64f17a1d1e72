"""How far the source of a stream was read: one value for sources with and without an order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tfrecorder.display.tables import escaped
from tfrecorder.errors import SourceError
from tfrecorder.reading.generations import Generation
from tfrecorder.reading.stream_positions import position_of, taken_positions
from tfrecorder.streaming.stream_source import OpenedSource


class Reached:
    """How far a source was read whose rows have an order: up to a position."""

    def __init__(self, position: Any) -> None:
        self._position = position

    def position(self) -> Any:
        """What the source's `rows` is given; it never changes."""
        return self._position

    def noted(self) -> Any:
        """What a commit notes of it, as a JSON value."""
        return self._position

    def add(self, position: Any) -> None:
        """From here on the source is read behind this row."""
        self._position = position

    def drop(self, positions: Iterable[Any]) -> None:
        """The source gives these rows again; what has an order is never replaced."""


class ReachedInAnyOrder(Reached):
    """The positions of all rows that were read, of a source whose rows have no order."""

    _position: set[str]

    def position(self) -> frozenset[str]:
        return frozenset(self._position)

    def noted(self) -> int:
        return len(self._position)

    def add(self, position: str) -> None:
        self._position.add(position)

    def drop(self, positions: Iterable[str]) -> None:
        self._position.difference_update(positions)


def reached(source: OpenedSource, generations: Sequence[Generation]) -> Reached:
    """How far a source was read by the commits of a dataset."""
    if source.ordered:
        return Reached(position_of(generations, source.name))
    return ReachedInAnyOrder(taken_positions(generations, source.name))


def saved(source: OpenedSource, position: Any) -> str:
    """A row's position as the text that is saved with the row.

    Raises:
        SourceError: after a restart, the source would get another value.
    """
    try:
        return _saved(position, source.ordered)
    except (TypeError, ValueError, RecursionError) as error:
        raise SourceError(
            f"source {source.name}: the position {position!r} is not "
            f"{'a JSON value' if source.ordered else 'a text'}: {error}."
        ) from None


def _saved(position: Any, ordered: bool) -> str:
    text = json.dumps(position, allow_nan=False)
    same = json.loads(text) if ordered else str(position)
    if position is None:
        raise ValueError("None stands for the very beginning")
    if same != position:
        raise ValueError(f"after a restart, the source would get {same!r}")
    plain = json.dumps(position, ensure_ascii=False)
    if escaped(plain) != plain:
        raise ValueError("it holds half of a surrogate pair, which is not valid Unicode")
    return text if ordered else str(position)
