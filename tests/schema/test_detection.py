"""Boxes: the forms they come in, what is checked, what load gives, and where they go in a crop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from helpers.kind_cases import convert, values
from helpers.object_cases import BRICK, CAT, COFFEE, EDGES, boxes_of, in_pixels, marked
from helpers.reading_cases import READERS
from helpers.record_laws import check_records
from PIL import Image as Pictures
from support import PHOTOS, given_again, rejects

import tfrecorder
from tfrecorder.schema import Boxes, Image, Schema, Split

WANTED = {
    CAT: ([[0.125, 0.25, 0.5, 0.75], [0.5, 0.5, 1.0, 1.0]], [b"eye", b"cat"], [2, 0]),
    COFFEE: ([[0.0, 0.0, 0.25, 0.5]], [b"cup"], [1]),
}


def test_automl_csv_with_two_and_with_four_corners_is_one_record_an_image() -> None:
    Path("boxes.csv").write_text(
        f"TRAIN,{CAT},eye,0.125,0.25,,,0.5,0.75,,\n"
        f"TRAIN,{COFFEE},cup,0,0,0.25,0,0.25,0.5,0,0.5\n"
        f"TRAIN,{CAT},cat,0.5,0.5,1,0.5,1,1,0.5,1\n"
    )
    done = tfrecorder.convert("boxes.csv", "out", progress=False)
    assert done.records == 2
    assert boxes_of("out") == WANTED


def test_vertex_csv_without_splits_is_the_same() -> None:
    Path("boxes.csv").write_text(
        f"{CAT},eye,0.125,0.25,,,0.5,0.75,,\n{COFFEE},cup,0,0,,,0.25,0.5,,\n"
        f"{CAT},cat,0.5,0.5,,,1,1,,\n"
    )
    convert("boxes.csv", "out")  # type: ignore[arg-type]
    assert boxes_of("out") == WANTED


def vertex(uri: str, **more: Any) -> str:
    labels = {"aiplatform.googleapis.com/ml_use": "training"}
    return json.dumps({"imageGcsUri": uri, "dataItemResourceLabels": labels, **more}) + "\n"


def box(label: str, *edges: float) -> dict[str, Any]:
    names = ("xMin", "yMin", "xMax", "yMax")
    return {"displayName": label, **dict(zip(names, edges, strict=True))}


def test_vertex_json_lines_of_boxes() -> None:
    cat = [box("eye", 0.125, 0.25, 0.5, 0.75), box("cat", 0.5, 0.5, 1.0, 1.0)]
    Path("boxes.jsonl").write_text(
        vertex(CAT, boundingBoxAnnotations=cat)
        + vertex(COFFEE, boundingBoxAnnotations=[box("cup", 0, 0, 0.25, 0.5)])
        + vertex(BRICK, boundingBoxAnnotations=[])
    )
    convert("boxes.jsonl", "out")  # type: ignore[arg-type]
    assert boxes_of("out") == {**WANTED, BRICK: ([], [], [])}
    assert set(tfrecorder.to_frame("out")["split"]) == {"TRAIN"}
    labels = tfrecorder.to_frame("out").sort_index()["label"]
    assert labels.tolist() == [["eye", "cat"], ["cup"], []]


def test_vertex_json_lines_of_one_class_are_the_default_schema() -> None:
    Path("one.jsonl").write_text(
        vertex(CAT, classificationAnnotation={"displayName": "cat"})
        + vertex(COFFEE, classificationAnnotation={"displayName": "cup"})
    )
    convert("one.jsonl", "out")  # type: ignore[arg-type]
    assert sorted(tfrecorder.to_frame("out")["label"]) == ["cat", "cup"]
    assert tfrecorder.info("out").class_names == ("cat", "cup")


@pytest.mark.slow
def test_several_classes_by_json_lines_and_by_csv() -> None:
    names = [{"displayName": "cat"}, {"displayName": "pet"}]
    Path("several.jsonl").write_text(
        vertex(CAT, classificationAnnotations=names) + vertex(COFFEE, classificationAnnotations=[])
    )
    Path("several.csv").write_text(f"TRAIN,{CAT},cat,pet\nTRAIN,{COFFEE}\n")
    for number, source in enumerate(["several.jsonl", "several.csv"]):
        convert(source, f"out{number}", shuffle=False)  # type: ignore[arg-type]
        assert tfrecorder.to_frame(f"out{number}")["label"].tolist() == [["cat", "pet"], []]
        loaded = tfrecorder.load(f"out{number}", "TRAIN", shuffle=False)
        assert [label.numpy().tolist() for _, label in loaded] == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2 is not sound JSON"),
        ('{"image": 1}', "line 2 has neither imageGcsUri"),
        (vertex(CAT, boundingBoxAnnotations=1), "line 2: boundingBoxAnnotations is not a list"),
    ],
)
def test_a_wrong_line_is_named(line: str, words: str) -> None:
    Path("boxes.jsonl").write_text(vertex(CAT, boundingBoxAnnotations=[]) + line)
    with pytest.raises(tfrecorder.errors.SourceError, match=words):
        tfrecorder.convert("boxes.jsonl", "out")


def test_a_frame_in_pixels_becomes_fractions_and_comes_back() -> None:
    frame = in_pixels()
    convert(frame, "out", shuffle=False)
    width, height = Pictures.open(CAT).size
    edges, texts, _ = boxes_of("out")[CAT]
    assert np.allclose(edges[0], [1 / width, 2 / height, 30 / width, 40 / height])
    assert edges[1] == [0, 0, 1, 1]
    assert texts == [b"eye", b"cat"]
    back = given_again("out")
    assert values(back) == values(frame.iloc[[0, 2, 1, 3]])
    assert tfrecorder.verify("out").ok
    check_records("out")


def test_a_box_beyond_its_image_is_a_reject() -> None:
    frame = pd.concat([in_pixels()] + [_many()], ignore_index=True)
    frame.loc[1, "x_max"] = 5000.0
    tfrecorder.convert(frame, "out", progress=False)
    found = rejects("out")
    assert found["image_uri"].tolist() == [COFFEE]
    assert "box_outside: box 0 (7, 8, 5000, 10) is beyond the image's" in found["reason"].item()


def _many() -> pd.DataFrame:
    uris = [str(path) for path in PHOTOS if str(path) not in (CAT, COFFEE, BRICK)]
    rows = {"split": "TRAIN", **dict.fromkeys(EDGES[:2], 1.0), **dict.fromkeys(EDGES[2:], 9.0)}
    return pd.DataFrame({"image_uri": uris, "label": "x", **rows})


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((0.1, 0.2, 0.1, 0.5), "the box is empty"),
        ((0.1, 0.6, 0.2, 0.5), "the box is empty"),
        ((-0.1, 0.2, 0.3, 0.5), "must be from 0 to 1"),
        ((0.1, 0.2, 0.3, 1.5), "must be from 0 to 1"),
        ((0.1, 0.2, None, 0.5), "are not four numbers"),
        ((0.1, 0.2, "x", 0.5), "are not four numbers"),
    ],
)
def test_a_wrong_box_is_found_with_its_row(edges: Any, message: str) -> None:
    rows = [
        ("a.jpg", 0.1, 0.1, 0.5, 0.5, "x"),
        ("b.jpg", 0.1, 0.1, 0.5, 0.5, "x"),
        ("a.jpg", *edges, "x"),
    ]
    frame = pd.DataFrame(rows, columns=["image_uri", *EDGES, "label"])
    schema = Schema(image_uri=Image(), boxes=Boxes())
    report = tfrecorder.validate(frame, schema=schema)
    errors = report[report.severity == "error"]
    assert errors.row.tolist() == [2]
    assert message in errors.message.item()


def test_a_missing_label_of_a_box_is_found_with_its_row() -> None:
    frame = in_pixels()
    frame.loc[2, "label"] = None
    report = tfrecorder.validate(frame)
    errors = report[report.severity == "error"]
    assert (errors.code.item(), errors.row.item()) == ("null_label", 2)


@pytest.mark.slow
def test_boxes_without_classes_and_with_other_names() -> None:
    frame = in_pixels().rename(columns={"x_min": "left", "x_max": "right"}).drop(columns="label")
    columns = ["left", "y_min", "right", "y_max"]
    schema = Schema(
        split=Split(), image_uri=Image(), objects=Boxes(columns=columns, label=None, unit="pixel")
    )
    convert(frame, "out", schema=schema, shuffle=False)
    _, found = next(iter(tfrecorder.load("out", "TRAIN", shuffle=False)))
    assert set(found) == {"boxes"}
    assert values(given_again("out")) == values(frame.iloc[[0, 2, 1, 3]])


# Reading.


@pytest.fixture
def detection() -> str:
    return convert(in_pixels(), "detection", shuffle=False, num_shards=1)


def load(out: str, **options: Any) -> Any:
    return tfrecorder.load(out, "TRAIN", shuffle=False, **options)


def test_batches_are_ragged(detection: str) -> None:
    ((images, found),) = iter(load(detection, batch_size=3, image_size=32))
    assert images.shape == (3, 32, 32, 3)
    assert found["boxes"].row_lengths().numpy().tolist() == [2, 1, 0]
    assert found["labels"].to_list() == [[2, 0], [1], []]
    width, height = Pictures.open(CAT).size
    wanted = [2 / height, 1 / width, 40 / height, 30 / width]
    assert np.allclose(found["boxes"][0, 0], wanted)


def test_batches_are_padded_to_a_number_of_boxes(detection: str) -> None:
    dataset = load(detection, batch_size=3, image_size=32, max_boxes=2)
    ((_, found),) = iter(dataset)
    assert found["boxes"].shape == (3, 2, 4)
    assert found["labels"].numpy().tolist() == [[2, 0], [1, -1], [-1, -1]]
    assert not found["boxes"][1, 1].numpy().any()
    assert dataset.element_spec[1]["boxes"].shape.as_list() == [None, 2, 4]


def bright(pixels: Any) -> list[float]:
    """The edges of what is bright, as fractions: ymin, xmin, ymax, xmax."""
    pixels = np.asarray(pixels)
    rows, columns = np.nonzero(pixels.mean(2) > 127)
    height, width = pixels.shape[:2]
    edges = [rows.min() / height, columns.min() / width]
    return [*edges, (rows.max() + 1) / height, (columns.max() + 1) / width]


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("size", [(200, 120), (120, 200)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"image_size": (96, 96)},
        {"image_size": (96, 96), "resize": "crop"},
        {"image_size": (96, 96), "resize": "pad"},
        {"image_size": (96, 64), "resize": "pad"},
        *({"image_size": (96, 96), "augment": True, "seed": seed} for seed in range(5)),
    ],
    ids=str,
)
def test_boxes_go_where_the_pixels_go(
    size: tuple[int, int], options: dict[str, Any], reader: str
) -> None:
    path, edges = marked(size)
    frame = pd.DataFrame(
        [("TRAIN", str(path), *edges, "x")], columns=["split", "image_uri", *EDGES, "label"]
    )
    convert(frame, "out")
    ((image, found),) = READERS[reader]("out", **options)
    boxes = found["boxes"]
    if not len(boxes):  # the random part has less than a tenth of it
        assert options.get("augment")
        return
    assert np.abs(boxes[0] - bright(image)).max() < 2 / min(image.shape[:2])


@pytest.mark.slow
@pytest.mark.parametrize("fit", ["stretch", "crop", "pad", "fit"])
@pytest.mark.parametrize("form", ["keep", "jpeg"])
def test_boxes_go_where_the_pixels_go_when_images_are_written_smaller(fit: str, form: str) -> None:
    path, edges = marked((200, 120))
    frame = pd.DataFrame(
        [("TRAIN", str(path), *edges, "x")], columns=["split", "image_uri", *EDGES, "label"]
    )
    convert(frame, "out", image_size=(80, 80), resize=fit, image_format=form)
    image, found = next(iter(load("out")))
    assert np.abs(found["boxes"].numpy()[0] - bright(image)).max() < 2 / min(image.shape[:2])
    assert tfrecorder.verify("out").ok
    check_records("out")


def test_tfds_reads_boxes(detection: str) -> None:
    builder = tfds.builder_from_directory(detection)
    found = list(tfds.as_numpy(builder.as_dataset("train", shuffle_files=False)))
    assert [len(one["image/object/bbox/xmin"]) for one in found] == [2, 1, 0]
    assert found[0]["image/object/class/label"].tolist() == [2, 0]
    names = builder.info.features["image/object/class/label"].feature.names
    assert names == ["cat", "cup", "eye"]


def test_a_model_takes_padded_boxes(detection: str) -> None:
    dataset = load(detection, batch_size=3, image_size=32, max_boxes=2)
    spec = dataset.element_spec
    assert isinstance(spec[1]["boxes"], tf.TensorSpec)
    assert len(dataset) == 1
