"""The options of a conversion: one frozen value that validates itself."""

from __future__ import annotations

import codecs
import dataclasses
import math
import operator
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from tfrecorder.errors import OptionError
from tfrecorder.images.limits import DEFAULT_MAX_PIXELS, FORMATS, RESIZES, VERIFY_LEVELS
from tfrecorder.options.checks import (
    flag,
    is_number,
    is_whole,
    one_of,
    parse_size,
    refuse_unknown,
    whole,
)
from tfrecorder.options.runner import RUNNERS, canonical_runner, check_form, plain_name
from tfrecorder.options.text_form import TextForm
from tfrecorder.schema import keys
from tfrecorder.schema.kinds import Schema
from tfrecorder.schema.schema_file import as_schema, to_plain
from tfrecorder.schema.splits import SPELLINGS, SPLITS, Division

ON_ERROR = ("reject", "raise")

#: What `append` does with rows whose image is already in the dataset.
DUPLICATES = ("skip", "keep")


#: Options for other tools: where they look for a dataset, and what they expect in it.
OF_PLACE = ("name", "version")
OF_TOOLS = (*OF_PLACE, "tfds_features", "background_class")

#: Options that decide the file and position of each record; and all that `compact` accepts.
OF_ORDER = ("num_shards", "shard_size", "shuffle", "seed")
OF_COMPACT = (
    *OF_ORDER,
    *OF_PLACE,
    *("overwrite", "runner", "runner_options", "wait", "project", "region"),
    *("num_workers", "num_threads", "progress"),
)

DEFAULT_SHARD_SIZE = "128MiB"

#: The names and versions that TFDS finds in folders; it reads others in another way, or not at all.
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")
DEFAULT_VERSION = "1.0.0"


def _option(default: Any, text: str, *, content: bool = False, metavar: str | None = None) -> Any:
    """A field with its help text.  `content`: True if it decides what the files hold."""
    return field(default=default, metadata={"help": text, "content": content, "metavar": metavar})


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """What a conversion does, apart from its source and its output directory.

    The help text of each option is its field's metadata; the command line shows the same words.
    Options that decide what the files hold (`content_options`) must be the same when an
    interrupted conversion is continued; the others may change.

    Raises:
        OptionError: a value has the wrong type or is out of range.

    >>> ConvertOptions(num_shards=4).shards_of("TEST")
    4
    """

    columns: Mapping[str, str] | None = _option(
        None,
        "Which of the source's columns to use as split, image_uri or label.",
        content=True,
        metavar="NAME=OURS",
    )
    schema: Schema | None = _option(  # noqa: RUF009
        None,
        "What each column holds: a tfrecorder.Schema, or the path of a YAML or JSON file; "
        "`tfrecorder schema` prints one to edit. Default: the columns split, image_uri and label.",
        content=True,
        metavar="FILE",
    )
    labels: tuple[str, ...] | None = _option(
        None,
        "All class names, in the order of their integers. Default: the labels found, sorted.",
        content=True,
        metavar="NAME",
    )
    background_class: bool = _option(
        False,
        "Number the classes of boxes from 1: class 0 is the background, as detection tools expect. "
        "Also writes label_map.csv and label_map.pbtxt.",
        content=True,
    )
    sep: str | None = _option(
        None, "The character that separates the values of a CSV. Default: a comma.", metavar="CHAR"
    )
    encoding: str | None = _option(
        None, "The encoding of a CSV, such as cp1252 or utf-16. Default: UTF-8.", metavar="NAME"
    )
    base: str | None = _option(
        None,
        "The folder that relative image paths start from. Default: the folder of the CSV; for a "
        "frame or standard input, the current folder.",
        metavar="FOLDER",
    )
    num_shards: int | Mapping[str, int] | None = _option(
        None,
        "Shards of each split: one number, or one per split. A split never has more shards than "
        "rows. Default: by --shard-size.",
        content=True,
        metavar="N|SPLIT=N,...",
    )
    shard_size: int | str = _option(
        DEFAULT_SHARD_SIZE,
        "Target size of a shard, estimated from at most 1,000 image sizes. Units: B, KB, MB, GB, "
        "KiB, MiB, GiB.",
        content=True,
        metavar="SIZE",
    )
    shuffle: bool = _option(
        True, "Shuffle the rows of each split, or keep the source's order.", content=True
    )
    seed: int = _option(
        0,
        "Seed of the shuffle, and of the assignment of rows without a split; 0 to 4294967295.",
        content=True,
    )
    splits: Mapping[str, float] | None = _option(
        None,
        "Shares of the splits for rows without a split; they must sum to 1. Default: TRAIN=0.8, "
        "VALIDATION=0.1, TEST=0.1.",
        content=True,
        metavar="SPLIT=SHARE,...",
    )
    stratify: bool = _option(
        False,
        "Apply these shares to the rows of each label, not to all rows together.",
        content=True,
    )
    split_by: str | None = _option(
        None,
        "A column: rows with the same value get the same split, such as all images of a patient.",
        content=True,
        metavar="COLUMN",
    )
    verify: str = _option(
        "decode",
        "How to check each image. decode: accept only what decodes, so training never fails on it; "
        "strict: also refuse what decodes with a warning; header: check only size and format; "
        "none: trust the files.",
        content=True,
    )
    max_pixels: int = _option(
        DEFAULT_MAX_PIXELS,
        "Reject images with more pixels than this.",
        content=True,
        metavar="N",
    )
    image_size: int | tuple[int, int] | None = _option(
        None,
        "Store smaller images. One number: larger images shrink to this short side, in pixels. "
        "Two: the exact height and width. Default: as they are.",
        content=True,
        metavar="N|HxW",
    )
    resize: str = _option(
        "stretch",
        "How to fit an image with other proportions to height and width. stretch: distort it; "
        "crop: cut the longer side, centred; pad: add black; fit: shrink it to stay within.",
        content=True,
    )
    image_format: str = _option(
        "keep",
        "How images are stored. keep: as their files are; jpeg; png; raw: as pixels, all of one "
        "size, read without decoding.",
        content=True,
    )
    image_quality: int = _option(
        95, "Quality of images that are encoded as JPEG, 1 to 100.", content=True, metavar="N"
    )
    apply_exif: bool = _option(
        False, "Turn images upright, following their EXIF orientation.", content=True
    )
    tfds_features: bool = _option(
        False,
        "Describe boxes and masks by TFDS's own features, so that tfds.as_dataframe draws them: "
        "records also hold each box as one value, and as_supervised gives image and mask.",
        content=True,
    )
    name: str | None = _option(
        None,
        "Write into OUTPUT_DIR/NAME/VERSION, where tfds.load(NAME, data_dir=OUTPUT_DIR) finds it.",
        content=True,
        metavar="NAME",
    )
    version: str | None = _option(
        None,
        "The version that goes with --name, such as 1.0.1. Default: 1.0.0.",
        content=True,
        metavar="X.Y.Z",
    )
    on_error: str = _option(
        "reject",
        "What to do with an image that cannot be used. reject: list it in rejects.csv; raise: "
        "stop at the first one.",
    )
    max_reject_fraction: float = _option(
        0.1,
        "Fail before the commit if more than this share of the rows is rejected; 0 to 1.",
        metavar="FRACTION",
    )
    strict: bool = _option(False, "Treat the warnings of validation as errors.")
    overwrite: bool = _option(
        False,
        "Replace a dataset that tfrecorder wrote there before, once the new one is complete.",
    )
    retry_rejects: bool = _option(
        False,
        "For a finished dataset: retry the shards with images that could not be read.",
    )
    runner: str = _option(
        "DirectRunner",
        f"The Beam runner: {', '.join(RUNNERS)}, in any case, or the dotted path of a class.",
        metavar="NAME",
    )
    runner_options: Mapping[str, Any] = _option(
        None,
        "Options of Beam and its runner, with or without leading dashes, checked by Beam.",
        metavar="NAME=VALUE",
    )
    wait: bool = _option(
        False,
        "With the DataflowRunner: wait until the job ends. Default: return at once. The other "
        "runners always wait.",
    )
    project: str | None = _option(None, "Google Cloud project, for Dataflow.")
    region: str | None = _option(None, "Google Cloud region, for Dataflow.")
    num_workers: int | None = _option(
        None,
        "Local worker processes, or the machines that Dataflow starts with. Default: one process "
        "with threads on all cores, which is faster on most machines.",
        metavar="N",
    )
    num_threads: int | None = _option(
        None,
        "Threads that load images, in each worker process. Default: one per core, or 16 if images "
        "come from a bucket.",
        metavar="N",
    )
    progress: bool | None = _option(
        None, "Show a progress bar. Default: only in a terminal or a notebook."
    )

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            fault = check(value)
            if fault:
                raise OptionError(f"{name}={value!r}: {fault}")
            # The way a frozen dataclass normalises its fields.
            object.__setattr__(self, name, _normal(name, value))
        if self.schema is not None and (self.columns or self.labels):
            given = "columns" if self.columns else "labels"
            raise OptionError(
                f"{given}={getattr(self, given)!r}: a schema names the source's own columns and "
                "their class names, as in Label(names=[...]); leave this option out."
            )
        if self.image_format == "raw" and (
            not isinstance(self.image_size, tuple) or self.resize == "fit"
        ):
            raise OptionError(
                "image_format='raw': raw pixels can be read back only if all images have one size; "
                "give it, such as image_size=(128, 128), and a resize other than 'fit'."
            )
        if self.verify == "none" and self.transforms:
            raise OptionError(
                "verify='none': images cannot be transformed without being decoded; give "
                "verify='decode'."
            )
        if self.version is not None and self.name is None:
            raise OptionError(f"version={self.version!r}: a version needs a name; give name too.")
        if self.overwrite and self.retry_rejects:
            raise OptionError(
                "overwrite=True and retry_rejects=True cannot be combined: the first starts again, "
                "the second keeps what is there. Give one of them."
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ConvertOptions:
        """Options by name; a misspelt name is an OptionError that suggests the nearest."""
        refuse_unknown(options, cls)
        return cls(**options)

    @property
    def text_form(self) -> TextForm:
        """How the text of a CSV is written."""
        return TextForm(self.sep, self.encoding)

    @property
    def shard_bytes(self) -> int:
        """`shard_size` in bytes."""
        return parse_size(self.shard_size)

    @property
    def transforms(self) -> bool:
        """True if images are not stored as they are."""
        return self.image_size is not None or self.image_format != "keep" or self.apply_exif

    @property
    def account(self) -> str | None:
        """The service account to act as, after those that delegate to it; Beam's own option."""
        given = (self.runner_options or {}).get("impersonate_service_account")
        return None if given is None else str(given)

    def shards_of(self, split: str) -> int | None:
        """The number of shards asked for a split, or None if the size decides."""
        if isinstance(self.num_shards, Mapping):
            return self.num_shards.get(split)
        return self.num_shards

    @property
    def division(self) -> Division:
        """How rows without a split get one."""
        shares = {"shares": self.splits} if self.splits else {}
        asked = tuple(name for name in _OF_DIVISION if getattr(self, name))
        return Division(**shares, stratify=self.stratify, seed=self.seed, asked=asked)

    def content_options(self) -> dict[str, Any]:
        """The options that decide what the files hold, as JSON values."""
        chosen = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.metadata["content"]
        }
        chosen["shard_size"] = self.shard_bytes
        chosen["labels"] = None if self.labels is None else list(self.labels)
        # Only if they are used, so that plans made before these options existed stay valid.
        for name in (*_OF_DIVISION, *OF_TOOLS):
            if not chosen[name]:
                del chosen[name]
        if self.name is not None:
            chosen["version"] = self.version or DEFAULT_VERSION
        if self.schema is None:
            del chosen["schema"]
        else:
            chosen["schema"] = to_plain(self.schema)
        if isinstance(self.image_size, tuple):
            chosen["image_size"] = list(self.image_size)
        if not self.transforms:
            chosen = {name: value for name, value in chosen.items() if name not in _OF_TRANSFORMS}
        return chosen


_OF_WORK = "stage writes no images; give it to tfrecorder.work"
_OF_RUNNERS = "stage starts no workers; leave it out, and call tfrecorder.work on each machine"

#: Options of `convert` that do not apply to `stage`, and what to do instead.
NOT_STAGED = {
    **dict.fromkeys(("on_error", "num_threads", "progress"), _OF_WORK),
    "max_reject_fraction": "stage commits nothing; give it to tfrecorder.commit",
    **dict.fromkeys(("runner", "runner_options", "wait"), _OF_RUNNERS),
    **dict.fromkeys(("project", "region", "num_workers"), _OF_RUNNERS),
}

_OF_MANY = "the process that reads a stream also writes it; leave it out"
_OF_TEXT = "a stream gets rows, not text; leave it out"

#: Options of `convert` that do not apply to `stream`, and what to do instead.
NOT_STREAMED = {
    **dict.fromkeys(("runner", "runner_options", "wait"), _OF_MANY),
    **dict.fromkeys(("project", "region", "num_workers"), _OF_MANY),
    **dict.fromkeys(("sep", "encoding"), _OF_TEXT),
    "base": "a stream resolves relative uris from the current folder; give absolute ones",
    "background_class": "a stream has one row for each image, and no boxes; leave it out",
    "overwrite": "a stream adds to what is there; leave it out, or remove the directory first",
    "retry_rejects": "a stream reads each row once; leave it out",
    "on_error": "a stream continues after an image that cannot be used; leave it out",
    "max_reject_fraction": "a stream continues however many rows are rejected; leave it out",
    "strict": "a stream continues despite warnings; leave it out",
}

_OF_DIVISION = ("splits", "stratify", "split_by")
_OF_TRANSFORMS = ("image_size", "resize", "image_format", "image_quality", "apply_exif")


def _normal(name: str, value: Any) -> Any:
    """A checked value as a plain Python value that nothing else shares: not a NumPy scalar or a
    dict of the caller's."""
    if name == "schema" and value is not None:
        return as_schema(value)
    if name == "image_size" and isinstance(value, Sequence):
        return tuple(map(operator.index, value))
    if name == "base" and value is not None:
        return os.fspath(value)
    if name == "encoding" and value is not None:
        # So that a byte order mark is not read as part of the first name.
        return "utf-8-sig" if codecs.lookup(value).name == "utf-8" else str(value)
    if name == "runner":
        return canonical_runner(value)
    if name == "runner_options":
        return {plain_name(word): given for word, given in (value or {}).items()}
    if name == "labels" and value is not None:
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


def _check_text(value: Any) -> str | None:
    return None if value is None or isinstance(value, str) else "give text."


def _check_runner(value: Any) -> str | None:
    return None if isinstance(value, str) and value else "give a runner's name."


def _check_progress(value: Any) -> str | None:
    return None if value is None or isinstance(value, bool) else "give True, False or None."


_CHECKS = {
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
    "strict": flag,
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
