"""Images stored smaller, upright, in another format, or as their pixels."""

from __future__ import annotations

import io
import warnings
import zlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_datasets as tfds
from helpers import image_cases
from helpers.kind_cases import convert
from helpers.record_laws import check_records
from PIL import Image as Pictures
from support import PHOTOS, SAMPLES, photo_frame, public_files, records

import tfrecorder
from tfrecorder.schema import Boxes, Image, Schema, Split


def stored(out: str) -> list[Pictures.Image]:
    return [Pictures.open(io.BytesIO(record["image/encoded"])) for record in records(out)]


def sizes(out: str) -> list[tuple[int, int]]:
    return [image.size for image in stored(out)]


def as_stored(frame: pd.DataFrame) -> list[Pictures.Image]:
    return [Pictures.open(uri) for uri in frame["image_uri"]]


def difference(one: Any, other: Any) -> float:
    return float(np.abs(np.asarray(one, float) - np.asarray(other, float)).mean())


def test_the_short_side_shrinks_and_small_images_stay_byte_for_byte() -> None:
    frame = photo_frame()
    convert(frame, "out", short_side=130, shuffle=False, num_shards=1)
    pairs = list(zip(as_stored(frame), records("out"), strict=True))
    kept = [one for one in pairs if min(one[0].size) <= 130]
    assert kept
    assert len(kept) < len(pairs)
    differences = []
    for image, record in pairs:
        if min(image.size) <= 130:
            with open(image.filename, "rb") as file:
                assert record["image/encoded"] == file.read()
        else:
            short = Pictures.open(io.BytesIO(record["image/encoded"]))
            assert min(short.size) == 130
            scale = 130 / min(image.size)
            wanted = image.resize(short.size, Pictures.Resampling.BILINEAR)
            assert abs(max(short.size) - max(image.size) * scale) <= 1
            differences.append(difference(short, wanted))
    assert np.mean(differences) < 4
    assert tfrecorder.verify("out").ok
    check_records("out")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fit", "size"),
    [("stretch", (96, 64)), ("crop", (96, 64)), ("pad", (96, 64)), ("fit", (64, 64))],
)
def test_an_exact_size_is_reached_in_the_way_asked_for(fit: str, size: tuple[int, int]) -> None:
    Pictures.new("RGB", (200, 200), (200, 100, 50)).save("square.png")
    frame = pd.DataFrame({"split": ["TRAIN"], "image_uri": "square.png", "label": "x"})
    convert(frame, "out", image_size=(64, 96), resize=fit)
    (image,) = stored("out")
    assert image.size == size
    corner = (0, 0, 0) if fit == "pad" else (200, 100, 50)
    assert image.getpixel((0, 0)) == corner


@pytest.mark.parametrize(("form", "pillow"), [("keep", "JPEG"), ("jpeg", "JPEG"), ("png", "PNG")])
def test_the_format_is_the_one_asked_for(form: str, pillow: str) -> None:
    convert(photo_frame(4), "out", image_format=form)
    assert {image.format for image in stored("out")} == {pillow}
    assert {record["image/format"].decode() for record in records("out")} == {pillow.lower()}


def test_a_transparent_png_becomes_a_jpeg_and_quality_counts() -> None:
    frame = photo_frame(1).assign(image_uri=str(SAMPLES / "mixed/coffee_transparent.png"))
    convert(frame, "fine", image_format="jpeg", image_quality=95)
    convert(frame, "coarse", image_format="jpeg", image_quality=30)
    (fine,), (coarse,) = records("fine"), records("coarse")
    assert (fine["image/format"], fine["image/channels"]) == (b"jpeg", 3)
    assert len(coarse["image/encoded"]) < len(fine["image/encoded"]) / 2


def turned(orientation: int) -> tuple[str, np.ndarray]:
    """A photograph stored with an EXIF orientation, and its pixels as they should look."""
    from PIL import ImageOps

    exif = Pictures.Exif()
    exif[0x0112] = orientation
    name = f"turned_{orientation}.jpg"
    Pictures.open(PHOTOS[20]).save(name, exif=exif, quality=95)
    return name, np.asarray(ImageOps.exif_transpose(Pictures.open(name)))


@pytest.mark.slow
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_are_turned_upright(orientation: int) -> None:
    name, upright = turned(orientation)
    frame = pd.DataFrame({"split": ["TRAIN"], "image_uri": name, "label": "x"})
    done = tfrecorder.convert(frame, "out", progress=False, apply_exif=True, image_format="png")
    (image,) = stored("out")
    assert difference(image, upright) < 0.5
    assert done.oriented == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["WEBP", "TIFF"])
def test_pixels_of_other_formats_are_turned_too(kind: str) -> None:
    exif = Pictures.Exif()
    exif[0x0112] = 6
    pixels = Pictures.open(PHOTOS[20])
    pixels.save("turned.img", kind, exif=exif, lossless=True)
    frame = pd.DataFrame({"split": ["TRAIN"], "image_uri": "turned.img", "label": "x"})
    assert tfrecorder.convert(frame, "kept", progress=False).oriented == 1
    assert tfrecorder.convert(frame, "out", progress=False, apply_exif=True).oriented == 0
    assert difference(stored("kept")[0], np.asarray(pixels)) == 0
    assert difference(stored("out")[0], np.rot90(np.asarray(pixels), -1)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_turned_with_the_pixels(orientation: int) -> None:
    pixels = np.zeros((80, 120, 3), np.uint8)
    pixels[16:40, 12:36] = 255
    exif = Pictures.Exif()
    exif[0x0112] = orientation
    Pictures.fromarray(pixels).save("box.jpg", exif=exif, quality=95)
    frame = pd.DataFrame(
        [("TRAIN", "box.jpg", 0.1, 0.2, 0.3, 0.5)],
        columns=["split", "image_uri", "x_min", "y_min", "x_max", "y_max"],
    )
    schema = Schema(split=Split(), image_uri=Image(), boxes=Boxes(label=None))
    convert(frame, "out", schema=schema, apply_exif=True)
    image, found = next(iter(tfrecorder.load("out", "TRAIN")))
    ymin, xmin, ymax, xmax = found["boxes"].numpy()[0]
    height, width = image.shape[:2]
    rows, columns = np.nonzero(np.asarray(image).mean(2) > 127)
    edges = np.array([rows.min(), columns.min(), rows.max() + 1, columns.max() + 1])
    wanted = np.array([ymin * height, xmin * width, ymax * height, xmax * width])
    assert np.abs(edges - wanted).max() <= 1


# Raw pixels.


RAW: dict[str, Any] = {"image_size": (32, 48), "image_format": "raw"}


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 4])
def test_raw_pixels_are_those_of_png(batch_size: int | None) -> None:
    frame = photo_frame(8)
    convert(frame, "raw", **RAW)
    convert(frame, "png", image_size=(32, 48), image_format="png")
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": False}
    for (image, label), (other, same) in zip(
        tfrecorder.load("raw", "TRAIN", **options),
        tfrecorder.load("png", "TRAIN", **options),
        strict=True,
    ):
        assert np.array_equal(image, other)
        assert np.array_equal(label, same)
    assert image.dtype.name == "uint8"
    assert image.shape[-3:] == (32, 48, 3)
    assert tfrecorder.verify("raw").ok
    check_records("raw")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"image_size": 16},
        {"image_size": (64, 64)},
        {"image_size": 16, "resize": "crop"},
        {"image_size": 16, "augment": True, "seed": 1},
    ],
    ids=str,
)
def test_raw_pixels_are_resized_and_cut_as_others_are(options: dict[str, Any]) -> None:
    convert(photo_frame(4), "raw", **RAW)
    convert(photo_frame(4), "png", image_size=(32, 48), image_format="png")
    more = {**options, "batch_size": 2, "shuffle": False}
    image, _ = next(iter(tfrecorder.load("raw", "TRAIN", **more)))
    other, _ = next(iter(tfrecorder.load("png", "TRAIN", **more)))
    assert image.dtype == other.dtype
    assert difference(image, other) <= (1 if options.get("dtype") != "float32" else 1e-6)


@pytest.mark.slow
def test_tfds_reads_raw_pixels() -> None:
    convert(photo_frame(4), "raw", **RAW)
    builder = tfds.builder_from_directory("raw")
    found = next(iter(tfds.as_numpy(builder.as_dataset("train"))))
    assert (found["image/encoded"].shape, found["image/encoded"].dtype) == ((32, 48, 3), np.uint8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image_format": "raw"}, "only if all images have one size"),
        ({"image_format": "raw", "short_side": 64}, "only if all images have one size"),
        ({**RAW, "resize": "fit"}, "a `resize` other than 'fit'"),
        ({"image_size": 64, "short_side": 64}, "short_side=64: .*give one"),
    ],
)
def test_what_cannot_be_is_refused(options: Any, words: str) -> None:
    with pytest.raises(tfrecorder.errors.OptionError, match=words):
        convert(photo_frame(1), "out", **options)


def test_the_same_options_give_the_same_bytes() -> None:
    for name in ("one", "two"):
        convert(photo_frame(6), name, image_size=64, image_format="jpeg")
    assert public_files("one") == public_files("two")
    assert sizes("one") == sizes("two")


@pytest.mark.parametrize("way", ["pixels", "texts", "profile"])
def test_limits_of_pillow_stop_no_reader_and_no_transform(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = image_cases.photo()
    before = {
        "pixels": b"",
        "texts": image_cases.chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(2_000_000))),
        "profile": image_cases.chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(2_000_000))),
    }[way]
    cells = [image_cases.png(photo, before=before), image_cases.save(photo, "TIFF")]
    if way == "pixels":
        cells.append(image_cases.save(photo.convert("CMYK"), "JPEG"))
        monkeypatch.setattr(Pictures, "MAX_IMAGE_PIXELS", 1000)
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": cells, "label": "a"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", Pictures.DecompressionBombWarning)
        tfrecorder.convert(frame, "out", shuffle=False)
        assert tfrecorder.convert(frame, "small", short_side=24).records == len(cells)
        assert not tfrecorder.preview("out").undecodable
        read = [image for image, _ in tfrecorder.Records("out", "TRAIN")]
        (batch,) = tfrecorder.batches("out", "TRAIN", batch_size=len(cells), shuffle=False)
    for number in range(2):
        np.testing.assert_array_equal(read[number], np.asarray(photo))
        np.testing.assert_array_equal(batch[0][number], np.asarray(photo))


@pytest.mark.parametrize("options", [{"image_format": "png"}, {"short_side": 35}])
def test_a_transform_gives_the_picture_that_readers_give(options: dict[str, Any]) -> None:
    photo = image_cases.photo()
    clear = photo.convert("RGBA")
    clear.putalpha(0)
    deep = Pictures.fromarray(np.asarray(photo.convert("L")).astype(np.uint16) * 257)
    inks = image_cases.save(photo.convert("CMYK"), "JPEG", quality=95)
    at = inks.index(b"\xff\xee")
    plain = inks[:at] + inks[at + 16 :]  # without Adobe's marker
    files = {"clear": clear, "deep": deep}
    cells = [image_cases.save(picture, "PNG") for picture in files.values()] + [inks, plain]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": cells, "label": "a"})
    convert(frame, "out", shuffle=False)
    convert(frame, "other", shuffle=False, **options)
    size = {"image_size": (35, 46) if "short_side" in options else None}
    pairs = zip(
        *(tfrecorder.Records(out, "TRAIN", **size) for out in ("out", "other")), strict=True
    )
    for (image, _), (other, _) in pairs:
        assert difference(image, other) < (1.5 if "short_side" in options else 1e-9)


def test_an_image_that_no_check_has_decoded_is_a_reject_of_the_transform() -> None:
    photo = image_cases.photo()
    broken = image_cases.png(photo, idat=b"no deflate")
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [broken, image_cases.png(photo)]})
    options = {"check": "header", "short_side": 24, "max_reject_fraction": 1}
    assert tfrecorder.convert(frame, "out", **options).rejects == {"convert/damaged": 1}
