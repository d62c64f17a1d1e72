"""`append`: what it adds, what it passes over, what it takes over, and what it refuses."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from helpers.growing_cases import QUIET, drawn, manifest, records_of, shards_of, table
from helpers.public_types import ConversionResult
from support import (
    SAMPLES,
    content_files,
    copied_as_tfds,
    error_of,
    invoke,
    labelled,
    rejects,
    run,
    start,
    stop,
    wait_for,
)

import tfrecorder
from tfrecorder import TfrecorderError, ValidationError
from tfrecorder.errors import DatasetError, OptionError, OutputError, RejectedError, SourceError


@pytest.fixture
def out() -> str:
    """Twelve photographs of one class, in "out"."""
    tfrecorder.convert(table(0, 12), "out", num_shards=2, **QUIET)
    return "out"


def add(rows: object, **options: object) -> ConversionResult:
    found = tfrecorder.append(rows, "out", **{**QUIET, **options})
    assert isinstance(found, ConversionResult)
    return found


def refusal(kind: type[TfrecorderError], rows: object, **options: object) -> str:
    with pytest.raises(kind) as caught:
        add(rows, **options)
    return str(caught.value)


def all_files(directory: str) -> dict[str, bytes]:
    paths = [path for path in Path(directory).rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


# ------------------------------------------------------------------------------ what is added


def test_an_append_is_a_generation_and_leaves_the_dataset_alone(out) -> None:
    before = all_files("out")
    result = add(table(12, 4, label="brick"))
    assert (result.generation, result.records, result.rows_there) == (1, 4, 0)
    assert "4 records added to out, which has 16 now (" in str(result)
    now = all_files("out")
    assert {name for name in before if now[name] != before[name]} == {"dataset_info.json"}
    assert now.keys() - before.keys() == {
        "train-00002.tfrecord",
        "_tfrecorder/index/train-00002.tfrecord.idx",
        "_tfrecorder/tables/train-00002.parquet",
        "_tfrecorder/commits/00001.json",
    }
    assert tfrecorder.info("out").records == 16
    assert tfrecorder.generations("out") == [1, 0]


def test_source_ids_go_on(out) -> None:
    add(table(0, 14))
    add(table(8, 10))
    found = [int(one["image/source_id"]) for one in records_of("out", 2)]
    assert sorted(found) == [14, 15, 16, 17]
    assert sorted(tfrecorder.to_frame("out").index) == list(range(18))


@pytest.mark.slow
def test_classes_are_only_added_with_the_next_integers(out) -> None:
    before = tfrecorder.info("out").class_names
    assert add(table(12, 2, label="aardvark")).class_names == (*before, "aardvark")
    assert add(table(14, 2, label="a")).class_names == (*before, "aardvark", "a")
    assert {one["image/class/label"] for one in records_of("out", 2)} == {len(before) + 1}
    assert add(table(16, 2, label=before[0])).class_names == (*before, "aardvark", "a")
    assert {one["image/class/label"] for one in records_of("out", 3)} == {0}


@pytest.mark.slow
def test_integer_classes_go_on() -> None:
    tfrecorder.convert(table(0, 4).assign(label=[0, 1, 2, 0]), "out", **QUIET)
    add(table(4, 2).assign(label=[1, 1]))
    assert tfrecorder.info("out").num_classes == 3
    add(table(6, 2).assign(label=[4, 1]))
    assert tfrecorder.info("out").num_classes == 5
    assert [label for _, label in tfrecorder.Records("out", "TRAIN", decode=False)][4:6] == [1, 1]


@pytest.mark.slow
def test_class_names_of_digits_alone_stay_names() -> None:
    tfrecorder.convert(table(0, 4).assign(label=["7", "x", "7", "x"]), "out", **QUIET)
    table(4, 2).assign(label="8").to_csv("more.csv", index=False)
    assert add("more.csv").class_names == ("7", "x", "8")


@pytest.mark.slow
def test_a_csv_a_folder_and_an_accessor_append_too(out) -> None:
    table(12, 2).to_csv("more.csv", index=False)
    assert add("more.csv").records == 2
    assert table(14, 2).tensorflow.to_tfrecord("out", append=True, **QUIET).generation == 2
    shutil.copytree(SAMPLES / "photos" / "gravel", "folder/TRAIN/gravel")
    assert add("folder").generation == 3
    with pytest.raises(OptionError, match="append='yes'"):
        table(16, 2).tensorflow.to_tfrecord("out", append="yes")


@pytest.mark.slow
def test_an_append_is_the_same_bytes_wherever_it_is_written(out) -> None:
    shutil.copytree("out", "other")
    add(table(12, 8))
    tfrecorder.append(table(12, 8), "other", num_workers=2, num_threads=3, **QUIET)
    ours, theirs = all_files("out"), all_files("other")
    assert {name for name in ours if ours[name] != theirs.get(name)} == set()


# ------------------------------------------------------------------------- what is there already


def test_rows_that_are_there_are_passed_over_and_counted(out) -> None:
    result = add(table(0, 15))
    assert (result.records, result.rows_there) == (3, 12)
    assert "skipped: 12 rows that are already there" in str(result)
    assert result.as_dict()["rows_there"] == 12


def test_the_same_table_again_writes_nothing(out) -> None:
    add(table(0, 15))
    before = all_files("out")
    result = add(table(0, 15))
    assert (result.was_finished, result.records, result.rows_there) == (True, 0, 15)
    words = "out: nothing to append, 15 rows are already there; the dataset has 15 records, 3 of "
    assert str(result).startswith(words)
    assert all_files("out") == before


def test_a_dry_run_says_what_the_append_then_does(out) -> None:
    before = all_files("out")
    trial = tfrecorder.append(table(0, 15), "out", dry_run=True, **QUIET)
    assert str(trial).startswith("dry run: 3 rows would be added to out; nothing was written")
    assert all_files("out") == before
    result = add(table(0, 15))
    assert "skipped: 12 rows that are already there" in str(trial)
    assert "skipped: 12 rows that are already there" in str(result)
    assert {name: (one.rows, one.shards) for name, one in trial.splits.items()} == {"TRAIN": (3, 1)}
    assert trial.class_names == result.class_names
    table(0, 15).to_csv("rows.csv", index=False)
    done = invoke("append", "rows.csv", "out", "--dry-run")
    assert "dry run: out: nothing to append, 15 rows are already there" in done.stdout


def test_a_dry_run_of_an_append_that_was_begun_says_what_is_left(out) -> None:
    tfrecorder.append(table(12, 4), "out", num_shards=2, stage_only=True, **QUIET)
    trial = tfrecorder.append(table(12, 4), "out", num_shards=2, dry_run=True, **QUIET)
    assert str(trial).startswith("dry run: the append in out would continue with 2 of 2 shards;")
    with pytest.raises(OutputError, match="undo"):
        tfrecorder.append(table(12, 5), "out", dry_run=True, **QUIET)


def _classes(result: ConversionResult) -> str:
    return str(result).partition("already there")[2]


def test_a_class_of_rows_that_are_there_is_no_class(out) -> None:
    rows = pd.concat([table(0, 3, label="other"), table(12, 1)])
    with pytest.warns(
        UserWarning, match="3 rows are skipped: their images are there with other values .*: row 0,"
    ):
        assert "other" not in add(rows).class_names


def test_duplicates_can_be_kept(out) -> None:
    assert add(table(0, 5), duplicates="keep").records == 5
    assert "'content'" in refusal(OptionError, table(0, 5), duplicates="drop")


@pytest.mark.slow
def test_known_rejects_are_passed_over_unless_they_are_to_be_tried_again(out) -> None:
    rows = table(12, 12).assign(
        image_uri=lambda one: one["image_uri"].where(one.index != 3, "late.jpg")
    )
    first = add(rows)
    assert (first.records, first.rejects) == (11, {"read/not_found": 1})
    assert rejects("out")["row"].tolist() == [15]
    words = "12 rows are already there, as records or rejects; the dataset has 23 records, 11 of "
    assert words in str(tfrecorder.append(rows, "out", dry_run=True, **QUIET))
    assert words in str(again := add(rows))
    assert (again.rows_there, again.rejects) == (12, {"read/not_found": 1})
    shutil.copyfile(rows["image_uri"][0], "late.jpg")
    assert add(rows).rows_there == 12
    result = add(rows, retry_rejects=True)
    assert (result.records, result.rows_there, result.generation) == (1, 11, 2)
    assert rejects("out").empty
    assert [one["image/source_id"] for one in records_of("out", 2)] == [b"15"]
    assert add(rows, retry_rejects=True).was_finished


@pytest.mark.slow
def test_a_row_that_is_tried_again_counts_once_in_the_statistics() -> None:
    rows = table(0, 12)
    rows.loc[3, "image_uri"] = "late.jpg"
    tfrecorder.convert(rows, "out", **QUIET)
    words = "The statistics include rows without a record."
    assert words in str(tfrecorder.info("out"))
    shutil.copyfile(rows["image_uri"][0], "late.jpg")
    add(pd.concat([rows, table(12, 2)], ignore_index=True), retry_rejects=True)
    found = tfrecorder.info("out")
    counted = sum(of["count"] for of in found.statistics["label"].values())
    assert counted == found.records == 14
    assert words not in str(found)


@pytest.mark.slow
def test_retry_rejects_of_the_first_conversion_adds_what_it_wins() -> None:
    rows = table(0, 12).assign(
        image_uri=lambda one: one["image_uri"].where(one.index != 3, "late.jpg")
    )
    tfrecorder.convert(rows, "out", **QUIET)
    add(table(12, 2))
    shutil.copyfile(rows["image_uri"][0], "late.jpg")
    shards = {shard: shard.read_bytes() for number in (0, 1) for shard in shards_of("out", number)}
    assert tfrecorder.convert(rows, "out", **QUIET).was_finished
    result = add(rows, retry_rejects=True)
    assert (result.records, result.generation) == (1, 2)
    assert [one["image/source_id"] for one in records_of("out", 2)] == [b"3"]
    assert {shard: shard.read_bytes() for shard in shards} == shards
    assert rejects("out").empty
    assert add(rows, retry_rejects=True).was_finished
    assert tfrecorder.info("out").records == 14


# --------------------------------------------------------------------------------- taken over


@pytest.mark.slow
def test_options_of_the_dataset_are_taken_over() -> None:
    tfrecorder.convert(
        table(0, 12), "out", image_size=(24, 32), image_format="png", seed=5, num_shards=4, **QUIET
    )
    add(table(12, 12))
    found = tfrecorder.info("out")
    assert found.image_shape == (24, 32, 3)
    assert found.formats == {"png": 24}
    options = manifest("out", 1)["options"]
    assert (options["seed"], options["num_shards"]) == (5, None)


@pytest.mark.slow
def test_other_sizes_are_allowed_and_the_shape_says_so() -> None:
    tfrecorder.convert(table(0, 12), "out", image_size=(24, 32), **QUIET)
    add(table(12, 2), image_size=(24, 40))
    assert tfrecorder.info("out").image_shape == (24, None, 3)
    assert tfrecorder.info("out", at=0).image_shape == (24, 32, 3)
    add(table(14, 2))
    assert tfrecorder.info("out").image_shape == (24, None, 3)


@pytest.mark.slow
def test_grey_images_make_the_channels_3(out) -> None:
    Path("grey").mkdir()
    rows = pd.DataFrame(
        {"split": "TRAIN", "image_uri": drawn("grey", 4, (20, 20), "L"), "label": "x"}
    )
    tfrecorder.convert(rows[:2], "small", **QUIET)
    assert tfrecorder.info("small").image_shape == (20, 20, 1)
    tfrecorder.append(rows[2:], "small", **QUIET)
    assert tfrecorder.info("small").image_shape == (20, 20, 1)
    tfrecorder.append(table(0, 2), "small", **QUIET)
    assert tfrecorder.info("small").image_shape == (None, None, 3)


@pytest.mark.slow
def test_raw_pixels_must_stay_of_one_size() -> None:
    tfrecorder.convert(table(0, 4), "out", image_format="raw", image_size=(8, 8), **QUIET)
    assert "image_size=(8, 8)" in refusal(OptionError, table(4, 2), image_size=(9, 9))
    assert "image_format='raw'" in refusal(OptionError, table(4, 2), image_format="jpeg")
    add(table(4, 2))
    assert len(list(tfrecorder.load("out", "TRAIN"))) == 6
    tfrecorder.convert(table(0, 4), "plain", image_size=(8, 8), **QUIET)
    with pytest.raises(OptionError, match="raw pixels"):
        tfrecorder.append(table(4, 2), "plain", image_format="raw", **QUIET)


@pytest.mark.slow
def test_given_class_names_may_only_be_continued() -> None:
    tfrecorder.convert(table(0, 4, label="b"), "out", schema=labelled("b", "a"), **QUIET)
    assert "is not among the given labels" in refusal(ValidationError, table(4, 2, label="c"))
    words = refusal(SourceError, table(4, 2, label="c"), schema=labelled("a", "b", "c"))
    assert "must begin with those of the dataset, in their order: ['b', 'a']" in words
    continued = labelled("b", "a", "c")
    assert add(table(4, 2, label="c"), schema=continued).class_names == ("b", "a", "c")
    assert add(table(6, 2, label="c")).class_names == ("b", "a", "c")


@pytest.mark.slow
def test_rows_keep_their_split_when_more_are_added() -> None:
    rows = table(0, 40).drop(columns="split")
    tfrecorder.convert(rows[:20], "out", splits={"TRAIN": 0.5, "TEST": 0.5}, seed=3, **QUIET)
    add(rows)
    tfrecorder.convert(rows, "whole", splits={"TRAIN": 0.5, "TEST": 0.5}, seed=3, **QUIET)
    parts, whole = (
        tfrecorder.to_frame(one).set_index("image_uri")["split"].to_dict()
        for one in ("out", "whole")
    )
    assert parts == whole


# ------------------------------------------------------------------------------------ refused


def test_a_schema_that_does_not_fit_is_refused_with_what_differs() -> None:
    columns = {
        "image_uri": tfrecorder.schema.Image(),
        "age": tfrecorder.schema.Number(dtype="int64"),
    }
    schema = tfrecorder.schema.Schema(columns)
    rows = table(0, 4)[["image_uri"]].assign(age=1)
    tfrecorder.convert(rows, "out", schema=schema, **QUIET)
    other = tfrecorder.schema.Schema({**columns, "age": tfrecorder.schema.Number()})
    words = refusal(SourceError, rows, schema=other, duplicates="keep")
    before = all_files("out")
    assert "column 'age' is number of float32 here, but number of int64 in the dataset" in words
    more = tfrecorder.schema.Schema({**columns, "name": tfrecorder.schema.Text()})
    words = refusal(SourceError, rows.assign(name="x"), schema=more, duplicates="keep")
    assert "column 'name', of kind text, is not in the dataset" in words
    fewer = tfrecorder.schema.Schema(image_uri=tfrecorder.schema.Image())
    words = refusal(SourceError, rows, schema=fewer, duplicates="keep")
    assert "there is no column 'age', but the dataset has one of kind number of int64" in words
    assert all_files("out") == before


@pytest.mark.slow
def test_labels_of_another_kind_are_refused(out) -> None:
    words = refusal(SourceError, table(12, 2).assign(label=[3, 4]))
    assert "the classes of 'label' are integers, but names in the dataset" in words
    words = refusal(SourceError, table(12, 2).drop(columns="label"))
    assert "there are no labels, but the dataset has" in words
    tfrecorder.convert(table(0, 4).drop(columns="label"), "bare", **QUIET)
    with pytest.raises(SourceError, match="'label' has labels, but the dataset has none"):
        tfrecorder.append(table(4, 2), "bare", **QUIET)
    tfrecorder.append(table(4, 2).drop(columns="label"), "bare", **QUIET)


def test_faults_of_the_table_name_its_own_rows(out) -> None:
    rows = table(8, 8)
    rows.loc[6, "label"] = ""
    before = all_files("out")
    with pytest.raises(ValidationError) as caught:
        add(rows)
    assert caught.value.report["row"].tolist() == [6]
    assert all_files("out") == before


def test_an_empty_table_is_refused(out) -> None:
    assert "the table has no rows" in refusal(ValidationError, table(0, 0))


def test_what_is_no_dataset_is_refused(out, dataset) -> None:
    with pytest.raises(DatasetError, match="there is no such directory"):
        tfrecorder.append(table(0, 2), "nowhere", **QUIET)
    assert not Path("nowhere").exists()
    copied_as_tfds(dataset, "theirs")
    with pytest.raises(DatasetError, match="was not written by tfrecorder"):
        tfrecorder.append(table(0, 2), "theirs", **QUIET)
    assert "overwrite=True: an append keeps what is there" in refusal(
        OptionError, table(12, 2), overwrite=True
    )


@pytest.mark.parametrize("name", ["mine.txt", "train-00002.tfrecord"])
def test_foreign_files_are_refused(out, name) -> None:
    mine = Path("out", name)
    mine.write_text("mine")
    words = f"out holds '{name}', which does not belong to a dataset"
    assert words in refusal(OutputError, table(12, 2))
    assert words in error_of(OutputError, table(0, 6), overwrite=True, **QUIET)
    assert mine.read_text() == "mine"
    assert tfrecorder.info("out").records == 12


@pytest.mark.parametrize("name", ["waiting", "tables", "commits"])
def test_nothing_is_written_through_a_link(out, name) -> None:
    Path("elsewhere").mkdir()
    folder = Path("out/_tfrecorder", name)
    if folder.exists():
        folder.rename("moved")
    folder.symlink_to(Path("elsewhere").absolute())
    with pytest.raises(TfrecorderError, match="is a link" if name != "commits" else "is missing"):
        add(table(12, 2))
    assert list(Path("elsewhere").iterdir()) == []


# ---------------------------------------------------------------------------- begun and interrupted


@pytest.mark.slow
def test_an_append_that_fails_goes_on_by_the_same_call(out) -> None:
    rows = table(12, 16).assign(
        image_uri=lambda one: one["image_uri"].where(one.index != 3, "late.jpg")
    )
    words = refusal(RejectedError, rows, max_reject_fraction=0.0, num_shards=4)
    assert "Nothing was committed" in words
    assert tfrecorder.info("out").records == 12
    status = tfrecorder.status("out")
    assert (status.committed, status.appends, status.shards_done) == (False, 1, 4)
    assert "the same append, run again, continues it" in str(status)
    words = refusal(OutputError, table(12, 9), num_shards=4)
    assert "holds an unfinished append: run the same append again to complete it" in words
    assert "or `undo` abandons it" in words
    shutil.copyfile(rows["image_uri"][0], "late.jpg")
    result = add(rows, max_reject_fraction=0.0, num_shards=4)
    assert (result.records, result.shards_before, result.generation) == (16, 3, 1)
    assert tfrecorder.verify("out", progress=False).ok


@pytest.mark.slow
def test_leftovers_of_an_append_before_its_plan_are_nothing(out) -> None:
    half = Path("out/_tfrecorder/plan.parquet")
    half.write_bytes(b"half")
    assert tfrecorder.info("out").records == 12
    assert tfrecorder.status("out").committed
    assert add(table(12, 2)).generation == 1
    assert not half.exists()


@pytest.mark.slow
def test_two_at_once_are_one_after_the_other(out) -> None:
    code = "import sys, tfrecorder; tfrecorder.append(sys.stdin, 'out', progress=False)"
    first, second = (start(code, stdin=subprocess.PIPE) for _ in range(2))
    wait_for(_is_held)  # by the one that reads its table now
    words = refusal(OutputError, table(20, 2))
    assert "another conversion is writing this directory" in words
    assert "\n" not in words
    wait_for(lambda: _one_ended(first, second))
    loser, winner = (first, second) if first.poll() is not None else (second, first)
    assert "another conversion is writing" in loser.communicate(timeout=60)[1]
    _, said = winner.communicate(table(12, 4).to_csv(index=False), timeout=60)
    assert winner.returncode == 0, said
    assert add(table(20, 2)).generation == 2
    assert tfrecorder.info("out").records == 18


def _one_ended(*processes: subprocess.Popen[str]) -> bool:
    return any(one.poll() is not None for one in processes)


def _is_held() -> bool:
    with open("out/_tfrecorder/lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.slow
def test_the_claim_dies_with_its_holder(out) -> None:
    code = "import sys, tfrecorder; tfrecorder.append(sys.stdin, 'out', progress=False)"
    process = start(code, stdin=subprocess.PIPE)
    wait_for(_is_held)
    stop(process)
    assert add(table(12, 4)).generation == 1


def test_a_reader_that_is_open_keeps_what_it_opened(out) -> None:
    opened = tfrecorder.Records("out", "TRAIN", decode=False)
    add(table(12, 4))
    assert len(opened) == len(list(opened)) == 12
    assert len(tfrecorder.Records("out", "TRAIN", decode=False)) == 16


# ------------------------------------------------------------------------------------- overwrite


@pytest.mark.slow
def test_overwrite_replaces_all_generations(out) -> None:
    add(table(12, 4))
    add(table(16, 4))
    tfrecorder.convert(table(0, 6), "out", overwrite="all", num_shards=3, **QUIET)
    assert tfrecorder.info("out").records == 6
    assert tfrecorder.generations("out") == [3]
    tfrecorder.convert(table(0, 6), "fresh", num_shards=3, **QUIET)
    assert content_files("out") == content_files("fresh")
    with pytest.raises(DatasetError, match=r"`at=1`: .* has only generation 3"):
        tfrecorder.info("out", at=1)


@pytest.mark.slow
def test_an_overwrite_that_fails_leaves_all_generations(out) -> None:
    add(table(12, 4))
    before = all_files("out")
    broken = table(0, 6).assign(image_uri="nowhere.jpg")
    with pytest.raises(TfrecorderError):
        tfrecorder.convert(broken, "out", overwrite="all", **QUIET)
    missing = table(0, 60).assign(
        image_uri=lambda one: one["image_uri"].where(one.index > 9, "gone.jpg")
    )
    error_of(RejectedError, missing, overwrite="all", progress=False)
    now = all_files("out")
    assert {name: now[name] for name in before} == before
    assert tfrecorder.info("out").records == 16


def test_convert_of_another_table_mentions_append(out) -> None:
    words = error_of(OutputError, table(0, 13), **QUIET)
    assert "`append` adds rows that are new" in words


def test_the_same_conversion_is_finished_still(out) -> None:
    add(table(12, 4))
    assert tfrecorder.convert(table(0, 12), "out", num_shards=2, **QUIET).was_finished


# -------------------------------------------------------------------------------------- the shell


@pytest.mark.slow
def test_the_shell_appends(out) -> None:
    table(8, 8).to_csv("more.csv", index=False)
    shell = run("-m", "tfrecorder", "append", "more.csv", "out", "--json")
    assert shell.returncode == 0, shell.stderr
    found = json.loads(shell.stdout)
    assert (found["records"], found["rows_there"], found["generation"]) == (4, 4, 1)
    again = run("-m", "tfrecorder", "append", "more.csv", "out")
    assert "out: nothing to append, 8 rows are already there" in again.stdout
    kept = run(
        "-m",
        "tfrecorder",
        "append",
        "more.csv",
        "out",
        "--duplicates",
        "keep",
        "--seed",
        "5",
        "--image-size",
        "16x16",
    )
    assert "8 records added to out, which has" in kept.stdout
    info = run("-m", "tfrecorder", "info", "out", "--at", "1", "--json")
    assert json.loads(info.stdout)["records"] == 16
    wrong = run("-m", "tfrecorder", "append", "more.csv", "out", "--retry-rejects", "--labels", "x")
    assert wrong.returncode == 2
