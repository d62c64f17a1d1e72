"""A mask for each object, of COCO's polygons and RLE: those of pycocotools, in every reader."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.annotation_cases import IMAGES, annotation, coco_file, pictures, yolo
from helpers.record_laws import check_records
from PIL import Image as Pictures
from support import invoke, shards

import tfrecorder
from tfrecorder.errors import PackageError
from tfrecorder.schema import Boxes, Image, Number, Schema, Split

masks = pytest.importorskip("pycocotools.mask")
coco = pytest.importorskip("pycocotools.coco")

SCHEMA = Schema(
    split=Split(required=False),
    image_uri=Image(),
    image_id=Number(dtype="int64"),
    boxes=Boxes(unit="pixel", masks="segmentation"),
    is_crowd=Number(dtype="int64", of="boxes"),
)


def compressed(height: int, width: int, seed: int) -> dict[str, Any]:
    """Compressed RLE, as crowds of COCO have it."""
    pixels = np.random.default_rng(seed).random((height, width)) > 0.6
    made = masks.encode(np.asfortranarray(pixels.astype(np.uint8)))
    return {"size": made["size"], "counts": made["counts"].decode()}


#: RLE in both forms, polygons in several parts, on the edges, beyond them, and far too fine.
ODD = [
    annotation(11, 3, [0, 0, 40, 30], segmentation=[[0, 0, 40, 0, 40, 30.6, 3, 29]]),
    annotation(300, 90, [1, 2, 9, 3], iscrowd=1, segmentation=compressed(20, 50, 0)),
    annotation(300, 3, [1, 2, 9, 3], segmentation={"size": [20, 50], "counts": [0, 3, 920, 77]}),
    annotation(
        11, 7, [3, 4, 7, 6], segmentation=[[1, 1, 5, 1, 5, 5], [10.5, 10, 30, 12, 12, 28, 11, 11]]
    ),
    annotation(11, 7, [3, 4, 7, 6], segmentation=[[-3, -4, 8.5, -1, 55, 40, 2, 33]]),
    annotation(11, 7, [3, 4, 7, 6], segmentation=[[5.1, 5.2, 5.15, 5.2, 5.12, 5.3]]),
    annotation(300, 7, [0, 0, 9, 9], segmentation={"size": [20, 50], "counts": [1000]}),
]


def source(annotations: list[dict[str, Any]] = ODD, name: str = "instances_train.json") -> str:
    pictures("images")
    return str(coco_file(name, annotations=annotations))


def converted(path: str, out: str = "out", **options: Any) -> Any:
    options = {"schema": SCHEMA, "max_reject_fraction": 0, **options}
    return tfrecorder.convert(path, out, progress=False, **options)


def targets(out: str) -> dict[str, dict[str, Any]]:
    """The boxes and masks of each image, by its name."""
    uris = tfrecorder.Records(out, "TRAIN").table().image_uri
    found = tfrecorder.Records(out, "TRAIN", targets=["boxes"])
    return {Path(uri).name: target for uri, (_, target) in zip(uris, found, strict=True)}


def read(out: str) -> dict[str, list[Any]]:
    return {name: target["masks"].tolist() for name, target in targets(out).items()}


def check_like_pycocotools(path: str, out: str) -> None:
    theirs = coco.COCO(path)
    found = targets(out)
    assert len(found) == len(theirs.imgs)
    for number, image in theirs.imgs.items():
        wanted = [theirs.annToMask(one) for one in theirs.imgToAnns[number]]
        wanted = np.reshape(wanted, (-1, image["height"], image["width"]))
        ours = found[image["file_name"].replace("\\", "/").rpartition("/")[2]]["masks"]
        assert ours.dtype == np.uint8
        np.testing.assert_array_equal(ours, wanted)


def test_masks_are_those_of_pycocotools() -> None:
    path = source()
    converted(path)
    check_like_pycocotools(path, "out")
    check_records("out")


def test_polygons_of_every_form_are_those_of_pycocotools() -> None:
    """Generated: also those that cross themselves, or have all their corners in one place."""
    rng = np.random.default_rng(5)
    made = []
    for _ in range(150):
        number, width, height = list(IMAGES.values())[rng.integers(3)]
        parts = [
            (rng.uniform(-0.3, 1.3, (rng.integers(3, 12), 2)) * [width, height]).round(
                rng.integers(0, 3)
            )
            for _ in range(rng.integers(1, 4))
        ]
        polygons = [part.ravel().tolist() for part in parts]
        made.append(annotation(number, 3, [0, 0, 5, 5], segmentation=polygons))
    path = source(made)
    converted(path)
    check_like_pycocotools(path, "out")


def test_segments_of_panoptic_files_are_those_of_their_pngs() -> None:
    """Drawn as COCO does: a segment's number is its pixels' colour."""
    pictures("images")
    rng, annotations, wanted = np.random.default_rng(2), [], {}
    for name, (number, width, height) in IMAGES.items():
        ids = rng.choice([0, 7, 300, 70_000], (height, width))
        colours = np.stack([ids % 256, ids // 256 % 256, ids // 65536], -1).astype(np.uint8)
        Path("panoptic_train").mkdir(exist_ok=True)
        Pictures.fromarray(colours).save(f"panoptic_train/{number}.png")
        segments = [
            {"id": at, "category_id": 3, "bbox": [0, 0, 9, 9], "area": 81, "iscrowd": int(at == 7)}
            for at in (7, 300, 70_000)
        ]
        annotations.append(
            {"image_id": number, "file_name": f"{number}.png", "segments_info": segments}
        )
        wanted[name.rpartition("\\")[2]] = [(ids == one["id"]).tolist() for one in segments]
    path = str(coco_file("panoptic_train.json", annotations=annotations))
    converted(path)
    assert read("out") == wanted
    assert tfrecorder.to_frame("out").is_crowd.tolist() == [[1, 0, 0]] * 3
    Path("panoptic_train/11.png").write_bytes(b"no PNG")
    report = tfrecorder.validate(path, schema=SCHEMA)
    assert '{"png": "11.png", "id": 7}' in "".join(report[report.code == "bad_box"].message)


def test_polygons_of_yolo_are_those_of_pycocotools() -> None:
    """In fractions of the image, as its boxes."""
    polygons = [[0.1, 0.2, 0.5, 0.3, 0.4, 0.9], [0.25, 0, 1, 1, 0.6, 0.45, 0, 0.75]]
    lines = "".join(f"0 {' '.join(map(str, polygon))}\n" for polygon in polygons)
    yolo("set", "train: images\nnames: [dog]\n", {"images/one.jpg": lines})
    schema = Schema(split=Split(), image_uri=Image(), boxes=Boxes(masks="segmentation"))
    converted("set", schema=schema)
    in_pixels = [(np.reshape(one, (-1, 2)) * (40, 20)).ravel().tolist() for one in polygons]
    wanted = [masks.decode(masks.frPyObjects([one], 20, 40))[..., 0] for one in in_pixels]
    assert read("out") == {"one.jpg": np.array(wanted).tolist()}
    Path("set/labels/one.txt").write_text(f"{lines}0 0.5 0.5 1 1\n")
    report = tfrecorder.validate("set", schema=schema)
    assert "bad_box" in set(report[report.severity == "error"].code)


def test_without_masks_in_the_schema_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that boxes need no pycocotools; with masks, its extra is named before anything runs."""
    path = source()
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    frame = tfrecorder.to_frame(converted(path, schema=None).output_dir)
    assert "segmentation" not in frame
    with pytest.raises(PackageError, match=r"tfrecorder-images\[coco\]"):
        tfrecorder.validate(path, schema=SCHEMA)


@pytest.mark.parametrize("options", [{"image_size": 16}, {"image_size": 16, "resize": "crop"}])
def test_masks_move_with_the_pixels_and_go_with_their_box(options: dict[str, Any]) -> None:
    """A crop to the middle loses the box at the left of the wide image, with its mask."""
    corners = {"left": (0, 0, 6, 20), "middle": (20, 5, 32, 15)}
    polygons = [[x, y, right, y, right, low, x, low] for x, y, right, low in corners.values()]
    made = [
        annotation(300, 3, [x, y, right - x, low - y], segmentation=[polygon])
        for (x, y, right, low), polygon in zip(corners.values(), polygons, strict=True)
    ]
    converted(source(made), **options)
    of_image = targets("out")["three.jpg"]
    kept = [corners["middle"]] if "resize" in options else [*corners.values()]
    assert of_image["masks"].shape == (len(kept), 16, 16)
    for mask, (top, left, low, right) in zip(of_image["masks"], of_image["boxes"], strict=True):
        rows, columns = np.nonzero(mask)
        edges = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
        assert np.abs(np.array(edges) - np.array([top, left, low, right]) * 16).max() <= 1


FAULTS = [
    [],
    [[0, 0, 4]],
    [[0, 0, 4, 4]],
    [[0, 0, 4, 4, 1, float("nan")]],
    "polygon",
    None,
    {"size": [20, 50], "counts": [3, 4]},
    {"size": [20, 50], "counts": [-3, 1003]},
    {"size": [20, 50], "counts": "PP"},
    {"size": 3, "counts": [9]},
    {"counts": [1000]},
]


def test_every_mask_that_is_not_sound_is_reported_with_its_row() -> None:
    made = [annotation(300, 3, [1, 1, 4, 4], segmentation=fault) for fault in FAULTS]
    made.append(annotation(11, 3, [1, 1, 4, 4]))
    report = tfrecorder.validate(source([*ODD, *made]), schema=SCHEMA)
    wrong = report[report.severity == "error"]
    assert {*wrong.code} == {"bad_box"}
    assert sorted(wrong.row) == [0, *[2] * len(FAULTS)]
    assert wrong.message.str.contains("neither COCO's polygons nor its RLE").all()


def test_a_mask_of_another_size_is_a_reject_that_validation_finds() -> None:
    made = [
        annotation(300, 3, [1, 1, 4, 4], segmentation={"size": [50, 20], "counts": [1000]}),
        annotation(11, 3, [1, 1, 4, 4], segmentation=[[0, 0, 1e7, 0, 4, 4]]),
        annotation(300, 3, [1, 1, 4, 4], segmentation=[[0, 0, 50, 20] * 500]),
    ]
    path = source([ODD[0], *made])
    report = tfrecorder.validate(path, schema=SCHEMA, check_images=True, base="images")
    found = report[report.code == "box_outside"]
    assert sorted(found.row) == [0, 2, 2]
    assert "20 x 50 pixels, the image has 50 x 20" in "".join(found.message)
    result = converted(path, max_reject_fraction=1)
    rejects = pd.read_csv(Path("out", "rejects.csv"))
    assert (result.records, {*rejects.reason.str.partition(":")[0]}) == (1, {"mask_size"})


@pytest.mark.slow
def test_what_is_exported_as_coco_or_csv_has_the_same_masks() -> None:
    converted(source())
    tfrecorder.export("out", "there", to="coco", progress=False)
    (path,) = map(str, Path("there/annotations").glob("*.json"))
    converted("there", "again")
    check_like_pycocotools(path, "again")
    assert read("again") == read("out")
    tfrecorder.export("out", "csv", to="csv", progress=False)
    result = invoke("convert", "csv/dataset.csv", "third", "--schema", "csv/schema.yaml")
    assert result.exit_code == 0, result.output
    assert read("third") == read("out")


@pytest.mark.parametrize("options", [{}, {"image_size": 16}])
def test_a_frame_of_a_dataset_makes_the_same_masks(options: dict[str, Any]) -> None:
    converted(source(), **options)
    frame = tfrecorder.to_frame("out", images="bytes").sort_index()
    names = ["one.jpg", "two words.png", "three.jpg"]
    frame["image_uri"] = [
        {"bytes": of, "path": name} for name, of in zip(names, frame.image_uri, strict=True)
    ]
    schema = Schema({**SCHEMA.columns, "split": Split()})
    converted(frame, "again", schema=schema)
    assert read("again") == read("out")


@pytest.mark.slow
def test_a_shard_is_repaired_and_a_mask_corrected() -> None:
    path = source()
    converted(path)
    (shard,) = shards("out")
    whole = Path(shard).read_bytes()
    Path(shard).unlink()
    tfrecorder.repair("out", progress=False)
    assert Path(shard).read_bytes() == whole
    other = {**ODD[0], "segmentation": [[2, 2, 30, 2, 30, 20]]}
    path = source([other, *ODD[1:]])
    tfrecorder.update(path, "out", progress=False)
    check_like_pycocotools(path, "out")


@pytest.mark.slow
def test_tfds_and_tensorflow_read_the_same_masks() -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    converted(source())
    ours = read("out")
    for row in tfds.builder_from_directory("out").as_dataset("train").as_numpy_iterator():
        wanted, drawn = ours[Path(row["image/filename"].decode()).name], row["image/object/mask"]
        np.testing.assert_array_equal(np.reshape(drawn, np.shape(wanted)), wanted)
    loaded = tfrecorder.load("out", "TRAIN", targets=["boxes"], shuffle=False)
    assert [target["masks"].numpy().tolist() for _, target in loaded] == [*ours.values()]
