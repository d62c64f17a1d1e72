"""Annotations in a folder, recognised by what their files say and not by where they lie."""

from __future__ import annotations

import bisect
import contextlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.core.text import encoding_of
from tfrecorder.display.messages import command
from tfrecorder.errors import SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.convert_values import DATUMARO
from tfrecorder.sources.coco import read_coco
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.named_files import in_threads
from tfrecorder.sources.path_source import Listing, PathSource
from tfrecorder.sources.table import RawTable
from tfrecorder.sources.voc import read_voc
from tfrecorder.sources.yolo import CONFIGS, read_yolo
from tfrecorder.storage.uris import stem_of

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

    @property
    def ending(self) -> str:
        return self.path[self.path.rfind(".") :].lower()


def read_annotated(
    source: PathSource,
    listing: Listing,
    looks: Sequence[Look],
    options: ConvertOptions,
) -> RawTable | None:
    """What the annotations of a folder say; None if it has none of the form that may count."""
    form = options.form
    if form is None:
        _refuse_other_forms(listing, looks)
    if form in (None, "coco") and (coco := [*_of_coco(looks)]):
        files = tuple(f"{listing.folder}/{path}" for path in coco)
        return read_coco(PathSource(source.path, files, listing.folder), options)
    if form in (None, "voc") and (voc := [*_of_voc(listing, looks)]):
        return read_voc(listing, voc, options)
    if form in (None, "yolo") and (yolo := _of_yolo(looks)):
        files = tuple(f"{listing.folder}/{path}" for path in yolo)
        return read_yolo(PathSource(source.path, files, listing.folder), options)
    return None


#: Forms under Datumaro's names, with what no other has: in the path of a file and its text, or of
#: a folder of images.
_BY_DATUMARO = {
    "cityscapes": r"(^|/)gtFine/",
    "cvat": r"<image\s[^>]*>\s*<(box|polygon|polyline|points|mask|tag|ellipse|cuboid)\s",
    "datumaro": r'"dm_format_version"',
    "dota": r"(?s)(^|/)labelTxt/.*?\n(-?[\d.]+ ){8}\S+ \d\s",
    "kitti": r"(?s)(^|/)label_2/.*?\n\S+( -?[\d.]+){14}\s",
    "kitti_segmentation": r"(^|/)semantic_rgb/",
    "label_me": r"(?s)<annotation>.*<pt>",
    "market1501": r"(^|/)bounding_box_train/",
    "mot_seq": r"(^|/)gt/gt\.txt\n\d+,",
    "open_images": r"-annotations-bbox\.csv\nImageID,",
    "wider_face": r"(^|/)wider_face_split/",
}

#: What holds boxes, shapes or classes: a name with a value in JSON, and a tag in XML.
_OBJECT_WORDS = (
    "shapes|regions?|bbox|box(?:es)?|bndbox|objects?|annotations?|polygons?|segmentations?|points|"
    "keypoints|labels?|class(?:es)?|class_?(?:name|id)|category|categories|category_?(?:name|id)"
)
_JSON = re.compile(rf'"(?:{_OBJECT_WORDS})"\s*:\s*(?!null|""|\[\s*\]|{{\s*}})[^\s]', re.I)
#: What of these is about parts of a picture.
_SHAPES = re.compile("box|shape|region|polygon|segmentation|points|object|annotation", re.I)
_HOLDS = {
    ".json": _JSON,
    ".jsonl": _JSON,
    ".xml": re.compile(rf"<(?:{_OBJECT_WORDS})[\s>]", re.I),
}

#: A heading with a column of boxes, shapes or classes.
_HEADING = re.compile(
    rf"(?i)^(?=.*[,;\t]).*(?<![\w ])(?:{_OBJECT_WORDS}|target|species|x_?min|x1|rle|encodedpixels|"
    r"region_shape_attributes)(?![\w ])"
)

#: A name of a picture in a text.
_PICTURE = re.compile(
    rf"[^\s\"'/\\<>,;|:][^\"'/\\<>,;|\t\n]*(?:{'|'.join(map(re.escape, IMAGE_ENDINGS))})\b",
    re.I,
)
_WORD = re.compile(r"[^\s,;\"']+")
_NUMBER = re.compile(r"-?\d*\.?\d+(e-?\d+)?", re.I)

#: A line of a list: with two words, or with a number after the first.
_LIST_LINE = re.compile(r"(?m)^\s*[^\s,;]+[ \t,;]+(?:[-.\d]|[^\s,;]+\s*$)")

#: One of the paths of images and their classes.
_CLASS_LINE = re.compile(r"(?m)^\S+[ \t]+[^\s,]+$")

#: What is no class but the checksum of a file.
_CHECKSUM = re.compile(r"[0-9a-f]{8,}")

#: What says which tool has written a file.
_TOOLS = {
    "shapes": "in LabelMe's form,",
    "via_": "in VIA's form,",
    "regions": "in VIA's form,",
    "coordinates": "in CreateML's form,",
}


def _refuse_other_forms(listing: Listing, looks: Sequence[Look]) -> None:
    """Raise a SourceError for annotations of a form that Datumaro reads."""
    folders = {"/".join([*parts[:-1], ""]) for parts in listing.images}
    texts = [*folders, *(f"{path}\n{text}" for path, text in looks)]
    for form, mark in _BY_DATUMARO.items():
        found = next(filter(re.compile(mark).search, texts), None)
        if found:
            path = found.partition("\n")[0]
            raise SourceError(
                f"{listing.folder}/{path}: holds annotations that Datumaro reads: give "
                f"{spelled('form', DATUMARO + form)}, or export them as COCO's JSON, or in YOLO's "
                "or Pascal VOC's form."
            )


def refuse_unread(listing: Listing, looks: Sequence[Look]) -> None:
    """Raise a SourceError if a file holds annotations, of a form that is not read.

    It names pictures that are there, or has the name of one, and holds boxes, shapes or classes.
    """
    holding = [look for look in looks if _may_hold(look)]
    mentioned = set()  # the names of a million pictures would take memory
    for look in holding:
        text = look.text.lower()
        mentioned |= {stem_of(look.path.lower()), *_PICTURE.findall(text), *_WORD.findall(text)}
    known = defaultdict[str, list[set[str]]](list)
    for parts in listing.images if holding else ():
        *above, name = "/".join(parts).lower().split("/")
        for called in {name, stem_of(name)} & mentioned:
            known[called].append({*above})
    unread = [look for look in holding if _holds_objects(look, known)]
    if not unread:
        return
    path, text = unread[0]
    whole = f"{listing.folder}/{path}"
    tool = next((name for word, name in _TOOLS.items() if f'"{word}' in text), "in a form")
    remedy = "export them as COCO's JSON, YOLO or Pascal VOC"
    names_pictures = _PICTURE.search(text) is not None
    is_list = names_pictures and _CLASS_LINE.search(text) is not None
    if unread[0].ending in (".csv", ".jsonl") or (unread[0].ending == ".txt" and is_list):
        remedy = f"give that file as the source, as in `{command('validate', whole)}`"
        if not names_pictures:
            example = "/".join(listing.images[0])
            remedy = f"write paths such as {example!r} into a column image_uri, and {remedy}"
    elif unread[0].ending == ".json" and names_pictures and not _SHAPES.search(text):
        remedy = "write its classes into a CSV with the columns image_uri and label, and give that"
    elif _YOLO_LINE.search(text):
        remedy = "if they are YOLO's, put a classes.txt with the name of a class on each line there"
    more = f", and {len(unread) - 1:,} others" if len(unread) > 1 else ""
    raise SourceError(
        f"{whole}{more}: holds annotations {tool} that is not read in a folder; {remedy}. "
        f"{spelled('form', 'folder')} reads the images and their folders alone."
    )


def unread_words(listing: Listing, looks: Sequence[Look]) -> list[str]:
    """The files beside images of which nothing is read, by their endings."""
    counts = Counter(path[path.rfind(".") :].lower() for path in listing.texts)
    if not counts:
        return []
    words = f"not read: {', '.join(f'{count:,} {ending}' for ending, count in counts.items())}"
    if looks:
        words += ", without boxes or classes"
    if 0 < len(looks) < len(listing.texts):
        words += f"; {len(looks):,} of {len(listing.texts):,} were looked at"
    return [words]


def _may_hold(look: Look) -> bool:
    """True for what looks like boxes, shapes or classes, whatever they are of."""
    words = {**_HOLDS, ".txt": _LIST_LINE}.get(look.ending)
    return look.ending == ".csv" or (words is not None and words.search(look.text) is not None)


def _holds_objects(look: Look, known: Mapping[str, Sequence[set[str]]]) -> bool:
    """True for a file that may hold objects, if they are of pictures.

    Args:
        known: for each name of pictures that is mentioned, with its ending and without, in lower
            case: of each of them the folders that it lies in.
    """
    text = look.text.lower()
    is_of_one = stem_of(look.path.lower()) in known  # Supervisely writes a.jpg.json
    if look.ending in _HOLDS:
        return is_of_one or not known.keys().isdisjoint(_PICTURE.findall(text))
    lines = [line for line in text.splitlines() if line.strip()]
    is_headed = bool(lines) and _HEADING.search(lines[0]) is not None
    said = []
    is_new = False
    for line in lines:
        found = _PICTURE.search(line)
        if found is None and look.ending == ".csv":
            # Of several pictures, a number is none: it may be of a class, as in 0,cat.
            ids = (word for word in _WORD.finditer(line) if len(known.get(word[0], ())) == 1)
            found = next(ids, None)
        if found is not None and found[0] in known:
            start = max(line.rfind(mark, 0, found.start()) for mark in ',;\t"') + 1
            rest = f"{line[:start]} {line[found.end() :]}"
            above = re.split(r"[/\\]", line[start : found.start()])
            said.append(_says(rest, is_headed))
            is_list = rest.strip(" \t,;\"'") in {*above, *set.intersection(*known[found[0]])}
            is_new |= said[-1] and not is_list
        elif is_of_one:
            said.append(_is_box(_WORD.findall(line)))
            is_new |= said[-1]
    return is_new and sum(said) * 2 > len(said)


def _says(rest: str, is_headed: bool) -> bool:
    """True for what a line says of a picture if it is a class or a box.

    Args:
        is_headed: a column is called so.
    """
    words = _WORD.findall(rest)
    if len(words) < 2:
        return any(is_headed or not _CHECKSUM.fullmatch(word) for word in words)
    return is_headed or {*words} <= {"0", "1"} or _is_box(words)


def _is_box(words: Sequence[str]) -> bool:
    """True for the numbers of a box or a shape, with its class."""
    numbers = [word for word in words if _NUMBER.fullmatch(word)]
    return len(numbers) >= 4 and len(words) - len(numbers) <= 2


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
            other = next((path for path in others if found[path] != found[first]), None)
            if ending != "classes.txt":
                if other:
                    raise SourceError(f"{first} and {other} differ; give the one that counts.")
                return [first]
            if other:
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
    for path in listing.texts if folders else ():
        if path.lower().endswith(".xml") and path.rpartition("/")[0] in folders:
            yield path


def looked_at(listing: Listing) -> list[Look]:
    """The files that are looked at, some of each folder and ending."""
    groups = defaultdict[tuple[str, str], list[str]](list)
    for path in listing.texts:
        groups[path[: path.rfind("/") + 1], path[path.rfind(".") :]].append(path)
    chosen = []
    for (folder, ending), paths in groups.items():
        if len(paths) <= _OF_ALL:
            chosen += paths
            continue
        parts = tuple(folder.split("/")[:-1])
        # As they are sorted, those of a folder are together.
        first = bisect.bisect(listing.images, (*parts, ""))
        last = bisect.bisect(listing.images, (*parts, chr(sys.maxunicode)))
        start = len(folder)
        end = -len(ending)
        stems = {image[-1].rpartition(".")[0] for image in listing.images[first:last]}
        others = [path for path in paths if path[start:end] not in stems]
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
