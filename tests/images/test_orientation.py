"""What boxes and masks are of: the picture as one sees it, or as it is stored; and stated sizes.

The oracle looks for the white pixels of an object, and knows nothing of orientations but what EXIF
says of where the first row and column are seen.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.annotation_cases import annotation, coco_file
from PIL import Image as Pictures, ImageOps
from support import invoke, records, rejects

import tfrecorder
from tfrecorder.errors import SourceError, TfrecorderError
from tfrecorder.schema import Boxes, Image, Mask, Schema

#: How a picture is stored whose pixels, as one sees them, are these, by its EXIF orientation.
STORED: dict[int, Callable[[Any], Any]] = {
    1: lambda seen: seen,
    2: lambda seen: seen[:, ::-1],
    3: lambda seen: seen[::-1, ::-1],
    4: lambda seen: seen[::-1],
    5: lambda seen: seen.swapaxes(0, 1),
    6: lambda seen: seen.swapaxes(0, 1)[::-1],
    7: lambda seen: seen[::-1, ::-1].swapaxes(0, 1),
    8: lambda seen: seen.swapaxes(0, 1)[:, ::-1],
}

EDGES = ("x_min", "y_min", "x_max", "y_max")

#: Width and height of the picture as one sees it.
SEEN = (60, 40)

#: In which form boxes come, and which size is stated.
FORMS = ("COCO seen", "COCO stored", "COCO", "VOC seen", "VOC stored", "VOC", "YOLO", "px", "table")

#: Each with and without `apply_exif`; those in the quick suite, and the others.
QUICK = {("COCO seen", False), ("COCO seen", True), ("VOC stored", True), ("YOLO", False)}
EVERY = itertools.product(FORMS, (False, True))
SWEEP = [pytest.param(*one, marks=[] if one in QUICK else pytest.mark.slow) for one in EVERY]


def pixels() -> np.ndarray[Any, Any]:
    """A picture as one sees it, with a white object in it."""
    seen = np.zeros((*SEEN[::-1], 3), np.uint8)
    seen[4:16, 6:30] = 255
    return seen


def box_of(white: np.ndarray[Any, Any]) -> list[float]:
    """The left, upper, right and lower edge of the white pixels."""
    y, x = np.nonzero(white.max(axis=-1) > 128 if white.ndim == 3 else white)
    return [float(x.min()), float(y.min()), float(x.max() + 1), float(y.max() + 1)]


def save(path: Path, orientation: int, **options: Any) -> None:
    """A picture with an EXIF orientation, which Pillow turns to what one sees."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Pictures.Exif()
    exif[0x0112] = orientation
    Pictures.fromarray(STORED[orientation](pixels()).copy()).save(path, exif=exif, **options)
    assert box_of(np.asarray(ImageOps.exif_transpose(Pictures.open(path)))) == box_of(pixels())


def source(
    form: str,
    drawn: str = "seen",
    orientations: Any = STORED,
    scale: float = 1,
    ending: str = "png",
    box: list[float] | None = None,
) -> Any:
    """Pictures of some orientations, each with the box of its object.

    Args:
        drawn: on the picture as it is "seen" or "stored".
        scale: of the stated size to the picture's.
        box: another one than that of the object.
    """
    folder = Path(f"in {form} {drawn} {scale} {ending} {box}".replace(".", ""))
    form, _, states = form.partition(" ")
    images, boxes, rows = [], [], []
    for number in orientations:
        name = f"{number}.{ending}"
        place = {"VOC": "JPEGImages", "COCO": "images", "YOLO": "images"}.get(form, "")
        save(folder / place / name, number)
        pictures = {"seen": pixels(), "stored": STORED[number](pixels())}
        left, upper, right, lower = (edge * scale for edge in box or box_of(pictures[drawn]))
        height, width = pictures[drawn].shape[:2]
        size = [side * scale for side in pictures[states or drawn].shape[1::-1]]
        stated = dict(zip(("width", "height"), size, strict=True)) if states else {}
        images.append({"id": number, "file_name": name, **stated})
        boxes.append(annotation(number, 1, [left, upper, right - left, lower - upper]))
        row = np.array([left, upper, right, lower]) / ([width, height] * 2 if form != "px" else 1)
        rows.append({"image_uri": str(folder / name), **dict(zip(EDGES, row, strict=True))})
        if form == "VOC":
            sides = "".join(f"<{side}>{value}</{side}>" for side, value in stated.items())
            edges = {"xmin": left, "ymin": upper, "xmax": right, "ymax": lower}
            corners = "".join(f"<{edge}>{value}</{edge}>" for edge, value in edges.items())
            text = f"<size>{sides}</size><object><name>a</name><bndbox>{corners}</bndbox></object>"
            path = folder / "Annotations" / f"{number}.xml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"<annotation>{text}</annotation>")
        if form == "YOLO":
            x, y = (row[:2] + row[2:]) / 2
            w, h = row[2:] - row[:2]
            (folder / "labels").mkdir(exist_ok=True)
            (folder / "labels" / f"{number}.txt").write_text(f"0 {x} {y} {w} {h}\n")
    if form == "COCO":
        categories = [{"id": 1, "name": "a"}]
        path = folder / "annotations/instances_train.json"
        coco_file(path, images=images, annotations=boxes, categories=categories)
    if form == "YOLO":
        (folder / "data.yaml").write_text("train: images\nnames: [a]\n")
    table = pd.DataFrame(rows).assign(split="TRAIN", label="a")
    return table if form in ("px", "table") else folder


def schema(upright: bool | None, **more: Any) -> Schema:
    return Schema(image_uri=Image(), boxes=Boxes(upright=upright, **more))


def crops_right(out: str) -> list[bool]:
    """Of each record, by its orientation, whether the crop of its box is the object."""
    right = {}
    for split in tfrecorder.info(out).splits:
        for row in tfrecorder.Records(out, split, inputs="all"):
            picture = row["image/encoded"]
            height, width = picture.shape[:2]
            edges = [row[f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin", "xmax", "ymax")]
            left, upper, right_, lower = np.ravel(edges) * [width, height, width, height]
            due = box_of(np.asarray(picture))
            name = int(Path(str(row["image/filename"])).stem)
            right[name] = bool(np.abs(np.subtract([left, upper, right_, lower], due)).max() < 0.01)
    return [right[name] for name in sorted(right)]


def edges_in(out: str) -> set[tuple[float, ...]]:
    """The edges of all boxes, as records have them, to a thousandth."""
    keys = [f"image/object/bbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax")]
    every = [np.ravel([row[key] for key in keys]) for row in records(out)]
    return {tuple(np.round(edges, 3).tolist()) for edges in every}


@pytest.mark.parametrize(("form", "apply_exif"), SWEEP)
def test_the_crop_of_a_box_is_the_object_or_the_finding_stands(form: str, apply_exif: bool) -> None:
    """Orientations 1 to 8, in one source: drawn on what is seen, or on what is stored."""
    decides = form.endswith("seen") or form == "YOLO"
    for drawn in ("seen",) if decides else ("seen", "stored"):
        given = source(form, drawn)
        report = tfrecorder.validate(given, check_images=True)
        result = tfrecorder.convert(given, drawn, apply_exif=apply_exif, progress=False)
        right = crops_right(drawn)
        finds = "orientation_unsaid" in set(report["code"])
        assert finds == (result.reduced.get("turned") == 7) == (not decides)
        for words in (str(result), str(tfrecorder.info(drawn))):
            assert finds == ("turned: 7 images" in words)
        assert right[0]
        assert all(right) == (decides or drawn == "stored")
        for words in (str(report), str(result), str(tfrecorder.info(drawn))):
            assert ("upright: the stated sizes of 4 of 8 images" in words) == form.endswith("seen")


@pytest.mark.parametrize("apply_exif", [False, True])
@pytest.mark.parametrize(
    ("form", "drawn"), [("COCO stored", "seen"), ("px", "seen"), ("table", "stored")]
)
def test_what_the_schema_says_counts(form: str, drawn: str, apply_exif: bool) -> None:
    """And then there is nothing to find; a schema in YAML says it as well."""
    upright = drawn == "seen"
    unit = "fraction" if form == "table" else "pixel"
    given = source(form, drawn)
    Path("schema.yaml").write_text(
        f"image_uri: image\nboxes: {{kind: boxes, unit: {unit}, upright: {str(upright).lower()}}}\n"
    )
    report = tfrecorder.validate(given, schema="schema.yaml", check_images=True)
    result = tfrecorder.convert(
        given, "out", schema="schema.yaml", apply_exif=apply_exif, progress=False
    )
    assert "orientation_unsaid" not in set(report["code"])
    assert "turned" not in result.reduced
    assert all(crops_right("out"))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["jpg", "webp", "tif"])
def test_every_format_has_its_orientation(ending: str) -> None:
    """Also one that is stored as PNG, without its EXIF; and then its boxes are corrected."""
    for form in ("COCO seen", "YOLO"):
        given = source(form, ending=ending)
        tfrecorder.convert(given, form, progress=False)
        assert all(crops_right(form))
        pictures = tfrecorder.to_frame(form, images="bytes")
        tfrecorder.convert(pictures, f"{form} again", progress=False)
        assert edges_in(f"{form} again") == edges_in(form)
        frame = tfrecorder.to_frame(form)
        assert tfrecorder.update(frame, form, progress=False).was_finished
        for edge in EDGES:
            frame[edge] = [[value * 0.9 for value in edges] for edges in frame[edge]]
        tfrecorder.update(frame, form, progress=False)
        assert not any(crops_right(form))
        for edge in EDGES:
            frame[edge] = [[value / 0.9 for value in edges] for edges in frame[edge]]
        tfrecorder.update(frame, form, progress=False)
        assert all(crops_right(form))
        assert tfrecorder.verify(form, records=True).ok


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.5, 2, 10])
def test_boxes_are_of_the_stated_size_where_it_has_the_same_proportions(scale: float) -> None:
    for form in ("COCO seen", "COCO stored", "VOC seen"):
        given = source(form, form.split()[1], scale=scale)
        report = tfrecorder.validate(given, check_images=True)
        result = tfrecorder.convert(given, form, progress=False)
        assert all(crops_right(form))
        assert result.reduced["scaled"] == 8
        notes = report[report["code"] == "scaled_boxes"]
        assert notes["severity"].tolist() == ["note"] * 8
        stated = f"stated {60 * scale:g} x {40 * scale:g}, is 60 x 40"
        assert notes["message"].str.contains(f"1.png': {stated}").sum() == 1
        assert "note: scaled_boxes (8)" in str(report)
        assert "8 images whose stated size is another of the same proportions" in str(result)
        assert f".png ({stated})" in str(result)
        assert str(result).count("(stated ") == 5
        assert "scaled: 8 images" in str(tfrecorder.info(form))
        assert tfrecorder.update(tfrecorder.to_frame(form), form, progress=False).was_finished


@pytest.mark.parametrize("size", [(40, 60), (60, 42)])
def test_a_size_of_other_proportions_is_a_reject_that_names_both(size: tuple[int, int]) -> None:
    given = source("COCO seen", orientations=[1, 2])
    path = Path(given, "annotations/instances_train.json")
    document = json.loads(path.read_text())
    document["images"][0] |= {"width": size[0], "height": size[1]}
    path.write_text(json.dumps(document))
    words = f"state {size[0]} x {size[1]} pixels, and the image has 60 x 40"
    report = tfrecorder.validate(given, check_images=True)
    (found,) = report.loc[report["code"] == "unusable_image", "message"]
    assert words in found
    assert "1.png" in found
    tfrecorder.convert(given, "out", max_reject_fraction=1, progress=False)
    assert rejects("out")["reason"].str.contains(words).all()


@pytest.mark.parametrize("apply_exif", [False, True])
@pytest.mark.parametrize("upright", [True, None])
def test_masks_are_where_their_objects_are(upright: bool | None, apply_exif: bool) -> None:
    """Drawn on what one sees; where the mask's own size does not tell, the finding stands."""
    frame = source("table").drop(columns=[*EDGES, "label"])
    Pictures.fromarray(pixels()[:, :, 0] // 255).save("seen.png")
    frame["mask_uri"] = "seen.png"
    kinds = Schema(image_uri=Image(), mask_uri=Mask(upright=upright))
    report = tfrecorder.validate(frame, schema=kinds, check_images=True)
    result = tfrecorder.convert(frame, "out", schema=kinds, apply_exif=apply_exif, progress=False)
    found = "orientation_unsaid" in set(report["code"])
    assert found == (upright is None)
    assert result.reduced.get("turned", 0) == (3 if found else 0)
    right = {}
    for image, mask in tfrecorder.Records("out", "TRAIN"):
        right[len(right)] = np.array_equal(np.asarray(image)[:, :, 0] > 128, np.squeeze(mask) == 1)
    assert sum(right.values()) == (5 if found else 8)


@pytest.mark.parametrize(("apply_exif", "scale"), [(False, 2), (True, 1)])
def test_masks_of_objects_are_where_their_objects_are(apply_exif: bool, scale: int) -> None:
    pytest.importorskip("pycocotools")
    given = source("COCO seen", scale=scale)
    path = Path(given, "annotations/instances_train.json")
    document = json.loads(path.read_text())
    seen = np.kron(pixels()[:, :, 0] > 0, np.ones((scale, scale), bool))
    runs = np.diff(np.flatnonzero(np.diff(seen.ravel("F"), prepend=False)), prepend=0).tolist()
    runs.append(seen.size - sum(runs))
    x, y, w, h = document["annotations"][0]["bbox"]
    for number, one in enumerate(document["annotations"]):
        polygon = [[x, y, x + w, y, x + w, y + h, x, y + h]]
        rle = {"size": [*seen.shape], "counts": runs}
        one["segmentation"] = rle if number % 2 else polygon
    path.write_text(json.dumps(document))
    kinds = Schema(image_uri=Image(), boxes=Boxes(unit="pixel", masks="segmentation"))
    result = tfrecorder.convert(given, "out", schema=kinds, apply_exif=apply_exif, progress=False)
    assert not result.rejects
    assert (
        tfrecorder.validate(given, schema=kinds, check_images=True)["code"]
        .isin(["column_left_out", "scaled_boxes", "not_seen"])
        .all()
    )
    for row in tfrecorder.Records("out", "TRAIN", inputs="all"):
        white = np.asarray(row["image/encoded"])[:, :, 0] > 128
        (mask,) = row["image/object/mask"]
        assert np.array_equal(np.asarray(Pictures.open(io.BytesIO(mask))) == 1, white)
    assert all(crops_right("out"))
    if not apply_exif:
        assert tfrecorder.update(tfrecorder.to_frame("out"), "out", progress=False).was_finished


def test_what_is_added_means_what_the_dataset_does() -> None:
    """Also YOLO's boxes, to a dataset that was made without the word; and it is found."""
    given = source("table", "stored")
    tfrecorder.convert(given, "out", progress=False)
    yolo = source("YOLO", orientations=[1, 3, 6])
    result = tfrecorder.append(yolo, "out", progress=False)
    assert result.reduced["turned"] == 2
    upright = Schema(image_uri=Image(), boxes=Boxes(upright=True))
    with pytest.raises(SourceError, match="`upright=True` here, `None` in the dataset"):
        tfrecorder.append(yolo, "out", schema=upright, duplicates="keep", progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["COCO seen", "COCO stored", "YOLO", "VOC seen", "px", "table"])
def test_a_lost_table_is_made_again_as_the_source_had_it(form: str) -> None:
    given = source(form, "stored" if form == "COCO stored" else "seen")
    tfrecorder.convert(given, "out", progress=False, num_shards=1)
    before = tfrecorder.to_frame("out")
    for table in Path("out/_tfrecorder/tables").iterdir():
        table.unlink()
    right = crops_right("out")
    tfrecorder.repair("out")
    after = tfrecorder.to_frame("out")
    for edge in EDGES:
        for was, now in zip(before[edge], after[edge], strict=True):
            assert np.ravel(now) == pytest.approx(np.ravel(was), abs=1e-3)
    assert tfrecorder.verify("out", records=True).ok
    updated = tfrecorder.update(given, "out", progress=False)
    # Fractions that were turned twice differ in their last digit.
    assert form == "YOLO" or "boxes" not in updated.changes.columns
    assert crops_right("out") == right


@pytest.mark.slow
def test_what_decided_holds_in_the_life_of_a_dataset() -> None:
    given = source("COCO seen", scale=2)
    tfrecorder.convert(given, "out", progress=False, num_shards=2)
    more = source("COCO seen", orientations=[3, 6], scale=2, ending="jpg")
    result = tfrecorder.append(more, "out", progress=False)
    assert "turned" not in result.reduced
    names = {str(shard.name) for shard in Path("out").glob("*.tfrecord")}
    before = {name: Path("out", name).read_bytes() for name in names}
    for name in names:
        Path("out", name).unlink()
        tfrecorder.repair("out")
    assert {name: Path("out", name).read_bytes() for name in names} == before
    tfrecorder.compact("out", progress=False)
    assert all(crops_right("out"))
    assert tfrecorder.info("out").reduced["scaled"] == 10


@pytest.mark.parametrize("form", ["COCO seen", "YOLO", "px"])
def test_a_proposed_schema_says_what_boxes_are_of(form: str) -> None:
    given = source(form)
    frame = "given.csv" if form == "px" else given
    if form == "px":
        given.to_csv(frame, index=False)
    text = invoke("schema", frame).stdout
    assert ("upright: true" in text) == (form in ("COCO seen", "YOLO"))
    Path("schema.yaml").write_text(text)
    tfrecorder.convert(frame, "out", schema="schema.yaml", progress=False)
    assert all(crops_right("out")) == (form in ("COCO seen", "YOLO"))


def test_boxes_in_fractions_among_boxes_in_pixels_are_found() -> None:
    fractions = dict(zip(EDGES, (0.1, 0.1, 0.5, 0.4), strict=True))
    frame = source("px", orientations=[1, 2, 3]).assign(split="TRAIN")
    frame.loc[1, [*EDGES]] = fractions
    report = tfrecorder.validate(frame)
    found = report[report["code"] == "fraction_boxes"]
    assert found["row"].tolist() == [1]
    coco = source("COCO seen", orientations=[1])
    path = Path(coco, "annotations/instances_train.json")
    path.write_text(
        path.read_text().replace('"bbox": [6.0, 4.0, 24.0, 12.0]', '"bbox": [0.1, 0.1, 0.4, 0.3]')
    )
    assert "fraction_boxes" in set(tfrecorder.validate(coco)["code"])
    assert invoke("validate", coco, "--warnings", "error").exit_code == 1


def test_a_fraction_that_rounding_put_beyond_the_image_is_on_its_edge() -> None:
    frame = source("table", orientations=[1, 2])
    frame.loc[0, [*EDGES]] = [-1e-9, 0.1 - 0.3 + 0.2, 0.7 + 0.2 + 0.1, 1 + 1e-7]
    assert not set(tfrecorder.validate(frame)["severity"]) & {"error"}
    tfrecorder.convert(frame, "out", progress=False)
    assert (0, 0, 1, 1) in edges_in("out")
    frame.loc[0, "x_max"] = 1.001  # then all are in pixels, as it seems
    assert set(tfrecorder.validate(frame)["code"]) >= {"fraction_boxes"}
    assert set(tfrecorder.validate(frame, schema=schema(None))["code"]) >= {"bad_box"}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["COCO seen", "COCO", "VOC seen", "VOC", "YOLO", "px"])
def test_a_box_is_beyond_its_image_from_a_pixel_on(form: str) -> None:
    """One tolerance in every form: 0.9 pixels are cut off, and 1.5 are not."""
    for beyond, is_kept in ((0.9, True), (1.5, False)):
        for box in ([-beyond, 0, 50, 30], [3, 3, 60, 40 + beyond]):
            given = source(form, orientations=[1], box=box)
            report = tfrecorder.validate(given, check_images=True)
            out = f"{beyond} {box[0]}"
            if not is_kept:
                named = report.loc[report["code"].isin(["box_outside", "bad_box"]), "message"]
                assert any("1.png" in words or "-1.5" in words for words in named)
                with pytest.raises(TfrecorderError, match=r"box_outside|bad_box"):
                    tfrecorder.convert(given, out, progress=False)
                continue
            assert not set(report["severity"]) & {"error"}
            tfrecorder.convert(given, out, progress=False)
            (row,) = tfrecorder.Records(out, next(iter(tfrecorder.info(out).splits)), inputs="all")
            edges = [row[f"image/object/bbox/{edge}"] for edge in ("xmin", "ymin", "xmax", "ymax")]
            due = np.divide(np.clip(box, 0, [60, 40] * 2), [60, 40] * 2)
            assert np.ravel(edges) == pytest.approx(due, abs=1e-6)


EXPORTS = [("COCO seen", "coco"), ("YOLO", "yolo"), ("COCO seen", "csv"), ("px", "coco")]


@pytest.mark.parametrize(
    ("form", "to"),
    [pytest.param(*one, marks=[] if one[1] == "coco" else pytest.mark.slow) for one in EXPORTS],
)
def test_an_export_has_boxes_on_the_pixels_that_it_writes(form: str, to: str) -> None:
    given = source(form)
    options = {"schema": schema(True, unit="pixel")} if form == "px" else {}
    tfrecorder.convert(given, "out", progress=False, **options)
    tfrecorder.export("out", "there", to=to, progress=False)
    again: dict[str, Any] = {"schema": "there/schema.yaml"} if to == "csv" else {}
    place = "there/dataset.csv" if to == "csv" else "there"
    tfrecorder.convert(place, "again", progress=False, **again)
    assert all(crops_right("again"))
    assert len(crops_right("again")) == len(STORED)


@pytest.mark.slow
def test_an_export_of_scaled_boxes_has_them_on_its_pixels() -> None:
    tfrecorder.convert(source("COCO stored", "stored", [1, 2], scale=0.5), "out", progress=False)
    for to in ("coco", "yolo"):
        tfrecorder.export("out", to, to=to, progress=False)
        tfrecorder.convert(to, f"{to} again", progress=False)
        assert crops_right(f"{to} again") == [True, True]
