"""Makes distinct, realistic JPEG files in class folders, and a CSV that lists them.

    make_images.py OUT N --photos DIR                   photographs of about 500x375, 88 KB
    make_images.py OUT N --photos DIR --megapixels 12   of 4000x3000
    make_images.py OUT N --photos DIR --size 1024x768
    make_images.py OUT N --synthetic [--size 32x32]     many small ones, without photographs

A photograph is a random window of one photo in DIR, scaled, perhaps mirrored, and saved with
quality 90 and 4:2:0 chroma.  Wallpapers are smoother than what cameras put into data sets, so grain
is added step by step until the file is as large as a drawn size, 60 to 120 KB for 500x375 and in
proportion for others: the size is what decoding costs.

Image number i depends on the options and i alone: a smaller N makes the first files of a larger.

OUT/<split>/<label>/<thousands>/<number>.jpg   split: train, validation, test (80/10/10)
OUT/data.csv                                   split,image_uri,label; 10 labels
"""

from __future__ import annotations

import argparse
import csv
import io
import multiprocessing
import os
import random
from pathlib import Path

from PIL import Image, ImageChops

LABELS = 10
SPLITS = ("train",) * 8 + ("validation", "test")
SHAPES = ((500, 375),) * 6 + ((375, 500),) * 2 + ((500, 333),) * 2
#: Bytes a pixel aimed at, least and most: those of 60 and of 120 KB in 500x375.
LOW, HIGH = 0.32, 0.64
#: Ranges of the grain, in grey levels.
GRAINS = (0, 8, 14, 20, 28, 36, 48)
SMALL = (32, 32)

#: What the processes that make images have from the one that forks them.
ARGUMENTS: argparse.Namespace
PHOTOS: list[Image.Image]


def find_photos(folder: Path, least: int = 400) -> list[Path]:
    """The image files in a folder that are large enough to cut from, sorted by name."""
    photos = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp") and not path.is_symlink():
            with Image.open(path) as image:
                if min(image.size) >= least:
                    photos.append(path)
    return photos


def load_photo(path: Path, width: int) -> Image.Image:
    """A photo as RGB, at most `width` pixels wide, so that all of them fit in memory."""
    image = Image.open(path).convert("RGB")
    if image.width > width:
        height = round(image.height * width / image.width)
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    return image


def photograph(photos: list[Image.Image], shape: tuple[int, int], rng: random.Random) -> bytes:
    """A random window of a random photo, as JPEG."""
    photo = rng.choice(photos)
    width, height = shape
    largest = min(photo.width / width, photo.height / height)
    scale = rng.uniform(min(1.2, largest), min(4.0, largest))
    w, h = int(width * scale), int(height * scale)
    x, y = rng.randint(0, photo.width - w), rng.randint(0, photo.height - h)
    image = photo.resize(shape, Image.Resampling.LANCZOS, box=(x, y, x + w, y + h))
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return with_grain(image, rng, width * height * rng.triangular(LOW, HIGH))


def with_grain(image: Image.Image, rng: random.Random, size: float) -> bytes:
    """The image as JPEG, with just enough grain to reach `size` bytes."""
    noise = Image.frombytes("L", image.size, rng.randbytes(image.width * image.height))
    for grain in GRAINS:
        grainy = image
        if grain:
            layer = noise.point([level * grain // 255 for level in range(256)])
            grainy = ImageChops.add(image, Image.merge("RGB", [layer] * 3), 1, -grain // 2)
        out = io.BytesIO()
        grainy.save(out, "JPEG", quality=90, subsampling="4:2:0")
        if out.tell() >= size:
            break
    return out.getvalue()


def synthetic(shape: tuple[int, int], rng: random.Random) -> bytes:
    """A few random colours that flow into each other, as JPEG: no two alike, quickly made."""
    spots = Image.frombytes("RGB", (4, 4), rng.randbytes(48))
    out = io.BytesIO()
    spots.resize(shape, Image.Resampling.BILINEAR).save(out, "JPEG", quality=75)
    return out.getvalue()


def place(number: int) -> tuple[str, str, str]:
    """Split, label and relative path of image number `number`."""
    label = f"class_{number % LABELS}"
    split = SPLITS[number // LABELS % len(SPLITS)]
    return split, label, f"{split}/{label}/{number // 1000:04d}/{number:07d}.jpg"


def make(number: int) -> int:
    """Write image number `number`; its size."""
    rng = random.Random(f"{ARGUMENTS.seed}/{number}")
    if ARGUMENTS.synthetic:
        data = synthetic(ARGUMENTS.size or SMALL, rng)
    else:
        label = number % LABELS
        data = photograph(PHOTOS[label::LABELS], ARGUMENTS.size or rng.choice(SHAPES), rng)
    path = ARGUMENTS.out / place(number)[2]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return len(data)


def write_csv(path: Path, folder: Path, count: int) -> None:
    """The CSV that lists the first `count` images of a folder."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["split", "image_uri", "label"])
        for number in range(count):
            split, label, name = place(number)
            writer.writerow([split.upper(), os.path.abspath(folder / name), label])


def link_copies(folder: Path, distinct: int, count: int, out: Path) -> None:
    """Fill `out` with `count` images under names of their own: hard links to `distinct` ones.

    As many rows as one likes without the disk; to whoever reads them no different from files.
    """
    for number in range(count):
        target = out / place(number)[2]
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            os.link(folder / place(number % distinct)[2], target)
    write_csv(out / "data.csv", out, count)


def parse_size(text: str) -> tuple[int, int]:
    width, height = map(int, text.lower().split("x"))
    return width, height


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("n", type=int)
    parser.add_argument("--photos", type=Path, help="folder of photos to cut from")
    parser.add_argument("--synthetic", action="store_true", help="no photographs: random colours")
    parser.add_argument("--size", type=parse_size, help="WIDTHxHEIGHT")
    parser.add_argument("--megapixels", type=float, help="instead of --size, at 4:3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parsed = parser.parse_args(arguments)
    if parsed.megapixels:
        height = round((parsed.megapixels * 1e6 * 3 / 4) ** 0.5)
        parsed.size = (height * 4 // 3, height)
    if not parsed.synthetic and parsed.photos is None:
        parser.error("give --photos DIR, or --synthetic")
    return parsed


def main(arguments: list[str] | None = None) -> None:
    global ARGUMENTS, PHOTOS
    ARGUMENTS, PHOTOS = parse_arguments(arguments), []
    if not ARGUMENTS.synthetic:
        width = max(3000, ARGUMENTS.size[0] if ARGUMENTS.size else 0)
        least = min(400, max(ARGUMENTS.size or (400,)))
        PHOTOS = [load_photo(path, width) for path in find_photos(ARGUMENTS.photos, least)]
        if len(PHOTOS) < LABELS:
            raise SystemExit(f"{len(PHOTOS)} photos in {ARGUMENTS.photos}; {LABELS} are needed")
    ARGUMENTS.out.mkdir(parents=True, exist_ok=True)
    # Forked, so that the photos are shared.
    with multiprocessing.get_context("fork").Pool(ARGUMENTS.jobs) as pool:
        sizes = sorted(pool.imap_unordered(make, range(ARGUMENTS.n), chunksize=16))
    write_csv(ARGUMENTS.out / "data.csv", ARGUMENTS.out, ARGUMENTS.n)
    low, middle, high = (sizes[int(share * (len(sizes) - 1))] / 1e3 for share in (0.05, 0.5, 0.95))
    print(
        f"{len(sizes)} images, {sum(sizes) / 1e6:.0f} MB; "
        f"KB an image: 5% {low:.0f}, median {middle:.0f}, 95% {high:.0f}"
    )


if __name__ == "__main__":
    main()
