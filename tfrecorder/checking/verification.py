"""`verify`: is every byte of a dataset directory as it was written, and as it was planned?"""

from __future__ import annotations

import os
import time

from tfrecorder import metadata, storage
from tfrecorder.checking.directory_check import check_all
from tfrecorder.checking.expectation import read_expectation
from tfrecorder.checking.faults import VerificationReport
from tfrecorder.checking.metadata_check import common_files
from tfrecorder.checking.shard_check import Decode
from tfrecorder.errors import DatasetError


def verify(
    directory: str | os.PathLike[str], decode: bool = False, progress: bool | None = None
) -> VerificationReport:
    """Check every byte of a dataset directory that `convert` wrote; change nothing.

    Checked are: each shard's size and CRC32C; each record's checksums, keys, types, image header,
    label and text; that boxes lie within their image and masks have its size; that every planned
    row is one record or one reject, with what was planned; the index, the lists of rejects and
    suspects, and the files of the commit.  No source is read, so of boxes that moved with a resized
    image only what the plan tells of them is compared.

    Args:
        directory: the output_dir of a finished conversion.
        decode: also decode every image as `load` does, which takes TensorFlow and many times as
            long.
        progress: show a bar; None shows it in a terminal and in a notebook.

    Returns:
        The faults, each with its file and, for a shard, its record and byte offset; `.ok` is True
        if there are none.

    Raises:
        DatasetError: the directory holds no committed dataset, or one that another tool wrote, or
            cannot be read.

    Example:
        >>> report = tfrecorder.verify("out")  # doctest: +SKIP
        >>> report.ok  # doctest: +SKIP
        True
    """
    started = time.perf_counter()
    where = os.fspath(directory)
    decoder: Decode | None = None
    with storage.failing_as(DatasetError, where):
        expected = read_expectation(where)
        if decode:
            from tfrecorder.checking import decode_check  # TensorFlow, only where it is asked for

            decoder = decode_check.decoder(metadata.image_shape(expected.done.values()))
        shards, faults = check_all(expected, decoder, progress)
    return VerificationReport(
        directory=where,
        files=sum(one.files for one in shards) + common_files(expected),
        records=sum(one.records for one in shards),
        bytes=sum(one.bytes for one in shards),
        seconds=time.perf_counter() - started,
        decoded=decode,
        found=tuple(faults),
    )
