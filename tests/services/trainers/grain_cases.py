"""`Records` as Grain's source, in a process without TensorFlow and Beam.

tests/services/test_trainers.py runs this file by a pytest of its own. The dataset stands in
TFRECORDER_DATASET: 36 photographs in TRAIN.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import grain
import numpy as np
import pytest
from absl import flags

from tfrecorder import Records

OUT = os.environ["TFRECORDER_DATASET"]


def photographs(**options: Any) -> Records:
    return Records(OUT, "TRAIN", **{"image_size": 40} | options)


def test_records_are_a_source() -> None:
    assert isinstance(photographs(), grain.sources.RandomAccessDataSource)
    assert "tensorflow" not in sys.modules


def chain(records: Records) -> Any:
    return grain.MapDataset.source(records).seed(3).shuffle().to_iter_dataset().batch(5)


def test_a_chain_of_grain_reads_every_record_once() -> None:
    records = photographs()
    found = list(chain(records))
    assert [len(labels) for _, labels in found] == [5] * 7 + [1]
    assert found[0][0].shape == (5, 40, 40, 3)
    sums = [int(image.sum()) for images, _ in found for image in images]
    assert sorted(sums) == sorted(int(image.sum()) for image, _ in records)


def test_a_chain_goes_on_from_its_state() -> None:
    loop = iter(chain(photographs()))
    for _ in range(3):
        next(loop)
    state = pickle.loads(pickle.dumps(loop.get_state()))
    rest = [labels for _, labels in loop]
    other = iter(chain(photographs()))
    other.set_state(state)
    for pair in zip([labels for _, labels in other], rest, strict=True):
        np.testing.assert_array_equal(*pair)


def loader(records: Records, workers: int) -> Any:
    return grain.DataLoader(
        data_source=records,
        sampler=grain.samplers.IndexSampler(len(records), seed=3, shuffle=True, num_epochs=1),
        operations=[grain.transforms.Batch(5)],
        worker_count=workers,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_grain_reads_every_record_once(workers: int) -> None:
    """In this process, and in two that are spawned, for which absl must have seen its flags."""
    flags.FLAGS.mark_as_parsed()
    records = photographs()
    sums = [int(image.sum()) for images, _ in loader(records, workers) for image in images]
    assert sorted(sums) == sorted(int(image.sum()) for image, _ in records)


def test_a_loader_checks_by_the_words_of_the_records_that_a_state_is_its_own() -> None:
    loop = iter(loader(photographs(), 0))
    next(loop)
    state = loop.get_state()
    again = iter(loader(photographs(), 0))
    again.set_state(state)
    np.testing.assert_array_equal(next(again)[1], next(loop)[1])
    with pytest.raises(ValueError, match="source"):
        iter(loader(photographs(image_size=50), 0)).set_state(state)
