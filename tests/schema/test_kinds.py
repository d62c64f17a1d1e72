"""Every kind of column: back as a frame, read by load and by TFDS, checked by verify."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from helpers.kind_cases import EVERY_KIND, convert, every_kind, values
from helpers.record_laws import check_records
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as npst
from support import CSV, PHOTOS, given_again, labelled, photo_frame

import tfrecorder
from tfrecorder.schema import Boxes, Bytes, Image, Label, Labels, Number, Schema, Split, Text


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset with a column of every kind, in the order of its rows; not to be changed."""
    out = tmp_path_factory.mktemp("every") / "dataset"
    return convert(every_kind(), out, schema=EVERY_KIND, shuffle=False, num_shards=2)


def first(dataset: Any) -> Any:
    return next(iter(dataset))


# There and back.


def test_the_frame_comes_back(every: str) -> None:
    back = given_again(every)
    assert list(back.columns) == list(every_kind().columns)
    assert values(back) == values(every_kind())
    assert back.dtypes[["angle", "count", "lit"]].map(str).tolist() == ["float32", "int64", "bool"]


def test_the_images_come_back_as_bytes(every: str) -> None:
    back = tfrecorder.to_frame(every, images="bytes")
    uris = every_kind()
    for name in ("left_uri", "right_uri"):
        assert back[name].tolist() == [Path(uri).read_bytes() for uri in uris[name]]


def test_the_default_frame_comes_back(dataset: Path) -> None:
    given = pd.read_csv(CSV)
    back = given_again(dataset).sort_index()
    pd.testing.assert_frame_equal(back, given, check_dtype=False)
    test = given[given.split == "TEST"]
    assert sorted(tfrecorder.to_frame(dataset, "test").index) == test.index.tolist()


@pytest.mark.slow
def test_integers_come_back_as_integers_also_where_they_have_names() -> None:
    frame = photo_frame(4).assign(label=[0, 1, 1, 0])
    convert(frame, "default", schema=labelled("no", "yes"))
    given = Schema(split=Split(), image_uri=Image(), label=Label(names=["no", "yes"]))
    convert(frame, "given", schema=given)
    for out in ("default", "given"):
        assert tfrecorder.to_frame(out)["label"].sort_index().tolist() == [0, 1, 1, 0]
        assert tfrecorder.info(out).class_names == ("no", "yes")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOATS = st.floats(width=32, allow_nan=False)
INTS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.sampled_from(["a", "b", " c", "d\ne", "ä", "-"])
ARRAYS = npst.arrays(np.float32, (2, 3), elements=st.floats(width=32))

#: A kind, and what its cells may hold.
CELLS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "label": (Label(), NAMES),
    "integer": (Label(), st.integers(0, 2**40)),
    "labels": (Labels(), st.lists(NAMES, max_size=3)),
    "numbers": (Labels(), st.lists(st.integers(0, 9), max_size=3)),
    "separated": (Labels(separator=","), st.lists(st.sampled_from("xyz"), max_size=3)),
    "float": (Number(), FLOATS),
    "int": (Number(dtype="int64"), INTS),
    "bool": (Number(dtype="bool"), st.booleans()),
    "floats": (Number(shape=(None,)), st.lists(FLOATS, max_size=4)),
    "ints": (Number(dtype="int64", shape=(None,)), st.lists(INTS, max_size=4)),
    "bools": (Number(dtype="bool", shape=(3,)), st.lists(st.booleans(), min_size=3, max_size=3)),
    "array": (Number(shape=(2, 3)), ARRAYS),
    "text": (Text(), TEXTS),
    "texts": (Text(shape=(None,)), st.lists(TEXTS, max_size=3)),
    "pair": (Text(shape=(2,)), st.lists(TEXTS, min_size=2, max_size=2)),
    "bytes": (Bytes(), st.binary(max_size=9)),
    "blobs": (Bytes(shape=(None,)), st.lists(st.binary(max_size=5), max_size=3)),
}


@st.composite
def frames(draw: Any) -> tuple[pd.DataFrame, Schema]:
    names = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, unique=True))
    rows = draw(st.integers(1, 5))
    splits = draw(st.lists(st.sampled_from(["TRAIN", "TEST"]), min_size=rows, max_size=rows))
    columns: dict[str, Any] = {"split": splits}
    for name in names:
        cells = draw(st.lists(CELLS[name][1], min_size=rows, max_size=rows))
        if name == "separated":
            cells = [",".join(cell) for cell in cells]
        column = pd.Series(index=range(rows), dtype=object)
        for row, cell in enumerate(cells):
            column.iat[row] = cell
        columns[name] = column
    kinds = {"split": Split(), **{name: CELLS[name][0] for name in names}}
    return pd.DataFrame(columns), Schema(kinds)


def exact(frame: pd.DataFrame) -> list[dict[str, str]]:
    """Values as text, which keeps -0.0 apart from 0.0 and holds NaN equal to itself."""
    return [{name: repr(value) for name, value in row.items()} for row in values(frame)]


@pytest.mark.slow
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(frames())
def test_any_frame_comes_back(made: tuple[pd.DataFrame, Schema]) -> None:
    frame, schema = made
    with tempfile.TemporaryDirectory() as folder:
        out = convert(frame, f"{folder}/out", schema=schema, check="header")
        back = given_again(out).sort_index()
        assert list(back.columns) == list(frame.columns)
        assert exact(back) == exact(frame)
        assert tfrecorder.verify(out).ok
        check_records(out)


# What load gives.


@pytest.mark.slow
def test_one_image_and_one_label_are_a_pair() -> None:
    schema = Schema(split=Split(), image_uri=Image(), label=Label(), age=Number(default=1))
    convert(photo_frame(8).assign(age=3.0), "out", schema=schema, shuffle=False)
    image, label = first(tfrecorder.load("out", "TRAIN", batch_size=2, image_size=32))
    assert (image.shape, image.dtype, label.dtype) == ((2, 32, 32, 3), tf.uint8, tf.int64)


def test_a_float_target_is_what_a_model_is_trained_to_tell() -> None:
    frame = photo_frame(8).drop(columns="label").assign(angle=np.arange(8) / 4)
    schema = Schema(split=Split(), image_uri=Image(), angle=Number(target=True))
    convert(frame, "out", schema=schema, shuffle=False, num_shards=1)
    angles = [float(angle) for _, angle in tfrecorder.load("out", "TRAIN", shuffle=False)]
    assert angles == frame["angle"].tolist()


@pytest.mark.parametrize("batch_size", [None, 3])
def test_several_images_and_labels_are_dicts(every: str, batch_size: int | None) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "image_size": 32, "shuffle": False}
    inputs, targets = first(tfrecorder.load(every, "TRAIN", **options))
    size = [] if batch_size is None else [batch_size]
    assert {name: image.shape.as_list() for name, image in inputs.items()} == {
        "left_uri": [*size, 32, 32, 3],
        "right_uri": [*size, 32, 32, 3],
    }
    assert set(targets) == {"bi", "multi", "grade", "tags", "topics", "parts", "angle"}
    assert targets["parts"].shape.as_list() == [*size, 2]
    one = every_kind().iloc[:batch_size] if batch_size else every_kind().iloc[0]
    assert np.array_equal(targets["angle"], one["angle"])
    assert np.array_equal(targets["bi"], np.equal(one["bi"], "yes").astype(int))


def test_several_labels_are_a_vector_of_zeros_and_ones(every: str) -> None:
    chosen = {"inputs": ["count"], "targets": ["tags"], "batch_size": 8, "shuffle": False}
    found = tfrecorder.load(every, "TRAIN", **chosen)
    _, tags = first(found)
    assert tags.numpy().tolist() == [[float(i < n % 4) for i in range(3)] for n in range(8)]
    assert found.element_spec[1].dtype == tf.float32


def test_columns_are_chosen_by_name(every: str) -> None:
    options: dict[str, Any] = {"shuffle": False, "batch_size": 8}
    chosen = tfrecorder.load(every, "TRAIN", inputs=["count", "steps"], targets=["lit"], **options)
    inputs, lit = first(chosen)
    frame = every_kind()
    assert inputs["count"].numpy().tolist() == frame["count"].tolist()
    assert inputs["steps"].to_list() == frame["steps"].tolist()
    assert lit.numpy().tolist() == frame["lit"].tolist()
    assert len(chosen) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": ["cuont"]}, "did you mean 'count'?"),
        ({"inputs": "count"}, "a list of columns, such as ['image_uri', 'age']. Or give 'all'"),
        ({"targets": []}, "a list of columns"),
        ({"inputs": "all", "targets": ["lit"]}, "`inputs='all'` gives everything as it is stored"),
        (
            {"inputs": "all", "max_boxes": 3},
            "max_boxes=3: `inputs='all'` gives everything as it is stored; leave it out",
        ),
        ({"inputs": ["count"], "targets": ["lit"], "augment": True}, "holds images; leave it out"),
        ({"inputs": ["count"], "targets": ["lit"], "max_boxes": 3}, "holds boxes; leave it out"),
    ],
)
def test_a_wrong_choice_of_columns_is_named(every: str, options: Any, words: str) -> None:
    with pytest.raises(tfrecorder.errors.OptionError) as refused:
        tfrecorder.load(every, "TRAIN", image_size=32, **options)
    assert words in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_columns_of_a_default_dataset_can_be_chosen(
    dataset: Path, batch_size: int | None
) -> None:
    options: Any = {"image_size": 32, "shuffle": False, "batch_size": batch_size}
    image, label = first(tfrecorder.load(dataset, "TRAIN", **options))
    both, none = first(tfrecorder.load(dataset, "TRAIN", inputs=["label", "image_uri"], **options))
    assert (both["image_uri"].numpy() == image.numpy()).all()
    assert (both["label"].numpy() == label.numpy()).all()
    assert (none.numpy() == label.numpy()).all()
    other = first(
        tfrecorder.load(dataset, "TRAIN", targets=["image_uri"], inputs=["label"], **options)
    )
    assert (other[0].numpy() == label.numpy()).all()
    assert (other[1].numpy() == image.numpy()).all()
    with pytest.raises(tfrecorder.errors.OptionError, match="did you mean 'label'"):
        tfrecorder.load(dataset, "TRAIN", targets=["lable"])


def test_a_table_without_images_is_read_a_batch_at_a_time() -> None:
    frame = pd.DataFrame({"split": "TRAIN", "x": np.arange(10.0), "y": ["a", "b"] * 5})
    schema = Schema(split=Split(), x=Number(), y=Label())
    convert(frame, "out", schema=schema, shuffle=False)
    x, y = first(tfrecorder.load("out", "TRAIN", batch_size=10, shuffle=False))
    assert x.numpy().tolist() == frame["x"].tolist()
    assert y.numpy().tolist() == [0, 1] * 5


@pytest.mark.parametrize("batch_size", [None, 8])
def test_features_are_all_of_them_with_their_true_types(every: str, batch_size: Any) -> None:
    dataset = tfrecorder.load(
        every, "TRAIN", inputs="all", image_size=16, shuffle=False, batch_size=batch_size
    )
    found, frame = first(dataset), every_kind()
    rows = frame if batch_size else frame.iloc[0]
    for name in ("angle", "count", "lit", "place", "matrix"):
        wanted = np.array(rows[name].tolist()) if batch_size else rows[name]
        assert np.array_equal(found[name], wanted), name
    assert found["lit"].dtype == tf.bool
    steps = found["steps"].to_list() if batch_size else found["steps"].numpy().tolist()
    assert steps == (rows["steps"].tolist() if batch_size else rows["steps"])
    assert found["right/encoded"].shape[-3:] == (16, 16, 3)


# What others read.


def test_tfds_reads_every_kind_with_its_true_shape_and_type(every: str) -> None:
    builder = tfds.builder_from_directory(every)
    frame = every_kind()
    found = list(tfds.as_numpy(builder.as_dataset("train", shuffle_files=False)))
    assert len(found) == len(frame)
    for record, (_, row) in zip(found, frame.iterrows(), strict=True):
        assert record["left/encoded"].shape == (*np.asarray(_open(row["left_uri"])).shape,)
        assert record["bi/text"].decode() == row["bi"]
        assert builder.info.features["multi/label"].names == ["a", "b", "c"]
        assert record["grade/label"] == row["grade"]
        assert [one.decode() for one in record["topics/text"]] == row["topics"]
        assert (record["angle"].dtype, record["angle"]) == (np.float32, row["angle"])
        assert (record["count"].dtype, record["count"]) == (np.int64, row["count"])
        assert (record["lit"].dtype, record["lit"]) == (bool, row["lit"])
        assert np.array_equal(record["matrix"], row["matrix"])
        assert record["series"].tolist() == row["series"]
        assert record["steps"].tolist() == row["steps"]
        assert [one.decode() for one in record["words"]] == row["words"]
        assert record["caption"].decode() == row["caption"]
        assert record["blob"] == row["blob"]


def _open(uri: str) -> Any:
    import PIL.Image

    return PIL.Image.open(uri)


# Faults.


def test_a_second_image_that_is_missing_is_a_reject_with_its_column() -> None:
    frame = every_kind(20)
    frame.loc[3, "right_uri"] = "gone.jpg"
    done = tfrecorder.convert(frame, "out", schema=EVERY_KIND, progress=False)
    listed = pd.read_csv("out/rejects.csv").iloc[0]
    assert (done.records, listed["row"], listed["image_uri"]) == (19, 3, frame.left_uri[3])
    assert "right_uri 'gone.jpg'" in listed["reason"]
    assert tfrecorder.verify("out").ok
    check_records("out")


@pytest.mark.slow
@pytest.mark.parametrize("raw", [False, True])
def test_verify_decodes_every_image_of_a_record(raw: bool) -> None:
    options = {"image_size": (32, 32), "image_format": "raw"} if raw else {}
    convert(every_kind(), "out", schema=EVERY_KIND, **options)
    assert tfrecorder.verify("out", decode=True).ok
    table = Schema(split=Split(), count=Number(dtype="int64"))
    convert(every_kind()[["split", "count"]], "table", schema=table)
    assert tfrecorder.verify("table", decode=True).ok


def test_repair_writes_a_damaged_shard_again(every: str) -> None:
    shutil.copytree(every, "out")
    shard = sorted(Path("out").glob("*.tfrecord"))[1]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:5000] + b"?" + whole[5001:])
    assert not tfrecorder.verify("out").ok
    tfrecorder.repair("out")
    assert shard.read_bytes() == whole


def test_boxes_need_an_image() -> None:
    with pytest.raises(tfrecorder.errors.OptionError, match=r"needs one Image\(\)"):
        Schema(boxes=Boxes())


def test_two_columns_of_one_key_are_refused() -> None:
    frame = pd.DataFrame({"a": [str(PHOTOS[0])], "a_uri": [str(PHOTOS[0])], "b": ["x"]})
    schema = Schema(a=Image(), a_uri=Image())
    with pytest.raises(tfrecorder.errors.OptionError, match="both make the feature 'a/encoded'"):
        convert(frame, "out", schema=schema)
