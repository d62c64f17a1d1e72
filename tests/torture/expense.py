"""Images that are made to cost time, at the sizes of real attacks: none is accepted at its price.

The law: an accepted image takes at most 1 s, and 0.1 s a megapixel, and 0.1 s a megabyte of CPU to
check, at every level; what is rejected takes no longer either.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from helpers.expensive_cases import (
    Scan,
    dear_but_sound,
    every_legal_scan,
    expensive,
    jpeg_of_scans,
    small_window_png,
)

from torture.children import Child
from torture.counts import Count, demand
from torture.judging import Accepted, judge

#: The expensive files, so many times as large as in the short tests: JPEGs of 71 megapixels.
SCALE = 7
#: Seconds that one file may take at all levels, on a busy machine.
SECONDS = 120.0
LEVELS = ("header", "decode", "strict")

#: Of a file at each level: "accepted" or the reject's code, and the share of the allowed CPU.
Costs = dict[str, tuple[str, float]]


def near_the_bounds() -> dict[str, Callable[[], bytes]]:
    """Files that are just accepted."""
    refined: list[Scan] = [((1,), 0, 0, 0, 0), ((1,), 1, 63, 0, 1)]
    refined += [((1,), 1, 63, 1, 0)] * 16
    return {
        "110 scans": lambda: jpeg_of_scans(9400, 9400, every_legal_scan()[:110]),
        "18 refining scans": lambda: jpeg_of_scans(9400, 9400, refined),
        "18 arithmetic scans": lambda: jpeg_of_scans(9400, 9400, refined, frame=0xCA),
        "a window of 512 bytes": lambda: small_window_png(300, 290_000),
    }


def costs(data: bytes) -> Costs:
    """What a file costs, asked in a process that nothing else runs in."""
    outcomes, seconds, pixels = [], [], 0
    for level in LEVELS:
        began = time.process_time()
        outcome = judge(data, level)
        outcomes.append(outcome.code)
        if isinstance(outcome, Accepted):
            pixels = outcome.shape[0] * outcome.shape[1]
        seconds.append(time.process_time() - began)
    allowed = 1 + 0.1 * pixels / 1e6 + 0.1 * len(data) / 1e6
    shares = [one / allowed for one in seconds]
    return dict(zip(LEVELS, zip(outcomes, shares, strict=True), strict=True))


def charge() -> list[Count]:
    """Ask for the price of each file.

    Raises:
        BrokenError: an expensive one is accepted, or one takes longer than it may.
    """
    rejected = _each(expensive(SCALE), "too_expensive")
    accepted = _each(dear_but_sound() | near_the_bounds(), "accepted")
    return [
        Count("images that cost time", len(rejected), len(rejected), 0, _note(rejected)),
        Count("images that just may", len(accepted), len(accepted), 0, _note(accepted)),
    ]


def _each(files: dict[str, Callable[[], bytes]], wanted: str) -> dict[str, float]:
    """The largest share of the allowed time that each file took."""
    shares = {}
    with Child("torture.expense:costs", SECONDS) as child:
        child.ask(b"")  # whose first answer imports the decoders
        for name, make in files.items():
            found: Costs = child.ask(make())
            codes = {found[level][0] for level in ("decode", "strict")} - {"suspect"}
            demand(codes == {wanted}, f"{name} is {found}, not {wanted}")
            shares[name] = max(share for _, share in found.values())
            demand(shares[name] <= 1, f"{name} takes longer than it may: {found}")
    return shares


def _note(shares: dict[str, float]) -> str:
    name = max(shares, key=lambda one: shares[one])
    return f"the slowest, {name!r}, took {shares[name]:.0%} of the time that it may"
