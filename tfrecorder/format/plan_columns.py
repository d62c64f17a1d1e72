"""The columns of `plan.parquet` that belong to no record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tfrecorder.schema.fields import SPOOLED


class CopyOf(NamedTuple):
    """The columns of a plan that copies records, apart from those of its values.

    Attributes:
        file: the shard that holds the record, below the dataset; "" for a row that is a reject.
        offset, size: where the record is in it, and how long, with its framing.
        warning: for a suspect, the warning in the lists; "" for any other record.
        base: the folder that the row's relative uris started from; "" if nobody noted it.
    """

    file: str
    offset: str
    size: str
    warning: str
    base: str


class RejectOf(NamedTuple):
    """The columns of a plan that already knows some rows to be rejects.

    Attributes:
        stage, reason: as in the lists; "" for a row that is to be loaded.
    """

    stage: str
    reason: str


class PositionOf(NamedTuple):
    """The columns of a plan of rows that came from streams.

    Attributes:
        source: the name of the stream's source; "" for a row that came another way.
        position: the row's position in it, as JSON.
    """

    source: str
    position: str


COPY_OF = CopyOf(*(f"tfrecorder.copy/{name}" for name in CopyOf._fields))
REJECT_OF = RejectOf(*(f"tfrecorder.reject/{name}" for name in RejectOf._fields))
POSITION_OF = PositionOf(*(f"tfrecorder.stream/{name}" for name in PositionOf._fields))

#: Columns of a plan that belong to no record.
OF_PLAN_ALONE = frozenset((*COPY_OF, *REJECT_OF, *POSITION_OF))


def spool_columns(names: Iterable[str]) -> list[str]:
    """Those of these columns of a plan that name the file of each image that came as bytes."""
    return [name for name in names if name.startswith(SPOOLED)]
