"""The files of COCO's JSON, and where their images are."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image as Pictures

from tfrecorder import storage
from tfrecorder.errors import SourceError
from tfrecorder.images.boxes_and_masks import rle_of
from tfrecorder.sources.objects import MASKS

#: The name of the file that Roboflow writes beside the images of a split.
BESIDE = "_annotations.coco.json"

#: The folders where such files are.
_FOLDERS = ("", "/train", "/valid", "/val", "/validation", "/test")


#: What is kept of each annotation.
_KEPT = ("image_id", "category_id", "bbox", "iscrowd", "area", "caption", MASKS)


class File(NamedTuple):
    """A file of annotations.

    Attributes:
        annotations: by each of `_KEPT` the values of all; None for one that is not there, and masks
            as JSON.
    """

    path: str
    images: list[dict[str, Any]]
    annotations: dict[str, list[Any]]
    categories: list[dict[str, Any]]


def files_in(folder: str) -> Iterator[str]:
    """The files of a folder of COCO's or of Roboflow's form; none in any other folder."""
    names = [name for name in storage.names(f"{folder}/annotations") if name.endswith(".json")]
    chosen = [name for name in names if name.startswith("instances")] or names
    yield from (f"{folder}/annotations/{name}" for name in chosen)
    beside = (f"{folder}{below}/{BESIDE}" for below in _FOLDERS)
    yield from (path for path in beside if not names and storage.size(path) is not None)


def read_file(path: str, masks: bool) -> File:
    """A file, with what is needed of its annotations, which may be millions.

    Args:
        masks: False leaves out those of the objects.

    Raises:
        SourceError: it is not COCO's.
    """
    made = list[Any]()  # of all annotations, flat: a container for each takes a second a million

    def slim(value: dict[str, Any]) -> Any:
        """The object itself; or True for an annotation, of which some values are kept."""
        if "image_id" not in value:
            return value
        for annotation in _objects_in(value):
            made.extend(map(annotation.get, _KEPT[:-1]))
            # As JSON, which takes a tenth of the memory.
            made.append(json.dumps(annotation.get(MASKS)) if masks else None)
        return True

    with storage.local_copy(path) as copy, open(copy, encoding="utf-8-sig") as file:
        try:
            document = json.load(file, object_hook=slim)
        except ValueError as error:
            raise SourceError(f"{path} is not sound JSON: {error}.") from error
    held = document if isinstance(document, dict) and "images" in document else {"images": None}
    names = ("images", "annotations", "categories")
    parts: list[Any] = [held.get(name, []) for name in names]
    if not all(isinstance(values, list) for values in parts):
        raise SourceError(
            f"{path} is not COCO's JSON, an object with the lists images, annotations and "
            "categories; read any other with pandas, and convert the frame."
        )
    images, annotations, categories = parts
    columns = {name: made[place :: len(_KEPT)] for place, name in enumerate(_KEPT)}
    named = (int, float, str)
    wrong = [
        value
        for value in (*images, *categories)
        if not (isinstance(value, dict) and isinstance(value.get("id"), named))
    ]
    wrong += [image for image in images if "file_name" not in image]
    wrong += [value for value in annotations if value is not True]
    wrong += [
        number
        for number in (*columns["image_id"], *columns["category_id"])
        if isinstance(number, (list, dict))
    ]
    if wrong:
        raise SourceError(
            f"{path}: {str(wrong[0])[:200]} is not as COCO has it: images have id and file_name, "
            "annotations image_id, categories id and name."
        )
    return File(path, images, columns, categories)


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


def masks_of(file: File) -> list[str | None]:
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
            red, green, blue = np.moveaxis(np.asarray(opened.convert("RGB"), np.int64), 2, 0)
    except (OSError, storage.UnreadableError):
        return np.zeros((0, 0), np.int64)  # a mask that is missing is a fault of its row
    return red + 256 * green + 65536 * blue


def start_of(file: File, root: str, base: str) -> str:
    """What the uris of a file's images start with, below the folder of all."""
    below = root.removeprefix(base).strip("/")
    stem = file.path.rpartition("/")[2].removesuffix(".json").rpartition("_")[2]
    first = name_of(file.images[0]).encode(errors="replace").decode() if file.images else ""
    for folder in ("", "images", stem, f"images/{stem}"):
        start = "".join(f"{part}/" for part in (below, folder) if part)
        if first and storage.exists(f"{base}/{start}{first}"):
            return start
    return f"{below}/" if below else ""


def name_of(image: dict[str, Any]) -> str:
    """The path of an image; one that was written on Windows has other separators."""
    name = str(image["file_name"])
    return name if "/" in name else name.replace("\\", "/")
