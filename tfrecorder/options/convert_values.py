"""What the options of a conversion may be: checks, and the forms in which values are kept."""

from __future__ import annotations

import codecs
import math
import operator
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tfrecorder.core.option import Whole, did_you_mean, fraction, is_number, is_text, plain, spelled
from tfrecorder.errors import MissingFileError, OptionError
from tfrecorder.options.report_codes import CODES, ERROR
from tfrecorder.options.runner import plain_name
from tfrecorder.schema import keys
from tfrecorder.schema.kinds import Schema
from tfrecorder.schema.schema_file import as_schema
from tfrecorder.schema.splits import SPELLINGS, SPLITS

#: The version of a dataset that is named without one.
DEFAULT_VERSION = "1.0.0"

#: The codes of a validation report that `warnings` may name: its warnings and notes.
WARNINGS = sorted(code for code, (severity, _) in CODES.items() if severity != ERROR)

#: What a folder or a file of annotations may be read as, with what is then looked for.
FORMS = {
    "coco": "JSON with the lists images and annotations",
    "yolo": "data.yaml, obj.data, or obj.names or classes.txt with text files of objects",
    "voc": "XML files of Pascal VOC",
    "metadata": "metadata.csv, metadata.jsonl or metadata.parquet with a column file_name",
    "masks": "a folder of pictures and one of masks, such as images and masks",
    "folder": "a folder of images, whose folders are splits and classes",
}

#: What comes before the name of a form that Datumaro reads.
DATUMARO = "datumaro:"

#: The names and versions that TFDS finds in folders; it reads others in another way, or not at all.
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")


@dataclass(frozen=True)
class TextForm:
    """How the text of a CSV is written.

    Attributes:
        sep: the character between two values.
        encoding: as Python names it; None for UTF-8, with or without a byte order mark.
        is_spaced: a blank follows each separator, which is no part of the value.
    """

    sep: str | None = None
    encoding: str | None = None
    is_spaced: bool = False

    @property
    def dialect(self) -> dict[str, Any]:
        """What `csv.reader` and pandas must know of it."""
        return {"delimiter": self.separator, "skipinitialspace": self.is_spaced}

    @property
    def separator(self) -> str:
        return self.sep or ","

    @property
    def codec(self) -> str:
        return self.encoding or "utf-8-sig"

    @property
    def stated(self) -> str | None:
        """The name of an option that was given; None if none was."""
        return "sep" if self.sep else "encoding" if self.encoding else None


def texts(values: Any) -> Any:
    """The texts of a list, as a tuple; one text as it is."""
    return str(values) if isinstance(values, str) else tuple(map(str, values))


def shares(value: Mapping[str, float]) -> dict[str, float]:
    """By split, as we spell it."""
    return {_split_word(word): float(share) for word, share in value.items()}


def counts(value: Any) -> Any:
    """One number, or a dict of them by split, as we spell it."""
    if not isinstance(value, Mapping):
        return plain(value)
    return {_split_word(word): operator.index(count) for word, count in value.items()}


def codec(value: str) -> str:
    """With UTF-8, a byte order mark must not be read as part of the first name."""
    return "utf-8-sig" if codecs.lookup(value).name == "utf-8" else str(value)


def plain_names(value: Mapping[str, Any]) -> dict[str, Any]:
    """Options of Beam under their names in Python."""
    return {plain_name(word): given for word, given in value.items()}


def _split_word(word: Any) -> str:
    return SPELLINGS.get(str(word).strip().lower(), "")


def check_form(value: Any) -> str | None:
    if isinstance(value, str) and (value in FORMS or value.startswith(DATUMARO)):
        return None
    forms = ", ".join(map(repr, FORMS))
    return f"give one of {forms}, or the name of a form of Datumaro, such as '{DATUMARO}kitti'."


def check_columns(value: Any) -> str | None:
    example = spelled("columns", {"path": "image_uri"})
    if not isinstance(value, Mapping) or not all(map(is_text, value)):
        return f"give a dict from the source's names to ours, such as {example}."
    if not {*value.values()} <= {*keys.COLUMNS}:
        ours = ", ".join(keys.COLUMNS)
        return f"first comes the source's name, then one of {ours}, as in {example}."
    if len(set(value.values())) < len(value):
        return "two names are mapped to the same column; give one."
    return None


def check_schema(value: Any) -> str | None:
    if isinstance(value, Schema):
        return None
    if isinstance(value, (Mapping, str, os.PathLike)):
        try:
            as_schema(value)
        except MissingFileError:
            raise  # which says its kind
        except OptionError as error:
            return error.remedy or str(error)
        return None
    return "give a dict of kinds, a tfrecorder.schema.Schema, or the path of a YAML or JSON file."


def check_name(value: Any) -> str | None:
    name, colon, version = value.partition(":") if isinstance(value, str) else ("", "", "")
    if colon and not is_version(version):
        return (
            "give the version as three whole numbers separated by points, none with a leading "
            "zero, such as 'flowers:1.0.1'."
        )
    if _NAME.fullmatch(name):
        return None
    words = "give a name that TFDS accepts: a-z, 0-9 and _, beginning with a letter"
    made = re.sub(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("_").lower()
    return f"{words}, such as {made if _NAME.fullmatch(made) else 'my_flowers'!r}."


def with_version(name: str) -> str:
    """A name with its version, as TFDS spells it.

    >>> with_version("flowers"), with_version("flowers:2.0.0")
    ('flowers:1.0.0', 'flowers:2.0.0')
    """
    return str(name) if ":" in name else f"{name}:{DEFAULT_VERSION}"


def is_version(text: str) -> bool:
    """True for what TFDS accepts as a version.

    >>> is_version("1.0.0"), is_version("1.0"), is_version("01.0.0")
    (True, False, False)
    """
    return _VERSION.fullmatch(text) is not None


def check_num_shards(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return Whole(1)(value)
    for word, number in value.items():
        if fault := Whole(1)(number):
            return f"{word}: {fault}"
    return _check_split_words(value)


def _check_split_words(words: Collection[Any]) -> str | None:
    splits = list(map(_split_word, words))
    for word, split in zip(words, splits, strict=True):
        if split not in SPLITS:
            return f"{word!r} is not a split; there are {', '.join(SPLITS)}."
        if splits.count(split) > 1:
            return f"{split} is given more than once."
    return None


def check_splits(value: Any) -> str | None:
    if not isinstance(value, Mapping) or not value:
        example = spelled("splits", {"TRAIN": 0.7, "VALIDATION": 0.3})
        return f"give the share of each split, such as {example}."
    if fault := _check_split_words(value):
        return fault
    for word, share in value.items():
        if is_number(share) and share > 1:
            return "the shares must sum to 1: write 70% as 0.7."
        if fraction(share) or not share:
            return f"{word}: give a share above 0, such as 0.7."
    total = math.fsum(map(float, value.values()))
    return None if abs(total - 1) < 1e-9 else f"the shares sum to {total:g}; they must sum to 1."


def check_sep(value: Any) -> str | None:
    if isinstance(value, str) and len(value) == 1 and value not in '\r\n"':
        return None
    return "give one character, such as ';' or '\\t'."


def check_encoding(value: Any) -> str | None:
    try:
        " ".encode(value)  # with empty text Python would not look up the name
    except (TypeError, LookupError, ValueError):
        return "give an encoding that Python knows, such as 'cp1252' or 'utf-16'."
    return None


def check_base(value: Any) -> str | None:
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        return None
    return "give the path of a folder."


def check_warnings(value: Any) -> str | None:
    if isinstance(value, str) and value in ("show", "error"):
        return None
    if isinstance(value, str) or not isinstance(value, Collection) or not value:
        example = spelled("warnings", ["leakage"])
        return f"give 'show', 'error', or a list of codes such as {example}."
    for code in value:
        if code not in WARNINGS:
            return f"there is no warning {code!r}; {did_you_mean(str(code), WARNINGS)}"
    return None


def check_runner(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "give a runner's name."
