"""`load(shuffle="exact")`: the order of `batches` in tf.data."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from helpers.kind_cases import convert
from helpers.reading_cases import convert_photos, damaged, ids
from PIL import Image as Pictures
from support import slow_cases

import tfrecorder
from tfrecorder.errors import OptionError
from tfrecorder.schema import Boxes, Image, Mask, Number, Schema, Split

EDGES = ("xmin", "ymin", "xmax", "ymax")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


EXACT: dict[str, Any] = {"shuffle": "exact", "seed": 7}


def of_batches(out: str, **options: Any) -> list[list[int]]:
    """The source rows of each batch."""

    def one(features: dict[str, Any]) -> Any:
        return np.int64(features["image/source_id"])

    loop = tfrecorder.batches(out, "TRAIN", inputs="all", decode=False, map_fn=one, **options)
    return [batch.tolist() for batch in loop]


def of_load(out: str, **options: Any) -> list[list[int]]:
    dataset = tfrecorder.load(out, "TRAIN", inputs="all", decode=False, **options)
    found = [ids([batch]) for batch in dataset]
    assert len(dataset) == len(found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 5},
        {"batch_size": 5, "drop_remainder": True},
        {"batch_size": 4, "shard": (1, 3), "drop_remainder": True},
        {"batch_size": 4, "shard": (2, 4), "drop_remainder": False},
    ],
)
def test_the_sequence_is_that_of_batches(out: str, options: dict[str, Any]) -> None:
    expected = of_batches(out, **EXACT, **options)
    assert of_load(out, **EXACT, **options) == expected
    for step in (1, 3):
        assert of_load(out, start=(0, step), **EXACT, **options) == expected[step:]


@pytest.mark.slow
def test_each_iteration_is_the_next_epoch(out: str) -> None:
    dataset = tfrecorder.load(out, "TRAIN", inputs="all", decode=False, **EXACT)
    epochs = [ids(dataset) for _ in range(3)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    again = tfrecorder.load(out, "TRAIN", inputs="all", decode=False, start=(2, 0), **EXACT)
    assert ids(again) == ids(again) == epochs[2]


@pytest.mark.slow
def test_pixels_labels_and_random_parts_go_on_alike(out: str) -> None:
    options = {"batch_size": 6, "image_size": 40, "augment": True, **EXACT}
    whole = list(tfrecorder.load(out, "TRAIN", start=(1, 0), **options))
    part = list(tfrecorder.load(out, "TRAIN", start=(1, 4), **options))
    assert [images.shape for images, _ in whole] == [(6, 40, 40, 3)] * 6
    for ours, theirs in zip(part, whole[4:], strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images and masks of random pixels, with boxes: one pixel aside, they differ."""
    folder = tmp_path_factory.mktemp("noise")
    random = np.random.default_rng(0)
    rows = []
    for number in range(10):
        height, width = random.integers(50, 400, 2).tolist()
        image, mask = (str(folder / f"{number}.{name}.png") for name in ("image", "mask"))
        Pictures.fromarray(random.integers(0, 255, (height, width, 3), np.uint8)).save(image)
        Pictures.fromarray(random.integers(0, 9, (height, width), np.uint8)).save(mask)
        start, end = random.uniform(0, 0.5, (30, 2)), random.uniform(0.5, 1, (30, 2))
        edges = np.hstack([start, end]).T.tolist()
        rows.append(
            {"number": number, "image": image, "mask": mask, **dict(zip(EDGES, edges, strict=True))}
        )
    schema = Schema(
        split=Split(),
        image=Image(),
        mask=Mask(),
        number=Number(dtype="int64", target=True),
        boxes=Boxes(columns=EDGES, label=None),
    )
    frame = pd.DataFrame(rows).assign(split="TRAIN")
    return convert(frame, folder / "out", schema=schema, shuffle=False)


@pytest.mark.slow
@pytest.mark.parametrize("targets", [["mask", "number"], ["mask", "number", "boxes"]])
def test_one_seed_gives_every_reader_the_same_random_parts(noise: str, targets: list[str]) -> None:
    """Without boxes, `load` decodes a batch of small records at a time."""
    options = {"image_size": (37, 52), "augment": True, "seed": 7, "antialias": False}
    options |= {"targets": targets, **({"max_boxes": 30} if "boxes" in targets else {})}
    records = tfrecorder.Records(noise, "TRAIN", **options)
    arrays = tfrecorder.batches(noise, "TRAIN", batch_size=4, **options)
    graph = tfrecorder.load(noise, "TRAIN", batch_size=4, shuffle="exact", **options)
    crops = []
    for epoch in range(2):
        records.set_epoch(epoch)
        pairs = list(zip(arrays, graph.as_numpy_iterator(), strict=True))
        for (images, ours), (others, theirs) in pairs:
            tf.nest.map_structure(np.testing.assert_allclose, ours, theirs)
            assert np.abs(images.astype(int) - others).max() <= 1
            for place, number in enumerate(ours["number"].tolist()):
                image, target = records[number]
                np.testing.assert_array_equal(image, images[place])
                np.testing.assert_array_equal(target["mask"], ours["mask"][place])
        crops.append(np.concatenate([ours["mask"] for (_, ours), _ in pairs]))
    assert not np.array_equal(*crops)


def test_a_damaged_record_is_named(out: str, tmp_path: Any) -> None:
    shard, offset, _ = damaged(out, tmp_path, 300)
    with pytest.raises(tf.errors.OpError, match=f"{shard.name} is damaged: .* byte {offset}, "):
        list(tfrecorder.load(shard.parent, "TRAIN", **EXACT))


def test_a_cache_and_an_exact_order_do_not_go_together(out: str) -> None:
    with pytest.raises(OptionError, match="a cache keeps the records in one order"):
        tfrecorder.load(out, "TRAIN", cache=True, **EXACT)
    with pytest.raises(OptionError, match="shuffle='exakt': give True, False, 'exact'"):
        tfrecorder.load(out, "TRAIN", shuffle="exakt")


@pytest.mark.parametrize(
    "options",
    [
        EXACT,
        *slow_cases({}, {"where": {"label": ["cat", "coffee"]}}, {"balance": "label", "seed": 1}),
    ],
    ids=["exact", "in files' order", "where", "balance"],
)
def test_what_was_loaded_is_let_go_with_its_dataset(out: str, options: dict[str, Any]) -> None:
    def open_files() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def read() -> None:
        assert list(tfrecorder.load(out, "TRAIN", image_size=8, **options).take(3))

    read()
    before = open_files()
    for _ in range(4):
        read()
    assert open_files() <= before


def test_what_is_made_of_a_dataset_keeps_it(out: str) -> None:
    dataset = tfrecorder.load(out, "TRAIN", image_size=8, **EXACT).map(lambda pixels, label: label)
    iterator = iter(dataset.batch(3).repeat(2))
    del dataset
    gc.collect()
    assert len(list(iterator)) > 1
