"""Folders as other tools leave them: what they are is told by what their files say."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.annotation_cases import OBJECT, annotation, picture
from PIL import Image as Pictures
from sources.source_cases import judged, report_of, source_of
from support import invoke

import tfrecorder
from tfrecorder.errors import OptionError, PackageError, SourceError, is_installed

SPLITS = {"": "TRAIN", "train": "TRAIN", "training": "TRAIN", "test": "TEST"}
SPLITS |= dict.fromkeys(("val", "valid", "validation"), "VALIDATION")

CATEGORIES = [{"id": 4, "name": "car"}]


def put(path: str, text: str, encoding: str = "utf-8") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(text.encode(encoding))


def pictures(*paths: str) -> None:
    for path in paths:
        picture(Path(path), 40, 20)


def xml(path: str, filename: str = "", encoding: str = "utf-8") -> None:
    """An XML file of Pascal VOC's form with one object."""
    size = "<size><width>40</width><height>20</height></size>"
    text = f"<filename>{filename}</filename>{size}{OBJECT.format('cat', 0, 4, 4, 30, 20)}"
    put(path, f'<?xml version="1.0"?><annotation verified="no">{text}</annotation>', encoding)


def coco(path: str, *names: str) -> None:
    images = [{"id": at, "file_name": name} for at, name in enumerate(names)]
    boxes = [annotation(at, 4, [4, 4, 20, 10]) for at, _ in enumerate(names)]
    lists = {"images": images, "categories": CATEGORIES, "annotations": boxes}
    put(path, json.dumps({"info": {"year": 2026}, **lists}))


def rows_of(source: str, *names: str, **options: Any) -> list[tuple[Any, ...]]:
    """The split and the path of each image, and the classes of its objects or other columns."""
    read = source_of(source, **options)
    assert [*report_of(judged(read)).query("severity == 'error'").message] == []
    splits = [SPLITS[cell.lower()] for cell in read.frame.get("split", [""] * len(read.frame))]
    columns = [[*map(plain, read.frame[name])] for name in ("image_uri", *(names or ["label"]))]
    return [*zip(splits, *columns, strict=True)]


def plain(cell: Any) -> Any:
    return cell.tolist() if isinstance(cell, np.ndarray) else cell


@pytest.mark.parametrize(
    ("image", "file", "split"),
    [
        ("images/a.jpg", "annotations/a.xml", "TRAIN"),
        ("a b.jpeg", "a b.xml", "TRAIN"),
        ("x/images/a.png", "x/images/a.xml", "TRAIN"),
        ("valid/a.jpg", "valid/a.xml", "VALIDATION"),
        ("JPEGImages/a.jpg", "Annotations/test/a.xml", "TEST"),
        ("jpegimages/a.JPG", "ANNOTATIONS/a.XML", "TRAIN"),
        ("test/images/a.jpg", "test/annotations/xmls/a.xml", "TEST"),
    ],
)
def test_xml_of_pascal_voc_is_found_wherever_it_lies(image: str, file: str, split: str) -> None:
    pictures(f"in/{image}")
    xml(f"in/{file}")
    put("in/README.txt", "Some cats.")
    assert rows_of("in") == [(split, image, ["cat"])]


def test_equal_stems_in_two_folders_are_each_other_s_pictures() -> None:
    for folder in ("train", "test"):
        pictures(f"in/images/{folder}/a.jpg")
        xml(f"in/annotations/{folder}/a.xml", "a.jpg")
    assert rows_of("in") == [
        ("TEST", "images/test/a.jpg", ["cat"]),
        ("TRAIN", "images/train/a.jpg", ["cat"]),
    ]


def test_an_xml_is_of_the_picture_of_its_own_stem() -> None:
    """`filename` counts where there is none, and never gives two files one picture."""
    pictures("in/a.jpg", "in/b.png", "in/c (copy).jpg")
    xml("in/a.xml", "b.png")
    xml("in/b.xml", "b.jpg")
    xml("in/c.xml", "C:\\data\\c (copy).jpg")
    assert rows_of("in") == [(*at, ["cat"]) for at in (("TRAIN", "a.jpg"), ("TRAIN", "b.png"))] + [
        ("TRAIN", "c (copy).jpg", ["cat"])
    ]


def test_images_that_pascal_voc_lists_are_records_without_xml_too() -> None:
    pictures(*(f"in/JPEGImages/{number}.jpg" for number in range(5)))
    xml("in/Annotations/0.xml")
    xml("in/Annotations/4.xml")
    put("in/ImageSets/Main/train.txt", "0\n1\n9\n")
    put("in/ImageSets/Main/val.txt", "2 -1\n4\n")
    result = tfrecorder.convert("in", "out", splits={"TRAIN": 1}, progress=False)
    frame = tfrecorder.to_frame("out").sort_index()
    assert frame.label.tolist() == [["cat"], ["cat"], [], []]
    assert frame.split.tolist() == ["TRAIN", "VALIDATION", "TRAIN", "VALIDATION"]
    assert "1 image without annotations, 1 listed image that is not there" in str(result)


def test_each_tree_of_pascal_voc_has_its_own_lists() -> None:
    for year, stem in (("VOC2007", "a"), ("VOC2012", "a"), ("VOC2012", "2007_b")):
        pictures(f"in/{year}/JPEGImages/{stem}.jpg")
        xml(f"in/{year}/Annotations/{stem}.xml")
    put("in/VOC2007/ImageSets/Main/train.txt", "a\n")
    put("in/VOC2012/ImageSets/Main/train.txt", "2007_b\n")
    put("in/VOC2012/ImageSets/Main/val.txt", "a\n")
    assert [(split, uri[:7], uri[-5:]) for split, uri, _ in rows_of("in")] == [
        ("TRAIN", "VOC2007", "a.jpg"),
        ("TRAIN", "VOC2012", "b.jpg"),
        ("VALIDATION", "VOC2012", "a.jpg"),
    ]


@pytest.mark.parametrize("name", ["a b", "a b.jpg", "JPEGImages/a b.jpg"])
@pytest.mark.parametrize("folder", ["ImageSets", "ImageSets/Main", "imagesets/main"])
def test_lists_of_pascal_voc_may_lie_above_and_name_files(folder: str, name: str) -> None:
    pictures("in/JPEGImages/a b.jpg", "in/JPEGImages/c.v2.jpg")
    xml("in/Annotations/a b.xml")
    xml("in/Annotations/c.v2.xml")
    put(f"in/{folder}/train.txt", "c.v2\n")
    put(f"in/{folder}/val.txt", f"{name}\n")
    assert [(split, uri[11:]) for split, uri, _ in rows_of("in")] == [
        ("VALIDATION", "a b.jpg"),
        ("TRAIN", "c.v2.jpg"),
    ]


@pytest.mark.parametrize("name", ["z", "a1"])
def test_a_picture_is_one_row_whatever_names_it(name: str) -> None:
    """Its list, an XML file of another name, and another such file."""
    pictures("in/JPEGImages/a1.jpg")
    xml("in/Annotations/z.xml", "a1.jpg")
    xml("in/more/z.xml", "a1.jpg")
    put("in/ImageSets/Main/val.txt", f"{name}\n")
    assert rows_of("in") == [("VALIDATION", "JPEGImages/a1.jpg", ["cat"])]


@pytest.mark.parametrize("name", ["result.json", "annotations/result.json", "images/labels.json"])
@pytest.mark.parametrize("stated", ["images/a b.png", "..\\..\\media\\a b.png", "/mnt/4/a b.png"])
def test_json_of_coco_is_recognised_by_its_lists(name: str, stated: str) -> None:
    pictures("in/images/a b.png")
    coco(f"in/{name}", stated)
    assert rows_of("in") == [("TRAIN", "images/a b.png", ["car"])]


@pytest.mark.parametrize("source", ["in", "in/train.json"])
def test_json_of_coco_without_boxes_is_named_once(source: str) -> None:
    pictures("in/train/cat/a.jpg", "in/train/dog/b.jpg")  # as in iNaturalist
    coco("in/train.json", "train/cat/a.jpg", "train/dog/b.jpg")
    document = json.loads(Path("in/train.json").read_text(encoding="utf-8"))
    for entry in document["annotations"]:
        del entry["bbox"]
    put("in/train.json", json.dumps(document))
    with pytest.raises(SourceError, match=r"train\.json: none of its 2 annotations has a `bbox`"):
        tfrecorder.validate(source)
    assert [label for *_, label in rows_of("in", form="folder")] == ["cat", "dog"]


def test_a_path_of_another_machine_may_need_its_folder() -> None:
    pictures("in/train/a.png", "in/val/a.png")
    coco("in/train.json", "D:\\x\\train\\a.png")
    coco("in/val.json", "D:\\x\\val\\a.png")
    assert rows_of("in") == [
        ("TRAIN", "train/a.png", ["car"]),
        ("VALIDATION", "val/a.png", ["car"]),
    ]


def test_a_name_that_several_images_have_is_asked_for() -> None:
    pictures("in/train/a.png", "in/val/a.png")
    coco("in/result.json", "D:\\x\\a.png")
    words = r"'D:/x/a.png' .* 2 have its name: train/a.png, val/a.png.*`base`"
    with pytest.raises(SourceError, match=words):
        tfrecorder.validate("in")
    assert rows_of("in/result.json", base="in/val") == [("TRAIN", "a.png", ["car"])]
    coco("in/instances_validation.json", "D:\\x\\a.png")
    assert rows_of("in/instances_validation.json") == [("VALIDATION", "val/a.png", ["car"])]


def test_a_base_is_searched_by_name_too() -> None:
    pictures("in/images/a.png")
    coco("in/result.json", "..\\..\\media\\a.png")
    assert rows_of("in/result.json", base="in/images") == [("TRAIN", "a.png", ["car"])]


LINE = "0 .5 .5 .25 5e-1\n"


def test_what_cvat_writes_for_darknet() -> None:
    """Lists and names are stated from a folder `data`, which the archive does not have."""
    pictures("in/obj_train_data/a.jpg", "in/obj_train_data/x/b.jpg", "in/obj_valid_data/c.jpg")
    put("in/obj_train_data/a.txt", LINE)
    put("in/obj_train_data/x/b.txt", "")
    put("in/obj_valid_data/c.txt", LINE)
    put("in/obj.names", "a car\n")
    lists = "train = data/train.txt\nvalid = data/valid.txt\nnames = data/obj.names\n"
    put("in/obj.data", f"classes = 1\n{lists}backup = backup/\n")
    put("in/train.txt", "data/obj_train_data/a.jpg\ndata/obj_train_data/x/b.jpg\n")
    put("in/valid.txt", "data/obj_valid_data/c.jpg\n")
    assert rows_of("in") == [
        ("TRAIN", "obj_train_data/a.jpg", ["a car"]),
        ("TRAIN", "obj_train_data/x/b.jpg", []),
        ("VALIDATION", "obj_valid_data/c.jpg", ["a car"]),
    ]


def test_darknet_s_own_folders() -> None:
    """Where its program starts lies above both the settings and the images."""
    pictures("in/data/obj/a.jpg")
    put("in/data/obj/a.txt", LINE)
    put("in/data/obj.names", "car\n")
    put("in/cfg/obj.data", "train = data/train.txt\nnames = data/obj.names\n")
    put("in/data/train.txt", "data/obj/a.jpg\n")
    assert rows_of("in") == [("TRAIN", "data/obj/a.jpg", ["car"])]


@pytest.mark.parametrize("name", ["obj.names", "classes.txt"])
@pytest.mark.parametrize("folder", ["in", "in/images", "in/train"])
def test_names_of_classes_beside_images_and_their_lines(folder: str, name: str) -> None:
    pictures(f"{folder}/a.jpg", f"{folder}/b.jpg")
    put(f"{folder}/a.txt", LINE)
    put(f"{folder}/{name}", "car\n")
    start = f"{folder}/".removeprefix("in/")
    assert rows_of("in") == [("TRAIN", f"{start}a.jpg", ["car"]), ("TRAIN", f"{start}b.jpg", [])]


def test_each_folder_of_labelimg_has_its_names() -> None:
    for folder in ("train", "test"):
        pictures(f"in/{folder}/a.jpg")
        put(f"in/{folder}/a.txt", LINE)
        put(f"in/{folder}/classes.txt", "car\n")
    assert rows_of("in") == [("TEST", "test/a.jpg", ["car"]), ("TRAIN", "train/a.jpg", ["car"])]
    put("in/test/classes.txt", "bus\ncar\n")
    with pytest.raises(SourceError, match=r"train/classes.txt .* test/classes.txt"):
        tfrecorder.validate("in")


@pytest.mark.parametrize("names", [["classes.txt"], ["labels/classes.txt"]])
def test_names_of_classes_may_lie_in_labels_and_splits_in_folders(names: list[str]) -> None:
    for split in ("train", "val"):
        pictures(f"in/images/{split}/a.jpg")
        put(f"in/labels/{split}/a.txt", LINE)
    for name in names:
        put(f"in/{name}", "car\n")
    expected = [
        ("TRAIN", "images/train/a.jpg", ["car"]),
        ("VALIDATION", "images/val/a.jpg", ["car"]),
    ]
    assert rows_of("in") == expected


def test_each_folder_of_labels_has_its_names() -> None:
    for split in ("train", "val"):
        pictures(f"in/images/{split}/a.jpg")
        put(f"in/labels/{split}/a.txt", LINE)
        put(f"in/labels/{split}/classes.txt", "car\n")
    expected = [
        ("TRAIN", "images/train/a.jpg", ["car"]),
        ("VALIDATION", "images/val/a.jpg", ["car"]),
    ]
    assert rows_of("in") == expected


def test_a_test_set_that_roboflow_names_may_be_missing() -> None:
    pictures("in/train/images/a.jpg", "in/valid/images/b.jpg")
    put("in/train/labels/a.txt", LINE)
    put("in/valid/labels/b.txt", LINE)
    lines = [f"{key}: ../{name}/images" for key, name in (("train", "train"), ("val", "valid"))]
    put("in/data.yaml", "\n".join([*lines, "test: ../test/images", "names: [car]"]))
    assert [split for split, *_ in rows_of("in")] == ["TRAIN", "VALIDATION"]
    (note,) = source_of("in").notes
    assert "data.yaml names '../test/images', which is not there: looked for" in note
    put("in/data.yaml", "\n".join([lines[0], "val: ../val/images", "names: [car]"]))
    with pytest.raises(SourceError, match=r"'\.\./val/images', which is not there"):
        tfrecorder.validate("in")


def test_a_settings_file_of_ultralytics_below_the_folder() -> None:
    pictures("in/set/images/a.jpg")
    put("in/set/labels/a.txt", LINE)
    put("in/set/coco8.yaml", "train: images\nnames:\n  0: car\n")
    assert rows_of("in") == [("TRAIN", "set/images/a.jpg", ["car"])]


@pytest.mark.parametrize(
    ("top", "below"),
    [
        ("{}", ""),
        ("images/{}", ""),
        ("{}/images", ""),
        ("Images/{}", "x/"),
        ("{}/JPEGImages", "x/"),
    ],
)
def test_splits_without_classes_and_folders_that_are_no_class(top: str, below: str) -> None:
    """A folder that only says that pictures are in it is a class where it has siblings alone."""
    paths = [f"{top.format(split)}/{below}a.jpg" for split in ("Training", "val", "test")]
    pictures(*(f"in/{path}" for path in paths))
    names = ("label",) if below else ("image_uri",)
    found = {(split, path, *more) for split, path, *more in rows_of("in", *names)}
    splits = dict(zip(("TRAIN", "VALIDATION", "TEST"), paths, strict=True))
    assert found == {(split, path, "x" if below else path) for split, path in splits.items()}


def test_a_folder_named_images_beside_another_is_a_class() -> None:
    pictures("in/images/a.jpg", "in/drawings/b.jpg")
    assert [label for *_, label in rows_of("in")] == ["drawings", "images"]
    pictures("alone/photos/a.jpg", "alone/photos/b.jpg")
    assert "label" not in source_of("alone").frame


def test_a_test_set_may_lack_the_labels_of_the_others() -> None:
    pictures("in/train/cat/a.jpg", "in/val/images/cat/c.jpg", "in/test/b.jpg")
    with pytest.raises(SourceError, match=r"'val/images/cat/c.jpg' is not at .* metadata\.csv"):
        tfrecorder.validate("in")
    shutil.rmtree("in/val")
    assert rows_of("in") == [("TEST", "test/b.jpg", ""), ("TRAIN", "train/cat/a.jpg", "cat")]
    pictures("in/train/c.jpg")
    with pytest.raises(SourceError, match=r"'train/c.jpg' is not at .* metadata\.csv"):
        tfrecorder.validate("in")


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("images/training", "annotations/training"),
        ("images", "masks"),
        ("train/images", "train/masks"),
        ("JPEGImages/train", "SegmentationClass/train"),
        ("img", "labels"),
    ],
)
def test_pictures_and_masks_of_equal_names_are_pairs(images: str, masks: str) -> None:
    for name in ("a", "b.c"):
        pictures(f"in/{images}/{name}.jpg", f"in/{masks}/{name}.png")
    pairs = [(f"{images}/{name}.jpg", f"{masks}/{name}.png") for name in ("a", "b.c")]
    assert [row[1:] for row in rows_of("in", "mask_uri")] == pairs
    assert repr(source_of("in").schema).count("mask_uri=Mask()") == 1
    pictures(f"in/{images}/c.jpg", f"in/{masks}/c_mask.png")
    with pytest.raises(SourceError, match=r"2 of 6 files .*c.jpg.* image_uri and mask_uri"):
        tfrecorder.validate("in")


def test_pictures_and_masks_are_stored_together() -> None:
    Path("in/masks").mkdir(parents=True)
    pictures("in/images/a.jpg")
    Pictures.new("L", (40, 20), 3).save("in/masks/a.png")
    tfrecorder.convert("in", "out", splits={"TRAIN": 1}, progress=False)
    ((_, classes),) = tfrecorder.Records("out", "TRAIN")
    assert (classes == 3).all()


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
@pytest.mark.parametrize("key", ["categories", "category", "label"])
def test_objects_of_metadata_are_boxes(name: str, key: str) -> None:
    pictures("in/train/a.jpg", "in/train/b.jpg")
    objects = {"bbox": [[4, 4, 26, 12], [0, 0, 1, 1]], key: ["car", "bus"], "id": [7, 8]}
    lines = [{"file_name": "a.jpg", "objects": objects}, {"file_name": "b.jpg", "objects": None}]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    if name == "metadata.csv":
        quoted = json.dumps(objects).replace('"', '""')
        text = f'file_name,objects\na.jpg,"{quoted}"\nb.jpg,\n'
    put(f"in/train/{name}", text)
    edges = ("x_min", "y_min", "x_max", "y_max")
    assert rows_of("in", "label", *edges) == [
        ("TRAIN", "train/a.jpg", ["car", "bus"], [4, 0], [4, 0], [30, 1], [16, 1]),
        ("TRAIN", "train/b.jpg", [], [], [], [], []),
    ]
    assert source_of("in").left_out == ("objects.id",)
    assert repr(tfrecorder.infer_schema("in")).count("boxes=Boxes(unit='pixel')") == 1


def test_objects_whose_lists_do_not_fit_are_named_by_their_row() -> None:
    pictures("in/a.jpg", "in/b.jpg")
    sound = '{"file_name":"b.jpg","objects":{"bbox":[[1,1,2,2]],"category":[0]}}'
    put("in/metadata.jsonl", '{"file_name":"a.jpg","objects":{"bbox":[],"category":[0]}}\n' + sound)
    report = tfrecorder.validate("in")
    assert report.code.tolist()[:1] == ["bad_annotation"]
    assert report.row.tolist()[:1] == [0]


SHAPES = json.dumps({"version": "5", "shapes": [{"label": "cat", "points": [[1, 2], [3, 4]]}]})
VIA = json.dumps({"a.jpg12": {"filename": "a.jpg", "regions": [{"shape_attributes": {"x": 1}}]}})
CREATE_ML = json.dumps([{"image": "a.jpg", "annotations": [{"label": "cat", "coordinates": {}}]}])
CVAT = '<annotations><image id="0" name="x/a.jpg"><box label="cat" xtl="1"/></image></annotations>'


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("x/a.json", SHAPES, "LabelMe"),
        ("via_project.json", VIA, "VIA"),
        ("x/_annotations.createml.json", CREATE_ML, "CreateML"),
        ("annotations.xml", CVAT, "export them as COCO"),
        ("x/a.txt", "0 .5 .5 .2 .2\n", "classes.txt"),
        ("x/a.txt", "1 2 30 2 30 9 1 9 large-vehicle 0\n", "export them"),
        ("labelTxt/a.txt", "Car 0.00 0 -1.5 5.0 1.3 6.2 2.1 1.6 1.6 3.5\n", "export them"),
        ("train.txt", "x/a.jpg 3\nx/b.jpg 4\n", "as the source.*train.txt"),
        ("train.txt", "./in/x/a.jpg 4,4,30,20,0 1,1,2,2,0\n", "export them"),
        ("labels.csv", "id,breed,species\na,x,dog\n", "as the source.*labels.csv"),
        ("boxes.csv", "a.jpg,1,1,9,9,cat\n", "as the source.*boxes.csv"),
        ("t.csv", "filename,region_count,xmin\na.jpg,1,4\n", "as the source.*t.csv"),
        ("via.csv", "filename,region_shape_attributes\na.jpg,{}\n", "as the source.*via.csv"),
        ("x/_classes.csv", "filename, cat, dog\na.jpg, 1, 0\n", "as the source"),
        ("x/_annotations.csv", "a.jpg,1,1,9,9,cat\n", "as the source.*_annotations.csv"),
        ("metadata.csv", "filename,label\na.jpg,cat\n", "as the source.*metadata.csv"),
        ("metadata.jsonl", '{"image": "a.jpg", "label": "cat"}\n', "as the source.*metadata.jsonl"),
        ("ann/a.jpg.json", '{"objects": [{"classTitle": "cat", "points": {}}]}', "export them"),
        ("labels.csv", "file,label\nx/a.jpg,x\nb.jpg,x\n", "as the source"),
        (
            "train.csv",
            "id,breed\na,pug\nb,boxer\n",
            "paths such as 'x/a.jpg' into a column image_uri",
        ),
        ("labels.csv", "label,file\nred,x/a.jpg\nblue,y/b.jpg\n", "as the source"),
        ("labels.csv", "at,image_id,label\n0,a,cat\n1,b,dog\n", "paths such as"),
        ("all.json", '[{"file": "x/a.jpg", "category": "cat"}]', "into a CSV"),
    ],
)
def test_annotations_that_are_not_read_are_refused_by_name(
    file: str,
    text: str,
    words: str,
) -> None:
    pictures("in/x/a.jpg", "in/y/b.jpg")
    put(f"in/{file}", text)
    with pytest.raises(
        SourceError, match=rf"in/{file}: holds annotations .*{words}.*form"
    ) as caught:
        tfrecorder.validate("in")
    assert "\n" not in str(caught.value)
    assert [label for *_, label in rows_of("in", form="folder")] == ["x", "y"]


DOTA = "imagesource:GoogleEarth\ngsd:0.1\n4 5 30 5 30 9 4 9 large-vehicle 0\n"
KITTI = "Car 0.00 0 -1.5 5.0 1.3 6.2 2.1 1.6 1.6 3.5 1.8 1.5 8.4 0.01\n"
LABEL_ME = "<annotation><object><polygon><pt><x>1</x></pt></polygon></object></annotation>"


@pytest.mark.parametrize(
    ("form", "image", "file", "text"),
    [
        ("cityscapes", "gtFine/train/b/b_gtFine_color.png", "README.txt", "By b."),
        ("cvat", "images/a.jpg", "train.xml", CVAT),
        (
            "datumaro",
            "images/train/a.jpg",
            "annotations/train.json",
            '{"dm_format_version": "1.0"}',
        ),
        ("dota", "train/images/a.jpg", "train/labelTxt/a.txt", DOTA),
        ("kitti", "training/image_2/a.png", "training/label_2/a.txt", KITTI),
        ("kitti_segmentation", "training/semantic_rgb/a.png", "README.txt", ""),
        ("label_me", "Images/x/a.jpg", "Annotations/x/a.xml", LABEL_ME),
        ("market1501", "bounding_box_train/a.jpg", "README.txt", ""),
        ("mot_seq", "img1/000001.jpg", "gt/gt.txt", "1,1,4,5,20,10,1,1,1\n"),
        (
            "open_images",
            "images/train/a.jpg",
            "annotations/train-annotations-bbox.csv",
            "ImageID,Source,LabelName\na,x,/m/1\n",
        ),
        (
            "wider_face",
            "WIDER_train/images/0--Parade/a.jpg",
            "wider_face_split/wider_face_train_bbx_gt.txt",
            "0--Parade/a.jpg\n1\n4 5 20 10\n",
        ),
    ],
)
def test_a_form_that_datumaro_reads_is_refused_with_its_name(
    form: str, image: str, file: str, text: str
) -> None:
    pictures(f"in/{image}", "in/others/z.jpg")
    put(f"in/{file}", text)
    put("in/annotations/classes.json", '{"LabelName": "x"}')  # as beside Open Images
    with pytest.raises(SourceError, match=rf"Datumaro reads: give `form='datumaro:{form}'`"):
        tfrecorder.validate("in")
    (line,) = invoke("validate", "in").output.splitlines()
    assert f"--form datumaro:{form}" in line


def test_xml_alone_is_sent_to_its_folder() -> None:
    pictures("in/x/a.jpg")
    put("in/all.xml", CVAT)
    with pytest.raises(SourceError, match=r"in/all\.xml' is XML; give the folder of its images"):
        tfrecorder.validate("in/all.xml")
    with pytest.raises(SourceError, match="datumaro:cvat"):
        tfrecorder.validate("in")


def test_a_form_of_datumaro_names_the_extra_that_brings_it() -> None:
    pictures("in/a.jpg")
    if is_installed("datumaro"):
        pytest.skip("it is installed")
    with pytest.raises(PackageError, match=r'pip install "tfrecorder-images\[datumaro\]"'):
        tfrecorder.convert("in", "out", form="datumaro:kitti", progress=False)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("x/a.json", '{"iso": 100, "lens": "50mm", "labels": [], "class": null}'),
        ("x/a.txt", "A cat on a mat, 3 of 4.\n"),
        ("x/a.xml", "<exif><iso>100</iso></exif>"),
        ("README.txt", "Pictures such as a.jpg, by me.\n"),
        ("LICENSE.txt", "1 2 3 4 5\n"),
        ("captions.csv", "image,caption\na.jpg,A cat\n"),
        ("captions.txt", "a.jpg\tA cat sits there\n"),
        ("train.txt", "x/a.jpg\ny/b.jpg\n"),
        ("cameras.csv", "file,date,camera\na.jpg,2026-01-01,X100\n"),
        ("classes.txt", "x\ny\n"),
        ("checksums.csv", f"file,md5\nx/a.jpg,{'0a' * 16}\ny/b.jpg,{'0a' * 16}\n"),
        ("SHA256SUMS.txt", f"{'0a' * 32}  x/a.jpg\n"),
        ("labels.csv", "filename,label\na.jpg,x\nb.jpg,y\n"),
        ("labels.csv", "id,class\na,x\nb,y\n"),
        ("list.txt", "./x/a.jpg x\n./y/b.jpg y\n"),
        ("package.json", '{"name": "x", "labels": ["pets"]}'),
        ("labels.csv", '"label","file"\n"x","x\\a.jpg"\n"y","y/b.jpg"\n'),
        ("captions.csv", "id,caption\na,a pug on grass\nb,two dogs there\n"),
        ("x/a.json", "{broken"),
        ("x/a.json", ""),
        ("notes.json", "\0\1\2"),
    ],
)
def test_files_without_boxes_or_classes_do_not_stop_a_class_folder(file: str, text: str) -> None:
    pictures("in/x/a.jpg", "in/y/b.jpg")
    put(f"in/{file}", text)
    assert [label for *_, label in rows_of("in")] == ["x", "y"]
    assert source_of("in").passed_over["not images"] == 1
    words = f"not read: 1 .{file.rpartition('.')[2]}"
    assert source_of("in").notes == [f"{words}, without boxes or classes"]
    assert source_of("in", form="folder").notes == [words]


def test_a_list_of_numbered_classes_is_not_of_numbered_images() -> None:
    pictures(*(f"in/{label}/{number}.jpg" for label in "xy" for number in (0, 1)))
    put("in/labels.csv", "0,cat\n1,dog\n")
    assert [label for *_, label in rows_of("in")] == ["x", "x", "y", "y"]


def test_folders_of_pictures_and_of_copies_are_no_classes_unless_asked() -> None:
    pictures("in/images/cat/a.jpg", "in/images/dog/b.jpg", "one/images/a.jpg")
    assert [label for *_, label in rows_of("in", form="folder")] == ["cat", "dog"]
    assert [label for *_, label in rows_of("one", form="folder")] == ["images"]
    pictures("in/images/Thumbs/a.jpg")
    with pytest.raises(SourceError, match=r"in/images/Thumbs: by its name, .*form='folder'"):
        tfrecorder.validate("in")
    assert [label for *_, label in rows_of("in", form="folder")] == ["Thumbs", "cat", "dog"]


def test_annotations_are_named_before_folders_that_are_no_classes() -> None:
    pictures("in/part/img/a.jpg")
    put("in/part/ann/a.jpg.json", SHAPES)
    with pytest.raises(SourceError, match=r"ann/a\.jpg\.json: holds annotations in LabelMe's form"):
        tfrecorder.validate("in")


def test_boxes_in_pixels_beside_names_of_classes_are_not_of_yolo() -> None:
    pictures("in/images/001.Crow/a.jpg", "in/images/002.Gull/b.jpg")  # as in CUB-200
    put("in/classes.txt", "1 001.Crow\n2 002.Gull\n")
    put("in/bounding_boxes.txt", "1 4.0 4.0 20.0 20.0\n2 4.0 4.0 20.0 20.0\n")
    assert [label for *_, label in rows_of("in")] == ["001.Crow", "002.Gull"]


def test_one_file_of_annotations_among_many_of_a_camera_is_found() -> None:
    pictures("in/x/a.jpg", "in/y/b.jpg")
    for number in range(400):
        put(f"in/x/IMG_{number}.json", '{"iso": 100}')
        Path(f"in/x/IMG_{number}.jpg").touch()
    put("in/x/zz.json", CREATE_ML)
    with pytest.raises(SourceError, match=r"zz\.json"):
        tfrecorder.validate("in")
    Path("in/x/zz.json").unlink()
    (note,) = source_of("in").notes
    assert re.fullmatch(r"not read: 400 \.json, .* classes; \d\d of 400 were looked at", note)


def test_the_form_is_chosen_where_files_allow_several() -> None:
    pictures("in/images/a.jpg")
    put("in/labels/a.txt", LINE)
    put("in/data.yaml", "train: images\nnames: [bike]\n")
    xml("in/annotations/a.xml")
    coco("in/result.json", "images/a.jpg")
    put("in/metadata.csv", "file_name,label\nimages/a.jpg,sky\n")
    found = {form: rows_of("in", form=form)[0][-1] for form in ("coco", "yolo", "voc", "metadata")}
    assert found == {"coco": ["car"], "yolo": ["bike"], "voc": ["cat"], "metadata": "sky"}
    assert rows_of("in", form="folder") == [("TRAIN", "images/a.jpg", "images")]
    with pytest.raises(
        OptionError, match=r"form='masks'.*it lacks a folder of pictures and one of"
    ):
        tfrecorder.validate("in", form="masks")
    with pytest.raises(OptionError, match="give one of 'coco', 'yolo'"):
        tfrecorder.validate("in", form="labelme")


@pytest.mark.parametrize("form", ["coco", "yolo", "voc", "metadata", "masks", "folder"])
def test_a_form_is_of_a_folder_or_its_files(form: str) -> None:
    put("a.csv", "image_uri\na.jpg\n")
    with pytest.raises(OptionError, match=f"form='{form}'"):
        tfrecorder.validate("a.csv", form=form)


def test_the_commands_take_a_form() -> None:
    pictures("in/images/a.jpg", "in/images/b.jpg")
    pictures("in/masks/a.png", "in/masks/b.png")
    assert "mask_uri: mask" in invoke("schema", "in").output
    assert "label: label" in invoke("schema", "in", "--form", "folder").output
    assert invoke("validate", "in", "--form", "voc").exit_code == 2
    assert tfrecorder.infer_schema("in", form="folder").columns.keys() == {"image_uri", "label"}


@pytest.mark.parametrize(
    "heading",
    [
        "filename,width,height,class,xmin,ymin,xmax,ymax",
        "image_path,width,height,label,x1,y1,x2,y2",
        "Image,w,h,Class Name,XMin,YMin,XMax,YMax",
        "file_name,w,h,category,left,top,right,bottom",
        "image_uri,w,h,label,x_min,y_min,x_max,y_max",
    ],
)
def test_boxes_under_their_usual_names(heading: str) -> None:
    pictures("in/a.jpg", "in/b.jpg")
    put("in/a.csv", f"{heading}\na.jpg,40,20,car,1,2,3,4\na.jpg,40,20,bus,2,2,4,4\n")
    frame = source_of("in/a.csv").frame
    assert frame.label.tolist() == ["car", "bus"]
    assert frame[["image_uri", "x_min", "y_min", "x_max", "y_max"]].to_numpy().tolist() == [
        ["a.jpg", "1", "2", "3", "4"],
        ["a.jpg", "2", "2", "4", "4"],
    ]
    by_pandas = pd.read_csv("in/a.csv")
    assert source_of(by_pandas, base="in").frame.label.tolist() == ["car", "bus"]
    put("schema.yaml", invoke("schema", "in/a.csv").output)
    assert source_of("in/a.csv", schema="schema.yaml").frame.x_max.tolist() == ["3", "4"]


def test_a_schema_of_boxes_names_the_likely_column_of_images() -> None:
    put("in/a.csv", "ImageID,LabelName,XMin,XMax,YMin,YMax\na1,/m/01,.1,.5,.2,.6\n")
    put("schema.yaml", invoke("schema", "in/a.csv").output)
    read = source_of("in/a.csv", schema="schema.yaml")
    assert [str(read.schema.columns["ImageID"]), read.frame.x_max.tolist()] == ["Image()", [".5"]]
    put("in/b.csv", "scan,LabelName,XMin,XMax,YMin,YMax\na1,/m/01,.1,.5,.2,.6\n")
    with pytest.raises(SourceError, match=r"boxes, but no column 'image_uri'.*'scan'"):
        tfrecorder.infer_schema("in/b.csv")


def test_columns_that_a_table_has_already_keep_their_meaning() -> None:
    """Without all four edges, or with ours among them, nothing is renamed."""
    for heading in (
        "image_uri,label,class,xmin,ymin",
        "image_uri,label,x1,x_min,y_min,x_max,y_max",
    ):
        put("a.csv", f"{heading}\na.jpg,car,{','.join('123456'[: heading.count(',') - 1])}\n")
        assert source_of("a.csv").frame.label.tolist() == ["car"]
    put("a.csv", "image_uri,label,class,xmin,ymin,xmax,ymax\na.jpg,car,7,1,2,3,4\n")
    read = source_of("a.csv")
    assert read.frame.label.tolist() == ["car"]
    assert read.left_out == ("class",)


def test_what_roboflow_writes_for_tensorflow() -> None:
    heading = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
    for split in ("train", "valid"):
        pictures(f"in/{split}/a.jpg", f"in/{split}/b.jpg")
        put(f"in/{split}/_annotations.csv", f"{heading}a.jpg,40,20,car,1,2,30,4\n")
    assert rows_of("in") == [
        ("TRAIN", "train/a.jpg", "car"),
        ("VALIDATION", "valid/a.jpg", "car"),
    ]
    assert source_of("in").passed_over["images without a row"] == 2
