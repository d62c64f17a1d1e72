"""Reading the files of a dataset through TensorFlow's own file systems: gs:// and others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import tensorflow as tf

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool
from tfrecorder.errors import DatasetError, PackageError, UnreachableError
from tfrecorder.format.compression import HEAD_BYTES, compression_of
from tfrecorder.reading.dataset import Files
from tfrecorder.reading.dataset_files import STORED_FILES


def files_of(path: str) -> Files:
    """How the files of a dataset are read: local ones directly, others through TensorFlow.

    Raises:
        DatasetError: TensorFlow has no file system for the path's scheme.
    """
    scheme = storage.scheme(path)
    if not scheme:
        return STORED_FILES
    readable = sorted(name for name in tf.io.gfile.get_registered_schemes() if name)
    if scheme not in readable:
        raise DatasetError(
            f"{path}: TensorFlow has no reader of {scheme}://, only of {', '.join(readable)}. "
            "Read with Records or batches, copy the directory to a local disk or to gs://, mount "
            "the bucket as a folder, or install and import tensorflow-io, which adds s3 and az."
        )
    return Files(
        read=_read,
        sizes=_sizes,
        folders=_folders,
        glob=_glob,
        count=lambda path: None,
        compression=_compression,
        records=_records,
    )


def _read(path: str) -> bytes:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return file.read()
    except tf.errors.OpError as error:
        if "no user project" in error.message:
            raise DatasetError(f"{path} cannot be read: {_remedy()}") from error
        code = "not_found" if isinstance(error, tf.errors.NotFoundError) else "read_failed"
        raise storage.UnreadableError(code, error.message) from error


def _remedy() -> str:
    """How to bill TensorFlow's own reader; in this it differs from all other readers.

    Source: https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooguserproject
    """
    project = storage.access().user_project or "PROJECT"
    return (
        "the reader of this bucket pays for it. Before Python starts, set "
        f"{storage.USER_PROJECT}={project}, the Google Cloud project to bill, and for TensorFlow "
        f"GCS_ADDITIONAL_REQUEST_HEADER=x-goog-user-project:{project} too."
    )


def _sizes(folder: str) -> dict[str, int]:
    """The size of each file in a folder: from our own listing, else by a request for each file.

    TensorFlow only lists names.  But it can read files that our own store cannot: it looks for
    credentials elsewhere, reads public buckets without any, and its plugins know other schemes.
    """
    with (
        contextlib.suppress(DatasetError, PackageError, UnreachableError),
        storage.impatient(),
    ):
        if found := STORED_FILES.sizes(folder):
            return found
    return _sizes_one_by_one(folder)


def _sizes_one_by_one(folder: str) -> dict[str, int]:
    try:
        names = tf.io.gfile.listdir(folder)
    except tf.errors.NotFoundError:
        return {}
    except tf.errors.OpError as error:
        raise DatasetError(f"{folder} cannot be listed: {error.message}") from error
    files = [name for name in names if not name.endswith("/")]
    paths = [os.path.join(folder, name) for name in files]
    with ThreadPool(storage.REMOTE_THREADS) as pool:
        stats = list(pool.map(tf.io.gfile.stat, paths))
    found = zip(files, stats, strict=True)
    return {name: stat.length for name, stat in found if not stat.is_directory}


def _folders(folder: str) -> list[str]:
    with (
        contextlib.suppress(DatasetError, UnreachableError),
        storage.impatient(),
    ):
        return STORED_FILES.folders(folder)
    try:
        names = tf.io.gfile.listdir(folder)
    except tf.errors.NotFoundError:
        return []
    except tf.errors.OpError as error:
        raise DatasetError(f"{folder} cannot be listed: {error.message}") from error
    return [name.rstrip("/") for name in names]


def _compression(path: str) -> str:
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return compression_of(file.read(HEAD_BYTES))
    except tf.errors.OpError as error:
        raise DatasetError(f"{path} cannot be read: {error.message}") from error


def _records(path: str, compression: str) -> Iterator[bytes]:
    try:
        yield from tf.data.TFRecordDataset(path, compression).as_numpy_iterator()
    except tf.errors.OpError as error:
        raise ValueError(error.message) from error


def _glob(pattern: str) -> list[str]:
    return sorted(tf.io.gfile.glob(pattern))
