"""How far each source of a dataset's streams was read: what its committed generations say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tfrecorder.plan.plan import POSITION_OF
from tfrecorder.stored.generations import Generation
from tfrecorder.stored.planned import read_planned

if TYPE_CHECKING:
    import pyarrow as pa


def streams_of(found: Iterable[Generation]) -> dict[str, Any] | None:
    """For each source, the position it was read up to; `streams` for a plan that has all rows."""
    newest: dict[str, Any] = {}
    for one in found:
        for name, known in (one.metadata.get("streams") or {}).items():
            newest[name] = {"to": known["to"]}
    return newest or None


def position_of(found: Iterable[Generation], source: str) -> Any:
    """The position that a source was read up to; None before its first batch."""
    return (streams_of(found) or {}).get(source, {}).get("to")


def taken_positions(found: Sequence[Generation], source: str) -> set[str]:
    """The positions of all rows that came from a source, as JSON.

    Raises:
        DatasetError: the plan of a generation cannot be read.
    """
    taken: set[str] = set()
    for one in found:
        if source not in (one.metadata.get("streams") or {}):
            continue
        table = read_planned(one.directory, _columns)
        if table is not None:
            sources, positions = (column.to_pylist() for column in table.columns)
            pairs = zip(sources, positions, strict=True)
            taken.update(position for name, position in pairs if name == source)
    return taken


def _columns(schema: pa.Schema) -> list[str] | None:
    return list(POSITION_OF) if POSITION_OF.source in schema.names else None
