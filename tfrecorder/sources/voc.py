"""A folder of Pascal VOC's form: an XML file for each image, and lists of the images of splits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Mask, Number, Schema, Split
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.objects import as_numbers, object_columns, objects_of, texts_of
from tfrecorder.sources.path_source import (
    MASK_FOLDERS,
    Listing,
    Pairs,
    refuse_table_options,
    split_of_folders,
    stem_of,
)
from tfrecorder.sources.table import MASK_COLUMN, RawTable

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


def read_voc(
    listing: Listing,
    files: Sequence[str],
    options: ConvertOptions,
) -> RawTable:
    """The images of XML files; with a mask in the schema, those that have one.

    An image that a list of a split names and that has no XML is one without objects.

    Args:
        files: those XML files of the listing.
    """
    refuse_table_options(options, "a folder of Pascal VOC's form")
    schema = options.schema or _SCHEMA
    root = listing.folder
    masks = dict[str, str]()
    pictures = list[str]()
    for parts in listing.images:
        path = "/".join(parts)
        kind = parts[-2].lower() if len(parts) > 1 else ""
        if kind == "segmentationclass" and path.endswith(".png"):
            masks[stem_of(path)] = path
        elif kind not in MASK_FOLDERS:
            pictures.append(path)
    folder = pictures[0].rpartition("/")[0] if pictures else ""
    pairs = Pairs(pictures)
    entries = [(path, pairs.of(path)) for path in files]
    stems = {stem_of(path) for path in files}
    kind = "segmentation" if schema.of(Mask) else "main"
    splits = dict(_splits(listing, kind, stems | {stem_of(path) for path in pictures}))
    absent = 0
    for stem in splits:
        if stem not in stems:
            picture = pairs.of(f"{stem}.jpg")
            entries += [("", picture)] if picture else []
            absent += not picture
    columns = dict[str, Any]()
    if schema.of(Mask):
        entries = [pair for pair in entries if stem_of(pair[0] or pair[1]) in masks]
        columns[MASK_COLUMN] = [masks[stem_of(file or picture)] for file, picture in entries]
    stated = []
    for file, picture in entries:
        of_folders = split_of_folders(picture) or split_of_folders(file)
        stated.append(splits.get(stem_of(file or picture)) or of_folders)
    if any(stated):
        columns[SPLIT_COLUMN] = stated
    uris = list[str]()
    sizes = list[Any]()
    objects = list[Any]()
    findings = list[Finding]()
    texts = iter(texts_of([f"{root}/{file}" for file, _ in entries if file]))
    for row, (file, picture) in enumerate(entries):
        document = ElementTree.Element("annotation")
        try:
            document = ElementTree.fromstring(next(texts) or "") if file else document
        except ElementTree.ParseError as error:
            message = f"{root}/{file} is not sound XML: {error}"
            findings.append(bad_annotation(row, URI_COLUMN, file.rpartition("/")[2], message))
        name = _text(document, "filename").replace("\\", "/") or f"{stem_of(file)}.jpg"
        named = pairs.named(name)
        # Where none has its stem.  Two XML files are never of one picture.
        picture = picture or ("" if stem_of(named) in stems else named)
        uris.append(picture or "/".join(filter(None, [folder, name])))
        sizes.append([document.findtext(f"size/{side}") for side in ("width", "height")])
        objects += ((row, tag) for tag in document.iterfind("object"))
    columns[URI_COLUMN] = pd.Series(uris, dtype=object)
    if schema.of(Boxes):
        sides = as_numbers(sizes, 2)
        sides[sides == 0] = np.nan
        of_boxes, wrong = object_columns(_objects(objects), uris, sides, _SLACK)
        columns |= of_boxes
        findings += wrong
    without = len({*pictures}.difference(uris)) if not schema.of(Mask) else 0
    counts = {"images without annotations": without, "listed images that are not there": absent}
    return RawTable(
        pd.DataFrame(columns),
        root,
        {kind: count for kind, count in counts.items() if count},
        schema=schema,
        findings=findings,
    )


def _splits(
    listing: Listing,
    kind: str,
    stems: Collection[str],
) -> Iterator[tuple[str, str]]:
    """The split of each image that a list names, by the image's name without its ending.

    A flag may follow the name, as in the lists of a class; the name itself may have a space.

    Args:
        kind: the name of the folder of lists, in lower case.
    """
    lists = {}
    for path in listing.texts:
        *_, above, folder, name = ("", "", *path.lower().split("/"))
        if (above, folder) == ("imagesets", kind) and name.removesuffix(".txt") in _LISTS:
            lists[name.removesuffix(".txt")] = f"{listing.folder}/{path}"
    if lists.keys() & {"train", "val"}:
        lists.pop("trainval", None)
    texts = texts_of([*lists.values()])
    for name, text in zip(lists, texts, strict=True):
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
