"""`inspect`: the records of a dataset as a table and, if asked for, as files."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.checks import Whole
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import csv_of
from tfrecorder.format.example import Values
from tfrecorder.images.formats import sniff
from tfrecorder.images.rejects import Reject
from tfrecorder.inspection.record_values import (
    MASK,
    encoded_of,
    image_of,
    mask_key,
    mask_of,
    text_of,
)
from tfrecorder.options.option import require
from tfrecorder.options.read import NamedKeys
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.stored_records import Record, open_stored, read_numbered
from tfrecorder.storage.local import TEMPORARY, local_path, write_whole

#: The name of the file that lists the records.
CSV = "records.csv"

#: The first columns of the table; the features follow by their keys.
COLUMNS = ("split", "record", "image_file", "image_bytes")

#: Names of the image files: made from numbers, never from what a dataset holds.
_IMAGE = re.compile(r"(train|validation|test|records)-[0-9]{6,}(-mask|-further[0-9]+)?\.[a-z]{3,4}")
_MASK_MARK = "-mask"
_MARK = re.compile(r"-(mask|further[0-9]+)$")


def inspect(
    directory: str | os.PathLike[str],
    split: str = "TRAIN",
    num_records: int = 20,
    output_dir: str | os.PathLike[str] | None = None,
    at: int | None = None,
    image: str | None = None,
    label: str | None = None,
) -> pd.DataFrame:
    """The first records of a split as a table, and if asked for, their images as files.

    It needs neither TensorFlow nor Beam, and reads only these records.

    Args:
        directory: the output of a conversion, a TFDS directory of one version, or a pattern of
            TFRecord files.
        split: which split.
        num_records: how many records; fewer if the split has fewer.
        output_dir: a new or empty folder, or that of an earlier inspection.  It receives the
            images, named by split and number, and the table `records.csv`.  Nothing is written
            elsewhere.
        at: read an appended dataset only up to this generation; None means the newest.
        image, label: as for `load`.

    Returns:
        One row per record: split, record (its number), image_file (its name in `output_dir`, or
        empty), image_bytes, and a column for each feature.  Images are left out of the table; their
        files hold them exactly as stored.

    Raises:
        OptionError: an argument is wrong.
        OutputError: `output_dir` holds other files, or cannot be written.
        DatasetError: the directory is not a whole dataset, has no such split, or is damaged.

    Example:
        >>> tfrecorder.inspect("out", "TRAIN", num_records=3)  # doctest: +SKIP
    """
    require(Whole(1), num_records=num_records)
    target = None if output_dir is None else local_path("output_dir", output_dir)
    stored = open_stored(directory, at, NamedKeys(image, label))
    name = stored.split(split)
    earlier = set() if target is None else _earlier_files(target)
    numbers = range(min(num_records, stored.records(name) or 0))
    rows = [_row(record, stored) for record in read_numbered(stored, name, numbers)]
    table = pd.DataFrame(rows, columns=None if rows else list(COLUMNS))
    if target is None:
        table["image_file"] = ""
    else:
        _write(target, table, read_numbered(stored, name, numbers), stored, earlier)
    return table


def _row(record: Record, stored: StoredDataset) -> dict[str, Any]:
    """A record as a row of the table."""
    return {
        "split": record.split,
        "record": record.number,
        "image_file": next(iter(_images(record, stored)), ""),
        "image_bytes": len(image_of(record.features, stored)),
        **_plain(record.features, stored),
    }


def _write(
    folder: str,
    table: pd.DataFrame,
    records: Iterable[Record],
    stored: StoredDataset,
    earlier: set[str],
) -> None:
    """Write the table and the images, replacing those of an earlier inspection.

    The table is written before the images, because it says which files in the folder are ours.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        for file in earlier:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(folder, file))
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from error
    write_whole(os.path.join(folder, CSV), csv_of(table).encode())
    for record in records:
        for file, data in _images(record, stored).items():
            write_whole(os.path.join(folder, file), data)


def _word(split: str) -> str:
    """A split as part of a file name; TFDS splits may have any name."""
    return split.lower() if split in ("TRAIN", "VALIDATION", "TEST") else "records"


def _images(record: Record, stored: StoredDataset) -> dict[str, bytes]:
    """The images of a record by file name; the image itself first."""
    stem = f"{_word(record.split)}-{record.number:06d}"
    images = {
        stem: image_of(record.features, stored),
        f"{stem}{_MASK_MARK}": mask_of(record.features, stored),
    }
    shown, keys = (stored.image_key, mask_key(stored)), _image_keys(record.features, stored)
    further = [data for key in keys if key not in shown for data in _further(record, key, stored)]
    images.update({f"{stem}-further{number}": data for number, data in enumerate(further, 2)})
    return {f"{name}.{_ending(data)}": data for name, data in images.items() if data}


def _further(record: Record, key: str, stored: StoredDataset) -> list[bytes]:
    """The images under a key: one, or the masks of all objects."""
    values = record.features.get(key, [])
    if len(values) > 1:
        return [value for value in values if isinstance(value, bytes)]
    return [encoded_of(record.features, key, stored)]


def _ending(data: bytes) -> str:
    """The file's extension, from its bytes, not from what the record says."""
    try:
        return {"jpeg": "jpg", "tiff": "tif"}.get(kind := sniff(data), kind)
    except Reject:
        return "bin"


def _plain(features: Mapping[str, Values], stored: StoredDataset) -> dict[str, Any]:
    """The features except the images: one value as itself, several as a list."""
    plain: dict[str, Any] = {}
    images = {stored.image_key, MASK, *_image_keys(features, stored)}
    for key, values in features.items():
        if key not in images:
            texts = [
                text_of(value) if isinstance(value, bytes) else value.item() for value in values
            ]
            plain[key] = texts[0] if len(texts) == 1 else texts
    return plain


def _image_keys(features: Mapping[str, Values], stored: StoredDataset) -> list[str]:
    """The keys of all images and masks, and of bytes that begin as an image does."""
    images = [key for key, kind in stored.features.items() if kind in ("image", "mask")]
    others = [key for key, kind in stored.features.items() if kind == "bytes"]
    data = {key: encoded_of(features, key, stored) for key in others}
    return images + [key for key in others if data[key] and _ending(data[key]) != "bin"]


def _earlier_files(folder: str) -> set[str]:
    """The images of an earlier inspection in a folder, and what an interrupted one left behind.

    Raises:
        OutputError: the folder holds anything else.
    """
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise OutputError(f"{folder} is a file; give a folder, new or empty, as `output_dir`.")
    names = {name for name in storage.names(folder) if name not in layout.DESKTOP_FILES}
    listed = _listed(os.path.join(folder, CSV)) if CSV in names else set()
    earlier = {
        name
        for name in names
        if name.startswith(TEMPORARY)
        or (_MARK.sub("", name.partition(".")[0]) in listed and _IMAGE.fullmatch(name))
    }
    foreign = sorted(names - earlier - ({CSV} if listed else set()))
    if foreign:
        raise OutputError(
            f"{folder} holds {foreign[0]!r}, which no inspection wrote; choose a new or empty "
            "folder as `output_dir`."
        )
    return earlier


def _listed(path: str) -> set[str]:
    """The stems of the images that an inspection's table lists; none if it is another table."""
    try:
        data = storage.read_bytes(path)
    except storage.UnreadableError as error:
        raise OutputError(f"{path} already exists, but cannot be read: {error}.") from error
    if not data.startswith(",".join(COLUMNS).encode()):
        return set()
    rows = csv.DictReader(io.StringIO(data.decode(errors="replace"), newline=""))
    return {_MARK.sub("", (row["image_file"] or "").partition(".")[0]) for row in rows}
