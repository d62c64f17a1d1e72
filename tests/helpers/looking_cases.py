"""What the tests of looking share: records written by hand, and pages read back."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from support import encoded, framed

import tfrecorder

#: A name that a page must not take for markup.
EVIL = "<script>alert(1)</script>\"'&"

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


def page_of(directory: Any, **options: Any) -> ReadPage:
    return ReadPage(tfrecorder.preview(directory, **options).page)


def convert(rows: list[tuple[str, Any, str]], **options: Any) -> str:
    """A dataset of (split, file, label)."""
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "label"]).astype(str)
    tfrecorder.convert(frame, "out", progress=False, **{"max_reject_fraction": 1.0} | options)
    return "out"


def annotated(**features: Any) -> dict[str, Any]:
    """A grey image with two boxes."""
    sides = {"xmin": [0.1, 0.5], "ymin": [0.2, 0.0], "xmax": [0.6, 1.5], "ymax": [0.8, 0.25]}
    boxes = {f"image/object/bbox/{k}": np.array(v, np.float32) for k, v in sides.items()}
    names = {"image/object/class/text": [b"eye", b"<b>ear"]}
    grey = np.full((90, 120, 3), 128, np.uint8)
    return {"image/encoded": png(grey), **boxes, **names, **features}
