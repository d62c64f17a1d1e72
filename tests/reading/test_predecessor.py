"""What the tests of tensorflow-recorder 2.0 assert: it holds here, or the page Migration says so.

Written anew from its `*_test.py`; its directories and records are made as its pipeline made them.
"""

from __future__ import annotations

import base64
import gzip
import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.doc_pages import DOCS
from PIL import Image as PillowImage
from support import PHOTOS, encoded, framed, invoke, rejects

import tfrecorder
from tfrecorder import errors
from tfrecorder.errors import DatasetError, OptionError, SourceError, ValidationError
from tfrecorder.schema import Image, Label, Number, Schema, Split

QUIET = {"progress": False}

#: Its vocabulary, most frequent first; class -1 is not in it.
CLASSES = ("goat", "cat")


def table() -> pd.DataFrame:
    """Two images of each split, as its test data has them."""
    splits = ["TEST", "TEST", "TRAIN", "TRAIN", "VALIDATION", "VALIDATION"]
    uris = list(map(str, PHOTOS[:6]))
    return pd.DataFrame({"split": splits, "image_uri": uris, "label": ["cat", "goat"] * 3})


def old_record(row: Mapping[str, Any], image: PillowImage.Image) -> bytes:
    """A record of 2.0, by its `beam_image.py`."""
    values = {
        "split": row["split"].encode(),
        "image_name": Path(row["image_uri"]).name.encode(),
        "image": base64.b64encode(image.tobytes(), altchars=b"-_"),
        "image_height": image.height,
        "image_width": image.width,
        "image_channels": 1 if "L" in image.mode else 3,
        "label": CLASSES.index(row["label"]) if row["label"] in CLASSES else -1,
    }
    return encoded(values)


def old_directory(folder: str, images: Mapping[str, PillowImage.Image], packed: bool) -> None:
    """A directory of 2.0, by its `beam_pipeline.py`; the image of each row by its uri."""
    Path(folder, "transform_fn/assets").mkdir(parents=True)
    Path(folder, "transformed_metadata").mkdir()
    vocabulary = "vocab_compute_and_apply_vocabulary_vocabulary"
    Path(folder, "transform_fn/assets", vocabulary).write_text("\n".join(CLASSES) + "\n")
    for split, rows in table().groupby("split"):
        records = [old_record(row, images[row["image_uri"]]) for row in rows.to_dict("records")]
        data = b"".join(map(framed, records))
        name = f"{split.lower()}-00000-of-00001.tfrecord"
        path = Path(folder, f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
    Path(folder, "discarded-data-00000-of-00001").write_bytes(
        framed(encoded({"split": b"DISCARD"}))
    )


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["gzip", "plain"])
def old(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    """A directory of 2.0 in "old", and the pixels of each image by its name."""
    images = {}
    for number, uri in enumerate(table()["image_uri"]):
        image = PillowImage.open(uri)
        images[uri] = image.convert("L") if number % 2 else image.convert("RGB")
    old_directory("old", images, request.param)
    return {Path(uri).name: np.asarray(image) for uri, image in images.items()}


def test_its_directory_is_read_as_far_as_it_can_be(old: dict[str, np.ndarray]) -> None:
    info = tfrecorder.info("old")
    assert {split: shards.shards for split, shards in info.splits.items()} == {
        **{"TRAIN": 1, "VALIDATION": 1, "TEST": 1}
    }
    assert info.class_names == CLASSES
    frame = tfrecorder.to_frame("old")
    wanted = table().assign(image_name=[Path(uri).name for uri in table()["image_uri"]])
    columns = ["split", "image_name", "label"]
    assert sorted(frame[columns].to_numpy().tolist()) == sorted(wanted[columns].to_numpy().tolist())
    every = tfrecorder.load("old", inputs="all")
    assert list(every) == ["TRAIN", "VALIDATION", "TEST"]  # LoadTest.test_load_all_splits
    for split, dataset in every.items():
        assert {record["split"].numpy().decode() for record in dataset} == {split}
    with pytest.raises(DatasetError, match=r"image holds pixels in base64, as tensorflow-recorder"):
        tfrecorder.load("old")


def test_the_call_on_the_page_turns_its_pixels_into_a_dataset(old: dict[str, np.ndarray]) -> None:
    (code,) = (
        block.partition("```")[0]
        for block in (DOCS / "migration.md").read_text().split("```python\n")
        if "urlsafe_b64decode" in block
    )
    exec(code, {"tfrecorder": tfrecorder, "pd": pd})
    assert tfrecorder.info("new").class_names == CLASSES
    assert {*tfrecorder.info("new").splits} == {"TRAIN", "VALIDATION", "TEST"}
    found = tfrecorder.to_frame("new", images="bytes")
    seen = [np.asarray(PillowImage.open(io.BytesIO(data))) for data in found["image_uri"]]
    wanted = {pixels.tobytes() for pixels in old.values()}
    assert {pixels.tobytes() for pixels in seen} == wanted


def test_a_folder_of_its_jobs_is_known() -> None:
    uris = table()["image_uri"]
    images = {uri: PillowImage.open(uri).convert("RGB") for uri in uris}
    for time in ("20200909-101010-to-tfr", "20200910-101010"):
        old_directory(f"jobs/tfrecorder-{time}", images, packed=True)
    with pytest.raises(DatasetError) as caught:
        tfrecorder.load("jobs")
    assert "holds 2 datasets of tensorflow-recorder 2.0; give one" in str(caught.value)
    assert str(caught.value).endswith("jobs/tfrecorder-20200910-101010.")
    shown = invoke("info", "jobs")
    assert shown.exit_code == 1
    assert shown.output.startswith("error: jobs holds 2 datasets of tensorflow-recorder 2.0")


def test_an_image_beside_its_size_is_an_image() -> None:
    sizes = {"image_height": 1, "image_width": 1, "image_channels": 3}
    data = PHOTOS[0].read_bytes()
    Path("train.tfrecord").write_bytes(framed(encoded({"image": data, **sizes, "label": 1})))
    assert tfrecorder.Records("train.tfrecord", "TRAIN", decode=False)[0][0] == data


# What holds.


def test_a_frame_becomes_splits_with_their_counts() -> None:
    result = table().tensorflow.to_tfrecord("out", runner="DirectRunner", **QUIET)
    assert result.records == 6
    counts = {split: part.records for split, part in tfrecorder.info("out").splits.items()}
    assert counts == {"TRAIN": 2, "VALIDATION": 2, "TEST": 2}
    frame = tfrecorder.to_frame("out", images="bytes")
    assert {*frame["image_uri"]} == {Path(uri).read_bytes() for uri in table()["image_uri"]}
    assert set(tfrecorder.load("out")) == {"TRAIN", "VALIDATION", "TEST"}  # convert_and_load


@pytest.mark.parametrize("split", ["TRAIN", "TEST"])
def test_one_split_alone_has_no_files_of_others(split: str) -> None:
    frame = table()[table()["split"] == split]
    tfrecorder.convert(frame, "out", **QUIET)
    files = [path.name for path in Path("out").glob("*.tfrecord")]
    assert files == [f"{split.lower()}-00000.tfrecord"]


@pytest.mark.parametrize("header", [True, False])
def test_a_csv_with_or_without_a_header_is_the_frame(header: bool) -> None:
    table().to_csv("a.csv", index=False, header=header)
    tfrecorder.convert("a.csv", "out", **QUIET)
    columns = ["split", "image_uri", "label"]
    found = tfrecorder.to_frame("out")[columns].astype(str).to_numpy().tolist()
    assert sorted(found) == sorted(table()[columns].to_numpy().tolist())


def test_a_folder_of_splits_and_labels_is_the_frame() -> None:
    for row in table().to_dict("records"):
        path = Path("in", row["split"], row["label"], Path(row["image_uri"]).name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(Path(row["image_uri"]).read_bytes())
    tfrecorder.convert("in", "out", **QUIET)
    found = tfrecorder.to_frame("out")[["split", "label"]].astype(str).to_numpy().tolist()
    assert sorted(found) == sorted(table()[["split", "label"]].to_numpy().tolist())


def test_integer_labels_stay_as_they_are() -> None:
    tfrecorder.convert(table().assign(label=[1, 0] * 3), "out", **QUIET)
    assert sorted(tfrecorder.to_frame("out")["label"]) == [0, 0, 0, 1, 1, 1]


# Wrong values, of which 2.0 raised ValueError, AttributeError or FileNotFoundError.


@pytest.mark.parametrize("source", [0, "not_a_csv_file", [], {}, None])
def test_a_source_that_is_none_is_a_value_error(source: Any) -> None:
    with pytest.raises(ValueError) as caught:
        tfrecorder.convert(source, "out", **QUIET)
    assert isinstance(caught.value, SourceError)
    assert isinstance(caught.value, FileNotFoundError) == isinstance(source, str)


def missing() -> dict[str, Any]:
    Path("empty").mkdir()
    Path("lists").mkdir()
    Path("lists/data.yaml").write_text("train: [absent.txt]\nnames: [a]\n")
    return {
        "a source": lambda: tfrecorder.convert("absent.csv", "out", **QUIET),
        "one of several": lambda: tfrecorder.validate(["a.csv", "absent.csv"]),
        "a list": lambda: tfrecorder.convert("lists", "out", **QUIET),
        "a schema": lambda: tfrecorder.convert(table(), "out", schema="absent.yaml", **QUIET),
        "a dataset": lambda: tfrecorder.load("absent"),
        "a dataset by number": lambda: tfrecorder.Records("absent", "TRAIN"),
        "a pattern": lambda: tfrecorder.load("absent/*.tfrecord", "TRAIN"),
        "no records": lambda: tfrecorder.load("empty"),
        "verified": lambda: tfrecorder.verify("absent"),
    }


WHAT = ("a source", "one of several", "a list", "a schema", "a dataset", "a dataset by number")
WHAT += ("a pattern", "no records", "verified")


@pytest.mark.parametrize("what", WHAT)
def test_what_is_not_there_is_a_file_not_found_error(what: str) -> None:
    table().to_csv("a.csv", index=False)
    with pytest.raises(FileNotFoundError) as caught:
        missing()[what]()
    error = caught.value
    assert isinstance(error, errors.TfrecorderError)
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert len(str(error)) > 20


@pytest.mark.parametrize("command", ["convert absent.csv out", "info absent", "schema absent"])
def test_what_is_not_there_is_one_line_of_a_command(command: str) -> None:
    shown = invoke(*command.split())
    assert shown.exit_code in (1, 2)
    assert len(shown.output.splitlines()) == 1
    assert "there is no such" in shown.output


def test_an_unknown_split_is_a_value_error() -> None:
    tfrecorder.convert(table(), "out", **QUIET)
    calls = (
        lambda: tfrecorder.inspect("out", split="UNSUPPORTED"),
        lambda: tfrecorder.Records("out", "UNSUPPORTED"),
        lambda: tfrecorder.load("out", "UNSUPPORTED"),
        lambda: tfrecorder.to_frame("out", "UNSUPPORTED"),
        lambda: tfrecorder.batches("out", "UNSUPPORTED"),
    )
    for call in calls:
        with pytest.raises(ValueError, match="has no split 'UNSUPPORTED'; it has TRAIN") as caught:
            call()
        assert isinstance(caught.value, DatasetError)


@pytest.mark.parametrize(
    "options",
    [
        {"runner": "FooRunner"},
        {"runner": "DirectRunner", "project": "foo", "region": "us-central1"},
        {"runner": "DataflowRunner", "region": "us-central1"},
        {"runner": "DataflowRunner", "project": "my-project"},
        {"tfrecorder_wheel": "a.whl"},
        {"compression": "gzip"},
        {"num_shards": 0},
    ],
)
def test_wrong_options_are_value_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as caught:
        tfrecorder.convert(table(), "out", **QUIET, **options)
    assert isinstance(caught.value, OptionError)


def test_a_schema_is_a_dict_of_kinds_their_classes_or_their_names() -> None:
    frame = table().assign(age=range(6))
    kinds = {"split": Split, "image_uri": Image(), "age": Number(dtype="int64"), "label": "label"}
    tfrecorder.convert(frame, "out", schema=kinds, **QUIET)
    whole = Schema(split=Split(), image_uri=Image(), age=Number(dtype="int64"), label=Label())
    tfrecorder.convert(frame, "same", schema=whole, **QUIET)
    names = [path.name for path in Path("out").iterdir() if path.is_file()]
    assert all(Path("out", n).read_bytes() == Path("same", n).read_bytes() for n in names)
    for wrong in ({"label": int}, {"label": object()}, {"label": Label, "a": None}):
        with pytest.raises(OptionError):
            tfrecorder.convert(frame, "other", schema=wrong, **QUIET)


# What differs: each has its words on the page.


def test_what_differs_is_on_the_page(tmp_path: Path) -> None:
    page = " ".join((DOCS / "migration.md").read_text().split())
    frame = table()
    result = tfrecorder.convert(frame, "out", **QUIET)
    assert not hasattr(result, "keys")
    assert '`result["metrics"]`, `result["job_id"]`' in page
    # The paths of a CSV.
    Path("lists").mkdir()
    relative = frame.assign(image_uri=[f"in/{n}.jpg" for n in range(6)])
    Path("in").mkdir()
    for uri, new in zip(frame["image_uri"], relative["image_uri"], strict=True):
        Path(new).write_bytes(Path(uri).read_bytes())
    relative.to_csv("lists/a.csv", index=False)
    with pytest.raises(errors.ImagesUnreachableError, match="Give `base="):
        tfrecorder.convert("lists/a.csv", "other", **QUIET)
    tfrecorder.convert("lists/a.csv", "other", base=".", **QUIET)
    assert "paths in a CSV from the current folder" in page
    # A missing image, its name, its alpha.
    some = pd.concat([frame, frame[:1].assign(image_uri="absent.jpg")])
    tfrecorder.convert(some, "fewer", max_reject_fraction=0.5, **QUIET)
    assert list(rejects("fewer")["image_uri"]) == ["absent.jpg"]
    assert {*tfrecorder.to_frame("out")["image_uri"]} == {*frame["image_uri"]}
    assert "`image/filename`, the whole uri" in page
    PillowImage.new("RGBA", (4, 4)).save("a.png")
    tfrecorder.convert(frame[:1].assign(image_uri="a.png", split="TRAIN"), "alpha", **QUIET)
    assert tfrecorder.inspect("alpha")["image/channels"].tolist() == [4]
    assert "alpha" in page
    # Columns that are not there.
    with pytest.raises(ValidationError, match="there is no column 'image_uri'"):
        tfrecorder.convert(frame.drop(columns="image_uri"), "no", **QUIET)
    assert tfrecorder.convert(frame.drop(columns="label"), "unlabelled", **QUIET).records == 6
    assert tfrecorder.convert(frame.drop(columns="split"), "split", **QUIET).records == 6
    assert "no column `label`" in page
    with pytest.raises(ValidationError, match="'FOO' is not a split"):
        tfrecorder.convert(frame.assign(split="FOO"), "no", **QUIET)
    # What inspect writes.
    tfrecorder.inspect("out", split="TRAIN", num_records=2, output_dir="seen")
    names = sorted(path.name for path in Path("seen").rglob("*") if path.is_file())
    assert names == ["records.csv", "train-000000.jpg", "train-000001.jpg"]
    assert "`records.csv`" in page
    for words in ("`AttributeError`", "`project`", "`num_shards=0`", "-1", "`split`: errors"):
        assert words in page, words
