"""One shard and the files next to it: does each hold the bytes that were written?

If the shard's file has the size and CRC32C that were noted when it was written, it is sound, and
none of its records are looked at.  Otherwise its records are walked through to find the damaged
ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeVar

import google_crc32c

from tfrecorder import storage
from tfrecorder.display.bars import Advance
from tfrecorder.format.example import parse_example
from tfrecorder.format.layout import Shard
from tfrecorder.format.tfrecord import Place, walk
from tfrecorder.plan.plan import Plan
from tfrecorder.reading.done_records import DoneRecord
from tfrecorder.schema.kinds import Image
from tfrecorder.storage.store import sums_of
from tfrecorder.verification.expectation import Expectation, other_sums, read_or_fault, unread
from tfrecorder.verification.faults import Fault, at_most

T = TypeVar("T")

#: Decodes an encoded image as training does; returns its shape, or raises ValueError with a
#: message.
Decode = Callable[[bytes], tuple[int, ...]]

#: What is wrong with the images of a record, in words.
_Decoding = Callable[[bytes], Iterable[str]]


@dataclass(frozen=True)
class ShardFindings:
    """A checked shard.

    Attributes:
        shard: which one.
        records: for a sound file, as many as were written; otherwise those met, damaged or not.
        bytes: the size of its file.
        sound: True if the file holds the bytes that were written.
        faults: of the shard's file and of those next to it.
    """

    shard: Shard
    records: int
    bytes: int
    sound: bool
    faults: tuple[Fault, ...] = ()


def check_shard(
    expected: Expectation,
    shard: Shard,
    decode: Decode | None = None,
    advance: Advance = lambda size: None,
) -> ShardFindings:
    """Check one shard, and the files next to it.

    Args:
        expected: what the directory must hold.
        decode: if given, every image is decoded with it too.
        advance: called with the number of bytes of each piece of the file.
    """
    done = expected.done.get(shard)
    if decode is None and done and _is_proved_by_listing(expected, shard, done):
        advance(done.bytes)
        return ShardFindings(shard, done.records, done.bytes, True)
    faults: list[Fault] = []
    _read_beside(expected, shard, "table", bytes, faults)
    places = _read_beside(expected, shard, "index", _places, faults)
    try:
        findings = _check_file(expected, shard, places, decode, advance)
    except (storage.UnreadableError, OSError) as error:
        findings = ShardFindings(shard, 0, 0, False, (unread(shard.file, error),))
    return replace(findings, faults=tuple(at_most([*faults, *findings.faults])))


def _is_proved_by_listing(expected: Expectation, shard: Shard, done: DoneRecord) -> bool:
    """True if the store itself reports the noted checksums for all of a shard's files."""
    sums = {shard.file: done.crc32c, **{shard.beside[n]: crc for n, crc in done.beside.items()}}
    return all(expected.stands_as(file, crc) for file, crc in sums.items())


def _check_file(
    expected: Expectation,
    shard: Shard,
    places: Sequence[Place] | None,
    decode: Decode | None,
    advance: Advance,
) -> ShardFindings:
    """Check the shard's file; if the store keeps its CRC32C, only a damaged file is fetched.

    If its manifest is lost, the checksums of its records prove it.

    Raises:
        UnreadableError, OSError: the file cannot be read.
    """
    done = expected.done.get(shard)
    if decode is None and done and expected.stands_as(shard.file, done.crc32c):
        advance(done.bytes)
        return ShardFindings(shard, done.records, done.bytes, True)
    path = expected.path(shard.file)
    with storage.local_copy(path) as copy, storage.open_seekable(copy) as file:

        def read(most: int) -> bytes:
            data = file.read(most)
            advance(len(data))
            return data

        size, crc = sums_of(read)
        changed = done and other_sums(shard.file, (size, crc), (done.bytes, done.crc32c))
        if done and not (changed or decode):
            return ShardFindings(shard, done.records, size, True)
        file.seek(0)
        true, faults = _walk(file, size, shard, places or (), _decoder(expected, decode))
    is_sound = not (changed if done else faults)
    if changed:
        known = None if places is None else places[: len(true)]
        faults = [changed, *(faults or _elsewhere(shard.file, known, true))]
    elif not done:
        faults += _elsewhere(shard.index_file, places, true)
    return ShardFindings(shard, len(true), size, is_sound, tuple(faults))


def _read_beside(
    expected: Expectation,
    shard: Shard,
    name: str,
    parsed: Callable[[bytes], T],
    faults: list[Fault],
) -> T | None:
    """One of the files next to a shard; None, with a fault, if it is not as it was written."""
    file, done = shard.beside[name], expected.done.get(shard)

    def compared(data: bytes) -> T | None:
        crc = google_crc32c.value(data)
        if fault := done and other_sums(file, (0, crc), (0, done.beside[name])):
            faults.append(fault)
        return None if fault else parsed(data)

    return read_or_fault(expected.directory, file, compared, faults)


def _places(index: bytes) -> list[Place]:
    """The places of a shard's records from its index."""
    places = [(int(offset), int(size)) for offset, size in map(bytes.split, index.splitlines())]
    if "".join(f"{offset} {size}\n" for offset, size in places).encode() != index:
        raise ValueError("it is not an index of lines `offset size`")
    return places


def _walk(
    file: BinaryIO, size: int, shard: Shard, places: Sequence[Place], decoding: _Decoding
) -> tuple[list[Place], list[Fault]]:
    """Where the records of a shard are, and which of them are damaged."""
    true, faults = [], []
    for met in walk(file, size, places):
        true.append((met.offset, met.size))
        if met.data is None:
            reasons = [("record_checksum" if met.size else "record_length", met.fault)]
        else:
            reasons = [("undecodable", words) for words in decoding(met.data)]
        for code, words in reasons:
            faults.append(Fault(shard.file, code, words, met.number, met.offset))
    return true, faults


def _elsewhere(file: str, places: Sequence[Place] | None, true: Sequence[Place]) -> Iterator[Fault]:
    """Where whole records were exchanged, lost or added: the first that the index has elsewhere."""
    if places is None:
        return
    for number, (met, listed) in enumerate(itertools.zip_longest(true, places)):
        if met != listed:
            end = "no record is here" if listed is None else f"record {number} is at {listed}"
            words = f"according to the index {end}, not at {met}, whose checksums are right"
            yield Fault(file, "differs", words, number, met[0] if met else listed[0])
            return


def _decoder(expected: Expectation, decode: Decode | None) -> _Decoding:
    """The function that takes a record's data and says what is wrong with its images, in words."""
    fields = Plan.of(expected.last.manifest).fields if decode and expected.last else ()
    keys = [field.key for field in fields if isinstance(field.kind, Image)]

    def decoding(data: bytes) -> Iterator[str]:
        if decode is None:
            return
        try:
            record = parse_example(data)
            for key in keys:
                if bytes(record[f"{key}/format"][0]) != b"raw":
                    sides = [int(record[f"{key}/{name}"][0]) for name in ("height", "width")]
                    yield from _fault_of(decode, record[f"{key}/encoded"][0], sides)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            yield f"it is not a record of this dataset: {error}"

    return decoding


def _fault_of(decode: Decode, encoded: bytes, sides: list[int]) -> Iterator[str]:
    try:
        shape = decode(encoded)
    except ValueError as error:
        yield str(error)
        return
    if list(shape[:2]) != sides:
        yield f"it decodes to {shape[0]} x {shape[1]}, not {sides[0]} x {sides[1]}"
