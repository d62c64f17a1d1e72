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


#: What reads streams, or was made again by `repair` from the records of one.
_FROM_SOURCES = (PlanKind.BATCH, PlanKind.APPEND, PlanKind.CONVERSION)


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
    elif plan.streams and plan.kind in _FROM_SOURCES:
        name = ", ".join(plan.streams)
    else:
        name = APPENDED if before else CONVERTED
    return {**before, name: before.get(name, 0) + added} if added else before


_OF_BEGINNING = ("rows", "source_rows", "fingerprint", "options", "base")


def beginning(plan: Plan) -> dict[str, Any]:
    """What began a dataset: values of that plan, which tell whether a call is the same again.

    "updates" counts those that corrected it since.
    """
    own = {name: getattr(plan, name) for name in _OF_BEGINNING}
    own |= {"kind": plan.kind.value, "streams": dict.fromkeys(plan.streams or ()), "updates": 0}
    return plan.begun_by or own


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


def since_words(origins: Mapping[str, int], updates: int) -> str:
    """What became of a dataset since its conversion, to follow the number of its records.

    >>> since_words({"conversion": 300, "append": 60}, 1)
    ', 60 of them appended, corrected by 1 update since'
    """
    parts = [grown_words(origins)]
    parts += [f"{-origins[GONE]:,} removed"] if GONE in origins else []
    parts += [f"corrected by {counted(updates, 'update')}"] if updates else []
    words = ", ".join(filter(None, parts))
    return f", {words} since" if words else ""


def holdings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a dataset holds, as `holdings_words` takes it."""
    generations, updates = generations_of(manifest), manifest["begun_by"]["updates"]
    return {"origins": manifest["origins"], "generations": generations, "updates": updates}


def holdings_words(held: Mapping[str, Any]) -> str:
    """What a dataset holds.

    >>> holdings_words({"origins": {"conversion": 9, "append": 6}, "generations": 2, "updates": 0})
    '15 records in 2 generations, 6 of them appended'
    """
    records = counted(sum(held["origins"].values()), "record")
    parts = [f"{records} in {counted(held['generations'], 'generation')}"]
    parts.append(grown_words(held["origins"]))
    parts += [f"corrected by {counted(held['updates'], 'update')}"] if held["updates"] else []
    return ", ".join(filter(None, parts))


def replaced_words(replaces: Mapping[str, Any]) -> str:
    """What a plan replaces as a whole.

    >>> held = {"origins": {"conversion": 1}, "generations": 1, "updates": 0}
    >>> replaced_words({**held, "abandoned": ["append", 3]})
    'replaces 1 record in 1 generation; abandons an unfinished append of 3 rows'
    """
    words = f"replaces {holdings_words(replaces)}"
    if "abandoned" in replaces:
        kind, rows = replaces["abandoned"]
        words += f"; abandons an unfinished {kind} of {counted(rows, 'row')}"
    return words
