"""Forms of annotations that Datumaro reads: what they say is stored, or named with its count."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_cases import picture
from PIL import Image as Pictures
from support import invoke, public_files

import tfrecorder
from tfrecorder.errors import OptionError, RejectedError, SourceError, is_installed

pytestmark = [pytest.mark.engines, pytest.mark.slow]

if not is_installed("datumaro"):
    pytest.skip("datumaro is not installed", allow_module_level=True)


def put(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def frame_of(source: Any, **options: Any) -> Any:
    tfrecorder.convert(source, "out", progress=False, overwrite=True, **options)
    return tfrecorder.to_frame("out").sort_values("image_uri").reset_index(drop=True)


def boxes_in(frame: Any) -> list[list[tuple[Any, ...]]]:
    """The class and the edges of each box, by image."""
    names = ["label", "x_min", "y_min", "x_max", "y_max"]
    rows = (zip(*cells, strict=True) for cells in frame[names].itertuples(index=False))
    return [[(label, *map(float, edges)) for label, *edges in row] for row in rows]


# ---------------------------------------------------------------------------------------------
# Trees as their makers publish them.


def kitti() -> None:
    picture(Path("in/training/image_2/000000.png"), 64, 48)
    picture(Path("in/training/image_2/000001.png"), 64, 48)
    end = "1.89 0.48 1.20 1.84 1.47 8.41 0.01"
    lines = f"Car 0.00 0 -0.20 4.00 5.00 30.50 20.25 {end}\nDontCare -1 -1 -10 40 2 60 9 {end}\n"
    put("in/training/label_2/000000.txt", lines)
    put("in/training/label_2/000001.txt", f"Pedestrian 0.50 2 -0.20 1 2 13 44 {end}\n")


def cvat() -> None:
    picture(Path("in/images/a.jpg"), 64, 48)
    picture(Path("in/images/b.jpg"), 64, 48)
    labels = "".join(f"<label><name>{name}</name></label>" for name in ("Car", "Pedestrian"))
    box = '<box label="Car" occluded="0" xtl="4" ytl="5" xbr="30.5" ybr="20.25" z_order="0"/>'
    shape = '<polygon label="Pedestrian" occluded="1" points="1,2;13,2;13,44" z_order="0"/>'
    lines = '<polyline label="Car" occluded="0" points="1,2;13,2" z_order="0"/>'
    images = f'<image id="0" name="a.jpg" width="64" height="48">{box}</image>'
    images += f'<image id="1" name="b.jpg" width="64" height="48">{shape}{lines}</image>'
    task = f"<meta><task><labels>{labels}</labels></task></meta>"
    put("in/default.xml", f"<annotations><version>1.1</version>{task}{images}</annotations>")


def label_me() -> None:
    for name, label, points in (
        ("a", "Car", [(4, 5), (30.5, 5), (30.5, 20.25), (4, 20.25)]),
        ("b", "Pedestrian", [(1, 2), (13, 2), (13, 44)]),
    ):
        picture(Path(f"in/Images/train/{name}.jpg"), 64, 48)
        corners = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in points)
        shape = f"<polygon><username>me</username>{corners}</polygon>"
        text = f"<name>{label}</name><deleted>0</deleted><verified>0</verified><occluded>no"
        text += f"</occluded><attributes/><parts><hasparts/><ispartof/></parts><id>0</id>{shape}"
        head = f"<filename>{name}.jpg</filename><folder>train</folder>"
        size = "<imagesize><nrows>48</nrows><ncols>64</ncols></imagesize>"
        xml = f"<annotation>{head}<object>{text}</object>{size}</annotation>"
        put(f"in/Annotations/train/{name}.xml", xml)


def open_images() -> None:
    picture(Path("in/images/train/a.jpg"), 100, 50)
    picture(Path("in/images/validation/b.jpg"), 100, 50)
    put("in/annotations/class-descriptions.csv", "/m/1,Car\n/m/2,Pedestrian\n")
    tree = {"LabelName": "/m/0", "Subcategory": [{"LabelName": "/m/1"}, {"LabelName": "/m/2"}]}
    put("in/annotations/bbox_labels_600_hierarchy.json", json.dumps(tree))
    flags = "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
    heading = f"ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,{flags}\n"
    row = "a,xclick,/m/1,1,0.04,0.305,0.1,0.405,0,0,0,0,0\n"
    put("in/annotations/train-annotations-bbox.csv", heading + row)
    row = "b,xclick,/m/2,1,0.01,0.13,0.04,0.88,1,0,0,0,0\n"
    put("in/annotations/validation-annotations-bbox.csv", heading + row)
    heading = "ImageID,Source,LabelName,Confidence\n"
    put(
        "in/annotations/train-annotations-human-imagelabels.csv",
        heading + "a,v,/m/1,1\na,v,/m/2,0\n",
    )


def dota() -> None:
    picture(Path("in/train/images/P0.png"), 64, 48)
    picture(Path("in/train/images/P1.png"), 64, 48)
    head = "imagesource:GoogleEarth\ngsd:0.146\n"
    put("in/train/labelTxt/P0.txt", f"{head}4 5 30.5 5 30.5 20.25 4 20.25 Car 0\n")
    put("in/train/labelTxt/P1.txt", f"{head}1 2 13 2 13 44 1 44 Pedestrian 1\n")


EDGES = [(4.0, 5.0, 30.5, 20.25), (1.0, 2.0, 13.0, 44.0)]

#: By the form: the tree, what is not stored of how many, and its names of the classes.
TREES: dict[str, tuple[Callable[[], None], dict[str, int], tuple[str, str]]] = {
    "kitti": (kitti, {"the attribute 'truncated'": 2}, ("Car", "Pedestrian")),
    "cvat": (cvat, {"the attribute 'occluded'": 1, "lines": 1, "masks": 1}, ("Car", "Pedestrian")),
    "label_me": (label_me, {"masks": 2, "the attribute 'username'": 2}, ("Car", "Pedestrian")),
    "open_images": (open_images, {"classes that are not there": 1}, ("/m/1", "/m/2")),
    "dota": (dota, {"rotations": 2, "the attribute 'difficulty'": 1}, ("Car", "Pedestrian")),
}


@pytest.mark.parametrize("form", TREES)
def test_a_tree_as_its_makers_publish_it(form: str) -> None:
    tree, said, names = TREES[form]
    tree()
    with pytest.raises(SourceError, match=f"give `form='datumaro:{form}'`"):
        tfrecorder.validate("in")
    frame = frame_of("in", form=f"datumaro:{form}")
    first, second = boxes_in(frame)
    expected = [(name, *edges) for name, edges in zip(names, EDGES, strict=True)]
    for found, wanted in zip([first[0], *second], expected, strict=True):
        assert found[0] == wanted[0]
        assert found[1:] == pytest.approx(wanted[1:], abs=0.01)
    assert len(first) == 1 + (form == "kitti")  # what KITTI does not care for is a class of its own
    assert sorted({*frame["split"]}) == (
        ["TRAIN", "VALIDATION"] if form == "open_images" else ["TRAIN"]
    )
    (not_stored,) = [" ".join(tfrecorder.info("out").not_stored)]
    for what, count in said.items():
        assert f"{what} of {count} object" in not_stored


SCHEMA = {"split": {"kind": "split", "required": False}, "image_uri": "image"}
AREAS = {**SCHEMA, "boxes": {"kind": "boxes", "unit": "pixel", "masks": "segmentation"}}


def test_the_area_of_a_turned_box_is_stored_where_a_schema_asks() -> None:
    picture(Path("in/train/images/P0.png"), 64, 48)
    put("in/train/labelTxt/P0.txt", "32 4 52 24 32 44 12 24 Car 0\n")  # a square on its corner
    frame = frame_of("in", form="datumaro:dota", schema=AREAS)
    assert [tuple(map(round, edges)) for _, *edges in boxes_in(frame)[0]] == [(12, 4, 52, 44)]
    (encoded,) = tfrecorder.Records("out", "TRAIN", inputs="all")[0]["image/object/mask"]
    drawn = np.asarray(Pictures.open(io.BytesIO(encoded)))
    assert drawn.astype(bool).sum() == pytest.approx(800, rel=0.05)
    assert tfrecorder.info("out").not_stored == ()


# ---------------------------------------------------------------------------------------------
# A law for all that Datumaro writes: every annotation is stored, or named with its count.

MASK = np.zeros((48, 64), bool)
MASK[10:20, 10:31] = True


def annotations_of(number: int) -> dict[str, Any]:
    from datumaro.components import annotation as of

    said = {"occluded": True, "track_id": number + 1}
    return {
        "bbox": of.Bbox(4 + number, 4, 20, 10, label=number % 2, attributes=said),
        "polygon": of.Polygon([4, 4, 20, 4, 20, 16], label=1, group=2),
        "rotated_bbox": of.RotatedBbox(30, 20, 20, 10, 30, label=0),
        "mask": of.Mask(MASK, label=1, group=3, attributes={"track_id": 1}),
        "label": of.Label(number % 2),
        "caption": of.Caption(f"text {number}"),
        "points": of.Points([1, 1, 5, 5], label=0, group=4),
    }


def dataset_of(*kinds: str, in_memory: bool = False) -> Any:
    """Four pictures, three of them to train, with annotations of these types."""
    from datumaro import Dataset, DatasetItem
    from datumaro.components.media import Image

    items = []
    for number in range(4):
        path = f"pictures/{number}.png"
        picture(Path(path), 64, 48)
        pixels = np.asarray(Pictures.open(path))[..., ::-1]
        media = Image.from_numpy(pixels) if in_memory else Image.from_file(path)
        every = annotations_of(number)
        some = [every[kind] for kind in kinds]
        split = "train" if number < 3 else "val"
        items.append(DatasetItem(str(number), subset=split, media=media, annotations=some))
    return Dataset.from_iterable(items, categories=["car", "person"])


EXPORTED = {
    "arrow": ["bbox", "polygon", "points"],
    "camvid": ["mask"],
    "cifar": ["label"],
    "cityscapes": ["mask"],
    "coco": ["bbox", "polygon", "caption"],
    "cvat": ["bbox", "polygon", "rotated_bbox", "mask", "label", "points"],
    "datumaro": ["bbox", "polygon", "mask", "label", "caption", "points"],
    "datumaro_binary": ["bbox"],
    "dota": ["rotated_bbox"],
    "icdar_text_localization": ["bbox"],
    "image_zip": [],
    "imagenet": ["label"],
    "kitti_segmentation": ["mask"],
    "label_me": ["bbox", "polygon", "mask"],
    "market1501": [],
    "mnist": ["label"],
    "mot_seq": ["bbox"],
    "mots": ["mask"],
    "open_images": ["bbox", "label"],
    "segment_anything": ["mask"],
    "vgg_face2": ["bbox", "label"],
    "wider_face": ["bbox"],
}

#: How Datumaro's types are called where they are not stored, if otherwise.
WORDS = {"rotated_bbox": "rotations", "polygon": "masks", "mask": "masks", "points": "key points"}

EXPORTERS = {"mot_seq": "mot_seq_gt", "mots": "mots_png"}


@pytest.mark.parametrize("form", EXPORTED)
@pytest.mark.parametrize("areas", [False, True])
def test_every_annotation_is_stored_or_named_with_its_count(form: str, areas: bool) -> None:
    from datumaro import Dataset

    exporter = EXPORTERS.get(form, form)
    dataset_of(*EXPORTED[form], in_memory=form in ("cifar", "mnist")).export(
        "in", exporter, save_media=True
    )
    items = [*Dataset.import_from("in", form)]
    every = Counter(one.type.name for item in items for one in item.annotations)
    if areas and not every.keys() & {"polygon", "mask", "rotated_bbox"}:
        pytest.skip("no areas")
    if areas and "bbox" in every:
        pytest.skip("an area that is not stated is a fault")
    frame = frame_of("in", form=f"datumaro:{form}", schema=AREAS if areas else None)
    assert len(frame) == len(items)
    not_stored = " ".join(tfrecorder.info("out").not_stored)
    for kind, count in every.items():
        column = {"bbox": "x_min", "caption": "caption", "label": "label"}.get(kind, "")
        if column in frame:
            cells = [*frame[column]]
            found = sum(len(cell) if isinstance(cell, (list, np.ndarray)) else 1 for cell in cells)
            assert found >= count
        elif kind == "label":
            assert "labels" in [*tfrecorder.validate("in", form=f"datumaro:{form}")["column"]]
        elif not areas and "mask_uri" not in frame:
            word = WORDS[kind]
            said = sum(every[other] for other in every if WORDS.get(other) == word)
            assert f"{word} of {said} object" in not_stored
    for attribute, count in Counter(
        key
        for item in items
        for one in item.annotations
        for key, value in one.attributes.items()
        if value
    ).items():
        if attribute != "is_crowd":
            assert f"the attribute {attribute!r} of {count} object" in not_stored


def test_masks_alone_are_the_classes_of_pixels() -> None:
    dataset_of("mask").export("in", "cityscapes", save_media=True)
    result = tfrecorder.convert("in", "out", form="datumaro:cityscapes", progress=False)
    assert "pixels of masks: 0 'background', 1 'car', 2 'person'; the rest 0" in str(result)
    _, mask = tfrecorder.Records("out", "TRAIN")[0]
    assert np.array_equal(np.squeeze(mask), MASK * 2)


def test_a_dataset_of_datumaro_is_a_source() -> None:
    frame = frame_of(dataset_of("bbox", in_memory=True))
    assert boxes_in(frame)[1] == [("person", 5.0, 4.0, 25.0, 14.0)]
    assert [*frame["image_uri"]] == ["0", "1", "2", "3"]
    pixels, _ = tfrecorder.Records("out", "TRAIN")[0]
    name = tfrecorder.Records("out", "TRAIN", inputs="all")[0]["image/filename"].decode()
    assert np.array_equal(pixels, np.asarray(Pictures.open(f"pictures/{name}.png")))


ONE_OBJECT = [("person", 4.0, 4.0, 24.0, 20.0)]


def test_the_parts_of_an_object_are_one_and_two_boxes_are_two() -> None:
    from datumaro import Dataset, DatasetItem
    from datumaro.components.annotation import Bbox, Polygon
    from datumaro.components.media import Image

    picture(Path("a.jpg"), 64, 48)
    corners = ([4, 4, 9, 4, 9, 9], [20, 8, 24, 8, 24, 20])
    parts = [Polygon(points, label=1, group=7) for points in corners]
    pair = [Bbox(1, 1, 5, 5, label=0, group=8), Bbox(9, 9, 5, 5, label=0, group=8)]
    item = DatasetItem("a", media=Image.from_file("a.jpg"), annotations=[*parts, *pair])
    source = Dataset.from_iterable([item], categories=["car", "person"])
    (boxes,) = boxes_in(frame_of(source, splits={"TRAIN": 1}))
    assert boxes == [*ONE_OBJECT, ("car", 1.0, 1.0, 6.0, 6.0), ("car", 9.0, 9.0, 14.0, 14.0)]


# ---------------------------------------------------------------------------------------------
# Its order, its faults, its commands.


def converts(output: str, before: str = "", after: str = "") -> None:
    """A conversion in a new process, with code before and after it."""
    code = f"import tfrecorder; tfrecorder.convert('in', {output!r}, form='datumaro:dota')"
    command = [sys.executable, "-W", "ignore", "-c", f"{before}\n{code}\n{after}"]
    subprocess.run(command, check=True)


#: As on another disk, or after other writes.
LISTED_BACKWARDS = """import os
listed = os.listdir
os.listdir = lambda *path: sorted(listed(*path), reverse=True)"""


def test_its_order_is_not_that_of_a_disk() -> None:
    dataset_of("rotated_bbox").export("in", "dota", save_media=True)
    converts("here")
    converts("there", before=LISTED_BACKWARDS)
    assert public_files("here") == public_files("there")


def test_pandas_is_as_it_was() -> None:
    dataset_of("rotated_bbox").export("in", "dota", save_media=True)
    converts("out", after="import pandas; assert pandas.util")


def test_the_mask_of_an_object_is_stored_where_a_schema_asks() -> None:
    frame = frame_of(dataset_of("mask"), schema=AREAS)
    assert boxes_in(frame)[0] == [("person", 10.0, 10.0, 31.0, 20.0)]
    (encoded,) = tfrecorder.Records("out", "TRAIN", inputs="all")[0]["image/object/mask"]
    drawn = np.asarray(Pictures.open(io.BytesIO(encoded)))
    assert np.array_equal(drawn.astype(bool), MASK)


def test_what_datumaro_passes_over_is_said() -> None:
    dataset_of("bbox").export("in", "kitti_detection", save_media=True)
    dataset_of("mask").export("in", "kitti_segmentation", save_media=True)
    report = str(tfrecorder.validate("in/train", form="datumaro:kitti"))
    assert "Datumaro warns 2 times: Not implemented" in report
    assert os.getcwd() not in report


def test_its_errors_are_in_our_words() -> None:
    kitti()
    put("in/training/label_2/000001.txt", "Car 1 2\n")
    with pytest.raises(SourceError, match=r"in: Datumaro cannot read it datumaro:kitti: Asser"):
        tfrecorder.validate("in", form="datumaro:kitti")
    for form, words in (
        ("datumaro:kiti", "did you mean 'kitti'"),
        ("datumaro:label_me", "Datumaro cannot read it"),
        ("datumaro:roboflow_create_ml", "for a corner"),
    ):
        result = invoke("validate", "in", "--form", form)
        assert result.exit_code != 0
        assert words in result.output
        assert len(result.output.splitlines()) == 1


def test_splits_of_other_classes_have_a_remedy_that_helps() -> None:
    dataset_of("bbox").export("in", "kitti_detection", save_media=True)
    with pytest.raises(SourceError, match="a schema that names all classes, and append the others"):
        tfrecorder.validate("in", form="datumaro:kitti")
    boxes = {"kind": "boxes", "unit": "pixel", "names": ["car", "person"]}
    options: dict[str, Any] = {"form": "datumaro:kitti", "schema": {**SCHEMA, "boxes": boxes}}
    tfrecorder.convert("in/train", "out", progress=False, **options)
    tfrecorder.append("in/val", "out", progress=False, **options)
    tfrecorder.update("in/val", "out", progress=False, **options)
    assert len(tfrecorder.to_frame("out")) == 4


def test_a_file_is_a_source_and_several_are_not() -> None:
    cvat()
    frame = frame_of("in/default.xml", form="datumaro:cvat")
    assert [*frame["image_uri"]] == ["images/a.jpg", "images/b.jpg"]
    shutil.copy("in/default.xml", "in/other.xml")
    for source in ("in/*.xml", ["in/default.xml", "in/other.xml"]):
        with pytest.raises(OptionError, match="reads one folder or file, on a disk"):
            tfrecorder.validate(source, form="datumaro:cvat")
    with pytest.raises(OptionError, match="sep=';'"):
        tfrecorder.validate("in/default.xml", form="datumaro:cvat", sep=";")


def test_classes_beyond_a_byte_are_rejects_and_never_another_class() -> None:
    from datumaro import Dataset, DatasetItem
    from datumaro.components.annotation import Mask
    from datumaro.components.media import Image

    picture(Path("a.png"), 64, 48)
    item = DatasetItem("a", media=Image.from_file("a.png"), annotations=[Mask(MASK, label=299)])
    for first in ("background", "sky"):
        names = [first, *map(str, range(299))]
        source = Dataset.from_iterable([item], categories=names)
        with pytest.raises(RejectedError, match="mask_channels"):
            tfrecorder.convert(source, first, splits={"TRAIN": 1}, progress=False)


def test_the_commands_take_its_forms() -> None:
    kitti()
    kinds = invoke("schema", "in", "--form", "datumaro:kitti").output
    assert "names: [Car, DontCare, Pedestrian]" in kinds
    assert invoke("convert", "in", "out", "--form", "datumaro:kitti").exit_code == 0
    assert invoke("append", "in", "out", "--form", "datumaro:kitti").exit_code == 0
