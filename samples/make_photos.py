"""Cut the bundled photographs from scikit-image's images.

Writes photos/, photos.csv and mixed/ next to this script:

    python make_photos.py FOLDER

FOLDER is the `skimage/data` folder of a scikit-image wheel or source tree; it
must hold brick.png, chelsea.png, coffee.png and gravel.png. Needs Pillow. See
README.md for the photographers and licences.
"""

import argparse
import csv
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

SOURCES = {
    "brick": "brick.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "gravel": "gravel.png",
}

# Windows as (left, top, width, height, width written, mirrored). The height
# written follows from the window's shape. Nothing is enlarged.
#
# The bottom 180 rows of the two textures are kept for the held-out crops, so
# these share no pixel with the training crops. The cat and the cup are a single
# subject each, so their windows overlap.
TEXTURE_WINDOWS = {
    "TRAIN": [
        (0, 0, 320, 240, 200, False),
        (192, 60, 320, 240, 188, True),
        (100, 20, 240, 160, 216, False),
        (300, 0, 200, 150, 200, False),
        (40, 100, 220, 220, 160, True),
        (260, 80, 240, 240, 168, False),
        (150, 0, 240, 320, 132, False),
        (0, 180, 200, 150, 180, True),
        (330, 10, 180, 270, 120, False),
    ],
    "VALIDATION": [
        (0, 332, 240, 180, 200, False),
        (30, 345, 200, 150, 160, True),
    ],
    "TEST": [
        (268, 332, 240, 180, 200, False),
        (300, 336, 176, 176, 160, True),
    ],
}

WINDOWS = {
    "brick": TEXTURE_WINDOWS,
    "cat": {
        "TRAIN": [
            (0, 0, 451, 300, 240, False),
            (100, 40, 280, 210, 240, False),
            (20, 0, 400, 300, 240, True),
            (95, 50, 160, 120, 160, False),
            (200, 90, 200, 200, 180, True),
            (60, 0, 300, 200, 240, False),
            (140, 30, 195, 260, 135, False),
            (30, 0, 240, 180, 200, True),
            (150, 60, 240, 180, 240, False),
        ],
        "VALIDATION": [
            (0, 60, 320, 240, 240, False),
            (220, 40, 200, 150, 200, True),
        ],
        "TEST": [
            (80, 80, 280, 220, 224, True),
            (110, 20, 270, 270, 180, False),
        ],
    },
    "coffee": {
        "TRAIN": [
            (0, 0, 600, 400, 240, False),
            (60, 20, 440, 330, 240, False),
            (150, 10, 280, 210, 240, True),
            (180, 180, 240, 180, 200, False),
            (70, 0, 400, 400, 180, True),
            (160, 0, 270, 360, 135, False),
            (60, 20, 390, 260, 240, False),
            (190, 60, 220, 165, 200, True),
            (200, 40, 380, 285, 240, False),
        ],
        "VALIDATION": [
            (120, 10, 360, 270, 240, True),
            (170, 10, 240, 180, 160, False),
        ],
        "TEST": [
            (100, 0, 420, 315, 240, False),
            (170, 120, 270, 270, 180, True),
        ],
    },
    "gravel": TEXTURE_WINDOWS,
}


def cut(photo, left, top, width, height, out_width, mirrored=False):
    """Return one window of `photo`, scaled to `out_width` pixels across."""
    if left + width > photo.width or top + height > photo.height:
        raise ValueError(f"window {left, top, width, height} leaves the photograph")
    if out_width > width:
        raise ValueError(f"window {left, top, width, height} would be enlarged")
    crop = photo.crop((left, top, left + width, top + height))
    size = (out_width, round(out_width * height / width))
    crop = crop.resize(size, Image.Resampling.LANCZOS)
    if mirrored:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return crop


def write_photos(photos, folder):
    """Write photos/<label>/*.jpg and return the rows of photos.csv."""
    rows = []
    for label, splits in WINDOWS.items():
        (folder / "photos" / label).mkdir(parents=True, exist_ok=True)
        number = 0
        for split, windows in splits.items():
            for window in windows:
                number += 1
                uri = f"photos/{label}/{label}_{number:02}.jpg"
                cut(photos[label], *window).save(folder / uri, quality=85, optimize=True)
                rows.append((split, uri, label))
    return rows


def write_mixed(photos, folder):
    """Write small files of several other kinds to mixed/."""
    folder = folder / "mixed"
    folder.mkdir(exist_ok=True)

    cat = photos["cat"]
    coffee = photos["coffee"]

    cut(cat, 100, 40, 280, 210, 84).save(folder / "cat_rgb.png", optimize=True)

    cup = cut(coffee, 70, 40, 420, 360, 80)
    mask = Image.new("L", cup.size, 0)
    ImageDraw.Draw(mask).ellipse((3, 3, cup.width - 4, cup.height - 4), fill=255)
    cup.putalpha(mask.filter(ImageFilter.GaussianBlur(1)))
    cup.save(folder / "coffee_transparent.png", optimize=True)

    cut(photos["brick"], 100, 20, 240, 180, 200).convert("L").save(
        folder / "brick_gray.jpg", quality=85, optimize=True
    )
    cut(coffee, 60, 20, 440, 330, 200).save(folder / "coffee.webp", quality=80)
    cut(cat, 20, 0, 400, 300, 128).quantize(64).save(folder / "cat.gif")
    cut(coffee, 120, 10, 360, 270, 64).save(folder / "coffee_tiny.bmp")
    cut(photos["gravel"], 0, 0, 240, 180, 80).save(folder / "gravel.tif", compression="tiff_lzw")

    # Stored on its side: orientation 6 asks the reader to turn it clockwise.
    exif = Image.Exif()
    exif[0x0112] = 6
    cut(cat, 0, 0, 451, 300, 210).transpose(Image.Transpose.ROTATE_90).save(
        folder / "cat_orientation_6.jpg",
        quality=85,
        progressive=True,
        optimize=True,
        exif=exif,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="scikit-image's skimage/data folder")
    args = parser.parse_args()

    here = Path(__file__).resolve().parent
    photos = {}
    for label, name in SOURCES.items():
        with Image.open(args.folder / name) as photo:
            photos[label] = photo.convert("RGB")

    rows = write_photos(photos, here)
    with open(here / "photos.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("split", "image_uri", "label"))
        writer.writerows(rows)
    write_mixed(photos, here)
    print(f"{len(rows)} photos of {len(WINDOWS)} labels written")


if __name__ == "__main__":
    main()
