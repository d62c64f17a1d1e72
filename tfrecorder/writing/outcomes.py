"""What became of the rows of a shard: the index of its records, and its table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrecorder.core.arrays import Ints
from tfrecorder.errors import OutputError
from tfrecorder.format.layout import (
    BASE,
    CHANGE,
    COPY_OF,
    RECORD_OF,
    REDUCED,
    REJECT_OF,
    parquet_options,
    source_of,
)
from tfrecorder.format.plan import Plan
from tfrecorder.format.tfrecord import framed_crcs, joined_crc
from tfrecorder.images.fingerprint import UNKNOWN, Look, fingerprints_of
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.keys import SOURCE_ID

#: The key under which a table names its form, and the number of this one.
FORM = "tfrecorder.table/form"
FORM_NUMBER = "1"

#: The key under which it names the commit that it was written for.
COMMIT = "tfrecorder.table/commit"

#: What the table says of each row.
_OF_ROW = (*RECORD_OF, *REJECT_OF)
_TEXTS = (RECORD_OF.warning, *REJECT_OF)

#: Bytes of small pictures that wait.  Right after a decoder has emptied the core's caches a
#: fingerprint takes 60 µs, and 15 if many are made one after the other.
_LOOKS_BYTES = 2**18


class OfFile(NamedTuple):
    """What is known of a file that was read, as in `SourceOf`; `look` if it is an image."""

    bytes: int | None = None
    crc32c: int | None = None
    modified: int | None = None
    height: int | None = None
    width: int | None = None
    look: Look | None = None


#: What is known of the files of a row that were read, by the keys of their columns.
Sources = Mapping[str, OfFile]
_NOT_READ = OfFile()


class RecordAt(NamedTuple):
    """A record as it was written.

    Attributes:
        row: its row's number.
        offset, size: where it is in the shard, and how long, with its framing.
        warning: of the decoder; "" if there is none.
        crc32c: of its data, without the framing.
    """

    row: int
    offset: int
    size: int
    warning: str
    crc32c: int


class Outcomes:
    """What became of the rows of a shard, in the order of its plan.

    In flat lists of plain values: Python's garbage collector would look at an object for each row.
    """

    def __init__(self, fields: Iterable[Field]) -> None:
        files = file_fields(fields)
        self._keys = [field.key for field in files]
        self._sources = [name for field in files for name in source_of(field)]
        self._rows: list[int] = []
        self._cells: list[int | str] = []
        self._facts: list[int | None] = []
        self._looks: list[tuple[int, Look]] = []  # by where their facts end
        self._looks_bytes = 0
        self._reduced: list[str] = []
        self._are_framed = False  # the checksums of records

    def __len__(self) -> int:
        return len(self._cells) // len(_OF_ROW)

    def add_record(
        self,
        record: RecordAt,
        reduced: Iterable[str],
        sources: Sources,
    ) -> None:
        self._rows.append(record.row)
        self._cells += (*record[1:], "", "")
        self._reduced.append(",".join(reduced))
        self._add_sources(sources)

    def add_all(
        self,
        sizes: Ints,
        crcs: Ints,
        rows: pa.Table,
    ) -> int:
        """Rows that were copied, with the sizes and CRC32Cs of their records now.

        Returns:
            How many of the records have a decoder's warning.
        """
        self._are_framed = True
        is_record = rows.column(COPY_OF.size).to_numpy() >= 0
        places = np.full((3, len(rows)), -1)
        places[:, is_record] = (np.cumsum(sizes) - sizes, sizes, crcs)
        offsets_of, sizes_of, crcs_of = places.tolist()
        texts = (COPY_OF.warning, *REJECT_OF)
        warnings, stages, reasons = (rows.column(name).to_pylist() for name in texts)
        cells = zip(offsets_of, sizes_of, warnings, crcs_of, stages, reasons, strict=True)
        self._cells += itertools.chain.from_iterable(cells)
        self._rows += rows.column(SOURCE_ID).to_pylist()
        there = REDUCED in rows.column_names
        self._facts += [None] * (len(self._sources) * len(rows))
        self._reduced += rows.column(REDUCED).to_pylist() if there else [""] * len(rows)
        return sum(map(bool, warnings))

    def add_reject(
        self,
        row: int,
        stage: str,
        reason: str,
        sources: Sources,
    ) -> None:
        self._rows.append(row)
        self._cells += (-1, -1, "", -1, stage, reason)
        self._reduced.append("")
        self._add_sources(sources)

    def _add_sources(self, sources: Sources) -> None:
        for key in self._keys:
            of_file = sources.get(key, _NOT_READ)
            self._facts += (*of_file[:-1], *UNKNOWN)
            if of_file.look is not None:
                self._looks.append((len(self._facts), of_file.look))
                self._looks_bytes += of_file.look.gray.nbytes
        if self._looks_bytes > _LOOKS_BYTES:
            self._add_fingerprints()

    def _add_fingerprints(self) -> None:
        ends = [end for end, _ in self._looks]
        looks = [look for _, look in self._looks]
        for end, fingerprint in zip(ends, fingerprints_of(looks), strict=True):
            self._facts[end - len(fingerprint) : end] = fingerprint
        self._looks = []
        self._looks_bytes = 0

    def _add_framing(self) -> None:
        """Make the checksums of records those of their bytes: of all at once, in no time."""
        if self._are_framed:
            return
        self._are_framed = True
        sizes = np.array(self._of_rows(RECORD_OF.size))
        crcs = np.array(self._of_rows(RECORD_OF.crc32c))
        has_record = sizes >= 0
        crcs[has_record] = framed_crcs(crcs[has_record], sizes[has_record])
        self._cells[_OF_ROW.index(RECORD_OF.crc32c) :: len(_OF_ROW)] = crcs.tolist()

    def _of_rows(self, name: str) -> list[int | str]:
        """The cells of a column of `_OF_ROW`."""
        return self._cells[_OF_ROW.index(name) :: len(_OF_ROW)]

    def crc32c(self) -> int:
        """That of all records, one after the other: a shard's, without another pass over it."""
        self._add_framing()
        sizes = np.array(self._of_rows(RECORD_OF.size))
        crcs = np.array(self._of_rows(RECORD_OF.crc32c))
        has_record = sizes >= 0
        return joined_crc(crcs[has_record], sizes[has_record])

    def index(self) -> bytes:
        """A line `offset size` for each record."""
        offsets = self._of_rows(RECORD_OF.offset)
        places = zip(offsets, self._of_rows(RECORD_OF.size), strict=True)
        lines = [f"{offset} {size}\n" for offset, size in places if size != -1]
        return "".join(lines).encode()

    def table(
        self,
        plan: Plan,
        rows: pa.Table,
    ) -> bytes:
        """The table of the shard, given the rows that were planned; the same for the same rows.

        Raises:
            OutputError: they are not the rows whose records were written, in their order.
        """
        if not np.array_equal(rows.column(SOURCE_ID).to_numpy(), self._rows):
            raise OutputError(
                "the rows of a shard are not those that were written, in their order. Nothing was "
                "committed. This must not happen: please report it."
            )
        self._add_fingerprints()
        self._add_framing()
        planned = dict(zip(rows.column_names, rows.columns, strict=True))
        left_out = (*COPY_OF, CHANGE)
        columns = {name: column for name, column in planned.items() if name not in left_out}
        for at, name in enumerate(_OF_ROW):
            kind = pa.large_string() if name in _TEXTS else pa.int64()
            columns[name] = pa.array(self._cells[at :: len(_OF_ROW)], kind)
        for at, name in enumerate(self._sources):
            facts = pa.array(self._facts[at :: len(self._sources)], pa.int64())
            # Of a row that is copied, the source is known from before.
            columns[name] = pc.coalesce(facts, columns[name]) if name in columns else facts
        columns.pop(REDUCED, None)
        if any(self._reduced):
            columns[REDUCED] = pa.array(self._reduced, pa.large_string())
        bases = columns[BASE].unique().to_pylist() if BASE in columns else [plan.rows.base]
        if len(bases) == 1:
            columns.pop(BASE, None)
        base = bases[0] if len(bases) == 1 else ""
        about = {FORM: FORM_NUMBER, COMMIT: str(plan.commit), BASE: base}
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns, metadata=about), sink, **parquet_options(plan.fields))
        return bytes(sink.getvalue())
