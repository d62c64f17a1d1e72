"""Names for what is counted about the values of a column."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfrecorder.schema.kinds import BOX_COLUMNS

#: Statistics of boxes: the number per image, the four edges, and the area.
BOX_NUMBERS = ("per_image", *BOX_COLUMNS, "area")


def by_name(
    statistics: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The name to show, the split, and the statistics; boxes have several."""
    for name, of_split in statistics.items():
        for split, found in of_split.items():
            if "boxes" not in found or "top" in found:
                yield name, split, found
        boxes = {split: found["boxes"] for split, found in of_split.items() if "boxes" in found}
        for what in BOX_NUMBERS:
            shown = f"{name} {'per image' if what == 'per_image' else what}"
            yield from ((shown, split, numbers[what]) for split, numbers in boxes.items())


def merged(
    several: Iterable[Mapping[str, Mapping[str, Mapping[str, Any]]]],
) -> dict[str, dict[str, dict[str, Any]]]:
    """The statistics of all rows, from statistics that each cover some of them.

    The most frequent values of a column are left out if a part does not list all its values: those
    of all rows cannot be computed then.
    """
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for one in several:
        for name, of_split in one.items():
            for split, part in of_split.items():
                found.setdefault(name, {}).setdefault(split, []).append(part)
    made = {
        name: {split: _of_all(parts) for split, parts in of_split.items()}
        for name, of_split in found.items()
    }
    return {
        name: {split: whole for split, whole in of_split.items() if whole}
        for name, of_split in made.items()
    }


def _of_all(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return dict(parts[0])
    boxes: dict[str, Any] = {}
    if all("boxes" in one for one in parts):
        names = [name for name in BOX_NUMBERS if all(name in one["boxes"] for one in parts)]
        boxes = {"boxes": {name: _numbers([one["boxes"][name] for one in parts]) for name in names}}
    absent = sum(one.get("missing", 0) for one in parts)
    missing = {"missing": absent} if absent else {}
    if not any("top" in one for one in parts):
        return {**_numbers(parts), **boxes, **missing}
    if not all(one.get("distinct") == len(one.get("top", ())) for one in parts):
        return boxes
    counts: Counter[Any] = Counter()
    for one in parts:
        counts.update(dict(one["top"]))
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    top = [list(one) for one in ranked]
    return {"count": counts.total(), "distinct": len(counts), "top": top, **boxes, **missing}


def _numbers(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    count = sum(one["count"] for one in parts)
    filled = [one for one in parts if "mean" in one]
    if not filled:
        return {"count": count}
    finite = sum(one["count"] for one in filled)
    mean = sum(one["mean"] * one["count"] for one in filled) / finite
    squares = sum((one["std"] ** 2 + (one["mean"] - mean) ** 2) * one["count"] for one in filled)
    return {
        "count": count,
        "min": min(one["min"] for one in filled),
        "max": max(one["max"] for one in filled),
        "mean": mean,
        "std": math.sqrt(squares / finite),
    }
