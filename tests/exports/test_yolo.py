"""YOLO's form: each text file says of its picture what the dataset says, as its trainer sees both.

What a file says is read here by YOLO's own rules, and pictures are turned by Pillow.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image as Pictures, ImageOps
from support import invoke, skip_without

import tfrecorder
from tfrecorder.schema import Boxes, Image, Number, Schema, Split

WIDTH, HEIGHT = 48, 32
EDGES = ["x_min", "y_min", "x_max", "y_max"]


def picture(path: str, pixels: np.ndarray | None = None, orientation: int = 1) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if pixels is None:
        pixels = np.random.default_rng([*path.encode()]).integers(
            0, 99, (HEIGHT, WIDTH, 3), np.uint8
        )
    exif = Pictures.Exif()
    exif[0x0112] = orientation
    form = {".jfif": "JPEG"}.get(os.path.splitext(path)[1])
    Pictures.fromarray(pixels).save(path, form, exif=exif)


def images_in(folder: str) -> dict[str, Path]:
    """The pictures of each split that `data.yaml` names, by their text files.

    Ultralytics looks for it where the last folder `images` is called `labels`.
    """
    config = yaml.safe_load(Path(folder, "data.yaml").read_text())
    found = {}
    for split in ("train", "val", "test"):
        for path in Path(folder, config.get(split) or "nothing").rglob("*"):
            if path.suffix.lower() in (".jpg", ".jpeg", ".png"):
                start, end = f"{path.absolute()}".rsplit("/images/", 1)
                found[f"{start}/labels/{end}".rsplit(".", 1)[0] + ".txt"] = path
    return found


def lines_in(path: str) -> list[list[float]]:
    return [[*map(float, line.split())] for line in Path(path).read_text().splitlines()]


def frame_of(uris: list[str], **columns: Any) -> pd.DataFrame:
    """Pictures with one box each, whose left edge says which it is."""
    count = len(uris)
    left = [[(number + 1) / (2 * count)] for number in range(count)]
    boxes = {"x_min": left, "y_min": [[0.25]] * count, "x_max": [[0.75]] * count}
    for uri in uris:
        picture(uri)
    made = {"split": "TRAIN", "image_uri": uris, **boxes, "y_max": [[0.5]] * count}
    return pd.DataFrame({**made, "label": [["cat"]] * count, **columns})


#: Names that say the same without their endings, in another case, or on the way to a label.
NAMES = [
    ["a.jpg", "b.png", "deep/er/c.jpeg", "v1.5/d.jpg"],
    ["train/a.jpg", "train/b.png", "c.jpg"],
    ["train/a.jpg", "a.jpg"],
    ["a.jpg", "a.png"],
    ["a.jpg", "A.jpeg"],
    ["a.jpg.jpg", "a.png"],
    ["photo.jfif", "photo2.jpe"],
    ["images/a.jpg", "labels/a.jpg"],
    ["Images/a.jpg", "x/images/b.jpg"],
]


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_every_picture_has_its_own_lines(names: list[str]) -> None:
    frame = frame_of(names)
    tfrecorder.convert(frame, "out", progress=False)
    tfrecorder.export("out", "yolo", to="yolo", progress=False)
    found = images_in("yolo")
    assert len(found) == len(names)
    lefts = {Path(uri).read_bytes(): left[0] for uri, left in zip(names, frame.x_min, strict=True)}
    for text, path in found.items():
        ((number, x, y, width, height),) = lines_in(text)
        left = lefts[path.read_bytes()]
        assert (number, y, height) == (0, 0.375, 0.25)
        assert (x - width / 2, x + width / 2) == pytest.approx((left, 0.75), abs=1e-7)
    tfrecorder.convert("yolo", "again", progress=False)
    for reader in ("out", "again"):
        rows = tfrecorder.to_frame(reader, images="bytes")
        assert {row.image_uri: row.x_min[0] for row in rows.itertuples()} == pytest.approx(lefts)


@pytest.mark.parametrize("unit", ["pixel", "fraction"])
@pytest.mark.parametrize("has_masks", [False, True])
def test_lines_are_of_the_upright_picture(unit: str, has_masks: bool) -> None:
    """A white part of a dark picture, of which only Pillow knows where it is once upright."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    box = np.array([6, 4, 20, 12])
    pixels[4:12, 6:20] = 255
    for orientation in range(1, 9):
        picture(f"{orientation}.jpg", pixels, orientation)
    size = np.array([WIDTH, HEIGHT] * 2) if unit == "fraction" else np.ones(4)
    edges = {name: [[value]] * 8 for name, value in zip(EDGES, box / size, strict=True)}
    corners = (np.array([6, 4, 20, 4, 20, 12, 6, 12]) / np.tile(size, 2)).tolist()
    uris = [f"{orientation}.jpg" for orientation in range(1, 9)]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, **edges})
    frame["segmentation"] = [[[corners]]] * 8
    masks = "segmentation" if has_masks else None
    kinds = Schema(
        split=Split(), image_uri=Image(), boxes=Boxes(label=None, unit=unit, masks=masks)
    )
    frame = frame if has_masks else frame.drop(columns="segmentation")
    tfrecorder.convert(frame, "out", schema=kinds, progress=False)
    tfrecorder.export("out", "yolo", to="yolo", progress=False)
    for text, path in images_in("yolo").items():
        upright = np.asarray(ImageOps.exif_transpose(Pictures.open(path)))[..., 0] > 127
        rows, columns = np.nonzero(upright)
        truth = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        ((_, *numbers),) = lines_in(text)
        if has_masks:
            points = np.reshape(numbers, (-1, 2))
            found = [*points.min(0), *points.max(0)]
        else:
            x, y, width, height = numbers
            found = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
        assert found * np.tile(upright.shape[::-1], 2) == pytest.approx(truth, abs=0.01), path


def test_the_classes_are_read_back_by_yaml() -> None:
    names = ["no", "010", "a: b", "# c", "é 中", '"quoted"', "back\\slash", "1.0", "null", "- d"]
    frame = frame_of([f"{n}.jpg" for n in range(len(names))])
    frame["label"] = [[name] for name in names]
    kinds = {"split": Split(), "image_uri": Image()}
    for number, background in enumerate((False, True)):
        boxes = Boxes(names=names, background_class=background)
        tfrecorder.convert(frame, f"{number}", schema=Schema(**kinds, boxes=boxes), progress=False)
        tfrecorder.export(f"{number}", f"yolo{number}", to="yolo", progress=False)
        assert yaml.safe_load(Path(f"yolo{number}/data.yaml").read_text())["names"] == names
        classes = [int(lines_in(text)[0][0]) for text in images_in(f"yolo{number}")]
        assert sorted(classes) == list(range(len(names)))
        tfrecorder.convert(f"yolo{number}", f"again{number}", progress=False)
        assert tfrecorder.info(f"again{number}").columns["boxes"].class_names == tuple(names)


def shapes() -> list[np.ndarray]:
    """Masks with holes, several parts, and parts that touch at a corner."""
    random = np.random.default_rng(0)
    masks = [random.random((HEIGHT, WIDTH)) < share for share in (0.02, 0.3, 0.5, 0.98)]
    ring = np.zeros((HEIGHT, WIDTH), bool)
    ring[4:30, 5:40] = True
    ring[10:20, 10:20] = False
    ring[14:16, 14:16] = True
    diagonal = np.zeros_like(ring)
    diagonal[:4, :4] = diagonal[4:8, 4:8] = True
    return [*masks, ring, diagonal, np.ones_like(ring)]


def runs_of(mask: np.ndarray) -> dict[str, Any]:
    """COCO's runs, counted one pixel after the other."""
    counts = [0]
    inside = False
    for pixel in mask.T.ravel().tolist():
        if pixel != inside:
            counts.append(0)
            inside = pixel
        counts[-1] += 1
    return {"size": [HEIGHT, WIDTH], "counts": counts}


def coco(objects: list[dict[str, Any]]) -> None:
    """One picture with these objects, in COCO's form."""
    picture("coco/images/a.png")
    whole = {"image_id": 1, "category_id": 1, "bbox": [0, 0, WIDTH, HEIGHT], "iscrowd": 0}
    annotations = [{**whole, "id": number, **one} for number, one in enumerate(objects, 1)]
    for number, one in enumerate(annotations):  # no box is there twice
        one["bbox"] = [0, 0, WIDTH - number, HEIGHT]
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": WIDTH, "height": HEIGHT}],
        "annotations": annotations,
        "categories": [{"id": 1, "name": "cat"}],
    }
    Path("coco/annotations").mkdir()
    Path("coco/annotations/instances_train.json").write_text(json.dumps(document))


MASKED = Schema(
    split=Split(),
    image_uri=Image(),
    boxes=Boxes(unit="pixel", masks="segmentation"),
    is_crowd=Number(dtype="int64", of="boxes"),
)


def test_the_pixels_of_a_polygon_are_those_of_the_mask() -> None:
    skip_without("pycocotools")
    from pycocotools import mask as drawing

    masks = shapes()
    coco([{"segmentation": runs_of(mask)} for mask in masks])
    tfrecorder.convert("coco", "out", schema=MASKED, progress=False)
    result = tfrecorder.export("out", "yolo", to="yolo", progress=False)
    assert "5 objects of several parts, or with holes" in str(result)
    (text,) = images_in("yolo")
    for mask, (_, *numbers) in zip(masks, lines_in(text), strict=True):
        polygon = (np.reshape(numbers, (-1, 2)) * (WIDTH, HEIGHT)).ravel().tolist()
        (drawn,) = drawing.frPyObjects([polygon], HEIGHT, WIDTH)
        assert np.array_equal(drawing.decode(drawn), mask)
    again = Schema(split=Split(), image_uri=Image(), boxes=Boxes(masks="segmentation"))
    tfrecorder.convert("yolo", "again", schema=again, progress=False)
    ((_, targets),) = tfrecorder.Records("again", "TRAIN")
    assert np.array_equal(targets["masks"], masks)


def test_what_a_line_cannot_hold_is_counted() -> None:
    skip_without("pycocotools")
    triangle = [1.0, 1.0, 9.0, 1.0, 9.0, 9.0]
    coco(
        [
            {"segmentation": [triangle]},
            {"segmentation": [triangle, [20, 20, 30, 20, 30, 30]]},
            {"segmentation": runs_of(np.zeros((HEIGHT, WIDTH), bool))},
            {"segmentation": runs_of(np.ones((HEIGHT, WIDTH), bool)), "iscrowd": 1},
        ]
    )
    tfrecorder.convert("coco", "out", schema=MASKED, progress=False)
    shown = invoke("export", "out", "yolo", "--to", "yolo", "--no-progress").output
    assert "1 object of several parts, or with holes" in shown
    assert "1 object without a pixel of a mask: they are the corners of their boxes" in shown
    assert "1 object marked as crowds, left out" in shown
    assert "left out, as yolo has no place for them: is_crowd" in shown
    (text,) = images_in("yolo")
    assert [len(line) for line in lines_in(text)] == [7, 17, 9]  # all polygons: no kind is mixed


def test_a_picture_without_objects_is_a_background() -> None:
    frame = frame_of(["a.jpg", "b.jpg", "c.jpg"], split=["TRAIN", "TRAIN", "TEST"])
    for name in [*EDGES, "label"]:
        frame.at[1, name] = []
    tfrecorder.convert(frame, "out", progress=False)
    result = tfrecorder.export("out", "yolo", to="yolo", progress=False)
    assert "data.yaml has no images for `val`" in str(result)
    config = yaml.safe_load(Path("yolo/data.yaml").read_text())
    assert config == {
        "train": "images/train",
        "val": None,
        "test": "images/test",
        "names": ["cat"],
    }
    assert sorted(len(lines_in(text)) for text in images_in("yolo")) == [0, 1, 1]
    report = tfrecorder.validate("yolo")
    assert "no label file" not in str(report)


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("has_masks", [False, True])
def test_ultralytics_finds_no_fault(has_masks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOLO_CONFIG_DIR", os.getcwd())
    skip_without("ultralytics")
    from ultralytics.data.dataset import YOLODataset
    from ultralytics.data.utils import check_det_dataset

    masks = shapes()
    coco([{"segmentation": runs_of(mask)} for mask in masks])
    tfrecorder.convert("coco", "out", schema=MASKED if has_masks else None, progress=False)
    frame = frame_of(["images/a.jpg", "b.jfif"], split=["VALIDATION", "TEST"])
    for name in [*EDGES, "label"]:
        frame.at[1, name] = []
    tfrecorder.convert(frame, "others", progress=False)
    for dataset, splits in (("out", ["train"]), ("others", ["val", "test"])):
        tfrecorder.export(dataset, f"{dataset}-yolo", to="yolo", progress=False)
        config = check_det_dataset(f"{dataset}-yolo/data.yaml", autodownload=False)
        assert config["names"] == {0: "cat"}
        for split in splits:
            task = "segment" if has_masks and dataset == "out" else "detect"
            read = YOLODataset(img_path=config[split], data=config, task=task, augment=False)
            (labels,) = read.labels  # it leaves out what is corrupt
            (text,) = (text for text in images_in(f"{dataset}-yolo") if f"/{split}/" in text)
            assert len(labels["cls"]) == len(lines_in(text)) == {"train": 7, "val": 1}.get(split, 0)
            if task == "segment":
                assert len(labels["segments"]) == 7
