"""What Datumaro reads, a dataset of it or a form by its name, as annotations of COCO's form."""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from logging.handlers import BufferingHandler
from typing import Any

import numpy as np

from tfrecorder import storage
from tfrecorder.core.option import did_you_mean
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import OptionError, SourceError, TfrecorderError, refuse_missing
from tfrecorder.images.boxes_and_masks import rle_of
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.convert_values import DATUMARO
from tfrecorder.schema.keys import LABEL_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Label, Labels, Mask, Schema
from tfrecorder.sources.cells import CellFault, Rows
from tfrecorder.sources.coco import table_of
from tfrecorder.sources.coco_file import KEPT, CocoFile, CocoImage
from tfrecorder.sources.objects import MASKS, has_masks
from tfrecorder.sources.path_source import PathSource, refuse_table_options
from tfrecorder.sources.remarks import Remarks, some_of
from tfrecorder.sources.table import MASK_COLUMN, RawTable

#: The types of annotations with an area that no box states; and of these and others what they are.
_AREAS = {"rotated_bbox": "rotations", "polygon": "masks", "ellipse": "masks", "mask": "masks"}
_SHAPES = {**_AREAS, "bbox": "boxes"}
_WORDS = {**_SHAPES, "points": "key points", "polyline": "lines"}
_BOXES = {"bbox", "rotated_bbox"}

#: The column of the classes of whole images, where `label` is that of boxes.
_CLASSES = "labels"


def read_datumaro(source: Any, options: ConvertOptions) -> RawTable | None:
    """A dataset of Datumaro; or a folder or a file, if its form is asked for by name.

    Raises:
        OptionError: there is no such form, or the source is not on this machine.
        SourceError: Datumaro cannot read it, or finds no image.
        PackageError: Datumaro is not installed.
    """
    form = options.form or ""
    is_form = form.startswith(DATUMARO)
    is_path = isinstance(source, PathSource)
    is_its = any(cls.__module__.startswith("datumaro.") for cls in type(source).__mro__)
    if is_form != is_path or not (is_form or is_its):
        return None
    refuse_table_options(options, "what Datumaro reads")
    remarks = Remarks([], [])
    if is_path:
        path = source.folder or source.files[0]
        folder = source.folder or storage.parent(path)
    else:
        path = folder = storage.absolute(getattr(source, "data_path", None) or ".")
    try:
        dataset = _opened(remarks, source, form) if is_path else source
        return _table(remarks, dataset, folder, options)
    except (TfrecorderError, MemoryError):
        raise
    except Exception as error:  # its plugins may raise anything
        cause = error.__cause__ or error
        words = f"{type(cause).__name__}: {cut(' '.join(str(cause).split()), 300)}"
        if type(cause).__name__ == "ConflictingCategoriesError":
            words = "its splits have different classes; convert the folder of one with a schema "
            words += "that names all classes, and append the others"
        raise SourceError(f"{path}: Datumaro cannot read it {form}: {words}.") from error


def _opened(
    remarks: Remarks,
    source: PathSource,
    form: str,
) -> Any:
    """The dataset that Datumaro makes of a folder or a file; what it passes over is said."""
    path = source.folder or source.files[0]
    if len(source.files) > 1 or not storage.is_local(path):
        raise OptionError.of("form", form, "Datumaro reads one folder or file, on a disk.")
    refuse_missing("datumaro")
    pandas = sys.modules["pandas"]
    from datumaro import Dataset, Environment

    # Datumaro 1.13 puts a second pandas there, which lacks names such as `util`.
    sys.modules["pandas"] = pandas
    name = form.removeprefix(DATUMARO)
    known = [*Environment().importers]
    if name not in known:
        words = f"Datumaro reads no such form; {did_you_mean(name, known)}"
        raise OptionError.of("form", form, words)
    if name == "roboflow_create_ml":
        words = "Datumaro takes the centre of its boxes for a corner; export them in another form."
        raise OptionError.of("form", form, words)
    heard = BufferingHandler(sys.maxsize)
    heard.setLevel(logging.WARNING)
    logging.getLogger().addHandler(heard)
    try:
        dataset = Dataset.import_from(path, name)
        dataset.init_cache()
    finally:
        logging.getLogger().removeHandler(heard)
    if heard.buffer:
        name = os.path.basename(path)
        said = [record.getMessage().replace(path, name) for record in heard.buffer]
        remarks.notes.append(f"Datumaro warns {counted(len(said), 'time')}: {some_of(said)}")
    return dataset


def _table(
    remarks: Remarks,
    dataset: Any,
    folder: str,
    options: ConvertOptions,
) -> RawTable:
    from datumaro import AnnotationType
    from datumaro.components.media import Image, ImageFromFile

    # Where it lists folders, the order of its items is that of the disk.
    every = sorted(dataset, key=lambda item: (item.subset, item.id))
    items = [item for item in every if isinstance(item.media, Image)]
    without = [item.id for item in every if not isinstance(item.media, Image)]
    remarks.without_image("item", without, len(every))
    of_images = itertools.chain.from_iterable(_set_in(item.attributes) for item in items)
    remarks.not_stored(Counter(of_images), {}, "image")
    if not items:
        raise SourceError(f"{folder}: Datumaro finds {counted(len(every), 'item')} and no image.")
    names = [one.name for one in dataset.categories().get(AnnotationType.label, ())]
    shapes = {one.type.name for item in items for one in item.annotations} & {*_SHAPES}
    of_masks = [MASK_COLUMN] if shapes == {"mask"} and names else []
    has_boxes = bool(shapes) and not of_masks
    if options.schema is not None:
        has_boxes = bool(options.schema.of(Boxes))
        of_masks = options.schema.of(Mask)
    stored = {"label", "caption"}
    stored |= {"bbox"} if has_boxes else set()
    stored |= _AREAS.keys() if has_masks(options) else set()
    stored |= {"mask"} if of_masks else set()
    files = []
    for split, some in itertools.groupby(items, lambda item: item.subset):
        files.append(_as_coco(split, [*some], names, stored, folder))
    splits = ["" if file.path == "default" else file.path for file in files]
    uris = [[image.name for image in file.images] for file in files]
    raw = table_of(
        remarks,
        files,
        splits,
        uris,
        top=folder,
        folders=[folder] if folder else [],
        options=options,
        boxes=has_boxes,
    )
    by_id = {_id_of(item): item for item in items}
    rows = [by_id[name] for name in raw.frame["image_id"]]
    assert raw.schema is not None
    kinds = {**raw.schema.columns, **dict.fromkeys(of_masks, Mask())}
    columns: dict[str, Any] = dict.fromkeys(of_masks, "")
    classes_of = partial(_classes_of, names)
    cells = {column: partial(_cells_of, rows, classes_of) for column in of_masks}
    if of_masks:
        numbers = ", ".join(f"{number} {name!r}" for number, name in enumerate(names))
        remarks.notes.append(f"pixels of masks: {numbers}; the rest {_rest_of(names)}")
    if not all(isinstance(item.media, ImageFromFile) for item in items):
        cells[URI_COLUMN] = partial(_cells_of, rows, _image_of)
    classes = {**raw.classes}
    labels = [[names[one.label] for one in _labels_of(item)] for item in rows]
    if any(labels):
        column = _CLASSES if has_boxes else LABEL_COLUMN
        is_single = max(map(len, labels)) == 1 and not has_boxes
        columns[column] = ["".join(one) for one in labels] if is_single else labels
        classes[column] = names
        if not has_boxes:
            kinds[column] = Label() if is_single else Labels()
    return replace(
        raw,
        frame=raw.frame.assign(**columns),
        cells=cells,
        classes=classes,
        schema=options.schema or Schema(kinds),
    )


def _set_in(attributes: Mapping[str, Any]) -> list[str]:
    return [f"the attribute {cut(key)!r}" for key, value in attributes.items() if value]


def _id_of(item: Any) -> str:
    return f"{item.subset}/{item.id}"


def _is_there(label: Any) -> bool:
    """False for the class of an image that Open Images says not to be there."""
    return label.attributes.get("score") != 0


def _labels_of(item: Any) -> list[Any]:
    """The classes of a whole image."""
    return [one for one in item.annotations if one.type.name == "label" and _is_there(one)]


def _as_coco(
    split: str,
    items: Sequence[Any],
    names: Sequence[str],
    stored: Set[str],
    folder: str,
) -> CocoFile:
    """The items of a split.

    Args:
        stored: the types of annotations that are.
    """
    from datumaro.util.annotation_util import max_bbox

    images = []
    made = []
    others = Counter[str]()
    for item in items:
        media = item.media
        path = getattr(media, "path", "") if media.type.name == "IMAGE" else ""
        name = os.path.abspath(path).removeprefix(f"{folder}/") if path else item.id
        height, width = media.size if media.has_size else (None, None)
        images.append(CocoImage(_id_of(item), name, (width, height)))
        boxed = {one.label for one in item.annotations if one.type.name == "bbox"}
        groups: dict[Any, list[Any]] = {}
        for at, one in enumerate(item.annotations):
            kind = one.type.name
            # In Open Images, such a mask is of an object that has a box too, and unsaid which.
            is_again = "box_id" in one.attributes and one.label in boxed
            if is_again or kind not in stored:
                others[_WORDS.get(kind, kind)] += 1
            if "bbox" in stored and kind in _SHAPES and not is_again:
                groups.setdefault((one.group, one.label) if one.group else at, []).append(one)
            others.update(_set_in(one.attributes))
            others["the track"] += one.object_id >= 0
            others["classes that are not there"] += kind == "label" and not _is_there(one)
            if kind == "caption":
                made.append({"image_id": _id_of(item), "caption": one.caption})
        for parts in _objects_of(groups.values()):
            mask = json.dumps(_mask_of(parts)) if "polygon" in stored else None
            stated = [one for one in parts if one.type.name == "bbox"]
            values = {"image_id": _id_of(item), "category_id": parts[0].label, MASKS: mask}
            values["bbox"] = max_bbox(stated or parts)
            values["iscrowd"] = parts[0].attributes.get("is_crowd")
            made.append(values)
    if "bbox" in stored:
        del others["the attribute 'is_crowd'"]
    annotations = {key: [values.get(key) for values in made] for key in KEPT}
    return CocoFile(split, images, annotations, [*enumerate(names)] or [(None, "object")], others)


def _objects_of(groups: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """The shapes of each object: those of a group, unless several of them are boxes."""
    for parts in groups:
        boxes = [one for one in parts if one.type.name in _BOXES]
        yield from [[one] for one in parts] if len(boxes) > 1 else [parts]


def _mask_of(parts: Sequence[Any]) -> Any:
    """The area of an object in COCO's form; None if only its box is stated."""
    masks = [one.image for one in parts if one.type.name == "mask"]
    if masks:
        return rle_of(np.any(masks, axis=0))
    outlines = [one.as_polygon() for one in parts if one.type.name != "bbox"]
    return [np.ravel(outline).tolist() for outline in outlines] or None


def _classes_of(names: Sequence[str], item: Any) -> Any:
    """A picture of the classes of pixels."""
    from PIL import Image

    dtype = np.uint8 if len(names) < 256 else np.uint16
    return Image.fromarray(item.annotations.get_semantic_seg_mask(_rest_of(names), dtype))


def _rest_of(names: Sequence[str]) -> int:
    """The number of pixels of no class."""
    if "background" in names:
        return names.index("background")
    return 255 if len(names) < 256 else 65535


def _image_of(item: Any) -> Any:
    """The file of an image, or a PNG of its pixels."""
    data = item.media.bytes if item.media.type.name == "IMAGE" else None
    if data is None:
        file = io.BytesIO()
        item.media.save(file, ext=".png")
        data = file.getvalue()
    return {"bytes": data, "path": item.id}


def _cells_of(
    items: Sequence[Any],
    made: Callable[[Any], Any],
    rows: Rows,
) -> Iterator[Any]:
    """Cells that are made of items when they are read."""
    for row in rows:
        item = items[int(row)]
        try:
            yield made(item)
        except Exception as error:  # of a plugin
            yield CellFault(f"Datumaro cannot read it: {cut(str(error))}", item.id)
