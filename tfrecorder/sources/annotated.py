"""Annotations in a folder, recognised by what their files say and not by where they lie."""

from __future__ import annotations

import bisect
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.text import encoding_of
from tfrecorder.display.messages import command
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.sources.coco import read_coco
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.named_files import in_threads
from tfrecorder.sources.path_source import Listing, PathSource, stem_of
from tfrecorder.sources.table import RawTable
from tfrecorder.sources.voc import read_voc
from tfrecorder.sources.yolo import CONFIGS, read_yolo

#: The endings of files that may hold annotations.
TEXT_ENDINGS = (".json", ".jsonl", ".xml", ".csv", ".txt", ".names", ".data", ".yaml", ".yml")

#: How many bytes of a file are looked at, at its beginning and at its end.
_SEEN = 2**16

#: How many files of a folder are looked at: of all, and of those without a picture's stem; as there
#: may be one beside each of a million pictures.
_OF_ALL = 16
_MOST = 256
_OTHERS = 64

#: What JSON of COCO's form has: one of its lists, and what stands in them.
_COCO_LIST = re.compile(r'"(images|annotations)"\s*:\s*\[')
_COCO_WORDS = re.compile(r'"(images|file_name|annotations|image_id)"\s*:')


#: A line of YOLO's: the number of a class, and a box or a polygon, in fractions of the sides.
_FRACTION = r"\s+-?([01](\.\d*)?|\.\d+|\d(\.\d*)?(?=e-))(e-?\d+)?"
_YOLO_LINE = re.compile(rf"(?m)^\s*\d+({_FRACTION}){{4}}(\s+-?\d*\.?\d+(e-?\d+)?)*\s*$")

_CLASSES_ALONE = (".names", "classes.txt")


class Look(NamedTuple):
    """A file, and its beginning and end."""

    path: str
    text: str


def read_annotated(
    source: PathSource,
    listing: Listing,
    looks: Sequence[Look],
    options: ConvertOptions,
) -> RawTable | None:
    """What the annotations of a folder say; None if it has none of the form that may count."""
    form = options.form
    if form in (None, "coco") and (coco := [*_of_coco(looks)]):
        files = tuple(f"{listing.folder}/{path}" for path in coco)
        return read_coco(PathSource(source.path, files, listing.folder), options)
    if form in (None, "voc") and (voc := [*_of_voc(listing, looks)]):
        return read_voc(listing, voc, options)
    if form in (None, "yolo") and (yolo := _of_yolo(looks)):
        files = tuple(f"{listing.folder}/{path}" for path in yolo)
        return read_yolo(PathSource(source.path, files, listing.folder), options)
    return None


#: What holds boxes, shapes or classes: a name with a value in JSON, and a tag in XML.
_OBJECT_WORDS = (
    "shapes|regions?|bbox|box(?:es)?|bndbox|objects?|annotations?|polygons?|segmentations?|points|"
    "keypoints|labels?|class(?:es)?|class_?(?:name|id)|category|categories|category_?(?:name|id)"
)
_HOLDS = {
    ".json": re.compile(rf'"(?:{_OBJECT_WORDS})"\s*:\s*(?!null|""|\[\s*\]|{{\s*}})[^\s]', re.I),
    ".xml": re.compile(rf"<(?:{_OBJECT_WORDS})[\s>]", re.I),
}

#: Names of columns of boxes, shapes or classes.
_COLUMNS = re.compile(
    rf"(?i)^\W*(?:{_OBJECT_WORDS}|target|species|x_?min|x1|rle|encodedpixels|"
    r"region_shape_attributes)\W*$"
)

#: A name of a picture in a text.
_PICTURE = re.compile(
    rf"[^\s\"'/\\<>,;|:][^\"'/\\<>,;|\t\n]*(?:{'|'.join(map(re.escape, IMAGE_ENDINGS))})\b",
    re.I,
)
_NUMBER = re.compile(r"-?\d*\.?\d+(e-?\d+)?", re.I)

#: How many lines of a text tell what is in all.
_LINES = 20

#: What says which tool has written a file.
_TOOLS = {
    "shapes": "in LabelMe's form,",
    "via_": "in VIA's form,",
    "regions": "in VIA's form,",
    "coordinates": "in CreateML's form,",
}


def refuse_unread(listing: Listing, looks: Sequence[Look]) -> None:
    """Raise a SourceError if a file holds annotations, of a form that is not read.

    It names pictures that are there, or has the name of one, and holds boxes, shapes or classes.
    """
    holding = [look for look in looks if _holds_objects(*look)]
    if not holding:
        return  # the names of a million pictures take memory
    folders = dict[str, set[str]]()
    for parts in listing.images:
        *above, name = "/".join(parts).lower().split("/")
        for known in (name, stem_of(name)):
            folders[known] = folders.get(known, {*above}).intersection(above)
    unread = [look for look in holding if _is_about(look, folders.keys())]
    unread = [look for look in unread if not _repeats(look.text.lower(), folders)]
    if not unread:
        return
    path, text = unread[0]
    whole = f"{listing.folder}/{path}"
    tool = next((name for word, name in _TOOLS.items() if f'"{word}' in text), "in a form")
    remedy = "export them as COCO's JSON, YOLO or Pascal VOC"
    if path.lower().endswith((".csv", ".jsonl")):
        remedy = f"give that file as the source, as in `{command('validate', whole)}`"
    elif _YOLO_LINE.search(text):
        remedy = "if they are YOLO's, put a classes.txt with the name of a class on each line there"
    more = f", and {len(unread) - 1:,} others" if len(unread) > 1 else ""
    raise SourceError(
        f"{whole}{more}: holds annotations {tool} that is not read; {remedy}. "
        f"{spelled('form', 'folder')} reads the images and their folders alone."
    )


def _is_about(look: Look, known: Set[str]) -> bool:
    """True for a file with the name of a picture, or that names one.

    Args:
        known: the names of all pictures, with their endings and without, in lower case.
    """
    path = look.path.lower()
    text = look.text.lower()
    # Supervisely writes a.jpg.json.
    if stem_of(path) in known or not known.isdisjoint(_PICTURE.findall(text)):
        return True
    words = re.split(r"[\s,;\"]+", text)
    return path.endswith((".csv", ".txt")) and not known.isdisjoint(words)


def _repeats(text: str, folders: Mapping[str, Set[str]]) -> bool:
    """True for a list of pictures that says of each only the name of a folder that it lies in.

    Args:
        folders: of each picture, by its name.
    """
    is_list = False
    for line in text.splitlines():
        *above, last = re.split(r"[/\\]", line)
        found = _PICTURE.match(last)
        name = found[0] if found else re.split(r"[\s,;]", last)[0]
        if name in folders:
            is_list = True
            if last.removeprefix(name).strip(' \t,;"') not in {*above, *folders[name]}:
                return False
    return is_list


def _holds_objects(path: str, text: str) -> bool:
    """True for what looks like boxes, shapes or classes."""
    ending = f".{path.rpartition('.')[2].lower()}".replace(".jsonl", ".json")
    if ending in _HOLDS:
        return _HOLDS[ending].search(text) is not None
    if ending not in (".csv", ".txt"):
        return False
    lines = [line for line in text.splitlines()[: _LINES + 1] if line.strip()]
    first = re.split(r"[,;\t]", lines[0]) if lines else []
    if len(first) > 1 and not _PICTURE.search(lines[0]) and any(map(_COLUMNS.search, first)):
        return True
    if len(first) > 1 and len(lines) > 1 and not re.search(r"\d|\.", lines[0]):
        del lines[0]  # the heading
    return sum(map(_is_of_objects, lines)) * 2 > len(lines) > 0


def _is_of_objects(line: str) -> bool:
    """True for a line of numbers and a class; or of a picture's name with its class or box."""
    name = _PICTURE.match(line.rpartition("/")[2])
    rest = line.rpartition(name[0])[2] if name else line
    words = re.split(r"[\s,;]+", rest.strip(" \t\r,;"))
    numbers = [word for word in words if _NUMBER.fullmatch(word)]
    has_box = len(numbers) >= 4 and len(words) - len(numbers) <= 2
    # One class, or a number for each of several; but no checksum.
    has_class = len(words) == 1 and not re.fullmatch(r"|[0-9a-fA-F]{8,}", words[0])
    has_classes = len(words) > 1 and {*words} <= {"0", "1"}
    return has_box or (name is not None and (has_class or has_classes))


def _of_coco(looks: Iterable[Look]) -> Iterator[str]:
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


def _of_yolo(looks: Sequence[Look]) -> list[str]:
    """The file that says where images are, or those that name the classes."""
    has_lines = any(path.endswith(".txt") and _YOLO_LINE.search(text) for path, text in looks)
    for ending, words in CONFIGS.items():
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


def _of_voc(listing: Listing, looks: Iterable[Look]) -> Iterator[str]:
    """The XML files of the folders where one that was looked at is of Pascal VOC's form."""
    folders = set()
    for path, text in looks:
        if path.lower().endswith(".xml") and re.search(r"<annotation[\s>]", text):
            folders.add(path.rpartition("/")[0])
    for path in listing.texts:
        if path.lower().endswith(".xml") and path.rpartition("/")[0] in folders:
            yield path


def looked_at(listing: Listing) -> list[Look]:
    """The files that are looked at, some of each folder and ending."""
    groups = dict[tuple[str, str], list[str]]()
    for path in listing.texts:
        key = path.rpartition("/")[0], path.rpartition(".")[2].lower()
        groups.setdefault(key, []).append(path)
    chosen = []
    for (folder, _), paths in groups.items():
        if len(paths) <= _OF_ALL:
            chosen += paths
            continue
        parts = tuple(filter(None, folder.split("/")))
        # As they are sorted, those of a folder are together.
        first = bisect.bisect(listing.images, (*parts, ""))
        last = bisect.bisect(listing.images, (*parts, chr(sys.maxunicode)))
        stems = {stem_of(image[-1]) for image in listing.images[first:last]}
        others = [path for path in paths if stem_of(path) not in stems]
        chosen += {*_spread(paths, _OF_ALL), *_spread(others, _OTHERS)}
    chosen.sort(key=lambda path: (path.count("/"), path))
    chosen = chosen[:_MOST] + _spread(chosen[_MOST:], _MOST)
    full = [f"{listing.folder}/{path}" for path in chosen]
    return [*map(Look, chosen, in_threads(_ends, full))]


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
    return data.decode(encoding_of(data), errors="replace")
