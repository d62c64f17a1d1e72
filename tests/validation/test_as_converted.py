"""`validate(check_images=True)` names the rows that a conversion would reject, or note."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from helpers.annotation_cases import annotation, coco_file
from helpers.growing_cases import QUIET
from PIL import Image
from support import PHOTOS, rejects

import tfrecorder
from tfrecorder.schema import Image as ImageKind, Mask, Schema

GREY = Image.linear_gradient("L").resize((40, 30))


def agree(source: Any, **options: Any) -> tuple[dict[str, int], dict[str, int]]:
    """The rejects and the notes of a conversion, if validation names the same rows."""
    report = tfrecorder.validate(source, check_images=True, progress=False, **options)
    result = tfrecorder.convert(source, "out", max_reject_fraction=1.0, **options, **QUIET)
    errors = report[report["severity"] == "error"]
    gone = rejects("out")["row"].tolist() if result.rejects else []
    assert sorted({*errors["row"]}) == gone
    seen = Counter(report["code"])
    counts = dict(result.reduced)
    assert seen["orientation_unsaid"] == counts.get("turned", 0)
    assert seen["scaled_boxes"] == counts.get("scaled", 0)
    others = sum(count for word, count in counts.items() if word not in ("turned", "scaled"))
    assert seen["not_seen"] == others + result.oriented
    assert seen["suspect_image"] == result.suspects
    return result.rejects, counts


def with_exif(image: Image.Image, name: str) -> str:
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(name, exif=exif)
    return name


def test_of_pictures_of_every_form() -> None:
    photo = PHOTOS[0].read_bytes()
    Path("cut.jpg").write_bytes(photo[: len(photo) // 2])
    Path("suspect.jpg").write_bytes(photo[:-200] + bytes(198) + b"\xff\xd9")
    Path("text.jpg").write_text("no image")
    Path("empty.png").write_bytes(b"")
    colours = GREY.convert("RGB")
    for name, image in {
        "a.webp": colours,
        "a.bmp": colours,
        "cmyk.jpg": colours.convert("CMYK"),
        "alpha.png": colours.convert("RGBA"),
        "deep.png": Image.fromarray(np.asarray(GREY).astype(np.uint16) * 257),
    }.items():
        image.save(name)
    colours.save("pages.tiff", save_all=True, append_images=[colours.rotate(90)])
    with_exif(colours, "turned.jpg")
    names = sorted(path.name for path in Path().iterdir()) + [str(PHOTOS[1]), "gone.jpg"]
    frame = pd.DataFrame({"image_uri": names, "split": "TRAIN"})
    rejected, noted = agree(frame)
    assert sum(rejected.values()) == 4
    assert {"read/not_found", "check/empty", "check/not_an_image"} <= {*rejected}
    assert {"cmyk", "alpha", "depth", "frames"} <= {*noted}


def test_transparency_is_read_if_all_images_have_it() -> None:
    GREY.convert("RGBA").save("alpha.png")
    assert agree(pd.DataFrame({"image_uri": ["alpha.png"], "split": "TRAIN"})) == ({}, {})


def test_of_masks() -> None:
    GREY.save("photo.png")
    with_exif(GREY, "turned.png")
    masks = {
        "grey.png": GREY,
        "colours.png": GREY.convert("RGB"),
        "mixed.png": Image.merge("RGB", [GREY, GREY, GREY.rotate(180)]),
        "small.png": GREY.resize((20, 15)),
        "mask.jpg": GREY,
    }
    for name, mask in masks.items():
        mask.save(name)
    frame = pd.DataFrame({"image_uri": "photo.png", "mask_uri": [*masks, "grey.png"]})
    frame.loc[len(masks), "image_uri"] = "turned.png"
    schema = Schema(image_uri=ImageKind(), mask_uri=Mask())
    rejected, noted = agree(frame.assign(split="TRAIN"), schema=schema)
    words = {"check/mask_channels": 1, "check/mask_size": 1, "check/mask_format": 1}
    assert rejected == words
    assert noted == {"mask": 1, "turned": 1}


def test_of_boxes_and_stated_sizes() -> None:
    names = ["plain.jpg", "half.jpg", "other.jpg", "turned.jpg", "outside.jpg"]
    sizes = [(40, 30), (80, 60), (40, 40), (40, 30), (40, 30)]
    folder = Path("coco")
    (folder / "images").mkdir(parents=True)
    images, boxes = [], []
    for number, (name, (width, height)) in enumerate(zip(names, sizes, strict=True)):
        path = str(folder / "images" / name)
        with_exif(GREY, path) if name == "turned.jpg" else GREY.save(path)
        stated = {"width": width, "height": height} if name != "outside.jpg" else {}
        images.append({"id": number, "file_name": name, **stated})
        right = 20 if stated else 60
        boxes.append(annotation(number, 1, [10, 5, right, 10]))
    path = folder / "annotations/instances_train.json"
    coco_file(path, images=images, annotations=boxes, categories=[{"id": 1, "name": "a"}])
    rejected, noted = agree("coco")
    assert rejected == {"check/stated_size": 1, "check/box_outside": 1}
    assert noted == {"scaled": 1, "turned": 1}


def test_a_notebook_shows_the_pictures_of_bad_rows() -> None:
    hostile = "<script>alert(1)</script>.png"
    Path(hostile.partition("/")[0]).mkdir()
    names = [hostile, "same.png", "cut.png", *(f"{number}.png" for number in range(3))]
    for name in names[:2]:
        GREY.save(name)
    Path("cut.png").write_bytes(Path("same.png").read_bytes()[:60])
    for name in names[3:]:
        GREY.rotate(int(name[0]) * 90 + 90).save(name)
    frame = pd.DataFrame({"image_uri": names, "split": ["TRAIN"] * 3 + ["TEST"] * 3})
    report = tfrecorder.validate(frame, check_images=True, progress=False)
    assert {"unusable_image", "exact_copy"} <= {*report["code"]}
    page = report._repr_html_()
    assert page.count('<img src="data:image/jpeg;base64,') == 2  # not of the one cut off
    assert "<figcaption>row 0</figcaption>" in page
    assert "<figcaption>row 1</figcaption>" in page
    assert "<script" not in page
    assert "<img" not in tfrecorder.validate(frame, progress=False)._repr_html_()
