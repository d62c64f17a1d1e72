"""Reading the files of a dataset through TensorFlow's own file systems: gs:// and others."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import tensorflow as tf

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool
from tfrecorder.errors import DatasetError, PackageError, TfrecorderError, UnreachableError
from tfrecorder.format.compression import HEAD_BYTES, compression_of
from tfrecorder.reading.dataset_files import STORED_FILES, StoredFiles


def files_of(path: str) -> StoredFiles:
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
    return TensorFlowFiles()


class TensorFlowFiles(StoredFiles):
    """The files of a dataset as TensorFlow's file systems read them."""

    def read(self, path: str) -> bytes:
        """By our own store, which takes a file whole, else by TensorFlow (see `sizes`)."""
        try:
            with contextlib.suppress(TfrecorderError), storage.impatient():
                data = super().read(path)
                if storage.access().user_project is not None:
                    tf.io.gfile.stat(path)  # which needs a setting of its own: see `_remedy`
                return data
            return _read_whole(path)
        except tf.errors.OpError as error:
            if "no user project" in error.message:
                raise DatasetError(f"{path} cannot be read: {_remedy()}") from error
            code = "not_found" if isinstance(error, tf.errors.NotFoundError) else "read_failed"
            raise storage.UnreadableError(code, error.message) from error

    def sizes(self, folder: str) -> dict[str, int]:
        """From our own listing, else by a request for each file.

        TensorFlow only lists names.  But it can read files that our own store cannot: it looks for
        credentials elsewhere, reads public buckets without any, and its plugins know other schemes.
        """
        with (
            contextlib.suppress(DatasetError, PackageError, UnreachableError),
            storage.impatient(),
        ):
            if sizes := super().sizes(folder):
                return sizes
        return _sizes_one_by_one(folder)

    def folders(self, folder: str) -> list[str]:
        with contextlib.suppress(DatasetError, UnreachableError), storage.impatient():
            return super().folders(folder)
        return [name.rstrip("/") for name in _names(folder)]

    def glob(self, pattern: str) -> list[str]:
        return sorted(tf.io.gfile.glob(pattern))

    def count(self, path: str) -> None:
        return None

    def compression(self, path: str) -> str:
        try:
            with tf.io.gfile.GFile(path, "rb") as file:
                return compression_of(file.read(HEAD_BYTES))
        except tf.errors.OpError as error:
            raise DatasetError(f"{path} cannot be read: {error.message}") from error

    def records(self, path: str, compression: str) -> Iterator[bytes]:
        try:
            yield from tf.data.TFRecordDataset(path, compression).as_numpy_iterator()
        except tf.errors.OpError as error:
            raise ValueError(error.message) from error


#: How often a file is read that is replaced meanwhile, and the seconds in between.  TensorFlow
#: remembers the size of an object in gs:// for 5 s.
_READS, _PAUSE = 12, 1


def _read_whole(path: str) -> bytes:
    """A file, read until two reads agree with each other and with its size.

    TensorFlow reads in parts, up to a size that it was told before: of a file that is replaced
    meanwhile it may give less, or parts of both.
    """
    data = None
    for _ in range(_READS):
        before, size = data, tf.io.gfile.stat(path).length
        with tf.io.gfile.GFile(path, "rb") as file:
            data = file.read(size + 1)
        if data == before and len(data) == size:
            return data
        if before is not None:
            time.sleep(_PAUSE)
    raise storage.UnreadableError("read_failed", "it was replaced whenever it was read")


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


def _sizes_one_by_one(folder: str) -> dict[str, int]:
    files = [name for name in _names(folder) if not name.endswith("/")]
    paths = [os.path.join(folder, name) for name in files]
    with ThreadPool(storage.REMOTE_THREADS) as pool:
        stats = list(pool.map(tf.io.gfile.stat, paths))
    described = zip(files, stats, strict=True)
    return {name: stat.length for name, stat in described if not stat.is_directory}


def _names(folder: str) -> list[str]:
    """What TensorFlow lists in a folder, its folders with a "/"; empty if there is none."""
    try:
        return list(tf.io.gfile.listdir(folder))
    except tf.errors.NotFoundError:
        return []
    except tf.errors.OpError as error:
        raise DatasetError(f"{folder} cannot be listed: {error.message}") from error
