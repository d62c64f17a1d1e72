"""Make masks for the coffee photographs: 1 where the china is red, 2 where it is white, else 0.

    python samples/make_masks.py

Each class is the largest connected part of the blurred photograph that has its colour. The masks
are not drawn by hand, but good enough to train on.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

HERE = Path(__file__).parent

#: 0 to 255: they separate red china from the brown table, and white china from what it reflects.
RED_HUES, RED_SATURATION = 11, 190
WHITE_SATURATION, WHITE_VALUE = 120, 130


def part_of(inside: np.ndarray, start: tuple[int, int]) -> np.ndarray:
    """The pixels that are connected to the start."""
    found = np.zeros_like(inside)
    found[start] = True
    queue = deque([start])
    while queue:
        y, x = queue.popleft()
        for near in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
            within = 0 <= near[0] < inside.shape[0] and 0 <= near[1] < inside.shape[1]
            if within and inside[near] and not found[near]:
                found[near] = True
                queue.append(near)
    return found


def largest_part(inside: np.ndarray) -> np.ndarray:
    rest, best = inside.copy(), np.zeros_like(inside)
    while rest.any():
        part = part_of(rest, tuple(np.argwhere(rest)[0]))
        rest &= ~part
        best = part if part.sum() > best.sum() else best
    return best


def mask_of(photo: Image.Image) -> np.ndarray:
    blurred = photo.convert("RGB").filter(ImageFilter.GaussianBlur(1.5))
    hue, saturation, value = np.moveaxis(np.asarray(blurred.convert("HSV")).astype(int), 2, 0)
    red = ((hue < RED_HUES) | (hue > 240)) & (saturation > RED_SATURATION)
    white = (saturation < WHITE_SATURATION) & (value > WHITE_VALUE)
    classes = np.where(largest_part(red), 1, 0)
    return np.where(largest_part(white), 2, classes)


def main() -> None:
    folder = HERE / "masks"
    folder.mkdir(exist_ok=True)
    for path in sorted(HERE.glob("photos/coffee/*.jpg")):
        with Image.open(path) as photo:
            mask = mask_of(photo)
        Image.fromarray(mask.astype(np.uint8)).save(folder / f"{path.stem}.png", optimize=True)


if __name__ == "__main__":
    main()
