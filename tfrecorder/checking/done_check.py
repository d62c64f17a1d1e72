"""What is said of a shard in two places, and what its file shows: which of them is wrong?"""

from __future__ import annotations

from tfrecorder.checking.expectation import Expectation, Written
from tfrecorder.checking.faults import Fault
from tfrecorder.checking.side_files import RowList, count_reasons
from tfrecorder.dataset.layout import Shard
from tfrecorder.images.transform import transform_of
from tfrecorder.metadata import DoneRecord
from tfrecorder.plan.plan import Plan


def compare_file(expected: Expectation, shard: Shard, found: Written) -> tuple[bool, list[Fault]]:
    """Whether a shard's file is the one that was written, and which file is wrong if one is."""
    known = expected.written(shard)
    if not known:
        return False, [Fault(shard.file, "checksum", "no checksum is left to compare it with")]
    matching = [file for file, written in known.items() if written == found]
    if matching:
        return True, [_contradiction(file, shard) for file in known if file not in matching]
    wanted = next(iter(known.values()))
    if found.bytes != wanted.bytes:
        words = f"it has {found.bytes:,} bytes; {wanted.bytes:,} were written"
        fault = Fault(shard.file, "size", words)
    elif found.crc32c != wanted.crc32c:
        words = f"its CRC32C is {found.crc32c:08x}; {wanted.crc32c:08x} was written"
        fault = Fault(shard.file, "checksum", words)
    else:
        words = f"it has {found.records:,} records; {wanted.records:,} were written"
        fault = Fault(shard.file, "differs", words)
    disagree = len(set(known.values())) > 1
    return False, [fault, *(_contradiction(file, shard) for file in known if disagree)]


def _contradiction(file: str, shard: Shard) -> Fault:
    words = f"its records, bytes or CRC32C of {shard.file} are not those of the file"
    return Fault(file, "differs", words)


def shows_sources(done: DoneRecord, plan: Plan) -> bool:
    """True if a shard shows its sources' sizes: JPEG is kept, PNG may be made of others.

    Not where images were transformed, or where there are several files a record.
    """
    files = [one for one in plan.features if one.kind in ("image", "mask")]
    transformed = transform_of(plan.options) is not None
    return done.formats.keys() <= {"jpeg"} and len(files) == 1 and not transformed


def compare_done(
    shard: Shard, stands: DoneRecord, proved: DoneRecord, rejects: RowList, suspects: RowList
) -> list[Fault]:
    """Where the done-record of a sound shard is not what the shard and its lists show."""
    faults = []
    for name in ("rows", "records", "formats", "shapes", "sides", "input_bytes", "oriented"):
        says, shows = getattr(stands, name), getattr(proved, name)
        if says != shows:
            words = f"{name} is {says}, but the shard shows {shows}"
            faults.append(Fault(shard.done, "differs", words))
    pairs = (
        (rejects.file, count_reasons(rejects.rows or ()), stands.reasons),
        (suspects.file, len(suspects.rows or ()), stands.suspects),
    )
    for file, listed, counted in pairs:
        if listed != counted:
            words = f"{listed} are listed in {file}, but {counted} are counted in {shard.done}"
            faults += [Fault(file, "differs", words), Fault(shard.done, "differs", words)]
    return faults
