"""Names of what is counted about the values of a column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfrecorder.schema.kinds import BOX_COLUMNS

#: What is told of boxes: how many an image has, the four edges, and their area.
BOX_NUMBERS = ("per_image", *BOX_COLUMNS, "area")


def by_name(
    statistics: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The name that people are shown, the split, and what is told; of boxes there are several."""
    for name, of_split in statistics.items():
        for split, found in of_split.items():
            if "boxes" not in found or "top" in found:
                yield name, split, found
        boxes = {split: found["boxes"] for split, found in of_split.items() if "boxes" in found}
        for what in BOX_NUMBERS:
            shown = f"{name} {'per image' if what == 'per_image' else what}"
            yield from ((shown, split, numbers[what]) for split, numbers in boxes.items())
