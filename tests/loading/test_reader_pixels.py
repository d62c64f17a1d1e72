"""What `image_size`, `resize`, `dtype` and `augment` do to the pixels, with bounds on quality.

Each is true of both engines, tf.data's graph and NumPy.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.damage import reseal
from helpers.reading_cases import (
    READERS,
    by_load,
    convert_images,
    convert_photos,
    jpeg,
    mean_difference,
    photograph,
    pillow_pixels,
)
from PIL import Image
from support import slow_cases

import tfrecorder

SIZE = (60, 70)

#: Grey levels of 255 in the mean, between what a reader gives and a decode at full scale with
#: TensorFlow's antialiased resize.
SHRUNK_BOUND = 2.5
LARGE_BOUND = 2.0
HALF_PIXEL_BOUND = 3.0


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[np.ndarray]]:
    """Photographs of 1.9 megapixels, upright and lying, and their pixels."""
    files = {
        "lying.jpg": jpeg(photograph(1200, 1600)),
        "upright.jpg": jpeg(photograph(1600, 1200)),
    }
    folder = tmp_path_factory.mktemp("large")
    return convert_images(folder / "out", files), [pillow_pixels(data) for data in files.values()]


#: Gives the images of TRAIN, in their order.
Images = Callable[..., list[np.ndarray]]


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def first_images(reader: str) -> Images:
    return lambda out, **options: [image for image, _ in READERS[reader](out, **options)]


def central(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The largest part with the proportions of a size, about the centre."""
    height, width = pixels.shape[:2]
    scale = min(height / size[0], width / size[1])
    rows, columns = round(size[0] * scale), round(size[1] * scale)
    top, left = (height - rows) // 2, (width - columns) // 2
    return pixels[top : top + rows, left : left + columns]


def reference(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return tf.image.resize(pixels, size, antialias=True).numpy()


@pytest.mark.slow
def test_shrinking_is_free_of_aliasing_within_a_bound(first_images: Images, out: str) -> None:
    whole = first_images(out)
    ours = first_images(out, image_size=SIZE)
    plain = first_images(out, image_size=SIZE, antialias=False)
    expected = [reference(pixels, SIZE) for pixels in whole]
    of_ours = np.mean([mean_difference(a, b) for a, b in zip(ours, expected, strict=True)])
    of_plain = np.mean([mean_difference(a, b) for a, b in zip(plain, expected, strict=True)])
    assert of_ours < SHRUNK_BOUND
    assert of_ours < 0.7 * of_plain


@pytest.mark.slow
@pytest.mark.parametrize("size", [(90, 300), (300, 111), (450, 450), (5000, 5000)])
def test_fit_stays_within_and_enlarges_nothing(
    first_images: Images, large: tuple[str, list[np.ndarray]], size: tuple[int, int]
) -> None:
    """The larger sizes are decoded whole, of the smaller ones a JPEG is decoded at a part of it."""
    out, whole = large
    images = first_images(out, image_size=size, resize="fit")
    for image, pixels in zip(images, whole, strict=True):
        scale = min(1.0, *(wanted / side for wanted, side in zip(size, pixels.shape, strict=False)))
        expected = tuple(round(side * scale) for side in pixels.shape[:2])
        assert image.shape == (*expected, 3)
        assert mean_difference(image, reference(pixels, expected)) < SHRUNK_BOUND
    if size == (5000, 5000):
        assert all(np.array_equal(*pair) for pair in zip(images, first_images(out), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(110, 110), (200, 250)], ids=["smaller", "larger"])
@pytest.mark.parametrize("resize", ["stretch", "crop"])
def test_without_antialiasing_pixels_are_those_of_the_usual_pipeline(
    first_images: Images, reader: str, out: str, size: tuple[int, int], resize: str
) -> None:
    options = {"image_size": size, "resize": resize, "antialias": False}
    exact = first_images(out, dtype="float32", value_range=(0, 255), **options)
    encoded, whole = first_images(out, decode=False), first_images(out)
    for data, stored, ours in zip(encoded, whole, exact, strict=True):
        pixels = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE")
        np.testing.assert_array_equal(pixels, stored)
        part = central(stored, size) if resize == "crop" else pixels
        expected = tf.image.resize(part, size, antialias=False).numpy()
        # NumPy's resizers round to whole grey levels.
        np.testing.assert_allclose(ours, expected, atol=1e-3 if reader == "load" else 1.5)


@pytest.mark.parametrize("side", [130, *slow_cases(224, 300, 560)])
def test_large_photographs_are_decoded_smaller_within_a_bound(
    first_images: Images, large: tuple[str, list[np.ndarray]], side: int
) -> None:
    out, whole = large
    for ours, pixels in zip(first_images(out, image_size=side), whole, strict=True):
        assert mean_difference(ours, reference(pixels, (side, side))) < LARGE_BOUND
        assert abs(float(ours.mean()) - float(pixels.mean())) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "bound"),
    [
        ([(1201, 1601)], LARGE_BOUND),
        ([(1201, 1601), (1200, 1600)], LARGE_BOUND),
        ([(1204, 1604)], HALF_PIXEL_BOUND),
    ],
)
@pytest.mark.parametrize("resize", ["stretch", "crop", "pad"])
def test_photographs_that_do_not_divide_are_hardly_shifted(
    first_images: Images, tmp_path: Path, sizes: list[tuple[int, int]], bound: float, resize: str
) -> None:
    """Decoded at an eighth, 1201 pixels are 151, of which the last is an eighth of a pixel."""
    files = {f"{n}.jpg": jpeg(photograph(*size)) for n, size in enumerate(sizes)}
    out = convert_images(tmp_path / "out", files)
    for side in (56, 130):
        ours = first_images(out, image_size=side, resize=resize)
        for found, data, (height, width) in zip(ours, files.values(), sizes, strict=True):
            pixels, top, rows = pillow_pixels(data), 0, side
            if resize == "crop":
                left = (width - height) // 2
                pixels = pixels[:, left : left + height]
            if resize == "pad":
                rows = round(height / width * side)
                top = (side - rows) // 2
            part = found[top : top + rows]
            assert mean_difference(part, reference(pixels, (rows, side))) < bound
            assert not found[:top].any()
            assert not found[top + rows :].any()


def test_enlarging_is_bilinear(first_images: Images, out: str) -> None:
    for ours, pixels in zip(first_images(out, image_size=250), first_images(out), strict=True):
        assert mean_difference(ours, reference(pixels, (250, 250))) < 0.35


def test_pixels_are_rounded_not_cut(first_images: Images, out: str) -> None:
    as_floats = first_images(out, image_size=SIZE, dtype="float32", value_range=(0, 255))
    as_bytes = first_images(out, image_size=SIZE)
    for exact, rounded in zip(as_floats, as_bytes, strict=True):
        assert np.abs(exact - rounded).max() <= 0.5 + 1e-4


@pytest.mark.parametrize(
    ("dtype", "value_range", "expected"),
    [
        ("float32", None, (0, 1)),
        ("float32", (-1, 1), (-1, 1)),
        ("float16", (0, 1), (0, 1)),
        (tf.bfloat16, (-1, 1), (-1, 1)),
    ],
)
def test_values_have_the_range_asked_for(
    first_images: Images,
    out: str,
    dtype: object,
    value_range: object,
    expected: tuple[float, float],
) -> None:
    low, high = expected
    scaled = first_images(out, dtype=dtype, value_range=value_range)
    for image, pixels in zip(scaled, first_images(out), strict=True):
        assert image.dtype == tf.as_dtype(dtype).as_numpy_dtype
        wanted = pixels / 255 * (high - low) + low
        np.testing.assert_allclose(image.astype(np.float32), wanted, atol=0.01)


#: Mean and deviation as torchvision's and CLIP's sources have them.
PUBLISHED = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": (
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
}


@pytest.mark.parametrize("given", ["imagenet", "clip", "one number"])
@pytest.mark.parametrize("size", [None, 20], ids=["stored", "resized"])
def test_normalised_channels_are_those_of_torchvision(
    first_images: Images, out: str, given: str, size: int | None
) -> None:
    mean, std = PUBLISHED.get(given, (0.5, 0.2))
    named = (given, given) if given in PUBLISHED else (mean, std)
    sized = {"image_size": size, "dtype": "float32"}
    normalised = first_images(out, mean=named[0], std=named[1], **sized)
    for ours, pixels in zip(normalised, first_images(out, **sized), strict=True):
        # As `torchvision.transforms.v2.functional.normalize`, on what `to_dtype(scale=True)` gives.
        expected = (pixels - np.float32(mean)) / np.float32(std)
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)


def test_crop_cuts_about_the_centre(
    first_images: Images, large: tuple[str, list[np.ndarray]]
) -> None:
    out, whole = large
    for ours, pixels in zip(first_images(out, image_size=200, resize="crop"), whole, strict=True):
        height, width, _ = pixels.shape
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        expected = reference(pixels[top : top + side, left : left + side], (200, 200))
        assert mean_difference(ours, expected) < LARGE_BOUND


def test_pad_keeps_the_proportions_with_black_borders(
    first_images: Images, large: tuple[str, list[np.ndarray]]
) -> None:
    out, (lying, upright) = large
    first, second = first_images(out, image_size=(120, 120), resize="pad")
    assert not first[:15].any()
    assert not first[105:].any()
    assert mean_difference(first[15:105], reference(lying, (90, 120))) < LARGE_BOUND
    assert not second[:, :15].any()
    assert mean_difference(second[:, 15:105], reference(upright, (120, 90))) < LARGE_BOUND


@pytest.mark.slow
def test_augment_gives_parts_of_the_image_and_mirrors_half(
    first_images: Images, tmp_path: Path
) -> None:
    """Red is the column and green the row, so that each part shows where it is from."""
    rows, columns = np.mgrid[0:256, 0:256]
    pixels = np.stack([columns, rows, np.zeros_like(rows)], -1).astype(np.uint8)
    data = jpeg(pixels, quality=98)
    out = convert_images(tmp_path / "out", {f"{n:03}.jpg": data for n in range(200)})
    parts = np.stack(first_images(out, image_size=32, augment=True, seed=1)).astype(float)
    left_to_right = parts[:, 16, -1, 0] - parts[:, 16, 0, 0]
    down = parts[:, -1, 16, 1] - parts[:, 0, 16, 1]
    assert 60 < (left_to_right < 0).sum() < 140
    assert (down > 0).all()
    area = np.abs(left_to_right) * down / 255**2
    assert area.min() < 0.15
    assert area.max() > 0.85
    assert 0.45 < area.mean() < 0.6
    assert len({tuple(part[0, 0]) for part in parts}) > 100


@pytest.mark.slow
def test_small_images_decode_a_batch_at_a_time_to_the_same(tmp_path: Path) -> None:
    """Records under 16 KiB, as the bundled photographs', take another path with a batch."""
    out = convert_photos(tmp_path / "out")
    for more in ({}, {"augment": True, "seed": 5}, {"inputs": "all"}):
        options = {"image_size": 31, "shuffle": False} | more
        single = list(tfrecorder.load(out, "TRAIN", **options))
        mapped = tfrecorder.load(out, "TRAIN", batch_size=6, **options).unbatch()
        for one, other in zip(single, mapped, strict=True):
            tf.nest.map_structure(np.testing.assert_array_equal, one, other)


@pytest.mark.slow
@pytest.mark.parametrize("resize", ["stretch", "crop", "pad"])
@pytest.mark.parametrize("size", [(130, 130), (560, 560), (300, 1300), (1250, 700), (2000, 2000)])
def test_what_the_metadata_tells_of_sizes_changes_no_pixel(
    large: tuple[str, list[np.ndarray]], size: tuple[int, int], resize: str, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(large[0], tmp_path / "out"))
    read = []
    for sides in ([[1, 9999], [1, 9999]], [[1200, 1200], [1600, 1600]]):
        told = functools.partial(dict.update, image_sides=sides)
        reseal(out / "_tfrecorder/commits/00000.json", told)
        read.append([image for image, _ in by_load(str(out), image_size=size, resize=resize)])
    np.testing.assert_array_equal(*read)


@pytest.mark.slow
def test_png_is_fitted_like_jpeg(first_images: Images, tmp_path: Path) -> None:
    pixels = photograph(300, 400)
    path = tmp_path / "one.png"
    Image.fromarray(pixels).save(path)
    out = convert_images(tmp_path / "out", {"one.png": path.read_bytes()})
    for augment in (False, True):
        (ours,) = first_images(out, image_size=50, augment=augment)
        assert ours.shape == (50, 50, 3)
    (ours,) = first_images(out, image_size=50)
    assert mean_difference(ours, reference(pixels, (50, 50))) < LARGE_BOUND
