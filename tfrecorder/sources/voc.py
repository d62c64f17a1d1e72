"""A folder of Pascal VOC's form: an XML file for each image, and lists of the images of splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Mask, Number, Schema, Split
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.objects import as_numbers, object_columns, objects_of, texts_of
from tfrecorder.sources.path_source import PathSource, refuse_table_options
from tfrecorder.sources.table import MASK_COLUMN, RawTable

#: Where the images may be.
_IMAGES = ("JPEGImages", "images")

#: The lists of images; that of both counts only where neither of them is there.
_LISTS = ("train", "val", "test")

#: Whole numbers that an object may have, by column.
_FLAGS = ("difficult", "truncated")

_SCHEMA = Schema(
    {
        SPLIT_COLUMN: Split(required=False),
        URI_COLUMN: Image(),
        "boxes": Boxes(unit="pixel"),
        **{name: Number(dtype="int64", of="boxes") for name in _FLAGS},
    }
)

#: How far, in pixels, a box may be beyond its image: some tools count from 1, others from 0.
_SLACK = 1.0


def read_voc(source: Any, options: ConvertOptions) -> RawTable | None:
    """A folder with `Annotations`; with a mask in the schema, the images that have one."""
    if not isinstance(source, PathSource) or not source.folder:
        return None
    root = source.folder
    listed = storage.names(f"{root}/Annotations")
    stems = [name[: -len(".xml")] for name in listed if name.lower().endswith(".xml")]
    if not stems:
        return None
    refuse_table_options(options, "a folder of Pascal VOC's form")
    schema = options.schema or _SCHEMA
    columns = dict[str, Any]()
    masks = schema.of(Mask)
    if masks:
        mask_files = {*storage.names(f"{root}/SegmentationClass")}
        stems = [stem for stem in stems if f"{stem}.png" in mask_files]
        columns[MASK_COLUMN] = [f"SegmentationClass/{stem}.png" for stem in stems]
    splits = dict(_splits(f"{root}/ImageSets/{'Segmentation' if masks else 'Main'}", {*stems}))
    if splits:
        columns[SPLIT_COLUMN] = [splits.get(stem, "") for stem in stems]
    images = next((name for name in _IMAGES if storage.is_folder(f"{root}/{name}")), "")
    uris = list[str]()
    sizes = list[Any]()
    objects = list[Any]()
    findings = list[Finding]()
    texts = texts_of([f"{root}/Annotations/{stem}.xml" for stem in stems])
    for row, (stem, text) in enumerate(zip(stems, texts, strict=True)):
        try:
            document = ElementTree.fromstring(text or "")
        except ElementTree.ParseError as error:
            message = f"{root}/Annotations/{stem}.xml is not sound XML: {error}"
            findings.append(bad_annotation(row, URI_COLUMN, f"{stem}.xml", message))
            document = ElementTree.Element("annotation")
        name = _text(document, "filename") or f"{stem}.jpg"
        uris.append("/".join(filter(None, [images, name.replace("\\", "/")])))
        sizes.append([document.findtext(f"size/{side}") for side in ("width", "height")])
        objects += ((row, tag) for tag in document.iterfind("object"))
    columns[URI_COLUMN] = pd.Series(uris, dtype=object)
    if schema.of(Boxes):
        sides = as_numbers(sizes, 2)
        sides[sides == 0] = np.nan
        of_boxes, wrong = object_columns(_objects(objects), uris, sides, _SLACK)
        columns |= of_boxes
        findings += wrong
    return RawTable(pd.DataFrame(columns), root, schema=schema, findings=findings)


def _splits(folder: str, stems: set[str]) -> Iterator[tuple[str, str]]:
    """The split of each image that a list names, by the image's name without its ending.

    A flag may follow the name, as in the lists of a class; the name itself may have a space.
    """
    names = [name for name in _LISTS if storage.size(f"{folder}/{name}.txt") is not None]
    if not {"train", "val"} & {*names}:
        names.append("trainval")
    texts = texts_of([f"{folder}/{name}.txt" for name in names])
    for name, text in zip(names, texts, strict=True):
        for line in (text or "").splitlines():
            if stem := line.strip():
                stem = stem if stem in stems else stem.split()[0]
                yield stem, "train" if name == "trainval" else name


def _objects(objects: list[Any]) -> pd.DataFrame:
    """The objects of all images."""
    rows = np.array([row for row, _ in objects], np.int64)
    tags = [tag for _, tag in objects]
    edges = []
    for tag in tags:
        edges.append([tag.findtext(f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")])
    flags = {}
    for name in _FLAGS:
        is_set = [_text(tag, name) == "1" for tag in tags]
        flags[name] = np.array(is_set, int)
    labels = np.array([_text(tag, "name") for tag in tags], dtype=object)
    return objects_of(rows, labels, as_numbers(edges, 4), flags)


def _text(tag: ElementTree.Element, name: str) -> str:
    return (tag.findtext(name) or "").strip()
