"""Templates to HTML, with Jinja: every value is escaped, and a missing name is an error."""

from __future__ import annotations

import base64
import functools
import re
from typing import TYPE_CHECKING, Any

from tfrecorder.display.tables import readable_bytes
from tfrecorder.inspection import figures
from tfrecorder.inspection.plots import of_split

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
        "box_colours": figures.box_colours,
        "description": figures.description,
        "file_name": figures.file_name,
        "source_row": figures.source_row,
        "boxes_name_labels": figures.boxes_name_labels,
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
