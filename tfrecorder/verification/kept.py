"""What the newest update replaced, which `undo` puts back: is it all there, as it was written?"""

from __future__ import annotations

import os

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.documents import unseal
from tfrecorder.format.losses import Loss
from tfrecorder.format.plan import PlanKind
from tfrecorder.reading.commits import Commit, all_done, chain_before
from tfrecorder.verification.expectation import (
    other_sums,
    read_commit_or_fault,
    read_or_fault,
    unread,
)
from tfrecorder.verification.faults import Fault
from tfrecorder.writing.commit import moved_by


def is_kept(newest: Commit) -> bool:
    """True if the newest commit is an update that can be taken back."""
    plan = newest.plan
    is_correction = plan.kind is PlanKind.UPDATE and not plan.follows.renumbers
    return is_correction and not Loss.KEPT.is_in(plan.carried.losses)


def kept_faults(directory: str, newest: Commit) -> list[Fault]:
    """Find manifests and files of before the newest commit that are not as they were written."""
    faults: list[Fault] = []
    if not is_kept(newest):
        return faults
    before = read_commit_or_fault(directory, newest.number - 1, faults)
    if before is None:
        return faults
    marks = before.plan.carried.marks
    if marks not in (
        "",
        newest.plan.carried.marks,
        *newest.plan.carried.losses.get(Loss.MARKS.value, ()),
    ):
        read_or_fault(directory, marks, unseal, faults)
    chain = [read_commit_or_fault(directory, n, faults) for n in chain_before(before)]
    done = all_done([*filter(None, chain), before])
    for shard, names in moved_by(newest, before.dataset.splits).items():
        if shard not in done or os.path.dirname(names[0]) != layout.BEFORE:
            continue
        of = done[shard]
        written = [(of.bytes, of.crc32c)]
        # Form 4 has no sizes of what is beside a shard.
        written += [(of.beside_bytes.get(name, -1), of.beside[name]) for name in shard.beside]
        for name, (size, crc) in zip(names, written, strict=True):
            try:
                sums = _sums(os.path.join(directory, name))
            except (storage.UnreadableError, OSError) as error:
                faults.append(unread(name, error))
                continue
            fault = other_sums(name, sums, (sums[0] if size < 0 else size, crc))
            faults += [fault] if fault else []
    return faults


def _sums(path: str) -> tuple[int, int]:
    """Size and CRC32C of a file; as its store keeps them, if it does."""
    told = None if storage.is_local(path) else storage.describe(path)
    if told is not None and told.crc32c is not None:
        return told.size, told.crc32c
    return storage.sums(path)
