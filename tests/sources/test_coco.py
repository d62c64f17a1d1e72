"""COCO's JSON as a source: boxes, captions, splits, where the images are, and what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.annotation_cases import (
    ANNOTATIONS,
    CATEGORIES,
    annotation,
    coco_file,
    picture,
    pictures,
)
from helpers.reading_cases import READERS
from helpers.record_laws import check_records
from support import examples, invoke, shards

import tfrecorder
from tfrecorder.errors import OptionError, SourceError
from tfrecorder.schema import Boxes, Image, Number, Schema


def converted(source: Any, **options: Any) -> Any:
    """The frame of the dataset that a source becomes, in the order of the source."""
    tfrecorder.convert(source, "out", progress=False, max_reject_fraction=0, **options)
    return tfrecorder.to_frame("out").sort_index()


def test_boxes_are_those_of_pycocotools() -> None:
    """With a crowd, ids with gaps, an image without boxes, a path of Windows, boxes on the edge."""
    coco = pytest.importorskip("pycocotools.coco")
    pictures("set/images")
    theirs = coco.COCO(str(coco_file("set/annotations/instances_train.json")))
    frame = converted("set")
    assert frame.split.tolist() == ["TRAIN"] * 3
    assert frame.image_uri.tolist() == [
        "images/one.jpg",
        "images/two words.png",
        "images/sub/three.jpg",
    ]
    for row in frame.to_dict("records"):
        wanted = theirs.loadAnns(theirs.getAnnIds(imgIds=[row["image_id"]]))
        names = [theirs.loadCats(one["category_id"])[0]["name"] for one in wanted]
        assert row["label"] == names
        assert row["is_crowd"] == [one["iscrowd"] for one in wanted]
        assert row["area"] == [np.float32(one["area"]) for one in wanted]
        image = theirs.loadImgs(row["image_id"])[0]
        for place, (x, y, w, h) in enumerate(one["bbox"] for one in wanted):
            edges = [row[name][place] for name in ("x_min", "y_min", "x_max", "y_max")]
            end = [min(x + w, image["width"]), min(y + h, image["height"])]
            assert edges == pytest.approx([x, y, *end], abs=1e-3)
    assert tfrecorder.info("out").class_names == ("dog", "a cat", "zebra")
    check_records("out")


def test_the_keys_are_those_of_tensorflow_s_tools() -> None:
    pictures(".")
    converted(coco_file("instances_train.json"))
    every = [example for shard in shards("out") for example in examples(shard)]
    (record,) = [record for record in every if list(record["image_id"]) == [11]]
    assert list(record["image/object/is_crowd"]) == [0, 0]
    assert list(record["image/object/area"]) == pytest.approx([1200, 37.4 * 26])
    assert list(record["image/object/class/label"]) == [1, 0]


@pytest.mark.parametrize("images", ["", "images", "train2017", "images/train2017"])
def test_images_are_found_where_people_keep_them(images: str) -> None:
    pictures(Path("set", images))
    coco_file("set/annotations/instances_train2017.json")
    frame = converted("set/annotations/instances_train2017.json")
    assert frame.image_uri[0] == "/".join(filter(None, [images, "one.jpg"]))


def test_base_says_where_the_images_are() -> None:
    pictures("elsewhere")
    frame = converted(coco_file("set/labels.json"), base="elsewhere", splits={"TRAIN": 1})
    assert frame.image_uri[0] == "one.jpg"
    assert frame.split.tolist() == ["TRAIN"] * 3


@pytest.mark.slow
def test_files_of_several_splits_are_one_dataset() -> None:
    """As COCO has them, by a folder, a pattern and a list; and as Roboflow has them."""
    for split in ("train", "val"):
        pictures(f"set/images/{split}2017")
        coco_file(f"set/annotations/instances_{split}2017.json")
        pictures(f"flat/{split}")
        coco_file(f"flat/{split}/_annotations.coco.json")
    named = [f"set/annotations/instances_{split}2017.json" for split in ("train", "val")]
    frames = [
        tfrecorder.to_frame(tfrecorder.convert(source, f"out{place}", progress=False).output_dir)
        for place, source in enumerate(["set", "set/annotations/*.json", named, "flat"])
    ]
    for frame in frames:
        assert frame.groupby("split").size().to_dict() == {"TRAIN": 3, "VALIDATION": 3}
    assert frames[0].equals(frames[1])
    assert frames[1].equals(frames[2])
    assert sorted(frames[3].image_uri)[0] == "train/one.jpg"


def test_captions_beside_boxes_are_one_row_an_image() -> None:
    pictures(".")
    texts = [(300, "a street"), (11, "two dogs"), (300, "seen at night")]
    captions = [{"id": n, "image_id": n, "caption": text} for n, text in texts]
    files = [coco_file("instances_train.json")]
    files.append(coco_file("captions_train.json", annotations=captions, categories=[]))
    frame = converted(files)
    assert frame.caption.tolist() == [["two dogs"], [], ["a street", "seen at night"]]
    assert frame.label.tolist() == [["a cat", "dog"], [], ["zebra"]]
    alone = tfrecorder.validate(files[1])
    assert alone.empty, alone


def test_every_fault_is_found_at_once_with_its_image() -> None:
    source = coco_file(
        "instances_train.json",
        annotations=[
            *ANNOTATIONS,
            annotation(12, 3, [0, 0, 1, 1]),
            annotation(11, 4, [0, 0, 1, 1]),
            annotation(11, 3, [0, 0, 45, 30]),
            annotation(300, 3, [5, 5, 0, 4]),
            {"image_id": 300, "category_id": 3, "bbox": "wide"},
            annotation(300, 8, [5, 5, 1, 4]),
        ],
        categories=[*CATEGORIES, {"id": 8, "name": "dog"}],
    )
    report = tfrecorder.validate(source)
    rows = report.row.astype(object).where(report.row.notna(), None)
    assert sorted(zip(report.code, map(str, rows), strict=True)) == [
        ("bad_annotation", "0"),
        ("bad_annotation", "None"),
        ("bad_annotation", "None"),
        ("bad_box", "2"),
        ("box_outside", "0"),
        ("empty_box", "2"),
    ]
    assert "no image has the id 12" in "".join(report.message)
    assert "no category has the id 4" in "".join(report.message)
    assert "annotations[7]: the box (nan, nan, nan, nan) of 'a cat' on 'sub/three" in "".join(
        report.message
    )
    box = "the box (0, 0, 45, 30) of 'a cat' on 'one.jpg' is beyond its 40 x 30"
    assert f"{Path(source).resolve()}: annotations[5]: {box}" in [*report.message]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "not COCO's JSON"),
        ('{"annotations": []}', "not COCO's JSON"),
        ('{"images": [{"id": 1}]}', "images have id and file_name"),
        ('{"images": [], "annotations": [{"id": [1]}]}', "annotations image_id"),
        ('{"images": [], "annotations": [{"image_id": [1]}]}', "annotations image_id"),
        ('{"images": [', "not sound JSON"),
        ('{"images": [' + "[" * 100_000, "not sound JSON"),
    ],
)
def test_what_is_not_coco_is_named_in_one_line(text: str, words: str) -> None:
    Path("labels.json").write_text(text)
    with pytest.raises(SourceError, match=words) as caught:
        tfrecorder.validate("labels.json")
    assert "\n" not in str(caught.value)


def test_a_name_that_is_not_unicode_is_reported_with_its_image() -> None:
    images = [{"id": 11, "file_name": "\ud800.jpg"}, {"id": 300, "file_name": "/c.jpg"}]
    source = coco_file("labels.json", images=images)
    report = tfrecorder.validate(source)
    assert (report.code[0], report.row[0]) == ("bad_text", 0)


def test_it_has_no_columns_to_rename_and_no_separator() -> None:
    coco_file("labels.json")
    result = invoke("validate", "labels.json", "--column", "a=label")
    assert "COCO's JSON has no columns to rename" in result.output
    assert "COCO's JSON has none" in invoke("validate", "labels.json", "--sep", ";").output


def test_the_shell_validates_and_says_what_is_wrong() -> None:
    coco_file("labels.json", annotations=[annotation(12, 3, [0, 0, 1, 1])])
    result = invoke("validate", "labels.json")
    assert result.exit_code == 1
    assert "no image has the id 12" in result.output
    assert "boxes:\n  kind: boxes" in invoke("schema", "labels.json").output


def test_a_schema_keeps_what_it_names_in_the_order_of_the_file() -> None:
    pictures(".")
    schema = Schema(image_uri=Image(), objects=Boxes(unit="pixel", background_class=True))
    tfrecorder.convert(coco_file("a.json"), "out", schema=schema, progress=False)
    assert tfrecorder.info("out").class_names == ("background", "dog", "a cat", "zebra")


# ----------------------------------------------------------------- other values of each box


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_values_of_boxes_go_with_their_boxes(reader: str) -> None:
    """A box that a crop leaves out takes its values along, when written and when read."""
    picture(Path("wide.png"), 90, 30)
    images = [{"id": 1, "file_name": "wide.png", "width": 90, "height": 30}]
    boxes = [[0, 0, 20, 20], [40, 5, 10, 10], [70, 0, 20, 30]]
    annotations = [annotation(1, 7, box, area=n) for n, box in enumerate(boxes)]
    source = coco_file("instances_train.json", images=images, annotations=annotations)
    tfrecorder.convert(source, "whole", progress=False)
    tfrecorder.convert(source, "cut", image_size=30, resize="crop", progress=False)
    chosen: Any = {"targets": ["boxes", "area"], "image_size": 30}
    for out, resize in (("whole", "crop"), ("cut", "stretch")):
        _, targets = READERS[reader](out, resize=resize, **chosen)[0]
        assert np.asarray(targets["area"]).tolist() == [1]
        assert len(targets["boxes"]["boxes"]) == 1
    assert tfrecorder.to_frame("cut").area.tolist() == [[1.0]]
    _, targets = READERS[reader]("whole", max_boxes=4, **chosen)[0]
    assert np.asarray(targets["area"]).tolist() == [0, 1, 2, 0]


def test_values_of_boxes_that_are_rows_of_a_csv_come_back_as_rows() -> None:
    picture(Path("a.png"), 40, 40)
    Path("boxes.csv").write_text(
        "split,image_uri,label,x_min,y_min,x_max,y_max,seen\n"
        "TRAIN,a.png,cat,1,2,30,40,0.5\nTRAIN,a.png,dog,3,4,5,6,0.25\n"
    )
    schema = {"split": "split", "image_uri": "image", "boxes": {"kind": "boxes", "unit": "pixel"}}
    schema["seen"] = {"kind": "number", "of": "boxes"}
    frame = converted("boxes.csv", schema=schema)
    assert frame.seen.tolist() == [0.5, 0.25]
    assert json.loads(json.dumps(tfrecorder.info("out").options["schema"])) == schema | {
        "seen": {"kind": "number", "shape": [None], "of": "boxes"}
    }


def test_lists_of_other_lengths_than_the_boxes_are_named() -> None:
    schema = Schema(image_uri=Image(), boxes=Boxes(label=None), area=Number(of="boxes"))
    low, high = [[0.1, 0.1]], [[0.2, 0.2]]
    edges = {"x_min": low, "y_min": low, "x_max": high, "y_max": high}
    frame = pd.DataFrame({"image_uri": ["a.jpg"], **edges, "area": [[1.0]]})
    report = tfrecorder.validate(frame, schema=schema)
    assert report.code[0] == "bad_box"
    assert report.column[0] == "area"
    with pytest.raises(OptionError, match="there is no Boxes"):
        Schema(image_uri=Image(), area=Number(of="boxes"))
