"""`remove` takes records out for good, and every reader sees what is left."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
import tensorflow_datasets as tfds
from support import copied_photos, invoke, public_files

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError


@pytest.fixture
def photos(tmp_path: Path) -> pd.DataFrame:
    """A dataset of the photographs in "out", and its rows."""
    frame = copied_photos(tmp_path)
    tfrecorder.convert(frame[:40], "out", num_shards=4, progress=False)
    tfrecorder.append(frame[40:], "out", progress=False)
    return frame


def check(left: pd.DataFrame, gone: pd.DataFrame) -> None:
    """Every reader has what is left, and nothing of the others is anywhere."""
    assert set(tfrecorder.to_frame("out").image_uri) == set(left.image_uri)
    assert tfrecorder.verify("out", progress=False).ok
    counts = {split: info.num_examples for split, info in builder().info.splits.items()}
    assert counts == left.split.str.lower().value_counts().to_dict()
    files = [path for path in Path("out").rglob("*") if path.is_file()]
    for uri in gone.image_uri:
        image = Path(uri).read_bytes()
        names = [file.name for file in files if Path(uri).name.encode() in file.read_bytes()]
        assert not names
        assert not [file.name for file in files if image in file.read_bytes()]


def builder() -> tfds.core.DatasetBuilder:
    return tfds.builder_from_directory("out")


@pytest.mark.slow
def test_by_uri_nothing_of_it_is_left_and_it_does_not_come_back(photos: pd.DataFrame) -> None:
    gone = photos.loc[[2, 3, 44]]
    before = tfrecorder.to_frame("out", images="bytes").image_uri
    where = {"image_uri": list(gone.image_uri)}
    said = tfrecorder.remove("out", where, dry_run=True)
    result = tfrecorder.remove("out", where, progress=False)
    assert said.changes == result.changes
    assert result.changes.removed == 3
    left = photos.drop(index=gone.index)
    check(left, gone)
    after = tfrecorder.to_frame("out", images="bytes").image_uri
    assert all(before[row] == data for row, data in after.items())
    assert tfrecorder.append(photos, "out", progress=False).removed == 3
    assert tfrecorder.update(photos, "out", progress=False).removed == 3
    check(left, gone)
    tfrecorder.append(photos, "out", readmit=True, progress=False)
    check(photos, gone[:0])


def test_no_note_of_an_operation_before_names_what_was_removed(photos: pd.DataFrame) -> None:
    gone = photos.loc[[2]]
    shutil.copy(gone.image_uri[2], "copy.png")
    copied = gone.assign(image_uri=os.path.abspath("copy.png"))
    result = tfrecorder.append(copied, "out", progress=False)
    assert Path(gone.image_uri[2]).name in result.notes[0]
    tfrecorder.remove("out", {"image_uri": list(gone.image_uri)}, progress=False)
    names = [file.read_bytes() for file in Path("out").rglob("*") if file.is_file()]
    assert not any(gone.image_uri[2].encode() in data for data in names)


@pytest.mark.parametrize(
    ("where", "mask"),
    [
        ({"label": "cat"}, "label == 'cat'"),
        ({"label": "cat", "split": "TEST"}, "label == 'cat' and split == 'TEST'"),
        ({"row": [0, 1, 51]}, "index in [0, 1, 51]"),
        ({"label": ["brick", "cat"], "row": (6, None)}, "label in ['brick', 'cat'] and index > 5"),
        ({"row": (3, "7")}, "3 <= index <= 7"),
        (lambda rows: rows.row % 2 == 1, "index % 2 == 1"),
    ],
    ids=["value", "values", "list", "range", "both ends", "function"],
)
def test_by_columns_or_a_condition(photos: pd.DataFrame, where: object, mask: str) -> None:
    classes = tfrecorder.info("out").class_names
    gone = photos.index.isin(photos.query(mask).index)
    tfrecorder.remove("out", where, progress=False)
    check(photos[~gone], photos[gone])
    assert tfrecorder.info("out").class_names == classes  # the integers stay


def test_older_positions_and_generations_are_refused_in_words(photos: pd.DataFrame) -> None:
    batches = tfrecorder.batches("out", "TRAIN", batch_size=4, image_size=16)
    next(iter(batches))
    state = batches.state_dict()
    tfrecorder.remove("out", {"row": 1}, progress=False)
    again = tfrecorder.batches("out", "TRAIN", batch_size=4, image_size=16)
    with pytest.raises(OptionError, match="removed"):
        again.load_state_dict(state)
    with pytest.raises(DatasetError, match=r"`at=0`.*\(removal\)"):
        tfrecorder.to_frame("out", at=0)
    with pytest.raises(DatasetError, match="not taken back"):
        tfrecorder.undo("out")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"lable": "cat"}, "there is no column 'lable'; did you mean 'label'?"),
        ({"nope": 1}, "no column 'nope'; there is 'row', 'split', 'image_uri', 'label'."),
        ({"split": "dev"}, "no row has 'split' 'dev'; there is 'TRAIN', 'TEST'."),
        ({"row": (5, 1)}, "where={'row': (5, 1)}: the ends of the range are the wrong way round"),
        ({"label": ["cat", "lion"]}, "no row has 'label' 'lion'"),
        ({"label": "cat", "row": 0}, "it holds for no row"),
        ("label = 'cat'", "give columns with values"),
        ({"row": (100, None)}, "it holds for no row"),
        ({"row": "many"}, "where={'row': 'many'}: this is not a number"),
        ({"label": ("cat", "dog")}, "a tuple is a range of numbers"),
        (lambda rows: rows.row, "the function returned int64 of shape (52,)"),
        ({"row": (0, None)}, "this would leave no record"),
        ({}, "give columns with values"),
    ],
    ids=[
        *("typo", "column", "split", "ends", "absent", "neither", "text", "range", "number"),
        *("tuple", "mask", "all", "none"),
    ],
)
def test_what_names_no_row_is_refused(photos: pd.DataFrame, where: object, words: str) -> None:
    before = public_files("out")
    with pytest.raises(OptionError) as caught:
        tfrecorder.remove("out", where, progress=False)
    assert words in str(caught.value)
    assert public_files("out") == before


def test_a_removal_of_a_whole_shard_writes_no_other() -> None:
    frame = pd.DataFrame({"split": ["TRAIN"] * 4 + ["TEST"], "size": [0, 1, 2, 3, None]})
    size = tfrecorder.schema.Number(default=7.0)
    columns = tfrecorder.schema.Schema(split=tfrecorder.schema.Split(), size=size)
    tfrecorder.convert(frame, "out", schema=columns, num_shards=1, progress=False)
    pending = tfrecorder.remove("out", {"split": "TRAIN"}, stage_only=True)
    assert str(pending).startswith("out: 0 of 0 rows, 0 of 0 shards done")
    assert "removal: 4 rows are removed, 1 of 2 shards" in str(pending)
    result = tfrecorder.parts.commit("out")
    assert result.changes == pending.changes
    assert tfrecorder.info("out").statistics["size"]["TEST"]["missing"] == 1
    assert tfrecorder.to_frame("out")["size"].tolist() == [7.0]
    assert tfrecorder.verify("out", progress=False).ok


def test_a_row_with_several_classes_has_each_of_them() -> None:
    kinds = tfrecorder.schema
    columns = kinds.Schema(split=kinds.Split(), size=kinds.Number(), tags=kinds.Labels())
    tags = [["red"], ["red", "round"], ["round"], [], ["blue"]]
    frame = pd.DataFrame({"split": "TRAIN", "size": range(5), "tags": tags})
    tfrecorder.convert(frame, "out", schema=columns, progress=False)
    tfrecorder.remove("out", {"tags": "round"}, progress=False)
    assert sorted(tfrecorder.to_frame("out").index) == [0, 3, 4]


@pytest.mark.slow
def test_rows_of_values_alone_are_removed_too() -> None:
    kinds = tfrecorder.schema
    columns = kinds.Schema(split=kinds.Split(), size=kinds.Number(dtype="int64"), name=kinds.Text())
    frame = pd.DataFrame(
        {"split": "TRAIN", "size": range(20), "name": list("abcdefghijklmnopqrst")}
    )
    tfrecorder.convert(frame, "out", schema=columns, num_shards=3, progress=False)
    tfrecorder.remove("out", {"size": (15, None)}, progress=False)
    left = tfrecorder.to_frame("out").sort_index()
    assert list(left.name) == list("abcdefghijklmno")
    more = frame.assign(size=range(20, 40))
    result = tfrecorder.update(more, "out", progress=False)
    assert result.changes.added == 20
    assert len(tfrecorder.to_frame("out")) == 35


@pytest.mark.parametrize(
    ("conditions", "mask"),
    [
        (["label=cat", "label=brick", "row=..30"], "label in ['cat', 'brick'] and index <= 30"),
        (["row=3.0", "row=4"], "index in [3, 4]"),
        (["split=test", "row=-1..1e3"], "split == 'TEST'"),
    ],
    ids=["values", "numbers", "both ends"],
)
def test_conditions_of_the_shell(photos: pd.DataFrame, conditions: list[str], mask: str) -> None:
    gone = photos.index.isin(photos.query(mask).index)
    assert 0 < gone.sum() < len(photos)
    assert invoke("remove", "out", *conditions, "--quiet").exit_code == 0
    check(photos[~gone], photos[gone])


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (["label == 'cat'"], "there is no column 'label '"),
        (["label=cat", "row=900.."], "error: label=cat row=900..: it holds for no row. Nothing"),
        (["row=5..1"], "error: row=5..1: the ends of the range are the wrong way round"),
        (["cat"], "'cat' is no condition: write COLUMN=VALUE"),
        (["row=1", "row=3.."], "give a range alone on its column"),
        ([], "Give a CONDITION, or --uris"),
    ],
    ids=["operator", "nothing", "ends", "value", "range", "none"],
)
def test_a_wrong_condition_in_the_shell_is_one_line(
    photos: pd.DataFrame, conditions: list[str], words: str
) -> None:
    result = invoke("remove", "out", *conditions)
    assert result.exit_code == 2
    assert words in result.output
