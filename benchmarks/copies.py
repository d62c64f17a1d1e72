"""Copies: how many of each kind `tfrecorder.duplicates` finds, and what it takes for one wrongly.

    copies.py

The 52 bundled photographs, and beside each one changed copy; then six pictures of each photograph
with another shape on it, of which none is a copy.  Prints a table in Markdown.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
from PIL import Image, ImageDraw

import tfrecorder

PHOTOS = sorted((Path(__file__).parents[1] / "samples" / "photos").rglob("*.jpg"))
SCENES = 6

Change = Callable[[Image.Image, Path], None]


def encoded(suffix: str, quality: int = 90) -> Change:
    return lambda image, path: image.save(path.with_suffix(suffix), quality=quality)


def scaled(scale: float) -> Change:
    def change(image: Image.Image, path: Path) -> None:
        size = round(image.width * scale), round(image.height * scale)
        image.resize(size, Image.Resampling.LANCZOS).save(path.with_suffix(".jpg"), quality=90)

    return change


def cut(share: float, at: float) -> Change:
    """What is left of each side; at 0 the cut is right and below, at 0.5 on all sides."""

    def change(image: Image.Image, path: Path) -> None:
        lost = [side * (1 - share) for side in image.size]
        left, top = (round(pixels * at) for pixels in lost)
        right, bottom = (
            round(s - pixels * (1 - at)) for s, pixels in zip(image.size, lost, strict=True)
        )
        cropped = image.crop((left, top, right, bottom))
        cropped.save(path.with_suffix(".jpg"), quality=90)

    return change


def shape(image: Image.Image, path: Path) -> None:
    side = random.randint(image.height // 8, image.height // 2)
    left, top = (random.randint(0, whole - side) for whole in image.size)
    colour = tuple(random.choices(range(256), k=3))
    pen = ImageDraw.Draw(image)
    draw = random.choice([pen.ellipse, pen.rectangle])
    draw((left, top, left + side, top + side), fill=colour)
    image.save(path.with_suffix(".jpg"), quality=90)


CHANGES: dict[str, Change] = {
    **{f"JPEG, quality {quality}": encoded(".jpg", quality) for quality in (50, 60, 75, 85, 95)},
    "WebP": encoded(".webp"),
    "PNG": encoded(".png"),
    **{f"{scale} of each side": scaled(scale) for scale in (0.5, 0.75, 1.5, 2)},
    **{
        f"{share:.0%} left of each side, cut {where}": cut(share, at)
        for share, (where, at) in itertools.product(
            (0.97, 0.95, 0.9), {"on all sides": 0.5, "on two": 0}.items()
        )
    },
}


def found_in(changes: Sequence[Change]) -> tuple[int, int, dict[str, int]]:
    """How many pairs of one photograph, and of two, are in a group; the counts of copies."""
    with tempfile.TemporaryDirectory() as folder:
        for number, photo in enumerate(PHOTOS):
            for at, change in enumerate(changes):
                with Image.open(photo) as image:
                    change(image.convert("RGB"), Path(folder, f"{number}-{at}"))
        uris = sorted(str(path) for path in Path(folder).iterdir())
        frame = pd.DataFrame({"image_uri": uris, "split": "TRAIN"})
        out = f"{folder}/out"
        tfrecorder.convert(frame, out, fingerprints=True, progress=False)
        found = tfrecorder.duplicates(out, progress=False)
    of = found["image_uri"].map(lambda uri: Path(uri).name.partition("-")[0])
    right = wrong = 0
    for _, photos in of.groupby(found["group"]):
        for one, other in itertools.combinations(photos, 2):
            right += one == other
            wrong += one != other
    return right, wrong, found.attrs["copies"]


def main() -> None:
    random.seed(0)
    print(f"| copy | found of {len(PHOTOS)} | pairs of two photographs |\n|---|---|---|")
    for name, change in CHANGES.items():
        right, wrong, _ = found_in([encoded(".jpg", 92), change])
        print(f"| {name} | {right} | {wrong} |", flush=True)
    wrongly, others, counts = found_in([shape] * SCENES)
    pairs = len(PHOTOS) * SCENES * (SCENES - 1) // 2
    print(
        f"\n{pairs} pairs of a photograph with another shape: {wrongly} taken for copies, ", end=""
    )
    print(f"and {others} of two photographs; {counts['scene']} records are of the same scene.")


if __name__ == "__main__":
    main()
