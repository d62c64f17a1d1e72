"""A folder of Pascal VOC's form: an XML file for each image, and lists of the images of splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
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
from tfrecorder.sources.finding import Finding, bad_annotation
from tfrecorder.sources.objects import (
    Said,
    as_numbers,
    files_of,
    object_columns,
    objects_of,
    say_missing,
    say_not_stored,
    say_without_image,
    some_of,
    text_of,
)
from tfrecorder.sources.path_source import (
    MASK_FOLDERS,
    Listing,
    Pairs,
    look_of,
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
    masks = dict[str, str]()
    pictures = list[str]()
    for parts in listing.images:
        path = "/".join(parts)
        kind = parts[-2].lower() if len(parts) > 1 else ""
        if kind == "segmentationclass" and path.endswith(".png"):
            masks[look_of(stem_of(path))] = path
        elif kind not in MASK_FOLDERS:
            pictures.append(path)
    said = Said([], [])
    pairs = Pairs(pictures)
    entries = _entries(said, listing.folder, files, pairs)
    kind = "segmentation" if schema.of(Mask) else "main"
    splits = _splits(listing, kind, [*(entry.stem for entry in entries), *map(stem_of, pictures)])
    trees = sorted({tree for tree, _ in splits}, reverse=True)  # one within another comes first
    known = {entry.listed_in(trees) for entry in entries}
    absent = 0
    for tree, stem in splits:
        if (tree, stem) not in known:
            picture = pairs.of(f"{tree}{stem}.jpg")
            entries += [_Entry("", picture)] if picture else []
            absent += not picture
    columns = dict[str, Any]()
    if schema.of(Mask):
        entries = [entry for entry in entries if look_of(entry.stem) in masks]
        columns[MASK_COLUMN] = [masks[look_of(entry.stem)] for entry in entries]
    stated = []
    for entry in entries:
        of_folders = split_of_folders(entry.picture) or split_of_folders(entry.file)
        stated.append(splits.get(entry.listed_in(trees)) or of_folders)
    if any(stated):
        columns[SPLIT_COLUMN] = stated
    uris = [entry.picture for entry in entries]
    columns[URI_COLUMN] = pd.Series(uris, dtype=object)
    objects = list[_Object]()
    for row, entry in enumerate(entries):
        if entry.fault:
            name = entry.file.rpartition("/")[2]
            said.findings.append(bad_annotation(row, URI_COLUMN, name, entry.fault))
        objects += (
            _Object(row, number, tag)
            for number, tag in enumerate(entry.document.iterfind("object"), 1)
        )
    if schema.of(Boxes):
        missing = [row for row, entry in enumerate(entries) if not entry.file]
        if missing:

            def looked(row: int) -> str:
                return f"{entries[row].stem}.xml"

            say_missing(said, "XML file", missing, stated, uris, looked)
        sides = as_numbers([entry.size for entry in entries], 2)
        sides[sides == 0] = np.nan

        def place_of(number: int) -> str:
            row, place, _ = objects[number]
            return f"{listing.folder}/{entries[row].file}, object {place}"

        of_boxes, wrong = object_columns(_objects(objects), uris, sides, _SLACK, place_of)
        columns |= of_boxes
        said.findings.extend(wrong)
        _say_not_stored(said, objects)
    without = 0
    if not schema.of(Mask):
        without = len({*pictures}.difference(uris))
        if count := sum(look_of(entry.stem) in masks for entry in entries):
            remedy = "`mask_uri: mask` in a schema stores them"
            said.notes.append(f"{NOT_STORED}masks of {counted(count, 'image')} ({remedy})")
    counts = {"images without annotations": without, "listed images that are not there": absent}
    return RawTable(
        pd.DataFrame(columns),
        listing.folder,
        {kind: count for kind, count in counts.items() if count},
        schema=schema,
        findings=said.findings,
        notes=said.notes,
    )


@dataclass(frozen=True)
class _Entry:
    """An image.

    Attributes:
        file: its XML file, from the folder of all; "" without one.
        picture: its own path from there.
        document: what the XML file holds.
        fault: what is wrong with that file.
    """

    file: str
    picture: str
    document: ElementTree.Element = field(default_factory=lambda: ElementTree.Element("none"))
    fault: str = ""

    @property
    def stem(self) -> str:
        return stem_of(self.file or self.picture)

    def listed_in(self, trees: Sequence[str]) -> tuple[str, str]:
        """The tree whose lists may name the image, and its name there."""
        whole = self.file or self.picture
        return next((tree for tree in trees if whole.startswith(tree)), ""), self.stem

    @property
    def size(self) -> list[str | None]:
        """Width and height as the XML file states them."""
        return [self.document.findtext(f"size/{side}") for side in ("width", "height")]


class _Object(NamedTuple):
    """An object: the row of its image, its number there from 1, and its element."""

    row: int
    number: int
    tag: ElementTree.Element


def _entries(
    said: Said,
    root: str,
    files: Sequence[str],
    pairs: Pairs,
) -> list[_Entry]:
    """The images of XML files, in the order of these.

    An XML file is of the image with its own stem.  Only where there is none, `<filename>` counts;
    and two XML files are never of one image.

    Raises:
        SourceError: none of the files has an image.
    """
    own = [pairs.of(file) for file in files]
    taken = {*own}
    entries = []
    others = []
    orphans = []
    documents = _documents([f"{root}/{file}" for file in files])
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
            taken.add(picture)
        if picture:
            entries.append(_Entry(file, picture, document, fault))
        else:
            orphans.append(file)
    if not entries:
        raise SourceError(
            f"{root}: no image has the name of any of {counted(len(files), 'XML file')}, such as "
            f"{orphans[0]}."
        )
    say_without_image(said, "XML file", orphans, len(files))
    if others:
        count = counted(len(others), "XML file names", "XML files name")
        words = f"{count} another image that is there too: {some_of(others)}"
        said.findings.append(Finding("other_file_name", [None], URI_COLUMN, [len(others)], words))
    return entries


def _documents(paths: Sequence[str]) -> Iterator[tuple[ElementTree.Element, str]]:
    """What XML files hold, each with what is wrong with it."""
    for path, data in zip(paths, files_of(paths), strict=True):
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
        yield document, fault


def _splits(
    listing: Listing,
    kind: str,
    stems: Collection[str],
) -> dict[tuple[str, str], str]:
    """The split of each image that a list names, by the tree of folders and by its stem.

    A flag may follow the name, as in the lists of a class; the name itself may have a space, an
    ending, or the folders before it.  A tree is a path such as "VOC2007/"; "" if there is one.

    Args:
        kind: the name of the folder of lists, in lower case; they may lie above it too.
    """
    lists: dict[str, dict[str, str]] = {}
    for path in listing.texts:
        parts = path.split("/")
        for folders in (["imagesets", kind], ["imagesets"]):
            start = len(parts) - 1 - len(folders)
            if start >= 0 and path.lower().split("/")[start:-1] == folders:
                tree = "".join(f"{part}/" for part in parts[:start])
                name = parts[-1].lower().removesuffix(".txt")
                lists.setdefault(tree, {}).setdefault(name, f"{listing.folder}/{path}")
    alike = {look_of(stem): stem for stem in stems}
    exact = {*stems}
    splits = {}
    for tree, files in lists.items():
        names = [name for name in _LISTS if name in files]
        if not {"train", "val"} & {*names} and "trainval" in files:
            names.append("trainval")
        for name in names:
            for line in filter(None, map(str.strip, (text_of(files[name]) or "").splitlines())):
                first = line.split()[0]
                forms = (line, first, stem_of(line), stem_of(first))
                stem = next((form for form in forms if look_of(form) in alike), first)
                stem = stem if stem in exact else alike.get(look_of(stem), stem)
                place = (tree if len(lists) > 1 else "", stem)
                splits[place] = "train" if name == "trainval" else name
    return splits


def _objects(objects: Sequence[_Object]) -> pd.DataFrame:
    """The objects of all images."""
    rows = np.array([one.row for one in objects], np.int64)
    tags = [one.tag for one in objects]
    edges = []
    for tag in tags:
        edges.append([tag.findtext(f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")])
    flags = {}
    for name in _FLAGS:
        is_set = [_text(tag, name) == "1" for tag in tags]
        flags[name] = np.array(is_set, int)
    labels = np.array([_text(tag, "name") for tag in tags], dtype=object)
    return objects_of(rows, labels, as_numbers(edges, 4), flags)


#: What of an object becomes columns, and values that say nothing.
_READ = ("name", "bndbox", *_FLAGS)
_NOTHING = ("", "0", "Unspecified")


def _say_not_stored(said: Said, objects: Sequence[_Object]) -> None:
    counts = Counter[str]()
    for one in objects:
        tags = {tag.tag for tag in one.tag if len(tag) or (tag.text or "").strip() not in _NOTHING}
        counts.update(tags.difference(_READ))
    say_not_stored(said, {repr(cut(name)): count for name, count in sorted(counts.items())}, {})


def _text(tag: ElementTree.Element, name: str) -> str:
    return (tag.findtext(name) or "").strip()
