"""How far each source of a dataset's streams was read: what its committed generations say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tfrecorder.format.plan_columns import POSITION_OF
from tfrecorder.reading.generations import Generation
from tfrecorder.reading.plan_rows import read_planned

if TYPE_CHECKING:
    import pyarrow as pa


def streams_of(generations: Iterable[Generation]) -> dict[str, Any] | None:
    """For each source, the position it was read up to; `streams` for a plan that has all rows."""
    newest: dict[str, Any] = {}
    for generation in generations:
        for name, position in generation.metadata.get("streams", {}).items():
            newest[name] = {"to": position["to"]}
    return newest or None


def position_of(generations: Iterable[Generation], source: str) -> Any:
    """The position that a source was read up to; None before its first batch."""
    return (streams_of(generations) or {}).get(source, {}).get("to")


def taken_positions(generations: Sequence[Generation], source: str) -> set[str]:
    """The positions of all rows that came from a source, as JSON.

    Raises:
        DatasetError: the plan of a generation cannot be read.
    """
    taken: set[str] = set()
    for generation in generations:
        if source in generation.metadata.get("streams", {}):
            taken.update(positions_in(generation.directory, source))
    return taken


def positions_in(directory: str, source: str) -> list[str]:
    """The positions of the rows from a source in one generation, also of one that is staged.

    Raises:
        DatasetError: its plan cannot be read.
    """
    table = read_planned(directory, _columns)
    pairs = (
        [] if table is None else zip(*(column.to_pylist() for column in table.columns), strict=True)
    )
    return [position for name, position in pairs if name == source]


def _columns(schema: pa.Schema) -> list[str] | None:
    return list(POSITION_OF) if POSITION_OF.source in schema.names else None
