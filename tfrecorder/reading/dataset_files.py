"""Reading the files of a dataset directory without TensorFlow, and counting their records."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import re
from collections.abc import Iterator

from tfrecorder import storage
from tfrecorder.errors import DatasetError
from tfrecorder.format.compression import HEAD_BYTES, compression_of, records_of
from tfrecorder.format.tfrecord import CorruptRecordError, read_places
from tfrecorder.reading.dataset import Files


def _matching(pattern: str) -> list[str]:
    if storage.is_local(pattern):
        return sorted(glob.glob(pattern, recursive=True))
    folder = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    paths = (f"{folder}/{name}" for name in storage.files_below(folder))
    return [path for path in paths if fnmatch.fnmatchcase(path, pattern)]


def _count(path: str) -> int | None:
    return count_records(path) if storage.is_local(path) else None


def _sizes(folder: str) -> dict[str, int]:
    with storage.failing_as(DatasetError, folder or "."):
        found = storage.sizes(folder)
    here = storage.is_local(folder)
    # A pipe and a broken link have size 0, so on a disk we check only files of size 0.
    return {
        name: size
        for name, size in found.items()
        if size or (size == 0 and (not here or os.path.isfile(os.path.join(folder, name))))
    }


def _folders(folder: str) -> list[str]:
    with storage.failing_as(DatasetError, folder):
        return [name for name, size in storage.sizes(folder).items() if size is None]


def _compression(path: str) -> str:
    with storage.failing_as(DatasetError, path), storage.open_seekable(path) as file:
        return compression_of(file.read(HEAD_BYTES))


def _records(path: str, compression: str) -> Iterator[bytes]:
    with storage.failing_as(DatasetError, path), storage.open_seekable(path) as file:
        yield from records_of(file, compression)


def count_records(path: str) -> int:
    """The number of records in a local TFRecord file, from their lengths, without reading the data.

    Raises:
        DatasetError: the records do not end where the file ends.
    """
    end = os.path.getsize(path)
    records = at = 0
    with open(path, "rb", buffering=4096) as file, contextlib.suppress(CorruptRecordError):
        for start, size in read_places(file, end):
            at = start + size
            records += 1
    if at != end:
        raise DatasetError(
            f"{path} is not a whole TFRecord file: record {max(records - 1, 0)} does not end where "
            "the file does. It is truncated, or of another format; copy it again."
        )
    return records


#: The files of a directory as our own stores read them, on a disk or a bucket.
STORED_FILES = Files(
    read=storage.read_bytes,
    sizes=_sizes,
    folders=_folders,
    glob=_matching,
    count=_count,
    compression=_compression,
    records=_records,
)
