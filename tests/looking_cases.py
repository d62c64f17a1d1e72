"""What the tests of looking share: records written by hand, and pages read back."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from support import encoded, framed

#: Elements without an end tag.
_VOID = {"img", "input", "meta", "link", "br", "hr"}


def write_records(
    folder: Path, records: Iterable[Mapping[str, Any]], name: str = "train-00000.tfrecord"
) -> str:
    """A bare TFRecord file of these records in a folder; the folder's path."""
    folder.mkdir(exist_ok=True)
    with open(folder / name, "wb") as file:
        for record in records:
            file.write(framed(encoded(record)))
    return str(folder)


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def noise(seed: int, height: int = 24, width: int = 32) -> np.ndarray:
    """A small picture unlike any other."""
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (height, width, 3), dtype=np.uint8)


class ReadPage(HTMLParser):
    """A page as a browser would read it.

    Attributes:
        elements: each with its attributes, in order.
        texts: what stands between them, but for style.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == [], f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All that can be read, on one line."""
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of each element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def pictures(self) -> dict[str, Image.Image]:
        """The pictures by their descriptions."""
        found = {}
        for attributes in self.all("img"):
            data = attributes["src"].removeprefix("data:image/jpeg;base64,")
            found[attributes["alt"]] = Image.open(io.BytesIO(base64.b64decode(data)))
        return found
