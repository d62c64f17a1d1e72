"""Reading a dataset in a bucket while it grows: by tf.data and by `batches`."""

from __future__ import annotations

import os

import pytest
from helpers.follow_cases import IDS, append
from helpers.growing_cases import QUIET, table
from helpers.reading_cases import ids
from support import TESTS, run

import tfrecorder
from services.gcs.control import Gcs
from services.gcs.tls_proxy import TlsProxy

pytest_plugins = ["services.gcs.fixtures"]

OUT = "gs://bkt/sets/out"

FOLLOWED_BY_TENSORFLOW = """
import sys, tfrecorder
sys.path.insert(0, sys.argv[1])
from helpers.growing_cases import QUIET, table
from helpers.reading_cases import ids

options = {"inputs": "all", "decode": False, "batch_size": 5}
train = tfrecorder.load(sys.argv[2], "TRAIN", follow=True, **options)
assert sorted(ids(train)) == list(range(12))
tfrecorder.append(table(12, 4), sys.argv[2], **QUIET)
assert sorted(ids(train)) == list(range(16))
"""


@pytest.mark.slow
def test_tensorflow_follows_a_dataset_in_a_bucket(gcs: Gcs, tls: TlsProxy) -> None:
    tfrecorder.convert(table(0, 12), OUT, num_shards=2, **QUIET)
    tests = str(TESTS)
    done = run("-c", FOLLOWED_BY_TENSORFLOW, tests, OUT, env={**os.environ, **tls.environment()})
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_batches_follow_a_dataset_in_a_bucket(gcs: Gcs) -> None:
    tfrecorder.convert(table(0, 12), OUT, num_shards=2, **QUIET)
    train = tfrecorder.batches(OUT, "TRAIN", follow=True, shuffle="blocks", seed=1, **IDS)
    assert sorted(ids(train)) == list(range(12))
    append(table(12, 8), OUT)
    assert sorted(ids(train)) == list(range(20))


@pytest.mark.slow
def test_each_epoch_reads_one_manifest_or_two_however_often_the_dataset_grew(gcs: Gcs) -> None:
    tfrecorder.convert(table(0, 6), OUT, **QUIET)
    append(table(6, 2), OUT)
    train = tfrecorder.batches(OUT, "TRAIN", follow=True, **IDS)
    counts = []
    for _ in range(2):
        gcs.forget_requests()
        ids(train)
        counts.append((gcs.count("list"), gcs.count("download", "*/commits/*")))
        append(table(8, 2), OUT)
    gcs.forget_requests()
    ids(train)
    counts.append((gcs.count("list"), gcs.count("download", "*/commits/*")))
    # A second time where it grew: was the generation before taken back?
    assert [lists for lists, _ in counts] == [1, 1, 1]
    assert max(manifests for _, manifests in counts) <= 2
