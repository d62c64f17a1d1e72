"""Faults of a dataset directory, and the report that lists them.

The codes:

    missing           a file is not there
    unreadable        a file cannot be read
    foreign_shard     a shard that this dataset does not list
    size              a file is longer or shorter than it was written
    checksum          a file holds other bytes than were written
    record_length     a record's length, or its checksum, is wrong: where the record ends is unknown
    record_checksum   the checksum of a record's data is wrong
    undecodable       TensorFlow does not decode the image, or to another shape (only if asked)
    rows_lost         records and rejects together are not the rows that were planned
    damaged           a file of metadata cannot be what was written
    differs           a file contradicts another one, or a shard its index
    named             a file names what must be absent (only if asked)

Those of source files, each with the record that was made from one (only if asked):

    source_changed    it has other bytes than were converted
    source_vanished   there is no file under its name any more
    source_unreadable nothing says if it changed: it may not be read
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

import pandas as pd

from tfrecorder.core.option import spelled
from tfrecorder.display.messages import command
from tfrecorder.display.tables import Report, Table, counted

FAULT_COLUMNS = ("file", "record", "offset", "code", "message")

#: For one code in one file; otherwise a shard that was exchanged would list each of its records.
MAX_FAULTS = 1000

#: The faults of source files, with their remedies.
OF_SOURCES = {
    "source_changed": "`update` with {reread} converts source files that changed "
    "again; until then, the records hold the images of before.",
    "source_vanished": "The records keep the images of source files that vanished. If it is their "
    "disk that is away, mount it and check again.",
    "source_unreadable": "Get access to the source files that cannot be read, and check again.",
}

_SHOWN_FILES = 10
_SHOWN_FAULTS = 3


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        file: its name below the dataset directory.
        code: one of those above.
        message: the same in words.
        record: its number in the file, from 0; None if the fault does not belong to one record.
        offset: where the record begins, in bytes from the start of the file.
    """

    file: str
    code: str
    message: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        where = "" if self.record is None else f"record {self.record} at byte {self.offset}: "
        return f"{where}{self.code}: {self.message}"


def at_most(faults: Iterable[Fault], most: int = MAX_FAULTS) -> Iterator[Fault]:
    """Faults, at most `most` of one code in one file; the rest of these are only counted."""
    counts: Counter[tuple[str, str]] = Counter()
    for fault in faults:
        counts[fault.file, fault.code] += 1
        if counts[fault.file, fault.code] <= most:
            yield fault
    for (file, code), count in counts.items():
        if count > most:
            yield Fault(file, code, f"and {count - most:,} more of this kind")


@dataclass(frozen=True, repr=False)
class VerificationReport(Report):
    """What `verify` found.

    Attributes:
        directory: the dataset directory, as it was given.
        files: how many were checked.
        records: how many were checked.
        bytes: the size of the shards that were read.
        seconds: how long it took.
        decoded: True if every image was decoded.
        found: the faults, grouped by file.
        compared: True if every record was compared with its table.
        absent: of how many uris it was asked whether any file names them.
        sources: how many source files were `compared`, and of these `changed`, `vanished` or are
            `unreadable`; how many images came `from_bytes`, without a file; of how many the file is
            `unknown`, because a table was lost.  None if this was not asked for.
        without_frame_sums: tables that have no checksums of records, as an earlier version wrote
            them: nothing proves their order.  What writes a shard again gives it a table with them.
    """

    directory: str
    files: int
    records: int
    bytes: int
    seconds: float
    decoded: bool
    found: tuple[Fault, ...]
    absent: int = 0
    sources: Mapping[str, int] | None = None
    compared: bool = False
    without_frame_sums: int = 0

    @property
    def ok(self) -> bool:
        """True if no fault was found."""
        return not self.found

    @property
    def faults(self) -> pd.DataFrame:
        """The faults as a frame: file, record, offset (in bytes), code and message."""
        frame = pd.DataFrame(map(asdict, self.found), columns=list(FAULT_COLUMNS))
        return frame.astype({"record": "Int64", "offset": "Int64"})

    def _values(self) -> Mapping[str, object]:
        others = {name: value for name, value in asdict(self).items() if name != "found"}
        return {"ok": self.ok, **others, "faults": [asdict(fault) for fault in self.found]}

    def _headline(self) -> str:
        rate = self.bytes / self.seconds / 1e6 if self.seconds else 0
        checked = (
            f"{counted(self.files, 'file')}, {counted(self.records, 'record')}, "
            f"{self.bytes:,} bytes in shards "
            f"({self.seconds:.1f} s, {rate:,.0f} MB/s){', every image decoded' * self.decoded}"
            f"{', every record compared' * self.compared}"
            f"{self._source_words()}"
        )
        if self.absent and not any(fault.code == "named" for fault in self.found):
            checked += f"; of {counted(self.absent, 'uri')}, none appears in any file"
        if self.ok:
            return f"{self.directory}: all is well: {checked}"
        faults = len(self.found)
        files = len(self._by_file())
        return (
            f"{self.directory}: {counted(faults, 'fault')} in {counted(files, 'file')}; "
            f"checked {checked}"
        )

    def _source_words(self) -> str:
        if self.sources is None:
            return ""
        words = []
        for name, count in self.sources.items():
            if count or name == "compared":
                words.append(f"{count:,} {name.replace('_', ' ')}")
        return f"; source files: {', '.join(words)}"

    def _by_file(self) -> dict[str, list[Fault]]:
        files = itertools.groupby(self.found, key=lambda fault: fault.file)
        return {file: list(faults) for file, faults in files}

    def _tables(self) -> list[Table]:
        tables = []
        for file, faults in itertools.islice(self._by_file().items(), _SHOWN_FILES):
            lines = [f"{file}: {counted(len(faults), 'fault')}"]
            lines += [f"  {fault}" for fault in faults[:_SHOWN_FAULTS]]
            more = len(faults) - _SHOWN_FAULTS
            below = f"  ... and {more:,} more" if more > 0 else ""
            tables.append(Table([[line] for line in lines], below))
        return tables

    def _notes(self) -> list[str]:
        if self.ok:
            return self._without_sums()
        codes = {fault.code for fault in self.found}
        reread = spelled("reread", True)
        remedies = [of.format(reread=reread) for code, of in OF_SOURCES.items() if code in codes]
        if codes - {*OF_SOURCES}:
            words = "rewrites the damaged files from each other and the sources."
            remedies.insert(0, f"`{command('repair', self.directory)}` {words}")
        more = len(self._by_file()) - _SHOWN_FILES
        files = counted(more, "more file has", "more files have")
        listed = [f"{files} faults; --csv lists all."] if more > 0 else []
        return [*listed, *remedies, *self._without_sums()]

    def _without_sums(self) -> list[str]:
        if not self.without_frame_sums:
            return []
        tables = counted(self.without_frame_sums, "table has", "tables have")
        return [f"{tables} no checksums of records, as earlier versions wrote them"]
