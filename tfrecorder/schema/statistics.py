"""The statistics of all rows, from those of some."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

#: Of each column, by split, what is said of its values.
Statistics = Mapping[str, Mapping[str, Mapping[str, Any]]]


def merged(
    several: Iterable[Statistics],
) -> dict[str, dict[str, dict[str, Any]]]:
    """The statistics of all rows, from statistics that each cover some of them.

    The most frequent values of a column are left out if a part does not list all its values: those
    of all rows cannot be computed then.
    """
    parts: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for statistics in several:
        for name, of_splits in statistics.items():
            for split, part in of_splits.items():
                parts.setdefault(name, {}).setdefault(split, []).append(part)
    return {
        name: {split: whole for split, stated in of_splits.items() if (whole := _of_all(stated))}
        for name, of_splits in parts.items()
    }


def _of_all(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return dict(parts[0])
    absent = sum(part.get("missing", 0) for part in parts)
    missing = {"missing": absent} if absent else {}
    if not any("top" in part for part in parts):
        return {**_numbers(parts), **missing}
    if not all(part.get("distinct") == len(part.get("top", ())) for part in parts):
        return {}
    counts: Counter[Any] = Counter()
    for part in parts:
        counts.update(dict(part["top"]))
    top = sorted(map(list, counts.items()), key=lambda pair: (-pair[1], pair[0]))
    return {"count": counts.total(), "distinct": len(counts), "top": top, **missing}


def _numbers(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    count = sum(part["count"] for part in parts)
    filled = [part for part in parts if "mean" in part]
    if not filled:
        return {"count": count}
    finite = sum(part["count"] for part in filled)
    mean = sum(part["mean"] * part["count"] for part in filled) / finite
    squares = sum((of["std"] ** 2 + (of["mean"] - mean) ** 2) * of["count"] for of in filled)
    return {
        "count": count,
        "min": min(part["min"] for part in filled),
        "max": max(part["max"] for part in filled),
        "mean": mean,
        "std": math.sqrt(squares / finite),
    }
