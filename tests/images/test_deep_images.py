"""Images of 16 bits a channel: kept whole where the schema declares them, by every reader."""

from __future__ import annotations

import io
import itertools
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import expensive_cases, image_cases
from helpers.expensive_cases import Tag
from PIL import Image as Pictures
from support import records, rejects, slow_cases

import tfrecorder
from tfrecorder.errors import OptionError, SourceError
from tfrecorder.schema import Image, Label, Schema, Split

SCHEMA = Schema(split=Split(), image_uri=Image(depth=16), label=Label())
HEIGHT, WIDTH = 20, 14


def pixels(seed: int, channels: int) -> np.ndarray:
    """Every grey level of 16 bits may come, and neighbours differ little."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    planes = [y * 1801 + x * 1013 + 4099 * (seed + channel) for channel in range(channels)]
    return np.stack(planes, 2).astype(np.uint16)


def png(values: np.ndarray, interlaced: bool = False) -> bytes:
    photo = image_cases.photo(size=(WIDTH, HEIGHT))
    color = {1: 0, 2: 4, 3: 2, 4: 6}[values.shape[2]]
    data = image_cases.zlib.compress(image_cases.scanlines(values, 16, interlaced))
    return image_cases.png(photo, 16, color, interlaced=interlaced, idat=data)


def tiff(values: np.ndarray, order: str = "<") -> bytes:
    out = io.BytesIO()
    mode = "I;16" if order == "<" else "I;16B"
    raw = values.astype(f"{order}u2").tobytes()
    Pictures.frombytes(mode, (WIDTH, HEIGHT), raw).save(out, "TIFF")
    return out.getvalue()


COMPRESSION, ORIENTATION, PLANAR, PREDICTOR, ALPHA = 259, 274, 284, 317, 338

#: Forms of a TIFF of colours: tags that differ, and the byte order.
FORMS: dict[str, tuple[dict[int, int], str]] = {
    "plain": ({}, "<"),
    "big-endian": ({}, ">"),
    "Deflate": ({COMPRESSION: 8}, "<"),
    "Deflate, big-endian": ({COMPRESSION: 8}, ">"),
    "predictor": ({COMPRESSION: 8, PREDICTOR: 2}, "<"),
    "turned": ({ORIENTATION: 3}, "<"),
    "planes": ({PLANAR: 2}, "<"),
    "premultiplied": ({ALPHA: 1}, "<"),
}
#: Those of which Pillow reads only the upper bytes.
UPPER_ALONE = ("planes", "premultiplied")


def colour_tiff(values: np.ndarray, form: str) -> bytes:
    """A TIFF of colours of 16 bits, in strips of 8 rows."""
    channels, rows = values.shape[2], 8
    differing, order = FORMS[form]
    plain = {COMPRESSION: 1, PREDICTOR: 1, ORIENTATION: 1, PLANAR: 1}
    chosen = plain | ({ALPHA: 2} if channels == 4 else {}) | differing
    planes = np.split(values, channels, 2) if chosen[PLANAR] == 2 else [values]
    strips = []
    for plane in planes:
        for top in range(0, HEIGHT, rows):
            strip = plane[top : top + rows]
            if chosen[PREDICTOR] == 2:
                strip = np.diff(strip, axis=1, prepend=np.zeros_like(strip[:, :1]))
            raw = strip.astype(f"{order}u2").tobytes()
            strips.append(zlib.compress(raw) if chosen[COMPRESSION] == 8 else raw)
    tags: dict[int, Tag] = {256: (3, [WIDTH]), 257: (3, [HEIGHT]), 258: (3, [16] * channels)}
    tags |= {262: (3, [2]), 277: (3, [channels]), 278: (3, [rows])}
    tags |= {number: (3, [value]) for number, value in chosen.items()}
    tags |= {273: (4, [0] * len(strips)), 279: (4, [len(strip) for strip in strips])}
    places = itertools.accumulate(map(len, strips), initial=len(expensive_cases.tiff(tags)))
    return expensive_cases.tiff(tags | {273: (4, [*places][:-1])}, b"".join(strips), order)


def written(files: dict[str, bytes]) -> pd.DataFrame:
    for name, data in files.items():
        Path(name).write_bytes(data)
    return pd.DataFrame({"split": "TRAIN", "image_uri": [*files], "label": "a"})


def kinds(channels: int) -> dict[str, bytes]:
    files = {"0.png": png(pixels(0, channels)), "1.png": png(pixels(1, channels), True)}
    if channels == 1:
        files |= {"2.tiff": tiff(pixels(2, 1)), "3.tiff": tiff(pixels(3, 1), ">")}
    else:
        whole = [form for form in FORMS if form not in UPPER_ALONE]
        files |= {
            f"{n}.tiff": colour_tiff(pixels(n, channels), form) for n, form in enumerate(whole, 2)
        }
    return files


def wanted(out: str, channels: int = 1) -> list[np.ndarray]:
    """The pixels of the sources, in the order of the records."""
    names = tfrecorder.to_frame(out).image_uri
    return [pixels(int(name[0]), channels) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_every_reader_gives_the_values_of_the_sources(channels: int) -> None:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    count = len(files := kinds(channels))
    tfrecorder.convert(written(files), "out", schema=SCHEMA)
    sources = wanted("out", channels)
    for name, data in files.items():
        if name.endswith("png"):
            assert any(data == record["image/encoded"] for record in records("out"))
    assert {int(record["image/depth"]) for record in records("out")} == {16}
    of_tfds = tfds.builder_from_directory("out").as_dataset(split="train")
    whole = {"batch_size": count, "shuffle": False}
    read = {
        "batches": next(iter(tfrecorder.batches("out", "TRAIN", **whole)))[0],
        "load": next(iter(tfrecorder.load("out", "TRAIN", **whole)))[0].numpy(),
        "records": [image for image, _ in tfrecorder.Records("out", "TRAIN")],
        "tfds": [one["image/encoded"].numpy() for one in of_tfds],
        "tf.io": [
            tf.io.decode_png(record["image/encoded"], dtype=tf.uint16).numpy()
            for record in records("out")
        ],
    }
    for name, images in read.items():
        for image, source in zip(images, sources, strict=True):
            assert image.dtype == np.uint16, name
            np.testing.assert_array_equal(image, source, err_msg=name)
    floats = next(iter(tfrecorder.batches("out", "TRAIN", dtype="float32", **whole)))[0]
    of_graph = next(iter(tfrecorder.load("out", "TRAIN", dtype="float32", **whole)))[0].numpy()
    np.testing.assert_allclose(floats, np.array(sources) / 65535, atol=1e-7)
    np.testing.assert_allclose(of_graph, floats, atol=1e-6)
    info = tfrecorder.info("out")
    assert info.columns["image_uri"].dtype == "uint16"
    assert not info.reduced


@pytest.mark.slow
def test_tensors_have_16_bits() -> None:
    torch = pytest.importorskip("torch")
    tfrecorder.convert(written(kinds(3)), "out", schema=SCHEMA)
    images = next(iter(tfrecorder.torch.batches("out", "TRAIN", batch_size=2, layout="NCHW")))[0]
    assert images.dtype == torch.uint16
    assert images.shape == (2, 3, HEIGHT, WIDTH)


@pytest.mark.parametrize(
    ("channels", "options"),
    [
        (1, {"image_size": (10, 7)}),
        (3, {"image_size": 10, "resize": "crop"}),
        *slow_cases(
            (3, {"image_size": 10, "resize": "pad"}),
            (3, {"image_size": (33, 31)}),
            (3, {"image_size": 10, "antialias": False}),
            (1, {"image_size": 10, "augment": True}),
            (3, {"image_size": (10, 7), "dtype": "float32", "value_range": (-1, 1)}),
            (3, {"image_size": 9, "dtype": "float32", "mean": (0.4, 0.5, 0.6), "std": 0.5}),
        ),
    ],
)
def test_both_engines_resize_alike(channels: int, options: dict[str, Any]) -> None:
    files = {name: data for name, data in kinds(channels).items() if name.endswith("png")}
    tfrecorder.convert(written(files), "out", schema=SCHEMA)
    size = options["image_size"]
    options = {**options, "batch_size": 2, "shuffle": "exact", "seed": 3}
    arrays = next(iter(tfrecorder.batches("out", "TRAIN", **options)))[0]
    tensors = next(iter(tfrecorder.load("out", "TRAIN", **options)))[0].numpy()
    assert arrays.dtype == tensors.dtype == options.get("dtype", np.uint16)
    assert arrays.shape == tensors.shape
    assert arrays.shape[1] == (size if isinstance(size, int) else size[0])
    # A grey level of 8 bits is 257 here, and neighbours in a small picture differ by 4,000.
    scale = 65535 / 2 if "dtype" in options else 1
    assert np.abs(arrays.astype(float) - tensors).mean() * scale < 400


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_resized_files_keep_the_values(channels: int) -> None:
    files = {f"{n}.png": png(pixels(n, channels)) for n in range(2)}
    tfrecorder.convert(written(files), "half", schema=SCHEMA, image_size=(HEIGHT // 2, WIDTH // 2))
    for record, source in zip(records("half"), wanted("half", channels), strict=True):
        with Pictures.open(io.BytesIO(record["image/encoded"])) as image:
            assert (image.height, image.width) == (HEIGHT // 2, WIDTH // 2)
        assert int(record["image/channels"]) == channels
        if channels > 1:
            continue
        found = np.asarray(Pictures.open(io.BytesIO(record["image/encoded"]))).astype(float)
        blocks = source.reshape(HEIGHT // 2, 2, WIDTH // 2, 2).mean((1, 3))
        # In the middle of a ramp, a triangle's mean is that of the block.
        np.testing.assert_allclose(found[1:-1, 1:-1], blocks[1:-1, 1:-1], atol=1)
    images = next(iter(tfrecorder.batches("half", "TRAIN", batch_size=2)))[0]
    assert images.shape[3] == (3 if channels == 2 else channels)
    graph = next(iter(tfrecorder.load("half", "TRAIN", batch_size=2, shuffle=False)))[0].numpy()
    assert sorted(graph.ravel()) == sorted(images.ravel())


def test_a_turned_image_is_turned_whole() -> None:
    upside_down = image_cases.chunk(b"eXIf", image_cases.exif(3, ">"))
    data = png(pixels(0, 3))
    frame = written({"0.png": data[:33] + upside_down + data[33:]})
    tfrecorder.convert(frame, "out", schema=SCHEMA, apply_exif=True)
    (image, _) = tfrecorder.Records("out", "TRAIN")[0]
    np.testing.assert_array_equal(image, pixels(0, 3)[::-1, ::-1])


def test_8_bits_among_them_are_named() -> None:
    frame = written(
        {
            "0.png": png(pixels(0, 1)),
            "1.png": image_cases.save(image_cases.photo(), "PNG"),
            "2.jpg": image_cases.save(image_cases.photo(), "JPEG"),
            "3.tiff": image_cases.save(image_cases.photo(), "TIFF"),
        }
    )
    words = "depth: it has 8 bits a channel, the schema's `Image(depth=16)` declares 16"
    found = tfrecorder.validate(frame, schema=SCHEMA, check_images=True)
    assert found[found.code == "unusable_image"].row.tolist() == [1, 2, 3]
    tfrecorder.convert(frame, "out", schema=SCHEMA, max_reject_fraction=1)
    assert rejects("out").reason.tolist() == [words] * 3


def test_colours_of_which_only_the_upper_bits_can_be_read_are_rejected() -> None:
    files = {"0.png": png(pixels(0, 4))}
    files |= {f"{form}.tiff": colour_tiff(pixels(1, 4), form) for form in UPPER_ALONE}
    tfrecorder.convert(written(files), "out", schema=SCHEMA, max_reject_fraction=1)
    words = "unsupported: Pillow reads only the upper 8 bits of such a tiff; save it as a PNG"
    assert all(reason.startswith(words) for reason in rejects("out").reason)
    assert len(rejects("out")) == 2


def test_what_cannot_hold_16_bits_is_refused() -> None:
    frame = written({"0.png": png(pixels(0, 1))})
    for form in ("jpeg", "raw"):
        with pytest.raises(OptionError, match="the schema declares 16 of \\['image_uri'\\]"):
            tfrecorder.convert(frame, "out", schema=SCHEMA, image_format=form, image_size=8)
    with pytest.raises(OptionError, match="give 8 or 16"):
        Image(depth=12)


def test_without_a_declaration_they_are_read_as_8_bits_and_counted() -> None:
    result = tfrecorder.convert(written(kinds(1)), "out")
    words = (
        "4 images of more than 8 bits a channel, read as 8: `Image(depth=16)` in the schema keeps "
        "all of a PNG or TIFF, and rejects images of 8 bits"
    )
    assert result.reduced == {"depth": 4}
    assert words in str(result)
    assert words in str(tfrecorder.info("out"))
    assert "4 images of more than 8 bits a channel" in tfrecorder.preview("out").page
    assert "image/depth" not in Path("out/features.json").read_text()
    images = next(iter(tfrecorder.batches("out", "TRAIN", batch_size=4, shuffle=False)))[0]
    np.testing.assert_array_equal(images, np.array(wanted("out")) >> 8)


@pytest.mark.slow
def test_a_dataset_that_grows_shrinks_and_is_repaired_keeps_them() -> None:
    files = {f"{n}.png": png(pixels(n, 3)) for n in range(4)}
    frame = written(files)
    tfrecorder.convert(frame[:2], "out", schema=SCHEMA)
    tfrecorder.append(frame[2:], "out")
    other = Schema(split=Split(), image_uri=Image(), label=Label())
    with pytest.raises(SourceError, match="`depth=8` here, `16` in the dataset"):
        tfrecorder.append(written({"4.png": png(pixels(4, 3))}), "out", schema=other)
    tfrecorder.compact("out")
    assert tfrecorder.verify("out", decode=True).ok
    shutil.rmtree("out/_tfrecorder")
    tfrecorder.repair("out", base=".")
    assert tfrecorder.verify("out").ok
    assert tfrecorder.info("out").columns["image_uri"].dtype == "uint16"
    for (image, _), source in zip(
        tfrecorder.Records("out", "TRAIN"), wanted("out", 3), strict=True
    ):
        np.testing.assert_array_equal(image, source)
    again = tfrecorder.to_frame("out", images="bytes")
    result = tfrecorder.convert(again, "again", schema=SCHEMA)
    assert result.records == 4
