"""Classes of boxes from 1: class 0 is the background, in the records and in all that reads them."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tensorflow_datasets as tfds
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from helpers.kind_cases import convert, values
from helpers.object_cases import BRICK, CAT, COFFEE, EDGES, boxes_in_pixels, boxes_of, in_pixels
from helpers.record_laws import check_records
from support import PHOTOS, ROOT, content_files, given_again, invoke, public_files, records

import tfrecorder
from tfrecorder.schema import Boxes, Image, Label, Schema, Split

MAPS = ("label_map.csv", "label_map.pbtxt")


def detection(
    out: str = "out",
    frame: pd.DataFrame | None = None,
    names: Sequence[str] | None = None,
    **options: Any,
) -> str:
    frame = in_pixels() if frame is None else frame
    schema = boxes_in_pixels(background_class=True, names=names)
    return convert(frame, out, **{"shuffle": False, "schema": schema, **options})


def of_csv(out: str) -> dict[int, str]:
    """A label map as the Model Garden reads it: rows of id and name."""
    with open(Path(out, MAPS[0]), newline="") as file:
        return {int(number): name for number, name in csv.reader(file)}


def of_pbtxt(out: str) -> dict[int, str]:
    """A label map as the Object Detection API reads it, by its own message."""
    file = descriptor_pb2.FileDescriptorProto(name="label_map.proto", package="maps")
    item, whole = file.message_type.add(name="Item"), file.message_type.add(name="Map")
    for number, (name, kind) in enumerate([("name", "STRING"), ("id", "INT32")], 1):
        kind = getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind}")
        item.field.add(name=name, number=number, type=kind, label=1)
    whole.field.add(name="item", number=1, type=11, type_name=".maps.Item", label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName("maps.Map"))()
    text_format.Parse(Path(out, MAPS[1]).read_text(), found)
    return {one.id: one.name for one in found.item}


def test_classes_count_from_1_wherever_they_are_read() -> None:
    out = detection()
    assert {uri: labels for uri, (_, _, labels) in boxes_of(out).items()} == {
        CAT: [3, 1],
        COFFEE: [2],
        BRICK: [],
    }
    info = tfrecorder.info(out)
    assert info.class_names == ("background", "cat", "cup", "eye")
    assert info.class_counts == {"TRAIN": {"cat": 1, "cup": 1, "eye": 1}}
    dataset = tfrecorder.load(out, "TRAIN", shuffle=False, batch_size=3, image_size=32)
    ((_, found),) = iter(dataset)
    assert found["labels"].to_list() == [[3, 1], [2], []]
    frame = in_pixels()
    assert values(given_again(out)) == values(frame.iloc[[0, 2, 1, 3]])
    label = tfds.builder_from_directory(out).info.features["image/object/class/label"].feature
    assert label.names == ["background", "cat", "cup", "eye"]
    assert tfrecorder.verify(out, progress=False).ok
    check_records(out)


def test_label_maps_list_the_classes_from_1() -> None:
    out = detection()
    assert of_csv(out) == of_pbtxt(out) == {1: "cat", 2: "cup", 3: "eye"}
    plain = convert(in_pixels(), "plain")
    assert not {*MAPS} & {*os.listdir(plain)}


ODD_NAMES = ['say "a, b"', "back\\slash", "line\nbreak", "tab\t", "花", "a'b"]


def test_label_maps_hold_any_name() -> None:
    rows = [("TRAIN", CAT, 1.0, 2.0, 30.0, 40.0, name) for name in ODD_NAMES]
    frame = pd.DataFrame(rows, columns=["split", "image_uri", *EDGES, "label"])
    with pytest.warns(UserWarning, match="would not survive"):
        out = detection(frame=frame)
    assert of_csv(out) == of_pbtxt(out) == dict(enumerate(sorted(ODD_NAMES), 1))


def test_given_names_are_numbered_from_1_in_their_order() -> None:
    for number, names in enumerate([["eye", "cup", "cat"], ["background", "eye", "cup", "cat"]]):
        out = detection(f"out{number}", names=names)
        assert of_csv(out) == {1: "eye", 2: "cup", 3: "cat"}
        assert boxes_of(out)[CAT][2] == [1, 3]


def test_integer_classes_stay_as_they_are() -> None:
    frame = in_pixels().assign(label=[17, 44, 17, None])
    out = detection(frame=frame)
    assert boxes_of(out)[CAT][2] == [17, 17]
    assert of_csv(out)[44] == "44"
    assert sorted(of_pbtxt(out)) == list(range(1, 45))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["cat", "background", "cat"], "label 'background' is class 0"),
        ([1, 0, 2], "label 0 is class 0"),
    ],
)
def test_no_box_may_be_of_the_background(labels: list[Any], message: str) -> None:
    frame = in_pixels()[:3].assign(label=labels)
    with pytest.raises(tfrecorder.ValidationError) as caught:
        detection(frame=frame)
    errors = caught.value.report[caught.value.report["severity"] == "error"]
    assert (errors["code"].item(), errors["row"].item()) == ("reserved_label", 1)
    assert message in errors["message"].item()
    schema = boxes_in_pixels(background_class=True)
    report = tfrecorder.validate(frame, schema=schema)
    assert "reserved_label" in report["code"].tolist()
    assert "reserved_label" not in tfrecorder.validate(frame)["code"].tolist()


def test_integers_with_names_must_begin_at_1() -> None:
    frame = in_pixels()[:3].assign(label=[1, 2, 1])
    out = detection(frame=frame, names=["cat", "cup"])
    assert boxes_of(out)[CAT][1:] == ([b"cat", b"cat"], [1, 1])
    with pytest.raises(tfrecorder.ValidationError, match="reserved_label"):
        detection("other", frame.assign(label=[0, 1, 0]), names=["cat", "cup"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"names": ["cat", "background"]}, "'background' is reserved for class 0"),
        ({"label": None}, "these boxes have no classes"),
    ],
)
def test_it_is_refused_where_it_means_nothing(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(tfrecorder.errors.OptionError, match=message):
        Boxes(background_class=True, **settings)


@pytest.mark.slow
def test_a_new_class_gets_the_next_number_in_the_newest_label_map() -> None:
    out = detection()
    zebra = pd.DataFrame(
        [("TRAIN", str(PHOTOS[-1]), 1.0, 2.0, 30.0, 40.0, "aardvark")],
        columns=["split", "image_uri", *EDGES, "label"],
    )
    first = of_csv(out)
    assert first == {1: "cat", 2: "cup", 3: "eye"}
    tfrecorder.append(zebra, out, progress=False)
    assert of_csv(out) == of_pbtxt(out) == {**first, 4: "aardvark"}
    assert boxes_of(out)[str(PHOTOS[-1])][2] == [4]
    assert tfrecorder.info(out).class_names == ("background", "cat", "cup", "eye", "aardvark")
    assert tfrecorder.verify(out, progress=False).ok
    words = "'boxes' has `background_class=False` here, `True` in the dataset"
    with pytest.raises(tfrecorder.errors.SourceError, match=words):
        tfrecorder.append(zebra, out, schema=boxes_in_pixels(), duplicates="keep")
    tfrecorder.compact(out, "compact", progress=False)
    assert of_csv("compact") == of_csv(out)
    assert tfrecorder.verify("compact", progress=False).ok


def test_a_box_of_the_background_is_not_appended_either() -> None:
    out = detection()
    frame = in_pixels()[:1].assign(image_uri=str(PHOTOS[-1]), label="background")
    with pytest.raises(tfrecorder.ValidationError, match="reserved_label"):
        tfrecorder.append(frame, out, progress=False)


def test_verify_and_repair_know_the_label_maps() -> None:
    out = detection()
    before = public_files(out)
    Path(out, MAPS[0]).write_text("1,dog\n")
    Path(out, MAPS[1]).unlink()
    faults = tfrecorder.verify(out, progress=False).faults
    assert {*zip(faults["file"], faults["code"], strict=True)} == {
        (MAPS[0], "differs"),
        (MAPS[1], "missing"),
    }
    assert {*tfrecorder.repair(out, progress=False).files} >= {*MAPS}
    assert public_files(out) == before


@pytest.mark.slow
def test_an_overwrite_takes_the_label_maps_away_and_brings_them() -> None:
    frame = in_pixels()
    out = convert(frame, "out")
    detection(overwrite=True)
    assert of_csv(out) == {1: "cat", 2: "cup", 3: "eye"}
    assert tfrecorder.verify(out, progress=False).ok
    convert(frame, out, overwrite=True)
    assert not {*MAPS} & {*os.listdir(out)}
    assert tfrecorder.verify(out, progress=False).ok


def test_a_label_map_of_the_users_own_is_never_removed() -> None:
    out = convert(in_pixels(), "out")
    Path(out, MAPS[0]).write_text("1,mine\n")
    with pytest.raises(tfrecorder.errors.OutputError, match=r"label_map\.csv"):
        convert(in_pixels(), out, overwrite=True)
    assert Path(out, MAPS[0]).read_text() == "1,mine\n"


@pytest.mark.slow
def test_a_schema_file_says_the_same() -> None:
    out = detection()
    in_pixels().to_csv("boxes.csv", index=False)
    Path("schema.yaml").write_text(
        "split: split\nimage_uri: image\n"
        "boxes: {kind: boxes, unit: pixel, background_class: true}\n"
    )
    options = ("--schema", "schema.yaml", "--no-shuffle", "--no-progress")
    ended = invoke("convert", "boxes.csv", "other", *options)
    assert ended.exit_code == 0, ended.output
    assert content_files("other") == content_files(out)


def test_only_boxes_reserve_a_class() -> None:
    boxes = Boxes(label="part", background_class=True)
    schema = Schema(split=Split(), image_uri=Image(), boxes=boxes, label=Label())
    frame = in_pixels()[:3].assign(part=["x", "y", "x"], label="cat")
    frame[EDGES] = [0.1, 0.1, 0.5, 0.5]
    detection(frame=frame, schema=schema)
    columns = tfrecorder.info("out").columns
    assert columns["boxes"].class_names == ("background", "x", "y")
    assert columns["label"].class_names == ("cat",)
    assert {int(one["image/class/label"]) for one in records("out")} == {0}


def test_the_docs_show_a_label_map_as_it_is_written() -> None:
    page = (ROOT / "docs/tfds.md").read_text()
    shown = re.search(r"```text\n(item \{.*?)```", page, re.DOTALL)
    assert shown
    out = detection()
    assert Path(out, MAPS[1]).read_text().startswith(shown[1].strip())
