"""A folder of Pascal VOC's form: an XML file for each image, and lists of the images of splits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from tfrecorder.core.text import NotTextError, decoded_xml
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import SourceError
from tfrecorder.format.summary import NOT_STORED
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.keys import SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Mask, Number, Schema, Split
from tfrecorder.sources.finding import bad_annotation
from tfrecorder.sources.objects import (
    as_numbers,
    files_of,
    image_columns,
    lines_in,
    object_columns,
    objects_of,
    stated_sizes,
    text_of,
)
from tfrecorder.sources.path_source import (
    MASK_FOLDERS,
    Listing,
    Pairs,
    refuse_table_options,
    split_of_folders,
)
from tfrecorder.sources.remarks import Remarks, some_of
from tfrecorder.sources.table import MASK_COLUMN, RawTable
from tfrecorder.storage.uris import look_of, stem_of

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


class _Entry(NamedTuple):
    """What is known of an image.

    Attributes:
        file: its XML file, from the folder of all; "" without one.
        document: what that file holds.
        fault: what is wrong with it.
    """

    file: str
    document: ElementTree.Element
    fault: str


class _Object(NamedTuple):
    """An object: the row of its image, its number there from 1, and its element."""

    row: int
    number: int
    tag: ElementTree.Element


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
    masks = {}
    pictures = []
    for parts in listing.images:
        path = "/".join(parts)
        kind = parts[-2].lower() if len(parts) > 1 else ""
        if kind == "segmentationclass" and path.endswith(".png"):
            masks[look_of(stem_of(path))] = path
        elif kind not in MASK_FOLDERS:
            pictures.append(path)
    remarks = Remarks([], [])
    pairs = Pairs(pictures)
    entries = _entries(remarks, listing.folder, files, pairs)
    splits, absent = _splits(listing, "segmentation" if schema.of(Mask) else "main", pairs, entries)
    for picture in splits:
        entries.setdefault(picture, _Entry("", ElementTree.Element("none"), ""))
    with_mask = [picture for picture in entries if look_of(stem_of(picture)) in masks]
    uris = with_mask if schema.of(Mask) else [*entries]
    stated = []
    objects = list[_Object]()
    for row, uri in enumerate(uris):
        file, document, fault = entries[uri]
        stated.append(splits.get(uri) or split_of_folders(uri) or split_of_folders(file))
        if fault:
            name = file.rpartition("/")[2]
            remarks.findings.append(bad_annotation(row, URI_COLUMN, name, fault))
        tags = enumerate(document.iterfind("object"), 1)
        objects += (_Object(row, number, tag) for number, tag in tags)
    columns = image_columns(stated, uris)
    stated_of = None
    passed_over = Counter({"listed images that are not there": absent})
    if schema.of(Mask):
        columns[MASK_COLUMN] = [masks[look_of(stem_of(uri))] for uri in uris]
    else:
        passed_over["images without annotations"] = len({*pictures}.difference(uris))
        if with_mask:
            remedy = "`mask_uri: mask` in a schema stores them"
            images = counted(len(with_mask), "image")
            remarks.notes.append(f"{NOT_STORED}masks of {images} ({remedy})")
    if schema.of(Boxes):
        missing = [row for row, uri in enumerate(uris) if not entries[uri].file]
        remarks.missing("XML file", missing, stated, uris, [f"{stem_of(uri)}.xml" for uri in uris])

        def place_of(at: int) -> str:
            row, number, _ = objects[at]
            return f"{listing.folder}/{entries[uris[row]].file}, object {number}"

        sides = ("size/width", "size/height")
        sizes = as_numbers([[*map(entries[uri].document.findtext, sides)] for uri in uris], 2)
        sizes[sizes == 0] = np.nan
        stated_of = stated_sizes(sizes)
        boxes, wrong = object_columns(_objects(objects), uris, sizes, _SLACK, place_of)
        columns |= boxes
        remarks.findings.extend(wrong)
        not_stored = Counter[str]()
        for one in objects:
            not_stored.update(_beyond(one.tag))
        remarks.not_stored(dict(sorted(not_stored.items())), {})
    return RawTable(
        pd.DataFrame(columns),
        listing.folder,
        +passed_over,
        schema=schema,
        findings=remarks.findings,
        notes=remarks.notes,
        sizes=stated_of,
    )


def _entries(
    remarks: Remarks,
    root: str,
    files: Sequence[str],
    pairs: Pairs,
) -> dict[str, _Entry]:
    """The images of XML files, in the order of these.

    An XML file is of the image with its own stem.  Only where there is none, `<filename>` counts;
    and two XML files are never of one image.

    Raises:
        SourceError: none of the files has an image.
    """
    own = [pairs.of(file) for file in files]
    taken = {*own}
    entries = {}
    others = []
    orphans = []
    paths = [f"{root}/{file}" for file in files]
    documents = map(_document, paths, files_of(paths))
    for file, picture, (document, fault) in zip(files, own, documents, strict=True):
        stated = _text(document, "filename")
        named = pairs.named(stated)
        if picture and named not in ("", picture):
            if look_of(stem_of(named)) == look_of(stem_of(file)):
                picture = named  # of several with the stem of the file
            else:
                others.append(f"{file} names {named}, not {picture}")
        if not picture:
            named = named or pairs.of(stated.replace("\\", "/")) or pairs.of(f"{stated}.jpg")
            picture = "" if named in taken else named
        if picture and picture not in entries:
            entries[picture] = _Entry(file, document, fault)
        else:
            orphans.append(file)
    if not entries:
        raise SourceError(
            f"{root}: no image has the name of any of {counted(len(files), 'XML file')}, such as "
            f"{orphans[0]}."
        )
    remarks.without_image("XML file", orphans, len(files))
    if others:
        count = counted(len(others), "XML file names", "XML files name")
        words = f"{count} another image that is there too: {some_of(others)}"
        remarks.find("other_file_name", words, len(others))
    return entries


def _document(path: str, data: bytes | None) -> tuple[ElementTree.Element, str]:
    """What an XML file holds, and what is wrong with it."""
    fault = ""
    document = ElementTree.Element("annotation")
    try:
        document = ElementTree.fromstring(decoded_xml(data or b""))
        if document.tag != "annotation":
            fault = f"{path} is not Pascal VOC's: it holds {cut(document.tag)!r}, no annotation"
    except NotTextError as error:
        fault = f"{path}, {error}"
    except ElementTree.ParseError as error:
        fault = f"{path} is not sound XML: {error}"
    return document, fault


def _splits(
    listing: Listing,
    kind: str,
    pairs: Pairs,
    entries: Mapping[str, _Entry],
) -> tuple[dict[str, str], int]:
    """The split of each image that a list names, and how many names are of no image.

    A flag may follow the name, as in the lists of a class; the name itself may have a space, an
    ending, or the folders before it.  It may be that of the XML file, if this has another.

    Args:
        kind: the name of the folder of lists, in lower case; they may lie above it too.
    """
    place = re.compile(rf"(?i)(.*/|)imagesets/(?:{kind}/|)(\w+)\.txt")
    # By the tree of folders that they are for, such as "VOC2007/".
    lists: dict[str, dict[str, str]] = {}
    for path in listing.texts:
        if found := place.fullmatch(path):
            of_tree = lists.setdefault(found[1], {})
            of_tree.setdefault(found[2].lower(), f"{listing.folder}/{path}")
    of_files = {entry.file: picture for picture, entry in entries.items()}
    file_pairs = Pairs(of_files)
    splits = {}
    lost = set()
    for tree, paths in lists.items():
        names = [name for name in _LISTS if name in paths]
        if not {"train", "val"} & {*names} and "trainval" in paths:
            names.append("trainval")
        for name in names:
            for line in lines_in(text_of(paths[name])):
                first = line.split()[0]
                for form in (f"{line}.jpg", f"{first}.jpg", line, first):
                    path = f"{tree}{form}"
                    if picture := pairs.of(path) or of_files.get(file_pairs.of(path)):
                        splits[picture] = "train" if name == "trainval" else name
                        break
                else:
                    lost.add(f"{tree}{first}")
    return splits, len(lost)


def _objects(objects: Sequence[_Object]) -> pd.DataFrame:
    """The objects of all images."""
    tags = [one.tag for one in objects]
    edges = []
    for tag in tags:
        edges.append([tag.findtext(f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")])
    flags = {}
    for name in _FLAGS:
        flags[name] = np.array([_text(tag, name).lower() in ("1", "true") for tag in tags], int)
    labels = np.array([_text(tag, "name") for tag in tags], dtype=object)
    rows = np.array([one.row for one in objects], np.int64)
    return objects_of(rows, labels, as_numbers(edges, 4), flags)


#: What of an object becomes columns, and values that say nothing.
_READ = ("name", "bndbox", *_FLAGS)
_NOTHING = ("", "0", "Unspecified")


def _beyond(one: ElementTree.Element) -> Iterator[str]:
    """What of an object is not stored, in words."""
    tags = {tag.tag for tag in one if len(tag) or (tag.text or "").strip() not in _NOTHING}
    yield from (repr(cut(name)) for name in tags.difference(_READ))


def _text(tag: ElementTree.Element, name: str) -> str:
    return (tag.findtext(name) or "").strip()
