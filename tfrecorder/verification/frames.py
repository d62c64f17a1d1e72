"""What the table and the index of a shard say of its frames, beside the frames themselves.

Each of the three may be as it was written, and still say something else than the others: then what
wrote them was at fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrecorder.core.arrays import Ints
from tfrecorder.format.crc32c import joined
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import RECORD_OF
from tfrecorder.format.tfrecord import Place
from tfrecorder.verification.faults import Fault


@dataclass(frozen=True)
class TableFrames:
    """The frames of a shard as its table describes them, in the table's order.

    Attributes:
        offsets, sizes: where each is, and how long.
        crcs: the CRC32C of each; None in a table of form 4.
    """

    offsets: Ints
    sizes: Ints
    crcs: Ints | None

    @classmethod
    def read(cls, table: bytes) -> TableFrames:
        """Those of the table with these bytes.

        Raises:
            ValueError: it cannot be read, or lacks a column.
        """
        names = [RECORD_OF.offset, RECORD_OF.size, RECORD_OF.crc32c]
        try:
            file = pq.ParquetFile(pa.BufferReader(table), page_checksum_verification=True)
            known = [name for name in names if name in file.schema_arrow.names]
            rows = file.read(columns=known, use_threads=False)
            records = rows.filter(pc.greater_equal(rows.column(RECORD_OF.size), 0))
            places = [records.column(name).to_numpy() for name in names[:2]]
        except (KeyError, OSError, pa.ArrowException) as error:
            raise ValueError(str(error)) from error
        crcs = None
        if RECORD_OF.crc32c in known:
            crcs = records.column(RECORD_OF.crc32c).to_numpy()
        return cls(places[0], places[1], crcs)

    def describes(self, size: int, crc: int) -> bool:
        """True if these frames, one after the other, are a file of this size and CRC32C."""
        ends = np.cumsum(self.sizes)
        whole = int(ends[-1]) if len(ends) else 0
        if whole != size or not np.array_equal(self.offsets, ends - self.sizes):
            return False
        return self.crcs is None or joined(self.crcs, self.sizes) == crc

    def disagreement(self, shard: Shard, file: BinaryIO) -> Fault:
        """The first frame that is not in the shard as the table has it; the shard is sound."""
        end = 0
        for number, (offset, size) in enumerate(self._places()):
            file.seek(offset)
            crc = google_crc32c.value(file.read(size))
            if offset != end:
                words = f"record {number} is at byte {offset:,}, and the one before ends at {end:,}"
                return Fault(shard.table, "differs", words, number, offset)
            if self.crcs is not None and self.crcs[number] != crc:
                words = (
                    f"record {number} has the CRC32C {crc:08x} in {shard.file}, not "
                    f"{self.crcs[number]:08x}: the table is of other records, or in another order"
                )
                return Fault(shard.table, "differs", words, number, offset)
            end = offset + size
        words = f"its records end at byte {end:,}, those of {shard.file} do not"
        return Fault(shard.table, "differs", words)

    def other_index(self, shard: Shard, places: Sequence[Place]) -> Iterator[Fault]:
        """The first line of the index that is not as the table has it; none if all are."""
        own = self._places()
        if own == [*places]:
            return
        pairs = zip(own, places, strict=False)
        differing = (number for number, (mine, listed) in enumerate(pairs) if mine != listed)
        number = next(differing, min(len(own), len(places)))
        words = f"record {number} is not where {shard.table} has it"
        yield Fault(shard.index_file, "differs", words, number)

    def _places(self) -> list[Place]:
        return [*zip(self.offsets.tolist(), self.sizes.tolist(), strict=True)]
