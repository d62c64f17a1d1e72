"""What the columns of a table mean does not turn on one cell, on a heading or on how it came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support import invoke, photo_frame, records

import tfrecorder
from tfrecorder.errors import SourceError, ValidationError
from tfrecorder.schema import Image, Label, Schema, Split

NAMES = [f"{n}.jpg" for n in range(13)]


def csv(labels: list[Any], path: str = "images.csv") -> str:
    """A CSV of rows in TRAIN."""
    rows = [f"TRAIN,{n}.jpg,{label}" for n, label in enumerate(labels)]
    Path(path).write_text("\n".join(["split,image_uri,label", *rows, ""]))
    return path


def messages(source: Any, code: str, **options: Any) -> list[str]:
    report = tfrecorder.validate(source, **options)
    return report[report.code == code].message.tolist()


def classes(source: Any, **options: Any) -> list[Any]:
    """The integer and the text of each row's class, in the order of the rows."""
    tfrecorder.convert(source, "out", progress=False, overwrite=True, **options)
    rows = sorted(records("out"), key=lambda record: int(record["image/source_id"]))
    return [(row["image/class/label"], row["image/class/text"].decode()) for row in rows]


# ------------------------------------------------------------------------------------- integers


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "2", "3.0"], tuple(map(str, range(11)))),
        (["10.0", "2.0", "0.0"], tuple(map(str, range(11)))),
        (["10.00", "2", "-0.0"], ("-0.0", "10.00", "2")),
        (["010", "2", "3"], ("010", "2", "3")),
        (["10", "2", "unknown"], ("10", "2", "unknown")),
    ],
)
def test_a_csv_numbers_classes_by_value_as_pandas_does(labels: list, names: tuple) -> None:
    photo_frame(3).assign(label=labels).to_csv("photos.csv", index=False)
    assert tfrecorder.convert("photos.csv", "out", dry_run=True).class_names == names
    if len(names) > 3:
        by_pandas = pd.read_csv("photos.csv")
        assert tfrecorder.convert(by_pandas, "out", dry_run=True).class_names == names


def test_the_cell_that_makes_texts_of_integers_is_named_once() -> None:
    for odd in ("unknown", "03"):
        csv([*range(12), odd])
        (message,) = messages("images.csv", "text_among_integers")
        assert f"{odd!r} is no integer" in message
        assert "line 14" in str(tfrecorder.validate("images.csv"))
    many = [*map(str, range(50)), *map(str, range(50)), "a", "b", "c", "d", "e"]
    assert "nor are 4 others" in messages(csv(many), "text_among_integers")[0]
    for sound in (many + ["f"], ["1", "a", "b"], ["a", "b"], ["1", "2"], ["1", "x"]):
        assert messages(csv(sound), "text_among_integers") == []


def test_a_row_without_a_box_does_not_make_texts_of_integer_classes() -> None:
    rows = ["0.jpg,4,4,9,9,10", "0.jpg,5,4,9,9,2", "1.jpg,,,,,"]
    Path("boxes.csv").write_text("\n".join(["image_uri,x_min,y_min,x_max,y_max,label", *rows]))
    report = tfrecorder.validate("boxes.csv")
    assert report[report.severity != "note"].code.tolist() == ["label_gaps"] or report.empty


@pytest.mark.slow
def test_a_dataset_with_names_keeps_them_though_the_table_is_of_integers() -> None:
    frame = photo_frame(4).assign(label=["1.0", "2.0", "10.0", "x"])
    tfrecorder.convert(frame, "out", progress=False)
    more = photo_frame(6)[4:].assign(label=["1.0", "2.0"])
    more.to_csv("more.csv", index=False)
    result = tfrecorder.append("more.csv", "out", progress=False)
    assert result.class_names == ("1.0", "10.0", "2.0", "x")


# ------------------------------------------------------------------------------------- no label


def half_labelled(**columns: Any) -> pd.DataFrame:
    frame = photo_frame(6).assign(split=["TRAIN"] * 4 + ["TEST"] * 2)
    return frame.assign(**{"label": ["a", "b", "a", "b", "", None], **columns})


@pytest.mark.slow
def test_a_test_split_without_labels_is_unlabelled() -> None:
    assert classes(half_labelled()) == [(0, "a"), (1, "b"), (0, "a"), (1, "b"), (-1, ""), (-1, "")]
    assert tfrecorder.verify("out", records=True).ok
    report = tfrecorder.validate(half_labelled())
    assert "labels: 2 rows have none, stored as -1" in str(report)
    assert set(report.code) == {"few_images"}
    back = tfrecorder.to_frame("out")
    assert back.label.isna().tolist() == [False] * 4 + [True] * 2
    assert "nothing changes" in str(tfrecorder.update(back, "out", progress=False))
    statistics = tfrecorder.info("out").statistics["label"]
    assert statistics["TEST"]["missing"] == 2
    assert statistics["TEST"]["count"] == 0


@pytest.mark.slow
def test_so_it_is_in_a_csv_and_with_integers() -> None:
    for label in ([3, 1, 3, 1, None, None], [3, 1, 3, 1, -1, -1]):
        frame = half_labelled(label=label)
        expected = [(n, str(n)) for n in (3, 1, 3, 1)] + [(-1, "")] * 2
        assert classes(frame) == expected
        frame.to_csv("photos.csv", index=False)
        assert classes("photos.csv") == expected
        assert classes(tfrecorder.to_frame("out")[["split", "image_uri", "label"]])[4:] == (
            [(-1, "")] * 2
        )


@pytest.mark.parametrize(
    "frame",
    [
        half_labelled(label=["a", "b", "a", "b", "a", ""]),
        half_labelled(label=["a", "b", "a", "", "", ""]),
        half_labelled(split=["TRAIN"] * 4 + ["VALIDATION"] * 2),
        half_labelled(split=["TRAIN"] * 4 + [""] * 2),
    ],
)
def test_anywhere_else_a_missing_label_is_an_error_unless_the_schema_asks(frame: Any) -> None:
    (first, *_) = messages(frame, "null_label")
    assert first == "the label is missing"
    for kind in (Label(required=False), Label(default=-1), Label(default="")):
        schema = Schema(split=Split(), image_uri=Image(), label=kind)
        report = tfrecorder.validate(frame, schema=schema)
        assert report.query("severity == 'error'").empty, report.to_string()
    with pytest.raises(ValidationError):
        tfrecorder.convert(frame, "out", progress=False)


@pytest.mark.slow
def test_a_table_of_test_alone_may_be_added_without_its_labels() -> None:
    tfrecorder.convert(half_labelled()[:4], "out", progress=False)
    tests = half_labelled()[4:].drop(columns="label")
    with pytest.raises(SourceError, match="there are no labels"):
        tfrecorder.append(tests.assign(split="VALIDATION"), "out", progress=False)
    result = tfrecorder.append(tests, "out", progress=False)
    assert result.class_names == ("a", "b")
    assert [row["image/class/label"] for row in records("out", "TEST")] == [-1, -1]


@pytest.mark.slow
def test_a_class_whose_images_were_all_rejected_is_named() -> None:
    frame = photo_frame(4).assign(label=["cat", "dog", "cat", "unicorn"])
    frame.loc[3, "image_uri"] = "gone.jpg"
    result = tfrecorder.convert(frame, "out", progress=False, max_reject_fraction=1)
    assert result.empty_classes == ("unicorn",)
    assert "classes without a record: 1: 'unicorn'" in str(result)
    sound = tfrecorder.convert(photo_frame(), "sound", progress=False)
    assert sound.empty_classes == ()
    assert "without a record" not in str(sound)


# -------------------------------------------------------------------------------------- headings


@pytest.mark.parametrize("columns", [["split", "image_uri", "label"], ["image_uri", "label"]])
def test_a_heading_inside_a_table_is_an_error_with_its_line(columns: list[str]) -> None:
    photo_frame(3)[columns].to_csv("a.csv", index=False)
    text = Path("a.csv").read_text()
    Path("all.csv").write_text(text * 3)
    report = str(tfrecorder.validate("all.csv"))
    assert "error: repeated_heading (2)" in report
    assert "line 5: the row repeats the names of the columns" in report
    with pytest.raises(ValidationError):
        tfrecorder.convert(pd.read_csv("all.csv"), "out", progress=False)
    Path("all.csv").write_text(text.replace("image_uri", "path") * 2)
    output = invoke("validate", "all.csv", "--column", "path=image_uri").output
    assert "error: repeated_heading (1)" in output


def test_a_heading_among_rows_that_are_gathered_has_its_line() -> None:
    head = "image_uri,text,number"
    Path("all.csv").write_text("\n".join([head, "a.jpg,x,1", "a.jpg,y,2", head, "b.jpg,z,3", ""]))
    schema = {"image_uri": "image", "text": "text", "number": "text"}
    report = tfrecorder.validate("all.csv", schema=schema, group_by="image_uri")
    assert "line 4: the row repeats" in str(report)


# -------------------------------------------------------------------------------- similar names


def boxed(labels: list[str], splits: list[str]) -> tuple[Any, dict[str, Any]]:
    frame = photo_frame(len(labels)).assign(split=splits, label=labels)
    return frame.assign(x_min=4, y_min=4, x_max=20, y_max=20), {}


def several(labels: list[str], splits: list[str]) -> tuple[Any, dict[str, Any]]:
    frame = photo_frame(len(labels)).assign(split=splits, label=[[label] for label in labels])
    return frame, {"schema": {"split": "split", "image_uri": "image", "label": "labels"}}


def single(labels: list[str], splits: list[str]) -> tuple[Any, dict[str, Any]]:
    return photo_frame(len(labels)).assign(split=splits, label=labels), {}


@pytest.mark.parametrize("form", [boxed, several, single])
def test_classes_of_boxes_and_of_lists_are_compared_too(form: Any) -> None:
    frame, options = form(["Cat", "cat", "cat ", "dog"], ["TRAIN"] * 3 + ["TEST"])
    (similar,) = messages(frame, "similar_labels", **options)
    assert similar == "labels ['Cat', 'cat', 'cat '] differ only in case or whitespace"
    assert messages(frame, "label_not_in_train", **options) == ["label 'dog' is not in TRAIN"]


@pytest.mark.parametrize(
    "pair",
    [
        ("cat\u200b", "cat"),
        ("\ufeffcat", "Cat"),
        ("so\u00adfa", "sofa "),
        ("\u2764\ufe0f", "\u2764"),
    ],
)
def test_names_that_look_the_same_are_shown_by_their_code_points(pair: tuple[str, str]) -> None:
    frame = photo_frame(2).assign(label=pair)
    (message,) = messages(frame, "similar_labels")
    assert message.isascii()
    assert "differ only in case, whitespace or unseen characters" in message


@pytest.mark.parametrize(
    ("rare", "often", "times", "is_like"),
    [
        ("daissy", "daisy", 20, True),
        ("dasies", "daisies", 20, True),
        ("dasies", "daisies", 19, False),
        ("dasy", "daisy", 40, False),  # too short
        ("daisi", "daisy", 40, False),  # another letter
        ("n0208407", "n02084071", 40, False),
        ("red-rose", "redrose", 40, False),
        ("apple pies", "apple pie", 40, True),
    ],
)
def test_one_letter_more_or_less_in_a_rare_name(
    rare: str, often: str, times: int, is_like: bool
) -> None:
    names = [f"{n}.jpg" for n in range(times + 1)]
    frame = pd.DataFrame({"image_uri": names, "label": [rare] + [often] * times})
    found = messages(frame, "similar_labels")
    assert len(found) == is_like
    if is_like:
        assert f"{often!r}, with one letter more or less, {times} times" in found[0]


def test_a_cell_of_any_length_costs_nothing_more() -> None:
    frame = pd.DataFrame({"image_uri": NAMES, "label": ["x" * 10**6, *["y"] * 12]})
    assert messages(frame, "similar_labels") == []


def test_blanks_around_all_labels_are_named() -> None:
    frame = photo_frame(4).assign(label=[" cat", " cat", "dog", "dog\t"])
    (message,) = messages(frame, "padded_labels")
    assert message == "labels that begin or end with white space: 1: ' cat'"
    assert messages(frame, "similar_labels") != []
