"""What a template needs to show a record: its name, its description, the colours of its boxes."""

from __future__ import annotations

from collections.abc import Sequence

from tfrecorder.display.tables import counted
from tfrecorder.inspection.duplicates import Copy
from tfrecorder.inspection.facts import Box
from tfrecorder.inspection.gather import Shown
from tfrecorder.inspection.pictures import PALETTE


def source_row(one: Shown | Copy) -> str:
    """Where a record came from: its row in the source, else its number in its split."""
    return f"row {one.row}" if one.row else f"record {one.number:,}"


def file_name(uri: str) -> str:
    """A uri without its folders."""
    return uri.rstrip("/").rpartition("/")[2] or uri


def description(one: Shown) -> str:
    """A picture in words, for those who cannot see it."""
    names = [box.name or "object" for box in one.boxes]
    objects = f"; {counted(len(names), 'box')}: {', '.join(names)}" if names else ""
    mask = "; with its mask" if one.masked else ""
    return f"{one.split} record {one.number}: {', '.join(one.labels) or 'no label'}{objects}{mask}"


def box_colours(boxes: Sequence[Box]) -> dict[str, str]:
    """A colour for each class of object in a picture."""
    names = sorted({box.name for box in boxes})
    return {
        name: "#{:02x}{:02x}{:02x}".format(*PALETTE[place % len(PALETTE)])
        for place, name in enumerate(names)
    }


def boxes_name_labels(one: Shown) -> bool:
    """Whether a record's labels are those of its boxes, which the colours already name."""
    return bool(one.boxes) and {box.name for box in one.boxes} == set(one.labels)
