"""What each option of a conversion may be, and its value as the options keep it."""

from __future__ import annotations

import codecs
import math
import operator
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.images.limits import FORMATS, RESIZES, VERIFY_LEVELS
from tfrecorder.options.checks import (
    flag,
    is_number,
    is_whole,
    nearest,
    one_of,
    parse_size,
    whole,
)
from tfrecorder.options.runner import canonical_runner, check_form, plain_name
from tfrecorder.schema import keys
from tfrecorder.schema.kinds import Schema
from tfrecorder.schema.schema_file import as_schema
from tfrecorder.schema.splits import SPELLINGS, SPLITS

ON_ERROR = ("reject", "raise")

#: The codes of a validation report that `strict` may name: its warnings and notes.
WARNINGS = (
    *("column_left_out", "conflicting_labels", "duplicate_row", "empty_split", "few_images"),
    *("image_again", "label_gaps", "label_not_in_train", "leakage", "no_train", "rounded_number"),
    *("similar_labels", "splits_ignored"),
)

#: The names and versions that TFDS finds in folders; it reads others in another way, or not at all.
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")


def normal(name: str, value: Any) -> Any:
    """A checked value as a plain Python value that nothing else shares: not a NumPy scalar or a
    dict of the caller's."""
    if name == "schema" and value is not None:
        return as_schema(value)
    if name == "image_size" and isinstance(value, Sequence):
        return tuple(map(operator.index, value))
    if name == "base" and value is not None:
        return storage.given_path(value)
    if name == "encoding" and value is not None:
        # So that a byte order mark is not read as part of the first name.
        return "utf-8-sig" if codecs.lookup(value).name == "utf-8" else str(value)
    if name == "runner":
        return canonical_runner(value)
    if name == "runner_options":
        return {plain_name(word): given for word, given in (value or {}).items()}
    if name in ("labels", "strict") and isinstance(value, Collection):
        return tuple(map(str, value))
    if name == "splits" and value is not None:
        return {_split_word(word): float(share) for word, share in value.items()}
    if name == "num_shards" and isinstance(value, Mapping):
        return {_split_word(word): operator.index(count) for word, count in value.items()}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (str, bool)) or value is None:
        return value
    return operator.index(value) if is_whole(value) else float(value)


def _split_word(word: Any) -> str:
    return SPELLINGS.get(str(word).strip().lower(), "")


def _is_text(value: Any) -> bool:
    """Text that a file can hold: not one with lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_columns(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(map(_is_text, value)):
        return "give a dict from the source's names to ours, such as {'path': 'image_uri'}."
    wrong = [ours for ours in value.values() if ours not in keys.COLUMNS]
    if wrong:
        return f"{wrong[0]!r} is not one of our columns: {', '.join(keys.COLUMNS)}."
    if len(set(value.values())) < len(value):
        return "two names are mapped to the same column; give one."
    return None


def _check_image_size(value: Any) -> str | None:
    if value is None or (is_whole(value) and value >= 1):
        return None
    pair = isinstance(value, (tuple, list)) and len(value) == 2
    if pair and all(is_whole(side) and side >= 1 for side in value):
        return None
    return "give the short side in pixels, such as 256, or (height, width), such as (224, 224)."


def _check_schema(value: Any) -> str | None:
    if value is None or isinstance(value, Schema):
        return None
    if isinstance(value, (Mapping, str, os.PathLike)):
        try:
            as_schema(value)
        except OptionError as error:
            return str(error).removeprefix(f"schema={value!r}: ").removeprefix("schema: ")
        return None
    return "give a tfrecorder.Schema, or the path of a YAML or JSON file."


def _check_labels(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, (str, bytes, Set, Mapping)) or not isinstance(value, Collection):
        return "give a list of class names."
    if not len(value):
        return "give at least one name."
    for label in value:
        if not (_is_text(label) or is_whole(label)):
            return f"{label!r} is not a class name; give text or integers."
    twice = [label for label, count in Counter(map(str, value)).items() if count > 1]
    return f"{twice[0]!r} appears more than once." if twice else None


def _check_name(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and _NAME.fullmatch(value)):
        return None
    words = "give a name that TFDS accepts: a-z, 0-9 and _, beginning with a letter"
    made = _snake_case(value) if isinstance(value, str) else ""
    return f"{words}, such as {made if _NAME.fullmatch(made) else 'my_flowers'!r}."


def _snake_case(text: str) -> str:
    """A name in small letters, with _ between its words.

    >>> _snake_case("MyFlowers 2"), _snake_case("my-flowers")
    ('my_flowers_2', 'my_flowers')
    """
    return re.sub(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", "_", text).strip("_").lower()


def is_version(text: str) -> bool:
    """True for what TFDS accepts as a version.

    >>> is_version("1.0.0"), is_version("1.0"), is_version("01.0.0")
    (True, False, False)
    """
    return _VERSION.fullmatch(text) is not None


def _check_version(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and is_version(value)):
        return None
    return (
        "give three whole numbers separated by points, such as '1.0.0', none with a leading zero."
    )


def _check_num_shards(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return whole(1, none=True)(value)
    splits = [_split_word(word) for word in value]
    for split, (word, number) in zip(splits, value.items(), strict=True):
        if split not in SPLITS:
            return f"{word!r} is not a split; there are {', '.join(SPLITS)}."
        if splits.count(split) > 1:
            return f"{split} is given more than once; give it one number."
        if fault := whole(1)(number):
            return f"{word}: {fault}"
    return None


def _check_splits(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        return "give the share of each split, such as {'TRAIN': 0.7, 'VALIDATION': 0.3}."
    for word, share in value.items():
        if _split_word(word) not in SPLITS:
            return f"{word!r} is not a split; there are {', '.join(SPLITS)}."
        if is_number(share) and share > 1:
            return "the shares must sum to 1: write 70% as 0.7."
        if _check_fraction(share) or not share:
            return f"{word}: give a share above 0, such as 0.7."
    if len(set(map(_split_word, value))) < len(value):
        return "a split is given more than once; give it one share."
    total = math.fsum(map(float, value.values()))
    return None if abs(total - 1) < 1e-9 else f"the shares sum to {total:g}; they must sum to 1."


def _check_sep(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and len(value) == 1 and value not in '\r\n"'):
        return None
    return "give one character, such as ';' or '\\t'."


def _check_encoding(value: Any) -> str | None:
    if value is None:
        return None
    try:
        " ".encode(value)  # with empty text Python would not look up the name
    except (TypeError, LookupError, ValueError):
        return "give an encoding that Python knows, such as 'cp1252' or 'utf-16'."
    return None


def _check_base(value: Any) -> str | None:
    if value is None or (isinstance(value, (str, os.PathLike)) and os.fspath(value)):
        return None
    return "give the path of a folder."


def _check_shard_size(value: Any) -> str | None:
    try:
        size = 0 if isinstance(value, bool) else parse_size(value)
    except (TypeError, ValueError, OverflowError):
        return "give bytes, or a number with a unit, such as '128MiB'."
    return None if size >= 1 else "give at least 1 byte."


def _check_fraction(value: Any) -> str | None:
    try:
        ok = not isinstance(value, (bool, str)) and 0 <= float(value) <= 1
    except (TypeError, ValueError, OverflowError):
        ok = False
    return None if ok else "give a number from 0 to 1."


def _check_strict(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) or not isinstance(value, Collection) or not value:
        return "give True, False, or a list of codes such as ['leakage']."
    for code in value:
        if code not in WARNINGS:
            near = nearest(str(code), WARNINGS) or ", ".join(WARNINGS)
            return f"there is no warning {code!r}; did you mean {near}?"
    return None


def _check_text(value: Any) -> str | None:
    return None if value is None or isinstance(value, str) else "give text."


def _check_runner(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "give a runner's name."


def _check_progress(value: Any) -> str | None:
    return None if value is None or isinstance(value, bool) else "give True, False or None."


#: By the option: the check of its value.
CHECKS = {
    "columns": _check_columns,
    "schema": _check_schema,
    "background_class": flag,
    "tfds_features": flag,
    "name": _check_name,
    "version": _check_version,
    "labels": _check_labels,
    "sep": _check_sep,
    "encoding": _check_encoding,
    "base": _check_base,
    "num_shards": _check_num_shards,
    "shard_size": _check_shard_size,
    "shuffle": flag,
    "seed": whole(0, 2**32 - 1),
    "splits": _check_splits,
    "stratify": flag,
    "split_by": _check_text,
    "verify": one_of(*VERIFY_LEVELS),
    "max_pixels": whole(1),
    "image_size": _check_image_size,
    "resize": one_of(*RESIZES),
    "image_format": one_of(*FORMATS),
    "image_quality": whole(1, 100),
    "apply_exif": flag,
    "on_error": one_of(*ON_ERROR),
    "max_reject_fraction": _check_fraction,
    "strict": _check_strict,
    "overwrite": flag,
    "retry_rejects": flag,
    "runner": _check_runner,
    "runner_options": check_form,
    "wait": flag,
    "project": _check_text,
    "region": _check_text,
    "num_workers": whole(1, none=True),
    "num_threads": whole(1, none=True),
    "progress": _check_progress,
}
