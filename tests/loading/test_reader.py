"""`load` gives back exactly what was converted, in the form and order asked for."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from helpers.reading_cases import (
    SAMPLES,
    convert_images,
    convert_photos,
    ids,
    photos,
    pillow_pixels,
)

import tfrecorder
from tfrecorder import info


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


def test_gives_one_dataset_a_split(out: str) -> None:
    loaded = tfrecorder.load(out)
    assert {name: len(dataset) for name, dataset in loaded.items()} == {
        "TRAIN": 36,
        "VALIDATION": 8,
        "TEST": 8,
    }


@pytest.mark.parametrize("split", ["TRAIN", "VALIDATION", "TEST"])
def test_every_image_and_label_comes_back_exactly(out: str, split: str) -> None:
    rows = photos(split)
    names = sorted(set(rows["label"]))
    stored = tfrecorder.load(out, split, decode=False, inputs="all")
    by_uri = {row["image/filename"].numpy().decode(): row for row in stored}
    assert sorted(by_uri) == sorted(rows["image_uri"])
    for uri, label in zip(rows["image_uri"], rows["label"], strict=True):
        assert by_uri[uri]["image/encoded"].numpy() == (SAMPLES / uri).read_bytes()
        assert by_uri[uri]["image/class/label"] == names.index(label)
        assert by_uri[uri]["image/class/text"].numpy().decode() == label


@pytest.mark.parametrize("split", ["TRAIN", "VALIDATION"])
def test_decoded_pixels_are_pillows(out: str, split: str) -> None:
    encoded = tfrecorder.load(out, split, decode=False, shuffle=False)
    decoded = tfrecorder.load(out, split, shuffle=False)
    for (data, stored_label), (pixels, label) in zip(encoded, decoded, strict=True):
        np.testing.assert_array_equal(pixels, pillow_pixels(data.numpy()))
        assert label == stored_label


def test_kinds_of_images_decode_as_pillow_decodes_them(tmp_path: Path) -> None:
    names = ["brick_gray.jpg", "cat_rgb.png", "cat_orientation_6.jpg"]
    files = {name: (SAMPLES / "mixed" / name).read_bytes() for name in names}
    out = convert_images(tmp_path / "out", files)
    loaded = tfrecorder.load(out, "TRAIN", shuffle=False)
    for data, (pixels, _) in zip(files.values(), loaded, strict=True):
        expected = pillow_pixels(data)
        expected = np.stack([expected] * 3, -1) if expected.ndim == 2 else expected
        np.testing.assert_array_equal(pixels, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "channels"), [("brick_gray.jpg", 1), ("coffee_transparent.png", 4)]
)
def test_channels_are_those_of_the_metadata(tmp_path: Path, name: str, channels: int) -> None:
    data = (SAMPLES / "mixed" / name).read_bytes()
    out = convert_images(tmp_path / "out", {name: data})
    pixels, _ = next(iter(tfrecorder.load(out, "TRAIN")))
    assert pixels.shape[-1] == channels
    np.testing.assert_array_equal(pixels, pillow_pixels(data).reshape(pixels.shape))
    small, _ = next(iter(tfrecorder.load(out, "TRAIN", image_size=16, augment=True)))
    assert small.shape == (16, 16, channels)


def test_images_of_one_size_batch_as_they_are(tmp_path: Path) -> None:
    data = (SAMPLES / "mixed/cat_rgb.png").read_bytes()
    out = convert_images(tmp_path / "out", {f"{n}.png": data for n in range(5)})
    for batch in (None, 2):
        dataset = tfrecorder.load(out, "TRAIN", batch_size=batch)
        assert dataset.element_spec[0].shape[-3:] == pillow_pixels(data).shape
        images = np.concatenate([np.reshape(x, (-1, *x.shape[-3:])) for x, _ in dataset])
        np.testing.assert_array_equal(images, np.stack([pillow_pixels(data)] * 5))


def test_unlabelled_images_have_label_minus_one(tmp_path: Path) -> None:
    frame = photos("TRAIN")[["split", "image_uri"]].head(4)
    frame["image_uri"] = str(SAMPLES) + "/" + frame["image_uri"]
    tfrecorder.convert(frame, tmp_path / "out", progress=False)
    labels = [int(label) for _, label in tfrecorder.load(tmp_path / "out", "TRAIN")]
    assert labels == [-1] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "drop", "more"),
    [
        (batch, drop, more)
        for (batch, drop), more in itertools.product(
            [(None, False), (5, False), (5, True)],
            [
                {"shuffle": False},
                {"cache": True},
                {"augment": True},
                {"decode": False, "image_size": None},
                {"shard": (1, 5)},
                {"seed": 1, "start": (3, 0)},
                {"map_fn": lambda image, label: (image, label + 1)},
                {"inputs": "all"},
            ],
        )
    ]
    # Batches that hold all records or more; starts amid an epoch.
    + [(36, False, {"seed": 1}), (36, True, {"seed": 1}), (50, False, {"seed": 1})]
    + [(5, drop, {"seed": 1, "start": (0, start)}) for drop in (False, True) for start in (3, 7)],
)
def test_length_is_known_and_right(
    out: str, batch: int | None, drop: bool, more: dict[str, object]
) -> None:
    options = {"image_size": 8, "batch_size": batch, "drop_remainder": drop} | more
    dataset = tfrecorder.load(out, "TRAIN", **options)
    for _ in range(2):
        assert sum(1 for _ in dataset) == len(dataset)


@pytest.mark.slow
def test_the_short_batch_comes_last(out: str) -> None:
    for _ in range(5):
        train = tfrecorder.load(out, "TRAIN", batch_size=32, image_size=32)
        sizes = [len(labels) for _, labels in train]
        assert sizes == [32] * (len(sizes) - 1) + sizes[-1:]


def test_only_train_is_shuffled_and_anew_each_epoch(out: str) -> None:
    train = tfrecorder.load(out, "TRAIN", inputs="all")
    stored = ids(tfrecorder.load(out, "TRAIN", inputs="all", shuffle=False))
    first, second = ids(train), ids(train)
    assert sorted(first) == sorted(second) == sorted(stored)
    assert len({tuple(first), tuple(second), tuple(stored)}) == 3
    test = tfrecorder.load(out, "TEST", inputs="all")
    assert ids(test) == ids(test) == ids(tfrecorder.load(out, "TEST", inputs="all", seed=9))


def test_shuffle_takes_a_buffer_or_nothing(out: str) -> None:
    """With a buffer of one record only the shards change places."""
    stored = ids(tfrecorder.load(out, "TRAIN", inputs="all", shuffle=False))
    for buffer, mixed in ((1, False), (36, True)):
        order = ids(tfrecorder.load(out, "TRAIN", inputs="all", shuffle=buffer, seed=0))
        of_first_shard = [row for row in order if row in stored[:9]]
        assert (of_first_shard != stored[:9]) == mixed
        assert order != stored


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"cache": True}, {"augment": True}, {"shuffle": 7}])
def test_a_seed_gives_the_same_batches_on_every_run(out: str, more: dict[str, object]) -> None:
    def run(seed: int) -> list[np.ndarray]:
        dataset = tfrecorder.load(out, "TRAIN", batch_size=7, image_size=12, seed=seed, **more)
        return [images.numpy() for _ in range(2) for images, _ in dataset]

    one, same, other = run(4), run(4), run(5)
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert not np.array_equal(one[0], one[len(one) // 2]), "the second epoch repeats the first"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "count"), [("TRAIN", 1), ("TRAIN", 2), ("TRAIN", 3), ("TRAIN", 5), ("TEST", 8)]
)
def test_hosts_read_disjoint_and_complete_parts(out: str, split: str, count: int) -> None:
    """More hosts than records are refused: TEST has 8."""
    parts = [
        ids(tfrecorder.load(out, split, inputs="all", shard=(index, count)))
        for index in range(count)
    ]
    everything = ids(tfrecorder.load(out, split, inputs="all"))
    assert sorted(itertools.chain(*parts)) == sorted(everything)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    with pytest.raises(
        tfrecorder.errors.OptionError, match="8 records of TEST cannot give each of 9 processes"
    ):
        tfrecorder.load(out, "TEST", shard=(0, 9))


def test_cache_reads_the_shards_once(tmp_path: Path) -> None:
    out = convert_photos(tmp_path / "out")
    datasets = [
        tfrecorder.load(out, "TEST", cache=cache, inputs="all", image_size=9)
        for cache in (True, tmp_path / "cache")
    ]
    first = [ids(dataset) for dataset in datasets]
    for shard in Path(out).glob("test-*.tfrecord"):
        shard.write_bytes(b"\0" * shard.stat().st_size)
    assert [ids(dataset) for dataset in datasets] == first


def test_a_cache_of_other_options_is_not_taken(out: str, tmp_path: Path) -> None:
    for side in (9, 12):
        dataset = tfrecorder.load(out, "TEST", cache=tmp_path, image_size=side, batch_size=8)
        assert next(iter(dataset))[0].shape == (8, side, side, 3)


@pytest.mark.slow
def test_a_cache_of_an_earlier_conversion_is_not_taken(tmp_path: Path) -> None:
    """The labels change places: the files keep their names and sizes."""
    frame = photos("TRAIN")[["split", "image_uri"]].head(4)
    frame["image_uri"] = str(SAMPLES) + "/" + frame["image_uri"]
    out, cache = tmp_path / "out", tmp_path / "cache"
    for labels in (["a", "b", "a", "b"], ["b", "a", "b", "a"]):
        source = frame.assign(label=labels)
        tfrecorder.convert(source, out, progress=False, shuffle=False, overwrite=True)
        cached = tfrecorder.load(out, "TRAIN", cache=cache, image_size=8, shuffle=False)
        assert [int(label) for _, label in cached] == [int(label == "b") for label in labels]


def test_map_fn_gets_decoded_images_before_batching(out: str) -> None:
    def shape_of(image, label):  # type: ignore[no-untyped-def]
        return (image.shape.rank, image[0, 0, 0], label)

    dataset = tfrecorder.load(out, "TEST", batch_size=3, map_fn=shape_of)
    ranks = np.concatenate([rank for rank, _, _ in dataset])
    assert ranks.tolist() == [3] * 8


def test_features_are_all_that_is_stored(out: str) -> None:
    batch = next(iter(tfrecorder.load(out, "TEST", inputs="all", image_size=10, batch_size=8)))
    assert batch["image/encoded"].shape == (8, 10, 10, 3)
    assert batch["image/format"].numpy().tolist() == [b"jpeg"] * 8
    assert set(batch) == set(info(out).features)
