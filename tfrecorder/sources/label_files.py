"""The text files of images: where YOLO's tools put them, and those that are of no image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from tfrecorder import storage
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.objects import files_of
from tfrecorder.sources.remarks import Remarks
from tfrecorder.storage.uris import look_of, stem_of


def label_files(
    remarks: Remarks,
    images: Sequence[str],
    splits: Sequence[str],
    uris: Sequence[str],
    root: str,
) -> list[str]:
    """The path of the text file of each image, "" for none; and what is absent is said.

    They lie in the first place where a folder of images has any.
    """
    paths = [""] * len(images)
    tried = [""] * len(images)
    rows_of: dict[str, list[int]] = {}
    for row, image in enumerate(images):
        rows_of.setdefault(storage.parent(image), []).append(row)
    used: dict[str, list[str]] = {}  # the folders of images, by those of their text files
    for folder, rows in rows_of.items():
        stems = [stem_of(images[row]) for row in rows]
        places = [*dict.fromkeys(_label_folders(folder, root))]
        for place in places:
            found = _named(place, stems)
            if any(found):
                used.setdefault(place, []).append(folder)
                places = [place]
                break
        for row, stem, name in zip(rows, stems, found, strict=True):
            if name:
                paths[row] = f"{place}/{name}"
            else:
                tries = " and ".join(f"{place}/{stem}.txt" for place in places)
                tried[row] = tries.replace(f"{root}/", "")
    with_image = {*paths} - {""}
    orphans = []
    for place, folders in used.items():
        orphans += [path.removeprefix(f"{root}/") for path in _orphans(place, with_image, folders)]
    missing = [row for row, path in enumerate(paths) if not path]
    remarks.missing("label file", missing, splits, uris, tried)
    remarks.without_image("label file", orphans, len(with_image) + len(orphans))
    return paths


def _label_folders(folder: str, root: str) -> Iterator[str]:
    """Where the text files of a folder of images may be, the likeliest first.

    In `labels` instead of `images`, or beside the images.
    """
    for images in reversed([*re.finditer("(?i)/images(?=/|$)", folder)]):
        start = folder[: images.start()]
        below = f"labels{folder[images.end() :]}"
        # What lies above the root may not be listed.
        is_below = f"{start}/".startswith(f"{root}/")
        yield _as_there(start, below) if is_below else f"{start}/{below}"
    yield folder


def _as_there(start: str, below: str) -> str:
    """A path from a folder, in whose names the case or the form of Unicode may be another."""
    whole = f"{start}/{below}"
    if storage.is_folder(whole):
        return whole
    for part in below.split("/"):
        names = {look_of(name): name for name in storage.names(start)}
        start = f"{start}/{names.get(look_of(part), part)}"
    return start


def _texts_in(place: str) -> list[str]:
    """The names of the text files of a folder; none on the web, where nothing can be listed."""
    names = [] if storage.is_web(place) else storage.names(place)
    return [name for name in names if name.lower().endswith(".txt")]


def _named(place: str, stems: Sequence[str]) -> list[str]:
    """The name of the text file of each image in a folder; "" for none."""
    if storage.is_web(place):
        names = [f"{stem}.txt" for stem in stems]
        held = files_of([f"{place}/{name}" for name in names])
        return ["" if data is None else name for name, data in zip(names, held, strict=True)]
    exact = {stem_of(name): name for name in _texts_in(place)}
    alike = {look_of(stem): exact[stem] for stem in exact.keys() - {*stems}}
    return [exact.get(stem) or alike.get(look_of(stem), "") for stem in stems]


def _orphans(
    place: str,
    used: Set[str],
    folders: Sequence[str],
) -> list[str]:
    """The text files of a folder that hold objects and have no image.

    Args:
        used: the paths of those that have one.
        folders: where their images are.
    """
    left = [path for name in _texts_in(place) if (path := f"{place}/{name}") not in used]
    images = set()
    for folder in folders if left else ():
        names = storage.names(folder)
        images |= {look_of(stem_of(name)) for name in names if name.lower().endswith(IMAGE_ENDINGS)}
    left = [path for path in left if look_of(stem_of(path)) not in images]
    held = files_of(left)
    return [path for path, data in zip(left, held, strict=True) if _OBJECT.match(data or b"")]


#: How a file begins that holds objects, and not names or a text.
_OBJECT = re.compile(rb"\s*\d+(\s+-?[\d.]+([eE]-?\d+)?){4}")
