"""YOLO's form as Ultralytics reads it: `data.yaml`, and a text file with the objects of each image.

Their trainer turns pictures as EXIF says, so coordinates are those of the upright picture.  An
object is one line: a box, or where the dataset has masks one polygon.  Several parts, and holes,
become one polygon by lines without width, which change no pixel inside.

A point is a complex number, x + y i.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfrecorder.images.transform import turned

#: What becomes of objects that a line cannot hold as they are.
_CROWDS = "marked as crowds, left out: YOLO has no such mark"
_PARTS = "of several parts, or with holes: their parts are joined by lines without width"
_UNMASKED = "without a pixel of a mask: they are the corners of their boxes"


class Object(NamedTuple):
    """An object of an image.

    Attributes:
        label: the name of its class.
        box: its left, upper, right and lower edge in pixels.
        mask: its polygons in pixels, or RLE; None without.
        given: what COCO says of it too, by COCO's names.
    """

    label: str
    box: np.ndarray
    mask: Any
    given: Mapping[str, Any]


def lines_of(
    objects: Iterable[Object],
    classes: Mapping[str, int],
    size: tuple[int, int],
    orientation: int,
    has_masks: bool,
    counts: Counter[str],
) -> bytes:
    """The text file of an image.

    Args:
        classes: their numbers.
        size: width and height of the image as it is stored.
        orientation: that of EXIF.
        has_masks: objects are polygons.
        counts: of the objects that a line cannot hold as they are, in words; some are added.
    """
    lines = []
    for one in objects:
        if one.given.get("iscrowd"):
            counts[_CROWDS] += 1
            continue
        rings = rings_of(one.mask) if has_masks else []
        counts[_UNMASKED] += has_masks and not rings
        counts[_PARTS] += len(rings) > 1
        corners = one.box[[0, 2, 2, 0]] + one.box[[1, 1, 3, 3]] * 1j
        points = joined(rings or [corners])
        x = points.real / size[0]
        y = points.imag / size[1]
        # A point is a box without an extent.
        y, x = turned(np.stack([y, x, y, x], 1), orientation)[:, :2].T.clip(0, 1)
        numbers = np.stack([x, y], 1).ravel()
        if not has_masks:
            twice = [x.min() + x.max(), y.min() + y.max(), 2 * np.ptp(x), 2 * np.ptp(y)]
            numbers = np.array(twice) / 2
        words = [f"{number:.9g}" for number in numbers]
        lines.append(f"{classes[one.label]} {' '.join(words)}\n")
    return "".join(lines).encode()


def rings_of(mask: Any) -> list[np.ndarray]:
    """The polygons of an object; of RLE its borders."""
    if isinstance(mask, Mapping):
        runs = mask["counts"]
        inside = np.arange(len(runs)) % 2 == 1
        return outlines(np.repeat(inside, runs).reshape(mask["size"], order="F"))
    return [np.reshape(polygon, (-1, 2)) @ [1, 1j] for polygon in mask or ()]


def outlines(mask: np.ndarray) -> list[np.ndarray]:
    """The borders of a mask along its pixels, those of holes too, as rings of corners.

    >>> outlines(np.array([[True, True]]))[0].tolist()
    [(2+0j), (2+1j), 1j, 0j]
    """
    padded = np.pad(mask, 1)
    # Each border is a step from one corner of a pixel to the next, with the mask on its right.
    steps = defaultdict[complex, list[complex]](list)
    for out in (1, 1j, -1, -1j):
        beyond = np.roll(padded, (-int(out.imag), -int(out.real)), (0, 1))
        y, x = np.nonzero(padded & ~beyond)
        for start in (x + y * 1j + (out - out * 1j - 1 - 1j) / 2).tolist():
            steps[start].append(start + out * 1j)
    rings = []
    while steps:
        at = next(iter(steps))
        ring = []
        while at in steps:
            ring.append(at)
            *others, following = steps.pop(at)
            if others:
                steps[at] = others
            at = following
        points = np.array(ring)
        is_corner = np.roll(points, -1) - points != points - np.roll(points, 1)
        rings.append(points[is_corner])
    return rings


def joined(rings: Sequence[np.ndarray]) -> np.ndarray:
    """Rings as one, by a line to each of the others and back."""
    whole = rings[0]
    for ring in rings[1:]:
        start = np.abs(ring - whole[np.abs(whole - ring[0]).argmin()]).argmin()
        at = np.abs(whole - ring[start]).argmin()
        there = np.roll(ring, -start)
        whole = np.concatenate([whole[: at + 1], there, there[:1], whole[at:]])
    return whole


def folder_of(split: str) -> str:
    """The folder of a split, which is also its name in `data.yaml`."""
    return "val" if split == "VALIDATION" else split.lower()


def name_of(split: str, path: str) -> str:
    """The path of an image without its ending, below the folder of all; empty if it cannot be kept.

    The text file of each has the same path but for the last folder called `images`.
    """
    stem = os.path.splitext(path.removeprefix(f"{split.lower()}/"))[0]
    return "" if "/images/" in f"/{stem.lower()}" else f"{folder_of(split)}/{stem}"


def config(splits: Iterable[str], classes: Iterable[str]) -> bytes:
    """`data.yaml`; Ultralytics wants `train` and `val` in it even if nothing is there."""
    places = {"train": "", "val": ""}
    places |= {folder_of(split): f"images/{folder_of(split)}" for split in splits}
    lines = [f"{name}: {place}\n" for name, place in places.items()]
    # Quoted, since a name such as "no" or "010" would be something else.
    names = json.dumps([*classes], ensure_ascii=False)
    return f"{''.join(lines)}names: {names}\n".encode()
