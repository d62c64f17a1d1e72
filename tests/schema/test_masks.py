"""Masks: kept as they are, checked against their images, and moved along with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_datasets as tfds
from helpers.kind_cases import convert, values
from helpers.object_cases import COFFEES, MASKS, masked
from helpers.reading_cases import READERS
from helpers.record_laws import check_records
from PIL import Image as Pictures
from support import given_again, records, rejects

import tfrecorder
from tfrecorder.schema import Image, Label, Mask, Schema, Split


def load(out: str, **options: Any) -> Any:
    return tfrecorder.load(out, "TRAIN", shuffle=False, **options)


def test_masks_are_kept_as_they_are_and_come_back() -> None:
    out = convert(masked(), "out", shuffle=False)
    stored = [record["image/segmentation/class/encoded"] for record in records(out)]
    assert stored == [path.read_bytes() for path in MASKS]
    assert {record["image/segmentation/class/format"] for record in records(out)} == {b"png"}
    assert values(given_again(out)) == values(masked())
    assert tfrecorder.verify(out).ok
    check_records(out)


@pytest.mark.slow
def test_load_gives_the_image_and_its_mask() -> None:
    out = convert(masked(3), "out", shuffle=False)
    for (image, mask), path in zip(load(out), MASKS, strict=False):
        assert image.shape[:2] == mask.shape[:2]
        assert np.array_equal(mask[..., 0], np.asarray(Pictures.open(path)))


@pytest.mark.slow
def test_tfds_reads_masks() -> None:
    out = convert(masked(3), "out", shuffle=False)
    builder = tfds.builder_from_directory(out)
    found = next(iter(tfds.as_numpy(builder.as_dataset("train", shuffle_files=False))))
    mask = found["image/segmentation/class/encoded"]
    assert np.array_equal(mask[..., 0], np.asarray(Pictures.open(MASKS[0])))


def two_halves(size: tuple[int, int] = (200, 120)) -> pd.DataFrame:
    """A picture whose left part is white, and the mask that says so."""
    pixels = np.zeros((size[1], size[0]), np.uint8)
    pixels[:, : size[0] // 2] = 255
    pixels[: size[1] // 3] = 0
    Pictures.fromarray(pixels).convert("RGB").save("image.png")
    Pictures.fromarray((pixels > 0).astype(np.uint8)).save("mask.png")
    return pd.DataFrame({"split": ["TRAIN"], "image_uri": "image.png", "mask_uri": "mask.png"})


def agreement(image: Any, mask: Any) -> float:
    """The share of pixels in which a mask says what its picture shows."""
    white = np.asarray(image).mean(2) > 127
    return float((white == (np.asarray(mask)[..., 0] == 1)).mean())


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["batches of load", *READERS])
@pytest.mark.parametrize(
    "options",
    [
        {"image_size": (96, 96)},
        {"image_size": (64, 96), "resize": "crop"},
        {"image_size": (96, 96), "resize": "pad"},
        {"image_size": (96, 96), "resize": "fit"},
        {"image_size": (31, 57), "resize": "fit"},
        {"image_size": (96, 160), "augment": True, "seed": 1},
        {"image_size": (96, 160), "augment": True, "seed": 2},
        {"image_size": (96, 160), "augment": True, "seed": 3},
    ],
    ids=str,
)
def test_masks_go_where_the_pixels_go(options: dict[str, Any], reader: str) -> None:
    convert(two_halves(), "out")
    if reader in READERS:
        ((image, mask),) = READERS[reader]("out", **options)
    elif options.get("resize") == "fit":
        pytest.skip("images that differ in size share no batch")
    else:
        (((image,), (mask,)),) = load("out", batch_size=1, **options).as_numpy_iterator()
    assert image.shape[:2] == mask.shape[:2]
    assert set(np.unique(mask)) <= {0, 1}
    assert agreement(image, mask) > 0.97


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad", "fit"])
def test_masks_go_where_the_pixels_go_when_images_are_written_smaller(fit: str) -> None:
    convert(two_halves(), "out", image_size=(60, 80), resize=fit)
    image, mask = next(iter(load("out")))
    assert image.shape[:2] == mask.shape[:2]
    assert set(np.unique(mask)) <= {0, 1}
    assert agreement(image, mask) > 0.97
    assert tfrecorder.verify("out").ok
    check_records("out")


def coloured(mask: Pictures.Image) -> None:
    pixels = np.asarray(mask.convert("RGB")).copy()
    pixels[0, 0] = 1, 2, 1
    Pictures.fromarray(pixels).save("bad.png")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda mask: mask.resize((10, 10)).save("bad.png"), "mask_size: mask_uri has 10 x 10"),
        (lambda mask: mask.save("bad.png", "JPEG"), "mask_format: mask_uri is a JPEG"),
        (coloured, "mask_channels: mask_uri has colours or transparency, not one number"),
        (lambda mask: None, "not_found: mask_uri 'bad.png'"),
    ],
)
def test_a_mask_that_cannot_be_used_is_a_reject(make: Any, reason: str) -> None:
    frame = masked()
    make(Pictures.open(MASKS[2]))
    frame.loc[2, "mask_uri"] = "bad.png"
    tfrecorder.convert(frame, "out", progress=False)
    found = rejects("out")
    assert (found["row"].item(), found["image_uri"].item()) == (2, str(COFFEES[2]))
    assert found["reason"].item().startswith(reason)
    assert tfrecorder.verify("out").ok
    check_records("out")


def test_of_a_palette_the_numbers_are_kept_and_not_the_colours() -> None:
    classes = np.asarray(Pictures.open(MASKS[0]))
    palette = Pictures.fromarray(classes).convert("P")
    palette.putdata(classes.ravel().tolist())
    palette.putpalette([0, 0, 0, 250, 0, 0, 0, 250, 0])
    palette.save("palette.png")
    frame = masked(1).assign(mask_uri="palette.png")
    convert(frame, "out")
    ((_, mask),) = iter(load("out"))
    assert np.array_equal(mask[..., 0], classes)


@pytest.mark.slow
def test_masks_of_two_images_are_told_apart() -> None:
    frame = pd.DataFrame(
        {
            **{"split": ["TRAIN"], "a_uri": str(COFFEES[0]), "b_uri": str(COFFEES[2])},
            **{"a_mask": str(MASKS[0]), "b_mask": str(MASKS[2]), "label": "x"},
        }
    )
    schema = Schema(
        **{"split": Split(), "a_uri": Image(), "b_uri": Image(), "label": Label()},
        **{"a_mask": Mask(of="a_uri"), "b_mask": Mask(of="b_uri")},
    )
    convert(frame, "out", schema=schema)
    ((images, targets),) = iter(load("out"))
    assert images["a_uri"].shape[:2] == targets["a_mask"].shape[:2]
    assert images["b_uri"].shape[:2] == targets["b_mask"].shape[:2]
    assert Path("out/label.label.labels.txt").read_text() == "x\n"
