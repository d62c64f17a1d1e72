"""A source that is given by path: one file, several, or a folder; and lists of uris."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import is_text, spelled
from tfrecorder.display.tables import cut
from tfrecorder.errors import MissingSourceError, OptionError, SourceError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.convert_values import TextForm
from tfrecorder.options.keywords import Path
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.splits import SPELLINGS, SPLITS
from tfrecorder.storage.uris import look_of, stem_of

#: What makes a path a pattern, where there is no file of that name.
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class PathSource:
    """Where a source is.

    Attributes:
        path: as the user gave it.
        files: the absolute paths of its files, in order; none for a folder.
        folder: the absolute path of the folder; "" for files.
    """

    path: str
    files: tuple[str, ...] = ()
    folder: str = ""


class Listing(NamedTuple):
    """What lies below a folder, each sorted, by path from there.

    Attributes:
        images: the parts of the path of each.
        tables: `metadata.*`, and files of Parquet.
        texts: files that may hold annotations, by their endings; tables too, but Parquet.
        passed_over: how many other files there are, by kind; other texts are among them.
    """

    folder: str
    images: list[tuple[str, ...]]
    tables: list[str]
    texts: list[str]
    passed_over: dict[str, int]


def path_source(source: Any) -> PathSource | None:
    """Where a path, a pattern or a list of these leads; None for any other source.

    Raises:
        SourceError: there is no such file or folder.
    """
    if isinstance(source, (list, tuple)) and source:
        files = list[str]()
        for path in source:
            given = path_source(path)
            if given is None or not given.files:
                shown = cut(repr(source[:3]), 99)
                raise SourceError(
                    f"source is a list of {len(source):,}: {shown}; give the paths of files in it, "
                    "or `pandas.DataFrame(source)` of dicts."
                )
            files += given.files
        return PathSource(f"{source[0]}, …" if len(source) > 1 else str(source[0]), tuple(files))
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = storage.given_path(source)
    kind = storage.scheme(path)
    if refusal := storage.refusal(kind):
        raise SourceError(
            f"source {storage.unsigned(path)!r}: {kind}:// cannot be read: {refusal}."
        )
    with storage.failing_as(SourceError, path):
        return _look(path)


def _look(path: str) -> PathSource:
    whole = storage.absolute(path)
    # On a bucket, one name may be both an object and a folder: a name ending in .csv is the object.
    is_file = not storage.is_local(whole) and storage.size(whole) is not None
    if path and not is_file and storage.is_folder(whole):
        return PathSource(path, folder=whole)
    if is_file or os.path.isfile(whole):
        refuse_pointer(whole, f"source {path!r}")
        return PathSource(path, (whole,))
    if _PATTERN.search(path) and (files := _matching(whole)):
        return PathSource(path, tuple(files))
    looked = f" (looked in {os.getcwd()})" if storage.is_local(path) else ""
    hint = storage.hint_beside(path)
    raise MissingSourceError(f"source {path!r}: there is no such file or folder{looked}{hint}.")


def refuse_pointer(path: str, called: str = "") -> None:
    """Raise a SourceError for a file of a source that git-lfs did not fetch."""
    if storage.is_lfs_pointer(path):
        raise SourceError(f"{called or path} is {storage.LFS_WORDS}.")


def _matching(pattern: str) -> list[str]:
    """The files that match a pattern, sorted; "*" stands for no "/"."""
    start = _PATTERN.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    parts = pattern.count("/")
    files = (f"{start}/{name}" for name in storage.files_below(start))
    return [file for file in files if file.count("/") == parts and fnmatch.fnmatch(file, pattern)]


def uri_list(option: str, given: Iterable[str] | Path | None) -> list[str]:
    """The uris that an option names, or the lines of the file whose path it is, each once.

    Signatures are left out, as they are from the records.

    Raises:
        OptionError: the file cannot be read, or what is given are no uris.
    """
    if isinstance(given, (str, os.PathLike)):
        path = storage.given_path(given)
        try:
            text = storage.read_bytes(path).decode("utf-8-sig")
        except (storage.UnreadableError, UnicodeDecodeError) as error:
            raise OptionError.of(option, path, f"it cannot be read: {error}.") from error
        # Not splitlines: a uri may hold U+2028 and others that it takes for the end of a line.
        given = filter(None, text.replace("\r\n", "\n").split("\n"))
    uris = list(() if given is None else given)  # a Series has no truth value
    wrong = [uri for uri in uris if not is_text(uri)]
    if wrong:
        raise OptionError.of(option, wrong[0], "this is no uri; give texts, or a file's path.")
    return list(dict.fromkeys(map(storage.unsigned, uris)))


def split_in(name: str) -> str:
    """The split that the name of a file or folder states; "" if it states none.

    >>> split_in("instances_val2017"), split_in("training-00001-of-00008"), split_in("result")
    ('VALIDATION', 'TRAIN', '')
    """
    return _split_among(re.findall("[a-z]+", name.lower()))


def split_of_folders(path: str) -> str:
    """The split that the name of a folder in a path is; "" if none is.

    >>> split_of_folders("VOC/Train/a cat.jpg"), split_of_folders("train.jpg")
    ('TRAIN', '')
    """
    return _split_among(path.lower().split("/")[:-1])


def _split_among(words: Iterable[str]) -> str:
    splits = [SPELLINGS[word] for word in words if word in SPELLINGS]
    return next((split for split in splits if split in SPLITS), "")


#: Names of folders that say what kind of files is in them, and neither a class nor a split.
PICTURE_FOLDERS = frozenset(
    {"images", "image", "imgs", "img", "jpegimages", "pictures", "photos", "obj_train_data"}
)
ANNOTATION_FOLDERS = frozenset({"annotations", "annotation", "labels", "label", "xml", "xmls"})
MASK_FOLDERS = frozenset(
    {"masks", "mask", "segmentation", "segmentationclass", "segmentationobject", "labels", "label"}
)


class Pairs:
    """The pictures of a folder by their stems, for files that say something about them.

    Args:
        pictures: their paths.
    """

    def __init__(self, pictures: Iterable[str]) -> None:
        self._alike: dict[str, list[str]] = {}
        for path in pictures:
            self._alike.setdefault(look_of(stem_of(path)), []).append(path)

    def _with_stem(self, stem: str) -> list[str]:
        """The pictures of a stem, or of one that looks like it."""
        alike = self._alike.get(look_of(stem), [])
        return [path for path in alike if stem_of(path) == stem] or alike

    def of(self, path: str) -> str:
        """The picture that a file is about; "" if there is none, or it cannot be told.

        It has the stem of the file.  Of several it is the one in the same folder, or in the one
        whose path differs from the file's only in what is said of the kind of files.
        """
        found = self._with_stem(stem_of(path))
        if len(found) > 1:
            folder = path.rpartition("/")[0]
            beside = [one for one in found if one.rpartition("/")[0] == folder]
            found = beside or [one for one in found if _place(one) == _place(path)]
        return found[0] if len(found) == 1 else ""

    def named(self, path: str) -> str:
        """The only picture that has the name at the end of a path of any machine; "" if none."""
        found = self.all_named(path)
        return found[0] if len(found) == 1 else ""

    def all_named(self, path: str) -> list[str]:
        """The pictures that have the name at the end of a path of any machine.

        Of several, those whose folders have the same name too, if there are some.
        """
        *above, name = re.split(r"[\\/]", path)
        same = self._with_stem(stem_of(name))
        found = [one for one in same if look_of(f"/{one}").endswith(f"/{look_of(name)}")]
        exact = [one for one in found if f"/{one}".endswith(f"/{name}")]
        found = exact or found
        if len(found) > 1 and above:
            found = [one for one in found if f"/{one}".endswith(f"/{above[-1]}/{name}")] or found
        return found


def _place(path: str) -> list[str]:
    """The folders of a path that say more than the kind of files."""
    kinds = PICTURE_FOLDERS | ANNOTATION_FOLDERS
    return [part for part in path.lower().split("/")[:-1] if part not in kinds]


def with_named_splits(
    frame: pd.DataFrame,
    paths: Sequence[str],
    counts: list[int],
) -> pd.DataFrame:
    """A table without splits gets those that the names of its files state, if these differ.

    Args:
        counts: how many rows each file has.
    """
    names = [path.rpartition("/") for path in paths]
    stated = [split_in(name) or split_in(folder.rpartition("/")[2]) for folder, _, name in names]
    if len({*stated} - {""}) < 2 or (SPLIT_COLUMN in frame and (frame[SPLIT_COLUMN] != "").any()):
        return frame
    splits = pd.Series(stated, dtype="category").repeat(counts).set_axis(frame.index)
    return frame.assign(**{SPLIT_COLUMN: splits})


def common_folder(folders: Sequence[str]) -> str:
    """The folder that all of these are, or are in."""
    # Not commonpath, which would take "gs://" for a path.
    parts = zip(*(folder.split("/") for folder in folders), strict=False)
    same = itertools.takewhile(lambda names: len({*names}) == 1, parts)
    return "/".join(names[0] for names in same)


def uri_below(start: str, name: Any) -> str:
    """A name in a file as a uri: one that is relative gets what comes before it."""
    uri = str(name)
    return uri if uri.startswith("/") or storage.scheme(uri) else f"{start}{uri}"


def refuse_form(form: TextForm, reason: str) -> None:
    """Raise a SourceError if a separator or an encoding was given for what is not CSV."""
    if form.stated:
        raise SourceError(f"{spelled(form.stated)} is for a CSV file; leave it out: {reason}.")


def refuse_table_options(options: ConvertOptions, what: str) -> None:
    """Refuse the options that are for tables.

    Args:
        what: names the source, with an article.
    """
    refuse_form(options.text_form, f"{what} has none")
    if options.columns:
        raise OptionError.of(
            "columns",
            options.columns,
            f"it is for a frame or a CSV; {what} has no columns to rename.",
        )
