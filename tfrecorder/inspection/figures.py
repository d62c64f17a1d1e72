"""What a template needs to show a record: its name, its description, the colours of its boxes."""

from __future__ import annotations

from collections.abc import Sequence

from tfrecorder.display.tables import counted
from tfrecorder.inspection.pictures import PALETTE
from tfrecorder.inspection.record_values import Box, RecordView


def source_row(view: RecordView) -> str:
    """Where a record came from: its row in the source, else its number in its split."""
    return f"row {view.row}" if view.row else f"record {view.number:,}"


def file_name(uri: str) -> str:
    """A uri without its folders."""
    return uri.rstrip("/").rpartition("/")[2] or uri


def description(view: RecordView) -> str:
    """A picture in words, for those who cannot see it."""
    names = [box.name or "object" for box in view.boxes]
    objects = f"; {counted(len(names), 'box')}: {', '.join(names)}" if names else ""
    mask = "; with its mask" if view.masked else ""
    labels = ", ".join(view.labels) or "no label"
    return f"{view.split} record {view.number}: {labels}{objects}{mask}"


def box_colours(boxes: Sequence[Box]) -> dict[str, str]:
    """A colour for each class of object in a picture."""
    names = sorted({box.name for box in boxes})
    return {
        name: "#{:02x}{:02x}{:02x}".format(*PALETTE[place % len(PALETTE)])
        for place, name in enumerate(names)
    }


def boxes_name_labels(view: RecordView) -> bool:
    """Whether a record's labels are those of its boxes, which the colours already name."""
    return bool(view.boxes) and {box.name for box in view.boxes} == set(view.labels)
