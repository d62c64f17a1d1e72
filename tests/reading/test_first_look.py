"""Files of other tools whose later records are not as the first ones: never a silent loss."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from helpers.foreign_cases import DATA, EDGES, OBJECT, both, write
from support import slow_cases

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError

LABEL = "image/class/label"
PLAIN = {"image/encoded": DATA[0]}
BOXED = PLAIN | {key: [0.25] for key in EDGES} | {f"{OBJECT}/class/label": [3]}
LISTS = dict.fromkeys(EDGES, "float[]") | {f"{OBJECT}/class/label": "int64[]"}


def later(one: dict[str, Any], usual: dict[str, Any] = PLAIN) -> list[dict[str, Any]]:
    """A record that is neither one of the first of its file nor the last."""
    return [usual] * 12 + [one] + [usual]


def readers(where: Path, **options: Any) -> dict[str, Callable[[], Any]]:
    keys = {"features": options["features"]} if "features" in options else {}
    small = {"shuffle": False, "image_size": 8, "batch_size": 4, "max_boxes": 2} | options
    if not any(name.startswith(OBJECT) for name in tfrecorder.info(where, **keys).features):
        del small["max_boxes"]
    return {
        "load": lambda: list(tfrecorder.load(where, "TRAIN", shuffle=False, **options)),
        "load batches": lambda: list(tfrecorder.load(where, "TRAIN", **small)),
        "Records": lambda: list(tfrecorder.Records(where, "TRAIN", **options)),
        "batches": lambda: list(tfrecorder.batches(where, "TRAIN", **small)),
        "to_frame": lambda: tfrecorder.to_frame(where, images="bytes", **keys),
    }


MISFITS = {
    "boxes": (later(BOXED), f"it holds '{OBJECT}/", LISTS),
    "a label": (later(PLAIN | {LABEL: 3}), f"it holds '{LABEL}'", {LABEL: "int64?"}),
    "no label": (
        later(PLAIN, PLAIN | {LABEL: 3}),
        f"it holds 0 values of '{LABEL}', not 1",
        {LABEL: "int64?"},
    ),
    "a further number": (
        later({"a": 1, "b": [7, 8]}, {"a": 1}),
        "it holds 'b'",
        {"b": "int64[]"},
    ),
    "another length": (
        later({"a": [0.5] * 15}, {"a": [0.5] * 16}),
        "it holds 15 values of 'a', not 16",
        {"a": "float[]"},
    ),
    "two labels": (
        later(PLAIN | {LABEL: [3, 4]}, PLAIN | {LABEL: 3}),
        f"it holds 2 values of '{LABEL}', not 1",
        None,
    ),
    "a label of another type": (
        later(PLAIN | {LABEL: "three"}, PLAIN | {LABEL: 3}),
        f"it holds bytes under '{LABEL}', not int64",
        None,
    ),
    "edges of another type": (
        later(BOXED | {EDGES[0]: [2**24 + 1]}, BOXED),
        f"it holds int64 under '{EDGES[0]}', not float",
        None,
    ),
    "a label of a type that none has": (
        later(PLAIN | {LABEL: [0.5]}),
        f"it holds '{LABEL}', and they do not",
        {LABEL: "float[]"},
    ),
    "edges of unequal number": (
        later(BOXED | {EDGES[0]: [0.1, 0.2]}, BOXED),
        "does not match the others",
        None,
    ),
    "no image": (later({LABEL: 3}, PLAIN | {LABEL: 3}), "holds 0 values of 'image/encoded'", None),
}


@pytest.mark.parametrize("name", ["boxes", "a label", *slow_cases(*[*MISFITS][2:])])
def test_a_record_that_does_not_fit_is_named_by_every_reader(name: str, tmp_path: Path) -> None:
    records, words, remedy = MISFITS[name]
    path = write(tmp_path / "train.tfrecord", records)
    for reader, read in readers(tmp_path).items():
        with pytest.raises((DatasetError, tf.errors.InvalidArgumentError)) as raised:
            read()
        told = str(raised.value).replace("\\'", "'")
        assert f"{path}: record 12 is not as the 9 records that were looked at" in told, reader
        assert words in told, reader
        assert "damaged" not in told
        assert remedy is None or "give `features=" in told
    if remedy is not None:
        for loaded, _ in both(tmp_path, features=remedy, inputs="all"):
            assert loaded
        assert len(tfrecorder.to_frame(tmp_path, images="bytes", features=remedy)) == 14


def test_what_the_option_says_is_read(tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", later(BOXED))
    for number, (loaded, found) in enumerate(both(tmp_path, features=LISTS)):
        boxes = [[0.25] * 4] * (number == 12)
        assert loaded[1]["boxes"].tolist() == found[1]["boxes"].tolist() == boxes
    write(tmp_path / "train.tfrecord", later(PLAIN | {LABEL: [3, 4]}, PLAIN | {LABEL: 3}))
    lists = {"features": {LABEL: "int64[]"}}
    frame = tfrecorder.to_frame(tmp_path, images="bytes", **lists)
    assert frame["label"].tolist()[-2:] == [[3, 4], [3]]
    for number, (loaded, found) in enumerate(both(tmp_path, targets=["label"], **lists)):
        assert loaded[1].tolist() == found[1].tolist() == frame["label"][number]


@pytest.mark.parametrize("files", [1, 6])
def test_what_the_last_record_of_a_file_shows_is_read(files: int, tmp_path: Path) -> None:
    for number in range(files):
        some = [BOXED] * 10 if number == files - 1 else []
        write(tmp_path / f"train-0000{number}-of-0000{files}", [PLAIN] * 40 + some)
    elements = both(tmp_path)
    assert len(elements) == 40 * files + 10
    for loaded, found in elements[-10:]:
        assert len(loaded[1]["boxes"]) == len(found[1]["boxes"]) == 1
    assert tfrecorder.to_frame(tmp_path, images="bytes")["x_min"].map(len).sum() == 10
    info = tfrecorder.info(tmp_path)
    assert f"in {files} of {files} file" in info.looked
    assert info.looked in str(info)


def test_a_number_and_a_list_are_whole_in_a_frame(tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", [{"a": 4, LABEL: 1}] * 9 + [{"a": 1.5, LABEL: [1, 2]}])
    frame = tfrecorder.to_frame(tmp_path)
    assert (frame["a"].tolist()[-2:], frame["label"].tolist()[-2:]) == ([4, 1.5], [[1], [1, 2]])
    write(tmp_path / "train.tfrecord", [{"a": 2**24 + 1}] * 9 + [{"a": 1.5}])
    with pytest.raises(DatasetError, match=r"record 0 .* it holds int64 under 'a', not float"):
        tfrecorder.to_frame(tmp_path)
    write(tmp_path / "train.tfrecord", [{"a": 4}] * 9 + [{"a": "four"}])
    with pytest.warns(UserWarning, match="a holds bytes in some records.*it makes no column"):
        assert "a" not in tfrecorder.to_frame(tmp_path)


def test_of_a_packed_file_only_the_first_records_are_looked_at(tmp_path: Path) -> None:
    plain = write(tmp_path / "train.tfrecord", [PLAIN] * 40 + [BOXED])
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/train.tfrecord.gz").write_bytes(gzip.compress(plain.read_bytes()))
    packed = tmp_path / "packed"
    assert "only the first ones" in tfrecorder.info(packed).looked
    with pytest.raises(DatasetError, match="record 40 is not as the 8 records"):
        tfrecorder.to_frame(packed, images="bytes")
    assert len(tfrecorder.to_frame(packed, images="bytes", features=LISTS)) == 41


def test_records_of_another_kind_are_not_called_damaged(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "train.tfrecord")) as file:
        file.write(b"plain text")
    with pytest.raises(DatasetError, match=r"not a tf\.train\.Example") as raised:
        tfrecorder.info(tmp_path)
    assert "damaged" not in str(raised.value)


@pytest.mark.parametrize(
    "features", [{"a": "int"}, {"a": "float[-1]"}, {"a": int}, ["a"], {1: "text"}]
)
def test_a_form_that_is_none_is_refused(features: Any, tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", [PLAIN])
    with pytest.raises(OptionError, match=r"features=.*give the form of keys, such as"):
        tfrecorder.Records(tmp_path, "TRAIN", features=features)


def test_what_metadata_say_is_not_said_again(dataset: Path) -> None:
    with pytest.raises(OptionError, match="it is for records of other tools"):
        tfrecorder.load(dataset, "TRAIN", features={"a": "text"})
