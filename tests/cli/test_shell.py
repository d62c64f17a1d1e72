"""The command line among other programs: pipes, JSON, quiet, a dry run, colours, exit codes."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import warnings
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from helpers.terminal_cases import in_terminal
from helpers.wall_cases import COMMAND, TENSORFLOW, attempts_of
from support import (
    CSV,
    PHOTOS,
    SAMPLES,
    commands,
    filenames,
    invoke,
    photo_frame,
    public_files,
    run,
)

import tfrecorder

#: A class of two names in which an encoding shows.
CAFE = f"image_uri;label\n{PHOTOS[0]};café\n{PHOTOS[1]};thé\n"


def texts(output_dir: str = "out") -> set[str]:
    return set(tfrecorder.info(output_dir).class_names or ())


# ---------------------------------------------------------------------------------------------
# Tables that come through a pipe, or are written in another way.


@pytest.mark.slow
def test_a_pipe_gives_the_dataset_that_the_file_gives(dataset: Path) -> None:
    shards = "TRAIN=3,VALIDATION=2,TEST=1"
    words = ("convert", "-", "out", "--num-shards", shards, "--base", SAMPLES)
    ended = run("-m", "tfrecorder", *words, input=CSV.read_text())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert public_files("out") == public_files(dataset)


def test_relative_uris_of_a_pipe_are_taken_from_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(SAMPLES)
    assert invoke("convert", "-", tmp_path / "out", piped=CSV.read_bytes()).exit_code == 0
    assert sorted(filenames(tmp_path / "out")) == sorted(pd.read_csv(CSV)["image_uri"])


def test_the_faults_of_a_pipe_are_named(tmp_path: Path) -> None:
    ended = invoke("convert", "-", "out", piped=b"image_uri,label\na.jpg,x\nb.jpg,\n")
    assert (ended.exit_code, "line 3: the label is missing" in ended.stderr) == (1, True)
    ended = invoke("validate", "-", piped=b"image_uri,label\na.jpg,caf\xe9\n")
    assert ended.stderr.startswith("error: standard input: line 2 is not UTF-8; ")
    ended = invoke("validate", "-", piped=b"")
    assert ended.stderr == "error: standard input: the file is empty.\n"


def test_lines_of_a_pipe_are_counted_as_those_of_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = b'image_uri,label\n"a\n.jpg",x\n\nb.jpg,\nb.jpg,\n'
    Path("a.csv").write_bytes(text)
    Path("spool").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    for words in (("--warnings", "error"), ("--sep", ",", "--encoding", "cp1252")):
        of_file = invoke("validate", "a.csv", *words).stdout
        assert "line 5: the label is missing" in of_file
        assert invoke("validate", "-", *words, piped=text).stdout == of_file.replace("a.csv:", "-:")
    assert list(Path("spool").iterdir()) == []


@pytest.mark.slow
def test_an_open_file_is_a_source_in_python_too() -> None:
    with open(CSV, "rb") as file:
        tfrecorder.convert(file, "bytes", base=SAMPLES)
    tfrecorder.convert(io.StringIO(CSV.read_text()), "text", base=str(SAMPLES))
    assert public_files("bytes") == public_files("text")
    assert len(filenames("text")) == 52


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8", "UTF8"])
@pytest.mark.parametrize("header", [True, False])
def test_separator_and_encoding_are_read_as_they_are_said(encoding: str, header: bool) -> None:
    text = CAFE if header else CAFE.partition("\n")[2]
    Path("a.csv").write_bytes(text.encode(encoding))
    words = ("a.csv", "--sep", ";", "--encoding", encoding)
    assert invoke("convert", words[0], "out", *words[1:]).exit_code == 0
    assert texts() == {"café", "thé"}
    ended = invoke("validate", *words)
    assert (ended.exit_code, "label 'café' has 1 image," in ended.stdout) == (0, True)


def test_a_mark_at_the_start_of_utf_8_is_no_part_of_the_first_name() -> None:
    Path("a.csv").write_bytes(b"\xef\xbb\xbf" + CAFE.encode())
    assert invoke("convert", "a.csv", "out", "--sep", ";", "--encoding", "utf-8").exit_code == 0
    assert texts() == {"café", "thé"}


@pytest.mark.parametrize("packed", [False, True])
def test_a_mark_at_the_start_of_utf_16_says_the_encoding(packed: bool) -> None:
    """As spreadsheets write it that save "Unicode text"."""
    text = CAFE.replace(";", "\t").encode("utf-16")
    Path("a.csv").write_bytes(gzip.compress(text) if packed else text)
    assert invoke("convert", "a.csv", "out", "--sep", "\t").exit_code == 0
    assert texts() == {"café", "thé"}
    assert tfrecorder.verify("out", sources=True).ok


def test_tabs_may_be_typed(tmp_path: Path) -> None:
    Path("a.csv").write_text(CAFE.replace(";", "\t"))
    found = invoke("validate", "a.csv")
    assert r"read it with --sep '\t', or save it with commas" in found.stderr
    assert invoke("validate", "a.csv", "--sep", r"\t").exit_code == 0
    schema = invoke("schema", "a.csv", "--sep", "\t").stdout
    assert schema.startswith("image_uri:")
    assert invoke("schema", "-", "--sep", "\t", piped=Path("a.csv").read_bytes()).stdout == schema


def test_a_workbook_is_named_as_one() -> None:
    with zipfile.ZipFile("book.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/workbook.xml", "<workbook/>" * 99)
    found = invoke("validate", "book.xlsx")
    assert found.stderr.startswith("error: book.xlsx: it is a workbook, not a CSV; save its sheet")
    assert "`pandas.read_excel('book.xlsx')`" in found.stderr
    with zipfile.ZipFile("images.zip", "w", zipfile.ZIP_DEFLATED) as images:
        images.writestr("cat/a.jpg", PHOTOS[0].read_bytes())
    words = "it is a ZIP archive; unpack it, and give the folder, or its table."
    assert invoke("validate", "images.zip").stderr == f"error: images.zip: {words}\n"


def test_a_message_speaks_of_commands_and_conditions_not_of_python() -> None:
    photo_frame(3).rename(columns={"image_uri": "path"}).to_csv("a.csv", index=False)
    assert "(`tfrecorder schema` suggests one)" in invoke("validate", "a.csv").stdout
    rows = photo_frame(3).assign(label=["a", "a", "b"], split=["TRAIN", "TEST", "TRAIN"])
    tfrecorder.convert(rows, "out")
    assert "conversion with --stratify gives" in invoke("preview", "out").stdout
    refused = invoke("remove", "out", "lable=a").stderr
    assert refused == "error: CONDITION: there is no column 'lable'; did you mean 'label'?\n"
    Path("folder").mkdir()
    Path("folder/note.txt").write_text("")
    assert "Give the output directory of a conversion," in invoke("inspect", "folder").stderr
    listed = invoke("export", "out", "given").stderr
    assert "'--to'. Choose from: coco, csv, folder, webdataset, yolo. See" in listed
    assert "Missing argument 'SOURCE'. See" in invoke("convert").stderr


def test_another_encoding_is_suggested_and_then_wrong_ones_are_said() -> None:
    Path("a.csv").write_bytes(CAFE.replace(";", ",").encode("cp1252"))
    assert "in its own encoding, as with --encoding cp1252," in invoke("validate", "a.csv").stderr
    found = invoke("validate", "a.csv", "--encoding", "utf-16")
    assert (found.exit_code, "cannot be read with --encoding utf-16;" in found.stderr) == (1, True)


def test_what_is_no_csv_has_no_separator() -> None:
    found = invoke("convert", str(SAMPLES / "photos"), "out", "--sep", ";")
    words = "--sep is for a CSV file; leave it out: a folder has none"
    assert (found.exit_code, words in found.stderr) == (1, True)


# ---------------------------------------------------------------------------------------------
# Output for programs, and none.


@pytest.mark.slow
def test_convert_prints_its_result_as_json() -> None:
    ended = run("-m", "tfrecorder", "convert", CSV, "out", "--json")
    found = json.loads(ended.stdout)
    assert ended.stderr == ""
    assert (found["output_dir"], found["rows"], found["records"]) == ("out", 52, 52)
    assert found["splits"]["TRAIN"]["records"] == 36
    assert found["class_names"] == ["brick", "cat", "coffee", "gravel"]
    assert found["rejects"] == {}


def test_validate_prints_all_problems_as_json() -> None:
    rows = "".join(f"{number}.jpg,\n" for number in range(50))
    Path("a.csv").write_text("image_uri,label,price\nx.jpg,x,1\n" + rows)
    ended = invoke("validate", "a.csv", "--json")
    found = json.loads(ended.stdout)
    assert (ended.exit_code, found["ok"], found["source"]) == (1, False, "a.csv")
    assert [one["row"] for one in found["problems"] if one["code"] == "null_label"] == [
        *range(1, 51)
    ]
    assert {one["row"] for one in found["problems"] if one["code"] == "column_left_out"} == {None}
    report = tfrecorder.validate("a.csv")
    assert [one["message"] for one in found["problems"]] == report["message"].tolist()
    assert json.loads(invoke("validate", CSV, "--json").stdout)["problems"] == []


def test_verify_prints_all_faults_as_json(tmp_path: Path) -> None:
    tfrecorder.convert(CSV, "out", num_shards=1)
    assert json.loads(invoke("verify", "out", "--json").stdout)["ok"] is True
    Path("out/train-00000.tfrecord").unlink()
    ended = invoke("verify", "out", "--json")
    found = json.loads(ended.stdout)
    assert (ended.exit_code, found["ok"], found["files"] > 3) == (1, False, True)
    assert [(one["file"], one["code"]) for one in found["faults"]] == [
        ("train-00000.tfrecord", "missing")
    ]


@pytest.mark.parametrize("command", ["validate", "verify"])
def test_two_forms_at_once_are_refused(command: str) -> None:
    ended = invoke(command, CSV, "--json", "--csv")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "--json and --csv cannot be combined" in ended.stderr


@pytest.mark.slow
def test_quiet_prints_errors_alone() -> None:
    odd = photo_frame(4)
    odd["label"] = [" odd ", "b", "c", "d"]  # whose escape is warned of
    odd.to_csv("a.csv", index=False)
    loud = in_terminal("-m", "tfrecorder", "convert", "a.csv", "loud")
    assert "images/s]" in loud
    assert "warning" in loud
    assert in_terminal("-m", "tfrecorder", "convert", "a.csv", "out", "--quiet") == ""
    for words in (
        ("validate", "a.csv"),
        ("verify", "out"),
        ("repair", "out"),
        ("preview", "out", "--html", "page.html"),
    ):
        ended = invoke(*words, "--quiet")
        assert (ended.exit_code, ended.output) == (0, ""), words
    assert invoke("verify", "nowhere", "-q").stderr.startswith("error: nowhere: ")
    assert json.loads(invoke("verify", "out", "-q", "--json").stdout)["ok"] is True


def test_quiet_prints_the_errors_that_a_check_finds() -> None:
    Path("a.csv").write_text(f"image_uri,label,price\n{PHOTOS[0]},x,1\n{PHOTOS[1]},,2\n")
    ended = invoke("validate", "a.csv", "-q")
    assert (ended.exit_code, ended.stderr) == (1, "")
    assert ended.stdout.startswith("a.csv: 1 error in 2 rows\nerror: null_label (1)\n")
    assert "warning" not in ended.stdout
    tfrecorder.convert(CSV, "out", num_shards=1)
    Path("out/train-00000.tfrecord").unlink()
    ended = invoke("verify", "out", "-q")
    assert (ended.exit_code, ended.stderr) == (1, "")
    assert "train-00000.tfrecord: 1 fault" in ended.stdout


# ---------------------------------------------------------------------------------------------
# A dry run.


def below(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_dry_run_says_what_the_conversion_then_does(tmp_path: Path) -> None:
    frame = photo_frame(300).assign(split=["TRAIN"] * 280 + ["TEST"] * 20, price=1)
    frame.to_csv("a.csv", index=False)
    before = below(tmp_path)
    ended = run("-m", "tfrecorder", "convert", "a.csv", "out", "--dry-run", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    planned = json.loads(ended.stdout)
    assert below(tmp_path) == before
    assert not Path("out").exists()
    assert {one["code"] for one in planned["problems"]} >= {"duplicate_row", "column_left_out"}
    made = json.loads(run("-m", "tfrecorder", "convert", "a.csv", "out", "--json").stdout)
    assert planned["class_names"] == made["class_names"]
    assert planned["warnings"] == made["warnings"]
    assert planned["warnings"].keys() == {"leakage", "duplicate_row", "column_left_out"}
    for name, split in made["splits"].items():
        one = planned["splits"][name]
        assert (one["rows"], one["shards"]) == (split["records"], split["shards"])
        assert one["bytes"] == pytest.approx(split["bytes"], rel=0.2)


def test_a_dry_run_for_people_has_all_of_it_too() -> None:
    photo_frame(60).assign(price=1).to_csv("a.csv", index=False)
    shown = invoke("convert", "a.csv", "out", "--dry-run").stdout
    assert shown.startswith("dry run: 60 rows would go to out; nothing was written\n")
    assert re.search(r"TRAIN +60 +8 +about \d+\.\d KiB", shown)
    assert "classes: 4: 'brick', 'cat', 'coffee', 'gravel'" in shown
    assert "warning: duplicate_row" in shown
    resized = invoke("convert", "a.csv", "out", "--dry-run", "--image-size", "32").stdout
    assert re.search(r"TRAIN +60 +\d +unknown", resized)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("missing.csv", "out"), 1, "there is no such file or folder"),
        (("bad.csv", "out"), 1, "the label is missing"),
        (("gone.csv", "out"), 1, "cannot be read"),
        (("good.csv", "foreign"), 1, "which does not belong to a dataset that tfrecorder wrote"),
        (("good.csv", "done", "--num-shards", "3"), 1, "--num-shards was not given and now is 3"),
        (("good.csv", "out", "--num-shards", "0"), 2, "--num-shards 0: "),
        (("good.csv", "out", "--runner", "Flink"), 2, "there is no such runner"),
    ],
    ids=str,
)
def test_a_dry_run_fails_where_the_conversion_would(
    words: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    photo_frame(8).to_csv("good.csv", index=False)
    Path("bad.csv").write_text("image_uri,label\na.jpg,x\nb.jpg,\n")
    Path("gone.csv").write_text("image_uri,label\na.jpg,x\nb.jpg,y\n")
    Path("foreign").mkdir()
    Path("foreign/thesis.txt").write_text("mine")
    tfrecorder.convert("good.csv", "done")
    before = below(tmp_path)
    dry = invoke("convert", *words, "--dry-run")
    assert below(tmp_path) == before
    assert (dry.exit_code, message in dry.stderr) == (code, True)
    true = invoke("convert", *words)
    assert true.exit_code == dry.exit_code
    assert true.stderr.endswith(dry.stderr)  # it may warn before


def test_a_dry_run_over_a_finished_dataset_says_so(dataset: Path) -> None:
    shards = "TRAIN=3,VALIDATION=2,TEST=1"
    shown = invoke("convert", CSV, dataset, "--num-shards", shards, "--dry-run").stdout
    assert shown.startswith(f"dry run: {dataset} is finished; nothing would be written")


def test_a_dry_run_over_what_was_begun_says_what_is_left(tmp_path: Path) -> None:
    tfrecorder.parts.stage(CSV, "out", num_shards=2)
    for part in range(1, 6):
        tfrecorder.parts.work("out", part=(part, 6))
    before = below(tmp_path)
    shown = invoke("convert", CSV, "out", "--num-shards", "2", "--dry-run").stdout
    assert "the conversion in out would continue with 1 of 6 shards; nothing was written" in shown
    assert below(tmp_path) == before


# ---------------------------------------------------------------------------------------------
# Colours, exit codes, help, and what TensorFlow writes when it starts.


@pytest.mark.slow
def test_errors_and_warnings_are_coloured_in_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("a.csv").write_text(f"image_uri,label,price\n{PHOTOS[0]},x,1\n{PHOTOS[1]},,2\n")
    red, yellow = "\x1b[31m\x1b[1merror:\x1b[0m ", "\x1b[33m\x1b[1mwarning:\x1b[0m "
    words = ("-m", "tfrecorder", "validate", "a.csv")
    assert red + "null_label" in in_terminal(*words)
    assert yellow + "column_left_out" in in_terminal(*words)
    assert in_terminal("-m", "tfrecorder", "validate", "nowhere").startswith(red)
    assert "\x1b" not in run(*words).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in in_terminal(*words)
    assert "\x1b" not in in_terminal("-m", "tfrecorder", "validate", "nowhere")


def test_a_command_in_a_program_leaves_its_warnings_alone() -> None:
    before = warnings.showwarning
    assert invoke("validate", CSV).exit_code == 0
    assert invoke("info", "nowhere").exit_code == 1
    assert warnings.showwarning is before


@pytest.mark.parametrize(
    "words",
    [
        ("--nope",),
        ("validate", CSV, "--encoding", "klingon"),
        ("validate", CSV, "--sep", ";;"),
        ("validate", CSV, "--base", "nowhere"),
        ("validate", SAMPLES / "photos", "--base", "."),
        ("validate", CSV, "--column", "price=label"),
        ("validate", CSV, "--max-pixels", "0"),
        ("validate", CSV, "--schema", "nowhere.yaml"),
        ("inspect", "out", "--split", "TRIAN"),
        ("inspect", "out", "--num-records", "0"),
        ("preview", "out", "--html", "page.html", "--per-split", "-1"),
        ("benchmark", "out", "--split", "TRIAN"),
        ("benchmark", "out", "--batch-size", "0"),
        ("benchmark", "out", "--image-size", "0"),
        ("benchmark", "out", "--seconds", "0"),
    ],
    ids=str,
)
def test_every_wrong_option_is_exit_code_2_and_one_line(
    dataset: Path, words: tuple[object, ...]
) -> None:
    ended = invoke(*(dataset if word == "out" else word for word in words))
    assert ended.exit_code == 2
    assert re.fullmatch("error: .+\n", ended.stderr)
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--splits", "TRAIN=0.7,TEST=0.4"), "--splits TRAIN=0.7,TEST=0.4: the shares sum to 1.1;"),
        (("--splits", "TRAIN=70,TEST=30"), "--splits TRAIN=70,TEST=30: the shares must sum to 1: "),
        (("--shard-size", "big"), "--shard-size big: give bytes"),
        (("--max-reject-fraction", "3"), "--max-reject-fraction 3.0: give a number"),
        (
            ("--image-size", "0"),
            "--image-size 0: give height and width in pixels, such as --image-size 192x256, or "
            "one number for both.",
        ),
        (("--image-format", "raw"), "give it, such as --image-size 128x128, and"),
        (("--column", "price=label"), "--column price=label: the source has no column 'price'"),
        (("--column", "a=label", "--schema", "{schema}"), "--column a=label: a schema names"),
        (("--shards", "3"), "No such option '--shards'. Did you mean --num-shards?"),
        (("--runner-option", "nonsense=1"), "--runner-option nonsense=1: "),
    ],
    ids=str,
)
def test_errors_spell_options_as_the_shell_does(words: tuple[str, ...], said: str) -> None:
    Path("schema.yaml").write_text("image_uri: image\n")
    ended = invoke("convert", CSV, "out", *(word.format(schema="schema.yaml") for word in words))
    assert ended.exit_code == 2
    assert re.fullmatch("error: .+\n", ended.stderr)
    assert said in ended.stderr
    assert not re.search(r"\b[a-z]+_[a-z]+=", ended.stderr)


def test_an_option_of_the_program_itself_has_its_hint_too() -> None:
    ended = invoke("--versio")
    assert ended.exit_code == 2
    assert "No such option '--versio'. Did you mean --version?" in ended.stderr


def test_a_list_in_an_error_is_one_line() -> None:
    Path("a.csv").write_text("image_uri,label\n/a.jpg,x\n/b.jpg,x\n")
    ended = invoke("convert", "a.csv", "out", "--max-reject-fraction", "0.2")
    assert re.fullmatch("error: .+\n", ended.stderr)
    words = "cannot be read: /a.jpg: No such file or directory; /b.jpg: No such file or directory. "
    assert words + "Nothing was written." in ended.stderr


def test_names_in_data_are_left_as_they_are() -> None:
    Path("seed=3").mkdir()
    Path("seed=3/num_shards.csv").write_text("image_uri,label\nimage_size=2/a.jpg,\n")
    shown = invoke("validate", "seed=3/num_shards.csv").stdout
    assert shown.startswith("seed=3/num_shards.csv: 1 error")
    Path("a.csv").write_text(
        "image_uri,label,num_shards\n/x/seed=3/a.jpg,x,1\n/x/seed=3/a.jpg,y,1\n"
    )
    shown = invoke("validate", "a.csv").stdout
    assert "'/x/seed=3/a.jpg' has the label" in shown
    assert "column 'num_shards' is left out" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "'benchmark', 'nowhere'",
        "'benchmark', {out!r}, '--split', 'TRIAN'",
        "'benchmark', {out!r}, '--batch-size', '0'",
        "'verify', 'nowhere', '--decode'",
    ],
)
def test_paths_and_options_are_checked_before_tensorflow_is_imported(
    dataset: Path, arguments: str
) -> None:
    code = COMMAND.format(arguments.format(out=str(dataset)))
    code = f"try:\n    exec({code!r})\nexcept SystemExit as end:\n    assert end.code in (1, 2)"
    assert attempts_of(code, TENSORFLOW) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("-m", "tfrecorder", "benchmark", "out", "--seconds", "0.1", "--image-size", "16"),
        ("-m", "tfrecorder", "verify", "out", "--decode"),
    ],
    ids=["benchmark", "verify"],
)
def test_what_tensorflow_writes_when_it_starts_is_not_shown(words: tuple[object, ...]) -> None:
    tfrecorder.convert(CSV, "out", num_shards=1, image_size=16)
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    ended = run(*words, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")


#: What a TensorFlow is to us that writes of its start, and then cannot be imported.
BROKEN = """
import os
os.write(2, b"All log messages go to stderr\\n")
raise ImportError("tensorflow")
"""


@pytest.mark.slow
def test_an_import_that_fails_is_shown_with_its_lines(dataset: Path) -> None:
    Path("tensorflow").mkdir()
    Path("tensorflow/__init__.py").write_text(BROKEN)
    path = os.pathsep.join([str(Path.cwd()), *sys.path])
    own = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    verify = ("-m", "tfrecorder", "verify", dataset, "--decode")
    words = run(*verify, env={**own, "PYTHONPATH": path}).stderr
    assert "All log messages" in words  # the lines that are kept away where all goes well
    assert words.endswith("ImportError: tensorflow\n")


def test_help_has_whole_summaries() -> None:
    words = " ".join(invoke("--help").stdout.split())
    for command in commands().values():
        assert command.get_short_help_str(1000) in words
