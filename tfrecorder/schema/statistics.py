"""The statistics of all rows, from those of some."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TypedDict


class Figures(TypedDict, total=False):
    """What the values of a column in a split are like.

    Numbers that are not finite are not among the count; `top` has values, each with its count.
    Of masks, `count` is that of their pixels, and `shares` has the share of each value.
    """

    count: int
    missing: int
    min: float
    max: float
    mean: float
    std: float
    distinct: int
    top: list[list[str | int]]
    shares: dict[int, float]


#: By column and split.
Statistics = dict[str, dict[str, Figures]]


def merged(several: Iterable[Statistics]) -> Statistics:
    """The statistics of all rows, from statistics that each cover some of them.

    The most frequent values of a column are left out if a part does not list all its values: those
    of all rows cannot be computed then.
    """
    parts: dict[str, dict[str, list[Figures]]] = {}
    for statistics in several:
        for name, of_splits in statistics.items():
            for split, part in of_splits.items():
                parts.setdefault(name, {}).setdefault(split, []).append(part)
    return {
        name: {split: whole for split, stated in of_splits.items() if (whole := _of_all(stated))}
        for name, of_splits in parts.items()
    }


def _of_all(parts: list[Figures]) -> Figures:
    if len(parts) == 1:
        return {**parts[0]}
    absent = sum(part.get("missing", 0) for part in parts)
    missing: Figures = {"missing": absent} if absent else {}
    if not any("top" in part for part in parts):
        return {**_numbers(parts), **missing}
    if not all(part.get("distinct") == len(part.get("top", ())) for part in parts):
        return {}
    counts = Counter[str]()
    for part in parts:
        for value, count in part["top"]:
            counts[str(value)] += int(count)
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return {
        "count": counts.total(),
        "distinct": len(counts),
        "top": [[value, count] for value, count in ordered],
        **missing,
    }


def _numbers(parts: list[Figures]) -> Figures:
    count = sum(part["count"] for part in parts)
    filled = [part for part in parts if "mean" in part]
    if not filled:
        return {"count": count}
    finite = sum(part["count"] for part in filled)
    mean = sum(part["mean"] * part["count"] for part in filled) / finite
    squares = []
    for part in filled:
        away = part["mean"] - mean
        squares.append((part["std"] ** 2 + away**2) * part["count"])
    return {
        "count": count,
        "min": min(part["min"] for part in filled),
        "max": max(part["max"] for part in filled),
        "mean": mean,
        "std": math.sqrt(sum(squares) / finite),
    }
