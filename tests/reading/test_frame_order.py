"""Rows of `to_frame` are in the order of `Records` and of `load`, whatever wrote the records."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from helpers.foreign_cases import PHOTOS as COFFEE, image, write
from helpers.growing_cases import QUIET, table
from hypothesis import HealthCheck, given, settings, strategies as st
from support import given_again, photo_frame

import tfrecorder
from tfrecorder.schema import Number, Schema, Split

SPLITS = ("TRAIN", "VALIDATION", "TEST")


def text(value: Any) -> str:
    return bytes(value).decode() if isinstance(value, (bytes, memoryview)) else str(value)


def seen(element: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, ...]:
    values = (np.asarray(element[key]).item() for key in keys)
    return tuple(map(text, values))


def check_order(where: Any, split: str, columns: Mapping[str, str], **options: Any) -> None:
    """Row by row, some columns of the frame are the same keys' values of both readers."""
    frame = tfrecorder.to_frame(where, split, **options)
    rows = [tuple(map(text, row)) for row in frame[list(columns)].itertuples(index=False)]
    keys = tuple(columns.values())
    records = tfrecorder.Records(where, split, inputs="all", decode=False)
    assert rows == [seen(one, keys) for one in records]
    loaded = tfrecorder.load(where, split, inputs="all", decode=False, shuffle=False)
    assert rows == [seen(one, keys) for one in loaded.as_numpy_iterator()]


PHOTO = {"image_uri": "image/filename", "label": "image/class/text"}


def test_weights_made_from_a_frame_hit_the_labels_of_records(dataset: Path) -> None:
    for split in SPLITS:
        check_order(dataset, split, PHOTO)
        labels = tfrecorder.to_frame(dataset, split)["label"]
        names = tfrecorder.info(dataset).class_names
        assert names is not None
        hit = [names[label] for _, label in tfrecorder.Records(dataset, split, decode=False)]
        assert hit == labels.tolist()


def test_a_frame_of_all_splits_has_each_in_its_order(dataset: Path) -> None:
    whole = tfrecorder.to_frame(dataset)
    assert list(dict.fromkeys(whole["split"])) == list(SPLITS)
    for split in SPLITS:
        pd.testing.assert_frame_equal(
            whole[whole["split"] == split], tfrecorder.to_frame(dataset, split)
        )


def test_the_index_leads_back_to_the_rows_of_the_source() -> None:
    given = photo_frame().assign(split=[SPLITS[row % 3] for row in range(len(photo_frame()))])
    tfrecorder.convert(given, "out", num_shards=2, **QUIET)
    back = given_again("out")
    assert not back.index.is_monotonic_increasing
    pd.testing.assert_frame_equal(back.sort_index(), given, check_dtype=False)


@pytest.mark.slow
def test_an_appended_dataset_has_the_order_of_its_generations() -> None:
    tfrecorder.convert(table(0, 9), "out", num_shards=2, **QUIET)
    splits = ["TEST", "TRAIN", "TRAIN", "TEST", "TRAIN"]
    for first in (9, 14):
        tfrecorder.append(table(first, 5).assign(split=splits), "out", num_shards=2, **QUIET)
    for split in ("TRAIN", "TEST"):
        check_order("out", split, PHOTO)
    assert set(tfrecorder.to_frame("out", "TEST", at=1).index) == {9, 12}


@pytest.mark.parametrize("images", ["uri", "bytes"])
def test_files_of_other_tools_have_their_own_order(images: str, tmp_path: Path) -> None:
    for name, numbers in {"train-1": (3, 0), "train-0": (2, 4), "test-0": (1, 5)}.items():
        rows = [image(number, **{"class/label": 9 - number}) for number in numbers]
        write(tmp_path / f"{name}.tfrecord", rows)
    columns = {"label": "image/class/label"}
    if images == "uri":
        columns["image_uri"] = "image/filename"
    for split in ("TRAIN", "TEST"):
        check_order(tmp_path, split, columns, images=images)
    assert tfrecorder.to_frame(tmp_path, images="bytes")["label"].tolist() == [7, 5, 6, 9, 8, 4]


def test_a_directory_of_tfds_has_its_own_order(tmp_path: Path) -> None:
    features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(encoding_format="jpeg"), "age": np.int64}
    )
    template = tfds.core.ShardedFileTemplate(
        data_dir=tmp_path, dataset_name="ages", split="train", filetype_suffix="tfrecord"
    )
    for shard, ages in enumerate(((5, 3, 9), (8, 1))):
        path = template.sharded_filepath(shard_index=shard, num_shards=2)
        with tf.io.TFRecordWriter(str(path)) as file:
            for age in ages:
                row = {"image": str(COFFEE[age % 4]), "age": age}
                file.write(features.serialize_example(features.encode_example(row)))
    info = tfds.core.SplitInfo(
        name="train", shard_lengths=[3, 2], num_bytes=1, filename_template=template
    )
    tfds.folder_dataset.write_metadata(
        data_dir=tmp_path, features=features, split_infos=[info], filename_template=template
    )
    check_order(tmp_path, "TRAIN", {"age": "age"}, images="bytes")
    assert tfrecorder.to_frame(tmp_path, images="bytes")["age"].tolist() == [5, 3, 9, 8, 1]


@st.composite
def growths(draw: Any) -> list[tuple[list[str], dict[str, Any]]]:
    """Rows to convert and to append: the splits of each, and how they are stored."""
    rows = st.lists(st.sampled_from(SPLITS), min_size=1, max_size=12)
    stored = st.fixed_dictionaries(
        {"num_shards": st.integers(1, 3), "shuffle": st.booleans(), "seed": st.integers(0, 99)}
    )
    return draw(st.lists(st.tuples(rows, stored), min_size=1, max_size=3))


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(growths())
def test_any_dataset_has_one_order(growth: list[tuple[list[str], dict[str, Any]]]) -> None:
    schema = Schema(split=Split(), x=Number(dtype="int64"))
    first = 0
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/out"
        for number, (splits, options) in enumerate(growth):
            rows = pd.DataFrame({"split": splits, "x": range(first, first + len(splits))})
            first += len(splits)
            if number == 0:
                tfrecorder.convert(rows, out, schema=schema, **options, **QUIET)
            else:
                tfrecorder.append(rows, out, duplicates="keep", **options, **QUIET)
        back = tfrecorder.to_frame(out)
        assert sorted(back.index) == list(range(first))
        assert back["x"].tolist() == list(back.index)
        for split in set(back["split"]):
            check_order(out, split, {"x": "x"})
