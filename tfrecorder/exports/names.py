"""Names of the files of an export, of which no two are one file on any machine."""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from tfrecorder.errors import OptionError
from tfrecorder.exports import yolo
from tfrecorder.format import layout
from tfrecorder.options.keywords import FOLDER, YOLO
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.schema.fields import Field, class_field, file_fields, primary_file

#: A part of a path that every file system and every tool takes: no name of a device of Windows, no
#: dot or space at its end, and of the signs of ASCII only these.
_PART = (
    r"(?!(?:con|prn|aux|nul|com\d|lpt\d)(?![^./]))"
    r"[\w\xa1-\U0010ffff][\w ()+,=@.\xa1-\U0010ffff-]*(?<![ .])"
)
_SAFE = re.compile(f"(?:{_PART}/)*{_PART}", re.IGNORECASE)

#: File systems take parts of 255 bytes; an ending may follow.
_MOST_BYTES = 240

#: The file that says which image has a name of its own, and the tables of a CSV and of a folder.
NAMES_FILE = "names.csv"
CSV_FILES = ("dataset.csv", "schema.yaml")
METADATA = "metadata.parquet"

#: The columns of the records of each split, as `table_of` gives them.
Tables = Mapping[str, pd.DataFrame]


class Names:
    """Names of files below a folder, of which no two are one file on any machine.

    Neither case nor the form of an accent tells two names apart, nor does a last ending, which may
    come or go; and no file has the name of a folder.
    """

    def __init__(self, *reserved: str) -> None:
        self._files = {*map(_same, reserved)}
        self._near = {*self._files}

    def choose(self, name: str, other: str) -> str:
        """This name, or the other with nothing or a number in its braces; no other file has it."""
        for number in itertools.count():
            own = _same(name)
            folders = itertools.accumulate(own.split("/")[:-1], "{}/{}".format)
            paths = {own, *folders}
            near = paths.union(os.path.splitext(path)[0] for path in paths)
            if is_safe(name) and own not in self._near and self._files.isdisjoint(near):
                break
            name = other.format(f"_{number}" if number else "")
        self._files.add(own)
        self._near |= near
        return name


def _same(name: str) -> str:
    """A name as file systems compare it that know no case."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def is_safe(name: str) -> bool:
    """Whether every file system and every tool takes this path."""
    longest = max(name.encode().split(b"/"), key=len)
    return len(longest) <= _MOST_BYTES and name.isprintable() and bool(_SAFE.fullmatch(name))


def file_columns(stored: StoredDataset, without: Sequence[str] = ()) -> dict[str, str]:
    """A word for each column of files, for a folder or a member of an archive; all differ.

    The one that gives the records their names has none.
    """
    names = Names()
    first = primary_file(stored.fields)
    words = {}
    for field in file_fields(stored.fields):
        if field.column not in without:
            word = re.sub(r"[^\w-]+", "_", field.column)
            words[field.column] = "" if field == first else names.choose(word, "column{}")
    return words


def file_names(
    stored: StoredDataset,
    tables: Tables,
    to: str,
) -> dict[str, dict[str, str]]:
    """The path of each record's first file, its ending aside, with its uri, by split.

    It is the uri, as far as that is a safe path and differs from all others, else a number.  Of
    absolute uris it is what follows their common folder, below a label the last part of it.

    Raises:
        OptionError: a label cannot name a folder.
    """
    image = primary_file(stored.fields)
    label = class_field(stored.fields) if to == FOLDER else None
    uris = {split: _texts_of(table, image) for split, table in tables.items()}
    labels = {split: _texts_of(table, label) for split, table in tables.items()}
    every = [*itertools.chain.from_iterable(uris.values())]
    # It is cut at a slash.
    common = os.path.commonprefix((min(every, default=""), max(every, default="")))  # noqa: RUF071
    common = common[: common.rfind("/") + 1]
    is_absolute = common.startswith("/") or "://" in common
    # The folders of the export itself, and of the other images of a record.
    words = filter(None, file_columns(stored).values())
    names = Names(layout.PRIVATE, NAMES_FILE, *CSV_FILES, *words)
    made = dict[str, dict[str, str]]()
    for split, of_split in uris.items():
        made[split] = {}
        folder = split.lower()
        if label is not None:
            _refuse_labels({*labels[split]})
        for number, (name, uri) in enumerate(zip(labels[split], of_split, strict=True)):
            path = uri.removeprefix(common) if is_absolute else uri
            other = f"{folder}{{0}}/{number:08d}{{0}}"
            if to == YOLO:
                path = yolo.name_of(split, path)
                other = f"{yolo.folder_of(split)}/{number:08d}{{}}"
            if label is not None:
                path = f"{folder}/{name}/{os.path.basename(path)}"
                other = f"{folder}/{name}/{number:08d}{{}}"
            made[split][names.choose(path, other)] = uri
    return made


def _texts_of(table: pd.DataFrame, field: Field | None) -> list[str]:
    """The values of a column of a split, as text; empty where the table has none."""
    is_there = field is not None and field.column in table
    return [*map(str, table[field.column])] if field and is_there else [""] * len(table)


def _refuse_labels(labels: Iterable[str]) -> None:
    """Raise an OptionError for a label that is no name of a folder, or that of another one."""
    known = Counter(map(_same, (METADATA, *labels)))
    for name in labels:
        if "/" in name or not is_safe(name) or known[_same(name)] > 1:
            words = f"{name!r} is no name of a folder of its own on every machine; give 'csv'."
            raise OptionError.of("to", FOLDER, words)
