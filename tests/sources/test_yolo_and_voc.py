"""YOLO's and Pascal VOC's folders as sources: boxes, splits, classes, and what is wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.annotation_cases import voc, yolo
from PIL import Image as Pictures

import tfrecorder
from tfrecorder.errors import SourceError

EDGES = ["x_min", "y_min", "x_max", "y_max"]


NAMED = "names: {0: dog, 1: a cat}\n"
LABELS = {
    "images/train/one.jpg": "1 0.5 0.5 1 1\n0 0.25 0.5 0.1 0.2\n",
    "images/train/two words.jpg": "",
    "images/val/three.jpg": "0 0.1 0.2 0.5 0.3 0.4 0.9\n",
}


def frame_of(source: Any, **options: Any) -> pd.DataFrame:
    tfrecorder.convert(source, "out", progress=False, max_reject_fraction=0, **options)
    return tfrecorder.to_frame("out").sort_index()


@pytest.mark.parametrize("source", ["set", "set/data.yaml"])
def test_a_folder_of_yolo_gives_boxes_in_the_order_of_its_classes(source: str) -> None:
    """With a box on all edges, an image without objects, and a polygon."""
    yolo("set", f"path: /not/here\ntrain: images/train\nval: images/val\n{NAMED}", LABELS)
    frame = frame_of(source)
    assert frame.image_uri.tolist() == [*LABELS]
    assert frame.split.tolist() == ["TRAIN", "TRAIN", "VALIDATION"]
    assert frame.label.tolist() == [["a cat", "dog"], [], ["dog"]]
    boxes = [list(zip(*row, strict=True)) for row in frame[EDGES].to_numpy()]
    assert boxes[0][0] == (0, 0, 1, 1)
    assert boxes[0][1] == pytest.approx((0.2, 0.4, 0.3, 0.6))
    assert boxes[2] == [pytest.approx((0.1, 0.2, 0.5, 0.9))]
    assert tfrecorder.info("out").class_names == ("dog", "a cat")


def test_where_roboflow_lists_and_label_studio_have_their_images() -> None:
    config = "train: ../train/images\nval: list.txt\nnames: [dog, a cat]\n"
    lines = {"train/images/a.jpg": "0 .5 .5 .1 .1\n", "more/images/b.jpg": "1 .5 .5 .1 .1\n"}
    yolo("set", config, lines)
    Path("set/list.txt").write_text("./more/images/b.jpg\n")
    frame = frame_of("set")
    assert frame.label.tolist() == [["dog"], ["a cat"]]
    assert frame.split.tolist() == ["TRAIN", "VALIDATION"]
    yolo("studio", "", {"images/a.jpg": "1 .5 .5 .1 .1\n"})
    os.remove("studio/data.yaml")
    Path("studio/classes.txt").write_text("dog\na cat\n")
    assert tfrecorder.validate("studio").empty


def test_every_wrong_line_of_yolo_is_named() -> None:
    lines = "5 .5 .5 .1 .1\n0 .5 .5 .1\nx .5 .5 .1 .1\n0 .9 .5 .4 .1\n\n0 .5 .5 0 .1\n"
    yolo("set", f"train: images/train\n{NAMED}", {"images/train/a.jpg": lines})
    report = tfrecorder.validate("set")
    codes = ["bad_annotation"] * 3 + ["box_outside", "empty_box"]
    assert report.code.tolist() == codes
    messages = "".join(report.message)
    assert "a.txt, line 1: there is no class 5; the classes are 0 to 1" in messages
    assert "line 2: it has 3 numbers after its class" in messages
    assert "line 3: it holds something other than numbers" in messages


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("names: [a, a]\ntrain: images\n", "each once"),
        ("names: {1: a}\ntrain: images\n", "each once"),
        (f"train: elsewhere\n{NAMED}", "which is not there"),
        (NAMED, "no images found"),
        ("a: [", "not sound YAML"),
    ],
)
def test_a_data_yaml_that_says_nothing_is_named_in_one_line(config: str, words: str) -> None:
    yolo("set", config, {"images/a.jpg": ""})
    with pytest.raises(SourceError, match=words) as caught:
        tfrecorder.validate("set")
    assert "\n" not in str(caught.value)


def test_a_folder_of_images_beside_another_yaml_is_a_folder_of_images() -> None:
    yolo("set", "train: images\n", {"dog/a.jpg": ""})
    assert tfrecorder.validate("set").code.tolist() == ["few_images"]
    with pytest.raises(SourceError, match="no `names` of classes"):
        tfrecorder.validate("set/data.yaml")


def listed(name: str, *stems: str) -> None:
    path = Path(f"voc/ImageSets/{name}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{stem}\n" for stem in stems))


def test_a_folder_of_pascal_voc_gives_boxes_as_they_are_stated() -> None:
    voc("a", ("dog", 1, 1, 1, 40, 20), ("cat", 0, 3.5, 4, 10, 11))
    voc("two words")
    voc("c", ("cat", 0, 1, 1, 41, 20))
    listed("Main/train", "a", "c  1")
    listed("Main/val", "two words")
    listed("Main/trainval", "a", "two words", "c")
    frame = frame_of("voc")
    assert frame.image_uri.tolist() == [
        f"JPEGImages/{name}.jpg" for name in ("a", "c", "two words")
    ]
    assert frame.split.tolist() == ["TRAIN", "TRAIN", "VALIDATION"]
    assert frame.label.tolist() == [["dog", "cat"], ["cat"], []]
    assert frame.difficult.tolist() == [[1, 0], [0], []]
    assert frame.x_max.tolist() == [[40, 10], [40], []]


def test_classes_of_pixels_of_pascal_voc_are_asked_for_by_the_schema() -> None:
    for stem in "ab":
        voc(stem, ("dog", 0, 1, 1, 40, 20))
    mask = Pictures.new("P", (40, 20), 3)
    mask.putpalette([*range(256)] * 3)
    Path("voc/SegmentationClass").mkdir()
    mask.save("voc/SegmentationClass/b.png")
    listed("Segmentation/val", "b")
    schema = {"split": "split", "image_uri": "image", "mask_uri": "mask"}
    tfrecorder.convert("voc", "out", schema=schema, progress=False)
    ((_, classes),) = tfrecorder.Records("out", "VALIDATION")
    assert classes.shape == (20, 40, 1)
    assert (classes == 3).all()


def test_every_fault_of_pascal_voc_is_found_at_once() -> None:
    voc("a", ("dog", 0, 1, 1, 45, 20), ("dog", 0, 5, 5, 5, 9), ("dog", 0, "x", 1, 2, 2))
    voc("b")
    Path("voc/Annotations/b.xml").write_text("<annotation>")
    report = tfrecorder.validate("voc", splits={"TRAIN": 1})
    assert sorted(report.code) == ["bad_annotation", "bad_box", "box_outside", "empty_box"]
    assert "b.xml is not sound XML" in "".join(report.message)


@pytest.mark.parametrize("root", ["exif", 'annotation xmlns="http://a.b"'])
def test_xml_of_another_root_is_not_an_image_without_objects(root: str) -> None:
    voc("a", ("dog", 0, 1, 1, 9, 9))
    voc("b", ("dog", 0, 1, 1, 9, 9))
    path = Path("voc/Annotations/b.xml")
    end = root.partition(" ")[0]
    text = path.read_text(encoding="utf-8").replace("<annotation>", f"<{root}>")
    path.write_text(text.replace("</annotation>", f"</{end}>"), encoding="utf-8")
    report = tfrecorder.validate("voc", splits={"TRAIN": 1})
    assert [*report.query("severity == 'error'").code] == ["bad_annotation"]
    assert "b.xml is not Pascal VOC's: it holds" in "".join(report.message)
