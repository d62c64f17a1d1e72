"""COCO's form keeps what COCO said: ids of images, areas, masks; pycocotools judges the rest."""

from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.annotation_cases import picture
from support import skip_without

import tfrecorder
from tfrecorder.schema import Boxes, Image, Number, Schema, Split, Text

WIDTH, HEIGHT = 64, 48

Document = dict[str, Any]


def ellipse(x: float, y: float, a: float, b: float) -> list[float]:
    turns = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    return np.stack([x + a * np.cos(turns), y + b * np.sin(turns)], 1).ravel().tolist()


def document(ids: list[Any], names: list[str]) -> Document:
    """Pictures with these ids; each has an object of one part, one of two, and a crowd."""
    from pycocotools import mask as drawing

    images = []
    annotations = []
    for number, (image, name) in enumerate(zip(ids, names, strict=True)):
        images.append({"id": image, "file_name": name, "width": WIDTH, "height": HEIGHT})
        masks: list[Any] = [
            [ellipse(20 + number, 20, 12, 9)],
            [ellipse(44, 12, 8, 6), ellipse(48, 30 + number, 5, 7)],
        ]
        crowd = np.zeros((HEIGHT, WIDTH), np.uint8, order="F")
        crowd[40:46, 4 : 20 + number] = 1
        runs = drawing.encode(crowd)
        masks.append({"size": runs["size"], "counts": runs["counts"].decode()})
        for place, mask in enumerate(masks):
            is_crowd = int(place == 2)
            drawn = mask if is_crowd else drawing.merge(drawing.frPyObjects(mask, HEIGHT, WIDTH))
            one = {"bbox": drawing.toBbox(drawn).tolist(), "iscrowd": is_crowd}
            one |= {"segmentation": mask, "area": float(drawing.area(drawn)) + 0.5}
            where = {"image_id": image, "category_id": 7 if place else 3}
            annotations.append({"id": len(annotations) + 1, **where, **one})
    categories = [{"id": 3, "name": "b"}, {"id": 7, "name": "a"}]
    return {"images": images, "annotations": annotations, "categories": categories}


def write(splits: dict[str, Document]) -> None:
    """A folder of COCO's form."""
    for split, content in splits.items():
        for image in content["images"]:
            picture(Path("coco/images", image["file_name"]), WIDTH, HEIGHT)
        path = Path(f"coco/annotations/instances_{split}.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def schema(**more: Any) -> Schema:
    boxes = Boxes(unit="pixel", masks="segmentation")
    return Schema(split=Split(required=False), image_uri=Image(), boxes=boxes, **more)


WHOLE = {
    "image_id": Number(dtype="int64"),
    "is_crowd": Number(dtype="int64", of="boxes"),
    "area": Number(of="boxes"),
}


def exported(split: str) -> Document:
    return json.loads(Path(f"export/annotations/instances_{split}.json").read_text())


def scores(truth: Document, found: Document, kind: str) -> np.ndarray:
    """What pycocotools says of annotations, given as results, against a truth."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    names = {one["name"]: one["id"] for one in truth["categories"]}
    mapped = {one["id"]: names[one["name"]] for one in found["categories"]}
    results = []
    for one in found["annotations"]:
        if not one["iscrowd"]:
            category = mapped[one["category_id"]]
            results.append({**one, "category_id": category, "score": 1.0})
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = truth
        coco.createIndex()
        found_again = COCO()
        found_again.dataset = {**truth, "annotations": results}
        found_again.createIndex()
        judged = COCOeval(coco, found_again, kind)
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return judged.stats


def test_ground_truth_against_itself_scores_1_after_a_round_trip() -> None:
    skip_without("pycocotools")
    from pycocotools import mask as drawing

    sources = {"train": document([139, 5, 90], ["a.jpg", "b.jpg", "c.jpg"])}
    write(sources)
    tfrecorder.convert("coco", "out", schema=schema(**WHOLE), progress=False)
    result = tfrecorder.export("out", "export", to="coco", progress=False)
    assert (result.left_out, result.notes) == ((), ())
    found = exported("train")
    for kind in ("bbox", "segm"):
        stats = scores(sources["train"], found, kind)
        assert stats[:3].tolist() == [1.0] * 3
        assert stats[8] == 1.0  # the recall
    names = {one["id"]: Path(one["file_name"]).name for one in found["images"]}
    assert names == {139: "a.jpg", 5: "b.jpg", 90: "c.jpg"}

    def told(content: Document, image: int) -> list[Any]:
        of_image = [one for one in content["annotations"] if one["image_id"] == image]
        return [(one["iscrowd"], one["area"]) for one in of_image]

    def masks(content: Document, image: int) -> list[np.ndarray]:
        drawn = []
        for one in (one for one in content["annotations"] if one["image_id"] == image):
            mask = one["segmentation"]
            if isinstance(mask, list):
                mask = drawing.merge(drawing.frPyObjects(mask, HEIGHT, WIDTH))
            elif isinstance(mask["counts"], list):
                mask = drawing.frPyObjects(mask, HEIGHT, WIDTH)
            drawn.append(drawing.decode(mask))
        return drawn

    for image in names:
        assert told(found, image) == told(sources["train"], image)
        assert np.array_equal(masks(found, image), masks(sources["train"], image))


def test_without_a_stated_area_it_is_that_of_the_mask() -> None:
    skip_without("pycocotools")
    source = document([1, 2], ["a.jpg", "b.jpg"])
    write({"train": source})
    tfrecorder.convert("coco", "out", schema=schema(), progress=False)
    tfrecorder.export("out", "export", to="coco", progress=False)
    stated = sorted(one["area"] - 0.5 for one in source["annotations"])  # 0.5 is ours, above
    assert sorted(one["area"] for one in exported("train")["annotations"]) == stated
    # Written smaller, the masks are those of the records.
    tfrecorder.convert("coco", "small", schema=schema(), progress=False, image_size=(24, 32))
    tfrecorder.export("small", "export2", to="coco", progress=False)
    text = Path("export2/annotations/instances_train.json").read_text()
    areas = Counter(one["area"] for one in json.loads(text)["annotations"])
    pixels = Counter[float]()
    for _, targets in tfrecorder.Records("small", "TRAIN"):
        pixels.update(map(float, targets["masks"].sum(axis=(1, 2)).tolist()))
    assert areas == pixels


def test_polygons_in_fractions_are_pixels_in_coco() -> None:
    skip_without("pycocotools")
    picture(Path("a.jpg"), WIDTH, HEIGHT)
    edges = {"x_min": [[0.25]], "y_min": [[0.25]], "x_max": [[0.75]], "y_max": [[0.5]]}
    corners = [0.25, 0.25, 0.75, 0.25, 0.75, 0.5, 0.25, 0.5]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": ["a.jpg"], **edges})
    frame["segmentation"] = [[[corners]]]
    boxes = Boxes(label=None, masks="segmentation")
    kinds = Schema(split=Split(), image_uri=Image(), boxes=boxes)
    tfrecorder.convert(frame, "out", schema=kinds, progress=False)
    tfrecorder.export("out", "export", to="coco", progress=False)
    (one,) = exported("train")["annotations"]
    assert one["segmentation"] == [[16, 12, 48, 12, 48, 24, 16, 24]]
    assert one["area"] == 32 * 12


@pytest.mark.parametrize(
    ("train", "validation", "clashes"),
    [
        ([139, 5, 90], [6, 7], 0),
        ([139, 5, 90], [5, 90], 2),
        ([1, 2, 3], [1, 2], 2),
        ([0, 2**40, -3], [2**40, 4], 1),
        (["x", "y", "17"], ["y", "1"], 1),
    ],
)
def test_each_image_keeps_its_id_if_no_other_has_it(
    train: list[Any], validation: list[Any], clashes: int
) -> None:
    skip_without("pycocotools")
    names = ["a.jpg", "b.jpg", "c.jpg"]
    write({"train": document(train, names), "val": document(validation, ["d.jpg", "e.jpg"])})
    tfrecorder.convert("coco", "out", progress=False)
    result = tfrecorder.export("out", "export", to="coco", progress=False)
    assert "image_id" not in result.left_out
    words = f"{clashes} image{'s' if clashes > 1 else ''} had the id of another: "
    assert (words in str(result)) == (clashes > 0)
    wanted = dict(zip([*names, "d.jpg", "e.jpg"], [*train, *validation], strict=True))
    ids = {}
    for split in ("train", "validation"):
        content = exported(split)
        for one in content["images"]:
            ids[Path(one["file_name"]).name] = one["id"]
        known = {one["id"] for one in content["images"]}
        assert Counter(one["image_id"] for one in content["annotations"]) == dict.fromkeys(known, 3)
    assert len({*ids.values()}) == 5
    assert {type(number) for number in ids.values()} == {type(train[0])}
    assert sum(ids[name] != wanted[name] for name in wanted) == clashes
    assert {name: ids[name] for name in names} == {name: wanted[name] for name in names}


def test_a_column_image_id_that_is_none_is_left_out() -> None:
    picture(Path("a.jpg"), WIDTH, HEIGHT)
    edges = {"x_min": [[1.0]], "y_min": [[1.0]], "x_max": [[9.0]], "y_max": [[9.0]]}
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": ["a.jpg"], **edges, "image_id": 1.5})
    boxes = Boxes(label=None, unit="pixel")
    for kind, is_kept in ((Number(), False), (Text(), True)):
        kinds = Schema(split=Split(), image_uri=Image(), boxes=boxes, image_id=kind)
        table = frame.assign(image_id="x1") if is_kept else frame
        tfrecorder.convert(table, "out", schema=kinds, progress=False, overwrite=True)
        result = tfrecorder.export("out", f"export{is_kept}", to="coco", progress=False)
        assert ("image_id" in result.left_out) != is_kept
