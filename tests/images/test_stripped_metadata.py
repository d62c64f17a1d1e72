"""`strip_metadata=True`: what a camera wrote beside the pixels is not stored."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import image_cases
from PIL import Image, PngImagePlugin
from support import records

import tfrecorder

SECRET = b"59.9139N-serial"


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112], tags[0x010F] = orientation, SECRET.decode()
    tags.get_ifd(0x8825)[2] = (59.0, 54.0, 50.0)
    return tags.tobytes()


def jpeg(orientation: int = 1, mode: str = "RGB", **options: object) -> bytes:
    photo = image_cases.photo(orientation, (24, 16)).convert(mode)
    data = image_cases.save(
        photo, "JPEG", exif=exif(orientation), comment=SECRET, xmp=SECRET * 3, **options
    )
    iptc = b"\xff\xed" + (2 + len(SECRET)).to_bytes(2, "big") + SECRET
    return data[:2] + iptc + data[2:] + b"\xff\xd8" + SECRET


def png(orientation: int = 1, mode: str = "RGB") -> bytes:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Author", SECRET.decode())
    texts.add_itxt("XML:com.adobe.xmp", SECRET.decode())
    photo = image_cases.photo(orientation, (24, 16)).convert(mode)
    return image_cases.save(photo, "PNG", pnginfo=texts, exif=exif(orientation)) + SECRET


CASES = {
    "jpeg": jpeg(),
    "turned jpeg": jpeg(6),
    "progressive": jpeg(3, progressive=True),
    "cmyk": jpeg(mode="CMYK"),
    "grey": jpeg(mode="L"),
    "png": png(),
    "turned png": png(8, "RGBA"),
    "palette": png(mode="P"),
}

ORIENTATIONS = {"turned jpeg": 6, "progressive": 3, "turned png": 8}


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGBA" if image.mode != "CMYK" else "CMYK"))


def stored(files: dict[str, bytes], out: str) -> dict[str, bytes]:
    """What a dataset stores of these files, by their names."""
    cells = [{"bytes": data, "path": name} for name, data in files.items()]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": cells, "label": "a"})
    tfrecorder.convert(frame, out, strip_metadata=True)
    found = {record["image/filename"].decode(): record["image/encoded"] for record in records(out)}
    assert len(found) == len(files)
    return found


@pytest.mark.slow
def test_pixels_and_orientation_stay_and_the_rest_goes() -> None:
    stripped = stored(CASES, "out")
    for case, data in CASES.items():
        assert SECRET in data
        assert SECRET not in stripped[case]
        np.testing.assert_array_equal(pixels(stripped[case]), pixels(data))
        with Image.open(io.BytesIO(stripped[case])) as image:
            tags = image.getexif()
            assert tags.get(0x0112, 1) == ORIENTATIONS.get(case, 1)
            assert {*tags} <= {0x0112}
            assert not tags.get_ifd(0x8825)
    assert stored(stripped, "again") == stripped


@pytest.mark.slow
def test_a_colour_profile_stays() -> None:
    profile = b"profile" * 20_000  # which takes three segments of a JPEG
    photo = image_cases.photo()
    files = {form: image_cases.save(photo, form, icc_profile=profile) for form in ("JPEG", "PNG")}
    assert stored(files, "out") == files


@pytest.mark.slow
def test_a_dataset_has_none_of_it() -> None:
    for name, data in CASES.items():
        Path(f"{name}.x").write_bytes(data)
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [f"{n}.x" for n in CASES], "label": "a"})
    result = tfrecorder.convert(frame[1:], "out", strip_metadata=True, num_shards=2)
    assert result.oriented == 3
    tfrecorder.append(frame, "out")
    tfrecorder.compact("out", num_shards=1)
    assert tfrecorder.info("out").oriented == 3
    assert tfrecorder.verify("out").ok
    assert all(SECRET not in record["image/encoded"] for record in records("out"))
    tfrecorder.convert(frame, "upright", strip_metadata=True, apply_exif=True, image_size=8)
    assert all(SECRET not in record["image/encoded"] for record in records("upright"))
    (shard,) = Path("out").glob("*train*.tfrecord*")
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100])
    tfrecorder.repair("out")
    assert shard.read_bytes() == whole


def test_a_file_that_ends_too_early_is_named_whatever_the_check() -> None:
    Path("0.png").write_bytes(png()[:120])
    Path("1.png").write_bytes(png())
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": ["0.png", "1.png"], "label": "a"})
    options = {"check": "header", "max_reject_fraction": 1}
    result = tfrecorder.convert(frame, "out", strip_metadata=True, **options)
    assert result.rejects == {"check/truncated": 1}
