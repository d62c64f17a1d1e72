"""Faults that a test asks for, and the record of what was requested."""

from __future__ import annotations

import fnmatch
import hashlib
import threading
from collections import Counter
from dataclasses import dataclass

#: What a request is for.
OPERATIONS = (
    "bucket",
    "list",
    "metadata",
    "download",
    "upload",
    "start",
    "piece",
    "offset",
    "delete",
    "compose",
    "copy",
    "other",
)

KINDS = ("status", "reset", "cut", "flip", "stall", "page", "empty", "bare")

#: The outcome of a request that has none yet.
UNDER_WAY = "under way"


def matches(word: str, pattern: str) -> bool:
    """Whether a word is as one of the alternatives of a pattern, which "|" parts."""
    return any(fnmatch.fnmatchcase(word, one) for one in pattern.split("|"))


@dataclass(frozen=True)
class Fault:
    """What goes wrong, with which requests, and how often.

    Attributes:
        kind: "status" (answered with `status`, for its usual reason or for `reason`), "reset" (the
            connection is reset), "cut" (a download ends in its middle, and half of an uploaded
            piece arrives), "flip" (one bit of the answer is another) or "stall" (nothing happens
            for `seconds`, then all goes on); and what a gateway does: "page" (a login page with
            the status 200), "empty" (the status 200 alone) and "bare" (an answer without the
            service's own headers).
        operation: a pattern of `OPERATIONS` as fnmatch has it, or some, as "upload|piece".
        object: a pattern of "bucket/name", likewise.
        probability: the share of these requests that fail.  Which ones is a matter of `seed`, the
            request and its number among its like, never of the order of threads.
        times: at most so many of them fail; None for no bound.
        each: `times` is counted for each object, not for all together.
        spared: so many of these requests are answered before the first one fails.
        retry_after: the header `Retry-After` of a "status".
        after: the request is done, and the fault hits its answer: the client cannot know.
        bare: a "flip" without the service's own headers too.
    """

    kind: str
    operation: str = "*"
    object: str = "*"
    status: int = 503
    seconds: float = 0
    probability: float = 1
    seed: int = 0
    times: int | None = None
    each: bool = False
    spared: int = 0
    after: bool = False
    reason: str = ""
    retry_after: str = ""
    bare: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}")
        if self.kind == "cut" and self.after:
            raise ValueError("a cut has no after")
        if not all(fnmatch.filter(OPERATIONS, one) for one in self.operation.split("|")):
            raise ValueError(f"operation={self.operation!r} is none of {OPERATIONS}")

    def meets(self, operation: str, target: str, number: int) -> bool:
        """Whether a request is one of these; `number` counts its like."""
        if not (matches(operation, self.operation) and matches(target, self.object)):
            return False
        words = f"{self.seed} {operation} {target} {number}".encode()
        drawn = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "big") / 2**64
        return drawn < self.probability


class Journal:
    """The faults in force, and how often each operation on each object was requested."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._hits: Counter[tuple[int, str]] = Counter()
        self._spared: Counter[int] = Counter()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._answered: Counter[tuple[str, str, str]] = Counter()
        self._under_way = self._peak = 0

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def forget_faults(self) -> None:
        with self._lock:
            self._faults.clear()
            self._hits.clear()
            self._spared.clear()

    def forget_requests(self) -> None:
        with self._lock:
            self._asked.clear()
            self._answered.clear()
            self._peak = self._under_way

    def begin(self, operation: str, target: str) -> Fault | None:
        """Note a request; the fault that hits it, if one does."""
        with self._lock:
            self._under_way += 1
            self._peak = max(self._peak, self._under_way)
            number = self._asked[operation, target]
            self._asked[operation, target] += 1
            self._answered[operation, target, UNDER_WAY] += 1
            for at, fault in enumerate(self._faults):
                if fault.meets(operation, target, number) and not self._spares(at, fault):
                    key = (at, target if fault.each else "")
                    if fault.times is None or self._hits[key] < fault.times:
                        self._hits[key] += 1
                        return fault
            return None

    def _spares(self, at: int, fault: Fault) -> bool:
        """Whether a fault lets this request pass, one of the first."""
        self._spared[at] += 1
        return self._spared[at] <= fault.spared

    def end(self, operation: str, target: str, outcome: str) -> None:
        """Note the answer, which is about to be sent: its status, or the kind of fault."""
        with self._lock:
            self._under_way -= 1
            if self._answered[operation, target, UNDER_WAY]:  # not forgotten meanwhile
                self._answered[operation, target, UNDER_WAY] -= 1
                self._answered[operation, target, outcome] += 1

    def answered(self) -> list[tuple[str, str, str, int]]:
        """Operation, object, outcome, and how often."""
        with self._lock:
            return [(*key, count) for key, count in self._answered.items() if count]

    def peak(self) -> int:
        """The most requests that were served at one time."""
        with self._lock:
            return self._peak
