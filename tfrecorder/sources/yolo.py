"""A folder of YOLO's form: `data.yaml`, and a text file with the objects of each image."""

from __future__ import annotations

import json
import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.text import NotTextError, composed, decoded, read_yaml, typed
from tfrecorder.display.tables import counted
from tfrecorder.errors import MissingSourceError, SourceError
from tfrecorder.format import layout
from tfrecorder.images.boxes_and_masks import plane_of
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import BOX_COLUMNS, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Schema, Split
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.label_files import label_files
from tfrecorder.sources.named_files import in_threads
from tfrecorder.sources.objects import (
    MASKS,
    ROW,
    files_of,
    groups_beside,
    has_masks,
    header_at,
    image_columns,
    lines_in,
    object_columns,
    objects_of,
    text_of,
)
from tfrecorder.sources.path_source import PathSource, refuse_table_options, split_of_folders
from tfrecorder.sources.remarks import Remarks
from tfrecorder.sources.table import ROUNDED, RawTable

#: How the files end that name YOLO's classes, and what is in them, the one that says most first: of
#: Darknet, of Ultralytics, of Darknet again, and of labelImg and Label Studio.
CONFIGS = {
    ".data": r"(?m)^\s*names\s*=",
    ".yaml": r"(?m)^names\s*:[\s\S]*^(train|val)\s*:|^(train|val)\s*:[\s\S]*^names\s*:",
    ".yml": r"(?m)^names\s*:[\s\S]*^(train|val)\s*:|^(train|val)\s*:[\s\S]*^names\s*:",
    ".names": r"\S",
    "classes.txt": r"\S",
}

#: The names of such a file at the top of a folder; the last counts only beside `labels`.
_AT_TOP = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt")

#: The names of the lists that Darknet has, and the splits in the words of Ultralytics.
_DARKNET_LISTS = {"train": "train", "valid": "val", "val": "val", "test": "test"}

_SCHEMA = Schema({SPLIT_COLUMN: Split(required=False), URI_COLUMN: Image(), "boxes": Boxes()})

#: How far a box may be beyond an image whose size is not known, as a fraction.
_SLACK = 1e-3


def read_yolo(source: Any, options: ConvertOptions) -> RawTable | None:
    """A file that names classes and says where images are, or a folder with one at its top.

    Args:
        source: one with both is a file that was found below the folder.
    """
    if not isinstance(source, PathSource) or options.form not in (None, "yolo"):
        return None
    path = _config_of(source)
    if path is None:
        return None
    config = _read_config(path)
    if "names" not in config:
        if not source.files:
            return None
        raise SourceError(f"{path} is not YOLO's: it has no `names` of classes.")
    if len(source.files) > 1:
        config[""] = [*map(_images_of, source.files)]
    refuse_table_options(options, "a folder of YOLO's form")
    remarks = Remarks([], [])
    names = _class_names(path, config["names"])
    stated = config.get("nc", "")
    if stated not in ("", str(len(names))):
        remarks.notes.append(f"{path}: `nc` is {stated}, but `names` has {len(names)}")
    folder = storage.parent(path)
    root = storage.resolve(str(config.get("path") or "."), folder)
    # The folder that is stated is often that of another machine.
    root = _plain(root) if storage.is_folder(root) else folder
    splits = []
    images = []
    for split in ("train", "val", "test", ""):
        entries = config.get(split) or []
        for entry in [entries] if isinstance(entries, str) else entries:
            try:
                listed = [*_images_at(path, root, str(entry))]
            except SourceError as error:
                # Roboflow names a folder for it even where the user wanted no test set.
                if split != "test":
                    raise
                remarks.notes.append(str(error).removesuffix("."))
                continue
            images += listed
            splits += [split] * len(listed)
    if not images:
        raise SourceError(f"{path}: no images found where it says that they are, below {root}.")
    base = source.folder if source.folder and source.files else root
    uris = [image.removeprefix(f"{base}/") for image in images]
    splits = splits if any(splits) else [*map(split_of_folders, uris)]
    files = label_files(remarks, images, splits, uris, root)
    lines = _lines_of(remarks, files, len(names))
    pose = _numbers_of_pose(path, config)
    objects = _objects(remarks, lines, names, pose, has_masks(options))
    slack = _slack_of(images, objects)
    boxes, wrong = object_columns(objects, uris, np.ones((len(uris), 2)), slack, lines.place_of)
    remarks.unused(names, objects[LABEL_COLUMN])
    columns = {**image_columns(splits, uris), **boxes}
    columns |= groups_beside(remarks, options, (_plain(folder), root), columns)
    return RawTable(
        pd.DataFrame(columns),
        base,
        schema=options.schema or _SCHEMA,
        findings=[*remarks.findings, *wrong],
        notes=remarks.notes,
        classes={LABEL_COLUMN: [*map(str, names)]},
        older_classes={LABEL_COLUMN: [str(typed(name)) for name in names]},
        upright=True,  # as YOLO's trainers turn images by their EXIF orientation
    )


def _config_of(source: PathSource) -> str | None:
    """The path of the file that says what is where; None if the source is of another form."""
    if source.files:
        path = source.files[0]
        is_one = len(source.files) == 1 or source.folder
        return path if is_one and path.lower().endswith(tuple(CONFIGS)) else None
    names = _AT_TOP if storage.is_folder(f"{source.folder}/labels") else _AT_TOP[:-1]
    paths = (f"{source.folder}/{name}" for name in names)
    return next((path for path in paths if storage.size(path) is not None), None)


def _read_config(path: str) -> dict[str, Any]:
    """What a file says: `names`, and where the images of each split are, "" for those of none."""
    text = text_of(path) or ""
    lines = lines_in(text)
    folder = storage.parent(path)
    ending = path.lower().rpartition(".")[2]
    if ending == "txt":
        return {"names": lines, "": _images_of(path)}
    if ending == "names":
        lists = {}
        for name, split in _DARKNET_LISTS.items():
            if place := _found(f"{name}.txt", folder):
                lists[split] = place
        return {"names": lines, **(lists or {"": "."})}
    if ending == "data":
        stated = dict[str, Any]()
        for line in lines:
            key, _, value = map(str.strip, line.partition("="))
            stated[_DARKNET_LISTS.get(key, key)] = _found(value, folder) or value
        if "names" in stated:
            stated["names"] = lines_in(text_of(storage.resolve(stated["names"], folder)))
        return stated
    try:
        config = read_yaml(text)
    except ValueError as error:
        raise SourceError(f"{path} is not sound YAML: {error}.") from error
    if not isinstance(config, dict):
        return {}
    # `test: null` names no folder; a class may be called so.
    keys = (key for key, value in config.items() if key == "names" or typed(value) is not None)
    return {key: config[key] for key in keys}


def _images_of(path: str) -> str:
    """Where the images are that the names of classes are for.

    In `images` beside `labels`; or with the names, as labelImg has them.
    """
    folder = storage.parent(path)
    images = f"{folder}/images"
    if not storage.is_folder(f"{folder}/labels"):
        top, labels, below = f"{folder}/".rpartition("/labels/")
        images = f"{top}/images/{below}".rstrip("/") if labels else folder
    return images if storage.is_folder(images) else folder


def _found(name: str, folder: str) -> str:
    """A file or folder that is named from the folder of another machine; "" if it is not there.

    As many of the first folders are left out as must be; it may lie in the folder above too.
    """
    parts = re.split(r"[\\/]", name)
    for start in range(len(parts)):
        for top in (folder, storage.parent(folder)):
            place = storage.resolve("/".join(parts[start:]), top)
            if storage.exists(place):
                return place
    return ""


def _class_names(path: str, names: Any) -> list[str]:
    """The names of the classes by their numbers."""
    if isinstance(names, Mapping) and {*names} == {*map(str, range(len(names)))}:
        names = [names[str(number)] for number in range(len(names))]
    if isinstance(names, list):
        texts = [name for name in names if isinstance(name, str) and name]
        if len({*map(composed, texts)}) == len(names) > 0:
            return texts
    raise SourceError(
        f"{path}: `names` is neither a list of names, each once, nor has it one for each "
        f"number from 0: {names!r}."
    )


def _plain(path: str) -> str:
    """A path without "..", which may lead out of a folder and into it again."""
    return path if storage.scheme(path) else posixpath.normpath(path)


def _images_at(
    path: str,
    root: str,
    entry: str,
) -> Iterator[str]:
    """The images of a folder, or of a text file that lists them."""
    where = _plain(storage.resolve(entry, root))
    # Roboflow writes ../train/images for the folder train/images beside the file.
    if entry.startswith("../") and not storage.exists(where):
        where = _plain(storage.resolve(entry.removeprefix("../"), root))
    if storage.is_folder(where):
        for name in storage.files_below(where):
            is_image = name.lower().endswith(IMAGE_ENDINGS) and "/._" not in f"/{name}"  # of macOS
            if is_image and layout.SYSTEM_FOLDERS.isdisjoint(name.split("/")):
                yield f"{where}/{name}"
        return
    text = text_of(where)
    if text is None:
        hint = storage.hint_beside(where)
        raise MissingSourceError(
            f"{path} names {entry!r}, which is not there: looked for {where}{hint}."
        )
    folder = storage.parent(where)
    names = lines_in(text)
    places = [_plain(storage.resolve(name, folder)) for name in names]
    if places and not storage.exists(places[0]):
        places = [_found(name, folder) or place for name, place in zip(names, places, strict=True)]
    yield from places


class _Lines(NamedTuple):
    """The lines of text files that name a class, with their numbers.

    Attributes:
        paths: of the file of each image.
        rows: those of the images.
        numbers: of the lines in their files, from 1.
        classes: their numbers.
        boxes: the first four numbers of all, flat: a list for each takes half a second a million.
        others: all numbers of those with more or fewer, by their places here.
    """

    paths: Sequence[str]
    rows: list[int]
    numbers: list[int]
    classes: list[int]
    boxes: list[float]
    others: dict[int, list[float]]

    def place_of(self, place: int) -> str:
        """Where a line stands, in words."""
        return f"{self.paths[self.rows[place]]}, line {self.numbers[place]}"


def _lines_of(
    remarks: Remarks,
    paths: Sequence[str],
    classes: int,
) -> _Lines:
    """The lines of the text files of all images; those that name no class are found."""
    lines = _Lines(paths, [], [], [], [], others={})
    known = {*range(classes)}
    rows = [row for row, path in enumerate(paths) if path]
    for row, data in zip(rows, files_of([paths[row] for row in rows]), strict=True):
        try:
            text = decoded(data or b"")
        except NotTextError as error:
            message = f"{paths[row]}, {error}"
            remarks.findings.append(bad_annotation(row, LABEL_COLUMN, "", message))
            continue
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words:
                continue
            fault = ""
            try:
                label, *numbers = map(float, words)
            except ValueError:
                fault = "it holds something other than numbers"
            else:
                if label not in known:
                    fault = f"there is no class {words[0]}; the classes are 0 to {classes - 1}"
            if fault:
                message = f"{paths[row]}, line {number}: {fault}"
                remarks.findings.append(bad_annotation(row, LABEL_COLUMN, line[:200], message))
                continue
            if len(numbers) != 4:
                lines.others[len(lines.rows)] = numbers
                numbers = [*numbers, 0, 0, 0, 0][:4]
            lines.rows.append(row)
            lines.numbers.append(number)
            lines.classes.append(int(label))
            lines.boxes.extend(numbers)
    return lines


def _numbers_of_pose(path: str, config: Mapping[str, Any]) -> int:
    """How many numbers a box with key points has; 0 where no `kpt_shape` says that there are any.

    Raises:
        SourceError: it is no list of whole numbers.
    """
    if "kpt_shape" not in config:
        return 0
    try:
        return 4 + math.prod(map(int, config["kpt_shape"]))
    except (TypeError, ValueError):
        raise SourceError(
            f"{path}: `kpt_shape` is no list of whole numbers: {config['kpt_shape']!r}."
        ) from None


#: The numbers of four corners, as boxes that are turned have them.
_CORNERS = 8


def _objects(
    remarks: Remarks,
    lines: _Lines,
    names: Sequence[str],
    pose: int,
    masks: bool,
) -> pd.DataFrame:
    """The objects of all lines, with their polygons as `masks` says; and what is not stored.

    Args:
        pose: how many numbers a box with key points has, 0 where nothing says that there are any.
    """
    if not pose and not masks and (pose := _likely_pose([*lines.others.values()])):
        remarks.notes.append(
            f"the {pose} numbers of each line are taken for a box and key points, which `kpt_shape`"
            " would state; if they are polygons, a schema with masks reads them so"
        )
    boxes = np.array(lines.boxes).reshape(-1, 4)
    halves = boxes[:, 2:] / 2
    edges = np.hstack([boxes[:, :2] - halves, boxes[:, :2] + halves])
    polygons = np.full(len(boxes), None, dtype=object)
    is_sound = np.ones(len(boxes), bool)
    poses = 0
    sides = Counter[int]()
    for place, numbers in lines.others.items():
        if len(numbers) == pose:
            poses += 1
        elif pose or len(numbers) % 2 or len(numbers) < 4:
            is_sound[place] = False
            remarks.findings.append(_miscounted(lines, place, numbers, pose))
        else:
            sides[len(numbers)] += 1
            xs = numbers[0::2]
            ys = numbers[1::2]
            edges[place] = min(xs), min(ys), max(xs), max(ys)
            if masks:
                polygons[place] = json.dumps([numbers])
    shape = "four corners, perhaps of turned boxes," if {*sides} == {_CORNERS} else "polygons"
    remedy = "the upright box is; `Boxes(masks='segmentation')` in a schema stores the area within"
    counts = {"key points": poses, shape: 0 if masks else sides.total()}
    remarks.not_stored(counts, {shape: remedy})
    rows = np.array(lines.rows, np.int64)
    labels = np.array(names, dtype=object)[np.array(lines.classes, np.int64)]
    return objects_of(rows, labels, edges, {MASKS: polygons} if masks else {})[is_sound]


def _miscounted(
    lines: _Lines,
    place: int,
    numbers: Sequence[float],
    pose: int,
) -> Finding:
    """A line with as many numbers as no object has."""
    hint = "key points need `kpt_shape` beside the names of the classes"
    if pose:
        hint = f"a box has 4, and with the key points of `kpt_shape` {pose}"
    elif len(numbers) == 5:
        hint = "a fifth is a model's confidence, which no annotation has; leave it out"
    count = counted(len(numbers), "number")
    start = f"{lines.place_of(place)}: it has {count} after its class: neither a box nor a polygon"
    message = f"{start}; {hint}"
    return bad_annotation(lines.rows[place], LABEL_COLUMN, str(numbers), message)


def _likely_pose(others: Sequence[Sequence[float]]) -> int:
    """How many numbers a box with key points has, where all lines look so; else 0.

    All but the boxes have as many, and the points are in the box that the first four numbers state;
    or each third number of theirs is 0, 1 or 2, for whether it is seen.
    """
    count = len(others[0]) if others else 0
    if count < 7 or count == _CORNERS or {*map(len, others)} != {count}:
        return 0
    values = np.array(others)
    if (count - 4) % 3 == 0 and np.isin(values[:, 6::3], (0, 1, 2)).all():
        return count
    if count % 2:
        return 0
    points = values[:, 4:].reshape(len(values), -1, 2)
    halves = values[:, None, 2:4] / 2 + _SLACK
    low = values[:, None, :2] - halves
    high = values[:, None, :2] + halves
    is_inside = (points >= low) & (points <= high)
    is_inside |= (points == 0).all(axis=2, keepdims=True)  # a point that is not seen
    in_image = (low >= -2 * _SLACK) & (high <= 1 + 2 * _SLACK)
    return count if in_image.all() and is_inside.all() else 0


#: An edge that is farther outside than this, as a fraction, is no matter of a pixel.
_FARTHEST = 1 / 16


def _slack_of(images: Sequence[str], objects: pd.DataFrame) -> np.ndarray:
    """How far boxes may be beyond each image: a pixel, where its file was asked for its size."""
    slack = np.full((len(images), 2), _SLACK)
    edges = objects[[*BOX_COLUMNS]].to_numpy()
    beyond = np.maximum(-edges, edges - 1).max(axis=1, initial=0)
    asked = np.unique(objects[ROW].to_numpy()[(beyond > ROUNDED) & (beyond < _FARTHEST)])
    headers = in_threads(header_at, [images[row] for row in asked])
    for row, header in zip(asked, headers, strict=True):
        if header is not None:
            slack[row] = 1 / np.array(plane_of(header, True).pixels)
    return slack
