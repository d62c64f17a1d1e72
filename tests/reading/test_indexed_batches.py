"""`batches`: NumPy batches from any position on, every record once."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.kind_cases import EVERY_KIND, convert, every_kind
from helpers.object_cases import in_pixels
from helpers.reading_cases import assert_alike, convert_photos, damaged
from hypothesis import HealthCheck, given, settings, strategies as st
from support import wait_for
from torture.trainings import IDS, Run, finish

import tfrecorder
from tfrecorder import Records, batches
from tfrecorder.errors import DatasetError, OptionError


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


PLAIN = {"decode": False, "targets": ["label"]}


@pytest.fixture(scope="module")
def hashes(out: str) -> list[int]:
    """What sets each record apart from the others, by its number."""
    found = [hash(data) for data, _ in Records(out, "TRAIN", **PLAIN)]
    assert len(set(found)) == 36
    return found


def seen(loop: Any, most: int | None = None) -> list[int]:
    """The records that a loop takes, of so many batches."""
    found = []
    for number, batch in enumerate(loop, 1):
        found += batch.tolist()
        if number == most:
            break
    return found


def test_what_is_kept_of_a_batch_stays_as_it_is(out: str) -> None:
    """The memory of a batch is only used again once nobody has any part of it."""
    kept, expected = [], []
    for number, (images, _) in enumerate(batches(out, "TRAIN", batch_size=2, image_size=20)):
        part = [images[1], images.reshape(-1)[::7], memoryview(images)][number % 3]
        kept.append(part)
        expected.append(np.array(part))
        del images, part
    assert len(kept) == 18
    for ours, theirs in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    "pixels",
    [{}, {"dtype": "float32"}, {"dtype": "float16", "mean": "imagenet", "std": "imagenet"}],
)
def test_batches_hold_the_elements_of_records(
    out: str, layout: str, pixels: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"image_size": (40, 50), **pixels}
    records = Records(out, "TRAIN", **options)
    loop = batches(out, "TRAIN", batch_size=10, shuffle=False, layout=layout, **options)
    assert len(loop) == 4
    at = 0
    for images, labels in loop:
        assert images.flags.writeable
        assert images.flags.c_contiguous
        assert labels.dtype == np.int64
        for image, label in zip(images, labels, strict=True):
            image = image.transpose(1, 2, 0) if layout == "NCHW" else image
            np.testing.assert_array_equal(image, records[at][0])
            assert label == records[at][1]
            at += 1
    assert at == 36


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"inputs": ["left_uri"], "targets": ["bi", "topics", "matrix", "lit"], "image_size": 30},
        {"inputs": ["caption", "place"], "targets": ["angle"]},
        {"inputs": ["left_uri", "right_uri"], "targets": ["blob"], "decode": False},
    ],
)
def test_batches_are_those_of_load(tmp_path: Path, options: dict[str, Any]) -> None:
    every = convert(every_kind(), tmp_path / "every", schema=EVERY_KIND, shuffle=False)
    options = {"batch_size": 3, "shuffle": False} | options
    theirs = tfrecorder.load(every, "TRAIN", **options).as_numpy_iterator()
    for pair in zip(batches(every, "TRAIN", **options), theirs, strict=True):
        assert_alike(*pair, pixels=8)


@pytest.mark.slow
def test_boxes_are_padded(tmp_path: Path) -> None:
    boxes = convert(in_pixels(), tmp_path / "boxes", shuffle=False, num_shards=1)
    options: dict[str, Any] = {"batch_size": 3, "shuffle": False, "image_size": 32, "max_boxes": 2}
    theirs = tfrecorder.load(boxes, "TRAIN", **options).as_numpy_iterator()
    for (_, found), (_, expected) in zip(batches(boxes, "TRAIN", **options), theirs, strict=True):
        assert_alike(found, expected)
    with pytest.raises(OptionError, match="lists of different lengths; give `max_boxes"):
        batches(boxes, "TRAIN", batch_size=3, image_size=32)


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", ["exact", "blocks"])
def test_each_epoch_has_another_order_of_all_records(
    out: str, hashes: list[int], shuffle: str
) -> None:
    loop = batches(out, "TRAIN", batch_size=5, seed=7, shuffle=shuffle, **IDS)
    first, second = seen(loop), seen(loop)
    assert sorted(first) == sorted(second) == sorted(hashes)
    assert first != second != hashes
    assert loop.epoch == 2
    again = batches(out, "TRAIN", batch_size=9, seed=7, shuffle=shuffle, num_threads=1, **IDS)
    assert [seen(again), seen(again)] == [first, second]
    assert seen(batches(out, "TRAIN", seed=8, shuffle=shuffle, **IDS)) != first


def test_only_train_is_shuffled_by_default(out: str) -> None:
    expected = [hash(data) for data, _ in Records(out, "TEST", **PLAIN)]
    assert seen(batches(out, "TEST", batch_size=3, **IDS)) == expected
    assert seen(batches(out, "TEST", batch_size=3, shuffle=True, **IDS)) != expected


run = st.builds(Run, st.integers(1, 7), st.integers(1, 4), st.integers(0, 6))


@pytest.mark.slow
@given(runs=st.lists(run, min_size=1, max_size=4), drop=st.booleans(), seed=st.integers(0, 99))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_run_that_is_killed_goes_on_with_any_batch_size_and_world(
    out: str, runs: list[Run], drop: bool, seed: int
) -> None:
    finish(out, 36, runs, drop, seed)


def test_what_remains_is_what_is_left_of_the_epoch(out: str) -> None:
    loop = batches(out, "TRAIN", batch_size=5, seed=1, **IDS)
    assert len(loop) == 8
    taken = iter(loop)
    for _ in range(3):
        next(taken)
    assert (len(loop), loop.remaining) == (8, 5)
    state = loop.state_dict()
    other = batches(out, "TRAIN", batch_size=4, seed=1, **IDS)
    other.load_state_dict(state)
    assert (len(other), other.remaining) == (9, 6)
    assert len(list(other)) == 6
    assert (len(other), other.remaining) == (9, 9), "of the next epoch"
    taken.close()
    assert len(list(loop)) == 8, "a loop begins an epoch"


def test_a_position_brings_its_seed_along(out: str) -> None:
    first = batches(out, "TRAIN", batch_size=5, image_size=30, augment=True)
    taken = iter(first)
    next(taken)
    other = batches(out, "TRAIN", batch_size=5, image_size=30, augment=True)
    other.load_state_dict(first.state_dict())
    for ours, theirs in zip(taken, other, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seed": 2}, "saved with `seed=1`, but this run has 2"),
        ({"shuffle": False, "seed": 1}, "give the shuffle that the run began with"),
        ({"split": "TEST", "seed": 1}, "the dataset that the run began with"),
    ],
)
def test_a_position_of_another_run_is_refused(out: str, given: dict[str, Any], words: str) -> None:
    state = batches(out, "TRAIN", seed=1, **IDS).state_dict()
    split = given.pop("split", "TRAIN")
    with pytest.raises(OptionError, match=words):
        batches(out, split, **given, **IDS).load_state_dict(state)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"shuffle": 100}, "shuffle=100: give True, False, 'exact' or 'blocks'"),
        ({"shard": (2, 2), "seed": 1}, "shard="),
        ({"layout": "HWCN"}, "layout="),
        ({"layout": "NCHW", "map_fn": print}, "`map_fn` gets images as NHWC"),
        ({"num_threads": 0}, "num_threads=0"),
        ({"image_size": None}, "differ in size and cannot share a batch"),
        ({"resize": "fit"}, "cannot share a batch"),
        ({"batchsize": 3}, "batch_size"),
    ],
)
def test_a_wrong_option_is_named(out: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        batches(out, "TRAIN", **{"image_size": 30} | options)


def test_an_error_is_raised_where_its_batch_is_taken(out: str, tmp_path: Path) -> None:
    shard, offset, number = damaged(out, tmp_path, 300)
    loop = iter(batches(shard.parent, "TRAIN", batch_size=2, image_size=30, shuffle=False))
    for _ in range(number // 2):
        next(loop)
    with pytest.raises(DatasetError, match=f"{shard.name} is damaged: .* byte {offset}, "):
        next(loop)


def test_an_error_of_map_fn_is_itself(out: str) -> None:
    def fails(image: Any, label: Any) -> Any:
        raise ValueError("not mine")

    with pytest.raises(ValueError, match=r"^not mine$"):
        next(iter(batches(out, "TRAIN", batch_size=2, map_fn=fails)))
    with pytest.raises(OptionError, match="`map_fn` returned arrays of the shapes"):
        next(iter(batches(out, "TRAIN", batch_size=9, map_fn=lambda image, label: image)))


def _threads() -> int:
    return sum(thread.name == "tfrecorder-batches" for thread in threading.enumerate())


def test_leaving_the_loop_ends_its_threads(out: str) -> None:
    for _ in batches(out, "TRAIN", batch_size=2, image_size=30, num_threads=3):
        assert _threads() == 3
        break
    wait_for(lambda: _threads() == 0)


def test_a_loop_that_is_left_leaves_its_memory_at_once(out: str) -> None:
    """Not when Python next looks for what refers to itself, which may be epochs later."""

    def under_way() -> int:
        return sum(isinstance(one, Future) for one in gc.get_objects())

    loop = batches(out, "TRAIN", batch_size=6, image_size=300, num_threads=2)
    gc.collect()
    gc.disable()
    try:
        before = under_way()
        for _ in range(4):
            for _batch in loop:
                break
        assert under_way() == before
    finally:
        gc.enable()


@pytest.mark.slow
def test_memory_does_not_grow(out: str) -> None:
    """By what the process holds after each epoch, without Python's collector of cycles.

    Other tests of the process leave some noise; a batch lost in each epoch would be more.
    """
    loop = batches(out, "TRAIN", batch_size=6, image_size=300, seed=1, num_threads=2)
    gc.collect()
    gc.disable()
    try:
        used = []
        for _ in range(24):
            for images, _labels in loop:
                del images
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            used.append(pages * os.sysconf("SC_PAGE_SIZE"))
    finally:
        gc.enable()
    of_an_epoch = 36 * 300 * 300 * 3
    assert used[-1] - used[3] < 2 * of_an_epoch
