"""What cannot be read is said before training, in one clear message that names the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.reading_cases import convert_photos

import tfrecorder
from tfrecorder import info
from tfrecorder.errors import DatasetError, OptionError


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


@pytest.fixture
def out(kept: str, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(kept, tmp_path / "out"))


SHARD = "train-00001.tfrecord"


def remove(out: Path) -> None:
    (out / SHARD).unlink()


def truncate(out: Path) -> None:
    (out / SHARD).write_bytes((out / SHARD).read_bytes()[:-1])


def exchange(out: Path) -> None:
    shutil.copy(out / "validation-00000.tfrecord", out / SHARD)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove, f"{SHARD} is missing"),
        (truncate, f"{SHARD} has .* bytes, but .* were written"),
        (exchange, f"{SHARD} has .* bytes, but .* were written"),
    ],
)
@pytest.mark.parametrize("read", [tfrecorder.load, info])
def test_a_directory_that_is_not_whole(out: Path, damage, words: str, read) -> None:
    damage(out)
    with pytest.raises(DatasetError, match=words) as caught:
        read(out)
    assert "tfrecorder repair" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train-00004.tfrecord", "train-r2-00000.tfrecord"])
def test_a_shard_that_the_dataset_does_not_list_is_not_read(out: Path, name: str) -> None:
    shutil.copy(out / SHARD, out / name)
    assert info(out).records == 52
    assert len(tfrecorder.load(out, "TRAIN")) == len(tfrecorder.Records(out, "TRAIN")) == 36


def test_a_directory_that_is_not_committed_yet(out: Path) -> None:
    (out / "dataset_info.json").unlink()
    with pytest.raises(DatasetError, match=r"not committed yet.*same conversion again"):
        tfrecorder.load(out)


def test_directories_of_no_known_form(tmp_path: Path, out: Path) -> None:
    with pytest.raises(DatasetError, match="no such directory"):
        tfrecorder.load(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DatasetError, match=r"is not a dataset.*neither dataset_info.json nor"):
        tfrecorder.load(tmp_path)
    with pytest.raises(DatasetError, match="no file matches"):
        tfrecorder.load(str(tmp_path / "*.tfrecord"))
    (out / "dataset_info.json").write_text("{")
    with pytest.raises(DatasetError, match=r"dataset_info.json is damaged"):
        tfrecorder.load(out)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("%s", "do not have the form that TFDS writes"),
        ([], "do not have the form that TFDS writes"),
        ([str(2**63)] * 4, r"cannot hold 9223372036854775808 records"),
        (["-1"] * 4, r"cannot hold -1 records"),
    ],
)
def test_numbers_of_records_that_cannot_be(out: Path, value: Any, words: str) -> None:
    path = out / "dataset_info.json"
    document = json.loads(path.read_bytes())
    lengths = document["splits"][0]["shardLengths"]
    document["splits"][0]["shardLengths"] = value[: len(lengths)]
    path.write_text(json.dumps(document))
    for read in (tfrecorder.load, info):
        with pytest.raises(DatasetError, match=words):
            read(out)


@pytest.mark.slow
def test_a_misspelt_split(kept: str) -> None:
    with pytest.raises(DatasetError, match=r"has no split 'trian'; did you mean 'TRAIN'"):
        tfrecorder.load(kept, "trian")
    with pytest.raises(DatasetError, match="it has TRAIN, VALIDATION, TEST"):
        tfrecorder.load(kept, "holdout")
    assert len(tfrecorder.load(kept, "valid")) == 8


@pytest.mark.parametrize("split", [64, True, ["TRAIN"]])
def test_a_split_that_is_no_word(kept: str, split: object) -> None:
    with pytest.raises(OptionError, match=r"split=.*: give one name, such as 'TRAIN'.*VALIDATION"):
        tfrecorder.load(kept, split)


@pytest.mark.parametrize("name", ["run[1]", "what?", "photos.tfrecord"])
def test_a_directory_is_no_pattern_whatever_its_name(kept: str, tmp_path: Path, name: str) -> None:
    out = shutil.copytree(kept, tmp_path / name)
    assert len(tfrecorder.load(out, "TRAIN")) == info(out).splits["TRAIN"].records == 36


@pytest.mark.parametrize("scheme", ["s3", "az"])
def test_a_scheme_that_tensorflow_cannot_read(scheme: str) -> None:
    with pytest.raises(DatasetError, match=f"no reader of {scheme}://.*with Records or batches"):
        tfrecorder.load(f"{scheme}://bucket/out")


def test_sizes_that_differ_cannot_share_a_batch(kept: str) -> None:
    with pytest.raises(
        OptionError, match=r"batch_size=4.*differ in size.*`image_size=\(224, 224\)`"
    ):
        tfrecorder.load(kept, "TRAIN", batch_size=4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"imagesize": 3}, "no option 'imagesize'; did you mean `image_size`"),
        ({"batch_size": 0}, "batch_size=0: give a whole number from 1"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"batch_size": True}, "batch_size=True"),
        ({"image_size": (0, 5)}, r"image_size=\(0, 5\)"),
        ({"image_size": (1, 2, 3)}, "image_size"),
        ({"image_size": (5,)}, "image_size"),
        ({"image_size": 8, "resize": "squash"}, "resize='squash': give one of 'stretch'"),
        ({"dtype": "int8"}, "dtype='int8': give one of"),
        ({"value_range": (0, 1)}, "uint8 pixels are 0 to 255"),
        ({"dtype": "float32", "value_range": (1, 0)}, "low must be less"),
        ({"dtype": "float32", "value_range": (0, float("inf"))}, "both finite"),
        ({"mean": 0.5, "std": 1}, "mean=.*uint8 pixels are 0 to 255"),
        ({"dtype": "float32", "mean": 0.5}, "no effect without `std`"),
        ({"dtype": "float32", "std": 0.5}, "no effect without `mean`"),
        ({"dtype": "float32", "mean": 0.5, "std": (1, 1, 0)}, "give a finite number above 0"),
        ({"dtype": "float32", "mean": "vgg", "std": 1}, "mean='vgg'.*'imagenet' or 'clip'"),
        ({"dtype": "float32", "mean": 0, "std": (1, 1)}, "std=.*'image_uri' have 3 channels"),
        (
            {"dtype": "float32", "mean": 0, "std": 1, "value_range": (0, 1)},
            r"value_range=\(0, 1\): it has no effect with `mean",
        ),
        ({"decode": False, "image_size": 5}, "image_size=5: `decode=False`.*leave it out"),
        (
            {"decode": False, "value_range": (0, 255)},
            r"value_range=\(0, 255\): `decode=False`",
        ),
        ({"max_boxes": 3}, "max_boxes=3: no column that is read from .* holds boxes"),
        ({"image": 3}, "image=3: give text"),
        ({"augment": True}, "`image_size=224`"),
        ({"shuffle": 0}, "shuffle=0"),
        ({"seed": -1}, "seed=-1"),
        ({"start": 3}, r"start=3: give \(epoch, step\)"),
        ({"start": (0, -1)}, r"start=\(0, -1\): give \(epoch, step\)"),
        ({"start": (3, 0)}, "give the seed"),
        ({"start": (3, 99), "seed": 1}, "an epoch has 36 steps"),
        ({"image_size": 8, "resize": "fit", "batch_size": 2}, "cannot share a batch"),
        ({"image_size": 8, "resize": "fit", "augment": True}, "leave it out"),
        ({"shard": (3, 3)}, r"shard=\(3, 3\): index must be from 0"),
        ({"shard": 1}, "shard=1: give"),
        ({"cache": ""}, "cache=''"),
        ({"cache": __file__}, "cache='.*test_reader_failures.py': .*give a folder"),
        ({"map_fn": 3}, "map_fn=3: give a function"),
        ({"ram_budget": "much"}, "ram_budget='much'"),
        ({"drop_remainder": True}, "no effect without `batch_size"),
    ],
)
def test_wrong_options_are_named_with_a_remedy(
    kept: str, options: dict[str, object], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        tfrecorder.load(kept, "TRAIN", **options)


@pytest.mark.slow
def test_numpy_values_are_taken_as_numbers(kept: str) -> None:
    sizes = {"batch_size": np.int64(4), "image_size": np.int32(9), "seed": np.uint32(3)}
    assert len(tfrecorder.load(kept, "TRAIN", **sizes)) == 9
