"""What YOLO's, VOC's and COCO's files say goes in whole, or is named: absence, text, pictures."""

from __future__ import annotations

import codecs
import json
import unicodedata
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.annotation_cases import OBJECT, annotation, picture
from source_cases import source_of

import tfrecorder
from tfrecorder.errors import OptionError, SourceError, TfrecorderError
from tfrecorder.schema import Boxes, Image, Schema

BOX = "0 .5 .5 .5 .5\n"
NFC, NFD = (unicodedata.normalize(form, "thé") for form in ("NFC", "NFD"))


def put(path: str, text: str | bytes, encoding: str = "utf-8") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(text if isinstance(text, bytes) else text.encode(encoding))


def pictures(*paths: str) -> None:
    for path in paths:
        picture(Path(path), 40, 20)


def yolo(lines: dict[str, str | None], config: str = "train: images\nnames: [cat]\n") -> None:
    """Images by the paths of their label files, of which those without lines are not there."""
    put("in/data.yaml", config)
    for path, text in lines.items():
        pictures(f"in/{path.replace('labels', 'images')}.jpg")
        if text is not None:
            put(f"in/{path}.txt", text)


def xml(stem: str, name: str, filename: str = "", more: str = "", head: str = "") -> str:
    size = "<size><width>40</width><height>20</height></size>"
    thing = OBJECT.format(name, 0, 4, 4, 30, 20).replace("</object>", f"{more}</object>")
    text = f"{head}<annotation><filename>{filename or f'{stem}.jpg'}</filename>{size}{thing}"
    return f"{text}</annotation>"


def voc(stem: str, name: str = "cat", encoding: str = "utf-8", **more: str) -> None:
    put(f"in/Annotations/{stem}.xml", xml(stem, name, **more), encoding)


def coco(
    *objects: dict[str, Any],
    images: Any = (),
    categories: Any = ({"id": 1, "name": "cat"},),
) -> str:
    images = images or [{"id": 1, "file_name": "a.jpg", "width": 40, "height": 20}]
    lists = {"images": images, "annotations": objects, "categories": categories}
    put("coco.json", json.dumps(lists))
    return "coco.json"


def said(source: str = "in", **options: Any) -> dict[str, str]:
    """The message of each code that `validate` finds, and its notes under "notes"."""
    report = tfrecorder.validate(source, **options)
    messages = dict(zip(report.code, report.message, strict=True))
    return {**messages, "notes": "\n".join(report.notes)}


def labels_of(source: str = "in") -> list[Any]:
    """The classes of each row."""
    return [[*cell] for cell in source_of(source).frame["label"]]


def stored_labels(source: str = "in") -> list[Any]:
    """The classes of each record."""
    tfrecorder.convert(source, "out", progress=False, splits={"TRAIN": 1}, max_reject_fraction=0)
    return tfrecorder.to_frame("out").sort_index().label.tolist()


# ------------------------------------------------------------------------------- absence


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("images/a.jpg", "images/a.txt"),
        ("Images/a.jpg", "Labels/a.TXT"),
        ("images/train/a.jpg", "labels/Train/a.txt"),
        ("images/x/images/a.jpg", "labels/x/images/a.txt"),
        ("images/x/images/a.jpg", "images/x/labels/a.txt"),
        (f"images/{NFC}.jpg", f"labels/{NFD}.txt"),
        ("pictures/a.jpg", "pictures/a.txt"),
    ],
)
@pytest.mark.parametrize("root", ["in", "images/in"])
def test_label_files_are_found_where_people_keep_them(root: str, image: str, label: str) -> None:
    pictures(f"{root}/{image}")
    put(f"{root}/{label}", BOX)
    put(f"{root}/data.yaml", f"train: {image.rpartition('/')[0]}\nnames: [cat]\n")
    found = said(root)
    assert list(found) == ["notes"]
    assert "classes without an image" not in found["notes"]


def test_no_label_file_at_all_is_an_error_that_says_where_they_were_looked_for() -> None:
    yolo({f"labels/{name}": None for name in "abcdefg"})
    message = said()["no_annotations"]
    assert message.startswith("no label file for 7 of 7 images (images/a.jpg, images/b.jpg, ")
    assert message.endswith("looked for labels/a.txt and images/a.txt")
    with pytest.raises(TfrecorderError, match="no label file for 7 of 7 images"):
        tfrecorder.convert("in", "out", progress=False)


@pytest.mark.parametrize("split", ["val", "test"])
def test_a_split_without_label_files(split: str) -> None:
    config = f"train: images/a\n{split}: images/b\nnames: [cat]\n"
    yolo({"labels/a/1": BOX, "labels/b/2": None, "labels/b/3": None}, config)
    found = said()
    message = found["no_annotations" if split == "val" else "missing_annotations"]
    named = "VALIDATION" if split == "val" else "TEST"
    words = f"no label file for 2 of 2 images of {named} (images/b/2.jpg, images/b/3.jpg); looked"
    assert message.startswith(words)
    assert ("no_annotations" in found) == (split == "val")


def test_a_few_images_without_label_files_are_a_count_and_more_a_finding() -> None:
    yolo({f"labels/{number}": BOX if number > 2 else None for number in range(1, 11)})
    found = said()
    assert list(found) == ["notes"]
    words = "no label file for 2 of 10 images of TRAIN (images/1.jpg, images/2.jpg); looked for "
    assert f"{words}labels/1.txt; they are without objects" in found["notes"]
    Path("in/labels/3.txt").unlink()
    assert "3 of 10 images" in said()["missing_annotations"]


def test_label_files_without_an_image_are_counted() -> None:
    yolo({f"labels/{number}": BOX for number in range(9)})
    put("in/labels/x.txt", BOX)
    put("in/labels/notes.txt", "seen on Monday")
    assert "1 of 10 label files has no image: labels/x.txt" in said()["notes"]
    for name in "uvw":
        put(f"in/labels/{name}.txt", BOX)
    assert "4 of 13 label files have no image" in said()["annotations_without_image"]


def test_images_that_a_list_leaves_out_have_label_files_all_the_same() -> None:
    yolo({f"labels/{name}": BOX for name in "abc"}, "train: list.txt\nnames: [cat]\n")
    put("in/list.txt", "images/a.jpg\n")
    assert list(said()) == ["notes"]
    assert "label file" not in said()["notes"]


def test_images_of_voc_without_xml_and_xml_without_images() -> None:
    pictures(*(f"in/JPEGImages/{number}.jpg" for number in range(9)))
    for number in range(8):
        voc(str(number))
    voc("gone")
    put("in/ImageSets/Main/train.txt", "".join(f"{number}\n" for number in range(9)))
    notes = said()["notes"]
    assert "no XML file for 1 of 9 images of TRAIN (JPEGImages/8.jpg)" in notes
    assert "1 of 9 XML files has no image: Annotations/gone.xml" in notes
    assert labels_of() == [["cat"]] * 8 + [[]]


def test_classes_that_no_image_has_are_a_note() -> None:
    names = [f"c{number}" for number in range(13)]
    yolo({"labels/a": BOX}, f"train: images\nnames: [{', '.join(names)}]\n")
    found = said()
    assert list(found) == ["notes"]
    assert "classes without an image: 12: 'c1', 'c2'" in found["notes"]
    assert "'c10', … 2 more" in found["notes"]


@pytest.mark.parametrize("unused", [0, 3])
def test_an_unused_twin_of_a_category_is_dropped(unused: int) -> None:
    categories = [{"id": unused, "name": NFC}, {"id": 1, "name": NFD}, {"id": 2, "name": "eel"}]
    source = coco(annotation(1, 1, [1, 1, 5, 5]), categories=categories)
    found = said(source)
    assert list(found) == ["notes"]
    assert "classes without an image: 1: 'eel'" in found["notes"]


# --------------------------------------------------------------------------- text is text


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("gbk", "gbk"),
        ("gb18030", "GB18030"),
        ("shift_jis", "Shift_JIS"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "UTF-16"),
        ("utf-8", "utf-16"),
        ("utf-8-sig", ""),
        ("utf-16", ""),
    ],
)
def test_the_encoding_of_an_xml_is_obeyed(encoding: str, declared: str) -> None:
    head = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    for stem, name in (("a", "犬"), ("b", "車")):
        pictures(f"in/JPEGImages/{stem}.jpg")
        voc(stem, name, encoding=encoding, head=head)
    assert labels_of() == [["犬"], ["車"]]


def test_an_xml_of_no_known_encoding_is_named_with_line_and_byte() -> None:
    for stem, head in (("a", ""), ("b", '<?xml version="1.0" encoding="nonsense"?>\n')):
        pictures(f"in/JPEGImages/{stem}.jpg")
        voc(stem, "\nKäfer", encoding="cp1252", head=head)
    report = tfrecorder.validate("in")
    messages = sorted(report.message[report.code == "bad_annotation"])
    assert "a.xml, line 2: byte 2, 0xe4, is not UTF-8" in messages[0]
    assert "b.xml, line 1: there is no encoding 'nonsense'" in messages[1]


def test_names_and_lists_that_are_not_utf_8_are_refused() -> None:
    yolo({"labels/a": BOX}, "train: images\nnames: [\u00e4]\n")
    put("in/data.yaml", "train: images\nnames: [Gräte]\n", "cp1252")
    with pytest.raises(SourceError, match=r"data.yaml, line 2: byte 11, 0xe4, is not UTF-8"):
        tfrecorder.validate("in")
    put("in/data.yaml", codecs.BOM_UTF16_LE + "train: images\nnames: [Gräte]\n".encode("utf-16-le"))
    assert labels_of() == [["Gräte"]]
    put("in/labels/a.txt", b"0 .5 .5\n\xff\n")
    assert "a.txt, line 2: byte 1, 0xff" in said()["bad_annotation"]


def test_lists_of_voc_and_json_of_coco_are_text_too() -> None:
    pictures(f"in/JPEGImages/{NFD}.jpg", "in/JPEGImages/b.jpg")
    voc(NFC)
    voc("b")
    put("in/ImageSets/Main/train.txt", f"b\n{NFC}\n", "cp1252")
    with pytest.raises(SourceError, match=r"train.txt, line 2: byte 3, 0xe9"):
        tfrecorder.validate("in")
    put("in/ImageSets/Main/train.txt", f"{NFC}\n")
    put("in/ImageSets/Main/test.txt", "b\n")
    assert sorted(source_of("in").frame.split) == ["test", "train"]
    text = Path(coco(annotation(1, 1, [1, 1, 5, 5]))).read_text()
    put("coco.json", text.replace('"cat"', '"kät"'), "latin-1")
    with pytest.raises(SourceError, match=r"coco.json, line 1: byte \d+, 0xe4, is not UTF-8"):
        tfrecorder.validate("coco.json")
    put("coco.json", text.replace('"cat"', '"kät"'), "utf-16")
    assert list(said("coco.json")) == ["notes"]


WRITTEN = ["no", "yes", "010", "12:30", "1_000", ".5", "~", "2026-11-29", "0x1F", "null"]


def test_names_in_yaml_stay_as_they_are_written() -> None:
    lines = "".join(f"{number} .5 .5 .5 .{number + 1:02}\n" for number in range(len(WRITTEN)))
    yolo({"labels/a": lines}, f"train: images\nnames: [{', '.join(WRITTEN)}]\n")
    assert labels_of() == [WRITTEN]
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(WRITTEN))
    put("in/data.yaml", f"path: ~\ntrain: images\nval:\ntest: null\nnames:\n{names}")
    assert list(said()) == ["notes"]
    kind = f"{{kind: label, names: [{', '.join(WRITTEN)}]}}"
    put("s.yaml", f"image_uri: image\n010: {kind}\n")
    frame = pd.DataFrame({"image_uri": "in/images/a.jpg", "010": WRITTEN})
    report = tfrecorder.validate(frame, schema="s.yaml")
    assert not {*report.code} & {"unknown_label", "missing_column"}


@pytest.mark.slow
def test_a_dataset_of_before_keeps_its_names_of_classes() -> None:
    """Which a typed parser read from the same file."""
    config = "train: images\nnames: [{}]\n"
    yolo({"labels/a": "0 .5 .5 .5 .5\n1 .5 .5 .5 .5\n"}, config.format("'False', '8'"))
    stored_labels()
    yolo({"labels/b": "1 .5 .5 .5 .5\n2 .5 .5 .5 .5\n"}, config.format("no, 010, 1_0"))
    result = tfrecorder.append("in", "out", progress=False)
    assert result.class_names == ("False", "8", "1_0")
    assert tfrecorder.to_frame("out").sort_index().label.tolist()[-1] == ["8", "1_0"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("names: &x [a]\ntrain: *x\n", "the alias"),
        ("names: [a]\nnames: [b]\n", "is there twice"),
        ("names: {0: a, 0: b}\n", "is there twice"),
        (f"names: {'[' * 1000}", "levels"),
        (f"names: [{'a, ' * 1_500_000}]", "characters"),
        ("names: !!python/name:os.system x\n", "the tag"),
    ],
)
def test_yaml_is_bounded_and_says_each_thing_once(text: str, words: str) -> None:
    yolo({"labels/a": BOX}, text)
    with pytest.raises(SourceError, match=words):
        tfrecorder.validate("in")
    with pytest.raises(OptionError, match=words):
        tfrecorder.validate("in", schema="in/data.yaml")


@pytest.mark.slow
def test_labels_in_two_forms_of_unicode_are_one_class() -> None:
    for folder, name in (("in", NFC), ("more", NFD)):
        pictures(f"{folder}/{name}/{folder}.jpg")
    assert stored_labels() == [NFC]
    result = tfrecorder.append("more", "out", progress=False)
    assert result.class_names == (NFC,)
    schema = {"image_uri": "image", "label": {"kind": "label", "names": [NFC]}}
    assert list(said("more", schema=schema)) == ["few_images", "notes"]


def test_an_image_is_found_under_a_name_of_another_form() -> None:
    pictures(f"in/{NFD}/{NFD}.jpg")
    put("in/a.csv", f"image_uri,label\n{NFC}/{NFC}.jpg,x\n")
    assert stored_labels("in/a.csv") == ["x"]
    assert tfrecorder.to_frame("out").image_uri.tolist() == [f"{NFC}/{NFC}.jpg"]


@pytest.mark.slow
def test_a_caption_of_another_encoding_is_a_reject_of_its_row() -> None:
    """As if its image could not be read: `verify` knows it, and it comes in once it is mended."""
    for name in "abcd":
        pictures(f"in/{name}.png")
        put(f"in/{name}.txt", f"{name}: Käfer", "cp1252" if name == "b" else "utf-8")
    schema = {"image_uri": "image", "caption": "text"}
    options: Any = {"schema": schema, "splits": {"TRAIN": 1}, "progress": False}
    assert said(schema=schema)["not_decoded"].startswith("b.txt, line 1: byte 5, 0xe4, is not UTF")
    result = tfrecorder.convert("in", "out", max_reject_fraction=0.5, **options)
    assert result.rejects == {"row/not_decoded": 1}
    assert tfrecorder.verify("out", records=True).ok
    put("in/b.txt", "b")
    tfrecorder.append("in", "out", retry_rejects=True, progress=False)
    frame = tfrecorder.to_frame("out").sort_index()
    assert frame.caption.tolist() == ["a: Käfer", "b", "c: Käfer", "d: Käfer"]


def test_two_files_that_name_classes_are_not_chosen_from() -> None:
    pictures("in/images/a.jpg")
    put("in/labels/a.txt", "0 .5 .5 .2 .2\n")
    put("in/cats.yaml", "train: images\nnames: [cat]\n")
    put("in/dogs.yaml", "train: images\nnames: [dog]\n")
    with pytest.raises(SourceError, match=r"cats\.yaml and dogs\.yaml differ; give the one that"):
        tfrecorder.validate("in")
    assert "no problems" in str(tfrecorder.validate("in/dogs.yaml"))
    put("in/dogs.yaml", "train: images\nnames: [cat]\n")
    assert "no problems" in str(tfrecorder.validate("in"))


def test_a_table_of_a_folder_may_be_utf_16() -> None:
    pictures("in/a.jpg")
    put("in/metadata.csv", "file_name,label\na.jpg,kät\n", "utf-16")
    assert source_of("in").frame.label.tolist() == ["kät"]
    Path("in/metadata.csv").unlink()
    put("in/metadata.jsonl", '{"file_name": "a.jpg", "label": "kät"}\n', "utf-16")
    assert source_of("in").frame.label.tolist() == ["kät"]
    put("in/metadata.jsonl", '{"file_name": "a.jpg", "label": "kät"}\n', "cp1252")
    with pytest.raises(SourceError, match=r"line 1 is not UTF-8; save the file as UTF-8\.$"):
        tfrecorder.validate("in")


# ------------------------------------------------------------------- one picture, one entry


def test_two_xml_files_are_never_of_one_picture() -> None:
    pictures(*(f"in/JPEGImages/{name}" for name in ("a.jpg", "b.png", "x.jpg")))
    voc("a", "ant", filename="b.png")
    voc("b", "bee", filename="b")
    voc("c", "cat", filename="x.jpg")
    voc("d", "dog", filename="x.jpg")
    found = said()
    assert "1 XML file names another image that is there too" in found["other_file_name"]
    assert "a.xml names JPEGImages/b.png, not JPEGImages/a.jpg" in found["other_file_name"]
    assert "1 of 4 XML files has no image: Annotations/d.xml" in found["annotations_without_image"]
    assert labels_of() == [["ant"], ["bee"], ["cat"]]


def test_an_image_that_coco_lists_twice_names_both_entries() -> None:
    pictures("a.jpg")
    images = [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "./a.jpg"}]
    source = coco(annotation(1, 1, [1, 1, 5, 5]), annotation(2, 1, [2, 2, 5, 5]), images=images)
    message = said(source)["listed_twice"]
    assert message.endswith("lists one image as 'a.jpg', id 1, and as './a.jpg', id 2")
    assert labels_of(source) == [["cat", "cat"]]


def test_images_that_no_json_lists_are_counted() -> None:
    pictures("in/a/1.jpg", "in/a/2.jpg", "in/b/3.jpg")
    images = [{"id": 1, "file_name": "./in/a/1.jpg"}]
    notes = said(coco(annotation(1, 1, [1, 1, 5, 5]), images=images))["notes"]
    assert "1 image is beside those that are listed: in/a/2.jpg" in notes


def test_a_box_that_is_there_twice_is_stored_once() -> None:
    pictures("a.jpg")
    box = annotation(1, 1, [1, 1, 5, 5])
    other = annotation(1, 2, [1, 1, 5, 5])
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    source = coco(box, {**box, "id": 99}, other, {**box, "iscrowd": 1}, categories=categories)
    message = said(source)["repeated_box"]
    assert "annotations[1]: the box (1, 1, 6, 6) of 'cat' on 'a.jpg' is there twice" in message
    assert labels_of(source) == [["cat", "dog", "cat"]]
    yolo({"labels/a": BOX + BOX})
    assert "labels/a.txt, line 2: the box" in said()["repeated_box"]


# ------------------------------------------------------------------- nothing dropped unsaid


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"keypoints": [5, 5, 2] * 3, "num_keypoints": 3}, "key points of 1 object"),
        ({"keypoints": [0, 0, 0] * 3, "num_keypoints": 0}, ""),
        ({"attributes": {"rotation": 30, "seen": False}}, "the attribute 'rotation' of 1 object"),
        ({"segmentation": [[1, 1, 5, 1, 5, 5]]}, "masks of 1 object (`Boxes(unit='pixel', masks"),
        ({"segmentation": []}, ""),
        ({"track_id": 7}, "'track_id' of 1 object"),
    ],
)
def test_what_coco_has_beyond_boxes_is_named(more: dict[str, Any], words: str) -> None:
    pictures("a.jpg")
    source = coco(annotation(1, 1, [1, 1, 5, 5], **more))
    found = said(source)
    assert list(found) == ["notes"]
    assert words in found["notes"]
    assert ("not stored" in found["notes"]) == bool(words)


def test_values_as_some_tools_write_them() -> None:
    pictures("a.jpg", "in/JPEGImages/a.jpg")
    box = annotation(1, 1, [1, 1, 5, 5], iscrowd="0")
    crowd = annotation(1, 1, [2, 2, 5, 5], iscrowd="1")
    source = coco(box, crowd, categories=[{"id": 1, "name": None}])
    frame = source_of(source).frame
    assert [[*frame.label[0]], frame.is_crowd[0].tolist()] == [["1", "1"], [0, 1]]
    voc("a", more="<truncated>True</truncated>")
    assert source_of("in").frame.truncated[0].tolist() == [1]


def test_result_and_info_name_what_is_not_stored() -> None:
    pictures("a.jpg")
    source = coco(annotation(1, 1, [1, 1, 5, 5], keypoints=[1, 1, 2]))
    result = tfrecorder.convert(source, "out", progress=False)
    assert "not stored: key points of 1 object" in str(result)
    assert "not stored: key points of 1 object" in str(tfrecorder.info("out"))
    assert tfrecorder.info("out").not_stored == ("key points of 1 object",)


def test_parts_and_masks_of_voc_are_named() -> None:
    pictures("in/JPEGImages/a.jpg", "in/SegmentationClass/a.png")
    voc("a", more="<pose>Left</pose><occluded>0</occluded><part><name>head</name></part>")
    notes = said()["notes"]
    assert "not stored: 'part' of 1 object, 'pose' of 1 object" in notes
    assert "not stored: masks of 1 image (`mask_uri: mask` in a schema stores them)" in notes
    assert "occluded" not in notes


POINTS = "0 .5 .5 .4 .4 .3 .3 .6 .3 .5 .7 .5 .6\n"
CORNERS = "0 0.2 0.5 0.5 0.2 0.8 0.5 0.5 0.8\n"


@pytest.mark.parametrize(
    ("lines", "config", "words", "edges"),
    [
        (POINTS, "", "key points of 1 object", [0.3, 0.3, 0.7, 0.7]),
        (POINTS, "kpt_shape: [4, 2]\n", "key points of 1 object", [0.3, 0.3, 0.7, 0.7]),
        (f"{BOX[:-1]} .5 .5 2 0 0 0 .6 .7 1\n", "", "key points", [0.25, 0.25, 0.75, 0.75]),
        (CORNERS, "", "four corners, perhaps of turned boxes, of 1 object", [0.2, 0.2, 0.8, 0.8]),
        (CORNERS + POINTS, "", "polygons of 2 objects", [0.2, 0.2, 0.8, 0.8]),
        ("0 .1 .2 .5 .3 .4 .9\n", "", "polygons of 1 object", [0.1, 0.2, 0.5, 0.9]),
    ],
)
def test_more_numbers_than_a_box_has(
    lines: str, config: str, words: str, edges: list[float]
) -> None:
    yolo({"labels/a": lines}, f"{config}train: images\nnames: [cat]\n")
    assert words in said()["notes"]
    row = source_of("in").frame.iloc[0]
    assert [row[name][0] for name in ("x_min", "y_min", "x_max", "y_max")] == pytest.approx(edges)


def test_confidences_and_another_count_of_classes_are_named() -> None:
    yolo({"labels/a": f"{BOX[:-1]} .93\n"}, "nc: 2\ntrain: images\nnames: [cat]\n")
    found = said()
    assert "a.txt, line 1: it has 5 numbers after its class" in found["bad_annotation"]
    assert "a fifth is a model's confidence" in found["bad_annotation"]
    assert "data.yaml: `nc` is 2, but `names` has 1" in found["notes"]


def test_a_line_with_another_count_than_kpt_shape_is_named() -> None:
    yolo({"labels/a": POINTS}, "kpt_shape: [17, 3]\ntrain: images\nnames: [cat]\n")
    assert "a.txt, line 1: it has 12 numbers after its class" in said()["bad_annotation"]
    assert "with the key points of `kpt_shape` 55" in said()["bad_annotation"]
    schema = Schema(image_uri=Image(), boxes=Boxes(masks="segmentation"))
    yolo({"labels/a": POINTS})
    assert "not stored" not in said(schema=schema)["notes"]


# ---------------------------------------------------------------------- within a pixel


@pytest.mark.parametrize(
    ("line", "is_sound"),
    [
        ("0 .5 .5 1.04 1", True),  # 0.8 of 40 pixels at each side
        ("0 .5 .5 1.06 1", False),
        ("0 .5 .5 1 1.09", True),  # 0.9 of 20 pixels
        ("0 .5 .5 1 1.3", False),
    ],
)
def test_a_box_may_be_beyond_its_image_by_a_pixel(line: str, is_sound: bool) -> None:
    yolo({"labels/a": line})
    found = said()
    assert ("box_outside" in found) != is_sound
    if not is_sound:
        assert "labels/a.txt, line 1: the box" in found["box_outside"]
        assert found["box_outside"].endswith("is beyond the image")
