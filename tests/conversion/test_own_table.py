"""A dataset knows its own table: `to_frame`, or a CSV of it, wherever it is read.

What `update`, `remove` and `validate(against=)` take for a row that is there, and what they ask.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.annotation_cases import ANNOTATIONS, coco_file, pictures, voc, yolo
from helpers.streaming_cases import TO_ITS_END
from PIL import Image as Pictures
from services.gcs.control import Gcs
from support import CSV, SAMPLES, invoke

import tfrecorder
from tfrecorder.errors import OptionError, SourceError, ValidationError
from tfrecorder.schema import (
    Image,
    Label,
    Labels,
    Mask,
    Number,
    Schema,
    Split,
    Text,
)

pytest_plugins = ["services.gcs.fixtures"]

QUIET = {"progress": False}
NAMES = [f"{label}/{number}.png" for label in ("cat", "dog") for number in range(3)]


def drawn(folder: str | Path, shade: int = 0) -> None:
    """Images of one colour each, under the same names in any folder."""
    for number, name in enumerate(NAMES):
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        Pictures.new("RGB", (24, 16), (shade, 40 * number, 9)).save(path)


def rows(**more: object) -> pd.DataFrame:
    labels = [name.partition("/")[0] for name in NAMES]
    return pd.DataFrame({"split": "TRAIN", "image_uri": NAMES, "label": labels, **more})


def changes_nothing(table: pd.DataFrame | str, out: str, **options: object) -> None:
    """An update with this table makes no commit."""
    before = tfrecorder.to_frame(out)
    commits = tfrecorder.generations(out)
    result = tfrecorder.update(table, out, **QUIET, **options)
    assert result.changes.words == "nothing changes"
    assert tfrecorder.generations(out) == commits
    pd.testing.assert_frame_equal(tfrecorder.to_frame(out), before)


def corrects(out: str, label: str = "moss") -> None:
    """The recipe of docs/correct.md: one label is another, and there is never a row more."""
    before = tfrecorder.to_frame(out)
    table = before.copy()
    table.iloc[3, table.columns.get_loc("label")] = label
    result = tfrecorder.update(table, out, **QUIET)
    assert (result.changes.corrected, result.changes.added) == (1, 0)
    after = tfrecorder.to_frame(out).sort_index()
    pd.testing.assert_series_equal(after["label"], table.sort_index()["label"])
    assert after["image_uri"].tolist() == before.sort_index()["image_uri"].tolist()
    changes_nothing(tfrecorder.to_frame(out), out)


def of_base(gcs: Gcs) -> None:
    tfrecorder.convert(rows(), "sets/out", base="photos", **QUIET)


def of_folder(gcs: Gcs) -> None:
    tfrecorder.convert("photos", "sets/out", splits={"TRAIN": 1.0}, **QUIET)


def of_stream(gcs: Gcs) -> None:
    options = {**TO_ITS_END, "splits": {"TRAIN": 1.0}}
    tfrecorder.stream("photos", "sets/out", **options)


def of_bucket(gcs: Gcs) -> None:
    for name in NAMES:
        gcs.put(f"gs://bkt/photos/{name}", Path("photos", name).read_bytes())
    tfrecorder.convert(rows(), "sets/out", base="gs://bkt/photos", **QUIET)


FILES = ["there", "moved", "gone"]
QUICK = [(of_base, "there"), (of_folder, "gone"), (of_stream, "moved"), (of_bucket, "gone")]
CASES = [
    pytest.param(make, files, marks=() if (make, files) in QUICK else pytest.mark.slow)
    for make in (of_base, of_folder, of_stream, of_bucket)
    for files in FILES
]


@pytest.mark.parametrize(("make", "files"), CASES)
def test_the_recipe_is_right_from_every_folder(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch, make: Callable[[Gcs], None], files: str
) -> None:
    """From where it was made, among other images of these names, and from an empty folder."""
    drawn("photos")
    drawn("others", shade=200)
    os.mkdir("empty")
    make(gcs)
    if files == "moved":
        shutil.move("photos", "elsewhere")
        shutil.move("sets", "moved")
    if files == "gone":
        shutil.rmtree("photos")
    out = os.path.abspath("moved/out" if files == "moved" else "sets/out")
    start = os.getcwd()
    for folder, label in ((".", "moss"), ("others", "fern"), ("empty", "ivy")):
        monkeypatch.chdir(Path(start, folder))
        changes_nothing(tfrecorder.to_frame(out), out)
        corrects(out, label)
        tfrecorder.to_frame(out).to_csv(Path(start, "empty", "own.csv"), index=False)
        changes_nothing(str(Path(start, "empty", "own.csv")), out)


def test_the_recipe_is_right_for_the_dataset_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    tfrecorder.convert(pd.read_csv(CSV), "out", base=str(SAMPLES), **QUIET)
    others = pd.read_csv(CSV)["image_uri"]
    for uri in others:
        Path("others", uri).parent.mkdir(parents=True, exist_ok=True)
        Pictures.new("RGB", (9, 9)).save(Path("others", uri))
    out = os.path.abspath("out")
    corrects(out, "moss")
    monkeypatch.chdir("others")
    corrects(out, "brick")
    assert len(tfrecorder.to_frame(out)) == len(others) == 52


# ---------------------------------------------------------------------- without the number


@pytest.fixture
def out() -> str:
    """A dataset whose table named its images relative to a folder."""
    drawn("photos")
    tfrecorder.convert(rows(), "out", base="photos", **QUIET)
    return os.path.abspath("out")


def test_a_table_without_numbers_is_matched_by_places_then_by_what_is_there(out: str) -> None:
    table = tfrecorder.to_frame(out).drop(columns="row")
    changes_nothing(table, out, base="photos")
    changes_nothing(table.assign(image_uri=[f"photos/{uri}" for uri in table["image_uri"]]), out)
    changes_nothing(table, out)  # no file has these names here
    drawn(".")
    changes_nothing(table, out)  # they have the same bytes
    drawn(".", shade=200)
    with pytest.raises(SourceError) as caught:
        tfrecorder.update(table, out, **QUIET)
    here = os.getcwd()
    uri = table["image_uri"].iloc[0]
    for words in (f"{here}/{uri}", f"{here}/photos/{uri}", f"base='{here}/photos'"):
        assert words in str(caught.value)
    assert f"base={here!r}" in str(caught.value)
    assert len(tfrecorder.to_frame(out)) == len(NAMES)
    changes_nothing(table, out, base="photos")
    assert tfrecorder.update(table, out, base=here, **QUIET).changes.added == len(NAMES)


def test_a_removal_asks_in_its_own_words(out: str) -> None:
    """It has no `base`: the column of numbers answers."""
    table = tfrecorder.to_frame(out)
    drawn(".", shade=200)
    with pytest.raises(SourceError, match="Give the column `row` of `to_frame` if these") as caught:
        tfrecorder.remove(out, table.drop(columns="row").head(1), **QUIET)
    assert "base" not in str(caught.value)
    assert tfrecorder.remove(out, table.head(1), **QUIET).records == len(NAMES) - 1


def test_the_question_is_spelled_for_the_shell(out: str) -> None:
    drawn(".", shade=200)
    rows().to_csv("table.csv", index=False)
    result = invoke("update", "table.csv", out, "--quiet")
    assert result.exit_code
    assert f"--base {os.getcwd()}/photos if" in result.output


def test_numbers_that_are_not_those_of_the_rows_pair_nothing_wrong(out: str) -> None:
    """A table in another order that was numbered anew, and numbers of another table."""
    table = tfrecorder.to_frame(out).iloc[::-1].reset_index(drop=True)
    changes_nothing(table, out)
    changes_nothing(table.assign(row=range(len(table))), out)
    changes_nothing(table.assign(row=table["row"] + 1), out)
    table.to_csv("table.csv")  # with the index as a column without a name
    changes_nothing("table.csv", out)


def test_new_rows_beside_own_ones_are_added(out: str) -> None:
    drawn("more", shade=90)
    new = rows().assign(image_uri=[f"more/{name}" for name in NAMES])
    both = pd.concat([tfrecorder.to_frame(out), new], ignore_index=True)
    both.to_csv("both.csv", index=False)  # numbers are floats there, or missing
    assert tfrecorder.update("both.csv", out, **QUIET).changes.added == len(NAMES)
    changes_nothing(both, out)


def test_two_rows_with_one_number_are_refused(out: str) -> None:
    table = tfrecorder.to_frame(out)
    with pytest.raises(SourceError, match="rows 0, 6 of the table are all the row 3"):
        tfrecorder.update(pd.concat([table, table[:1]]), out, **QUIET)


def test_images_that_come_back_as_bytes_are_those_of_their_numbers(out: str) -> None:
    changes_nothing(tfrecorder.to_frame(out, images="bytes"), out)


def test_an_image_that_is_there_twice_is_told_apart_by_its_number(out: str) -> None:
    """Also among boxes that are rows."""
    tfrecorder.append(rows(label="bird"), out, base="photos", duplicates="keep", **QUIET)
    table = tfrecorder.to_frame(out)
    changes_nothing(table, out)
    changes_nothing(table.iloc[::-1], out)
    table.loc[8, "label"] = "moss"
    assert tfrecorder.update(table[table.index > 6], out, **QUIET).changes.labels == {
        "bird → moss": 1
    }
    assert tfrecorder.to_frame(out)["label"].tolist() == table["label"].tolist()


def test_boxes_of_an_image_that_is_there_twice_stay_where_they_are() -> None:
    drawn(".")
    edges = {"x_min": [0.1, 0.2, 0.3], "y_min": 0.1, "x_max": 0.9, "y_max": 0.9}
    uris = [NAMES[0], NAMES[0], NAMES[1]]
    table = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "a", **edges})
    tfrecorder.convert(table, "out", **QUIET)
    tfrecorder.append(table.assign(x_min=0.5), "out", duplicates="keep", **QUIET)
    own = tfrecorder.to_frame("out")
    assert own["row"].tolist() == [0, 0, 2, 3, 3, 5]
    changes_nothing(own, "out")
    own.to_csv("own.csv", index=False)
    changes_nothing("own.csv", "out")
    box = own.iloc[:1].assign(row=None, x_min=0.7)  # a further box, drawn by hand
    result = tfrecorder.update(pd.concat([own, box]), "out", **QUIET)
    assert (result.changes.corrected, result.changes.added) == (1, 0)
    assert tfrecorder.to_frame("out")["row"].tolist() == [0, 0, 0, 2, 3, 3, 5]


# ----------------------------------------------------------------------------- other sources


def of_coco() -> str:
    pictures("set")
    annotations = [{**one, "area": 12.5, "iscrowd": 1} for one in ANNOTATIONS]
    return str(
        coco_file("set/annotations/instances_train.json", annotations=annotations).parents[1]
    )


def of_yolo() -> str:
    labels = {"images/train/one.jpg": "1 .5 .5 1 1\n0 .25 .5 .1 .2\n", "images/train/b.jpg": ""}
    yolo("set", "train: images/train\nnames: {0: dog, 1: a cat}\n", labels)
    return "set"


def of_voc() -> str:
    voc("a", ("dog", 1, 1, 1, 40, 20), ("cat", 0, 3.5, 4, 10, 11))
    voc("b")
    return "voc"


@pytest.mark.parametrize("make", [of_coco, of_yolo, of_voc])
def test_annotations_come_back_as_they_are(
    make: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tfrecorder.convert(make(), "out", splits={"TRAIN": 1.0}, **QUIET)
    out = os.path.abspath("out")
    os.mkdir("empty")
    monkeypatch.chdir("empty")
    table = tfrecorder.to_frame(out)
    changes_nothing(table, out)
    table.to_csv("own.csv", index=False)
    changes_nothing("own.csv", out)
    place = next(place for place, labels in enumerate(table["label"]) if labels)
    table["label"] = [[*labels] for labels in table["label"]]
    table["label"].iloc[place][0] = "moss"
    assert tfrecorder.update(table, out, new_classes="allow", **QUIET).changes.corrected == 1
    changes_nothing(table, out)
    assert tfrecorder.append(table, out, **QUIET).rows_there == len(table)
    assert not len(tfrecorder.validate(table, against=out))


def test_masks_stay_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if one is replaced from another folder."""
    drawn("photos")
    for number in range(len(NAMES) + 1):
        Pictures.fromarray(np.full((16, 24), number, np.uint8)).save(f"photos/{number}.png")
    table = rows(mask_uri=[f"{number}.png" for number in range(len(NAMES))])
    schema = Schema(split=Split(), image_uri=Image(), mask_uri=Mask(), label=Label())
    tfrecorder.convert(table, "out", schema=schema, base="photos", **QUIET)
    out = os.path.abspath("out")
    os.mkdir("empty")
    monkeypatch.chdir("empty")
    own = tfrecorder.to_frame(out)
    changes_nothing(own, out)
    changes_nothing(own.drop(columns="row"), out)
    own.loc[2, "mask_uri"] = "6.png"
    assert tfrecorder.update(own, out, **QUIET).changes.columns == {"mask_uri": 1}
    changes_nothing(own, out)
    assert tfrecorder.verify(out, records=True, **QUIET).ok


# ------------------------------------------------------------------------------------ a CSV


SCHEMA = Schema(
    split=Split(),
    image_uri=Image(),
    numbers=Number(shape=(None,)),
    whole=Number(dtype="int64", shape=(None,)),
    truths=Number(dtype="bool", shape=(None,)),
    texts=Text(shape=(None,)),
    labels=Labels(),
    grid=Number(shape=(2, 2)),
)


def of_kinds() -> pd.DataFrame:
    """A table of lists; of arrays too."""
    several = {
        "numbers": [[1.5, float("nan")], [], [-0.1, float("inf"), 1e-9]] * 2,
        "whole": [[1, -2], [], [2**40]] * 2,
        "truths": [[True, False], [], [True]] * 2,
        "texts": [["it's", 'a "word"'], [], ["nan", "True, [None]", "é"]] * 2,
        "labels": [["a", "b c"], [], ["b c"]] * 2,
        "grid": [[[1, 2], [3, 4.25]]] * 6,
    }
    return rows().drop(columns="label").assign(**several)


def test_lists_as_pandas_writes_them_are_read_and_arrays_are_refused_by_name() -> None:
    drawn(".")
    tfrecorder.convert(of_kinds(), "out", schema=SCHEMA, **QUIET)
    own = tfrecorder.to_frame("out")
    changes_nothing(own, "out")
    own.to_csv("own.csv", index=False)
    with pytest.raises(ValidationError) as caught:
        tfrecorder.update("own.csv", "out", **QUIET)
    assert set(caught.value.report["column"]) == {"grid"}
    own.assign(grid=[grid.tolist() for grid in own["grid"]]).to_csv("own.csv", index=False)
    changes_nothing("own.csv", "out")


# --------------------------------------------------------------------- the column that it adds


def test_every_operation_passes_over_the_column_without_a_finding(out: str) -> None:
    own = tfrecorder.to_frame(out)
    assert own["row"].tolist() == own.index.tolist()
    schema = tfrecorder.infer_schema(own)
    assert schema.columns["row"] == tfrecorder.schema.Ignore()
    for options in ({}, {"against": out}):
        report = tfrecorder.validate(own, base="photos", **options)
        assert "column_left_out" not in set(report["code"])
    tfrecorder.convert(own, "copy", base="photos", warnings="error", **QUIET)
    assert tfrecorder.to_frame("copy").columns.tolist() == own.columns.tolist()
    assert tfrecorder.append(own, "copy", base="photos", **QUIET).rows_there == len(own)
    report = tfrecorder.validate(own.assign(row="A7"), base="photos")
    assert "column_left_out" in set(report["code"])  # no numbers of rows


def test_a_column_row_of_ones_own_keeps_its_values() -> None:
    drawn(".")
    kinds = {"split": Split(), "image_uri": Image(), "row": Text()}
    table = rows(row=list("ABCDEF")).drop(columns="label")
    tfrecorder.convert(table, "out", schema=Schema(kinds), **QUIET)
    own = tfrecorder.to_frame("out").sort_index()
    assert own["row"].tolist() == list("ABCDEF")
    assert own["source_row"].tolist() == own.index.tolist()
    changes_nothing(own, "out")
    own.loc[2, "row"] = "X"
    assert tfrecorder.update(own, "out", **QUIET).changes.columns == {"row": 1}
    result = tfrecorder.remove("out", {"source_row": [0]}, **QUIET)
    assert result.changes.removed == 1
    tfrecorder.remove("out", own[own["row"] == "X"], **QUIET)
    assert sorted(tfrecorder.to_frame("out")["row"]) == list("BDEF")


# ------------------------------------------------------------------------- remove and validate


def test_rows_of_its_own_table_are_removed(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder with other images of their names; by what they are, not by a number alone."""
    own = tfrecorder.to_frame(out).sort_index()
    drawn("others", shade=200)
    monkeypatch.chdir("others")
    stale = own.iloc[:1].assign(
        row=own["row"].iloc[4], image_uri=os.path.abspath("../photos/cat/0.png")
    )
    assert tfrecorder.remove(out, stale, **QUIET).changes.removed == 1
    assert tfrecorder.remove(out, own[1:2], **QUIET).changes.removed == 1
    assert sorted(tfrecorder.to_frame(out)["image_uri"]) == NAMES[2:]
    with pytest.raises(SourceError, match="may be in the dataset or new"):
        tfrecorder.remove(out, own[3:4].drop(columns="row"), **QUIET)
    assert tfrecorder.remove(out, own[:2], **QUIET).removed == 2
    with pytest.raises(OptionError, match="no row has 'image_uri' 'never"):
        tfrecorder.remove(out, own[:1].assign(image_uri="never.png"), **QUIET)
    changes_nothing(tfrecorder.to_frame(out), out)
    assert tfrecorder.update(own, out, **QUIET).removed == 2
    assert len(tfrecorder.to_frame(out)) == len(NAMES) - 2


def test_its_own_table_is_nothing_new_to_it(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tfrecorder.to_frame(out)
    drawn("others", shade=200)
    monkeypatch.chdir("others")
    report = tfrecorder.validate(own, against=out)
    assert report.empty
    assert any(f"{len(own)} rows" in note for note in report.notes)
    assert tfrecorder.append(own, out, **QUIET).rows_there == len(own)
    changed = own.copy()
    changed.loc[1, "label"] = "dog"
    assert tfrecorder.validate(changed, against=out)["code"].tolist() == ["other_values"]


# ------------------------------------------------------------------------------------- splits


def test_rows_without_splits_may_be_added_whatever_the_schema_says(out: str) -> None:
    drawn(".")
    schema = Schema(split=Split(), image_uri=Image(), label=Label())
    with pytest.raises(ValidationError, match=r"Split\(required=False\)") as caught:
        tfrecorder.convert(rows().drop(columns="split"), "new", schema=schema, **QUIET)
    assert "assigned" not in str(caught.value)
    tfrecorder.convert(rows()[:2], "new", schema=schema, **QUIET)
    result = tfrecorder.append(rows().drop(columns="split"), "new", **QUIET)
    assert result.records == len(NAMES) - 2
    assert any("splits: assigned to the 4" in note for note in result.notes)
    changes_nothing(tfrecorder.to_frame("new").drop(columns="split"), "new")
