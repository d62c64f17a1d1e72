"""Records that the TF Model Garden's own COCO script makes, read as its own decoder reads them.

Where tf-models-official is not installed, these tests are skipped.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers.foreign_cases import BOXES, CLASSES, PHOTOS, alike, both
from helpers.reading_cases import pillow_pixels
from support import skip_without

import tfrecorder

NAMES = {one: f"class {one}" for some in CLASSES for one in some}


def _annotations(number: int, height: int, width: int) -> list[dict[str, Any]]:
    """What COCO's JSON says of a photograph: its second one has no object."""
    found = []
    for (ymin, xmin, ymax, xmax), label in zip(BOXES[number], CLASSES[number], strict=True):
        left, top, right, bottom = xmin * width, ymin * height, xmax * width, ymax * height
        found.append(
            {
                "bbox": [left, top, right - left, bottom - top],
                "category_id": label,
                "iscrowd": 0,
                "area": (right - left) * (bottom - top),
                "segmentation": [[left, top, right, top, right, bottom, left, bottom]],
            }
        )
    return found


@pytest.fixture(scope="module")
def official() -> Iterator[None]:
    """The package without what its `__init__` imports: all tasks, and twenty packages for them."""
    skip_without("official", "pycocotools", "tf_keras")
    found = importlib.util.find_spec("official")
    assert found is not None
    assert found.origin is not None
    with pytest.MonkeyPatch.context() as patch:
        for name in ("official.vision", "official.vision.data", "official.vision.dataloaders"):
            package = types.ModuleType(name)
            package.__path__ = [str(Path(found.origin).parents[1].joinpath(*name.split(".")))]
            patch.setitem(sys.modules, name, package)
        yield


@pytest.fixture(scope="module")
def coco(official: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from official.vision.data import create_coco_tf_record, tfrecord_lib

    def rows() -> Any:
        for number in (1, 0, 2):  # the first record is the one without boxes
            height, width = pillow_pixels(PHOTOS[number].read_bytes()).shape[:2]
            name = PHOTOS[number].name
            about = {"height": height, "width": width, "file_name": name, "id": number}
            boxes = _annotations(number, height, width)
            folders, of_panoptic = [str(PHOTOS[number].parent)], (None, None, False)
            yield about, folders, None, boxes, NAMES, None, *of_panoptic, True

    folder = tmp_path_factory.mktemp("coco")
    write = tfrecord_lib.write_tf_record_dataset
    create = create_coco_tf_record.create_tf_example
    assert write(str(folder / "train"), rows(), create, 1, multiple_processes=0) == 0
    return folder


def test_boxes_classes_and_masks_are_those_of_the_decoder(coco: Path) -> None:
    from official.vision.dataloaders.tf_example_decoder import TfExampleDecoder

    decoder = TfExampleDecoder(include_mask=True)
    (path,) = coco.iterdir()
    theirs = [decoder.decode(record) for record in tf.data.TFRecordDataset(str(path))]
    assert [len(one["groundtruth_boxes"]) for one in theirs] == [0, 2, 1]
    for (loaded, found), their in zip(both(coco), theirs, strict=True):
        alike(loaded, found)
        _, ours = loaded
        np.testing.assert_array_equal(ours["boxes"], their["groundtruth_boxes"])
        np.testing.assert_array_equal(ours["labels"], their["groundtruth_classes"])
        np.testing.assert_array_equal(ours["masks"], their["groundtruth_instance_masks"])


def test_every_key_of_the_script_is_a_column_or_part_of_one(coco: Path) -> None:
    (path,) = coco.iterdir()
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    keys = {key for one in records for key in tfrecorder.parse_example(one)}
    info = tfrecorder.info(coco)
    assert set(info.features) == keys
    assert not info.unread
    frame = tfrecorder.to_frame(coco)
    assert frame["image/object/is_crowd"].tolist() == [[], [0, 0], [0]]
    assert frame["label"].tolist() == [[], ["class 3", "class 7"], ["class 1"]]
