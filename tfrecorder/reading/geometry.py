"""Where pixels, masks and boxes go: the arithmetic of `load`, in NumPy.

float32 throughout, as in `load`, so that both round the same way.
"""

from __future__ import annotations

import math

import numpy as np

from tfrecorder.images.picture import CROP_AREA, CROP_ASPECT, ROUNDING, Picture, is_left
from tfrecorder.reading.order import derive_seed, mix

#: y, x, height, width of a part of an image, in pixels.
Part = tuple[int, int, int, int]

#: Height and width, in pixels.
Size = tuple[int, int]

#: Random numbers per record: for area, proportions, y, x and mirroring.
_DRAWS = 5


def draws(seed: int, epoch: int, number: int) -> np.ndarray:
    """The random numbers of one record in one epoch: five float32 from 0 to 1, excluding 1."""
    key = derive_seed(seed, epoch, "augment")
    counters = np.arange(number * _DRAWS, (number + 1) * _DRAWS, dtype=np.uint64)
    mixed = mix(mix(counters + np.uint64(key)))
    return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def random_part(height: int, width: int, drawn: np.ndarray) -> Part:
    """A random part of an image, with random share of the area, proportions and place."""
    size = np.array([height, width], np.float32)
    area = CROP_AREA[0] + drawn[0] * (CROP_AREA[1] - CROP_AREA[0])
    low, high = (math.log(bound) for bound in CROP_ASPECT)
    aspect = np.exp(low + drawn[1] * (high - low))
    pixels = area * size[0] * size[1]
    part = np.round(np.array([np.sqrt(pixels / aspect), np.sqrt(pixels * aspect)], np.float32))
    part = np.minimum(np.maximum(part, 1), size)
    start = np.minimum(np.floor(drawn[2:4] * (size - part + 1)), size - part)
    return int(start[0]), int(start[1]), int(part[0]), int(part[1])


def is_mirrored(drawn: np.ndarray) -> bool:
    """True for half of the records: the picture is flipped left to right."""
    return bool(drawn[4] < 0.5)


def central_part(height: int, width: int, size: Size) -> Part:
    """The largest central part with the proportions of `size`."""
    found, wanted = np.array([height, width]), np.array(size, np.float32)
    scale = (found.astype(np.float32) / wanted).min()
    part = np.clip(np.round(wanted * scale).astype(np.int64), 1, found)
    start = (found - part) // 2
    return int(start[0]), int(start[1]), int(part[0]), int(part[1])


def fitted_size(height: int, width: int, size: Size, enlarge: bool = True) -> Size:
    """The size of the largest picture with the same proportions within `size`."""
    found = np.array([height, width], np.float32)
    scale = (found / np.array(size, np.float32)).max()
    scale = scale if enlarge else np.maximum(scale, np.float32(1))
    inner = np.clip(np.round(found / scale).astype(np.int64), 1, size)
    return int(inner[0]), int(inner[1])


def borders(inner: Size, size: Size) -> Size:
    """The widths of the top and left borders of a padded picture."""
    return (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2


def place_mask(mask: np.ndarray, picture: Picture, drawn: np.ndarray | None) -> np.ndarray:
    """The classes of an image's pixels, placed as the image is.

    Args:
        mask: uint8 of [height, width].
        picture: what the image becomes.
        drawn: by `draws`, for `picture.augment`.
    """
    size, (height, width) = picture.size, mask.shape
    if size is None:
        return mask
    if picture.augment:
        assert drawn is not None
        placed = _nearest(_cut(mask, random_part(height, width, drawn)), size)
        return placed[:, ::-1] if is_mirrored(drawn) else placed
    if picture.resize == "crop":
        return _nearest(_cut(mask, central_part(height, width, size)), size)
    if picture.resize == "fit":
        return _nearest(mask, fitted_size(height, width, size, enlarge=False))
    if picture.resize == "pad":
        inner = fitted_size(height, width, size)
        y, x = borders(inner, size)
        placed = np.zeros(size, mask.dtype)
        placed[y : y + inner[0], x : x + inner[1]] = _nearest(mask, inner)
        return placed
    return _nearest(mask, size)


def _cut(mask: np.ndarray, part: Part) -> np.ndarray:
    y, x, height, width = part
    return mask[y : y + height, x : x + width]


def _nearest(mask: np.ndarray, size: Size) -> np.ndarray:
    rows, columns = (
        np.minimum(
            (np.arange(wanted, dtype=np.float32) + np.float32(0.5))
            * (np.float32(found) / np.float32(wanted)),
            found - 1,
        ).astype(np.int64)
        for found, wanted in zip(mask.shape, size, strict=True)
    )
    return mask[rows[:, None], columns]


def place_boxes(
    boxes: np.ndarray, shape: Size | None, picture: Picture, drawn: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Boxes as fractions of the picture, and which of them are still on it.

    Args:
        boxes: float32 of [n, 4]: ymin, xmin, ymax, xmax as fractions of the stored image.
        shape: the stored image's height and width; None if its size does not change.
        picture: what the image becomes.
        drawn: as for the image.

    Returns:
        The boxes that stay, cut at the edges, and for each given box a bool: whether it stays.
    """
    if picture.size is None or (picture.resize in ("stretch", "fit") and not picture.augment):
        return boxes, np.ones(len(boxes), bool)
    assert shape is not None
    found = np.array(shape, np.float32)
    if picture.augment:
        assert drawn is not None
        window = np.array(random_part(*shape, drawn), np.float32)
        start, part = window[:2], window[2:]
    else:
        size = np.array(picture.size, np.float32)
        choose = np.min if picture.resize == "crop" else np.max
        part = size * choose(found / size)
        start = (found - part) / 2
    placed = (boxes * np.tile(found, 2) - np.tile(start, 2)) / np.tile(part, 2)
    if drawn is not None and picture.augment and is_mirrored(drawn):
        ymin, xmin, ymax, xmax = placed.T
        placed = np.stack([ymin, 1 - xmax, ymax, 1 - xmin], 1)
    cut = np.clip(placed, 0, 1)
    slack = np.float32(ROUNDING) * (placed[:, 2:] - placed[:, :2]).sum(1)
    stays = is_left(_areas(cut), _areas(placed), slack)
    return cut[stays], stays


def _areas(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
