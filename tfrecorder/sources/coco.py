"""COCO's JSON: `instances_*` with boxes, `captions_*` with texts; one row for each image."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image as Pictures

from tfrecorder import storage
from tfrecorder.errors import SourceError
from tfrecorder.images.boxes_and_masks import rle_of
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Kind, Number, Schema, Split, Text
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.objects import MASKS, as_numbers, object_columns, objects_of
from tfrecorder.sources.path_source import (
    Pairs,
    PathSource,
    common_folder,
    refuse_table_options,
    split_in,
    uri_below,
)
from tfrecorder.sources.table import RawTable, in_lists

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


def _uris_of(
    file: File,
    root: str,
    base: str,
    given: str | None,
) -> list[str]:
    """The uris of a file's images, from the folder of all.

    Names that were written on another machine lead nowhere; then a picture is found by the end of
    its path, if no other below the folder has the same.

    Args:
        root: the folder of the images, as far as the file's own place tells.
        base: the folder of all.
        given: the folder that the user stated instead.
    """
    below = root.removeprefix(base).strip("/")
    stem = file.path.rpartition("/")[2].removesuffix(".json").rpartition("_")[2]
    names = [name_of(image) for image in file.images]
    first = names[0].encode(errors="replace").decode() if names else ""
    folders = [""] if given else ["", "images", stem, f"images/{stem}"]
    starts = ["".join(f"{part}/" for part in (below, folder) if part) for folder in folders]
    top = storage.absolute(storage.given_path(given)) if given else base
    if given:
        starts = [""]
    for start in starts:
        if first and storage.exists(storage.resolve(uri_below(start, first), top)):
            return [uri_below(start, name) for name in names]
    files = storage.files_below(top) if storage.is_folder(top) else []
    pairs = Pairs(name for name in files if name.lower().endswith(IMAGE_ENDINGS))
    return [pairs.named(name) or uri_below(starts[0], name) for name in names]


def _split_of(file: File, found: bool) -> str:
    """The split that the name of a file states, or that of its folder.

    Args:
        found: the folder was given, not the file.
    """
    folder, _, name = file.path.rpartition("/")
    stated = "" if name == BESIDE else split_in(name)
    of_folder = split_in(folder.rpartition("/")[2])
    return stated or (of_folder if found or name == BESIDE else "")


def name_of(image: dict[str, Any]) -> str:
    """The path of an image; one that was written on Windows has other separators."""
    name = str(image["file_name"])
    return name if "/" in name else name.replace("\\", "/")


#: How far, in pixels, a box may be beyond its image: tools round differently.
_SLACK = 1.0


class _Images(NamedTuple):
    """The images of all files: the row of each by its split and uri; and what is known of each."""

    rows: dict[tuple[str, str], int]
    ids: list[Any]
    sizes: list[tuple[Any, Any]]


def read_coco(source: Any, options: ConvertOptions) -> RawTable | None:
    """COCO's JSON: a file, several, or a folder that has them."""
    if not isinstance(source, PathSource) or options.form not in (None, "coco"):
        return None
    paths = source.files or tuple(files_in(source.folder))
    if not paths or not all(path.lower().endswith(".json") for path in paths):
        return None
    refuse_table_options(options, "COCO's JSON")
    masks = options.schema is not None and MASKS in options.schema.source_columns()
    files = [read_file(path, masks) for path in paths]
    roots = [storage.parent(path).removesuffix("/annotations") for path in paths]
    base = source.folder or common_folder(roots)
    findings: list[Finding] = []
    names = _class_names(files, findings)
    images = _Images({}, [], [])
    frames = []
    captions = list[tuple[int, Any]]()
    for file, root in zip(files, roots, strict=True):
        uris = _uris_of(file, root, base, options.base)
        of_ids = _add_images(images, file, uris, _split_of(file, bool(source.folder)), findings)
        every = file.annotations
        rows = np.array([of_ids.get(number, -1) for number in every["image_id"]], np.int64)
        objects = _objects(file, rows, names, masks)
        is_text = np.array([text is not None for text in every["caption"]], bool)
        is_unclassed = (objects[LABEL_COLUMN] == "").to_numpy(dtype=bool)
        findings += _of_no_use(file, rows, is_unclassed & ~is_text)
        has_image = rows >= 0
        frames.append(objects[has_image & ~is_unclassed & ~is_text])
        for place in np.flatnonzero(has_image & is_text):
            captions.append((rows[place], every["caption"][place]))
    columns, kinds = _columns(images, pd.concat(frames), captions, findings)
    schema = options.schema or Schema({SPLIT_COLUMN: Split(required=False), **kinds})
    classes = {LABEL_COLUMN: names} if names else {}
    frame = pd.DataFrame(columns)
    return RawTable(
        frame,
        base,
        findings=findings,
        schema=schema,
        classes=classes,
    )


def _class_names(files: Sequence[File], findings: list[Finding]) -> tuple[str, ...]:
    """The names of all categories in the order of the first file that has them."""
    names: dict[str, None] = {}
    for file in files:
        of_file = set()
        ids = set()
        for category in file.categories:
            name = str(category.get("name", category["id"]))
            if name in of_file or category["id"] in ids:
                message = f"{file.path}: the category {name!r}, id {category['id']}, is there twice"
                findings.append(bad_annotation(None, LABEL_COLUMN, name, message))
            of_file.add(name)
            ids.add(category["id"])
            names.setdefault(name)
    return tuple(names)


def _add_images(
    images: _Images,
    file: File,
    uris: Sequence[str],
    split: str,
    findings: list[Finding],
) -> dict[Any, int]:
    """Add the images of a file that are not there yet; the row of each of its ids."""
    of_ids: dict[Any, int] = {}
    for image, uri in zip(file.images, uris, strict=True):
        number = image["id"]
        row = images.rows.setdefault((split, uri), len(images.rows))
        if row == len(images.ids):
            images.ids.append(number)
            images.sizes.append((image.get("width") or None, image.get("height") or None))
        if of_ids.setdefault(number, row) != row:
            message = f"{file.path}: two images have the id {number!r}; the second is {uri!r}"
            findings.append(bad_annotation(row, URI_COLUMN, number, message))
    return of_ids


def _objects(
    file: File,
    rows: np.ndarray,
    names: Sequence[str],
    masks: bool,
) -> pd.DataFrame:
    """The annotations of a file as objects; the label of one without a category is ""."""
    every = file.annotations
    of_file = {entry["id"]: str(entry.get("name", entry["id"])) for entry in file.categories}
    number_of = {name: number for number, name in enumerate(names)}
    codes = {number: number_of[name] for number, name in of_file.items()}
    classes = np.array([codes.get(number, -1) for number in every["category_id"]], np.int64)
    boxes = as_numbers(every["bbox"], 4)
    starts = boxes[:, :2]
    sizes = boxes[:, 2:]
    areas = as_numbers(every["area"])
    box_areas = sizes[:, 0] * sizes[:, 1]
    return objects_of(
        rows=rows,
        labels=np.array([*names, ""], dtype=object)[classes],
        edges=np.hstack([starts, starts + sizes]),
        beside={
            "is_crowd": np.array([int(bool(crowd)) for crowd in every["iscrowd"]], np.int64),
            "area": np.where(np.isnan(areas), box_areas, areas),
            **({MASKS: np.array(masks_of(file), dtype=object)} if masks else {}),
        },
    )


def _of_no_use(
    file: File,
    rows: np.ndarray,
    unclassed: np.ndarray,
) -> Iterator[Finding]:
    """Annotations without an image or a category that the file has."""
    for place in np.flatnonzero((rows < 0) | unclassed).tolist():
        row = int(rows[place]) if rows[place] >= 0 else None
        unknown = "image" if row is None else "category"
        stated = file.annotations[f"{unknown}_id"][place]
        message = f"{file.path}: an annotation is of no use: no {unknown} has the id {stated!r}"
        yield bad_annotation(row, LABEL_COLUMN, str(stated), message)


def _columns(
    images: _Images,
    objects: pd.DataFrame,
    captions: list[tuple[int, Any]],
    findings: list[Finding],
) -> tuple[dict[str, Any], dict[str, Kind]]:
    """The columns of all images, and the kinds of these."""
    splits = [split for split, _ in images.rows]
    uris = [uri for _, uri in images.rows]
    numbers = all(isinstance(number, int) for number in images.ids)
    columns: dict[str, Any] = {SPLIT_COLUMN: splits} if any(splits) else {}
    # Not as pandas' own text, which holds no bad text: validation reports it.
    columns[URI_COLUMN] = pd.Series(uris, dtype=object)
    columns["image_id"] = images.ids if numbers else [*map(str, images.ids)]
    kinds: dict[str, Kind] = {URI_COLUMN: Image()}
    kinds["image_id"] = Number(dtype="int64") if numbers else Text()
    if captions:
        captions = sorted(captions, key=lambda pair: pair[0])
        counts = np.bincount([row for row, _ in captions], minlength=len(uris))
        texts = np.array([*(text for _, text in captions), None], dtype=object)
        columns["caption"] = in_lists(texts, counts)
        kinds["caption"] = Text(shape=(None,))
    if len(objects) or not captions:
        of_boxes, wrong = object_columns(objects, uris, as_numbers(images.sizes, 2), _SLACK)
        findings += wrong
        columns |= of_boxes
        kinds["boxes"] = Boxes(unit="pixel")
        kinds["is_crowd"] = Number(dtype="int64", of="boxes")
        kinds["area"] = Number(of="boxes")
    return columns, kinds
