"""Class sheets: pictures or objects of a class side by side, the likeliest wrong labels first.

A label is doubted by the labels of what looks most alike.  What is compared was chosen by a trial:
`docs/design/decisions.md` has its figures.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from PIL import Image

from tfrecorder.errors import OptionError
from tfrecorder.inspection.record_values import (
    SMALL_SIDE,
    Box,
    RecordView,
    read_picture,
    to_jpeg,
)

#: What is compared: how strong gradients of each direction are, in cells of a small picture; and
#: the colours of a tiny one, which weigh less.
_SIDE = 48
_CELL = 8
_DIRECTIONS = 8
_COLOURS = 8
_WEIGHT = 0.5

#: Around an object, a share of its longer side is looked at too.
MARGIN = 0.1

#: Objects of one picture that are looked at, and pictures or objects that are compared.
MOST_OF_ONE = 16
_MOST = 5000

#: How many neighbours vote; a label is doubted if none has it, and so many have one other.
NEIGHBOURS = 8
_OTHER = 6

#: Where fewer labels are those of most neighbours, looks do not tell the classes apart.
_TELLING = 0.7

#: Pictures of a class on its sheet, and on all sheets; classes with a sheet; and in the matrix.
PER_CLASS = 24
_FEWEST = 4
_TILES = 240
_CLASSES = 60
MATRIX_CLASSES = 12

#: An image is decoded up to so many pixels a side for a picture of a small object.
_LARGEST = 2048

#: A box covers nearly the whole picture, or is nearly another, from this share of the area on; so
#: many of the first boxes of a picture are compared with each other, and so many are shown.
_WHOLE = 0.9
NEARLY = 0.8
_COMPARED_BOXES = 50
SHOWN_BOXES = 8

#: Distances are computed for so many at once.
_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class Sighting:
    """A picture, or an object of one, that a sheet may show.

    Attributes:
        view: the record.
        label: of the picture or of the object.
        box: of the object; None for the whole picture.
        own: the share of its neighbours that have its label.
        like: the label that most neighbours have instead, if that is clear; else "".
        distance: the mean to its neighbours.
        tile: the picture, or the part of it with the object, as a JPEG, and its width and height.
    """

    view: RecordView
    label: str
    box: Box | None
    own: float = 1.0
    like: str = ""
    distance: float = 0.0
    tile: tuple[bytes, int, int] = (b"", 0, 0)

    @property
    def oddness(self) -> tuple[float, float]:
        """What sheets are sorted by: doubted ones first, then those that are unlike all others."""
        return min(self.own, 0.5), -self.distance


@dataclasses.dataclass(frozen=True)
class Sheets:
    """What the sheets of a page show.

    Attributes:
        shown: by class, its likeliest wrong labels and its least usual ones.
        doubted: all whose neighbours clearly have another label.
        counts: how many of each class were compared.
        of_objects: they are objects, not pictures.
        agreement: the share of labels that most neighbours have too, 0 to 1.
        matrix: by class and by the class of most of the neighbours, how many; empty if there are
            too many classes.
        by_embeddings: neighbours are those with alike embeddings of the user's.
    """

    shown: Mapping[str, Sequence[Sighting]]
    doubted: Sequence[Sighting]
    counts: Mapping[str, int]
    of_objects: bool
    agreement: float
    matrix: Mapping[str, Mapping[str, int]]
    by_embeddings: bool

    @property
    def tells(self) -> bool:
        """Whether looks tell the classes apart, so that labels can be doubted by them."""
        return self.agreement >= _TELLING


def looks_in(picture: Image.Image, boxes: Sequence[Box]) -> np.ndarray:
    """What is compared of a picture, or of each of its objects if they have names.

    Args:
        picture: RGB, as large as it is shown or larger.

    Returns:
        float16 of [n, 480], of the first `MOST_OF_ONE` objects.
    """
    named = [box for box in boxes if box.name][:MOST_OF_ONE]
    parts = [cropped(picture, box) for box in named] if named else [picture]
    # Half as wide as it is computed: there may be 16 of each of 3,000 pictures.
    return np.stack([_looks(part) for part in parts]).astype(np.float16)


def cropped(picture: Image.Image, box: Box) -> Image.Image:
    """The part of a picture with an object."""
    extent = np.array([*picture.size, *picture.size])
    edges = np.array([box.xmin, box.ymin, box.xmax, box.ymax]) * extent
    rim = max(MARGIN * (edges[2:] - edges[:2]).max(), 1)
    edges = np.clip(edges + [-rim, -rim, rim, rim], 0, extent)
    return picture.crop(tuple(edges.round().astype(int).tolist()))


def tile_of(image: bytes, box: Box | None) -> tuple[bytes, int, int]:
    """A small picture of an image, or of its part with an object, and its width and height.

    Raises:
        ValueError: nothing decodes the image.
    """
    side = SMALL_SIDE
    if box is not None:
        share = max(box.xmax - box.xmin, box.ymax - box.ymin, SMALL_SIDE / _LARGEST)
        side = min(_LARGEST, round(SMALL_SIDE / share))
    picture, _ = read_picture(image, side)
    if box is not None:
        picture = cropped(picture, box)
        picture.thumbnail((SMALL_SIDE, SMALL_SIDE), Image.Resampling.BOX)
    return to_jpeg(picture), *picture.size


def _looks(picture: Image.Image) -> np.ndarray:
    """Gradients and colours of a picture, each with a fixed norm."""
    pixels = _small(picture, _SIDE)
    across = np.zeros_like(pixels)
    down = np.zeros_like(pixels)
    across[:, 1:-1] = pixels[:, 2:] - pixels[:, :-2]
    down[1:-1] = pixels[2:] - pixels[:-2]
    # Of the three channels, the one that changes most.
    channel = np.argmax(across**2 + down**2, axis=-1, keepdims=True)
    across = np.take_along_axis(across, channel, -1)[..., 0]
    down = np.take_along_axis(down, channel, -1)[..., 0]
    angle = (np.arctan2(down, across) % np.pi) * (_DIRECTIONS / np.pi)
    # A gradient counts for the two directions next to its own.
    apart = np.abs(angle[..., None] - np.arange(_DIRECTIONS))
    near = np.maximum(1 - np.minimum(apart, _DIRECTIONS - apart), 0)
    strength = near * np.hypot(across, down)[..., None]
    cells = _SIDE // _CELL
    of_cells = strength.reshape(cells, _CELL, cells, _CELL, _DIRECTIONS).sum((1, 3))
    tiny = _small(picture, _COLOURS)
    return np.concatenate([_normal(np.sqrt(of_cells)), _WEIGHT * _normal(tiny - tiny.mean())])


def _small(picture: Image.Image, side: int) -> np.ndarray:
    small = picture.resize((side, side), Image.Resampling.BOX)
    return np.asarray(small, np.float32) / 255


def _normal(values: np.ndarray) -> np.ndarray:
    flat = values.ravel().astype(np.float32)
    return flat / (np.linalg.norm(flat) + 1e-3)


def sheets_of(views: Sequence[RecordView], by_embeddings: bool = False) -> Sheets | None:
    """The sheets of the records that were looked at; None if there are fewer than two labels.

    If objects have names, they are compared, and else the pictures that have one label.

    Args:
        by_embeddings: `looks` are embeddings of the user's, of whole pictures.

    Raises:
        OptionError: nothing is compared by the embeddings.
    """
    of_objects = any(box.name for view in views for box in view.boxes)
    sightings: list[Sighting] = []
    parts: list[np.ndarray] = []
    for view in views:
        boxes = [box for box in view.boxes if box.name][:MOST_OF_ONE]
        if view.looks is None or len(sightings) >= _MOST:
            continue
        if of_objects:
            sightings += [Sighting(view, box.name, box) for box in boxes]
            parts += [view.looks] if boxes else []
        elif len(view.labels) == 1:
            sightings.append(Sighting(view, view.labels[0], None))
            parts.append(view.looks)
    names, labels = np.unique([one.label for one in sightings], return_inverse=True)
    if by_embeddings and (of_objects or len(names) < 2):
        words = (
            "they compare pictures with one label each, of two labels or more, and here are none; "
            "objects are compared by their own part of the picture. Leave it out."
        )
        raise OptionError.of("embeddings", ..., words)
    if len(names) < 2:
        return None
    voters, distances = _neighbours(np.concatenate(parts).astype(np.float32))
    votes = np.zeros((len(labels), len(names)), np.int64)
    for column in voters.T:
        votes[np.arange(len(labels)), labels[column]] += 1
    likeliest = votes.argmax(axis=1)
    agreement = float((likeliest == labels).mean())
    tells = agreement >= _TELLING
    judged = []
    for place, one in enumerate(sightings):
        own = int(votes[place, labels[place]])
        most = int(votes[place].max())
        is_doubted = tells and not own and most >= _OTHER
        judged.append(
            dataclasses.replace(
                one,
                own=own / voters.shape[1],
                like=str(names[likeliest[place]]) if is_doubted else "",
                distance=float(distances[place]),
            )
        )
    return Sheets(
        shown=_chosen(judged),
        doubted=[one for one in judged if one.like],
        counts=dict(Counter(one.label for one in sightings)),
        of_objects=of_objects,
        agreement=agreement,
        matrix=_matrix(names.tolist(), labels, likeliest),
        by_embeddings=by_embeddings,
    )


def _neighbours(looks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each the places of the most alike others, and its mean squared distance to them."""
    count = min(NEIGHBOURS, len(looks) - 1)
    sizes = (looks**2).sum(axis=1)
    places = []
    distances = []
    for start in range(0, len(looks), _AT_ONCE):
        some = looks[start : start + _AT_ONCE]
        apart = sizes[start : start + len(some), None] + sizes - 2 * some @ looks.T
        apart[np.arange(len(some)), np.arange(start, start + len(some))] = np.inf
        nearest = np.argpartition(apart, count - 1, axis=1)[:, :count]
        places.append(nearest)
        distances.append(np.take_along_axis(apart, nearest, 1).mean(axis=1))
    return np.concatenate(places), np.concatenate(distances)


def _chosen(judged: Sequence[Sighting]) -> dict[str, list[Sighting]]:
    """By class those that a sheet shows; of many classes those with the most doubts have one."""
    by_class: dict[str, list[Sighting]] = {}
    for one in judged:
        by_class.setdefault(one.label, []).append(one)
    names = sorted(by_class)
    if len(names) > _CLASSES:
        names.sort(key=lambda name: -sum(bool(one.like) for one in by_class[name]))
        names = sorted(names[:_CLASSES])
    each = max(_FEWEST, min(PER_CLASS, _TILES // len(names)))
    return {name: sorted(by_class[name], key=lambda one: one.oddness)[:each] for name in names}


def _matrix(
    names: Sequence[str],
    labels: np.ndarray,
    likeliest: np.ndarray,
) -> dict[str, dict[str, int]]:
    """How many of each class have neighbours mostly of each; empty if there are many classes."""
    if len(names) > MATRIX_CLASSES:
        return {}
    counts = np.zeros((len(names), len(names)), np.int64)
    np.add.at(counts, (labels, likeliest), 1)
    return {
        name: dict(zip(names, row, strict=True))
        for name, row in zip(names, counts.tolist(), strict=True)
    }


def extreme_boxes(views: Iterable[RecordView]) -> dict[str, list[Sighting]]:
    """Some of the smallest objects of the records looked at, and of the largest."""
    every = [Sighting(view, box.name, box) for view in views for box in view.boxes]
    every.sort(key=lambda one: one.box.area if one.box else 0)
    if not every:
        return {}
    return {"Smallest boxes": every[:SHOWN_BOXES], "Largest boxes": every[: -SHOWN_BOXES - 1 : -1]}


def whole_boxes(views: Iterable[RecordView]) -> list[Sighting]:
    """Objects whose boxes cover nearly the whole picture."""
    return [
        Sighting(view, box.name, box) for view in views for box in view.boxes if box.area > _WHOLE
    ]


def close_boxes(
    views: Iterable[RecordView],
    least: float,
    is_same_class: bool,
) -> list[tuple[Sighting, Sighting]]:
    """Two objects of one picture whose boxes overlap by a share or more."""
    pairs = []
    for view in views:
        boxes = view.boxes[:_COMPARED_BOXES]
        for one, other in itertools.combinations(boxes, 2):
            if (one.name == other.name) is is_same_class and one.overlap(other) >= least:
                pairs.append((Sighting(view, one.name, one), Sighting(view, other.name, other)))
    return pairs
