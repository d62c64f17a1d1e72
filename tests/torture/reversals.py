"""Puts faults back that the package once had, one by one, and says how soon the oracle finds each.

A fault is what was done by a few lines; it is put back in a copy of the package, whose datasets the
oracle then judges in another process.

    PYTHONPATH=tests python -m torture.reversals
    PYTHONPATH=tests python -m torture.reversals --only numbers --seed 5

Ends with exit code 1 if a fault is not found, or is one no more: then its lines were rewritten, and
must be rewritten here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tfrecorder
from torture.oracle_machine import start


class Edit(NamedTuple):
    """A place of the package as it is, and as it was while it had the fault.

    Attributes:
        file: below the package.
        now: what stands there once.
        then: what stood there.
    """

    file: str
    now: str
    then: str


@dataclass(frozen=True)
class Reversal:
    """A fault that the package had.

    Attributes:
        words: what it did.
        edits: that put it back; more than one where another place would refuse what comes of it.
    """

    words: str
    edits: tuple[Edit, ...]


REVERSALS = {
    "moves": Reversal(
        "all rows of a shard go to another split: its table and index keep their old order",
        (
            Edit(
                "writing/changing.py",
                """    if not np.array_equal(offsets, ends - sizes):
        return None
""",
                "",
            ),
            Edit(
                "writing/shards.py",
                "if joined_crc(written.crcs, written.sizes) != written.crc:",
                "if False:",
            ),
        ),
    ),
    "numbers": Reversal(
        "the next row's number is a count of rows: two rows share one",
        (
            Edit(
                "reading/merged_rows.py",
                "return newest.plan.carried.next_row",
                "return counted_rows(newest.plan)",
            ),
        ),
    ),
    "repairs": Reversal(
        "the plan of a repair takes shards of an update over: no shard is written again",
        (
            Edit(
                "verification/repair.py",
                "revisions=owner.layout.revisions,",
                "rewritten=owner.layout.rewritten, revisions=owner.layout.revisions,",
            ),
        ),
    ),
    "kept": Reversal(
        "an update keeps what it replaced, though it removed rows",
        (
            Edit(
                "writing/after_commit.py",
                "if plan.kind is PlanKind.UPDATE and not plan.follows.renumbers:",
                "if plan.kind is PlanKind.UPDATE:",
            ),
        ),
    ),
    "places": Reversal(
        "a table that is made again after a compaction has its images in the wrong folder",
        (
            Edit(
                "verification/remade_tables.py",
                "is_of_source = plan is not None and plan.kind in OF_A_SOURCE",
                "is_of_source = plan is not None",
            ),
        ),
    ),
}


def put_back(reversal: Reversal, folder: Path) -> None:
    """A copy of the package with a fault.

    Args:
        folder: a new one, which gets the package.

    Raises:
        ValueError: the package has other lines by now.
    """
    package = Path(tfrecorder.__file__).parent
    copy = folder / package.name
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in reversal.edits:
        path = copy / edit.file
        text = path.read_text()
        if text.count(edit.now) != 1:
            raise ValueError(f"{edit.file} has not once: {edit.now!r}")
        path.write_text(text.replace(edit.now, edit.then))


def found_after(reversal: Reversal, calls: int, seed: str) -> tuple[int, str]:
    """After how many calls the oracle finds a fault, and what it then says.

    Returns:
        0 if it does not find it.
    """
    with tempfile.TemporaryDirectory(prefix="reversal-") as folder:
        put_back(reversal, Path(folder))
        process = start(calls, seed, "--seconds", "20", package=Path(folder))
        told = process.communicate()[0]
    if process.returncode == 0:
        return 0, told
    found = re.search(r"call (\d+):", told)
    return (int(found[1]) if found else 0), told


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="torture.reversals")
    parser.add_argument("--only", action="append", choices=[*REVERSALS])
    parser.add_argument("--seed", default="0")
    parser.add_argument("--calls", type=int, default=5000, help="in which it must be found")
    given = parser.parse_args(arguments)
    missed = 0
    for name in given.only or REVERSALS:
        reversal = REVERSALS[name]
        began = time.monotonic()
        calls, told = found_after(reversal, given.calls, given.seed)
        missed += calls == 0
        seconds = time.monotonic() - began
        result = f"found after {calls} calls" if calls else f"NOT FOUND in {given.calls} calls"
        print(f"{name}: {reversal.words}: {result} ({seconds:.0f} s)\n{told}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
