"""Annotations in a folder, recognised by what their files say and not by where they lie."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tfrecorder import storage
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.sources.coco import read_coco
from tfrecorder.sources.named_files import in_threads
from tfrecorder.sources.path_source import Listing, PathSource, stem_of
from tfrecorder.sources.table import RawTable
from tfrecorder.sources.voc import read_voc
from tfrecorder.sources.yolo import read_yolo

#: The endings of files that may hold annotations.
TEXT_ENDINGS = (".json", ".xml", ".csv", ".txt", ".names", ".data", ".yaml", ".yml")

#: How many bytes of a file are looked at, at its beginning and at its end.
_SEEN = 2**16

#: How many files of a folder are looked at: of those with a picture's stem, and of others.  A
#: folder may have a file beside each of a million pictures.
_OF_STEMS = 16
_MOST = 256
_OTHERS = 64

#: What JSON of COCO's form has: one of its lists, and what stands in them.
_COCO_LIST = re.compile(r'"(images|annotations)"\s*:\s*\[')
_COCO_WORDS = re.compile(r'"(images|file_name|annotations|image_id)"\s*:')


#: A line of YOLO's: the number of a class, and a box or a polygon.
_YOLO_LINE = re.compile(r"(?m)^\s*\d+(\s+-?\d*\.?\d+(e-?\d+)?){4,}\s*$")

#: How the files end that name YOLO's classes, and what is in them, the one that says most first.
_YOLO_CONFIGS = {
    ".data": r"(?m)^\s*names\s*=",
    ".yaml": r"(?m)^names\s*:[\s\S]*^(train|val)\s*:|^(train|val)\s*:[\s\S]*^names\s*:",
    ".yml": r"(?m)^names\s*:[\s\S]*^(train|val)\s*:|^(train|val)\s*:[\s\S]*^names\s*:",
    ".names": r"\S",
    "classes.txt": r"\S",
}
_CLASSES_ALONE = (".names", "classes.txt")


class _Look(NamedTuple):
    """A file, and its beginning and end."""

    path: str
    text: str


def read_annotated(
    source: PathSource,
    listing: Listing,
    options: ConvertOptions,
) -> RawTable | None:
    """What the annotations of a folder say; None if it has none."""
    looks = [*_looks(listing)]
    if coco := [*_of_coco(looks)]:
        files = tuple(f"{listing.folder}/{path}" for path in coco)
        return read_coco(PathSource(source.path, files, listing.folder), options)
    if voc := [*_of_voc(listing, looks)]:
        return read_voc(listing, voc, options)
    if yolo := _of_yolo(looks):
        files = tuple(f"{listing.folder}/{path}" for path in yolo)
        return read_yolo(PathSource(source.path, files, listing.folder), options)
    return None


def _of_coco(looks: Iterable[_Look]) -> Iterator[str]:
    """The files of COCO's JSON; of those in one folder `instances*` alone, where there are some."""
    by_folder = dict[str, list[str]]()
    for path, text in looks:
        if not path.lower().endswith(".json") or not _COCO_LIST.search(text):
            continue
        words = {*_COCO_WORDS.findall(text)}
        if words & {"images", "file_name"} and words & {"annotations", "image_id"}:
            by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    for paths in by_folder.values():
        chosen = [path for path in paths if path.rpartition("/")[2].startswith("instances")]
        yield from chosen or paths


def _of_yolo(looks: Sequence[_Look]) -> list[str]:
    """The file that says where images are, or those that name the classes."""
    has_lines = any(path.endswith(".txt") and _YOLO_LINE.search(text) for path, text in looks)
    for ending, words in _YOLO_CONFIGS.items():
        found = {}
        for path, text in looks:
            if path.lower().endswith(ending) and re.search(words, text):
                found[path] = text.split()
        if found and (has_lines or ending not in _CLASSES_ALONE):
            first, *others = found
            if ending != "classes.txt":
                return [first]
            if other := next((path for path in others if found[path] != found[first]), None):
                raise SourceError(
                    f"{other} has other classes than {first}: {found[other]}, not {found[first]}. "
                    "Convert one folder, and append the other."
                )
            return [*found]
    return []


def _of_voc(listing: Listing, looks: Iterable[_Look]) -> Iterator[str]:
    """The XML files of the folders where one that was looked at is of Pascal VOC's form."""
    folders = set()
    for path, text in looks:
        if path.lower().endswith(".xml") and re.search(r"<annotation[\s>]", text):
            folders.add(path.rpartition("/")[0])
    for path in listing.texts:
        if path.lower().endswith(".xml") and path.rpartition("/")[0] in folders:
            yield path


def _looks(listing: Listing) -> Iterator[_Look]:
    """The files that are looked at, some of each folder and ending."""
    groups = dict[tuple[str, str], list[str]]()
    for path in listing.texts:
        key = path.rpartition("/")[0], path.rpartition(".")[2].lower()
        groups.setdefault(key, []).append(path)
    chosen = []
    for (folder, _), paths in groups.items():
        if len(paths) <= _OF_STEMS:
            chosen += paths
            continue
        parts = tuple(filter(None, folder.split("/")))
        stems = {stem_of(image[-1]) for image in listing.images if image[:-1] == parts}
        of_stems = [path for path in paths if stem_of(path) in stems]
        others = [path for path in paths if stem_of(path) not in stems]
        chosen += _spread(of_stems, _OF_STEMS) + _spread(others, _OTHERS)
    chosen.sort(key=lambda path: path.count("/"))
    chosen = chosen[:_MOST] + _spread(chosen[_MOST:], _MOST)
    full = [f"{listing.folder}/{path}" for path in chosen]
    yield from map(_Look, chosen, in_threads(_ends, full))


def _spread(paths: list[str], most: int) -> list[str]:
    """Some of many, at equal distances."""
    return paths[:: -(-len(paths) // most)] if paths else []


def _ends(path: str) -> str:
    """The beginning and the end of a file, with other characters for what is not text."""
    data = b""
    with contextlib.suppress(OSError, storage.UnreadableError), storage.open_seekable(path) as file:
        data = file.read(_SEEN)
        size = file.seek(0, 2)
        if size > len(data):
            file.seek(max(len(data), size - _SEEN))
            data += file.read(_SEEN)
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")
