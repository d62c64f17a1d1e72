"""Masks are numbers, not pictures: in whatever file they come, readers give the same classes.

The files are written by hand, and the counts are those of arrays, as NumPy counts them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.damage import MANIFEST, reseal
from helpers.image_cases import chunk
from helpers.looking_cases import page_of
from helpers.picture_kinds import HEIGHT, WIDTH, png
from PIL import Image as Pictures
from support import invoke, records, rejects

import tfrecorder

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6


def classes_of(bits: int) -> np.ndarray:
    """Numbers of so many bits, up to 16 of them, all in use, as [height, width, 1]."""
    highest = min(2**bits, 16)
    values = np.random.default_rng(bits).integers(0, highest, (HEIGHT, WIDTH, 1))
    values.flat[:highest] = range(highest)
    return values


def channels(values: np.ndarray, count: int, *alpha: int) -> np.ndarray:
    """The same numbers in several channels, with alpha everywhere."""
    planes = [values] * count + [np.full_like(values, one) for one in alpha]
    return np.concatenate(planes, axis=2)


def files() -> dict[str, tuple[bytes, int]]:
    """Each kind of PNG that holds `classes_of` so many bits, by its name."""
    found = {}
    for is_woven in (False, True):
        how = ", interlaced" if is_woven else ""
        for bits in (1, 2, 4, 8, 16):
            found[f"grey {bits}{how}"] = png(classes_of(bits), bits, GREY, is_woven), bits
        for bits in (1, 2, 4, 8):
            # Its colours say nothing of the numbers; and some are transparent.
            colours = chunk(b"PLTE", bytes(255 - place for place in range(3 * min(16, 2**bits))))
            colours += chunk(b"tRNS", bytes([0, 255]))
            file = png(classes_of(bits), bits, PALETTE, is_woven, colours)
            found[f"palette {bits}{how}"] = file, bits
        for bits in (8, 16):
            full = 2**bits - 1
            values = classes_of(bits)
            for name, color, planes in (
                ("rgb", RGB, channels(values, 3)),
                ("rgba", RGBA, channels(values, 3, full)),
                ("grey and alpha", GREY_ALPHA, channels(values, 1, full)),
            ):
                found[f"{name} {bits}{how}"] = png(planes, bits, color, is_woven), bits
    key = chunk(b"tRNS", struct.pack(">H", 1))
    found["grey of 2 bits, 1 transparent"] = png(classes_of(2), 2, GREY, before=key), 2
    return found


FILES = files()

#: What Pillow makes of an array of 0 and 1, as people save it.
SAVED: dict[str, Callable[[np.ndarray], Pictures.Image]] = {
    "bool.png": lambda classes: Pictures.fromarray(classes.astype(bool)),
    "bool.tif": lambda classes: Pictures.fromarray(classes.astype(bool)),
    "bool.bmp": lambda classes: Pictures.fromarray(classes.astype(bool)),
    "grey.tif": Pictures.fromarray,
    "grey.bmp": Pictures.fromarray,
    "deep.tif": lambda classes: Pictures.fromarray(classes.astype(np.uint16)),
    "rgb.bmp": lambda classes: Pictures.fromarray(classes).convert("RGB"),
    "rgb.tif": lambda classes: Pictures.fromarray(classes).convert("RGB"),
}


def table(masks: list[str]) -> pd.DataFrame:
    """A picture for each of some masks."""
    uris = []
    for number in range(len(masks)):
        noise = np.random.default_rng(number).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        uris.append(f"{number}-{masks[number]}-image.png")
        Pictures.fromarray(noise).save(uris[-1])
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris, "mask_uri": masks})


def masks_in(out: str, split: str = "TRAIN") -> list[np.ndarray]:
    """The masks that a reader without TensorFlow gives."""
    return [np.asarray(mask)[..., 0] for _, mask in tfrecorder.Records(out, split)]


def of_every_file() -> tuple[pd.DataFrame, list[np.ndarray]]:
    masks = []
    for name, (data, _) in FILES.items():
        masks.append(f"{name}.png")
        Path(masks[-1]).write_bytes(data)
    return table(masks), [classes_of(bits)[..., 0] for _, bits in FILES.values()]


def test_every_depth_and_form_gives_its_own_numbers() -> None:
    frame, wanted = of_every_file()
    result = tfrecorder.convert(frame, "out", shuffle=False, progress=False)
    for name, found, truth in zip(FILES, masks_in("out"), wanted, strict=True):
        assert np.array_equal(found, truth), name
    # Only what every decoder reads so stays byte for byte.
    for name, record in zip(FILES, records("out"), strict=True):
        stored = record["image/segmentation/class/encoded"]
        assert (stored == FILES[name][0]) == name.startswith("grey 8"), name
        assert stored[24:26] == b"\x08\0", name  # 8 bits, grey
    of_colours = sum(name.startswith(("rgb", "grey and")) for name in FILES)
    words = f"{of_colours} images given as masks of colours, whose channels are equal"
    assert words in str(result)
    assert words in str(tfrecorder.info("out"))
    assert tfrecorder.verify("out", records=True).ok


@pytest.mark.slow
def test_tf_data_gives_the_same_numbers() -> None:
    frame, wanted = of_every_file()
    tfrecorder.convert(frame, "out", shuffle=False, progress=False)
    dataset = tfrecorder.load("out", "TRAIN", shuffle=False)
    for (_, mask), truth in zip(dataset, wanted, strict=True):
        assert np.array_equal(mask[..., 0], truth)


def test_written_larger_they_stay_their_numbers() -> None:
    frame, wanted = of_every_file()
    size = (HEIGHT * 2, WIDTH * 2)
    tfrecorder.convert(frame, "out", shuffle=False, progress=False, image_size=size)
    for name, found, truth in zip(FILES, masks_in("out"), wanted, strict=True):
        assert np.array_equal(found[::2, ::2], truth), name


def test_what_pillow_saves_gives_the_numbers_of_the_array() -> None:
    truth = classes_of(1)[..., 0].astype(np.uint8)
    for name, make in SAVED.items():
        make(truth).save(name)
    tfrecorder.convert(table([*SAVED]), "out", shuffle=False, progress=False)
    for name, found in zip(SAVED, masks_in("out"), strict=True):
        assert np.array_equal(found, truth), name


@pytest.mark.parametrize(
    ("values", "color", "bits", "words"),
    [
        (channels(classes_of(8), 3), RGB, 8, "has colours or transparency"),
        (channels(classes_of(16), 3), RGB, 16, "has colours or transparency"),
        (channels(classes_of(8), 3, 255), RGBA, 8, "has colours or transparency"),
        (channels(classes_of(8), 1, 255), GREY_ALPHA, 8, "has colours or transparency"),
        (channels(classes_of(16), 1, 65535), GREY_ALPHA, 16, "has colours or transparency"),
        (classes_of(16), GREY, 16, "has classes beyond 255: 256"),
        (channels(classes_of(16), 3), RGB, 16, "has classes beyond 255: 256"),
    ],
)
def test_one_pixel_that_is_no_class_rejects_the_mask(
    values: np.ndarray, color: int, bits: int, words: str
) -> None:
    values = values.copy()
    if "beyond" in words:
        values[9, 9] = 256
    else:
        values[9, 9, -1] ^= 1  # of 16 bits, the lowest
    Path("odd.png").write_bytes(png(values, bits, color))
    Path("sound.png").write_bytes(FILES["grey 8"][0])
    frame = table(["odd.png", "sound.png"])
    tfrecorder.convert(frame, "out", progress=False, max_reject_fraction=1)
    assert rejects("out")["reason"].item().startswith(f"mask_channels: mask_uri {words}")
    assert words in str(tfrecorder.validate(frame, check_images=True))


def shares_of(arrays: list[np.ndarray]) -> dict[int, float]:
    """The share of each value that occurs."""
    every = np.concatenate([one.ravel() for one in arrays])
    values, counts = np.unique(every, return_counts=True)
    return dict(zip(values.tolist(), (counts / every.size).tolist(), strict=True))


def assert_statistics_are_of_the_records(out: str) -> dict[str, Any]:
    info = tfrecorder.info(out)
    stated = info.statistics["mask_uri"]
    assert {*stated} == {*info.splits}
    for split, figures in stated.items():
        masks = masks_in(out, split)
        assert figures["shares"] == pytest.approx(shares_of(masks))
        assert figures["count"] == sum(mask.size for mask in masks)
        assert figures["distinct"] == len(figures["shares"])
    return dict(stated)


def numbered(count: int, first: int = 0) -> pd.DataFrame:
    """Rows of which each mask has a class of its own."""
    masks = []
    for number in range(first, first + count):
        mask = np.zeros((HEIGHT, WIDTH), np.uint8)
        mask[: number + 1] = number + 1
        masks.append(f"mask{number}.png")
        Pictures.fromarray(mask).save(masks[-1])
    splits = ["TRAIN", "TRAIN", "TEST"] * count
    return table(masks).assign(split=splits[:count])


def test_statistics_follow_every_operation() -> None:
    tfrecorder.convert(numbered(9), "out", num_shards=2, progress=False)
    assert_statistics_are_of_the_records("out")
    tfrecorder.append(numbered(3, 9), "out", progress=False)
    assert_statistics_are_of_the_records("out")
    rows = tfrecorder.to_frame("out").sort_index()
    changed = rows[:1].assign(mask_uri=numbered(1, 30)["mask_uri"].item())
    tfrecorder.update(changed, "out", progress=False)
    assert 31 in assert_statistics_are_of_the_records("out")["TRAIN"]["shares"]
    tfrecorder.remove("out", rows[3:4], progress=False)
    found = assert_statistics_are_of_the_records("out")
    assert 4 not in found["TRAIN"]["shares"]
    tfrecorder.compact("out", "new", progress=False)
    assert assert_statistics_are_of_the_records("new") == found
    for manifest in Path("new/_tfrecorder/commits").iterdir():
        manifest.unlink()
    tfrecorder.repair("new")
    assert assert_statistics_are_of_the_records("new") == found


def test_where_a_record_says_nothing_no_share_is_stated() -> None:
    """What an older version wrote has no counts, and what is appended to it has."""
    tfrecorder.convert(numbered(6), "out", progress=False)
    reseal(Path("out", MANIFEST), lambda values: [one.pop("levels") for one in values["done"]])
    assert tfrecorder.info("out").statistics == {}
    tfrecorder.append(numbered(3, 6), "out", progress=False)
    assert tfrecorder.info("out").statistics == {}
    tfrecorder.compact("out", "new", progress=False)
    assert_statistics_are_of_the_records("new")


@pytest.mark.parametrize(
    ("values", "is_noted"),
    [((0, 255), True), ((255,), True), ((0, 1), False), ((0, 1, 255), False), ((0,), False)],
)
def test_0_and_255_alone_are_noted(values: tuple[int, ...], is_noted: bool) -> None:
    rows = np.resize(np.array(values, np.uint8), HEIGHT)
    mask = np.repeat(rows[:, None], WIDTH, 1)
    Pictures.fromarray(mask).save("mask.png")
    tfrecorder.convert(table(["mask.png"] * 2), "out", progress=False)
    words = "mask_uri has only the values 0 and 255"
    shown = invoke("info", "out").output
    assert (words in shown) == is_noted
    preview = tfrecorder.preview("out", progress=False)
    assert any(words in finding for finding in preview.findings) == is_noted
    for value, share in shares_of([mask]).items():
        assert f"{value}: {share:.2%}" in shown
        assert f"{value}: {share:.2%}" in preview.page
    stated = json.loads(invoke("info", "out", "--json").output)["statistics"]["mask_uri"]
    assert {int(value) for value in stated["TRAIN"]["shares"]} == {*values}


def test_a_mask_of_0_and_255_is_seen_on_its_picture() -> None:
    Pictures.new("RGB", (120, 90), (128, 128, 128)).save("grey.png")
    mask = np.zeros((90, 120), np.uint8)
    mask[:45, :60] = 255
    Pictures.fromarray(mask).save("mask.png")
    frame = pd.DataFrame({"split": ["TRAIN"], "image_uri": "grey.png", "mask_uri": "mask.png"})
    tfrecorder.convert(frame, "out", progress=False)
    (shown,) = page_of("out").pictures().values()
    pixels = np.asarray(shown, int)
    assert np.ptp(pixels[20, 59]) > 40, "its outline"
    assert np.abs(pixels[20, 30] - 128).max() < 20, "it does not hide the object"
    assert np.abs(pixels[70, 90] - 128).max() < 6
