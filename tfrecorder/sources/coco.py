"""COCO's JSON: `instances_*` with boxes, `captions_*` with texts; one row for each image."""

from __future__ import annotations

import bisect
import json
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.text import NotTextError, composed, decoded, encoding_of
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import SourceError
from tfrecorder.images.boxes_and_masks import rle_of
from tfrecorder.images.pixels import decode_in_full
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Kind, Number, Schema, Split, Text
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.objects import (
    MASKS,
    Said,
    as_numbers,
    object_columns,
    objects_of,
    say_not_stored,
    say_unused,
)
from tfrecorder.sources.path_source import (
    Pairs,
    PathSource,
    common_folder,
    refuse_pointer,
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

#: What says nothing beyond that.
_NO_VALUES = frozenset([*_KEPT[:-1], "id", "num_keypoints", "segments_info", "file_name"])

#: What some of the other values are, in words.
_KINDS = {"keypoints": "key points", MASKS: "masks"}

#: How some of them would be stored.
_REMEDIES = {"masks": "`Boxes(unit='pixel', masks='segmentation')` in a schema stores them"}


class File(NamedTuple):
    """A file of annotations.

    Attributes:
        annotations: by each of `_KEPT` the values of all; None for one that is not there, and masks
            as JSON.
        others: how many annotations have something else, by its name.
    """

    path: str
    images: list[dict[str, Any]]
    annotations: dict[str, list[Any]]
    categories: list[dict[str, Any]]
    others: Mapping[str, int]


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
    others = Counter[str]()
    attributes = Counter[str]()
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
                if not annotation[name]:
                    continue
                others[name] += 1
                if name == "attributes" and isinstance(annotation[name], dict):
                    attributes.update(key for key, value in annotation[name].items() if value)
                if name == "keypoints" and annotation.get("num_keypoints") == 0:
                    others[name] -= 1
        return True

    refuse_pointer(path)
    with storage.local_copy(path) as copy:
        with open(copy, "rb") as start:
            encoding = encoding_of(start.read(4))
        try:
            with open(copy, encoding=encoding) as file:
                document = json.load(file, object_hook=slim)
        except UnicodeError as error:
            raise SourceError(f"{path}, {_not_text(copy)}.") from error
        except (ValueError, RecursionError) as error:
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
    if attributes:
        del others["attributes"]
    words = {_KINDS.get(name, repr(cut(name))): count for name, count in others.items()}
    words |= {f"the attribute {cut(name)!r}": count for name, count in attributes.items()}
    return File(path, images, columns, categories, words)


def _not_text(copy: str) -> str:
    """Where a file is of no encoding that is read."""
    try:
        decoded(Path(copy).read_bytes())
    except NotTextError as error:
        return str(error)
    return "it is cut off"


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
        pixels = decode_in_full(storage.read_bytes(path), 3)
    except (ValueError, storage.UnreadableError):
        return np.zeros((0, 0), np.int64)  # a mask that is missing is a fault of its row
    return pixels.astype(np.int64) @ [1, 256, 65536]


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

    Raises:
        SourceError: several have it.
    """
    below = root.removeprefix(base).strip("/")
    stem = file.path.rpartition("/")[2].removesuffix(".json").rpartition("_")[2]
    names = [name_of(image) for image in file.images]
    first = names[0].encode(errors="replace").decode() if names else ""
    starts = [""]
    top = storage.absolute(storage.given_path(given)) if given else base
    if not given:
        folders = ("", "images", stem, f"images/{stem}")
        starts = ["".join(f"{part}/" for part in (below, folder) if part) for folder in folders]
    for start in starts:
        if first and storage.exists(storage.resolve(uri_below(start, first), top)):
            return [uri_below(start, name) for name in names]
    files = storage.files_below(top) if storage.is_folder(top) else []
    pairs = Pairs(name for name in files if name.lower().endswith(IMAGE_ENDINGS))
    for name in names:
        found = pairs.all_named(name)
        if len(found) > 1:
            raise SourceError(
                f"{file.path}: the image {name!r} is not where it says, and {len(found)} have its "
                f"name: {', '.join(found[:3])}. Correct file_name, or give the folder of its "
                f"images as {spelled('base')}."
            )
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
    """The images of all files: the row of each by split and place, and what is known of each."""

    rows: dict[tuple[str, str], int]
    ids: list[Any]
    uris: list[str]
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
    for file in files:
        _refuse_without_boxes(file)
    roots = [storage.parent(path).removesuffix("/annotations") for path in paths]
    base = source.folder or common_folder(roots)
    said = Said([], [])
    names = _class_names(files, said.findings)
    images = _Images({}, [], [], [])
    frames = []
    captions = list[tuple[int, Any]]()
    starts_of = [0]  # the number that the first annotation of each file has among those of all
    for file, root in zip(files, roots, strict=True):
        uris = _uris_of(file, root, base, options.base)
        split = _split_of(file, bool(source.folder))
        of_ids = _add_images(images, file, uris, split, said.findings)
        every = file.annotations
        rows = np.array([of_ids.get(number, -1) for number in every["image_id"]], np.int64)
        objects = _objects(file, rows, names, masks)
        objects.index += starts_of[-1]
        starts_of.append(starts_of[-1] + len(rows))
        is_text = np.array([text is not None for text in every["caption"]], bool)
        is_unclassed = (objects[LABEL_COLUMN] == "").to_numpy(dtype=bool)
        said.findings.extend(_of_no_use(file, rows, is_unclassed & ~is_text))
        has_image = rows >= 0
        frames.append(objects[has_image & ~is_unclassed & ~is_text])
        for place in np.flatnonzero(has_image & is_text):
            captions.append((rows[place], every["caption"][place]))

    def place_of(number: int) -> str:
        file = bisect.bisect(starts_of, number) - 1
        return f"{paths[file]}: annotations[{number - starts_of[file]}]"

    objects = pd.concat(frames)
    columns, kinds = _columns(images, objects, captions, said.findings, place_of)
    not_stored = Counter[str]()
    for file in files:
        not_stored.update(file.others)
    say_not_stored(said, not_stored, _REMEDIES)
    if "boxes" in kinds:
        say_unused(said, names, objects[LABEL_COLUMN].unique())
    schema = options.schema or Schema({SPLIT_COLUMN: Split(required=False), **kinds})
    classes = {LABEL_COLUMN: names} if names else {}
    frame = pd.DataFrame(columns)
    return RawTable(
        frame,
        base,
        findings=said.findings,
        notes=said.notes,
        schema=schema,
        classes=classes,
    )


def _refuse_without_boxes(file: File) -> None:
    """Raise a SourceError if annotations say nothing of where their objects are, nor in words.

    They are classes of whole images, as iNaturalist has them.
    """
    of_file = file.annotations
    stated = (value for name in ("bbox", "caption") for value in of_file[name])
    if of_file["image_id"] and all(value is None for value in stated):
        raise SourceError(
            f"{file.path}: none of its {counted(len(of_file['image_id']), 'annotation')} has a "
            "`bbox`. If they are classes of whole images, convert a table with the columns "
            f"image_uri and label; {spelled('form', 'folder')} takes them from folders."
        )


def _class_names(files: Sequence[File], findings: list[Finding]) -> tuple[str, ...]:
    """The names of all categories in the order of the first file that has them.

    Of two with one name that are in a file, one may be of no use: some tools write such twins.
    """
    names: dict[str, str] = {}
    for file in files:
        of_file: dict[str, list[Any]] = {}
        ids: dict[Any, str] = {}
        for category in file.categories:
            number = category["id"]
            name = str(category.get("name", number))
            look = composed(name)
            same = of_file.setdefault(look, [])
            if ids.setdefault(number, look) != look:
                findings.append(_twice(file, name, number))
            elif number not in same:
                same.append(number)
            names.setdefault(look, name)
        if len(of_file) < len(ids):
            used = {*file.annotations["category_id"]}
            for look, same in of_file.items():
                several = [number for number in same if number in used]
                findings += [_twice(file, names[look], number) for number in several[1:]]
    return tuple(names.values())


def _twice(
    file: File,
    name: str,
    number: Any,
) -> Finding:
    message = f"{file.path}: the category {name!r}, id {number}, is there twice"
    return bad_annotation(None, LABEL_COLUMN, name, message)


def _add_images(
    images: _Images,
    file: File,
    uris: Sequence[str],
    split: str,
    findings: list[Finding],
) -> dict[Any, int]:
    """Add the images of a file that are not there yet; the row of each of its ids."""
    of_ids: dict[Any, int] = {}
    of_rows: dict[int, dict[str, Any]] = {}
    for image, uri in zip(file.images, uris, strict=True):
        number = image["id"]
        place = posixpath.normpath(uri) if "./" in uri or "//" in uri else uri
        row = images.rows.setdefault((split, place), len(images.ids))
        if row == len(images.ids):
            images.ids.append(number)
            images.uris.append(uri)
            images.sizes.append((image.get("width") or None, image.get("height") or None))
        first = of_rows.setdefault(row, image)
        if of_ids.setdefault(number, row) != row:
            message = f"{file.path}: two images have the id {number!r}; the second is {uri!r}"
            findings.append(bad_annotation(row, URI_COLUMN, number, message))
        elif first is not image:
            shown = [f"{cut(name_of(entry))!r}, id {entry['id']}" for entry in (first, image)]
            message = f"{file.path} lists one image as {shown[0]}, and as {shown[1]}"
            findings.append(Finding("listed_twice", [row], URI_COLUMN, [uri], message))
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
    number_of = {composed(name): number for number, name in enumerate(names)}
    codes = {number: number_of[composed(name)] for number, name in of_file.items()}
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
    place_of: Callable[[int], str],
) -> tuple[dict[str, Any], dict[str, Kind]]:
    """The columns of all images, and the kinds of these."""
    splits = [split for split, _ in images.rows]
    uris = images.uris
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
        sizes = as_numbers(images.sizes, 2)
        of_boxes, wrong = object_columns(objects, uris, sizes, _SLACK, place_of)
        findings += wrong
        columns |= of_boxes
        kinds["boxes"] = Boxes(unit="pixel")
        kinds["is_crowd"] = Number(dtype="int64", of="boxes")
        kinds["area"] = Number(of="boxes")
    return columns, kinds
