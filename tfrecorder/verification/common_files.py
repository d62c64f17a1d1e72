"""The files that a dataset has once: are they what its manifests produce?

Each is made again, by the functions of the commit itself, and compared byte for byte; of the two
lists of rows the newest manifest has the checksums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.plan.plan import Plan
from tfrecorder.verification.expectation import Expectation, other_sums, unread
from tfrecorder.verification.faults import Fault
from tfrecorder.writing.tfds import class_files, dataset_info_json, features_json

LISTS = (layout.REJECTS, layout.SUSPECTS)


def common_files(expected: Expectation) -> dict[str, bytes]:
    """Each file that follows from the newest manifest, `dataset_info.json` from all of them.

    Empty if `expected` is not of the newest commit, or if its manifest is lost.
    """
    last = expected.last
    if last is None or last.number != expected.note[0]:
        return {}
    plan = Plan.of(last.manifest)
    done = {shard: expected.done[shard] for shard in last.own_shards}
    files = {layout.FEATURES: features_json(plan, done.values()), **class_files(plan)}
    if not expected.lost:
        files[layout.COMMIT] = dataset_info_json(plan, done, _info_before(expected))
    return files


def _info_before(expected: Expectation) -> Mapping[str, Any] | None:
    """What the `dataset_info.json` before the newest one said, as far as the new one needs it."""
    number = expected.note[0]
    if (before := expected.before(number)) is None:
        return None
    own = {*expected.commits[number].own_shards}
    splits: dict[str, Any] = {}
    for shard, done in sorted(expected.done.items()):
        if shard in own:
            continue
        name = shard.split.lower()
        fixed = {"name": name, "filepathTemplate": layout.template(shard.revision)}
        split = splits.setdefault(name, {**fixed, "numBytes": 0, "shardLengths": []})
        split["numBytes"] += done.bytes
        split["shardLengths"].append(str(done.records))
    for split in splits.values():
        split["numBytes"] = str(split["numBytes"])
    return {"version": before["stated"], "splits": list(splits.values())}


def check_common(expected: Expectation) -> Iterator[Fault]:
    """Find common files that are not what they must be, and shards that are not of the dataset."""
    reported = {fault.file for fault in expected.faults}
    made = common_files(expected)
    for file, wanted in made.items():
        if file in reported:
            continue
        try:
            data = expected.read(file)
        except storage.UnreadableError as error:
            yield unread(file, error)
            continue
        if data != wanted:
            yield Fault(file, "differs", _first_difference(data, wanted))
    if made and expected.last is not None:
        for file in LISTS:
            yield from _check_sums(expected, file, expected.last.manifest["lists"][file])
    yield from _check_names(expected)


def _check_sums(expected: Expectation, file: str, written: Mapping[str, int]) -> Iterator[Fault]:
    sums = written["bytes"], written["crc32c"]
    try:
        fault = other_sums(file, storage.sums(expected.path(file)), sums)
    except (storage.UnreadableError, OSError) as error:
        fault = unread(file, error)
    if fault:
        yield fault


def _first_difference(data: bytes, wanted: bytes) -> str:
    """The first line that differs between two texts, in words."""
    texts = (text.decode(errors="backslashreplace").split("\n") for text in (data, wanted))
    for number, (line, wanted_line) in enumerate(zip(*texts, strict=False), 1):
        if line != wanted_line:
            return f"line {number} is {line.strip()[:60]!r}, not {wanted_line.strip()[:60]!r}"
    return f"it has {len(data):,} bytes, but must have {len(wanted):,}"


def _check_names(expected: Expectation) -> Iterator[Fault]:
    """Shards in the directory that belong neither to the dataset nor to what is under way."""
    shards = {shard.file for shard in expected.every_shard}
    if expected.pending is not None:
        shards |= {shard.file for shard in expected.pending.shards}
    for name in storage.names(expected.directory):
        if name not in shards and ".tfrecord" in name and not name.startswith("."):
            words = "this dataset does not list it, but readers of *.tfrecord would include it"
            yield Fault(name, "foreign_shard", words)
