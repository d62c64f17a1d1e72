"""Records by their number from a bucket: ranges, joined where they touch."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.reading_cases import blocks_of, convert_photos

from tfrecorder import Records, batches
from tfrecorder.errors import DatasetError

pytest_plugins = ["services.gcs.fixtures"]


@pytest.fixture
def bucket(gcs: Any, tmp_path: Path) -> tuple[str, Records]:
    """The photographs in a bucket, and the same records on a disk."""
    out = convert_photos(tmp_path / "out", num_shards=2)
    gcs.create_bucket("photos")
    gcs.put_folder("gs://photos/out", Path(out))
    return "gs://photos/out", Records(out, "TRAIN", inputs="all", decode=False)


def test_records_of_a_bucket_are_those_of_the_disk(bucket: tuple[str, Records]) -> None:
    uri, local = bucket
    records = Records(uri, "TRAIN", inputs="all", decode=False)
    assert repr(records) == repr(local)
    assert records[[30, 2, 17, 18, 2]] == local[[30, 2, 17, 18, 2]]
    assert pickle.loads(pickle.dumps(records))[7] == local[7]
    assert list(records) == list(local)


def test_neighbours_are_read_by_one_request(gcs: Any, bucket: tuple[str, Records]) -> None:
    uri, local = bucket
    counts = []
    for numbers in ([9], [11, 9, 10, 12]):
        records = Records(uri, "TRAIN", inputs="all", decode=False)
        gcs.forget_requests()
        assert records[numbers] == local[numbers]
        counts.append(gcs.count("download", "*.tfrecord"))
    assert counts == [1, 1]


@pytest.mark.slow
def test_batches_of_a_bucket(
    gcs: Any, bucket: tuple[str, Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks_of(monkeypatch, 30_000)  # three photographs
    uri, local = bucket
    options: dict[str, Any] = {"batch_size": 7, "image_size": 30, "seed": 3, "shuffle": "blocks"}
    remote = list(batches(uri, "TRAIN", **options))
    assert sum(len(images) for images, _ in remote) == 36
    again = batches(uri, "TRAIN", num_threads=1, **options)
    for ours, theirs in zip(remote, again, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
    ids = {"inputs": "all", "decode": False, "map_fn": lambda one: one["image/source_id"]}
    loop = batches(uri, "TRAIN", batch_size=5, seed=3, shuffle="blocks", **ids)
    gcs.forget_requests()
    found = np.concatenate(list(loop)).tolist()
    requests = gcs.count("download", "*.tfrecord")
    assert 12 <= requests <= 24, "one for each block of three, of this epoch and of the next"
    assert sorted(found) == sorted(one["image/source_id"] for one in local)
    taken = iter(loop)
    next(taken)
    taken.close()
    assert len(np.concatenate(list(loop))) == 36, "a loop begins an epoch"


def test_a_bucket_without_the_dataset_is_named(gcs: Any) -> None:
    gcs.create_bucket("empty")
    with pytest.raises(DatasetError, match="gs://empty/out"):
        Records("gs://empty/out", "TRAIN")
