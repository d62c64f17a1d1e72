"""HTML as values: every text is escaped unless it is markup already."""

from __future__ import annotations

import html
import re

#: Elements that have no end tag.
_VOID = frozenset(("img", "meta", "link", "br", "hr"))

#: Characters that HTML forbids or that move the cursor; shown by their pictures, from U+2400.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


def element(name: str, /, *children: str | Html | None, **attributes: str | float | None) -> Html:
    """One element.

    Args:
        name: of the element.
        *children: markup as it is; any other text is escaped; None is left out.
        **attributes: a trailing underscore is dropped, others become hyphens; None is left out.

    >>> element("p", "a < b", class_="quiet")
    '<p class="quiet">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_written(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{join(*children)}</{name}>")


def join(*children: str | Html | None) -> Html:
    """Children one after the other, escaped where they are no markup."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(child)
            for child in children
            if child is not None
        )
    )


def escape(text: str) -> str:
    """Text for an element or an attribute; what cannot be shown becomes a picture of it.

    >>> escape("<b>\\0")
    '&lt;b&gt;␀'
    """
    return html.escape(_CONTROL.sub(_picture, text))


def data_text(text: str, limit: int = 120) -> Html:
    """A text of the data set: shortened, and kept from changing the direction of its surroundings.

    >>> data_text("<script>")
    '<bdi>&lt;script&gt;</bdi>'
    """
    return element("bdi", text if len(text) <= limit else text[: limit - 1] + "…")


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


def _written(value: str | float) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def readable_bytes(size: int) -> str:
    """A size for people.

    >>> readable_bytes(999), readable_bytes(86_000_000_000)
    ('999 B', '86.0 GB')
    """
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
