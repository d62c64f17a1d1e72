"""What the columns of a table mean does not turn on one cell, on a heading or on how it came."""

from __future__ import annotations

import datetime as dt
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import PHOTOS, invoke, photo_frame, records

import tfrecorder
from tfrecorder.errors import SourceError, ValidationError
from tfrecorder.schema import File, Image, Label, Schema, Split

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
    assert "classes without an image: 1: 'unicorn'" in str(result)
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


# ---------------------------------------------------------------------- values without a heading


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        (
            "0.jpg,4,4,30,20,cow\n1.jpg,4,4,30,20,cat\n2.jpg,,,,,\n",
            "image_uri,x_min,y_min,x_max,y_max,label",
        ),
        ("0.jpg,cow,4,4,30,20\n1.jpg,cat,4,4,30,20\n", "image_uri,label,x_min,y_min,x_max,y_max"),
        ("TRAIN,0.jpg,.1,.1,.5,.5\n", "split,image_uri,x_min,y_min,x_max,y_max"),
        ("0.jpg,cat,0.93\n1.jpg,dog,0.81\n", "image_uri,label,value_1"),
        ("0.jpg,64,cat,48\n1.jpg,64,dog,48\n", "image_uri,value_1,label,value_2"),
    ],
)
def test_numbers_after_the_image_are_no_classes(text: str, heading: str) -> None:
    Path("a.csv").write_text(text)
    with pytest.raises(SourceError, match=f"such as {heading}$") as caught:
        tfrecorder.validate("a.csv")
    assert str(caught.value).startswith("a.csv: ")
    Path("a.csv").write_text(f"{heading}\n{text}")
    report = tfrecorder.validate("a.csv")
    assert report.query("severity == 'error'").empty, report.to_string()


@pytest.mark.parametrize(
    "text", ["0.jpg,1,2\n1.jpg,2,3\n", "0.jpg,cat,dog\n1.jpg,cat\n", "0.jpg,a,2024\n1.jpg,b\n"]
)
def test_several_classes_of_an_image_are_read_as_before(text: str) -> None:
    Path("a.csv").write_text(text)
    assert tfrecorder.validate("a.csv").query("severity == 'error'").empty


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0.jpg, cat\n1.jpg, dog\n", ("cat", "dog")),
        ("split, image_uri, label\nTRAIN, 0.jpg, cat\nTRAIN, 1.jpg,  dog\n", ("cat", "dog")),
        ('image_uri, label\n0.jpg, "a, b"\n1.jpg, "c\nd"\n', ("a, b", "c\nd")),
        ('0.jpg," cat"\n1.jpg,dog\n', (" cat", "dog")),  # in quotes it is meant
        ("image_uri,label\n0.jpg, cat\n1.jpg,dog\n", (" cat", "dog")),  # said: padded_labels
    ],
)
def test_a_blank_after_each_comma_is_no_part_of_a_value(text: str, names: tuple) -> None:
    Path("a.csv").write_text(text)
    report = tfrecorder.validate("a.csv")  # which names each rare class
    assert {*report[report.code == "few_images"].value} == {*names}


def test_what_the_first_line_was_taken_for_is_said() -> None:
    Path("a.csv").write_text("pie, pie/1005649\npie, pie/1014775\n")
    (message,) = messages("a.csv", "missing_column")
    assert "as the first line names them: if it is a row, put a heading above" in message
    Path("a.txt").write_text("a.jpg 0\nb.jpg 1\n")
    with pytest.raises(SourceError, match="separated by blanks"):
        tfrecorder.validate("a.txt")
    Path("a.txt").write_text("my photo.jpg\n")
    assert tfrecorder.validate("a.txt").query("severity == 'error'").empty


# ----------------------------------------------------------------------------- values of all types


@pytest.mark.parametrize("as_array", [list, np.array])
def test_lists_of_classes_need_no_schema(as_array: Any) -> None:
    frame = photo_frame(2).assign(label=[as_array(["a"]), as_array(["a", "b"])])
    assert "label=Labels()" in str(tfrecorder.infer_schema(frame))
    assert tfrecorder.validate(frame).query("severity == 'error'").empty
    table = pa.table({"image_uri": frame.image_uri, "label": [["a"], ["a", "b"]]})
    pq.write_table(table, "a.parquet")
    assert tfrecorder.convert("a.parquet", "out", dry_run=True).class_names == ("a", "b")
    single = {"split": "split", "image_uri": "image", "label": "label"}
    found = messages(frame, "unsupported_label", schema=single)
    assert len(found) == 2
    assert found[0].endswith("is a list of labels, which `Labels()` in the schema is for")


def numbers(values: list[Any], dtype: str, **more: Any) -> Any:
    """Values as a dataset has them, or the first message."""
    kinds = {"image_uri": "image", "n": {"kind": "number", "dtype": dtype, **more}}
    frame = photo_frame(len(values))[["image_uri"]].assign(n=pd.Series(values, dtype=object))
    if found := messages(frame, "wrong_value", schema=kinds):
        return found[0]
    tfrecorder.convert(frame, "out", schema=kinds, progress=False, overwrite=True)
    return tfrecorder.to_frame("out").sort_values("row").n.tolist()


@pytest.mark.slow
def test_decimals_are_numbers_where_they_fit() -> None:
    assert numbers([Decimal("1.25"), Decimal(2)], "float32") == [1.25, 2.0]
    assert numbers([Decimal(2**53 + 1), Decimal("-4.0")], "int64") == [2**53 + 1, -4]
    assert numbers([[Decimal("1.5")], [Decimal(3), Decimal(4)]], "float32", shape=[None]) == [
        [1.5],
        [3.0, 4.0],
    ]
    for value, dtype in (
        (Decimal(2**53) + Decimal("0.5"), "int64"),
        (Decimal("1e400"), "float32"),
        (Decimal(2**70), "int64"),
    ):
        assert "is not" in numbers([value], dtype)
    frame = photo_frame(2).assign(label=[Decimal(1), Decimal("0.0")], price=Decimal("1.10"))
    assert str(tfrecorder.infer_schema(frame.assign(count=Decimal(3)))) == (
        "Schema(split=Split(), image_uri=Image(), label=Label(), price=Number(), "
        "count=Number(dtype='int64'))"
    )
    assert tfrecorder.convert(frame, "d", dry_run=True).class_names == ("0", "1")


@pytest.mark.parametrize(
    "value",
    [
        dt.date(2020, 1, 2),
        dt.time(1, 2),
        dt.timedelta(1),
        pd.Timestamp("2020-01-02"),
        np.datetime64("2020"),
    ],
)
def test_dates_and_times_have_a_remedy(value: Any) -> None:
    frame = photo_frame(2).assign(when=pd.Series([value] * 2, dtype=object))
    for kind in ("text", "number"):
        schema = {"image_uri": "image", "when": kind}
        assert (
            "`frame['when'].astype(str)` makes texts"
            in messages(frame, "wrong_value", schema=schema)[0]
        )
    with pytest.warns(UserWarning, match=r"'when' is ignored: .*astype\(str\)"):
        assert "when=Ignore()" in str(tfrecorder.infer_schema(frame))


@pytest.mark.slow
def test_a_validator_that_returns_false_is_told_to_raise() -> None:
    Path("a.bin").write_bytes(b"x")
    frame = pd.DataFrame({"doc": ["a.bin"]})
    for number, answer in enumerate((False, np.bool_(False))):
        schema = Schema(doc=File(validator=lambda data, answer=answer: answer))
        with pytest.raises(tfrecorder.TfrecorderError, match="let it raise an exception"):
            tfrecorder.convert(frame, f"no{number}", schema=schema, progress=False)
    schema = Schema(doc=File(validator=lambda data: sys.exit(1)))
    with pytest.raises(tfrecorder.TfrecorderError, match=r"called sys\.exit, .*let it raise"):
        tfrecorder.validate(frame, schema=schema, check_images=True)
    for number, answer in enumerate((None, True, 0, "")):
        schema = Schema(doc=File(validator=lambda data, answer=answer: answer))
        result = tfrecorder.convert(frame, f"out{number}", schema=schema, progress=False)
        assert result.records == 1


@pytest.mark.slow
def test_columns_cost_time_linearly() -> None:
    """Also where images are there again, of which every column is compared."""

    def seconds(columns: int) -> float:
        names = {f"c{n}": 1.0 for n in range(columns)}
        frame = pd.DataFrame({"image_uri": ["a.jpg", "b.jpg"] * 4, **names})
        began = time.process_time()
        tfrecorder.validate(frame, schema={"image_uri": "image", **dict.fromkeys(names, "number")})
        return time.process_time() - began

    seconds(10)
    assert seconds(160) < 7 * seconds(40)


# ------------------------------------------------------------------------------ names of columns


def test_columns_are_suggested_by_what_is_in_them() -> None:
    jpeg = PHOTOS[0].read_bytes()
    frame = pd.DataFrame({"path": ["0.jpg"] * 2, "content": [jpeg] * 2, "label": [0, 1]})
    assert messages(frame, "missing_column") == ["there is no column 'image_uri'; is it 'content'?"]
    lists = pd.DataFrame({"images": [[{"bytes": jpeg, "path": None}]] * 2, "label": [0, 1]})
    (message,) = messages(lists, "missing_column")
    assert "'images' (list of images); `frame.explode('images')` gives each image a row" in message
    spark = {"origin": "", "height": 4, "nChannels": 3, "data": b""}
    (message,) = messages(pd.DataFrame({"image": [spark] * 2}), "missing_column")
    assert message.endswith("'image' (dict of origin, height, nChannels, data)")
    many = pd.DataFrame({f"c{n}": [1] for n in range(3000)})
    (message,) = messages(many, "missing_column")
    assert message.endswith("and 2,980 more")
    assert len(message) < 600


def test_the_schema_that_is_proposed_keeps_what_validate_recognises() -> None:
    frame = pd.DataFrame(
        {"filename": ["a.jpg", "b.jpg"], "class": ["x", "y"], "usage": ["train", "test"]}
    )
    assert str(tfrecorder.infer_schema(frame)) == (
        "Schema(filename=Image(), class=Label(), usage=Split())"
    )
    both = frame.assign(label=["x", "y"], split=["train", "test"])
    assert str(tfrecorder.infer_schema(both)) == (
        "Schema(filename=Image(), class=Text(), usage=Text(), label=Label(), split=Split())"
    )
    numbers_to_learn = frame.drop(columns="class").assign(target=[0.5, 1.5])
    assert "target=Number()" in str(tfrecorder.infer_schema(numbers_to_learn))
