"""The report: every fault at once, each with its row, its value and what to do."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.annotation_cases import annotation, coco_file
from helpers.image_cases import photo, save
from support import CSV, PHOTOS, labelled, photo_frame, severities

import tfrecorder
from tfrecorder.schema import Boxes, Image, Schema, Split

MANY = [f"{n}.jpg" for n in range(20)]


def table(**columns: Any) -> pd.DataFrame:
    """Twenty sound rows with some columns replaced, or dropped where None is given."""
    sound: dict[str, Any] = {"split": ["TRAIN"] * 20, "image_uri": MANY, "label": ["x"] * 20}
    return pd.DataFrame({k: v for k, v in {**sound, **columns}.items() if v is not None})


def at(values: list[Any], **changes: Any) -> list[Any]:
    """A list with some places changed: at(["a", "b"], _1="c")."""
    changed = {int(place[1:]): value for place, value in changes.items()}
    return [changed.get(place, value) for place, value in enumerate(values)]


X = ["x"] * 20

WITH_AGE = {"split": "split", "image_uri": "image", "label": "label", "age": "number"}
BOX = {"x_min": 0.1, "y_min": 0.1, "x_max": 0.5, "y_max": 0.5}

BESIDE = {"against": "out"}


def again(split: str) -> pd.DataFrame:
    """A photograph under another name."""
    cell = {"bytes": PHOTOS[1].read_bytes(), "path": "again.jpg"}
    return photo_frame(2, split)[1:].assign(image_uri=[cell])


#: For each code: a frame, options, and the row, column and value where the report must find it.
PROVOKED = {
    "missing_column": (table(image_uri=None, img=MANY), {}, (None, "image_uri", "img")),
    "empty_frame": (table().iloc[:0], {}, (None, "", None)),
    "null_uri": (table(image_uri=at(MANY, _3=None)), {}, (3, "image_uri", None)),
    "null_label": (table(label=at(X, _4=np.nan)), {}, (4, "label", None)),
    "repeated_heading": (
        table(
            split=at(["TRAIN"] * 20, _3="split"),
            image_uri=at(MANY, _3="image_uri"),
            label=at(X, _3="label"),
        ),
        {},
        (3, "", ""),
    ),
    "text_among_integers": (
        table(label=at(["1", "2"] * 10, _3="?")),
        {},
        (3, "label", "?"),
    ),
    "padded_labels": (table(label=[" x"] * 20), {}, (None, "label", " x")),
    "unknown_split": (table(split=at(["TRAIN"] * 20, _5="TRIAN")), {}, (5, "split", "TRIAN")),
    "not_text": (table(image_uri=at(MANY, _6=17)), {}, (6, "image_uri", 17)),
    "bad_text": (
        table(label=pd.Series(at(X, _7="\udcff"), dtype=object)),
        {},
        (7, "label", r"'\udcff'"),
    ),
    "unsupported_scheme": (
        table(image_uri=at(MANY, _8="ftp://x.org/a.jpg")),
        {},
        (8, "image_uri", "ftp://x.org/a.jpg"),
    ),
    "mixed_label_types": (table(label=at(X, _9=1)), {}, (9, "label", 1)),
    "unsupported_label": (table(label=at([1.0] * 20, _2=1.5)), {}, (2, "label", 1.5)),
    "negative_label": (table(label=at([1] * 20, _1=-1)), {}, (1, "label", -1)),
    "label_gaps": (table(label=[0, 10] * 10), {}, (None, "label", 10)),
    "no_strata": (table(label=None, split=None), {"stratify": True}, (None, "label", None)),
    "reserved_label": (
        table(label=at([1] * 20, _2=0), **BOX),
        {"schema": Schema(split=Split(), image_uri=Image(), boxes=Boxes(background_class=True))},
        (2, "label", 0),
    ),
    "unknown_label": (table(label=at(X, _2="y")), {"schema": labelled("x")}, (2, "label", "y")),
    "missing_value": (
        table(age=at([1.0] * 20, _3=np.nan)),
        {"schema": WITH_AGE},
        (3, "age", None),
    ),
    "wrong_value": (table(age=at([1.0] * 20, _4="old")), {"schema": WITH_AGE}, (4, "age", "old")),
    "rounded_number": (
        table(age=at([1] * 20, _4=2**24 + 1)),
        {"schema": WITH_AGE},
        (4, "age", 2**24 + 1),
    ),
    "bad_box": (
        table(x_min=0.1, y_min=0.1, x_max=at([0.5] * 20, _6=0.05), y_max=0.5),
        {},
        (6, "x_min", "0.1, 0.1, 0.05, 0.5"),
    ),
    "conflicting_rows": (
        table(image_uri=["a.jpg"] * 20, split=at(["TRAIN"] * 20, _2="TEST"), **BOX),
        {},
        (2, "split", "TEST"),
    ),
    "no_train": (table(split=["TEST"] * 20), {}, (None, "split", None)),
    "empty_split": (
        table(split=None),
        {"splits": {"TRAIN": 0.999, "TEST": 0.001}},
        (None, "split", "TEST"),
    ),
    "splits_ignored": (table(), {"stratify": True}, (None, "split", "stratify")),
    "leakage": (
        table(image_uri=at(MANY, _1="0.jpg"), split=at(["TRAIN"] * 20, _1="TEST")),
        {},
        (0, "image_uri", "0.jpg"),
    ),
    "duplicate_row": (table(image_uri=at(MANY, _1="0.jpg")), {}, (1, "image_uri", "0.jpg")),
    "image_again": (
        table(image_uri=at(MANY, _1="0.jpg"), age=at([1] * 20, _1=2)),
        {"schema": WITH_AGE},
        (0, "image_uri", "0.jpg"),
    ),
    "conflicting_labels": (
        table(image_uri=at(MANY, _1="0.jpg"), label=["x", "y"] * 10),
        {},
        (0, "image_uri", "0.jpg"),
    ),
    "similar_labels": (table(label=["Cat ", "cat"] * 10), {}, (None, "label", "Cat ")),
    "label_not_in_train": (
        table(split=at(["TRAIN"] * 20, _1="TEST"), label=at(X, _1="y")),
        {},
        (None, "label", "y"),
    ),
    "few_images": (table(label=at(X, _1="y")), {}, (None, "label", "y")),
    "column_left_out": (table(price=1), {}, (None, "price", "price")),
    "unusable_image": (
        photo_frame().assign(image_uri=at(list(map(str, PHOTOS)), _2=str(CSV))),
        {"check_images": True},
        (2, "image_uri", str(CSV)),
    ),
    "fraction_boxes": (
        photo_frame().assign(
            x_min=0.0, y_min=0.0, x_max=at([9.0] * len(PHOTOS), _2=0.5), y_max=1.0
        ),
        {},
        (2, "x_min", "0.0, 0.0, 0.5, 1.0"),
    ),
    "box_outside": (
        photo_frame().assign(
            x_min=1.0, y_min=1.0, x_max=at([9.0] * len(PHOTOS), _2=5e3), y_max=9.0
        ),
        {"check_images": True},
        (2, "x_min", "1.0, 1.0, 5000.0, 9.0"),
    ),
    "bad_annotation": (
        lambda: coco_file("train.json", annotations=[annotation(12, 3, [0, 0, 1, 1])]),
        {},
        (None, "label", "12"),
    ),
    "empty_box": (
        lambda: coco_file("train.json", annotations=[annotation(300, 3, [5, 5, 0, 4])]),
        {},
        (2, "image_uri", "5, 5, 5, 9"),
    ),
    "other_columns": (photo_frame(1).drop(columns="label"), BESIDE, (None, "", None)),
    "new_class": (photo_frame(1).assign(label="zebra"), BESIDE, (None, "label", "zebra")),
    "same_bytes": (again("TRAIN"), BESIDE, (0, "image_uri", "again.jpg")),
    "same_bytes_leakage": (again("TEST"), BESIDE, (0, "image_uri", "again.jpg")),
    "other_values": (
        photo_frame(2).assign(label=photo_frame()["label"].iloc[-1]),
        BESIDE,
        (1, "image_uri", str(PHOTOS[1])),
    ),
}


def test_every_code_is_provoked_here() -> None:
    elsewhere = {"same_bytes_skipped"}  # which only `append` says
    elsewhere |= {code for code in severities() if code.startswith(("near_", "exact_"))}
    elsewhere |= {"too_alike", "not_compared"}  # see test_near_copies.py
    elsewhere |= {"no_annotations", "missing_annotations", "annotations_without_image"}
    elsewhere |= {"listed_twice", "repeated_box", "other_file_name"}  # test_whole_or_named.py
    elsewhere |= {"orientation_unsaid", "scaled_boxes"}  # test_orientation.py
    elsewhere |= {"not_seen", "suspect_image"}  # test_as_converted.py
    elsewhere.add("not_decoded")
    assert {*PROVOKED, *elsewhere} == severities().keys()


@pytest.mark.parametrize("code", PROVOKED)
def test_a_fault_is_found_with_its_row_value_and_remedy(code: str) -> None:
    frame, options, (row, column, value) = PROVOKED[code]
    if options is BESIDE:
        tfrecorder.convert(photo_frame()[1:], "out", progress=False)
    report = tfrecorder.validate(frame() if callable(frame) else frame, **options)
    found = report[report.code == code]
    assert len(found) >= 1, report.to_string()
    first = found.iloc[0]
    assert (None if pd.isna(first.row) else first.row) == row
    assert (first.column, first.severity) == (column, severities()[code])
    assert first.value == value or (value is None and pd.isna(first.value))
    assert first.message
    assert first.remedy
    assert "{" not in first.message
    # Nothing else is wrong with it, but for what the same rows imply.
    implied = {"few_images", *({"label_not_in_train"} if code == "leakage" else ())}
    implied |= {"unknown_split", "label_not_in_train"} if code == "repeated_heading" else set()
    assert set(report.code) <= {code, *implied}


def test_all_is_well() -> None:
    report = pd.read_csv(CSV).tensorflow.validate()
    assert report.empty
    columns = "severity code row column value message remedy other_row"
    assert report.columns.tolist() == columns.split()
    assert tfrecorder.validate(CSV, check_images=True).empty


def test_everything_at_once() -> None:
    frame = table(
        image_uri=at(MANY, _0=None, _1="ftp://x/a.jpg", _2=3.5),
        label=at(X, _0=None, _3=""),
        split=at(["TRAIN"] * 20, _0="nowhere", _4="elsewhere"),
        price=1,
    )
    report = frame.tensorflow.validate()
    errors = report[report.severity == "error"]
    assert sorted(zip(errors.row, errors.column, strict=True)) == [
        *((0, "image_uri"), (0, "label"), (0, "split")),
        *((1, "image_uri"), (2, "image_uri"), (3, "label"), (4, "split")),
    ]
    assert report.severity.tolist() == sorted(report.severity)
    assert report.iloc[-1].code == "column_left_out" or "column_left_out" in set(report.code)


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("path", "image_uri"),
        ("image_url", "image_uri"),
        (" Image_URI ", "image_uri"),
        ("lable", "label"),
        ("Category", "label"),
        ("ml_use", "split"),
        ("Split", "split"),
    ],
)
def test_the_nearest_column_is_suggested(column: str, wanted: str) -> None:
    frame = table().rename(columns={wanted: column})
    report = frame.tensorflow.validate()
    found = report[report.code == "missing_column"].iloc[0]
    assert (found.column, found.value) == (wanted, column)
    assert f"is it {column!r}?" in found.message
    assert f"columns={{'{column}': '{wanted}'}}" in found.remedy
    assert frame.rename(columns={column: wanted}).tensorflow.validate().empty


def test_a_table_without_an_image_is_pointed_at_a_schema() -> None:
    frame = pd.DataFrame({"age": [1, 2, 3], "name": ["a", "b", "c"]})
    (fault,) = frame.tensorflow.validate().query("code == 'missing_column'").to_dict("records")
    assert "'age': 'image_uri'" not in fault["remedy"]
    assert "If none is, give a schema" in fault["remedy"]
    assert "may do without an image (`tfrecorder schema`" in fault["remedy"]
    schema = tfrecorder.infer_schema(frame)
    assert frame.tensorflow.validate(schema=schema).query("severity == 'error'").empty


@pytest.mark.parametrize(
    "labels",
    [
        [{}] * 20,
        [float("inf"), 1.0] * 10,
        [b"x"] * 20,
        [2**70, 1] * 10,
        pd.to_datetime(["2020-01-01"] * 20),
        [1j] * 20,
    ],
    ids=str,
)
def test_labels_of_other_types_are_reported_not_raised(labels: Any) -> None:
    report = table(label=labels).tensorflow.validate()
    assert set(report[report.severity == "error"].code) == {"unsupported_label"}


def test_values_of_any_type_are_reported_not_raised() -> None:
    odd = [["a"], {"b": 1}, None, 1.5, b"x", object()]
    frame = pd.DataFrame(dict.fromkeys(("split", "image_uri", "label"), odd))
    report = frame.tensorflow.validate()
    odd_images = set(report[report.column == "image_uri"].row)
    assert odd_images >= {0, 1, 2, 3, 5}  # bytes may be an image, which only a look at them shows
    assert str(report)


def test_a_missing_integer_label_is_one_fault_not_a_column_of_floats() -> None:
    report = table(label=at([1] * 20, _3=None)).tensorflow.validate()
    assert report[["code", "row"]].to_numpy().tolist() == [["null_label", 3]]


def test_an_integer_that_means_no_label_has_a_remedy() -> None:
    numbers = table(label=at([1] * 20, _3=-1))
    remedy = "leave the cell empty, and give `Label(required=False)` in a schema"
    assert f"If the number means no label, {remedy}" in str(numbers.tensorflow.validate())
    kinds = {"split": "split", "image_uri": "image"}
    schema = {**kinds, "label": {"kind": "label", "required": False}}
    numbers["label"] = at([1] * 20, _3=None)
    assert numbers.tensorflow.validate(schema=schema).query("severity == 'error'").empty


def test_where_no_split_is_assigned_none_is_said_to_be() -> None:
    frame = pd.DataFrame({"a": [1], "b": [2]})
    report = str(frame.tensorflow.validate())
    assert "missing_column" in report
    assert "splits:" not in report
    some = str(table(split=None, image_uri=at(MANY, _3=None)).tensorflow.validate())
    assert "splits: assigned to the 19 of 20 rows that had none" in some


def test_unlabelled_is_well_but_half_labelled_is_not() -> None:
    assert table(label=None).tensorflow.validate().empty
    assert (table(label=at(X, _1="")).tensorflow.validate().code == "null_label").all()


def test_a_conversion_of_a_faulty_frame_writes_nothing_and_carries_the_report() -> None:
    frame = table(label=at(X, _1=None))
    with pytest.raises(tfrecorder.ValidationError) as caught:
        frame.tensorflow.to_tfrecord(output_dir="out")
    pd.testing.assert_frame_equal(caught.value.report, frame.tensorflow.validate())
    assert isinstance(caught.value, ValueError)
    assert "null_label" in str(caught.value)
    assert "row 1: the label is missing" in str(caught.value)
    assert not Path("out").exists()
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    pd.testing.assert_frame_equal(again.report, caught.value.report)


def test_warnings_do_not_stop_a_conversion() -> None:
    frame = photo_frame(5, split="TEST")
    assert set(frame.tensorflow.validate().severity) == {"warning", "note"}
    assert frame.tensorflow.to_tfrecord(output_dir="out").records == 5


def test_check_images_finds_what_a_conversion_would_reject() -> None:
    good = save(photo(), "JPEG")
    files = {"good.jpg": good, "cut.jpg": good[:900], "empty.png": b"", "words.jpg": b"hello"}
    for name, data in files.items():
        Path(name).write_bytes(data)
    Path("folder.jpg").mkdir()
    names = [*files, "folder.jpg", "missing.jpg", "nul\0.jpg", "ftp://b/a.jpg", None]
    frame = pd.DataFrame({"image_uri": names})
    report = frame.tensorflow.validate(check_images=True)
    found = report[report.code == "unusable_image"].set_index("row").message
    reasons = {1: "truncated", 2: "empty", 3: "not_an_image", 4: "not_a_file", 5: "not_found"}
    assert found.index.tolist() == [*reasons, 6]
    assert all(f": {reason}: " in found[row] for row, reason in reasons.items())
    # What cannot be an image at all is reported once, not opened too.
    assert report[report.row.isin([7, 8])].code.tolist() == ["unsupported_scheme", "null_uri"]


def test_the_checks_of_a_conversion_can_be_chosen() -> None:
    Path("a.png").write_bytes(save(photo(size=(20, 10)), "PNG"))
    Path("b.png").write_bytes(save(photo(size=(20, 10)), "PNG")[:100])
    frame = pd.DataFrame({"image_uri": ["a.png", "b.png"]})
    found = [
        frame.tensorflow.validate(check_images=True, **options).row.dropna().tolist()
        for options in ({"max_pixels": 199}, {"check": "header"}, {})
    ]
    assert found == [[0, 1], [], [1]]


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(tfrecorder.errors.OptionError, match="check='all'"):
        tfrecorder.validate(CSV, check="all")


def test_the_summary_is_short_however_many_the_faults() -> None:
    report = pd.DataFrame({"image_uri": ["x" * 5000] * 900 + [None] * 100}).tensorflow.validate()
    words = str(report)
    assert "error: null_uri (100)" in words
    assert "... and 97 more" in words
    assert len(words) < 3000


# ------------------------------------------------------------------ the same image, and its place


def found(source: Any, **options: Any) -> dict[str, list[int]]:
    """The rows that do not go with others, by what is said of them."""
    report = tfrecorder.validate(source, **options)
    codes = ("leakage", "duplicate_row", "conflicting_labels", "image_again")
    return {
        code: report[report.code == code]["row"].tolist()
        for code in codes
        if code in set(report.code)
    }


@pytest.mark.parametrize(
    "spelled", ["./1.jpg", "a/../1.jpg", ".//1.jpg", "file://{}/1.jpg", "{}/1.jpg"]
)
def test_an_image_is_the_same_however_it_is_spelled(spelled: str) -> None:
    again = spelled.format(Path.cwd())
    twice = table(image_uri=at(MANY, _3=again))
    assert found(twice) == {"duplicate_row": [3]}
    assert f"{again!r} repeats an earlier row" in str(tfrecorder.validate(twice))
    assert found(twice.assign(split=at(["TRAIN"] * 20, _3="TEST"))) == {"leakage": [1, 3]}
    assert found(twice.assign(label=at(X, _3="y"))) == {"conflicting_labels": [1, 3]}
    Path("tables").mkdir()
    twice.to_csv("tables/a.csv", index=False)
    apart = {"duplicate_row": [3]} if Path(again).parts[0] != "/" and "file" not in again else {}
    assert found("tables/a.csv") == apart


def test_an_image_with_other_values_is_not_a_duplicate() -> None:
    schema = {"split": "split", "image_uri": "image", "caption": "text", "tags": "labels"}
    rows = table(image_uri=["a.jpg"] * 3 + ["b.jpg"] * 2, label=None, split=["TRAIN"] * 5)
    rows = rows.assign(caption=["x", "y", "x", "x", "x"], tags=[["t"]] * 4 + [["t", "u"]])
    assert found(rows, schema=schema) == {"duplicate_row": [2], "image_again": [0, 1, 2, 3, 4]}
    words = tfrecorder.validate(rows, schema=schema).set_index("row").query("severity == 'note'")
    assert words["message"][1] == "'a.jpg' is also in a row with other values of 'caption'"
    assert words["message"][4] == "'b.jpg' is also in a row with other values of 'tags'"
    assert words["other_row"].to_dict() == {0: 1, 1: 0, 2: 1, 3: 4, 4: 3}


def test_all_images_of_a_row_are_compared_together() -> None:
    schema = {"split": "split", "left_uri": "image", "right_uri": "image", "label": "label"}
    rows = pd.DataFrame({"left_uri": ["a", "a", "a", "./a"], "right_uri": ["b", "c", "d", "b"]})
    rows = rows.assign(split="TRAIN", label=["x", "y", "x", "x"])
    assert found(rows, schema=schema) == {"duplicate_row": [3]}
    assert found(rows.assign(label=[*"xyxz"]), schema=schema) == {"conflicting_labels": [0, 3]}
