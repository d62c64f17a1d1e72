"""A folder of YOLO's form: `data.yaml`, and a text file with the objects of each image."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.errors import SourceError
from tfrecorder.format import layout
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Schema, Split
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.objects import MASKS, object_columns, objects_of, texts_of
from tfrecorder.sources.path_source import PathSource, refuse_table_options, split_of_folders
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
        config[""] = [*map(storage.parent, source.files)]
    refuse_table_options(options, "a folder of YOLO's form")
    folder = storage.parent(path)
    names = _class_names(path, config.get("names"))
    root = storage.resolve(str(config.get("path") or "."), folder)
    # The folder that is stated is often that of another machine.
    root = root if storage.is_folder(root) else folder
    root = root if storage.scheme(root) else posixpath.normpath(root)
    splits = []
    images = []
    for split in ("train", "val", "test", ""):
        entries = config.get(split) or []
        for entry in [entries] if isinstance(entries, str) else entries:
            listed = list(_images_at(path, root, str(entry)))
            images += listed
            splits += [split] * len(listed)
    if not images:
        raise SourceError(f"{path}: no images found where it says that they are, below {root}.")
    base = source.folder if found else root
    uris = [image.removeprefix(f"{base}/") for image in images]
    if found and not any(splits):
        splits = [*map(split_of_folders, uris)]
    columns: dict[str, Any] = {SPLIT_COLUMN: splits} if any(splits) else {}
    columns[URI_COLUMN] = pd.Series(uris, dtype=object)
    masks = options.schema is not None and MASKS in options.schema.source_columns()
    objects, findings = _objects(images, names, "kpt_shape" in config, masks)
    of_boxes, wrong = object_columns(objects, uris, np.ones((len(uris), 2)), _SLACK)
    return RawTable(
        pd.DataFrame({**columns, **of_boxes}),
        base,
        schema=options.schema or _SCHEMA,
        findings=[*findings, *wrong],
        classes={LABEL_COLUMN: names},
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
    import yaml

    text = storage.read_bytes(path).decode("utf-8-sig", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    folder = storage.parent(path)
    if path.endswith(".txt"):
        return {"names": lines, "": "images" if storage.is_folder(f"{folder}/labels") else "."}
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
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SourceError(f"{path} is not sound YAML: {' '.join(str(error).split())}.") from error
    return config if isinstance(config, dict) else {}


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
    if isinstance(names, Mapping) and {*names} == {*range(len(names))}:
        names = [names[number] for number in range(len(names))]
    if isinstance(names, list):
        texts = [*map(str, names)]
        if len({*texts}) == len(texts):
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
            is_image = name.lower().endswith(IMAGE_ENDINGS)
            if is_image and layout.SYSTEM_FOLDERS.isdisjoint(name.split("/")):
                yield f"{where}/{name}"
    elif (text := texts_of([where])[0]) is not None:
        folder = storage.parent(where)
        lines = [line.strip().removeprefix("./") for line in text.splitlines() if line.strip()]
        places = [storage.resolve(line, folder) for line in lines]
        if lines and not storage.exists(places[0]):
            there = (_found(line, folder) for line in lines)
            places = [one or place for one, place in zip(there, places, strict=True)]
        yield from places
    else:
        raise SourceError(f"{path} names {entry!r}, which is not there: looked for {where}.")


def _labels_of(image: str) -> str:
    """The text file of an image: in `labels` instead of `images`."""
    return f"{'/labels/'.join(image.rsplit('/images/', 1)).rpartition('.')[0]}.txt"


def _objects(
    images: Sequence[str],
    names: Sequence[str],
    keypoints: bool,
    masks: bool,
) -> tuple[pd.DataFrame, list[Finding]]:
    """The objects of all images, with their polygons as `masks` says, and lines that say none."""
    rows = []
    objects = []
    findings = []
    paths = [*map(_labels_of, images)]
    texts = texts_of(paths)
    if not any(text is not None for text in texts):
        paths = [f"{image.rpartition('.')[0]}.txt" for image in images]
        texts = texts_of(paths)
    for row, (path, text) in enumerate(zip(paths, texts, strict=True)):
        for number, line in enumerate((text or "").splitlines(), 1):
            if not line.strip():
                continue
            made = _object(line.split(), len(names), keypoints)
            if isinstance(made, str):
                message = f"{path}, line {number}: {made}"
                findings.append(bad_annotation(row, LABEL_COLUMN, line[:200], message))
            else:
                rows.append(row)
                objects.append(made)
    classes, edges, polygons = zip(*objects, strict=True) if objects else ((), (), ())
    labels = np.array([*names, ""], dtype=object)[np.array(classes, np.int64)]
    beside = {MASKS: np.array(polygons, dtype=object)} if masks else {}
    sides = np.array(edges).reshape(-1, 4)
    return objects_of(np.array(rows, np.int64), labels, sides, beside), findings


def _object(
    words: Sequence[str],
    classes: int,
    keypoints: bool,
) -> Any:
    """The class, edges and polygon of a line's object, the last as JSON; or what is wrong."""
    try:
        label, *numbers = map(float, words)
    except ValueError:
        return "it holds something other than numbers"
    if label not in range(classes):
        return f"there is no class {words[0]}; the classes are 0 to {classes - 1}"
    if len(numbers) == 4 or (keypoints and len(numbers) > 4):
        x, y, width, height = numbers[:4]
        half_width = width / 2
        half_height = height / 2
        edges = (x - half_width, y - half_height, x + half_width, y + half_height)
        return int(label), edges, None
    if len(numbers) < 6 or len(numbers) % 2:
        return f"it has {len(numbers)} numbers after its class: neither a box nor a polygon"
    xs = numbers[0::2]
    ys = numbers[1::2]
    edges = (min(xs), min(ys), max(xs), max(ys))
    return int(label), edges, json.dumps([numbers])
