"""A folder of YOLO's form: `data.yaml`, and a text file with the objects of each image."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image as Pictures

from tfrecorder import storage
from tfrecorder.core.text import NotTextError, composed, decoded, read_yaml, typed
from tfrecorder.display.tables import counted
from tfrecorder.errors import SourceError
from tfrecorder.format import layout
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import BOX_COLUMNS, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Schema, Split
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.label_files import LabelFiles, label_files
from tfrecorder.sources.named_files import in_threads
from tfrecorder.sources.objects import (
    MASKS,
    ROW,
    Said,
    files_of,
    object_columns,
    objects_of,
    say_missing,
    say_not_stored,
    say_unused,
    say_without_image,
    text_of,
)
from tfrecorder.sources.path_source import (
    PathSource,
    refuse_table_options,
    split_of_folders,
)
from tfrecorder.sources.table import RawTable

#: The names of the file that says what is where; the last is of Label Studio, the classes alone.
_CONFIGS = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt")

#: How such files end: of Ultralytics, of Darknet, and of labelImg.
CONFIG_ENDINGS = (".yaml", ".yml", ".data", ".names", "classes.txt")

#: The names of the lists that Darknet has, and the splits in the words of Ultralytics.
_DARKNET_LISTS = {"train": "train", "valid": "val", "val": "val", "test": "test"}

_SCHEMA = Schema({SPLIT_COLUMN: Split(required=False), URI_COLUMN: Image(), "boxes": Boxes()})

#: How far a box may be beyond its image, as a fraction: coordinates are rounded.
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
    found = bool(source.files and source.folder)
    if len(source.files) > 1:
        config[""] = [*map(_images_of, source.files)]
    refuse_table_options(options, "a folder of YOLO's form")
    folder = storage.parent(path)
    names = _class_names(path, config.get("names"))
    older = [str(typed(name)) for name in names]
    root = storage.resolve(str(config.get("path") or "."), folder)
    # The folder that is stated is often that of another machine.
    root = root if storage.is_folder(root) else folder
    root = root if storage.scheme(root) else posixpath.normpath(root)
    splits = []
    images = []
    said = Said([], [])
    for split in ("train", "val", "test", ""):
        entries = config.get(split) or []
        for entry in [entries] if isinstance(entries, str) else entries:
            try:
                listed = list(_images_at(path, root, str(entry)))
            except SourceError as error:
                # Roboflow names a folder for it even where the user wanted no test set.
                if split != "test":
                    raise
                said.notes.append(str(error).removesuffix("."))
                continue
            images += listed
            splits += [split] * len(listed)
    if not images:
        raise SourceError(f"{path}: no images found where it says that they are, below {root}.")
    base = source.folder if found else root
    uris = [image.removeprefix(f"{base}/") for image in images]
    if not any(splits):
        splits = [*map(split_of_folders, uris)]
    columns: dict[str, Any] = {SPLIT_COLUMN: splits} if any(splits) else {}
    columns[URI_COLUMN] = pd.Series(uris, dtype=object)
    masks = options.schema is not None and MASKS in options.schema.source_columns()
    files = label_files(images, root)
    _say_absent(said, files, splits, uris, root)
    lines = _lines_of(said, files.paths, len(names))
    objects = _objects(said, lines, names, _numbers_of_pose(path, config), masks)
    slack = _slack_of(images, objects)
    boxes, wrong = object_columns(objects, uris, np.ones((len(uris), 2)), slack, lines.place_of)
    say_unused(said, names, objects[LABEL_COLUMN])
    return RawTable(
        pd.DataFrame({**columns, **boxes}),
        base,
        schema=options.schema or _SCHEMA,
        findings=[*said.findings, *wrong],
        notes=said.notes,
        classes={LABEL_COLUMN: [*map(str, names)]},
        older_classes={LABEL_COLUMN: older},
    )


def _config_of(source: PathSource) -> str | None:
    """The path of the file that says what is where; None if the source is of another form."""
    if source.files:
        (path, *others) = source.files
        is_one = not others or bool(source.folder)
        return path if is_one and path.lower().endswith(CONFIG_ENDINGS) else None
    paths = (f"{source.folder}/{name}" for name in _CONFIGS)
    has_labels = storage.is_folder(f"{source.folder}/labels")
    candidates = (path for path in paths if has_labels or not path.endswith(".txt"))
    return next((path for path in candidates if storage.size(path) is not None), None)


def _read_config(path: str) -> dict[str, Any]:
    """What a file says: `names`, and where the images of each split are, "" for those of none."""
    text = text_of(path) or ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    folder = storage.parent(path)
    if path.endswith(".txt"):
        return {"names": lines, "": _images_of(path)}
    if path.endswith(".names"):
        lists = {name: _found(f"{name}.txt", folder) for name in _DARKNET_LISTS}
        return {"names": lines, **(_by_split(lists) or {"": "."})}
    if path.endswith(".data"):
        stated = {}
        for line in lines:
            key, _, value = line.partition("=")
            stated[key.strip()] = _found(value.strip(), folder) or value.strip()
        return {**_read_config(stated["names"]), "": (), **_by_split(stated)}
    try:
        config = read_yaml(text)
    except ValueError as error:
        raise SourceError(f"{path} is not sound YAML: {error}.") from error
    if not isinstance(config, dict):
        return {}
    # `test: null` names no folder; a class may be called so.
    nothing = [key for key, value in config.items() if key != "names" and typed(value) is None]
    return {key: value for key, value in config.items() if key not in nothing}


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


def _by_split(lists: Mapping[str, str]) -> dict[str, str]:
    """The lists of images that Darknet has, by the words of Ultralytics."""
    return {
        _DARKNET_LISTS[name]: path
        for name, path in lists.items()
        if name in _DARKNET_LISTS and path
    }


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
        if len({*map(composed, texts)}) == len(names):
            return texts
    raise SourceError(
        f"{path}: `names` is neither a list of names, each once, nor has it one for each "
        f"number from 0: {names!r}."
    )


def _images_at(
    path: str,
    root: str,
    entry: str,
) -> Iterator[str]:
    """The images of a folder, or of a text file that lists them."""
    # Roboflow writes ../train/images for the folder train/images beside the file.
    where = storage.resolve(entry, root)
    if entry.startswith("../") and not storage.exists(where):
        where = storage.resolve(entry.removeprefix("../"), root)
    if storage.is_folder(where):
        where = where if storage.scheme(where) else posixpath.normpath(where)
        for name in storage.files_below(where):
            is_image = name.lower().endswith(IMAGE_ENDINGS) and "/._" not in f"/{name}"  # of macOS
            if is_image and layout.SYSTEM_FOLDERS.isdisjoint(name.split("/")):
                yield f"{where}/{name}"
    elif (text := text_of(where)) is not None:
        folder = storage.parent(where)
        lines = [line.strip().removeprefix("./") for line in text.splitlines() if line.strip()]
        places = [storage.resolve(line, folder) for line in lines]
        if lines and not storage.exists(places[0]):
            there = (_found(line, folder) for line in lines)
            places = [one or place for one, place in zip(there, places, strict=True)]
        yield from places
    else:
        hint = storage.hint_beside(where)
        raise SourceError(f"{path} names {entry!r}, which is not there: looked for {where}{hint}.")


def _say_absent(
    said: Said,
    files: LabelFiles,
    splits: Sequence[str],
    uris: Sequence[str],
    root: str,
) -> None:
    missing = [row for row, path in enumerate(files.paths) if not path]
    if missing:
        tried = [places.replace(f"{root}/", "") for places in files.tried]
        say_missing(said, "label file", missing, splits, uris, tried.__getitem__)
    orphans = [path.removeprefix(f"{root}/") for path in files.orphans]
    count = len({*files.paths} - {""}) + len(orphans)
    say_without_image(said, "label file", orphans, count)


class _Lines(NamedTuple):
    """The lines of text files that name a class.

    Attributes:
        paths: of the file of each image.
        places: the row of the image, and the number of the line from 1.
        classes: their numbers.
        numbers: what follows these.
    """

    paths: Sequence[str]
    places: list[tuple[int, int]]
    classes: list[int]
    numbers: list[list[float]]

    def place_of(self, number: int) -> str:
        """Where a line stands, in words."""
        row, line = self.places[number]
        return f"{self.paths[row]}, line {line}"


def _lines_of(
    said: Said,
    paths: Sequence[str],
    classes: int,
) -> _Lines:
    """The lines of the text files of all images, and those that name no class."""
    lines = _Lines(paths, [], [], [])
    known = range(classes)
    rows = [row for row, path in enumerate(paths) if path]
    for row, data in zip(rows, files_of([paths[row] for row in rows]), strict=True):
        try:
            text = decoded(data or b"")
        except NotTextError as error:
            said.findings.append(_fault(row, "", f"{paths[row]}, {error}"))
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            fault = ""
            try:
                label, *numbers = map(float, line.split())
            except ValueError:
                fault = "it holds something other than numbers"
            else:
                if label not in known:
                    words = f"the classes are 0 to {classes - 1}"
                    fault = f"there is no class {line.split()[0]}; {words}"
                elif len(numbers) < 4:
                    fault = _count_words(numbers)
            if fault:
                said.findings.append(_fault(row, line, f"{paths[row]}, line {number}: {fault}"))
            else:
                lines.places.append((row, number))
                lines.classes.append(int(label))
                lines.numbers.append(numbers)
    return lines


def _fault(
    row: int,
    line: str,
    message: str,
) -> Finding:
    return bad_annotation(row, LABEL_COLUMN, line[:200], message)


def _count_words(numbers: Sequence[float]) -> str:
    return f"it has {counted(len(numbers), 'number')} after its class: neither a box nor a polygon"


def _numbers_of_pose(path: str, config: Mapping[str, Any]) -> int:
    """How many numbers a box with key points has; 0 where no `kpt_shape` says that there are any.

    Raises:
        SourceError: it is not two whole numbers.
    """
    if "kpt_shape" not in config:
        return 0
    try:
        points, values = map(int, config["kpt_shape"])
    except (TypeError, ValueError):
        raise SourceError(
            f"{path}: `kpt_shape` is not two whole numbers: {config['kpt_shape']!r}."
        ) from None
    return 4 + points * values


def _objects(
    said: Said,
    lines: _Lines,
    names: Sequence[str],
    pose: int,
    masks: bool,
) -> pd.DataFrame:
    """The objects of all lines, with their polygons as `masks` says; and what is not stored."""
    counts = np.array([*map(len, lines.numbers)], np.int64)
    edges = np.full((len(counts), 4), np.nan)
    if not pose and not masks and (pose := _likely_pose(lines.numbers, counts)):
        said.notes.append(
            f"the {pose} numbers of each line are taken for a box and key points, which `kpt_shape`"
            " would state; if they are polygons, a schema with masks reads them so"
        )
    is_box = np.isin(counts, [4, pose])
    is_polygon = ~is_box & (counts % 2 == 0) & (not pose)
    starts = lines.numbers  # a copy of each of a million takes half a second
    if not (counts == 4).all():
        starts = [lines.numbers[place][:4] for place in np.flatnonzero(is_box).tolist()]
    boxes = np.array(starts).reshape(-1, 4)
    halves = boxes[:, 2:] / 2
    edges[is_box] = np.hstack([boxes[:, :2] - halves, boxes[:, :2] + halves])
    polygons = np.full(len(counts), None, dtype=object)
    for place in np.flatnonzero(is_polygon):
        numbers = lines.numbers[place]
        xs = numbers[0::2]
        ys = numbers[1::2]
        edges[place] = min(xs), min(ys), max(xs), max(ys)
        if masks:
            polygons[place] = json.dumps([numbers])
    has_corners = bool((counts[is_polygon] == _CORNERS).all())
    shape = "four corners, perhaps of turned boxes," if has_corners else "polygons"
    not_stored = {
        "key points": int(((counts == pose) & (counts > 4)).sum()),
        shape: 0 if masks else int(is_polygon.sum()),
    }
    remedy = "the upright box is; `Boxes(masks='segmentation')` in a schema stores the area within"
    say_not_stored(said, not_stored, {shape: remedy})
    is_sound = is_box | is_polygon
    said.findings.extend(_miscounted(lines, np.flatnonzero(~is_sound).tolist(), pose))
    beside = {MASKS: polygons} if masks else {}
    labels = np.array([*names, ""], dtype=object)[np.array(lines.classes, np.int64)]
    rows = np.array([row for row, _ in lines.places], np.int64)
    return objects_of(rows, labels, edges, beside)[is_sound]


def _miscounted(
    lines: _Lines,
    places: Sequence[int],
    pose: int,
) -> Iterator[Finding]:
    """Lines with as many numbers as no object has."""
    hint = f"; a box has 4, and with the key points of `kpt_shape` {pose}"
    for place in places:
        numbers = lines.numbers[place]
        words = hint if pose else "; key points need `kpt_shape` beside the names of the classes"
        message = f"{lines.place_of(place)}: {_count_words(numbers)}{words}"
        yield _fault(lines.places[place][0], str(numbers), message)


#: The numbers of four corners, as boxes that are turned have them.
_CORNERS = 8


def _likely_pose(numbers: Sequence[Sequence[float]], counts: np.ndarray) -> int:
    """How many numbers a box with key points has, where all lines look so; else 0.

    All but the boxes have as many, and the points are in the box that the first four numbers state;
    or each third number of theirs is 0, 1 or 2, for whether it is seen.
    """
    several = {*counts[counts > 4].tolist()}
    (count,) = several if len(several) == 1 else (0,)
    if count < 7 or count == _CORNERS:
        return 0
    values = np.array([of for of in numbers if len(of) == count])
    centers = values[:, None, :2]
    sizes = values[:, None, 2:4]
    if (count - 4) % 3 == 0 and np.isin(values[:, 6::3], (0, 1, 2)).all():
        return count
    if count % 2:
        return 0
    points = values[:, 4:].reshape(len(values), -1, 2)
    is_placed = (points != 0).any(axis=2)
    is_inside = (np.abs(points - centers) <= sizes / 2 + _SLACK).all(axis=2)
    in_image = (centers - sizes / 2 >= -_SLACK) & (centers + sizes / 2 <= 1 + _SLACK)
    return count if in_image.all() and is_inside[is_placed].all() else 0


#: An edge that is farther outside than this, as a fraction, is no matter of a pixel.
_FARTHEST = 1 / 16


def _slack_of(images: Sequence[str], objects: pd.DataFrame) -> np.ndarray:
    """How far boxes may be beyond each image: a pixel, where its file had to be asked for that."""
    slack = np.full((len(images), 2), _SLACK)
    edges = objects[[*BOX_COLUMNS]].to_numpy()
    beyond = np.maximum(-edges, edges - 1).max(axis=1, initial=0)
    asked = np.unique(objects[ROW].to_numpy()[(beyond > _SLACK) & (beyond < _FARTHEST)])
    sizes = in_threads(_size_of, [images[row] for row in asked])
    for row, size in zip(asked, sizes, strict=True):
        slack[row] = np.maximum(slack[row], 1 / np.array(size))
    return slack


def _size_of(image: str) -> tuple[float, float]:
    """Width and height of an image; endless for one that is not read."""
    try:
        with storage.open_seekable(image) as file, Pictures.open(file) as opened:
            return opened.size
    except (OSError, ValueError, storage.UnreadableError, Pictures.DecompressionBombError):
        return np.inf, np.inf  # what is wrong with it, the conversion says
