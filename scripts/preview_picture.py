"""Draw docs/preview.png: the page of `tfrecorder preview`, its top in light and its middle in dark.

    PYTHONPATH=. python scripts/preview_picture.py

Needs Chromium and Pillow. The dataset is the bundled photographs, with an image in two splits, one
that is black and one that is missing, so that the page has something to find.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pandas as pd
from PIL import Image

import tfrecorder

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import Page, browser  # noqa: E402

#: Of each half, in pixels.
WIDTH, HEIGHT = 800, 1100


def photographs() -> pd.DataFrame:
    """The bundled photographs with three mistakes."""
    frame = pd.read_csv(ROOT / "samples/photos.csv")
    frame["image_uri"] = [str(ROOT / "samples" / uri) for uri in frame["image_uri"]]
    Image.new("RGB", (240, 180), (12, 12, 12)).save("black.jpg")
    leaked = frame[frame["split"] == "TRAIN"].iloc[3:4].assign(split="TEST")
    black = leaked.assign(split="TRAIN", image_uri="black.jpg", label="cat")
    missing = black.assign(image_uri="missing.jpg")
    return pd.concat([frame, leaked, black, missing], ignore_index=True)


def half(page: Page, dark: bool, section: str) -> Image.Image:
    """What a window shows of the page from a section on."""
    page.open(Path("page.html"), WIDTH, HEIGHT, dark=dark)
    at_once = "{behavior: 'instant'}"
    page.evaluate(f"document.getElementById({section!r})?.scrollIntoView({at_once})")
    page.screenshot(Path("half.png"), whole=False)
    return Image.open("half.png").convert("RGB")


def main() -> None:
    os.chdir(tempfile.mkdtemp())
    tfrecorder.convert(photographs(), "flowers", num_shards=2, progress=False)
    tfrecorder.preview("flowers", html="page.html", progress=False)
    with browser(Path("chromium").resolve()) as page:
        halves = [half(page, False, ""), half(page, True, "images")]
    picture = Image.new("RGB", (2 * WIDTH, HEIGHT))
    for number, one in enumerate(halves):
        picture.paste(one, (number * WIDTH, 0))
    picture.quantize(256).save(ROOT / "docs/preview.png", optimize=True)


if __name__ == "__main__":
    main()
