"""COCO's JSON: `instances_*` with boxes, `captions_*` with texts; one row for each image."""

from __future__ import annotations

import contextlib
import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.text import composed
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Kind, Number, Schema, Split, Text
from tfrecorder.sources.coco_file import CocoFile, CocoImage, read_file
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.objects import (
    MASKS,
    ROW,
    as_numbers,
    groups_beside,
    has_masks,
    image_columns,
    in_rows,
    object_columns,
    objects_of,
    stated_sizes,
)
from tfrecorder.sources.path_source import (
    Pairs,
    PathSource,
    common_folder,
    refuse_table_options,
    split_in,
    stem_of,
    uri_below,
)
from tfrecorder.sources.remarks import Remarks, some_of
from tfrecorder.sources.table import RawTable

#: The name of the file that Roboflow writes beside the images of a split.
BESIDE = "_annotations.coco.json"

#: The folders where such files are.
_FOLDERS = ("", "/train", "/valid", "/val", "/validation", "/test")

#: How COCO's own files begin; others are known by what they say.
_NAMES = ("instances", "captions", "person_keypoints", "panoptic", "stuff")

#: How what is not stored would be.
_REMEDIES = dict.fromkeys(
    ("masks", "rotations"), "`Boxes(unit='pixel', masks='segmentation')` in a schema stores them"
)

#: How far, in pixels, a box may be beyond its image: tools round differently.
_SLACK = 1.0

_CAPTION = "caption"

#: By the split and the place of each image its row, and the image with its uri.
_Images = dict[tuple[str, str], tuple[int, CocoImage]]


def read_coco(source: Any, options: ConvertOptions) -> RawTable | None:
    """COCO's JSON: a file, several, or a folder that has them."""
    if not isinstance(source, PathSource) or options.form not in (None, "coco"):
        return None
    paths = source.files or tuple(_files_in(source.folder))
    if not paths or not all(path.lower().endswith(".json") for path in paths):
        return None
    refuse_table_options(options, "COCO's JSON")
    masks = has_masks(options)
    files = [read_file(path, masks) for path in paths]
    roots = [storage.parent(path).removesuffix("/annotations") for path in paths]
    base = source.folder or common_folder(roots)
    # The folder that the uris start from.
    top = storage.absolute(storage.given_path(options.base)) if options.base else base
    splits = []
    uris = []
    for file, root in zip(files, roots, strict=True):
        splits.append(_split_of(file, bool(source.folder)))
        starts = [""] if options.base else _starts(file.path, root.removeprefix(base).strip("/"))
        uris.append(_uris_of(file, splits[-1], starts, top))
    return table_of(
        Remarks([], []),
        files,
        splits,
        uris,
        top=top,
        folders=[*map(storage.parent, paths), base],
        options=options,
    )


def table_of(
    remarks: Remarks,
    files: Sequence[CocoFile],
    splits: Sequence[str],
    of_files: Sequence[Sequence[str]],
    *,
    top: str,
    folders: Sequence[str],
    options: ConvertOptions,
    boxes: bool = True,
) -> RawTable:
    """Files of annotations as one table.

    Args:
        splits: that of each file.
        of_files: the uris of the images of each.
        top: the folder that these start from.
        folders: where a CSV for `split_by` may be.
        boxes: that images without any annotation have no objects.
    """
    masks = has_masks(options)
    names = _class_names(remarks, files)
    images: _Images = {}
    frames = []
    for file, split, uris in zip(files, splits, of_files, strict=True):
        of_ids = _rows_of(remarks, file, uris, split, images)
        frames.append(_annotations(file, of_ids, names, masks))
    every = pd.concat(frames, keys=range(len(files)))

    def place_of(at: tuple[int, int]) -> str:
        return f"{files[at[0]].path}: annotations[{at[1]}]"

    is_text = every[_CAPTION].notna()
    is_sound = (every[ROW] >= 0) & (is_text | every[LABEL_COLUMN].notna())
    for at, row in every.loc[~is_sound, [ROW]].itertuples(name=None):
        unknown = "image" if row < 0 else "category"
        stated = files[at[0]].annotations[f"{unknown}_id"][at[1]]
        message = f"{place_of(at)}: no {unknown} has the id {stated!r}"
        of_row = None if row < 0 else row
        remarks.findings.append(bad_annotation(of_row, LABEL_COLUMN, str(stated), message))
    uris = [image.name for _, image in images.values()]
    ids = [image.id for _, image in images.values()]
    are_numbers = all(isinstance(number, int) for number in ids)
    columns = image_columns([split for split, _ in images], uris)
    columns["image_id"] = ids if are_numbers else [*map(str, ids)]
    kinds: dict[str, Kind] = {SPLIT_COLUMN: Split(required=False), URI_COLUMN: Image()}
    kinds["image_id"] = Number(dtype="int64") if are_numbers else Text()
    captions = every.loc[is_sound & is_text, [ROW, _CAPTION]]
    if len(captions):
        columns |= in_rows(captions, len(uris))
        kinds[_CAPTION] = Text(shape=(None,))
    if others := _unlisted({place for _, place in images}, top):
        count = counted(len(others), "image is", "images are")
        remarks.notes.append(f"{count} beside those that are listed: {some_of(others)}")
    remarks.not_stored(sum((file.others for file in files), Counter[str]()), _REMEDIES)
    objects = every[is_sound & ~is_text].drop(columns=_CAPTION)
    stated = None
    if len(objects) or (boxes and not len(captions)):
        sizes = as_numbers([image.size for _, image in images.values()], 2)
        stated = stated_sizes(sizes)
        of_boxes, wrong = object_columns(objects, uris, sizes, _SLACK, place_of)
        remarks.findings.extend(wrong)
        remarks.unused([*names.values()], objects[LABEL_COLUMN].unique())
        columns |= of_boxes
        kinds["boxes"] = Boxes(unit="pixel")
        kinds["is_crowd"] = Number(dtype="int64", of="boxes")
        kinds["area"] = Number(of="boxes")
    columns |= groups_beside(remarks, options, folders, columns)
    return RawTable(
        pd.DataFrame(columns),
        top,
        findings=remarks.findings,
        notes=remarks.notes,
        schema=options.schema or Schema(kinds),
        classes={LABEL_COLUMN: tuple(names.values())} if names else {},
        sizes=stated,
    )


def _files_in(folder: str) -> list[str]:
    """The files of a folder of COCO's or of Roboflow's form; none in any other folder."""
    names = [name for name in storage.names(f"{folder}/annotations") if name.endswith(".json")]
    if any(name.startswith(_NAMES) for name in names):
        chosen = [name for name in names if name.startswith("instances")]
        return [f"{folder}/annotations/{name}" for name in chosen or names]
    beside = [f"{folder}{below}/{BESIDE}" for below in _FOLDERS]
    return [path for path in beside if storage.size(path) is not None]


def _class_names(remarks: Remarks, files: Sequence[CocoFile]) -> dict[str, str]:
    """The names of all categories by their form NFC, in the order of the first file that has them.

    Of two with one name that are in a file, one may be of no use: some tools write such twins.
    """
    names: dict[str, str] = {}
    for file in files:
        looks: dict[Any, str] = {}
        owners: dict[str, Any] = {}
        used = {*file.annotations["category_id"]}
        for number, name in file.categories:
            look = composed(name)
            names.setdefault(look, name)
            is_twin = number in used and owners.setdefault(look, number) != number
            if is_twin or looks.setdefault(number, look) != look:
                message = f"{file.path}: the category {name!r}, id {number}, is there twice"
                remarks.findings.append(bad_annotation(None, LABEL_COLUMN, name, message))
    return names


def _rows_of(
    remarks: Remarks,
    file: CocoFile,
    uris: Sequence[str],
    split: str,
    images: _Images,
) -> dict[Any, int]:
    """The row of each id of a file, whose images are added where they are not there yet."""
    of_ids: dict[Any, int] = {}
    of_rows: dict[int, CocoImage] = {}
    for image, uri in zip(file.images, uris, strict=True):
        place = posixpath.normpath(uri) if "./" in uri or "//" in uri else uri
        entry = len(images), CocoImage(image.id, uri, image.size)
        row, _ = images.setdefault((split, place), entry)
        first = of_rows.setdefault(row, image)
        if of_ids.setdefault(image.id, row) != row:
            message = f"{file.path}: two images have the id {image.id!r}; the second is {uri!r}"
            remarks.findings.append(bad_annotation(row, URI_COLUMN, image.id, message))
        elif first is not image:
            one, other = (f"{cut(entry.name)!r}, id {entry.id}" for entry in (first, image))
            message = f"{file.path} lists one image as {one}, and as {other}"
            remarks.findings.append(Finding("listed_twice", [row], URI_COLUMN, [uri], message))
    return of_ids


def _annotations(
    file: CocoFile,
    of_ids: Mapping[Any, int],
    names: Mapping[str, str],
    masks: bool,
) -> pd.DataFrame:
    """The annotations of a file as objects, and their captions.

    One without an image has the row -1, and one without a category the label None.

    Args:
        of_ids: the rows of the images.
        names: those of the classes, by their form NFC.
    """
    every = file.annotations
    of_categories = {number: names[composed(name)] for number, name in file.categories}
    labels = [of_categories.get(number) for number in every["category_id"]]
    boxes = as_numbers(every["bbox"], 4)
    starts = boxes[:, :2]
    sizes = boxes[:, 2:]
    areas = as_numbers(every["area"])
    crowds = as_numbers(every["iscrowd"])  # as text in the files of some tools
    beside = {
        "is_crowd": (crowds > 0).astype(np.int64),
        "area": np.where(np.isnan(areas), sizes.prod(axis=1), areas),
    }
    if masks:
        beside[MASKS] = np.array(every[MASKS], dtype=object)
    rows = np.array([of_ids.get(number, -1) for number in every["image_id"]], np.int64)
    edges = np.hstack([starts, starts + sizes])
    objects = objects_of(rows, np.array(labels, dtype=object), edges, beside)
    return objects.assign(**{_CAPTION: pd.Series(every[_CAPTION], dtype=object)})


def _starts(path: str, below: str) -> list[str]:
    """What may come before the names of images, the likeliest first.

    Args:
        path: of the file that has these names.
        below: the folder of the images from that of all, as far as the file's own place tells.
    """
    stem = stem_of(path).rpartition("_")[2]
    folders = ("", "images", stem, f"images/{stem}")
    return [posixpath.join(below, folder, "") for folder in folders]


def _uris_of(
    file: CocoFile,
    split: str,
    starts: Sequence[str],
    top: str,
) -> list[str]:
    """The uris of a file's images, from the folder of all.

    Names that were written on another machine lead nowhere; then a picture is found by the end of
    its path, if no other below the folder has the same in the same split.

    Args:
        split: that of the file.
        starts: what may come before all names.
        top: the folder of all.

    Raises:
        SourceError: several have it.
    """
    names = [image.name for image in file.images]
    for start in starts if names else ():
        first = uri_below(start, names[0]).encode(errors="replace").decode()
        if storage.exists(storage.resolve(first, top)):
            return [uri_below(start, name) for name in names]
    files = storage.files_below(top) if storage.is_folder(top) else []
    pairs = Pairs(name for name in files if name.lower().endswith(IMAGE_ENDINGS))
    uris = []
    for name in names:
        found = pairs.all_named(name)
        if len(found) > 1:
            stated = split_in(name.rpartition("/")[0]) or split
            found = [one for one in found if split_in(one.rpartition("/")[0]) == stated] or found
        if len(found) > 1:
            raise SourceError(
                f"{file.path}: the image {name!r} is not where it says, and {len(found)} have its "
                f"name: {', '.join(found[:3])}. Correct file_name, or give the folder of its "
                f"images as {spelled('base')}."
            )
        uris.append(found[0] if found else uri_below(starts[0], name))
    return uris


def _unlisted(listed: set[str], base: str) -> list[str]:
    """The images on a disk that lie beside these and are not among them."""
    others = []
    # A store would have to be asked for each of perhaps thousands of folders.
    folders = {path.rpartition("/")[0] for path in listed} if storage.is_local(base) else ()
    for folder in folders:
        start = f"{folder}/" if folder else ""
        # Who may read images may perhaps not list them.
        with contextlib.suppress(storage.UnreadableError):
            for name in storage.names(storage.resolve(folder, base)):
                if (path := f"{start}{name}") not in listed and not name.startswith("."):
                    others.append(path)
    return sorted(path for path in others if path.lower().endswith(IMAGE_ENDINGS))


def _split_of(file: CocoFile, found: bool) -> str:
    """The split that the name of a file states, or that of its folder.

    Args:
        found: the folder was given, not the file.
    """
    folder, _, name = file.path.rpartition("/")
    of_file = "" if name == BESIDE else split_in(name)
    of_folder = split_in(folder.rpartition("/")[2])
    return of_file or (of_folder if found or name == BESIDE else "")
