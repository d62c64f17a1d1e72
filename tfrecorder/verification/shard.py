"""One shard and the files next to it: does each hold the bytes that were written?

If the shard's file has the size and CRC32C that were noted when it was written, it is sound, and
none of its records are looked at.  Otherwise its records are walked through to find the damaged
ones.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tfrecorder import storage
from tfrecorder.format.crc32c import sum_file
from tfrecorder.format.example import parse_example
from tfrecorder.format.layout import Shard
from tfrecorder.format.tfrecord import Place, walk
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.plan.plan import Plan
from tfrecorder.verification.expectation import Expectation, Written, other_sums, unread
from tfrecorder.verification.faults import Fault, at_most
from tfrecorder.verification.side_files import (
    RowList,
    check_counts,
    compare_index,
    read_index,
    read_rejects,
    read_suspects,
)

#: Decodes an encoded image as training does; returns its shape, or raises ValueError with a
#: message.
Decode = Callable[[bytes], tuple[int, ...]]

#: What is wrong with the images of a record, in words.
_Decoding = Callable[[bytes], Iterable[str]]

_READ_BYTES = 1 << 18


@dataclass(frozen=True)
class ShardFindings:
    """A checked shard.

    Attributes:
        shard: which one.
        files: the files that were looked at.
        records: for a sound file, as many as were written; otherwise those found, damaged or not.
        bytes: the size of its file.
        sound: True if the file holds the bytes that were written.
        done: its done-record; None if that is damaged.
        faults: those that were found.
    """

    shard: Shard
    files: int
    records: int
    bytes: int
    sound: bool
    done: DoneRecord | None
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class _File:
    """What was found out about a shard's file.

    Attributes:
        size: in bytes.
        records: how many it has, as far as they were found or are known.
        sound: True if it holds the bytes that were written.
        faults: those that were found.
    """

    size: int
    records: int
    sound: bool
    faults: list[Fault]


def check_shard(
    expected: Expectation,
    group: int,
    decode: Decode | None = None,
    advance: Callable[[int], None] = lambda size: None,
) -> ShardFindings:
    """Check one shard, and the files next to it.

    Args:
        expected: what the directory must hold.
        group: the shard's place in `expected.plan.shards`.
        decode: if given, every image is decoded with it too.
        advance: called with the number of bytes of each piece of the file.
    """
    shard = expected.plan.shards[group]
    if decode is None and (proved := _proved_by_listing(expected, shard)):
        advance(proved.bytes)
        return proved
    places, faults = read_index(expected, shard)
    rejects, suspects = read_rejects(expected, shard), read_suspects(expected, shard)
    faults += [*rejects.faults, *suspects.faults]
    if shard in expected.done:
        faults += check_counts(expected, shard, rejects, suspects)
    try:
        file = _check_file(expected, shard, places, decode, advance)
    except storage.UnreadableError as error:
        file = _File(0, 0, False, [unread(shard.file, error)])
    except OSError as error:
        code = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        words = f"it cannot be read: {error.strerror}"
        file = _File(0, 0, False, [Fault(shard.file, code, words)])
    faults += file.faults
    at_fault = any(fault.file == shard.done for fault in faults)
    return ShardFindings(
        shard=shard,
        files=5,
        records=file.records,
        bytes=file.size,
        sound=file.sound,
        done=None if at_fault else expected.done.get(shard),
        faults=tuple(at_most(faults)),
    )


def _proved_by_listing(expected: Expectation, shard: Shard) -> ShardFindings | None:
    """Findings about a shard whose files all have the checksums that were noted: none is read.

    None if one has not, or if its store keeps no checksums.
    """
    done, known = expected.done.get(shard), set(expected.written(shard).values())
    if done is None or len(known) > 1:
        return None
    sums = {
        shard.file: done.crc32c,
        **{shard.beside[name]: crc for name, crc in done.beside.items()},
    }
    if not all(expected.stands_as(file, crc) for file, crc in sums.items()):
        return None
    if expected.standing[shard.file].size != done.bytes:
        return None
    unread = [RowList(file, None) for file in (shard.rejects, shard.suspects)]
    faults = tuple(check_counts(expected, shard, *unread))
    counts = (5, done.records, done.bytes, True)
    return ShardFindings(shard, *counts, None if faults else done, faults)


def _check_file(
    expected: Expectation,
    shard: Shard,
    places: Sequence[Place] | None,
    decode: Decode | None,
    advance: Callable[[int], None],
) -> _File:
    """Check the shard's file; if the store keeps its CRC32C, only a damaged file is fetched.

    Raises:
        UnreadableError, OSError: the file cannot be read.
    """
    path, known = expected.path(shard.file), expected.written(shard)
    records = len(places) if places is not None else None
    listed = expected.standing.get(shard.file)
    if decode is None and listed is not None and listed.crc32c is not None:
        size, crc = listed.size, listed.crc32c
        if _is_sound(known, size, crc):
            advance(size)
            return _sound(shard, known, size, crc, records)
    with storage.local_copy(path) as copy, open(copy, "rb", buffering=_READ_BYTES) as file:
        size, crc = sum_file(file, advance)
        sound = _is_sound(known, size, crc)
        if sound and not decode and (places is None or shard in expected.done):
            return _sound(shard, known, size, crc, records)
        file.seek(0)
        true, faults = _walk(file, size, shard, places or (), _decoder(expected.plan, decode))
    if sound:
        of_index = [] if places is None else compare_index(shard, places, true)
        found = _sound(shard, known, size, crc, None if of_index else len(true))
        return dataclasses.replace(found, faults=[*found.faults, *of_index, *faults])
    faults = [*_of_the_whole(shard, known, size, crc), *(faults or _elsewhere(shard, places, true))]
    return _File(size, len(true), False, faults)


def _is_sound(known: Mapping[str, Written], size: int, crc: int) -> bool:
    return (size, crc) in [(one.bytes, one.crc32c) for one in known.values()]


def _sound(
    shard: Shard, known: Mapping[str, Written], size: int, crc: int, records: int | None
) -> _File:
    """A sound file, and which of the files that describe it are wrong; `records` if counted."""
    if records is None:
        records = next(one.records for one in known.values() if one.crc32c == crc)
    found = Written(records, size, crc)
    faults = [_contradiction(file, shard) for file, one in known.items() if one != found]
    return _File(size, records, True, faults)


def _of_the_whole(
    shard: Shard, known: Mapping[str, Written], size: int, crc: int
) -> Iterator[Fault]:
    """What is wrong with a file that does not hold the bytes that were written."""
    wanted = list(known.values())
    if not wanted:
        yield Fault(shard.file, "checksum", "no checksum is left to compare it with")
        return
    sums = {"bytes": wanted[0].bytes, "crc32c": wanted[0].crc32c}
    if fault := other_sums(shard.file, size, crc, sums):
        yield fault
    if len(set(wanted)) > 1:
        yield from (_contradiction(file, shard) for file in known)


def _contradiction(file: str, shard: Shard) -> Fault:
    words = f"its records, bytes or CRC32C of {shard.file} are not those of the file"
    return Fault(file, "differs", words)


def _walk(
    file: BinaryIO, size: int, shard: Shard, places: Sequence[Place], decoding: _Decoding
) -> tuple[list[Place], list[Fault]]:
    """Where the records of a shard are, and which of them are damaged."""
    true, faults = [], []
    for met in walk(file, size, places):
        true.append((met.offset, met.size))
        if met.data is None:
            found = [("record_checksum" if met.size else "record_length", met.fault)]
        else:
            found = [("undecodable", words) for words in decoding(met.data)]
        faults += [Fault(shard.file, code, words, met.number, met.offset) for code, words in found]
    return true, faults


def _elsewhere(
    shard: Shard, places: Sequence[Place] | None, true: Sequence[Place]
) -> Iterator[Fault]:
    """Where whole records were exchanged, lost or added: the first that the index has elsewhere."""
    if places is None:
        return
    for number, (met, listed) in enumerate(itertools.zip_longest(true, places)):
        if met is not None and met != listed:
            end = "no record is here" if listed is None else f"record {number} is at {listed}"
            words = f"its checksums are right, but according to the index {end}, not at {met}"
            yield Fault(shard.file, "differs", words, number, met[0])
            return


def _decoder(plan: Plan, decode: Decode | None) -> _Decoding:
    """The function that takes a record's data and says what is wrong with its images, in words."""
    keys = [one.key.removesuffix("encoded") for one in plan.features if one.kind == "image"]

    def decoding(data: bytes) -> Iterator[str]:
        if decode is None:
            return
        try:
            record = parse_example(data)
            for key in keys:
                if bytes(record[f"{key}format"][0]) != b"raw":
                    sides = [int(record[f"{key}{name}"][0]) for name in ("height", "width")]
                    yield from _fault_of(decode, record[f"{key}encoded"][0], sides)
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
