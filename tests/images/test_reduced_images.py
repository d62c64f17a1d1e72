"""What training does not see of an image is counted by kind, wherever people look."""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import expensive_cases, image_cases
from PIL import Image, ImageCms, ImageFile
from support import records, rejects, shards

import tfrecorder
from tfrecorder.schema import Image as Column, Label, Schema, Split

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


#: An AVIF of 10 bits a channel, 8 pixels a side, by libavif; Pillow writes only those of 8.
TEN_BITS = base64.b64decode(
    "AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUEAAADrbWV0YQAAAAAAAAAhaGRscgAAAAAAAAAAcGlj"
    "dAAAAAAAAAAAAAAAAAAAAAAOcGl0bQAAAAAAAQAAAB5pbG9jAAAAAEQAAAEAAQAAAAEAAAETAAAAJQAAAChp"
    "aW5mAAAAAAABAAAAGmluZmUCAAAAAAEAAGF2MDFDb2xvcgAAAABqaXBycAAAAEtpcGNvAAAAFGlzcGUAAAAA"
    "AAAACAAAAAgAAAAQcGl4aQAAAAADCgoKAAAADGF2MUOBIEAAAAAAE2NvbHJuY2x4AAIAAgAGgAAAABdpcG1h"
    "AAAAAAAAAAEAAQQBAoMEAAAALW1kYXQSAAoIOAi/bwICBpAyFxeCYwTAAPIIAACQPUTaTwD/2j+kfHz0"
)


def other_primaries() -> bytes:
    """A profile of the size of sRGB's, with the red of Display P3."""
    at = SRGB.index(b"rXYZ", 128)
    place = int.from_bytes(SRGB[at + 4 : at + 8], "big") + 8
    return SRGB[:place] + (33759).to_bytes(4, "big") + SRGB[place + 4 :]


def files() -> dict[str, list[bytes]]:
    """Images by what of them is not seen."""
    photo, save = image_cases.photo(size=(24, 16)), image_cases.save
    clear = photo.convert("RGBA")
    clear.putalpha(photo.convert("L"))
    wide = photo.quantize(20)
    several = {"save_all": True, "append_images": [photo.rotate(9)]}
    p3 = other_primaries()
    return {
        "": [
            save(photo, "JPEG", icc_profile=SRGB),
            save(photo, "PNG", icc_profile=SRGB),
            save(photo, "WEBP", icc_profile=SRGB),
            save(wide, "GIF"),
            save(photo, "TIFF"),
            save(photo, "AVIF"),
        ],
        "depth": [image_cases.png(photo, 16, 2), TEN_BITS],
        "frames": [
            save(wide, "GIF", save_all=True, append_images=[wide.rotate(9)]),
            save(photo, "WEBP", **several),
            save(photo, "TIFF", **several),
            save(photo, "PNG", **several),
        ],
        "alpha": [
            save(clear, "PNG"),
            save(clear.convert("LA"), "PNG"),
            save(clear, "WEBP", lossless=True),
            image_cases.png(photo, 8, 2, before=image_cases.chunk(b"tRNS", b"\0\0" * 3)),
        ],
        "cmyk": [save(photo.convert("CMYK"), "JPEG"), save(photo.convert("CMYK"), "TIFF")],
        "profile": [
            save(photo, "JPEG", icc_profile=p3),
            save(photo, "PNG", icc_profile=p3),
            save(photo, "WEBP", icc_profile=p3),
            save(photo, "TIFF", icc_profile=p3),
        ],
        "bands": [save(photo.convert("RGBX"), "TIFF"), four_planes(photo)],
        "appended": [save(photo, "JPEG") + VIDEO, save(photo, "MPO", **several)],
    }


#: What a phone puts behind a photograph, and a picture that ends as the photograph does.
VIDEO = b"\0\0\0\x18ftypmp42" + bytes(range(256))


def four_planes(photo: Image.Image) -> bytes:
    """A TIFF of red, green, blue and a band that no tag explains, one after the other."""
    more = {258: (3, [8] * 4), 262: (3, [2]), 277: (3, [4]), 284: (3, [2]), 338: (3, [0])}
    more[273] = (4, [0] * 4)
    planes = [plane.tobytes() for plane in (*photo.split(), photo.convert("L"))]
    return expensive_cases.strips(*photo.size, photo.height, planes, more=more)


def frame(of: dict[str, list[bytes]]) -> pd.DataFrame:
    cells = [data for images in of.values() for data in images]
    return pd.DataFrame({"split": "TRAIN", "image_uri": cells, "label": "a"})


@pytest.mark.slow
def test_each_kind_is_counted_with_its_remedy_and_none_is_suspect() -> None:
    cases = files()
    counts = {kind: len(images) for kind, images in cases.items() if kind}
    result = tfrecorder.convert(frame(cases), "out", check="strict")
    assert result.records == sum(map(len, cases.values()))
    assert result.suspects == 0
    assert result.reduced == counts
    assert tfrecorder.info("out").reduced == counts
    page = tfrecorder.preview("out").page
    for text in (str(result), str(tfrecorder.info("out")), page):
        assert "4 images of several frames or pages, of which the first is stored" in text
        assert "4 images with transparency, which is not read, as other images have none:" in text
        assert "2 images in CMYK" in text
        assert "2 images with further bands beside their colours" in text
        assert "2 images with data behind the picture" in text
        assert "4 images with a colour profile other than sRGB" in text
        assert len(re.findall("2 images of more than 8 bits", text)) == 1
    another = image_cases.save(image_cases.photo(1, (24, 16)).convert("CMYK"), "JPEG")
    tfrecorder.append(frame({"cmyk": [another]}), "out")
    assert tfrecorder.info("out").reduced == {**counts, "cmyk": 3}


@pytest.mark.slow
def test_copies_and_changes_keep_the_counts() -> None:
    cases = {kind: images[:1] for kind, images in files().items()}
    table = frame(cases)
    table["image_uri"] = [f"{row}.png" for row in range(len(table))]
    for uri, data in zip(table.image_uri, frame(cases).image_uri, strict=True):
        Path(uri).write_bytes(data)
    counts = dict.fromkeys(sorted(set(cases) - {""}), 1)
    assert tfrecorder.convert(table, "out", num_shards=3).reduced == counts
    tfrecorder.compact("out", num_shards=1)
    assert tfrecorder.info("out").reduced == counts
    tfrecorder.update(table.assign(label="b"), "out")
    assert tfrecorder.info("out").reduced == counts
    gone = table.image_uri[:3].tolist()  # a plain one, one of 16 bits, and one of several frames
    tfrecorder.remove("out", {"image_uri": gone})
    assert tfrecorder.info("out").reduced == dict.fromkeys(
        ("alpha", "appended", "bands", "cmyk", "profile"), 1
    )


@pytest.mark.parametrize("form", ["keep", "jpeg"])
def test_transparency_that_all_images_have_is_read(form: str) -> None:
    clear = files()["alpha"][0]
    options = {} if form == "keep" else {"image_format": "jpeg"}
    result = tfrecorder.convert(frame({"alpha": [clear, clear]}), "out", **options)
    assert result.reduced == ({} if form == "keep" else {"alpha": 2})
    assert tfrecorder.info("out").reduced == result.reduced
    image, _ = tfrecorder.Records("out", "TRAIN")[0]
    assert image.shape[2] == (4 if form == "keep" else 3)


@pytest.mark.parametrize("options", [{"strip_metadata": True}, {"short_side": 8}])
def test_what_followed_a_picture_and_is_cut_off_is_not_counted(options: dict[str, Any]) -> None:
    result = tfrecorder.convert(frame({"": files()["appended"]}), "out", **options)
    assert (result.records, result.reduced) == (2, {})
    assert not any(VIDEO in record["image/encoded"] for record in records("out"))


@pytest.mark.parametrize("most", [1, 256, 257, 2**16])
def test_values_of_16_bits_that_read_as_black_are_counted_with_a_range(most: int) -> None:
    values = np.random.default_rng(0).integers(0, most, (300, 401)).astype(np.uint16)
    deep = Image.fromarray(values)
    cells = [image_cases.save(deep, kind) for kind in ("PNG", "TIFF", "PPM")]
    result = tfrecorder.convert(frame({"": cells}), "out")
    assert result.reduced == {"depth": 3} | ({"dim": 3} if most == 256 else {})
    for image, _ in tfrecorder.Records("out", "TRAIN"):
        np.testing.assert_array_equal(image[:, :, 0], values >> 8)
    if most == 256:
        assert "<code>value_range=(0, 257)</code>" in tfrecorder.preview("out").page
        schema = Schema(split=Split(), image_uri=Column(depth=16), label=Label())
        assert tfrecorder.convert(frame({"": cells}), "deep", schema=schema).reduced == {}
        options = {"dtype": "float32", "value_range": (0, 257)}
        image, _ = tfrecorder.Records("deep", "TRAIN", **options)[0]
        assert image.max() == pytest.approx(1, abs=1e-5)


@pytest.mark.filterwarnings("error:Palette images")
def test_a_palette_with_transparency_is_read_without_a_warning() -> None:
    photo = image_cases.photo(size=(24, 16))
    transparency = image_cases.chunk(b"tRNS", b"\0\x80")
    clear, plain = (image_cases.png(photo, 8, 3, before=before) for before in (transparency, b""))
    table = frame({"": [clear, plain]})
    tfrecorder.convert(table, "out", fingerprints=True)
    assert len(tfrecorder.duplicates("out")) == 2
    (image, _), (same, _) = tfrecorder.Records("out", "TRAIN", image_size=8)
    np.testing.assert_array_equal(image, same)
    assert "1 image with transparency" in tfrecorder.preview("out").page
    assert "data:image/jpeg" in table.tensorflow.preview()._repr_html_()


def test_a_dataset_without_any_has_the_same_tables_as_before() -> None:
    tfrecorder.convert(frame({"": files()[""]}), "out")
    import pyarrow.parquet as pq

    (shard,) = shards("out")
    (table,) = Path("out/_tfrecorder").rglob("*.parquet")
    assert shard.exists()
    assert "tfrecorder.record/reduced" not in pq.read_schema(table).names


@pytest.mark.slow
def test_heic_is_read_with_its_package_and_named_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    out = io.BytesIO()
    heif = pillow_heif.from_pillow(image_cases.photo(size=(64, 48)))
    heif.info["icc_profile"] = other_primaries()
    heif.save(out, quality=-1)
    data = out.getvalue()
    cells = frame({"": [data, data[: len(data) // 2], data[:40] + bytes(99)]})
    result = tfrecorder.convert(cells, "out", max_reject_fraction=1)
    assert (result.records, result.reduced) == (1, {"profile": 1})
    assert sum(result.rejects.values()) == 2
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert tfrecorder.convert(cells, "silent", max_reject_fraction=1).rejects == result.rejects
    image, _ = tfrecorder.Records("out", "TRAIN")[0]
    assert np.abs(image.astype(int) - np.asarray(image_cases.photo(size=(64, 48)))).mean() < 4
    cells = frame({"": [data, image_cases.save(image_cases.photo(size=(9, 9)), "PNG")]})
    small = tfrecorder.convert(cells, "small", max_pixels=100, max_reject_fraction=1)
    assert small.rejects == {"check/too_large": 1}
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    result = tfrecorder.convert(cells, "without", max_reject_fraction=1)
    assert result.rejects == {"check/unsupported": 1}
    assert 'pip install "tfrecorder-images[heif]"' in rejects("without").reason[0]


@pytest.mark.slow
def test_heic_of_10_bits_is_read_as_8_and_counted() -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    pixels = np.random.default_rng(0).integers(0, 2**16, (48, 64, 3), np.uint16)
    out = io.BytesIO()
    heif = pillow_heif.from_bytes("RGB;16", (64, 48), pixels.tobytes())
    heif.save(out, quality=-1)
    cells = frame({"": [out.getvalue()]})
    result = tfrecorder.convert(cells, "out", check="strict")
    assert (result.records, result.suspects, result.reduced) == (1, 0, {"depth": 1})
    deep = Schema(split=Split(), image_uri=Column(depth=16), label=Label())
    kept = image_cases.png(image_cases.photo(size=(24, 16)), 16, 2)
    tfrecorder.convert(
        frame({"": [out.getvalue(), kept]}), "deep", schema=deep, max_reject_fraction=1
    )
    (reason,) = rejects("deep").reason
    assert reason.startswith("unsupported: Pillow reads only the upper 8 bits of such a heic")


@pytest.mark.parametrize("damage", [b"", b"\x21", b"\x2c", b"\x21\xfe\x05ab", bytes(600)])
def test_what_follows_the_first_picture_rejects_nothing(damage: bytes) -> None:
    picture = image_cases.save(Image.new("P", (9, 9)), "GIF")[:-1]
    result = tfrecorder.convert(frame({"": [picture + damage]}), "out", max_reject_fraction=1)
    assert result.records == 1
