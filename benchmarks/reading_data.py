"""The pictures that `reading.py` reads: cut from real photographs, of three kinds.

small    128x128, about 5 KB: where the work for each record outweighs decoding
medium   500x375, about 88 KB: what `make_images.py` cuts; taken as it is
large    4000x3000, of about 3.6 MB or 1.4 MB: what cameras and phones deliver
"""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

from PIL import Image, ImageChops

LABELS = 10
LARGE_SIZE = (4000, 3000)


def find_photos(folder: Path) -> list[Path]:
    """The photographs to cut from."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))


def make_small(photos: list[Path], out: Path, count: int, seed: int = 0) -> Path:
    """`count` pictures of 128x128 in class folders; returns their CSV."""
    rng = random.Random(seed)
    sources = [Image.open(path).convert("RGB").reduce(2) for path in photos]
    rows = []
    for number in range(count):
        label = number % LABELS
        source = sources[label]
        side = rng.randint(128, min(source.size) // 2)
        x, y = rng.randint(0, source.width - side), rng.randint(0, source.height - side)
        cut = source.resize((128, 128), Image.Resampling.BILINEAR, box=(x, y, x + side, y + side))
        rows.append(_save(cut, out, label, number, quality=90))
    return _write_csv(rows, out)


def make_large(photos: list[Path], out: Path, count: int, target_bytes: int, seed: int = 0) -> Path:
    """`count` photographs of 12 megapixels and about `target_bytes` each; returns their CSV."""
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        label = number % LABELS
        photo = Image.open(photos[label]).convert("RGB")
        share = rng.uniform(0.7, 1.0)
        width = int(min(photo.width, photo.height * 4 / 3) * share)
        height = width * 3 // 4
        x, y = rng.randint(0, photo.width - width), rng.randint(0, photo.height - height)
        cut = photo.resize(LARGE_SIZE, Image.Resampling.BICUBIC, box=(x, y, x + width, y + height))
        rows.append(_save(_grained(cut, target_bytes, rng), out, label, number, quality=85))
    return _write_csv(rows, out)


def _grained(image: Image.Image, target_bytes: int, rng: random.Random) -> Image.Image:
    """The image with as much brightness grain as its file needs to reach a size."""
    noise = Image.frombytes("L", image.size, rng.randbytes(image.width * image.height))
    low, high = 0, 64
    while low < high:
        grain = (low + high) // 2
        if len(_encode(_with_grain(image, noise, grain), 85)) < target_bytes:
            low = grain + 1
        else:
            high = grain
    return _with_grain(image, noise, low)


def _with_grain(image: Image.Image, noise: Image.Image, grain: int) -> Image.Image:
    layer = noise.point([value * grain // 255 for value in range(256)])
    return ImageChops.add(image, Image.merge("RGB", [layer] * 3), 1, -grain // 2)


def _encode(image: Image.Image, quality: int) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality, subsampling="4:2:0")
    return out.getvalue()


def _save(
    image: Image.Image, out: Path, label: int, number: int, quality: int
) -> tuple[str, str, str]:
    folder = out / "train" / f"class_{label}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:06d}.jpg"
    path.write_bytes(_encode(image, quality))
    return "TRAIN", str(path), f"class_{label}"


def _write_csv(rows: list[tuple[str, str, str]], out: Path) -> Path:
    path = out / "data.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("split", "image_uri", "label"), *rows])
    return path
