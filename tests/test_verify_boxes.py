"""`verify` of boxes and masks, also of images that were changed when they were written: what the
record alone shows, and what the plan's boxes may have become."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from damage import flip, forge
from kind_cases import convert
from PIL import Image as Pictures
from support import SAMPLES

import tfrecorder
from tfrecorder import Boxes, Image, Mask, Schema, Split

#: The fixture `written`.
Written = Callable[..., Path]

COFFEE = sorted(SAMPLES.glob("photos/coffee/*.jpg"))
SHARD = "train-00000-of-00001.tfrecord"
EDGES = ("xmin", "ymin", "xmax", "ymax")
CLASSES = ("cat", "cup", "eye")

#: What is done to the images, and whether the plan then tells where boxes of each unit are.
TRANSFORMS: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "none": ({}, True, True),
    "png": ({"image_format": "png"}, True, True),
    "upright": ({"apply_exif": True}, True, True),
    "short side": ({"image_size": 48}, True, False),
    "stretch": ({"image_size": (40, 64)}, True, False),
    "fit": ({"image_size": (40, 64), "image_fit": "fit"}, True, False),
    "stretch upright": ({"image_size": (40, 64), "apply_exif": True}, True, False),
    "raw": ({"image_size": (40, 64), "image_format": "raw"}, True, False),
    "crop": ({"image_size": (40, 64), "image_fit": "crop"}, False, False),
    "pad": ({"image_size": (40, 64), "image_fit": "pad"}, False, False),
}


def turned(path: Path, orientation: int) -> str:
    """A photograph stored with an EXIF orientation, and its mask as wide and as high."""
    name = f"turned_{orientation}.jpg"
    exif = Pictures.Exif()
    exif[0x0112] = orientation
    Pictures.open(path).crop((0, 0, 90, 70)).save(name, exif=exif)
    return name


def table(unit: str) -> pd.DataFrame:
    """Images with several boxes each, of every orientation and of several sizes."""
    numbers = np.random.default_rng(3)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("image_uri", "mask_uri", "label", *EDGES)
    }
    for number, path in enumerate([*COFFEE[:4], *COFFEE[:8]]):
        uri = str(path) if number < 4 else turned(path, number - 3)
        width, height = Pictures.open(uri).size
        mask = f"mask_{number}.png"
        Pictures.fromarray(numbers.integers(0, 3, (height, width), np.uint8)).save(mask)
        count = int(numbers.integers(2, 5))
        start, end = numbers.uniform(0, 0.45, (count, 2)), numbers.uniform(0.55, 1, (count, 2))
        boxes = np.hstack([start, end])
        boxes = boxes * [width, height, width, height] if unit == "pixel" else boxes
        columns["image_uri"].append(uri)
        columns["mask_uri"].append(mask)
        columns["label"].append([CLASSES[one % 3] for one in range(count)])
        for name, edge in zip(EDGES, boxes.T, strict=True):
            columns[name].append(edge.tolist())
    return pd.DataFrame(columns).assign(split="TRAIN")


def schema(unit: str, labelled: bool = True) -> Schema:
    boxes = Boxes(columns=EDGES, unit=unit, label="label" if labelled else None)
    return Schema(split=Split(), image_uri=Image(), mask_uri=Mask(), objects=boxes)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Gives a copy of the dataset of a transform and a unit, which is converted once."""
    made: dict[Any, Path] = {}

    def copy(transform: str, unit: str, labelled: bool = True) -> Path:
        case = transform, unit, labelled
        if case not in made:
            frame = table(unit) if labelled else table(unit).drop(columns="label")
            kept = tmp_path_factory.mktemp("written") / "out"
            stated = schema(unit, labelled)
            convert(frame, kept, schema=stated, num_shards=1, **TRANSFORMS[transform][0])
            made[case] = kept
        shutil.rmtree("out", ignore_errors=True)
        return Path(shutil.copytree(made[case], "out"))

    return copy


def faults(out: Path) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in tfrecorder.verify(out).found]


@pytest.mark.parametrize("unit", ["fraction", "pixel"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_clean_dataset_is_clean_whatever_was_done_to_its_images(
    written: Written, transform: str, unit: str
) -> None:
    assert faults(written(transform, unit)) == []


def set_values(key: str, change: Callable[[Any], Any]) -> Callable[[list[dict[str, Any]]], None]:
    """A forgery of one key of the sixth record."""

    def forgery(examples: list[dict[str, Any]]) -> None:
        examples[5][key] = change(examples[5][key])

    return forgery


def lose_a_box(examples: list[dict[str, Any]]) -> None:
    for key, values in examples[5].items():
        if key.startswith("image/object/"):
            examples[5][key] = values[1:]


def move_a_box(examples: list[dict[str, Any]]) -> None:
    for edge in ("xmin", "xmax"):
        values = examples[5][f"image/object/bbox/{edge}"]
        values[1] = values[1] - 0.01 if edge == "xmin" else values[1] - 0.02


def other_class(examples: list[dict[str, Any]]) -> None:
    examples[5]["image/object/class/label"][0] = 2
    examples[5]["image/object/class/text"][0] = b"eye"


@pytest.mark.parametrize("unit", ["fraction", "pixel"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_boxes_that_are_not_what_was_planned_are_found(
    written: Written, transform: str, unit: str
) -> None:
    _, *known = TRANSFORMS[transform]
    found = {}
    for change in (lose_a_box, move_a_box, other_class):
        out = written(transform, unit)
        forge(out, change, SHARD)
        found[change] = [words for code, words in faults(out) if code == "row"]
    assert "objects: the classes of its boxes are ['eye'" in found[other_class][0]
    if transform != "crop":  # where any box may have been cut off
        assert "boxes, but" in found[lose_a_box][0] or "the classes" in found[lose_a_box][0]
    if known[unit == "pixel"]:
        assert "objects: box 1 is (" in found[move_a_box][0]


@pytest.mark.parametrize("transform", ["none", "stretch", "crop"])
def test_boxes_without_classes_are_counted(written: Written, transform: str) -> None:
    out = written(transform, "fraction", labelled=False)
    assert faults(out) == []

    def one_more(examples: list[dict[str, Any]]) -> None:
        for key, values in examples[5].items():
            if key.startswith("image/object/"):
                examples[5][key] = np.append(values, values[:1])

    forge(out, one_more, SHARD)
    assert [words for code, words in faults(out) if code == "row"]


@pytest.mark.parametrize("transform", ["none", "pad"])
@pytest.mark.parametrize(
    ("key", "change", "code", "words"),
    [
        ("bbox/xmax", lambda edges: edges * 0 + 1.25, "boxes", "is no box within 0 to 1"),
        ("bbox/ymin", lambda edges: edges * 0 - 0.5, "boxes", "is no box within 0 to 1"),
        ("bbox/ymin", lambda edges: edges * 0 + 1, "boxes", "is no box within 0 to 1"),
        ("bbox/xmin", lambda edges: edges * np.nan, "boxes", "is no box within 0 to 1"),
        ("bbox/xmin", lambda edges: edges[:-1], "boxes", "its lists have different lengths"),
        ("class/label", lambda labels: labels * 0 + 7, "label", "label 7 is none of the 3"),
        ("class/text", lambda texts: [b"dog"] * len(texts), "label", "but the text is 'dog'"),
    ],
)
def test_what_is_no_box_within_the_image_is_found_by_the_record_alone(
    written: Written, transform: str, key: str, change: Any, code: str, words: str
) -> None:
    out = written(transform, "pixel")
    forge(out, set_values(f"image/object/{key}", change), SHARD)
    assert any(words in message for found, message in faults(out) if found == code)


@pytest.mark.parametrize("transform", ["none", "pad", "raw"])
def test_a_mask_of_another_size_than_its_image_is_found_by_the_record_alone(
    written: Written, transform: str
) -> None:
    out = written(transform, "fraction")
    Pictures.new("L", (30, 20)).save("other.png")
    other = [Path("other.png").read_bytes()]
    forge(out, set_values("image/segmentation/class/encoded", lambda _: other), SHARD)
    assert any(
        code == "shape" and "mask_uri: the mask has [20, 30] pixels, the image [" in words
        for code, words in faults(out)
    )


def test_a_byte_that_flips_in_the_plan_of_typed_rows_is_no_crash(written: Written) -> None:
    out, numbers = written("none", "pixel"), random.Random(1)
    plan = out / "_tfrecorder/plan.parquet"
    data = plan.read_bytes()
    found = 0
    for _ in range(200):
        plan.write_bytes(flip(data, numbers.randrange(len(data)), numbers.randrange(1, 256)))
        faults = tfrecorder.verify(out).found
        assert {fault.file for fault in faults} <= {"_tfrecorder/plan.parquet"}
        found += bool(faults)
    assert found > 50
