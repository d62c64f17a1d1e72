"""Records of other tools whose keys we do not know: they open, and the user names their keys."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers.foreign_cases import BOXES, PHOTOS, alike, both, detection, image, write
from helpers.reading_cases import pillow_pixels
from support import invoke

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError

DATA = [path.read_bytes() for path in PHOTOS]
EMBEDDINGS = np.random.default_rng(0).random((5, 16), np.float32)


def renamed(records: list[dict[str, Any]], old: str, new: str) -> list[dict[str, Any]]:
    return [{new if key == old else key: one[key] for key in one} for one in records]


#: By name: records whose keys a reader cannot guess, and a pattern of the error.
UNKNOWN = {
    "img": ([{"img": data, "label": 1} for data in DATA[:3]], "img holds images.*image='img'"),
    "two": (
        [{"left": DATA[0], "right": DATA[1], "label": 1}],
        "left holds images.*right holds images",
    ),
    "a list of images": ([{"image/encoded": DATA[:2]}] * 2, "image/encoded holds 2 values"),
    "pixels as numbers": (
        [{"image": [0.5] * 12, "label": 1}] * 2,
        "image holds numbers, not encoded images",
    ),
    "a class under another key": (
        [image(0) | {"image/class/id": 1}],
        "image/class/id may be the class; if it is, give `label='image/class/id'`",
    ),
    "boxes without an image": (
        [{key: one[key] for key in one if key != "image/encoded"} for one in detection(masks=True)],
        "image/object/bbox/xmin belongs to an image",
    ),
    "a mask alone": (
        [{"image/segmentation/class/encoded": b"\x89PNG\r\n\x1a\n"}],
        "encoded belongs to an image",
    ),
    "values of two types": ([{"a": 1}, {"a": 1.5}], "a holds float in some records and int64 in"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_looks_reads_every_key_and_what_trains_asks(name: str, tmp_path: Path) -> None:
    records, words = UNKNOWN[name]
    path = write(tmp_path / "train.tfrecord", records)
    info = tfrecorder.info(tmp_path)
    assert re.search(words, " ".join(sorted(info.unread.values())))
    assert info.records == len(records)
    assert len(tfrecorder.inspect(tmp_path)) == len(records)
    assert str(tfrecorder.preview(tmp_path, progress=False))
    assert len(tfrecorder.to_frame(tmp_path, images="bytes")) == len(records)
    options: dict[str, Any] = {"batch_size": 1, "image_size": 8}
    read: dict[str, Callable[[], Any]] = {
        "load": lambda: tfrecorder.load(tmp_path, "TRAIN"),
        "Records": lambda: tfrecorder.Records(tmp_path, "TRAIN"),
        "batches": lambda: tfrecorder.batches(tmp_path, "TRAIN", **options),
    }
    for one in read.values():
        with pytest.raises(DatasetError, match=re.escape(str(path))):
            one()
    if name != "values of two types":
        for loaded, found in both(tmp_path, inputs="all"):
            alike(loaded, found)
            assert set(loaded) == set(info.features)


def test_numbers_text_and_embeddings_are_elements_without_an_image(tmp_path: Path) -> None:
    records = [
        {"age": 1.5 + n, "emb": EMBEDDINGS[n], "ids": [n] * 4, "name": f"x{n}", "label": n % 2}
        for n in range(5)
    ]
    write(tmp_path / "train.tfrecord", records)
    columns = tfrecorder.info(tmp_path).columns
    assert [columns[name].shape for name in ("age", "emb", "ids", "name")] == [(), (16,), (4,), ()]
    for n, (loaded, found) in enumerate(both(tmp_path)):
        alike(loaded, found)
        values, label = found
        assert (values["name"], label) == (f"x{n}".encode(), n % 2)
        np.testing.assert_array_equal(values["emb"], EMBEDDINGS[n])
    ((values, labels), *_) = tfrecorder.batches(tmp_path, "TRAIN", batch_size=5, shuffle=False)
    np.testing.assert_array_equal(values["emb"], EMBEDDINGS)
    assert labels.tolist() == [0, 1, 0, 1, 0]
    ((loaded, _),) = tfrecorder.load(tmp_path, "TRAIN", batch_size=5, shuffle=False)
    np.testing.assert_array_equal(loaded["emb"], EMBEDDINGS)


@pytest.mark.parametrize(
    ("records", "keys", "label"),
    [
        (UNKNOWN["img"][0], {"image": "img"}, 1),
        (UNKNOWN["two"][0], {"image": "left"}, 1),
        (UNKNOWN["a class under another key"][0], {"label": "image/class/id"}, 1),
        ([{"img": DATA[0], "y": 2.5}], {"image": "img", "label": "y"}, 2.5),
        (
            [image(0) | {"image/class/label": 1, "image/class/id": 7}],
            {"label": "image/class/id"},
            7,
        ),
    ],
    ids=["img", "left", "class/id", "a number", "in place of the usual one"],
)
def test_named_keys_are_read_by_every_reader(
    records: list[dict[str, Any]], keys: dict[str, str], label: float, tmp_path: Path
) -> None:
    write(tmp_path / "train.tfrecord", records)
    pixels = pillow_pixels(DATA[0])
    ((loaded, found), *_) = both(tmp_path, **keys)
    alike(loaded, found)
    np.testing.assert_array_equal(found[0], pixels)
    assert found[1] == label
    options: dict[str, Any] = {"batch_size": 1, "image_size": 8, "shuffle": False}
    ((images, labels), *_) = tfrecorder.batches(tmp_path, "TRAIN", **options, **keys)
    assert (images.shape, labels.tolist()) == ((1, 8, 8, 3), [label])
    info = tfrecorder.info(tmp_path, **keys)
    assert not info.unread
    assert "image" in info.features.values()
    assert tfrecorder.inspect(tmp_path, **keys)["image_bytes"][0] == len(DATA[0])
    assert tfrecorder.preview(tmp_path, progress=False, **keys).undecodable == 0
    frame = tfrecorder.to_frame(tmp_path, images="bytes", **keys)
    assert DATA[0] in frame.iloc[0].tolist()


@pytest.mark.slow
def test_boxes_are_placed_on_the_named_image(tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", renamed(detection("pixel"), "image/encoded", "img"))
    for n, (loaded, found) in enumerate(both(tmp_path, image="img")):
        alike(loaded, found)
        np.testing.assert_allclose(found[1]["boxes"], np.reshape(BOXES[n], (-1, 4)), atol=1e-5)


def test_a_wrong_name_is_answered_with_the_file_and_the_nearest_key(
    tmp_path: Path, dataset: Path
) -> None:
    path = write(tmp_path / "train.tfrecord", [{"image_raw": DATA[0], "name": "x"}])
    for wrong in ("imge_raw", "", 3):
        with pytest.raises(
            DatasetError, match=rf"{path} has no key {wrong!r} for `image`.*image_r"
        ):
            tfrecorder.info(tmp_path, image=wrong)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=r"name is .*not one integer.*targets="):
        tfrecorder.load(tmp_path, "TRAIN", image="image_raw", label="name")
    for read in (tfrecorder.info, tfrecorder.inspect, tfrecorder.to_frame):
        with pytest.raises(OptionError, match="image='x': it is for records of other tools"):
            read(dataset, image="x")


def test_the_command_line_names_keys_too(tmp_path: Path) -> None:
    write(tmp_path / "in/train.tfrecord", UNKNOWN["img"][0])

    def run(*arguments: str) -> tuple[int, str]:
        given = [arguments[0], str(tmp_path / "in"), *arguments[1:]]
        result = invoke(*given)
        return result.exit_code, result.output

    assert "if it is the image to read, give --image img" in run("info")[1]
    assert "images: sizes vary" in run("info", "--image", "img", "--label", "label")[1]
    assert str(len(DATA[0])) in run("inspect", "--image", "img")[1]
    assert run("preview", "--image", "img")[0] == 0
    code, words = run("inspect", "--image", "image")
    assert (code, words.count("\n")) == (1, 1)
    assert "has no key 'image' for --image;" in words


def test_inspect_writes_images_under_any_key(tmp_path: Path) -> None:
    write(tmp_path / "in/train.tfrecord", UNKNOWN["two"][0])
    table = tfrecorder.inspect(tmp_path / "in", output_dir=tmp_path / "look")
    assert {"left", "right"}.isdisjoint(table.columns)
    written = {path.read_bytes() for path in (tmp_path / "look").glob("*.jpg")}
    assert written == set(DATA[:2])


BROKEN = {"words": b"not an image", "nothing": b"", "a half": DATA[2][:3000], "a page": b"<html>"}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("options", [{}, {"batch_size": 2, "image_size": 9}, {"shuffle": "exact"}])
def test_load_names_the_file_of_an_image_that_does_not_decode(
    broken: str, options: dict[str, Any], tmp_path: Path
) -> None:
    write(tmp_path / "train-00000-of-00002", [image(0)] * 2)
    record = image(2) | {"image/encoded": BROKEN[broken]}
    path = write(tmp_path / "train-00001-of-00002", [image(1), record])
    start = 16 + len(tf.data.TFRecordDataset(str(path)).as_numpy_iterator().next())
    words = rf"{path}: the record at byte {start} is as it was written, .* Write the file again"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        list(tfrecorder.load(tmp_path, "TRAIN", seed=1, **options))
    assert len(list(tfrecorder.load(tmp_path, "TRAIN", decode=False))) == 4


def test_no_remedy_is_a_command_that_refuses(tmp_path: Path) -> None:
    path = write(tmp_path / "train.tfrecord", [image(0) | {"image/encoded": b"not an image"}])
    for read in (tfrecorder.Records, tfrecorder.batches):
        with pytest.raises(DatasetError, match=f"{path}: .* Write the file again") as raised:
            list(read(tmp_path, "TRAIN", image_size=9))
        assert not re.search("verify|repair", str(raised.value))


def test_images_with_an_unusual_end_are_read(tmp_path: Path) -> None:
    """As cameras write them, with their own data after the image."""
    record = image(0)
    record["image/encoded"] += bytes(5000)
    write(tmp_path / "train.tfrecord", [record])
    ((loaded),) = tfrecorder.load(tmp_path, "TRAIN")
    np.testing.assert_array_equal(loaded, pillow_pixels(DATA[0]))


def test_preview_counts_images_that_do_not_decode(tmp_path: Path) -> None:
    records = [image(n) | {"image/encoded": b"not an image"} for n in range(5)]
    write(tmp_path / "train.tfrecord", records)
    found = tfrecorder.preview(tmp_path, progress=False)
    assert (found.undecodable, found.near_constant) == (5, 0)
    assert "5 of 5 records looked at have no image that Pillow decodes" in str(found)
