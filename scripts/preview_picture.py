"""Draw docs/preview.png: the top of the page of `tfrecorder preview`, with what it found.

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
from helpers.chromium import browser  # noqa: E402

#: Of the window, in pixels.
WIDTH, HEIGHT = 860, 640


def photographs() -> pd.DataFrame:
    """The bundled photographs with three mistakes."""
    frame = pd.read_csv(ROOT / "samples/photos.csv")
    frame["image_uri"] = [str(ROOT / "samples" / uri) for uri in frame["image_uri"]]
    Image.new("RGB", (240, 180), (12, 12, 12)).save("black.jpg")
    leaked = frame[frame["split"] == "TRAIN"].iloc[3:4].assign(split="TEST")
    black = leaked.assign(split="TRAIN", image_uri="black.jpg", label="cat")
    missing = black.assign(image_uri="missing.jpg")
    return pd.concat([frame, leaked, black, missing], ignore_index=True)


def main() -> None:
    os.chdir(tempfile.mkdtemp())
    tfrecorder.convert(photographs(), "photos", num_shards=2, progress=False)
    tfrecorder.preview("photos", html="page.html", progress=False)
    with browser(Path("chromium").resolve()) as page:
        page.open(Path("page.html"), WIDTH, HEIGHT)
        page.screenshot(Path("page.png"), whole=False)
    picture = Image.open("page.png").convert("RGB")
    picture.quantize(256).save(ROOT / "docs/preview.png", optimize=True)


if __name__ == "__main__":
    main()
