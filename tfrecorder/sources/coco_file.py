"""A file of COCO's JSON: its images and categories, and what is needed of its annotations."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image as Pictures

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.text import NotTextError, decoded
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import SourceError
from tfrecorder.images.boxes_and_masks import rle_of
from tfrecorder.sources.objects import MASKS
from tfrecorder.sources.path_source import refuse_pointer

#: What is kept of each annotation.
_KEPT = ("image_id", "category_id", "bbox", "iscrowd", "area", "caption", MASKS)

#: What says nothing beyond that.
_NO_VALUES = frozenset([*_KEPT[:-1], "id", "num_keypoints", "segments_info", "file_name"])

#: What some of the other values are, in words.
_KINDS = {"keypoints": "key points", MASKS: "masks"}


class CocoImage(NamedTuple):
    """An image: its id, its path in the words of this machine, and its stated width and height."""

    id: Any
    name: str
    size: tuple[Any, Any]


class CocoFile(NamedTuple):
    """A file of annotations.

    Attributes:
        annotations: by each of `_KEPT` the values of all; None for one that is not there, and masks
            as JSON.
        categories: the id and the name of each.
        others: how many annotations have something else, by what it is in words.
    """

    path: str
    images: list[CocoImage]
    annotations: dict[str, list[Any]]
    categories: list[tuple[Any, str]]
    others: Counter[str]


def read_file(path: str, masks: bool) -> CocoFile:
    """A file, with what is needed of its annotations, which may be millions.

    Args:
        masks: False leaves out those of the objects.

    Raises:
        SourceError: it is not COCO's, or says only of which class whole images are.
    """
    made = list[Any]()  # of all annotations, flat: a container for each takes a second a million
    others = Counter[str]()
    passed = {*_NO_VALUES, MASKS} if masks else _NO_VALUES
    names_of: dict[tuple[str, ...], list[str]] = {}  # most annotations have the same few

    def slim(value: dict[str, Any]) -> Any:
        """The object itself; or True for an annotation, of which some values are kept."""
        if "image_id" not in value:
            return value
        for annotation in _objects_in(value):
            made.extend(map(annotation.get, _KEPT[:-1]))
            # As JSON, which takes a tenth of the memory.
            made.append(json.dumps(annotation.get(MASKS)) if masks else None)
            keys = tuple(annotation)
            if (names := names_of.get(keys)) is None:
                names = [key for key in keys if key not in passed]
                names_of[keys] = names
            for name in names:
                held = annotation[name]
                if name == "attributes" and isinstance(held, dict):
                    others.update(f"the attribute {cut(key)!r}" for key in held if held[key])
                elif held and (name != "keypoints" or annotation.get("num_keypoints") != 0):
                    others[_KINDS.get(name, repr(cut(name)))] += 1
        return True

    refuse_pointer(path)
    try:
        with storage.local_copy(path) as copy:
            document = json.loads(decoded(Path(copy).read_bytes()), object_hook=slim)
    except NotTextError as error:
        raise SourceError(f"{path}, {error}.") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not sound JSON: {error}.") from error
    annotations = {name: made[place :: len(_KEPT)] for place, name in enumerate(_KEPT)}
    images = []
    categories = []
    entry = document
    try:
        for entry in document["images"]:
            size = entry.get("width") or None, entry.get("height") or None
            images.append(CocoImage(entry["id"], _path_in(entry["file_name"]), size))
        for entry in document.get("categories", ()):
            name = entry.get("name")
            categories.append((entry["id"], str(entry["id"] if name is None else name)))
        for entry in document.get("annotations", ()):
            if entry is not True:
                raise TypeError
        entry = "an id that is a list or an object"
        {*annotations["image_id"], *annotations["category_id"]}
    except (KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"{path} is not COCO's JSON because of {str(entry)[:200]}. Of its lists, images have id "
            "and file_name, annotations image_id, categories id and name. Read any other JSON with "
            "pandas, and convert the frame."
        ) from error
    stated = (value for name in ("bbox", "caption") for value in annotations[name])
    if made and all(value is None for value in stated):
        count = counted(len(annotations["bbox"]), "annotation")
        raise SourceError(
            f"{path}: none of its {count} has a `bbox`. If they are classes of whole images, as in "
            "iNaturalist, convert a table with the columns image_uri and label; "
            f"{spelled('form', 'folder')} takes them from folders."
        )
    return CocoFile(path, images, annotations, categories, others)


def _path_in(name: Any) -> str:
    """The path of an image; one that was written on Windows has other separators."""
    path = str(name)
    return path if "/" in path else path.replace("\\", "/")


def _objects_in(annotation: dict[str, Any]) -> list[dict[str, Any]]:
    """The annotation itself; of a panoptic one its segments, whose mask says where its pixels are.

    Source: https://cocodataset.org/#format-data
    """
    if "segments_info" not in annotation:
        return [annotation]
    png = annotation.get("file_name")
    return [
        {**part, "image_id": annotation["image_id"], MASKS: {"png": png, "id": part.get("id")}}
        for part in annotation["segments_info"]
    ]


def masks_of(file: CocoFile) -> list[str | None]:
    """The masks of a file's annotations as JSON; those of segments as RLE, from their PNGs.

    The PNGs are in the folder beside the file that has its name.
    """
    masks = []
    png = ""
    ids = np.zeros((0, 0), np.int64)
    for text in file.annotations[MASKS]:
        if text is not None and text.startswith('{"png":'):
            segment = json.loads(text)
            if segment["png"] != png:
                png = segment["png"]
                ids = _segments(f"{file.path.removesuffix('.json')}/{png}")
            if ids.size:
                text = json.dumps(rle_of(ids == segment["id"]))
        masks.append(text)
    return masks


def _segments(path: str) -> np.ndarray:
    """The number of the segment that each pixel of a panoptic PNG belongs to: its colour."""
    try:
        with Pictures.open(io.BytesIO(storage.read_bytes(path))) as opened:
            colours = np.asarray(opened.convert("RGB"), np.int64)
    except (OSError, storage.UnreadableError):
        return np.zeros((0, 0), np.int64)  # a mask that is missing is a fault of its row
    return colours @ np.array([1, 2**8, 2**16])
