"""The options of reading a dataset that grows: `follow`, and how long to wait for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfrecorder.options.checks import is_seconds, one_of
from tfrecorder.options.read import Check, ReadOptions, check_shard

#: The value of `follow` that yields each generation once.
FORWARD = "forward"


@dataclass(frozen=True, kw_only=True)
class FollowOptions(ReadOptions):
    """What `load` and `batches` share beyond `ReadOptions`; `tfrecorder.LoadOptions` explains each.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not fit together.
    """

    follow: bool | str = False
    until_idle: float | None = None
    shard: tuple[int, int] | None = None

    @property
    def is_forward(self) -> bool:
        """True if each generation is yielded once, and the next one is waited for."""
        return self.follow == FORWARD

    @property
    def idle(self) -> float | None:
        """`until_idle` as a float."""
        return None if self.until_idle is None else float(self.until_idle)

    def _checks(self) -> dict[str, Check]:
        return super()._checks() | _CHECKS

    def _conflict(self) -> str | None:
        if not self.is_forward and self.until_idle is not None:
            return (
                f"until_idle={self.until_idle!r}: only follow='forward' waits for the next "
                "generation; give both, or leave until_idle out."
            )
        return (self._follow_conflict() if self.follow else None) or super()._conflict()

    def _follow_conflict(self) -> str | None:
        words = f"follow={self.follow!r}:"
        if self.at is not None:
            return f"{words} at={self.at} reads no newer generation; leave out one of the two."
        if self.shard is None or self.shard[1] == 1:
            return None
        if not self.is_forward:
            return (
                f"{words} each host would look for new generations at a different moment, and so "
                "divide different records. With shard, give follow='forward', or at and a new "
                "number for each epoch."
            )
        if self.until_idle is not None:
            return (
                f"{words} with shard, each host would end at a different moment; leave out "
                "until_idle, and end all hosts after the same number of steps."
            )
        return None


def _check_idle(value: Any) -> str | None:
    if value is None or is_seconds(value):
        return None
    return "give seconds from 0, or None to wait forever."


_CHECKS: dict[str, Check] = {
    "follow": one_of(True, False, FORWARD),
    "until_idle": _check_idle,
    "shard": check_shard,
}
