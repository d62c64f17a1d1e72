"""The values of a record as people see them: image, mask, labels, file name, row, objects.

Images become small pictures, and figures of their grey levels.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from tfrecorder.format.example import Values, text_of
from tfrecorder.images import pixels
from tfrecorder.images.reencode import encoded
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.element_spec import corners_of
from tfrecorder.reading.info import class_name
from tfrecorder.reading.record_set import Record
from tfrecorder.schema.fields import Field, image_of as image_field, of_kind
from tfrecorder.schema.keys import FILENAME, NO_LABEL, SOURCE_ID
from tfrecorder.schema.kinds import Boxes, File, Mask

#: The longer side of a picture on the page, in pixels.
SIDE = 256
#: The longer side of a picture that is one of many.
SMALL_SIDE = 128

#: The middle of an image whose blur is measured has at most so many pixels a side, and is smoothed
#: over so many.  An image of more pixels takes seconds and is not looked at.
_MIDDLE = 512
_SMOOTHED = 9
_MOST_PIXELS = 2**26

#: Colours of the classes of a mask, in turn; strong on light and on dark pixels.
PALETTE = (
    (230, 57, 70),
    (29, 120, 212),
    (244, 162, 30),
    (20, 160, 110),
    (150, 80, 200),
    (0, 170, 190),
    (214, 60, 150),
    (120, 150, 20),
)

#: What the keys of TensorFlow's tools hold: the objects and masks that `stored.unread` mentions.
_OBJECTS = Field("boxes", Boxes(), "image/object")
MASK = "image/segmentation/class/encoded"

_FILENAMES = (FILENAME, "filename", "file_name")


@dataclass(frozen=True)
class RecordView:
    """One record as a page shows it.

    Attributes:
        split, number: identify the record.
        row, filename: where its image came from; empty if that is not known.
        labels: its class names.
        masked: whether it has a mask.
        size: of the encoded image, in bytes.
        width, height: in pixels; 0 if it was not decoded, or cannot be.
        brightness, contrast: mean and standard deviation of the grey levels, 0 to 255.
        blur: by `blur_of`; None if that was not looked at, or says nothing.
        jpeg: a small picture, with the outlines of any mask; empty if there is none.
        thumb: the picture's width and height.
        boxes: its objects, if it has a picture.
        beside: those beside what its mask marks; None if that was not compared.
        files: the name and the size in bytes of each file that is no image.
        looks: what `sheets` compares of it; None if that was not looked at.
        fault: why there is no picture, or no boxes; empty if there is nothing to say.
    """

    split: str
    number: int
    row: str
    filename: str
    labels: tuple[str, ...]
    masked: bool
    size: int
    width: int = 0
    height: int = 0
    brightness: float = 0.0
    contrast: float = 0.0
    blur: float | None = None
    jpeg: bytes = b""
    thumb: tuple[int, int] = (0, 0)
    boxes: tuple[Box, ...] = ()
    beside: tuple[Box, ...] | None = None
    files: tuple[tuple[str, int], ...] = ()
    looks: np.ndarray | None = None
    fault: str = ""

    @property
    def place(self) -> tuple[str, int]:
        return self.split, self.number


@dataclass(frozen=True)
class Box:
    """One object.

    Attributes:
        xmin, ymin, xmax, ymax: its corners as shares of the image's width and height.
        name: of its class.
        colour: of that class, in all pictures.
    """

    xmin: float
    ymin: float
    xmax: float
    ymax: float
    name: str
    colour: str

    @property
    def area(self) -> float:
        """As a share of the image's."""
        return max(self.xmax - self.xmin, 0.0) * max(self.ymax - self.ymin, 0.0)

    def overlap(self, other: Box) -> float:
        """The area that both cover, as a share of what either covers."""
        width = min(self.xmax, other.xmax) - max(self.xmin, other.xmin)
        height = min(self.ymax, other.ymax) - max(self.ymin, other.ymin)
        both = max(width, 0.0) * max(height, 0.0)
        return both / max(self.area + other.area - both, 1e-12)


def view_of(
    record: Record,
    stored: StoredDataset,
    image: bytes,
) -> RecordView:
    """A record, with its image not decoded yet."""
    features = record.features
    return RecordView(
        split=record.split,
        number=record.number,
        row=text_of(_first(features, SOURCE_ID)),
        filename=_filename_of(features, stored),
        labels=_labels_of(features, stored),
        masked=bool(mask_of(features, stored)),
        size=len(image),
        files=tuple(
            (text_of(_first(features, field.uri_key)), len(_first(features, field.encoded_key)))
            for field in stored.fields
            if isinstance(field.kind, File)
        ),
    )


def image_of(features: Mapping[str, Values], stored: StoredDataset) -> bytes:
    """The encoded image, with raw pixels turned into a PNG; empty if the record has none."""
    return encoded_of(features, stored.image_key, stored)


def encoded_of(
    features: Mapping[str, Values],
    key: str,
    stored: StoredDataset,
) -> bytes:
    """The image or mask under a key, like `image_of`."""
    data = _first(features, key)
    is_raw = stored.raw and data and stored.features.get(key) == "image"
    return _as_png(features, key.removesuffix("/encoded"), data) if is_raw else data


def _as_png(
    features: Mapping[str, Values],
    stem: str,
    data: bytes,
) -> bytes:
    """Pixels as a file that a viewer can open; unchanged if they contradict the stored sizes."""
    names = ("height", "width", "channels")
    height, width, channels = (int(next(iter(_numbers(features, f"{stem}/{n}")), 0)) for n in names)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels)
    if mode is None or height * width * channels != len(data):
        return data
    return encoded(Image.frombytes(mode, (width, height), data), "PNG")


def mask_field(stored: StoredDataset) -> Field | None:
    """The image's mask; with several masks, the first."""
    for field in stored.fields:
        of_image = isinstance(field.kind, Mask) and image_field(field, stored.fields)
        if of_image and of_image.encoded_key == stored.image_key:
            return field
    return None


def mask_key(stored: StoredDataset) -> str:
    """The key of the image's mask."""
    field = mask_field(stored)
    return field.encoded_key if field else MASK


def mask_of(features: Mapping[str, Values], stored: StoredDataset) -> bytes:
    """The encoded mask; empty if the record has none."""
    return _first(features, mask_key(stored))


def _filename_of(features: Mapping[str, Values], stored: StoredDataset) -> str:
    """The image's uri as the source gave it; empty if it is not known."""
    keys = (f"{stored.image_key.removesuffix('/encoded')}/filename", *_FILENAMES)
    names = (_first(features, key) for key in keys)
    return text_of(next(filter(None, names), b""))


def _labels_of(features: Mapping[str, Values], stored: StoredDataset) -> tuple[str, ...]:
    """The names of a record's classes, or those of its objects if the image itself has none."""
    names = [name for field in stored.fields for name in _names(features, field)]
    return tuple(dict.fromkeys(names or _names(features, _OBJECTS)))


def boxes_of(
    features: Mapping[str, Values],
    stored: StoredDataset,
    size: tuple[int, int],
) -> tuple[Box, ...]:
    """The objects of a record, clipped to the image.

    Args:
        size: width and height of the image.

    Raises:
        ValueError: their keys contradict each other.
    """
    objects = next(iter(of_kind(stored.fields, Boxes)), _OBJECTS)
    corners = corners_of(objects, features, size[::-1]).astype(float)
    if not np.isfinite(corners).all():
        raise ValueError("a side of its boxes is not a number")
    names = _names(features, objects) or _names(features, _OBJECTS) or [""] * len(corners)
    if len(names) != len(corners):
        raise ValueError(f"it has {len(corners)} boxes, but {len(names)} classes of objects")
    inside = np.clip(corners, 0, 1).tolist()
    numbers = {name: number for number, name in enumerate(objects.class_names or ())}
    boxes = []
    for (ymin, xmin, ymax, xmax), name in zip(inside, names, strict=True):
        number = numbers.get(name, zlib.crc32(name.encode(errors="replace")))
        sides = {"xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax}
        boxes.append(Box(**sides, name=name, colour=colour_of(number)))
    return tuple(boxes)


def colour_of(number: int) -> str:
    """The colour of a class, as a style sheet has it."""
    return "#{:02x}{:02x}{:02x}".format(*PALETTE[number % len(PALETTE)])


def _names(features: Mapping[str, Values], labels: Field) -> list[str]:
    texts = features.get(labels.text_key or "")
    if isinstance(texts, list) and texts and all(texts):
        return [text_of(text) for text in texts]
    numbers = _numbers(features, labels.label_key or "")
    whole = [int(n) for n in numbers if float(n).is_integer()]
    return [class_name(labels, n) for n in whole if n != NO_LABEL]


def _numbers(features: Mapping[str, Values], key: str) -> list[float]:
    values = features.get(key)
    return values.tolist() if isinstance(values, np.ndarray) else []


def _first(features: Mapping[str, Values], key: str) -> bytes:
    values = features.get(key)
    return values[0] if isinstance(values, list) and values else b""


def read_picture(data: bytes, side: int = SIDE) -> tuple[Image.Image, tuple[int, int]]:
    """Decode an image no larger than needed.

    Args:
        data: an encoded image.
        side: the longer side you want; an image is never enlarged.

    Returns:
        RGB pixels, and the width and height of the stored image.

    Raises:
        ValueError: nothing decodes it.
    """
    height, width = pixels.shape_of(data)
    shown = Image.fromarray(pixels.decode(data, 3, least=(side, side)))
    shown.thumbnail((side, side), Image.Resampling.BOX)
    return shown, (width, height)


def blur_of(data: bytes) -> float | None:
    """How blurred the middle of an image is: 0 if smoothing takes all of its edges, 1 if none.

    By Crété, Dolmiere, Ladret and Nicolas, "The Blur Effect", 2007: what is sharp loses by
    smoothing, what is blurred hardly does.  None for an image that is flat, tiny or huge.

    Args:
        data: an encoded image, which is decoded in its full size.

    Raises:
        ValueError: nothing decodes it.
    """
    shape = pixels.shape_of(data)
    if math.prod(shape) > _MOST_PIXELS:
        return None
    top, left = (max(0, (side - _MIDDLE) // 2) for side in shape)
    middle = pixels.decode(data, 3)[top:, left:][:_MIDDLE, :_MIDDLE]
    grey = np.asarray(Image.fromarray(middle).convert("L"), np.float64)
    return max(filter(None, (_edges_left(grey), _edges_left(grey.T))), default=None)


def _edges_left(grey: np.ndarray) -> float | None:
    """The share of the differences from row to row that is left if columns are smoothed."""
    if len(grey) < 2 * _SMOOTHED:
        return None
    sums = np.cumsum(np.pad(grey, ((1, 0), (0, 0))), axis=0)
    smooth = (sums[_SMOOTHED:] - sums[:-_SMOOTHED]) / _SMOOTHED
    rim = _SMOOTHED // 2
    before, after = (np.abs(np.diff(rows, axis=0)) for rows in (grey[rim:-rim], smooth))
    total = before.sum()
    return float(1 - np.maximum(before - after, 0).sum() / total) if total else None


def to_jpeg(shown: Image.Image) -> bytes:
    """A picture as a small JPEG."""
    return encoded(shown, "JPEG", quality=72, optimize=True)
