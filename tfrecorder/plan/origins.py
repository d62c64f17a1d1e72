"""Where the records of a dataset came from, and what an operation replaces, in words.

The same words stand in the refusal, in the dry run and in the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfrecorder.display.tables import counted
from tfrecorder.plan.plan import Plan, PlanKind

#: What a manifest counts beside streams, under their names: records that a conversion wrote, that
#: appends added, and, below 0, those that are gone.
CONVERTED, APPENDED, GONE = "conversion", "append", "removed"


def origins_of(plan: Plan, records: int) -> dict[str, int]:
    """The records of a dataset by where they came from; their sum is all that it has.

    Args:
        plan: of its newest commit.
        records: that this commit added or wrote.
    """
    before = plan.carried
    added = records - (0 if plan.follows is not None else sum(before.values()))
    if added < 0:
        name = GONE
    elif plan.streams and plan.kind is not PlanKind.COMPACTION:
        name = ", ".join(plan.streams)
    else:
        name = APPENDED if before else CONVERTED
    return {**before, name: before.get(name, 0) + added} if added else before


def generations_of(manifest: Mapping[str, Any]) -> int:
    """How many commits the dataset of a manifest has, without those that were taken back."""
    return int(manifest["commit"] - manifest["since"] + 1 - len(manifest["skips"]))


def grown(origins: Mapping[str, int]) -> dict[str, int]:
    """Those of the origins that no call of `convert` can bring back."""
    return {name: n for name, n in origins.items() if name not in (CONVERTED, GONE)}


def grown_words(origins: Mapping[str, int]) -> str:
    """How many records were appended or streamed; "" if none were.

    >>> grown_words({"conversion": 300, "append": 10, "kafka://topic": 50})
    '10 of them appended, 50 of them streamed from kafka://topic'
    """
    upto = "up to " if GONE in origins else ""
    return ", ".join(
        f"{upto}{number:,} of them "
        + ("appended" if name == APPENDED else f"streamed from {name or 'a stream'}")
        for name, number in grown(origins).items()
    )


def dataset_words(origins: Mapping[str, int], generations: int) -> str:
    """What a dataset holds.

    >>> dataset_words({"conversion": 300, "append": 60}, 2)
    '360 records in 2 generations, 60 of them appended'
    """
    records = counted(sum(origins.values()), "record")
    parts = [f"{records} in {counted(generations, 'generation')}", grown_words(origins)]
    return ", ".join(filter(None, parts))


def replaced_words(replaces: Mapping[str, Any]) -> str:
    """What a plan replaces as a whole.

    >>> replaced_words({"origins": {"conversion": 1}, "generations": 1, "abandoned": ["append", 3]})
    'replaces 1 record in 1 generation; abandons an unfinished append of 3 rows'
    """
    words = f"replaces {dataset_words(replaces['origins'], replaces['generations'])}"
    if "abandoned" in replaces:
        kind, rows = replaces["abandoned"]
        words += f"; abandons an unfinished {kind} of {counted(rows, 'row')}"
    return words
