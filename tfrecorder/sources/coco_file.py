"""A file of COCO's JSON: its images and categories, and what is needed of its annotations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.text import NotTextError, decoded, read_json
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import SourceError
from tfrecorder.images.boxes_and_masks import rle_of
from tfrecorder.images.pixels import decode_in_full
from tfrecorder.sources.objects import MASKS
from tfrecorder.sources.path_source import refuse_pointer

#: What is kept of each annotation.
_PLAIN = ("image_id", "category_id", "iscrowd", "area", "caption")
KEPT = (*_PLAIN, "bbox", MASKS)

#: What says nothing beyond that.
_NO_VALUES = frozenset([*_PLAIN, "bbox", "id", "num_keypoints", "segments_info", "file_name"])

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
        annotations: by each of `KEPT` the values of all; None for one that is not there, and masks
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
    folder = path.removesuffix(".json")
    passed = {*_NO_VALUES, MASKS} if masks else _NO_VALUES
    # By the names in an annotation, those that say more, in words too; most have the same few.
    names_of: dict[tuple[str, ...], list[tuple[str, str]]] = {}

    def slim(value: dict[str, Any]) -> Any:
        """The object itself; or True for an annotation, of which some values are kept."""
        if "image_id" not in value:
            return value
        is_panoptic = "segments_info" in value
        for annotation in _segments_in(value, folder, masks) if is_panoptic else (value,):
            made.extend(map(annotation.get, _PLAIN))
            box = annotation.get("bbox")
            # Python's collector passes over tuples of numbers, but looks at all lists again and
            # again, for half a second a million.
            made.append(tuple(box) if isinstance(box, list) else box)
            # As JSON, which takes a tenth of the memory.
            made.append(json.dumps(annotation.get(MASKS)) if masks else None)
            keys = tuple(annotation)
            if (names := names_of.get(keys)) is None:
                more = (key for key in keys if key not in passed)
                names = [(key, _KINDS.get(key, repr(cut(key)))) for key in more]
                names_of[keys] = names
            for name, words in names:
                held = annotation[name]
                if not held or (name == "keypoints" and annotation.get("num_keypoints") == 0):
                    continue
                if name == "attributes" and isinstance(held, dict):
                    others.update(f"the attribute {cut(key)!r}" for key in held if held[key])
                else:
                    others[words] += 1
        return True

    refuse_pointer(path)
    try:
        with storage.local_copy(path) as copy:
            document = read_json(decoded(Path(copy).read_bytes()), object_hook=slim)
    except NotTextError as error:
        raise SourceError(f"{path}, {error}.") from error
    except ValueError as error:
        raise SourceError(f"{path} is not sound JSON: {error}.") from error
    annotations = {name: made[place :: len(KEPT)] for place, name in enumerate(KEPT)}
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
        of_lists = [annotations["image_id"], annotations["category_id"]]
        of_lists += [[image.id for image in images], [number for number, _ in categories]]
        if any(not {*map(type, ids)}.isdisjoint((list, dict)) for ids in of_lists):
            raise TypeError
    except (KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"{path} is not COCO's JSON because of {str(entry)[:200]}. In its lists, images have "
            "id and file_name, annotations image_id, categories id and name. Read any other JSON "
            "with pandas, and convert the frame."
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


def _segments_in(
    annotation: dict[str, Any],
    folder: str,
    masks: bool,
) -> Iterator[dict[str, Any]]:
    """The segments of a panoptic annotation, with their masks as RLE.

    Source: https://cocodataset.org/#format-data

    Args:
        folder: where the PNG is that has the pixels of all.
    """
    png = annotation.get("file_name")
    ids = _ids_in(f"{folder}/{png}") if masks else None
    for part in annotation["segments_info"]:
        # A mask that is missing is a fault of its row.
        segment = part.get("id")
        mask = {"png": png, "id": segment} if ids is None else rle_of(ids == segment)
        yield {**part, "image_id": annotation["image_id"], MASKS: mask}


def _ids_in(path: str) -> np.ndarray | None:
    """The number of the segment that each pixel of a panoptic PNG belongs to: its colour."""
    try:
        colours = decode_in_full(storage.read_bytes(path), 3).astype(np.int64)
    except (ValueError, storage.UnreadableError):
        return None
    return colours @ np.array([1, 2**8, 2**16])
