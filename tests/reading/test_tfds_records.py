"""Directories that TFDS writes, with boxes, masks and several classes: read as TFDS reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from helpers.foreign_cases import BOXES, CLASSES, MASKS, PHOTOS, alike, both, drawn_mask
from helpers.reading_cases import mean_difference, pillow_pixels

import tfrecorder
from tfrecorder.errors import DatasetError

NAMES = ["background", "cup", "spoon", "saucer", "table", "milk", "sugar", "biscuit"]


def write(folder: Path, features: Any, rows: list[Any], supervised: Any = None) -> Path:
    """A dataset of one split, as TFDS's own writer publishes it."""
    folder.mkdir(parents=True)
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name="coffee", split="train", filetype_suffix="tfrecord"
    )
    with tf.io.TFRecordWriter(str(template.sharded_filepath(shard_index=0, num_shards=1))) as file:
        for row in rows:
            file.write(features.serialize_example(features.encode_example(row)))
    info = tfds.core.SplitInfo(
        name="train", shard_lengths=[len(rows)], num_bytes=1, filename_template=template
    )
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=features,
        split_infos=[info],
        filename_template=template,
        supervised_keys=supervised,
    )
    return folder


def objects(**more: Any) -> Any:
    feature = {"bbox": tfds.features.BBoxFeature(), "label": tfds.features.ClassLabel(names=NAMES)}
    return tfds.features.Sequence({**feature, "is_crowd": np.bool_, "id": np.int64, **more})


def _objects(number: int, **more: Any) -> list[dict[str, Any]]:
    """The objects of a photograph; `more` gives a value for each of its boxes."""
    return [
        {
            "bbox": tfds.features.BBox(*box),
            "label": label,
            "is_crowd": False,
            "id": 7,
            **{key: value(box) for key, value in more.items()},
        }
        for box, label in zip(BOXES[number], CLASSES[number], strict=True)
    ]


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As TFDS's coco, voc and lvis: boxes with classes and masks, the second image without."""
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "image/filename": tfds.features.Text(),
            "image/id": np.int64,
            "objects": objects(segmentation=tfds.features.Image(shape=(None, None, 1))),
        }
    )
    rows = []
    for number in range(3):
        height, width = pillow_pixels(PHOTOS[number].read_bytes()).shape[:2]

        def mask(box: list[float], sides: tuple[int, int] = (height, width)) -> np.ndarray:
            return drawn_mask(box, *sides)[..., None]

        rows.append(
            {
                "image": str(PHOTOS[number]),
                "image/filename": PHOTOS[number].name,
                "image/id": number,
                "objects": _objects(number, segmentation=mask),
            }
        )
    return write(tmp_path_factory.mktemp("tfds") / "coffee/1.0.0", features, rows)


def _theirs(folder: Path) -> list[Any]:
    builder = tfds.builder_from_directory(folder)
    return list(tfds.as_numpy(builder.as_dataset("train", shuffle_files=False)))


def _check_detection(where: Any, theirs: list[Any]) -> None:
    for (loaded, found), their in zip(both(where), theirs, strict=True):
        alike(loaded, found)
        pixels, ours = loaded
        assert mean_difference(pixels, their["image"]) < 2  # TFDS decodes JPEG less accurately
        np.testing.assert_array_equal(ours["boxes"], their["objects"]["bbox"])
        np.testing.assert_array_equal(ours["labels"], their["objects"]["label"])
        if len(ours["masks"]):
            np.testing.assert_array_equal(ours["masks"], their["objects"]["segmentation"][..., 0])
        else:
            assert len(their["objects"]["segmentation"]) == 0


@pytest.mark.slow
def test_boxes_classes_and_masks_are_those_of_tfds(detection: Path) -> None:
    _check_detection(detection, _theirs(detection))
    info = tfrecorder.info(detection)
    assert info.class_names == tuple(NAMES)
    assert info.columns["objects"].kind == "boxes"
    assert set(info.features) == {
        "image",
        "image/filename",
        "image/id",
        *(f"objects/{key}" for key in ("bbox", "label", "is_crowd", "id", "segmentation")),
    }
    frame = tfrecorder.to_frame(detection)
    assert frame["image"].tolist() == [path.name for path in PHOTOS[:3]]
    assert frame["label"].tolist() == [[NAMES[one] for one in some] for some in CLASSES]
    (batch,) = tfrecorder.load(detection, "TRAIN", batch_size=3, image_size=16, max_boxes=2)
    assert [batch[1][key].shape for key in ("boxes", "labels", "masks")] == [
        (3, 2, 4),
        (3, 2),
        (3, 2, 16, 16),
    ]
    for (one, other), their in zip(both(detection, inputs="all"), _theirs(detection), strict=True):
        alike(one, other)
        np.testing.assert_array_equal(one["objects/bbox"], their["objects"]["bbox"])
        assert one["objects/is_crowd"].dtype == bool


@pytest.mark.slow
@pytest.mark.parametrize("kept", [["features.json", "objects-label.labels.txt"], []])
def test_its_shards_alone_in_a_folder(detection: Path, kept: list[str], tmp_path: Path) -> None:
    """With its features.json, without dataset_info.json; then without either."""
    (shard,) = detection.glob("*.tfrecord*")
    for name in (shard.name, *kept):
        shutil.copy(detection / name, tmp_path / name)
    info = tfrecorder.info(tmp_path)
    assert info.form == "files"
    assert list(info.splits) == ["TRAIN"]
    if kept:
        assert info.class_names == tuple(NAMES)
        _check_detection(tmp_path, _theirs(detection))
    for (loaded, _), their in zip(both(tmp_path), _theirs(detection), strict=True):
        np.testing.assert_array_equal(loaded[1]["boxes"], their["objects"]["bbox"])
        np.testing.assert_array_equal(loaded[1]["labels"], their["objects"]["label"])


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As TFDS's oxford_iiit_pet: classes, a box, and a mask; the label is named as the target."""
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=NAMES),
            "species": tfds.features.ClassLabel(names=["cat", "dog"]),
            "file_name": tfds.features.Text(),
            "segmentation_mask": tfds.features.Image(shape=(None, None, 1)),
            "head_bbox": tfds.features.BBoxFeature(),
        }
    )
    rows = [
        {
            "image": str(PHOTOS[number]),
            "label": number,
            "species": 1,
            "file_name": PHOTOS[number].name,
            "segmentation_mask": pillow_pixels(MASKS[number].read_bytes())[..., None],
            "head_bbox": tfds.features.BBox(*BOXES[0][0]),
        }
        for number in range(3)
    ]
    folder = tmp_path_factory.mktemp("tfds") / "pets/1.0.0"
    return write(folder, features, rows, ("image", "label"))


@pytest.mark.slow
def test_classes_a_single_box_and_a_mask(pets: Path) -> None:
    for (loaded, found), their in zip(both(pets), _theirs(pets), strict=True):
        alike(loaded, found)
        targets = loaded[1]
        assert set(targets) == {"label", "head_bbox", "segmentation_mask"}
        assert targets["label"] == their["label"]
        np.testing.assert_array_equal(targets["head_bbox"]["boxes"], [their["head_bbox"]])
        np.testing.assert_array_equal(targets["segmentation_mask"], their["segmentation_mask"])
    for loaded, _ in both(pets, targets=["label", "species"]):
        assert loaded[1]["species"] == 1
    assert tfrecorder.info(pets).columns["label"].class_names == tuple(NAMES)
    assert tfrecorder.to_frame(pets, images="bytes")["label"].tolist() == NAMES[:3]


def test_several_labels_become_a_vector(tmp_path: Path) -> None:
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "labels": tfds.features.Sequence(tfds.features.ClassLabel(names=NAMES)),
            "words": tfds.features.Sequence(tfds.features.Sequence(tfds.features.Text())),
        }
    )
    more = {"words": [["a"], ["b", "c"]]}  # lists of lists, which are left out
    rows = [{"image": str(PHOTOS[0]), "labels": [1, 4], **more}]
    rows.append({"image": str(PHOTOS[1]), "labels": [], **more})
    where = write(tmp_path / "voc/1.0.0", features, rows)
    wanted = [[0, 1, 0, 0, 1, 0, 0, 0], [0] * 8]
    for (loaded, found), vector in zip(both(where), wanted, strict=True):
        alike(loaded, found)
        assert loaded[1].tolist() == vector
    assert list(tfrecorder.info(where).columns) == ["image", "labels"]


def test_a_number_to_be_learnt_is_the_target(tmp_path: Path) -> None:
    features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(encoding_format="jpeg"), "age": np.float32}
    )
    rows = [{"image": str(PHOTOS[0]), "age": 2.5}]
    where = write(tmp_path / "ages/1.0.0", features, rows, ("image", "age"))
    ((loaded, found),) = both(where)
    alike(loaded, found)
    assert loaded[1] == 2.5


@pytest.mark.parametrize("unit", ["YXYX", "XYWH"])
def test_boxes_of_another_form(unit: str, tmp_path: Path) -> None:
    height, width = pillow_pixels(PHOTOS[0].read_bytes()).shape[:2]
    bbox = tfds.features.BBoxFeature(bbox_format=unit)
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "objects": tfds.features.Sequence({"bbox": bbox}),
        }
    )
    box = np.array(BOXES[0][0]) * [height, width, height, width]
    rows = [{"image": str(PHOTOS[0]), "objects": [{"bbox": tfds.features.BBox(*box)}]}]
    where = write(tmp_path / "boxes/1.0.0", features, rows)
    if unit == "YXYX":
        ((loaded, found),) = both(where)
        alike(loaded, found)
        np.testing.assert_allclose(loaded[1]["boxes"], [BOXES[0][0]], atol=1e-6)
        return
    with pytest.raises(DatasetError, match="objects/bbox holds boxes of the form X"):
        tfrecorder.load(where)


@pytest.mark.parametrize("key", ["image/object/bbox", "faces"])
def test_boxes_next_to_boxes(key: str, tmp_path: Path) -> None:
    """As `convert(tfds_features=True)` writes them, and as somebody else may."""
    names = ["ymin", "xmin", "ymax", "xmax"]
    edges = {f"image/object/bbox/{name}": tfds.features.Sequence(np.float32) for name in names}
    features = tfds.features.FeaturesDict(
        {
            "image/encoded": tfds.features.Image(encoding_format="jpeg"),
            key: tfds.features.Sequence(tfds.features.BBoxFeature()),
            **edges,
        }
    )
    box = BOXES[0][0]
    sides = {name: [side] for name, side in zip(edges, box, strict=True)}
    row = {"image/encoded": str(PHOTOS[0]), key: [tfds.features.BBox(*box)], **sides}
    where = write(tmp_path / "both/1.0.0", features, [row])
    if key == "faces":
        with pytest.raises(DatasetError, match="faces holds boxes next to those of image/object"):
            tfrecorder.load(where)
        return
    ((loaded, found),) = both(where)
    alike(loaded, found)
    np.testing.assert_array_equal(loaded[1]["boxes"], [box])


def test_images_of_16_bits_are_refused(tmp_path: Path) -> None:
    image = tfds.features.Image(shape=(4, 4, 1), dtype=np.uint16, encoding_format="png")
    features = tfds.features.FeaturesDict({"image": image})
    rows = [{"image": np.zeros((4, 4, 1), np.uint16)}]
    where = write(tmp_path / "deep/1.0.0", features, rows)
    with pytest.raises(DatasetError, match="image holds images of uint16; load decodes to 8 bits"):
        tfrecorder.load(where)


def test_a_further_image_is_refused_unless_columns_are_named(tmp_path: Path) -> None:
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(encoding_format="jpeg"),
            "panoptic_image": tfds.features.Image(encoding_format="png"),
            "name": tfds.features.Text(),
        }
    )
    rows = [{"image": str(PHOTOS[0]), "panoptic_image": np.zeros((4, 4, 3), np.uint8), "name": "a"}]
    where = write(tmp_path / "panoptic/1.0.0", features, rows)
    with pytest.raises(DatasetError, match="panoptic_image is a further image") as raised:
        tfrecorder.load(where)
    assert "targets=" in str(raised.value)
    ((loaded, found),) = both(where, targets=["name"])
    alike(loaded, found)
    assert loaded[1] == b"a"
    ((one, other),) = both(where, inputs="all")
    alike(one, other)
    assert one["panoptic_image"].startswith(b"\x89PNG")
