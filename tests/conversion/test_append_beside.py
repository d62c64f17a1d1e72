"""`append` compares a table with the dataset: known bytes, leakage, new classes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.growing_cases import QUIET, drawn, table
from support import invoke

import tfrecorder
from tfrecorder import ValidationError
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.schema import Image, Label, Mask, Schema, Split


@pytest.fixture
def out() -> str:
    """Twelve photographs of several classes, in "out"."""
    tfrecorder.convert(table(0, 12), "out", num_shards=2, **QUIET)
    return "out"


def add(rows: object, **options: object) -> Any:
    return tfrecorder.append(rows, "out", **{**QUIET, **options})


def copies(rows: pd.DataFrame, folder: str = "copies") -> pd.DataFrame:
    """The same images in another folder, under other names."""
    Path(folder).mkdir(exist_ok=True)
    paths = []
    for number, uri in enumerate(rows["image_uri"]):
        paths.append(str(Path(folder, f"{number}.jpg").absolute()))
        shutil.copyfile(uri, paths[-1])
    return rows.assign(image_uri=paths)


def new_rows(count: int, split: str = "TRAIN") -> pd.DataFrame:
    """Images whose bytes no dataset has."""
    labels = table(0, 1)["label"][0]
    uris = drawn("new", count, (20, 20))
    return pd.DataFrame({"split": split, "image_uri": uris, "label": labels})


# --------------------------------------------------------------------- the same bytes again


def test_the_same_bytes_under_another_name_are_added_and_named(out) -> None:
    again = copies(table(0, 2))
    rows = pd.concat([again, new_rows(2)], ignore_index=True)
    with pytest.warns(UserWarning, match="2 rows have the bytes of images that are there") as told:
        result = add(rows)
    first = f"row 0, {again['image_uri'][0]!r} is {table(0, 1)['image_uri'][0]!r} in TRAIN"
    assert first in str(told[0].message)
    assert first in str(result)
    assert result.records == 4
    assert result.warnings == {"same_bytes": 2}


def test_a_base_is_the_remedy_where_paths_are_relative_alone(out) -> None:
    rows = copies(table(0, 2))
    for base, uris in ((None, rows["image_uri"]), ("copies", ["0.jpg", "1.jpg"])):
        given = rows.assign(image_uri=uris)
        report = tfrecorder.validate(given, against=out, base=base, progress=False)
        (remedy,) = set(report.query("code == 'same_bytes'")["remedy"])
        assert ("the folder where they were as `base`" in remedy) == (base is not None)
        assert "Drop it, or it counts twice; `append` does with `duplicates='content'`." in remedy


def test_the_same_bytes_in_another_split_are_leakage(out) -> None:
    rows = copies(table(0, 2)).assign(split=["TRAIN", "TEST"])
    with pytest.warns(UserWarning, match="leakage: 1 row has the bytes .* in TEST is .*"):
        result = add(rows)
    assert result.warnings == {"same_bytes_leakage": 1, "same_bytes": 1}
    with pytest.raises(ValidationError, match="same_bytes_leakage"):
        add(copies(table(3, 1), "more").assign(split="TEST"), warnings=["same_bytes_leakage"])


def test_of_splits_that_have_the_bytes_another_one_is_named(out) -> None:
    with pytest.warns(UserWarning, match="leakage"):
        add(copies(table(0, 1)).assign(split="TEST"))
    for split, other in (("TRAIN", "TEST"), ("TEST", "TRAIN")):
        rows = copies(table(0, 1), f"more in {split}").assign(split=split)
        with pytest.warns(UserWarning, match=f"leakage: .* in {split} is .* in {other}"):
            assert add(rows).warnings == {"same_bytes_leakage": 1}


@pytest.mark.slow
def test_an_update_names_the_same_bytes_too(out) -> None:
    """A folder that was copied or moved would otherwise double the dataset in silence."""
    moved = copies(table(0, 12))
    leak = moved.assign(split=["TEST", *["TRAIN"] * 11])
    would = tfrecorder.update(leak, out, dry_run=True, **QUIET)
    assert "leakage: 1 row has the bytes of an image of another split" in str(would)
    assert "11 rows have the bytes of images that are there under other names" in str(would)
    with pytest.raises(ValidationError, match="same_bytes"):
        tfrecorder.update(moved, out, warnings="error", **QUIET)
    result = tfrecorder.update(pd.concat([moved[:2], table(2, 10)]), out, **QUIET)
    assert result.warnings == {"same_bytes": 2}
    assert result.changes.added == 2


@pytest.mark.slow
def test_an_update_that_replaces_all_by_their_copies_counts_nothing_twice(out) -> None:
    moved = copies(table(0, 12))
    assert tfrecorder.update(moved, out, missing="remove", **QUIET).warnings == {}
    again = pd.concat([moved, copies(moved[:1], "again")], ignore_index=True)
    result = tfrecorder.update(again, out, missing="remove", **QUIET)
    assert result.warnings == {"same_bytes": 1}


def test_rows_can_be_known_by_their_bytes(out) -> None:
    rows = pd.concat([copies(table(0, 2)).assign(split="TEST"), new_rows(1)], ignore_index=True)
    with pytest.warns(UserWarning, match="2 rows are skipped: their bytes are there"):
        result = add(rows, duplicates="content")
    assert (result.records, result.rows_there) == (1, 2)
    with pytest.warns(UserWarning, match="2 rows are skipped: their bytes are there"):
        result = add(rows, duplicates="content")
    assert (result.was_finished, result.rows_there) == (True, 3)
    assert "2 rows are skipped: their bytes are there" in str(result)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_an_image_of_the_same_size_with_other_bytes_is_new(out) -> None:
    rows = new_rows(2)
    first, second = (Path(uri) for uri in rows["image_uri"])
    assert len({first.stat().st_size, second.stat().st_size}) == 1
    assert first.read_bytes() != second.read_bytes()
    add(rows[:1])
    assert add(rows, duplicates="content").records == 1


def test_images_that_came_as_bytes_are_compared_with_files(out) -> None:
    uri = table(0, 1)["image_uri"][0]
    rows = table(0, 1).assign(image_uri=[Path(uri).read_bytes()])
    with pytest.warns(UserWarning, match="1 row is skipped: its bytes are there"):
        assert add(rows, duplicates="content").rows_there == 1
    with pytest.warns(UserWarning, match=f"is {uri!r} in TRAIN"):
        assert add(rows).records == 1
    assert add(rows).rows_there == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_a_row_is_known_by_the_bytes_of_all_its_files() -> None:
    schema = Schema(split=Split(), image_uri=Image(), label=Label(), mask=Mask())
    masks = drawn("masks", 2, (20, 20), "L")
    rows = new_rows(1).assign(mask=masks[0])
    tfrecorder.convert(rows, "out", schema=schema, **QUIET)
    other = copies(rows).assign(mask=masks[1])
    assert add(other, duplicates="content").rows_there == 0
    shutil.copyfile(masks[0], "again.png")
    both = copies(rows, "twice").assign(mask=str(Path("again.png").absolute()))
    with pytest.warns(UserWarning, match="1 row is skipped"):
        assert add(both, duplicates="content").rows_there == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_bytes_of_a_reject_are_not_there(out) -> None:
    for name in ("bad.jpg", "worse.jpg"):
        Path(name).write_bytes(b"no image")
    rows = new_rows(2)
    bad = rows.assign(image_uri=[rows["image_uri"][0], str(Path("bad.jpg").absolute())])
    assert add(bad, max_reject_fraction=0.5).rejects
    worse = bad.assign(image_uri=[rows["image_uri"][1], str(Path("worse.jpg").absolute())])
    result = add(worse, duplicates="content", max_reject_fraction=0.5)
    assert (result.rows_there, result.records, len(result.rejects)) == (0, 1, 1)


@pytest.mark.slow
def test_bytes_are_known_however_many_appends_brought_them() -> None:
    uris = [*drawn("small", 20, (20, 20)), *drawn("large", 20, (30, 30))]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "a"})
    tfrecorder.convert(frame[:1], "out", **QUIET)
    for number in range(1, 40):
        add(frame[number : number + 1])
    again = copies(frame)
    with pytest.warns(UserWarning, match="40 rows are skipped"):
        assert add(again, duplicates="content").rows_there == 40
    assert Path("out/_tfrecorder/rows.parquet").exists()


# ------------------------------------------------------------------------------- new classes


@pytest.mark.slow
def test_new_classes_are_named_with_those_that_they_look_like(out) -> None:
    known = sorted({*table(0, 12)["label"]})
    odd = known[0][:-2] + known[0][-2:][::-1]
    rows = new_rows(3).assign(label=[known[0].title(), odd, "zebra crossing"])
    trial = tfrecorder.append(rows, "out", dry_run=True, **QUIET)
    with pytest.warns(UserWarning, match="3 new classes") as told:
        result = add(rows)
    words = next(line for line in str(result).splitlines() if line.startswith("3 new classes"))
    assert f"{known[0].title()!r} (like {known[0]!r})" in words
    assert f"{odd!r} (like {known[0]!r})" in words
    assert "'zebra crossing'" in words
    assert "'zebra crossing' (" not in words
    assert words in str(trial)
    assert words in {str(one.message) for one in told}


@pytest.mark.filterwarnings("error")
def test_new_classes_can_be_refused_or_allowed(out) -> None:
    rows = new_rows(1).assign(label="zebra")
    with pytest.raises(ValidationError, match=r"error: new_class .*\n.*'zebra'\n.*'allow'"):
        add(rows, new_classes="refuse")
    with pytest.raises(OptionError, match="give one of 'warn', 'refuse', 'allow'"):
        add(rows, new_classes="no")
    assert "zebra" in (add(rows, new_classes="allow").class_names or ())


@pytest.mark.filterwarnings("error")
def test_numbered_names_are_not_taken_for_each_other() -> None:
    tfrecorder.convert(new_rows(2).assign(label="n0208407"), "out", **QUIET)
    with pytest.warns(UserWarning, match="^1 new class 'n0208408'$"):
        add(table(0, 1).assign(label="n0208408"))


def test_a_frame_takes_the_options_of_an_append(out) -> None:
    rows = new_rows(1).assign(label="zebra")
    with pytest.raises(ValidationError, match="new_class"):
        rows.tensorflow.to_tfrecord("out", append=True, new_classes="refuse", **QUIET)
    with pytest.raises(OptionError, match="no effect without `append=True`"):
        rows.tensorflow.to_tfrecord("other", duplicates="content")
    with pytest.raises(OptionError, match="no effect without `update=True`"):
        rows.tensorflow.to_tfrecord("out", append=True, missing="remove")


@pytest.mark.slow
def test_integer_classes_can_be_new_too() -> None:
    tfrecorder.convert(new_rows(2).assign(label=[0, 1]), "out", **QUIET)
    with pytest.warns(UserWarning, match="^1 new class '2'$"):
        add(table(0, 1).assign(label=2))


def test_the_command_line_says_it_in_its_own_words(out) -> None:
    pd.concat([copies(table(0, 1)), new_rows(1).assign(label="zebra")]).to_csv("rows.csv")
    done = invoke("append", "rows.csv", "out", "--dry-run")
    assert "1 new class 'zebra'" in done.stdout
    assert "1 row has the bytes of an image that is there under another name: line 2" in done.stdout
    assert "`append` does with --duplicates content" in done.stdout
    done = invoke("append", "rows.csv", "out", "--new-classes", "refuse")
    assert done.exit_code == 1
    assert "give --new-classes allow" in done.stderr
    done = invoke("append", "rows.csv", "out")
    assert "warning: 1 new class 'zebra'\n" in done.stderr


# --------------------------------------------------------------------- validate, beside a dataset


def test_validate_says_what_an_append_would(out) -> None:
    rows = pd.concat([table(0, 12), copies(table(0, 1)), new_rows(1)], ignore_index=True)
    rows.loc[13, "label"] = "zebra"
    report = tfrecorder.validate(rows, against="out")
    assert {*report["code"]} == {"same_bytes", "new_class"}
    assert report["row"].dropna().tolist() == [12]
    trial = tfrecorder.append(rows, "out", dry_run=True, **QUIET)
    for words in ("skipped: 12 rows that are already there", "1 new class 'zebra'"):
        assert words in str(report)
        assert words in str(trial)
    assert not tfrecorder.validate(rows)["code"].isin(["same_bytes", "new_class"]).any()


def test_validate_knows_what_was_removed(out) -> None:
    rows = table(0, 12)
    tfrecorder.compact("out", drop=[rows["image_uri"][3]], **QUIET)
    report = tfrecorder.validate(rows, against="out")
    assert report.empty
    assert "skipped: 11 rows that are already there" in str(report)
    assert "removed before: 1 row, which stays out" in str(report)


def test_validate_finds_columns_that_do_not_fit(out) -> None:
    rows = new_rows(1).assign(label=3)
    report = tfrecorder.validate(rows, against="out")
    assert report["code"].tolist() == ["other_columns"]
    assert "are integers, but names in the dataset" in report["message"][0]
    with pytest.raises(DatasetError, match="nothing"):
        tfrecorder.validate(rows, against="nothing")


def test_validate_opens_only_images_that_are_new(out) -> None:
    rows = pd.concat([table(0, 12), new_rows(1)], ignore_index=True)
    Path(rows["image_uri"][12]).write_bytes(b"no image")
    report = tfrecorder.validate(rows, check_images=True, against="out", progress=False)
    assert report[["code", "row"]].to_numpy().tolist() == [["unusable_image", 12]]
    assert tfrecorder.validate(table(0, 12), against="out").empty


def test_validate_against_a_dataset_on_the_command_line(out) -> None:
    pd.concat([table(0, 12), new_rows(1).assign(label="zebra")]).to_csv("rows.csv", index=False)
    done = invoke("validate", "rows.csv", "--against", "out")
    assert done.exit_code == 0
    assert "skipped: 12 rows that are already there" in done.stdout
    assert "1 new class 'zebra'" in done.stdout
    new_rows(1).drop(columns="label").to_csv("rows.csv", index=False)
    assert invoke("validate", "rows.csv", "--against", "out").exit_code == 1
