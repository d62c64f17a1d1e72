"""What TensorFlow itself reads: the records, by its own file systems.  All else is read by ours."""

from __future__ import annotations

import tensorflow as tf

from tfrecorder import storage
from tfrecorder.errors import DatasetError


def refuse_unread(path: str) -> None:
    """Refuse a dataset that TensorFlow cannot read, before anything is read.

    Raises:
        DatasetError: TensorFlow has no file system for the path's scheme, or is not told whom to
            bill.
    """
    scheme = storage.scheme(path)
    readable = sorted(name for name in tf.io.gfile.get_registered_schemes() if name)
    if scheme and scheme not in readable:
        raise DatasetError(
            f"{path}: TensorFlow has no reader of {scheme}://, only of {', '.join(readable)}. "
            "Read with Records or batches, copy the directory to a local disk or to gs://, mount "
            "the bucket as a folder, or install and import tensorflow-io, which adds s3 and az."
        )
    project = storage.access().user_project
    if scheme == "gs" and project is not None:
        try:
            tf.io.gfile.exists(path)
        except tf.errors.OpError as error:
            # In this it differs from all other readers.  Source:
            # https://cloud.google.com/storage/docs/xml-api/reference-headers#xgooguserproject
            if "no user project" in error.message:
                raise DatasetError(
                    f"{path} cannot be read: the reader of this bucket pays for it. Before Python "
                    f"starts, set {storage.USER_PROJECT}={project}, the Google Cloud project to "
                    "bill, and for TensorFlow "
                    f"GCS_ADDITIONAL_REQUEST_HEADER=x-goog-user-project:{project} too."
                ) from error
            raise DatasetError(f"{path} cannot be read by TensorFlow: {error.message}") from error
