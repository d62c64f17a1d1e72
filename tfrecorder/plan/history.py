"""In words: what a dataset holds, how it came to hold it, and how two plans differ.

The same words stand in the refusal, in the dry run, in the result and in the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfrecorder.core.option import size_given, spelled
from tfrecorder.display.tables import counted
from tfrecorder.format.manifest import Manifest
from tfrecorder.format.plan import OF_A_SOURCE, History, Plan, PlanKind
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.convert_values import DEFAULT_VERSION

#: What a history counts beside streams, under their names: records that a conversion wrote, that
#: appends added, and, below 0, those that are gone.
CONVERTED = "conversion"
APPENDED = "append"
GONE = "removed"


#: Of the values of a plan those that a history notes of its beginning, as they are stored.
_OF_BEGINNING = ("rows", "source_rows", "fingerprint", "options", "base")


def history_after(plan: Plan, records: int) -> History:
    """The history of a dataset whose newest commit is of a plan.

    Args:
        records: that this commit added or wrote.
    """
    before = plan.carried.history
    kind = plan.kind
    origins = dict(before.origins)
    added = records - (0 if plan.adds else sum(origins.values()))
    if added < 0:
        name = GONE
    elif plan.rows.streams and kind in OF_A_SOURCE:  # or `repair` made it again from one's records
        name = ", ".join(plan.rows.streams)
    else:
        name = APPENDED if origins else CONVERTED
    values = plan.values()
    own = {name: values[name] for name in _OF_BEGINNING}
    own |= {"kind": kind.value, "streams": dict.fromkeys(plan.rows.streams or ())}
    if added:
        origins[name] = origins.get(name, 0) + added
    updates = before.updates + (1 if kind is PlanKind.UPDATE else 0)
    return History(origins, updates, before.begun_by or own)


class Holdings(NamedTuple):
    """What a dataset holds.

    Attributes:
        origins, updates: as in `History`.
        generations: its commits, without those that were taken back.
    """

    origins: Mapping[str, int]
    updates: int
    generations: int


def holdings(manifest: Manifest) -> Holdings:
    """What the dataset of a manifest holds."""
    dataset = manifest.dataset
    generations = manifest.plan.commit - dataset.since + 1 - len(dataset.skips)
    return Holdings(dataset.history.origins, dataset.history.updates, generations)


def grown(origins: Mapping[str, int]) -> dict[str, int]:
    """Those of the origins that no call of `convert` can bring back."""
    return {name: n for name, n in origins.items() if name not in (CONVERTED, GONE)}


def _became(origins: Mapping[str, int], updates: int) -> list[str]:
    """What became of a dataset's records since its conversion; empty if nothing did."""
    upto = "up to " if GONE in origins else ""
    parts = [
        f"{upto}{number:,} of them "
        + ("appended" if name == APPENDED else f"streamed from {name or 'a stream'}")
        for name, number in grown(origins).items()
    ]
    parts += [f"{-origins[GONE]:,} removed"] if GONE in origins else []
    return parts + ([f"corrected by {counted(updates, 'update')}"] if updates else [])


def since_words(origins: Mapping[str, int], updates: int) -> str:
    """What became of a dataset since its conversion, to follow the number of its records.

    >>> since_words({"conversion": 300, "append": 60}, 1)
    ', 60 of them appended, corrected by 1 update since'
    """
    words = ", ".join(_became(origins, updates))
    return f", {words} since" if words else ""


def holdings_words(held: Holdings) -> str:
    """What a dataset holds.

    >>> holdings_words(Holdings({"conversion": 9, "append": 6}, updates=0, generations=2))
    '15 records in 2 generations, 6 of them appended'
    """
    records = counted(sum(held.origins.values()), "record")
    words = f"{records} in {counted(held.generations, 'generation')}"
    return ", ".join([words, *_became(held.origins, held.updates)])


#: Options that decide on the splits and values of rows: if one differs, it is what changed them.
_OF_VALUES = frozenset(("columns", "schema", "seed", "splits", "stratify", "split_by"))


class OptionDiffers(str):
    """That an option had another value, in words."""


def describe_difference(staged: Plan, now: Plan) -> list[str]:
    """What keeps a staged plan from being continued, in words; empty if nothing does."""
    # An option without an effect is not recorded.
    usual = {**vars(ConvertOptions()), "version": DEFAULT_VERSION}
    then = usual | staged.options
    given = usual | now.options
    changed = [name for name in sorted(then) if then[name] != given.get(name)]
    faults = []
    # It began there where an earlier version staged it, without stated sizes.
    is_same = now.rows.fingerprint.startswith(staged.rows.fingerprint)
    if staged.rows.count != now.rows.count:
        faults.append(
            f"the source had {counted(staged.rows.count, 'row')} and now has {now.rows.count:,}"
        )
    elif not is_same and not _OF_VALUES.intersection(changed):
        faults.append("the values in the source's rows have changed")
    for name in changed:
        was, now_is = (_shown(name, options.get(name)) for options in (then, given))
        faults.append(OptionDiffers(f"{spelled(name)} was {was} and now is {now_is}"))
    if staged.kind is not now.kind and (staged.changes_records or now.changes_records):
        faults.append(f"it is for {staged.kind.words}, not for {now.kind.words}")
    if staged.kind is PlanKind.BATCH and now.kind is not PlanKind.BATCH:
        faults.append(f"it is {staged.kind.words} from {', '.join(staged.rows.streams or ())}")
    return faults


def _shown(name: str, value: object) -> str:
    if value is None:
        return "not given"
    if name == "shard_size" and isinstance(value, int):
        return size_given(value)
    return repr(value)
