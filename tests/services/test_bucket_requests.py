"""What an operation asks of a bucket, counted for the dataset's own files."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pandas as pd
import pytest
from helpers.streaming_cases import TO_ITS_END, Numbered
from support import PHOTOS

import tfrecorder
from services.gcs.control import Gcs
from tfrecorder.errors import ImagesUnreachableError

pytest_plugins = ["services.gcs.fixtures"]

OUT = "gs://bkt/out"
IMAGES = "gs://bkt/in"
SHARDS = 24

#: The files that say what a dataset holds, and their looks at most: at the start of an operation,
#: after its claim, and before its commit.
COMMIT = "bkt/out/dataset_info.json"
LOOKS = 3


def asked(gcs: Gcs) -> int:
    """The requests about the dataset's files since the last call.

    Without notes of progress, which go up every few seconds, and looks at the bucket itself, which
    the client makes in the background.
    """
    counts = Counter[str]()
    for operation, target, *_, count in gcs.requests():
        if target.startswith("bkt/out") and "/progress/" not in target:
            counts[operation] += count
    gcs.forget_requests()
    return counts.total()


def rows(first: int, count: int) -> pd.DataFrame:
    """Rows of which no image is there twice in the table."""
    numbers = range(first, first + count)
    uris = [f"{IMAGES}/{number}.jpg" for number in numbers]
    labels = itertools.islice(itertools.cycle("ab"), count)
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": [*labels]})


@pytest.fixture
def dataset(gcs: Gcs) -> pd.DataFrame:
    """The rows of a dataset of many small shards on a bucket."""
    for number in range(60):
        gcs.put(f"{IMAGES}/{number}.jpg", PHOTOS[number % len(PHOTOS)].read_bytes())
    table = rows(0, 2 * SHARDS)
    tfrecorder.convert(table, OUT, num_shards=SHARDS, shuffle=False, progress=False)
    return table


def test_missing_images_are_compared_with_one_listing_of_their_folder(gcs: Gcs) -> None:
    for number in range(3):
        gcs.put(f"{IMAGES}/{number}.JPG", PHOTOS[number].read_bytes())
    uris = [f"{IMAGES}/{number}.jpg" for number in range(3)]
    with pytest.raises(ImagesUnreachableError) as caught:
        tfrecorder.convert(pd.DataFrame({"image_uri": uris}), OUT, progress=False)
    for number in range(3):
        says = f"'{IMAGES}/{number}.JPG' is there, in other upper and lower case"
        assert says in str(caught.value)
    assert gcs.count("list", "bkt/in*") == 1, gcs.requests()


def test_a_conversion_looks_three_times(gcs: Gcs, dataset: pd.DataFrame) -> None:
    # One look more than others: without a claim on a bucket, planning may take hours.
    assert gcs.count("download", COMMIT) <= LOOKS + 1
    # Of each shard: its rows, four uploads, its table when copies are counted, its done-record.
    assert asked(gcs) <= 7 * SHARDS + 60


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_update_of_many_shards(gcs: Gcs, dataset: pd.DataFrame) -> None:
    gcs.forget_requests()
    changes = tfrecorder.update(dataset.assign(label="b"), OUT, progress=False).changes
    assert changes is not None
    assert changes.shards == SHARDS
    assert gcs.count("download", COMMIT) <= LOOKS
    # Of each shard: its table, its bytes and the plan's rows, four uploads, the move to its place,
    # three moves out of the way, its done-record.
    assert asked(gcs) <= 16 * SHARDS + 70
    assert tfrecorder.verify(OUT, progress=False).ok
    assert set(tfrecorder.to_frame(OUT)["label"]) == {"b"}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_append(gcs: Gcs, dataset: pd.DataFrame) -> None:
    gcs.forget_requests()
    assert tfrecorder.append(rows(48, 6), OUT, duplicates="keep", progress=False).records == 6
    assert gcs.count("download", COMMIT) <= LOOKS
    assert asked(gcs) <= SHARDS + 70  # of each old shard its table, to count copies


class InEachSplit(Numbered):
    """Rows whose split is stated: a hash of their paths would count other shards in each clone."""

    def _row(self, number: int) -> Any:
        row = super()._row(number)
        split = ("TRAIN", "VALIDATION", "TEST")[number % 3]
        return {**row, "split": split} if isinstance(row, dict) else row


def test_each_batch_of_a_stream(gcs: Gcs, dataset: pd.DataFrame) -> None:
    counts = []
    for batches in (1, 3):
        gcs.forget_requests()
        out = f"{OUT}/{batches}"
        tfrecorder.stream(InEachSplit(10 * batches), out, every_rows=10, **TO_ITS_END)
        counts.append(gcs.count("download", f"{out[5:]}/dataset_info.json"))
        counts.append(asked(gcs))
    one_look, one, three_looks, three = counts
    assert (three_looks - one_look) / 2 <= LOOKS - 1
    assert (three - one) / 2 <= 97
