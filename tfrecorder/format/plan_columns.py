"""The columns that belong to no record: of the rows of a plan, and of the tables of shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tfrecorder.schema.fields import SPOOLED, Field, file_fields
from tfrecorder.schema.keys import SOURCE_ID

_PREFIX = "tfrecorder."


class CopyOf(NamedTuple):
    """The columns of a plan that copies records, apart from those of its values.

    Attributes:
        file: the shard that holds the record, below the dataset.
        offset, size: where the record is in it, and how long, with its framing.
        warning: for a suspect, the warning in the lists; "" for any other record.
        crc32c: of the record, with its framing; -1 for a reject, null from a table of form 4.
    """

    file: str
    offset: str
    size: str
    warning: str
    crc32c: str


class RecordOf(NamedTuple):
    """The columns of a table that say what became of a row.

    Attributes:
        offset, size: where its record is in the shard, and how long, with its framing; -1 for a
            reject.
        warning: for a suspect, the decoder's warning; "" for any other row.
        crc32c: of the record, with its framing, taken when it is written; -1 for a reject.  It is
            missing in tables of form 4.
    """

    offset: str
    size: str
    warning: str
    crc32c: str


class RejectOf(NamedTuple):
    """The columns of a table, and of a plan that already knows some rows to be rejects.

    Attributes:
        stage, reason: as in the lists; "" for a row that has or will get a record.
    """

    stage: str
    reason: str


class PositionOf(NamedTuple):
    """The columns of rows that came from streams.

    Attributes:
        source: the name of the stream's source; "" for a row that came another way.
        position: the row's position in it, as JSON.
    """

    source: str
    position: str


class SourceOf(NamedTuple):
    """The columns of a table about the files of one image or mask; null if one was not read.

    Attributes:
        bytes, crc32c: its size, and the CRC32C of its bytes as they were read.
        modified: when it had last been written then, in ns since 1970; null if not on a disk.
        height, width: of the image in it, in pixels.
        hash, mean, deviation: as in `Fingerprint`.  From `height` on, they are missing in tables
            of before these were.
    """

    bytes: str
    crc32c: str
    modified: str
    height: str
    width: str
    hash: str
    mean: str
    deviation: str


COPY_OF = CopyOf(*(f"{_PREFIX}copy/{name}" for name in CopyOf._fields))
RECORD_OF = RecordOf(*(f"{_PREFIX}record/{name}" for name in RecordOf._fields))
REJECT_OF = RejectOf(*(f"{_PREFIX}reject/{name}" for name in RejectOf._fields))
POSITION_OF = PositionOf(*(f"{_PREFIX}stream/{name}" for name in PositionOf._fields))

#: The column of a table, and of a plan that copies, that says what training does not see of a
#: record's images, as words of `images.reduced`, such as "frames,alpha"; only where there is some.
REDUCED = f"{_PREFIX}record/reduced"

#: The column of a plan that changes records: what becomes of the record of a row.  SAME: it is
#: copied.  VALUES: it gets other values, but for its images, masks and boxes.  MADE: it is made
#: again around the images that it holds.  READ: it is made again from the source's images, as is
#: that of a new row.
CHANGE = f"{_PREFIX}copy/change"
SAME, VALUES, MADE, READ = range(4)

#: The folder that a row's relative uris start from; "" if nobody noted it.  Where all rows have the
#: same, it is metadata of the table, or the plan's `base`.
BASE = f"{_PREFIX}source/base"

#: In place of the name of an image that came as bytes, or perhaps did: nobody knows it any more.
NOWHERE = "/\x1f/"

#: The split of a row's shard: a column of merged rows alone, as the names of tables say it.
SHARD_SPLIT = f"{_PREFIX}shard/split"


def source_of(field: Field) -> SourceOf:
    """The columns about the files of a column of images or masks."""
    return SourceOf(*(f"{_PREFIX}source.{name}/{field.key}" for name in SourceOf._fields))


def is_fact(name: str) -> bool:
    """True for a column that belongs to no record."""
    return name.startswith(_PREFIX)


def is_of_place(name: str) -> bool:
    """True for a column that says where sources were, or when, or what their images look like.

    The same rows may have another, or none, as the checksums of records that are copied.
    """
    others = (f"{_PREFIX}source.{of}/" for of in SourceOf._fields[2:])
    return name in (BASE, COPY_OF.crc32c) or name.startswith((*others,))


def is_number_of_source(name: str) -> bool:
    """True for a column of `SourceOf`, whose values are int64."""
    return name.startswith(f"{_PREFIX}source.")


def value_columns(names: Iterable[str]) -> list[str]:
    """Those of these columns that hold values of a record."""
    return [name for name in names if name != SOURCE_ID and not is_fact(name)]


def spool_columns(names: Iterable[str]) -> list[str]:
    """Those of these columns that name the file of each image that came as bytes."""
    return [name for name in names if name.startswith(SPOOLED)]


def parquet_options(fields: Sequence[Field]) -> dict[str, Any]:
    """How rows of these columns are written.

    With checksums: otherwise a flipped byte in a row would look like a fault of its record.
    """
    few = [BASE, SHARD_SPLIT, RECORD_OF.warning, REDUCED, *REJECT_OF, POSITION_OF.source]
    few += (field.text_key for field in fields if field.text_key)
    sources = [source_of(field) for field in file_fields(fields)]
    return {
        "use_dictionary": [*few, *(name for of in sources for name in (of.height, of.width))],
        "write_statistics": False,
        "write_page_checksum": True,
    }
