"""What keeps a plan from being continued by a call with another one, in words."""

from __future__ import annotations

from tfrecorder.core.wording import spelled
from tfrecorder.display.tables import counted
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.convert_values import DEFAULT_VERSION

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
    if staged.rows.count != now.rows.count:
        faults.append(
            f"the source had {counted(staged.rows.count, 'row')} and now has {now.rows.count:,}"
        )
    elif staged.rows.fingerprint != now.rows.fingerprint and not _OF_VALUES.intersection(changed):
        faults.append("the values in the source's rows have changed")
    for name in changed:
        was, now_is = (_shown(options.get(name)) for options in (then, given))
        faults.append(OptionDiffers(f"{spelled(name)} was {was} and now is {now_is}"))
    if staged.kind is not now.kind and (staged.changes or now.changes):
        faults.append(f"it is for {staged.kind.words}, not for {now.kind.words}")
    if staged.kind is PlanKind.BATCH and now.kind is not PlanKind.BATCH:
        faults.append(f"it is {staged.kind.words} from {', '.join(staged.rows.streams or ())}")
    return faults


def _shown(value: object) -> str:
    return "not given" if value is None else repr(value)
