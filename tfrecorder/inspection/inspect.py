"""`inspect`: the records of a dataset as a table and, if asked for, as files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import Whole
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import csv_of
from tfrecorder.format.example import Values, text_of
from tfrecorder.images.header import ending_of
from tfrecorder.inspection.record_values import (
    MASK,
    encoded_of,
    image_of,
    mask_key,
    mask_of,
)
from tfrecorder.options.keywords import Path
from tfrecorder.options.option import require
from tfrecorder.options.read import NamedKeys
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.record_set import Record, open_stored, read_numbered
from tfrecorder.schema.fields import file_fields
from tfrecorder.storage.local import local_path, write_whole

#: The name of the file that lists the records.
CSV = "records.csv"

#: How to repeat a call that had no space: it never writes into a folder with files.
_ANEW = " with a new or empty folder"

#: The first columns of the table; the features follow by their keys.
COLUMNS = ("split", "record", "image_file", "image_bytes")


def inspect(
    directory: Path,
    split: str = "TRAIN",
    num_records: int = 20,
    output_dir: Path | None = None,
    at: int | None = None,
    image: str | None = None,
    label: str | None = None,
    features: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """The first records of a split as a table, and if asked for, their images as files.

    It needs neither TensorFlow nor Beam, and reads only these records.

    Args:
        directory: the output of a conversion, a TFDS directory of one version, or a pattern of
            TFRecord files.
        split: which split.
        num_records: how many records; fewer if the split has fewer.
        output_dir: a new or empty folder.  It receives the images, named by split and number, and
            the table `records.csv`.  Nothing is written elsewhere.
        at: read an appended dataset only up to this generation; None means the newest.
        image, label, features: as for `load`.

    Returns:
        One row per record: split, record (its number), image_file (its name in `output_dir`, or
        empty), image_bytes, and a column for each feature.  Images are left out of the table; their
        files hold them exactly as stored.

    Raises:
        OptionError: an argument is wrong.
        OutputError: `output_dir` is not empty, or cannot be written.
        DatasetError: the directory is not a whole dataset, has no such split, or is damaged.

    Example:
        >>> tfrecorder.inspect("out", "TRAIN", num_records=3)  # doctest: +SKIP
    """
    require(Whole(1), num_records=num_records)
    target = None if output_dir is None else local_path("output_dir", output_dir)
    stored = open_stored(directory, at, NamedKeys(image, label, features))
    name = stored.split(split)
    if target is not None:
        if os.path.lexists(target) and not os.path.isdir(target):
            raise OutputError(f"{target} is a file; give a new or empty folder.")
        others = sorted(set(storage.names(target)) - set(layout.DESKTOP_FILES))
        if others:
            raise OutputError(f"{target} holds {others[0]!r}; choose a new or empty folder.")
        with storage.failing_writes(target):
            os.makedirs(target, exist_ok=True)
    numbers = range(min(num_records, stored.records(name) or 0))
    rows = [_row(record, stored, target) for record in read_numbered(stored, name, numbers)]
    table = pd.DataFrame(rows, columns=None if rows else list(COLUMNS))
    if target is not None:
        write_whole(os.path.join(target, CSV), csv_of(table).encode(), _ANEW)
    return table


def _row(
    record: Record,
    stored: StoredDataset,
    folder: str | None,
) -> dict[str, Any]:
    """A record as a row of the table; its images are written to the folder."""
    images = {} if folder is None else _images(record, stored)
    for file, data in images.items():
        write_whole(os.path.join(str(folder), file), data, _ANEW)
    return {
        "split": record.split,
        "record": record.number,
        "image_file": next(iter(images), ""),
        "image_bytes": len(image_of(record.features, stored)),
        **_plain(record.features, stored),
    }


def _word(split: str) -> str:
    """A split as part of a file name; TFDS splits may have any name."""
    return split.lower() if split in ("TRAIN", "VALIDATION", "TEST") else "records"


def _images(record: Record, stored: StoredDataset) -> dict[str, bytes]:
    """The images of a record by file name; the image itself first.

    The names are made from numbers, never from what a dataset holds, and their endings from the
    images' bytes.
    """
    stem = f"{_word(record.split)}-{record.number:06d}"
    images = {
        stem: image_of(record.features, stored),
        f"{stem}-mask": mask_of(record.features, stored),
    }
    shown = (stored.image_key, mask_key(stored))
    keys = _image_keys(record.features, stored)
    further = [data for key in keys if key not in shown for data in _further(record, key, stored)]
    images.update({f"{stem}-further{number}": data for number, data in enumerate(further, 2)})
    return {f"{name}{ending_of(data) or '.bin'}": data for name, data in images.items() if data}


def _further(
    record: Record,
    key: str,
    stored: StoredDataset,
) -> list[bytes]:
    """The images under a key: one, or the masks of all objects."""
    values = record.features.get(key, [])
    if len(values) > 1:
        return [value for value in values if isinstance(value, bytes)]
    return [encoded_of(record.features, key, stored)]


def _plain(features: Mapping[str, Values], stored: StoredDataset) -> dict[str, Any]:
    """The features except the images and files: one value as itself, several as a list."""
    plain = {}
    images = {stored.image_key, MASK, *_image_keys(features, stored)}
    images |= {field.encoded_key for field in file_fields(stored.fields)}
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
    return images + [key for key in others if ending_of(data[key])]
