"""TensorFlow's reading of metadata that is replaced meanwhile: whole, and never mixed.

An inner law: `load` reads metadata so; that of a large dataset takes too long to write in a test.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorflow as tf
from gcs.control import Gcs
from gcs.tls_proxy import TlsProxy
from support import run

from tfrecorder.loading.remote import files_of

pytest_plugins = ["gcs.fixtures"]

#: TensorFlow remembers the size of an object for 5 s, and reads no byte beyond it.
REPLACED = """
from tfrecorder import storage
from tfrecorder.loading.remote import files_of

path = "gs://bkt/out/dataset_info.json"
for size in (50, 5_000, 500, 3_000_000):
    data = b"%d" % (size % 7) * size
    storage.publish_bytes("gs://bkt/out", "dataset_info.json", data)
    assert files_of(path).read(path) == data, size
"""


@pytest.mark.slow
@pytest.mark.parametrize("billed", [{}, {"GS_USER_PROJECT": "payer"}])
def test_a_commit_that_was_just_replaced_in_a_bucket_is_read_whole(
    gcs: Gcs, tls: TlsProxy, billed: dict[str, str]
) -> None:
    done = run("-c", REPLACED, env={**os.environ, **tls.environment(), **billed}, seconds=120)
    assert done.returncode == 0, done.stderr


def test_a_file_of_a_scheme_that_only_tensorflow_reads_is_never_mixed() -> None:
    """ram:// is read in parts, between which the file is replaced."""
    path, versions = "ram://replaced/dataset_info.json", ("a" * 2_000_000, "b" * 1_500_000)

    def replace(times: int) -> None:
        for number in range(times):
            with tf.io.gfile.GFile("ram://replaced/new", "w") as file:
                file.write(versions[number % 2])
            tf.io.gfile.rename("ram://replaced/new", path, overwrite=True)

    tf.io.gfile.makedirs("ram://replaced")
    replace(1)
    with ThreadPoolExecutor(1) as pool:
        replacing = pool.submit(replace, 1000)
        while not replacing.done():
            assert files_of(path).read(path).decode() in versions
        replacing.result()
