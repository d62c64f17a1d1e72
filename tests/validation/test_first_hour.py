"""What someone new meets: the same call again, warnings, columns in the wrong place."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support import CSV, PHOTOS, SAMPLES, photo_frame, run

import tfrecorder
from tfrecorder import ValidationError
from tfrecorder.errors import DatasetError, OutputError, SourceError

OPTIONS = {"progress": False, "num_shards": 1}


def stamps(folder: str) -> dict[str, int]:
    return {
        str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()
    }


# ------------------------------------------------------------------- the same call over the dataset


def test_the_same_call_gives_the_finished_dataset(frame: pd.DataFrame, tmp_path: Path) -> None:
    first = frame.tensorflow.to_tfrecord("out", **OPTIONS)
    before = stamps("out")
    again = frame.tensorflow.to_tfrecord("out", **OPTIONS)
    assert stamps("out") == before
    assert again.was_finished
    assert not first.was_finished
    assert (again.records, again.splits, again.rejects) == (first.records, first.splits, {})
    assert str(again).startswith(f"{first.records} records in out, which was finished before")


def test_it_does_not_need_the_images(tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "photos", "photos")
    shutil.copy(CSV, "photos.csv")
    tfrecorder.convert("photos.csv", "out", **OPTIONS)
    shutil.rmtree("photos")
    assert tfrecorder.convert("photos.csv", "out", **OPTIONS).was_finished


def test_a_dataset_that_lost_a_shard_is_not_called_finished(frame: pd.DataFrame) -> None:
    frame.tensorflow.to_tfrecord("out", **OPTIONS)
    Path("out/train-00000.tfrecord").unlink()
    with pytest.raises(DatasetError, match=r"is missing\. `tfrecorder repair"):
        frame.tensorflow.to_tfrecord("out", **OPTIONS)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.iloc[:-1], "^the source had 52 rows and now has 51; .*out is a fin"),
        (lambda frame: frame.assign(label="x"), "^the values in the source's rows have changed; "),
    ],
)
def test_another_source_is_refused_the_difference_first(
    frame: pd.DataFrame, change: Any, words: str
) -> None:
    frame.tensorflow.to_tfrecord("out", **OPTIONS)
    with pytest.raises(OutputError, match=words):
        change(frame).tensorflow.to_tfrecord("out", **OPTIONS)


@pytest.mark.slow
def test_other_options_are_refused_the_difference_first(frame: pd.DataFrame) -> None:
    frame.tensorflow.to_tfrecord("out", **OPTIONS)
    words = (
        r"^`num_shards` was 1 and now is 2; .*out is a finished dataset of .*, or `overwrite=True`"
    )
    with pytest.raises(OutputError, match=words):
        frame.tensorflow.to_tfrecord("out", progress=False, num_shards=2)
    assert not frame.tensorflow.to_tfrecord("out", overwrite=True, **OPTIONS).was_finished


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image_size": 32}, r"`image_size` was not given and now is \[32, 32\]"),
        ({"image_format": "png"}, "`image_format` was 'keep' and now is 'png'"),
        ({"seed": 4}, "`seed` was 0 and now is 4"),
        (
            {"stratify": True, "seed": 4},
            "`seed` was 0 and now is 4; `stratify` was False and now is True",
        ),
        ({"name": "photos"}, "`name` was not given and now is 'photos'"),
    ],
)
def test_only_the_options_that_differ_are_named(
    frame: pd.DataFrame, options: dict[str, Any], words: str
) -> None:
    rows = frame.drop(columns="split")
    rows.tensorflow.to_tfrecord("out/photos/1.0.0", **OPTIONS)
    out = "out" if "name" in options else "out/photos/1.0.0"
    with pytest.raises(OutputError, match=f"^{words}; [^;]*/1.0.0 is a finished"):
        rows.tensorflow.to_tfrecord(out, **OPTIONS, **options)


# ------------------------------------------------------------------------------------- warnings


def leaky() -> pd.DataFrame:
    """An image in two splits."""
    frame = photo_frame()
    return pd.concat([frame, frame.iloc[:1].assign(split="TEST")], ignore_index=True)


def test_convert_warns_in_one_line_of_what_validate_warns_of() -> None:
    frame = leaky()
    report = frame.tensorflow.validate()
    with pytest.warns(UserWarning, match=r"^2 warnings: leakage 2; see `validate` with"):
        result = frame.tensorflow.to_tfrecord("out", **OPTIONS)
    assert result.warnings == {"leakage": 2} == report["code"].value_counts().to_dict()
    assert "warnings: leakage 2" in str(result)


def test_a_warning_that_is_the_only_one_is_said_in_full(frame: pd.DataFrame) -> None:
    words = "1 warning: labels up to 3 make 4 classes, but only 3 are there (label_gaps); see"
    with pytest.warns(UserWarning, match=re.escape(words).replace(r"\^", "^")):
        frame[:9].assign(label=[1, 2, 3] * 3).tensorflow.to_tfrecord("out", **OPTIONS)


def test_columns_that_are_left_out_are_named(frame: pd.DataFrame) -> None:
    words = "2 warnings: column 'a' is left out, column 'b' is left out (column_left_out); see"
    with pytest.warns(UserWarning, match=re.escape(words)):
        frame.assign(a=1, b=2).tensorflow.to_tfrecord("out", **OPTIONS)


def test_one_remedy_renames_all_columns(frame: pd.DataFrame) -> None:
    frame.rename(columns={"image_uri": "filename", "label": "class"}).to_csv("a.csv", index=False)
    names = "{'filename': 'image_uri', 'class': 'label'}"
    report = str(tfrecorder.validate("a.csv"))
    assert f"rename that: `frame.rename(columns={names})`." in report
    assert "unlabelled" not in report


def test_a_column_that_nothing_is_like_is_named_in_its_own_remedy() -> None:
    schema = {"image_uri": "image", "depth_uri": "image", "age": "number"}
    report = tfrecorder.validate(pd.DataFrame({"image_uri": ["a.jpg"]}), schema=schema)
    wanted = report.loc[report["code"] == "missing_column", ["column", "remedy"]]
    assert [*wanted["column"]] == ["depth_uri", "age"]
    assert all(f"{{'…': '{column}'}}" in remedy for column, remedy in wanted.to_numpy())


def test_without_warnings_nothing_is_said(frame: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = frame.tensorflow.to_tfrecord("out", **OPTIONS)
    assert result.warnings == {}


@pytest.mark.slow
def test_strict_makes_warnings_errors() -> None:
    frame = leaky()
    with pytest.raises(ValidationError, match="error: leakage"):
        frame.tensorflow.to_tfrecord("out", warnings="error", **OPTIONS)
    assert not Path("out").exists()
    assert set(frame.tensorflow.validate(warnings="error")["severity"]) == {"error"}
    leaky().to_csv("leaky.csv", index=False)
    assert run("-m", "tfrecorder", "validate", "leaky.csv").returncode == 0
    done = run("-m", "tfrecorder", "validate", "leaky.csv", "--warnings", "error")
    assert done.returncode == 1
    assert "error: leakage (2)" in done.stdout
    done = run("-m", "tfrecorder", "convert", "leaky.csv", "out", "--warnings", "error")
    assert done.returncode == 1
    assert "error: leakage (2)" in done.stderr


@pytest.mark.slow
def test_a_small_trial_is_sound() -> None:
    """Few images of a class are to be known, and nothing that a user can be asked to mend."""
    few = photo_frame(7).assign(label=["cat"] * 6 + ["dog"])
    few.to_csv("few.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = few.tensorflow.to_tfrecord("out", warnings="error", **OPTIONS)
    assert (result.records, result.warnings) == (7, {})
    shown = str(few.tensorflow.validate(warnings="error"))
    assert shown.startswith("no problems and 2 notes in 7 rows\nnote: few_images (2)\n")
    assert "label 'cat' has 6 images, fewer than 10" in shown
    assert "label 'dog' has 1 image, fewer than 10" in shown
    done = run("-m", "tfrecorder", "convert", "few.csv", "other", "--warnings", "error")
    assert (done.returncode, done.stderr) == (0, "")
    done = run("-m", "tfrecorder", "validate", "few.csv", "--warnings", "error")
    assert (done.returncode, "note: few_images (2)" in done.stdout) == (0, True)


def test_notes_stand_last_in_a_report(frame: pd.DataFrame) -> None:
    odd = frame.iloc[:6].assign(price=1)
    odd.loc[3, "image_uri"] = None
    found = odd.tensorflow.validate()
    assert found["severity"].drop_duplicates().tolist() == ["error", "warning", "note"]
    assert str(found).startswith("1 error, 1 warning and 1 note in 6 rows\n")


@pytest.mark.slow
def test_the_command_names_the_command_that_lists_them() -> None:
    leaky().to_csv("leaky.csv", index=False)
    done = run("-m", "tfrecorder", "convert", "leaky.csv", "out")
    assert "2 warnings: leakage 2; see `tfrecorder validate leaky.csv`" in done.stderr


@pytest.mark.slow
def test_a_warning_points_at_the_line_of_the_user() -> None:
    frame = leaky()
    frame.loc[0, "label"] = " odd "  # whose escape is warned of, from further inside
    frame.to_csv("leaky.csv", index=False)
    calls = (
        lambda: frame.tensorflow.to_tfrecord("a", **OPTIONS),
        lambda: tfrecorder.convert("leaky.csv", "b", **OPTIONS),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        ours = [one for one in caught if issubclass(one.category, UserWarning)]
        assert len(ours) == 2
        line = call.__code__.co_firstlineno
        assert [(one.filename, one.lineno) for one in ours] == [(__file__, line)] * 2


@pytest.mark.slow
def test_a_piped_table_is_not_to_be_read_again() -> None:
    leaky().to_csv("leaky.csv", index=False)
    text = Path("leaky.csv").read_text()
    done = run("-m", "tfrecorder", "convert", "-", "out", input=text)
    assert "2 warnings: leakage 2; see `validate` with the same" in done.stderr
    assert "validate -" not in done.stderr
    with (
        open("leaky.csv", "rb") as file,
        pytest.warns(match="see `validate` with"),
    ):
        tfrecorder.convert(file, "other", **OPTIONS)


@pytest.mark.slow
def test_the_call_that_lists_warnings_takes_the_same_options() -> None:
    leaky().to_csv("leaky.csv", index=False)
    done = run("-m", "tfrecorder", "convert", "leaky.csv", "out", "--seed", "3")
    assert "; see `tfrecorder validate leaky.csv` with the same options\n" in done.stderr


# ------------------------------------------------------------------ labels and splits out of place


@pytest.mark.parametrize("column", ["split", "image_uri", "label"])
def test_a_column_in_the_index_is_not_lost(frame: pd.DataFrame, column: str) -> None:
    with pytest.raises(SourceError, match=rf"'{column}' is in the frame's index.*reset_index\(\)"):
        frame.set_index(column).tensorflow.validate()


def test_result_and_report_say_what_is_missing(frame: pd.DataFrame) -> None:
    bare = frame[["image_uri"]]
    notes = ("labels: none; the dataset is unlabelled", "splits: assigned to the 52 of 52 rows")
    shown = str(bare.tensorflow.to_tfrecord("out", **OPTIONS)), str(bare.tensorflow.validate())
    assert all(note in text for note in notes for text in shown)
    whole = str(frame.tensorflow.validate())
    assert not any(note in whole for note in notes)


def test_a_column_of_splits_with_another_name_is_pointed_at(frame: pd.DataFrame) -> None:
    moved = frame.rename(columns={"split": "phase"})
    [fault] = moved.tensorflow.validate().query("code == 'missing_column'").to_dict("records")
    assert fault["message"] == "there is no column 'split'; is it 'phase'?"
    stage = frame.drop(columns="split").assign(stage=["I", "II"] * 26)  # of a disease
    assert "missing_column" not in set(stage.tensorflow.validate()["code"])


def test_integer_labels_with_gaps_are_a_warning(frame: pd.DataFrame) -> None:
    numbers = frame.assign(label=[10 * (at % 4) for at in range(len(frame))])
    [found] = numbers.tensorflow.validate().to_dict("records")
    assert (found["code"], found["severity"]) == ("label_gaps", "warning")
    assert found["message"] == "labels up to 30 make 31 classes, but only 4 are there"
    dense = frame.assign(label=[at % 4 for at in range(len(frame))])
    assert dense.tensorflow.validate().empty


@pytest.mark.slow
def test_integer_labels_have_class_names(frame: pd.DataFrame) -> None:
    numbers = frame.assign(label=[at % 4 for at in range(len(frame))])
    result = numbers.tensorflow.to_tfrecord("out", **OPTIONS)
    assert result.class_names == ("0", "1", "2", "3") == tfrecorder.info("out").class_names
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wide = frame.assign(label=[10**12] * len(frame))
        assert wide.tensorflow.to_tfrecord("wide", **OPTIONS).class_names is None


# ------------------------------------------------------------------------- the report, for people


def test_a_sound_frame_says_so(frame: pd.DataFrame) -> None:
    report = frame.tensorflow.validate()
    unseen = "images: not opened; `check_images=True` opens and checks each"
    assert str(report) == f"no problems in 52 rows\n{unseen}"
    looked = frame.tensorflow.validate(check_images=True, progress=False)
    assert str(looked).startswith("no problems in 52 rows\ncopies: 0 exact (same bytes), 0 near")
    assert "no problems in 52 rows" in report._repr_html_()
    assert report.empty
    assert type(report.query("severity == 'error'")) is pd.DataFrame


def test_a_report_shows_problems_in_groups(frame: pd.DataFrame) -> None:
    frame.loc[:4, "image_uri"] = None
    report = frame.tensorflow.validate()
    lines = str(report).splitlines()
    assert lines[:3] == [
        "5 errors in 52 rows",
        "error: null_uri (5)",
        "  row 0: the image is missing",
    ]
    assert "  ... and 2 more" in lines
    page = report._repr_html_()
    assert "null_uri" in page
    assert "Drop the row or give its image." in page


def test_lines_of_a_text_file_are_counted_as_in_an_editor() -> None:
    Path("a.csv").write_text('image_uri,label\n"a\n.jpg",x\n\nb.jpg,\nc.jpg,y\n')
    report = tfrecorder.validate("a.csv")
    assert "line 5: the label is missing" in str(report)
    assert report.query("code == 'null_label'")["row"].tolist() == [1]
    Path("none.csv").write_text("TRAIN,a.jpg,x\n,,\nTRIAL,b.jpg,x\n")
    assert "line 3: 'TRIAL' is not a split" in str(tfrecorder.validate("none.csv"))


@pytest.mark.slow
def test_what_does_not_go_with_a_row_is_named(frame: pd.DataFrame) -> None:
    rows = [("a", "TRAIN", "x"), ("b", "TRAIN", "x"), ("a", "TEST", "x"), ("a", "TRAIN", "y")]
    rows += [("b", "TRAIN", "x"), ("a", "TEST", "x")]
    table = pd.DataFrame(rows, columns=["image_uri", "split", "label"])
    report = table.tensorflow.validate()
    found = {code: of.set_index("row") for code, of in report.groupby("code")}
    assert found["leakage"]["other_row"].to_dict() == {0: 2, 2: 0, 3: 2, 5: 0}
    assert found["conflicting_labels"]["other_row"].to_dict() == {0: 3, 2: 3, 3: 0, 5: 3}
    assert found["duplicate_row"]["other_row"].to_dict() == {4: 1, 5: 2}
    assert found["leakage"]["message"][2] == "'a' is in TEST and also in TRAIN"
    shown = str(report)
    assert "row 2: 'a' is in TEST and also in TRAIN (row 0)" in shown
    assert "row 3: 'a' has the label 'y' and also 'x' (row 0)" in shown
    assert "row 4: 'b' repeats an earlier row in TRAIN (row 1)" in shown
    table.to_csv("a.csv", index=False)
    shown = run("-m", "tfrecorder", "validate", "a.csv").stdout
    assert "line 4: 'a' is in TEST and also in TRAIN (line 2)" in shown
    assert "line 6: 'b' repeats an earlier row in TRAIN (line 3)" in shown


@pytest.mark.slow
def test_remedies_are_in_the_words_of_the_place() -> None:
    Path("a.csv").write_text("image_url,label\na.jpg,x\n")
    assert "columns={'image_url': 'image_uri'}" in str(tfrecorder.validate("a.csv"))
    done = run("-m", "tfrecorder", "validate", "a.csv")
    assert "--column image_url=image_uri" in done.stdout
    done = run("-m", "tfrecorder", "convert", "a.csv", "out")
    assert "--column image_url=image_uri" in done.stderr


# ------------------------------------------------------------------------------- single messages


def test_a_missing_shard_names_its_remedy_in_one_sentence(frame: pd.DataFrame) -> None:
    frame.tensorflow.to_tfrecord("out", **OPTIONS)
    Path("out/train-00000.tfrecord").unlink()
    with pytest.raises(DatasetError) as caught:
        tfrecorder.load("out", "TRAIN")
    words = str(caught.value)
    assert "\n" not in words
    assert "train-00000.tfrecord is missing. `tfrecorder repair out`" in words


def test_load_complains_of_the_split_first(dataset: Path) -> None:
    with pytest.raises(DatasetError, match=r"'TRIAN'.*did you mean 'TRAIN'"):
        tfrecorder.load(dataset, "TRIAN", batch_size=8)


def test_what_is_no_source_is_named(dataset: Path) -> None:
    with pytest.raises(SourceError, match="is an image; give its folder"):
        tfrecorder.convert(PHOTOS[0], "out")
    archive = shutil.make_archive("photos", "gztar", PHOTOS[0].parent)
    with pytest.raises(SourceError, match=r"photos\.tar\.gz' is an archive; unpack it"):
        tfrecorder.validate(archive)
    with pytest.raises(SourceError, match="is already a dataset"):
        tfrecorder.convert(dataset, "out")


def test_a_flat_folder_of_images_is_unlabelled() -> None:
    Path("flat").mkdir()
    for path in PHOTOS[:3]:
        shutil.copy(path, "flat")
    result = tfrecorder.convert("flat", "out", **OPTIONS)
    assert result.records == 3
    assert "unlabelled" in str(result)
    Path("flat/cat").mkdir()
    shutil.copy(PHOTOS[3], "flat/cat")
    with pytest.raises(SourceError, match="is not at label/file"):
        tfrecorder.convert("flat", "other")


def test_pixels_in_a_cell_are_one_clear_error() -> None:
    pixels = np.zeros((40, 30, 3))
    frame = pd.DataFrame({"image_uri": [pixels, pixels], "label": "x"})
    with pytest.raises(ValidationError, match=r"an array of shape \(40, 30, 3\)") as caught:
        frame.tensorflow.to_tfrecord("out")
    assert len(str(caught.value)) < 800


def test_rejects_are_in_the_order_of_the_rows(frame: pd.DataFrame) -> None:
    frame.loc[::4, "image_uri"] = [f"/nowhere/{at}.jpg" for at in range(13)]
    frame.tensorflow.to_tfrecord("out", num_shards=4, progress=False, max_reject_fraction=1)
    rows = pd.read_csv("out/rejects.csv")["row"]
    assert rows.tolist() == list(range(0, 52, 4))
    assert tfrecorder.verify("out").ok


@pytest.mark.slow
def test_one_is_not_called_several() -> None:
    words = str(photo_frame(1).tensorflow.to_tfrecord("one", progress=False))
    words += str(tfrecorder.status("one")) + str(tfrecorder.verify("one"))
    words += str(tfrecorder.preview("one", progress=False)) + str(tfrecorder.info("one"))
    words += str(photo_frame(1).tensorflow.validate())
    words += run("-m", "tfrecorder", "convert", CSV, "dry", "--dry-run").stdout
    assert "1 record in one (" in words
    several = r"\b1 (images|files|rows|records|shards|faults|classes|notes|attempts|bytes)\b(?!/s)"
    assert re.findall(rf"[^,.\d]{several}", words) == []


def test_a_result_speaks_of_sizes_as_people_do(frame: pd.DataFrame) -> None:
    result = frame.tensorflow.to_tfrecord("out", **OPTIONS)
    assert re.search(r"TRAIN +52 +0 +1 +\d+\.?\d* KiB$", str(result), re.MULTILINE)
    assert result.splits["TRAIN"].bytes == sum(
        p.stat().st_size for p in Path("out").glob("*.tfrecord")
    )


@pytest.mark.slow
def test_info_speaks_of_sizes_as_people_do(dataset: Path) -> None:
    shown = str(tfrecorder.info(dataset))
    assert "images: sizes vary, 3 channels" in shown
    assert "shard_size='128 MiB'" in shown
    plain = json.loads(run("-m", "tfrecorder", "info", str(dataset), "--json").stdout)
    assert plain["options"]["shard_size"] == 128 * 2**20
