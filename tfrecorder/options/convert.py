"""The options of a conversion: one frozen value that validates itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.core.option import (
    Fault,
    OneOf,
    Size,
    Whole,
    content_option,
    flag_or_none,
    fraction,
    option,
    parse_size,
    spelled,
    text,
)
from tfrecorder.images.header import CHECKS, DEFAULT_MAX_PIXELS, FORMATS, RESIZES
from tfrecorder.options import convert_values as values
from tfrecorder.options.convert_values import TextForm
from tfrecorder.options.option import Options, check_image_size, sides
from tfrecorder.options.runner import DIRECT, RUNNERS, canonical_runner, check_form
from tfrecorder.schema.kinds import Schema
from tfrecorder.schema.schema_file import as_schema, to_plain
from tfrecorder.schema.splits import Division

DEFAULT_SHARD_SIZE = "128MiB"


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(Options):
    """What a conversion does, apart from its source and its output directory.

    The help text of each option is its field's metadata; the command line shows the same words.
    Options that decide what the files hold (`content_options`) must be the same when an
    interrupted conversion is continued; the others may change.

    Raises:
        OptionError: a value has the wrong type or is out of range.

    >>> ConvertOptions(num_shards=4).shards_of("TEST")
    4
    """

    columns: Mapping[str, str] | None = content_option(
        None,
        values.check_columns,
        "Use the source's column NAME as split, image_uri or label.",
        metavar="NAME=image_uri|split|label",
        shell="rename the columns, as in `frame.rename(columns={'path': 'image_uri'})`, or name "
        "them in a `schema`",
    )
    schema: Schema | None = content_option(
        None,
        values.check_schema,
        "What each column contains: a YAML or JSON file; in Python also a Schema or a dict. "
        "`tfrecorder schema` prints one to edit. Default: the columns split, image_uri and label, "
        "and the boxes, masks and lists of labels that the source shows.",
        metavar="FILE",
        normal=as_schema,
    )
    sep: str | None = option(
        None,
        values.check_sep,
        "The character that separates the values of a CSV. Default: a comma.",
        metavar="CHAR",
        shell="read the file with `pandas.read_csv(path, sep=';')`, and give the frame",
    )
    encoding: str | None = option(
        None,
        values.check_encoding,
        "The encoding of a CSV, such as cp1252. Default: UTF-8, or UTF-16 with a BOM.",
        metavar="NAME",
        normal=values.codec,
        shell="read the file with `pandas.read_csv(path, encoding='cp1252')`, and give the frame",
    )
    base: str | None = option(
        None,
        values.check_base,
        "The folder that relative image paths start from. Default: the folder of the CSV; for "
        "COCO's JSON, where its images are found; for a frame or standard input, the current "
        "folder.",
        metavar="FOLDER",
        normal=storage.given_path,
    )
    form: str | None = option(
        None,
        values.check_form,
        "What a folder is read as, where it could be several. metadata: a table metadata.*; "
        "masks: pictures and their masks; folder: splits and classes by its folders alone; "
        "datumaro:NAME: a form that Datumaro reads, such as datumaro:kitti. Default: what its "
        "files say.",
        metavar=f"{'|'.join(values.FORMS)}|{values.DATUMARO}NAME",
    )
    num_shards: int | Mapping[str, int] | None = content_option(
        None,
        values.check_num_shards,
        "Shards of each split, of which none is empty: one number, or one per split, at least 1. "
        "Default: by the shard size, but up to 8 for a small split, so that reading mixes them.",
        metavar="N|SPLIT=N,...",
        normal=values.counts,
    )
    shard_size: int | str = content_option(
        DEFAULT_SHARD_SIZE,
        Size((1, "1 byte"), "128MiB"),
        "Target size of a shard, estimated from at most 1,000 image sizes. Units: B, KB, MB, GB, "
        "KiB, MiB, GiB.",
        metavar="SIZE",
        idle_with={"num_shards": lambda number: isinstance(number, int)},
    )
    shuffle: bool = content_option(
        True,
        help="Shuffle the rows of each split, or keep the source's order.",
    )
    seed: int = content_option(
        0,
        Whole(0, 2**32 - 1),
        "Seed of the shuffle, and of the assignment of rows without a split.",
    )
    splits: Mapping[str, float] | None = content_option(
        None,
        values.check_splits,
        "Shares of the splits for rows without a split; they must sum to 1. Default: TRAIN=0.8, "
        "VALIDATION=0.1, TEST=0.1.",
        metavar="SPLIT=SHARE,...",
        normal=values.shares,
    )
    stratify: bool = content_option(
        False,
        help="Keep the shares of the splits within each label, not only over all rows.",
    )
    split_by: str | None = content_option(
        None,
        text,
        "Rows with the same value in this column get the same split, such as all images of a "
        "patient. With COCO or YOLO, a CSV beside the annotations has this column.",
        metavar="COLUMN",
    )
    group_by: str | None = content_option(
        None,
        text,
        "A column: rows with the same value become one record, such as all captions of an image. "
        "Columns of lists, such as `Text(shape=(None,))`, gather their values; all others must "
        "agree.",
        metavar="COLUMN",
    )
    group_copies: bool = content_option(
        False,
        help="Put near copies of an image into one split, as far as rows state none. Each image is "
        "opened before anything is written, and once more to write it.",
    )
    check: str = content_option(
        "decode",
        OneOf(*CHECKS),
        "How to check each image. decode: accept only what decodes, so training never fails on it; "
        "strict: also reject what decodes with a warning; header: read only the headers of JPEG "
        "and PNG (format, size, channels, number of a JPEG's scans).",
    )
    max_pixels: int = content_option(
        DEFAULT_MAX_PIXELS,
        Whole(1),
        "Reject images with more pixels than this.",
    )
    image_size: int | tuple[int, int] | None = content_option(
        None,
        check_image_size,
        "Store all images in this size: height and width in pixels, or one number for both. "
        "Default: as they are.",
        metavar="N|HxW",
        normal=sides,
    )
    short_side: int | None = content_option(
        None,
        Whole(1),
        "Shrink larger images to this short side, in pixels; smaller ones stay as they are.",
    )
    resize: str = content_option(
        "stretch",
        OneOf(*RESIZES),
        "How to fit an image with other proportions to height and width. stretch: distort it; "
        "crop: cut the longer side, centred; pad: add black; fit: shrink it to stay within.",
        needs=("image_size",),
    )
    image_format: str = content_option(
        "keep",
        OneOf(*FORMATS),
        "How images are stored. keep: as their files are; jpeg; png; raw: as pixels, all of one "
        "size, read without decoding.",
    )
    image_quality: int = content_option(
        95,
        Whole(1, 100),
        "Quality of images that are encoded as JPEG.",
        needs=("image_size", "short_side", "image_format", "apply_exif"),
        idle_with={"image_format": ("png", "raw").__contains__},
    )
    apply_exif: bool = content_option(
        False,
        help="Turn images upright, following their EXIF orientation.",
    )
    fingerprints: bool = content_option(
        False,
        help="Also decode images that the check does not decode, so that near copies of them are "
        "found. These are PNG, and with the check 'header' JPEG.",
    )
    strip_metadata: bool = content_option(
        False,
        help="Cut EXIF (but for the orientation), XMP and comments out of JPEG and PNG; the pixels "
        "stay as they are encoded.",
    )
    name: str | None = content_option(
        None,
        values.check_name,
        "Write into the folder NAME/VERSION of the output directory, where tfds.load(NAME, "
        "data_dir=…) finds it. The version is 1.0.0, unless it is given, as in flowers:1.0.1.",
        metavar="NAME[:VERSION]",
        normal=values.with_version,
    )
    max_reject_fraction: float = option(
        0.1,
        fraction,
        "Fail before the commit if more than this share of the rows, 0 to 1, is rejected.",
        metavar="FRACTION",
        normal=float,
    )
    warnings: str | tuple[str, ...] = option(
        "show",
        values.check_warnings,
        "What to do about warnings of the validation. show: count them and go on; error: take all "
        "of them for errors; or a list of the codes to take for errors.",
        metavar="show|error|CODE,...",
        normal=values.texts,
    )
    overwrite: bool | str = option(
        False,
        OneOf(False, True, "all"),
        "Replace a dataset that tfrecorder wrote there before, once the new one is complete. all: "
        "even if rows were appended or streamed to it, which the source may not have; rows that "
        "were removed from it may come back.",
    )
    private_hosts: bool = option(
        False,
        help="Also read images over http(s) from private addresses, such as 10.0.0.7.",
    )
    runner: str | None = option(
        None,
        values.check_runner,
        f"The Beam runner: {', '.join(RUNNERS)}, in any case, or the dotted path of a class. "
        "Default: the DirectRunner; without Apache Beam, this process.",
        metavar="NAME",
        normal=canonical_runner,
    )
    runner_options: Mapping[str, Any] = option(
        None,
        check_form,
        "Options of Beam and its runner, with or without leading dashes, checked by Beam.",
        metavar="NAME=VALUE",
        normal=values.plain_names,
    )
    wait: bool = option(
        False,
        help="With the DataflowRunner: wait until the job ends. Default: return at once. The other "
        "runners always wait.",
        needs=("runner",),
        idle_with={"runner": lambda runner: runner != "DataflowRunner"},
        shell="the handle of the job is returned at once; its `result()` waits",
    )
    project: str | None = option(
        None,
        text,
        "Google Cloud project, for Dataflow.",
        needs=("runner",),
        idle_with={"runner": DIRECT.__eq__},
    )
    region: str | None = option(
        None,
        text,
        "Google Cloud region, for Dataflow.",
        needs=("runner",),
        idle_with={"runner": DIRECT.__eq__},
    )
    num_workers: int | None = option(
        None,
        Whole(1),
        "Local worker processes, or the machines that Dataflow starts with. Default: one process "
        "for every five cores if there are 50,000 rows or more, else one with threads on all.",
    )
    num_threads: int | None = option(
        None,
        Whole(1),
        "Threads that load images, in each worker process. Default: one per core, or 16 if images "
        "come from a bucket.",
    )
    progress: bool | None = option(
        None,
        flag_or_none,
        "Show a progress bar. Default: only in a terminal or a notebook.",
    )

    def _conflicts(self) -> Iterator[Fault]:
        if self.schema is not None and self.columns:
            yield "columns", "a schema names the source's own columns; leave this option out."
        if self.image_size is not None and self.short_side is not None:
            both = f"{spelled('image_size')} gives all images one size, whatever their short side"
            yield "short_side", f"{both}; give one."
        if self.image_format == "raw" and (self.image_size is None or self.resize == "fit"):
            yield (
                "image_format",
                "raw pixels can be read back only if all images have one size; give it, such as "
                f"{spelled('image_size', (128, 128))}, and a {spelled('resize')} other than 'fit'.",
            )

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
        sized = self.image_size is not None or self.short_side is not None
        return sized or self.image_format != "keep" or self.apply_exif

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
        return Division(
            **shares,
            stratify=self.stratify,
            seed=self.seed,
            asked=asked,
        )

    def content_options(self) -> dict[str, Any]:
        """The options that decide what the files hold, as JSON values."""
        chosen = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.metadata["content"]
        }
        chosen["shard_size"] = self.shard_bytes
        if self.name is not None:
            chosen["name"], _, chosen["version"] = self.name.partition(":")
        if self.schema is not None:
            chosen["schema"] = to_plain(self.schema)
        if isinstance(self.image_size, tuple):
            chosen["image_size"] = list(self.image_size)
        # These only if they are used: most datasets name none of them.
        unused = {name for name in (*_OF_DIVISION, *_RARE) if not chosen[name]}
        unused |= set() if self.transforms else {*_OF_TRANSFORMS}
        return {name: value for name, value in chosen.items() if name not in unused}


_OF_DIVISION = ("splits", "stratify", "split_by")
_RARE = ("name", "schema", "fingerprints", "group_by", "group_copies", "strip_metadata")
_OF_TRANSFORMS = (
    "image_size",
    "short_side",
    "resize",
    "image_format",
    "image_quality",
    "apply_exif",
)
