"""Templates to HTML, with Jinja: every value is escaped, and a missing name is an error."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfrecorder.display.tables import counted, readable_bytes
from tfrecorder.inspection.pictures import PALETTE
from tfrecorder.inspection.plots import of_split
from tfrecorder.inspection.record_values import Box, RecordView

if TYPE_CHECKING:
    from jinja2 import Environment

#: Characters that HTML forbids or that move the cursor.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def render(template: str, **values: Any) -> str:
    """Fill in a template from `templates/`."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tfrecorder.inspection"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "base64": lambda data: base64.b64encode(data).decode("ascii"),
        "coordinate": "{:.5g}".format,
        "number": "{:,}".format,
        "percent": "{:.1%}".format,
        "readable_bytes": readable_bytes,
        "of_split": of_split,
        "box_colours": box_colours,
        "description": description,
        "file_name": file_name,
        "source_row": source_row,
        "boxes_name_labels": boxes_name_labels,
    }
    return environment


def _visible(value: Any) -> Any:
    """What a template prints: another template's markup as it is, text without control characters.

    Jinja calls it for each value before it escapes the value.
    """
    return value if hasattr(value, "__html__") else _CONTROL.sub(_picture, str(value))


def _picture(match: re.Match[str]) -> str:
    """A control character as Unicode's picture of it, from U+2400."""
    return chr(0x2400 + ord(match[0])) if match[0] < " " else "�"


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
