"""The command line as a person meets it: real processes, their words and exit codes."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pandas as pd
import pytest
from helpers.public_types import ConvertOptions
from helpers.terminal_cases import in_terminal
from support import (
    CSV,
    PHOTOS,
    done_shards,
    filenames,
    invoke,
    photo_frame,
    public_files,
    run,
    wait_for,
)

import tfrecorder


def test_convert_writes_a_dataset_and_prints_what_it_made(dataset: Path) -> None:
    shards = "TRAIN=3,VALIDATION=2,TEST=1"
    ended = run("-m", "tfrecorder", "convert", CSV, "out", "--num-shards", shards)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert re.fullmatch(
        r"52 records in out \([\d.]+ s, \d+ images/s\)", ended.stdout.split("\n")[0]
    )
    assert "TRAIN            36        0       3" in ended.stdout
    assert "classes: 4: 'brick', 'cat', 'coffee', 'gravel'" in ended.stdout
    assert public_files("out") == public_files(dataset)


_ON_DATAFLOW = ("--runner", "DataflowRunner")


@pytest.mark.parametrize(
    ("arguments", "option", "value"),
    [
        (["--column", "kind=label", "--column", "path=image_uri"], "columns", None),
        (["--sep", ";"], "sep", ";"),
        (["--sep", r"\t"], "sep", "\t"),
        (["--encoding", "cp1252"], "encoding", "cp1252"),
        (["--base", "/there"], "base", "/there"),
        (["--num-shards", "3"], "num_shards", 3),
        (["--num-shards", "TRAIN=3,TEST=2"], "num_shards", {"TRAIN": 3, "TEST": 2}),
        (["--shard-size", "5MB"], "shard_size", "5MB"),
        (["--no-shuffle"], "shuffle", False),
        (["--seed", "9"], "seed", 9),
        (["--check", "strict"], "check", "strict"),
        (["--max-pixels", "1000"], "max_pixels", 1000),
        (["--max-reject-fraction", "0.5"], "max_reject_fraction", 0.5),
        (["--overwrite"], "overwrite", True),
        (["--overwrite-all"], "overwrite", "all"),
        (["--runner", "directrunner"], "runner", "DirectRunner"),
        (["--runner-option", "no-auth"], "runner_options", {"no_auth": True}),
        (
            ["--runner-option", "a=1=2", "--runner-option", "b=x", "--runner-option", "b=y"],
            "runner_options",
            {"a": "1=2", "b": ["x", "y"]},
        ),
        (["--wait", *_ON_DATAFLOW], "wait", True),
        (["--project", "p", *_ON_DATAFLOW], "project", "p"),
        (["--region", "r", *_ON_DATAFLOW], "region", "r"),
        (["--num-workers", "2"], "num_workers", 2),
        (["--num-threads", "3"], "num_threads", 3),
        (["--progress"], "progress", True),
        (["--no-progress"], "progress", False),
    ],
    ids=str,
)
def test_every_option_of_a_conversion_is_one_of_the_command(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], option: str, value: object
) -> None:
    given: dict[str, ConvertOptions] = {}

    def take(source: str, output_dir: str, dry_run: bool, **options: object) -> str:
        given["options"] = ConvertOptions.of(options)
        return ""

    monkeypatch.setattr(sys.modules[tfrecorder.convert.__module__], "convert", take)
    assert invoke("convert", "x.csv", "out", *arguments).exit_code == 0
    expected = {"kind": "label", "path": "image_uri"} if option == "columns" else value
    runner = {"runner": "DataflowRunner"} if "DataflowRunner" in arguments else {}
    changed = dataclasses.replace(ConvertOptions(), **runner, **{option: expected})
    assert given["options"] == changed


def test_help_has_every_option_with_its_words() -> None:
    words = " ".join(invoke("convert", "--help").output.split())
    for item in dataclasses.fields(ConvertOptions):
        singular = {"columns": "column", "runner_options": "runner_option"}
        name = singular.get(item.name, item.name)
        assert f"--{name.replace('_', '-')}" in words
        if name == item.name:
            told = item.metadata["help"].split(".")[0]
            assert told in words


def test_help_of_append_has_its_own_options_and_names_those_of_convert() -> None:
    words = " ".join(invoke("append", "--help").output.split())
    assert "--duplicates" in words
    assert "Rows whose images are already in the dataset" in words
    assert "all else that decides what the records contain stay" in words
    except_for = "except --name, --overwrite, --overwrite-all."
    assert f"And the options of `tfrecorder convert`, {except_for}" in words
    assert "--max-pixels" not in words
    assert "[default: 0]" not in words
    few = " ".join(invoke("compact", "--help").output.split())
    assert "And these options of `tfrecorder convert`: --num-shards, --shard-size," in few


def test_columns_do_what_they_say() -> None:
    photo_frame(6).rename(columns={"image_uri": "path"}).to_csv("a.csv", index=False)
    assert invoke("convert", "a.csv", "out", "--column", "path=image_uri").exit_code == 0
    assert len(filenames("out")) == 6


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["convrt"], 2, "No such command 'convrt'. Did you mean 'convert'?"),
        (["convert"], 2, "Missing argument 'SOURCE'. See "),
        (["convert", CSV], 2, "Missing argument 'OUTPUT_DIR'."),
        (["convert", CSV, "out", "--num-shard", "3"], 2, "No such option '--num-shard'."),
        (["convert", CSV, "out", "--num-shards", "x"], 2, "write, for example, 8 or TRAIN=8"),
        (["convert", CSV, "out", "--num-shards", "0"], 2, "give a whole number from 1"),
        (["convert", CSV, "out", "--num-shards", "A=1"], 2, "'A' is not a split"),
        (["convert", CSV, "out", "--column", "path"], 2, "'path'; write NAME=VALUE."),
        (["convert", CSV, "out", "--column", "a=b"], 2, "first comes the source's name"),
        (["convert", CSV, "out", "--column", "a=label"], 2, "the source has no column 'a'"),
        (["convert", CSV, "out", "--seed", "-1"], 2, "--seed -1: give a whole number from 0"),
        (["convert", CSV, "out", "--check", "all"], 2, "'all' is not one of 'decode'"),
        (["convert", CSV, "out", "--runner", "Flink"], 2, "there is no such runner"),
        (["convert", CSV, ""], 2, "OUTPUT_DIR '': give the path of a directory"),
        (["convert", CSV, "https://b/out"], 2, "cannot be written to https://"),
        (["convert", CSV, "\udcff"], 2, "OUTPUT_DIR "),
        (["convert", "", "out"], 1, "source '': there is no such file or folder"),
        (["convert", "missing.csv", "out"], 1, "'missing.csv': there is no such file or folder"),
        (["validate", "missing\0.csv"], 1, "there is no such file or folder"),
        (["validate", CSV, "--seed", "x"], 2, "'x' is not a valid integer"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line_and_an_exit_code(arguments: list, code: int, words: str) -> None:
    ended = invoke(*arguments)
    assert ended.exit_code == code
    assert words in ended.stderr
    assert re.fullmatch("error: .+\n", ended.stderr)
    assert ended.stdout == ""
    assert not Path("out").exists()


@pytest.mark.slow
def test_the_remedy_is_written_as_the_command_line_has_it() -> None:
    Path("a.csv").write_text(f"image_uri\n{PHOTOS[0]}\n")
    assert invoke("convert", "a.csv", "out").exit_code == 0
    ended = invoke("convert", "a.csv", "out", "--seed", "3")
    assert ended.exit_code == 1
    assert "or --overwrite to replace it" in ended.stderr
    assert invoke("convert", "a.csv", "out", "--overwrite").exit_code == 0


def test_a_faulty_table_is_reported_with_its_rows() -> None:
    Path("a.csv").write_text("image_uri,label\na.jpg,x\nb.jpg,\n")
    ended = invoke("convert", "a.csv", "out")
    assert ended.exit_code == 1
    words = "error: null_label (1)\n  line 3: the label is missing\n  -> Label the row"
    assert words in ended.stderr


def test_validate_lists_what_is_wrong_and_ends_with_1_for_errors_alone() -> None:
    unseen = "images: not opened; --check-images opens and checks each"
    assert invoke("validate", CSV).stdout == f"{CSV}: no problems in 52 rows\n{unseen}\n"
    Path("a.csv").write_text(f"image_uri,label\n{PHOTOS[0]},x\n{PHOTOS[1]},\n")
    bad = invoke("validate", "a.csv")
    assert (bad.exit_code, bad.stderr) == (1, "")
    assert "line 3: the label is missing" in bad.stdout
    Path("b.csv").write_text(f"image_uri,label\n{PHOTOS[0]},x\nmissing.jpg,x\n")
    warned = invoke("validate", "b.csv")
    assert warned.exit_code == 0
    assert "note: few_images" in warned.stdout
    opened = invoke("validate", "b.csv", "--check-images")
    assert opened.exit_code == 1
    assert "line 3: 'missing.jpg': not_found: " in opened.stdout


def test_validate_prints_the_whole_report_as_csv() -> None:
    rows = "".join(f"{number}.jpg,\n" for number in range(50))
    Path("a.csv").write_text("image_uri,label\nx.jpg,x\n" + rows)
    ended = invoke("validate", "a.csv", "--csv")
    Path("report.csv").write_text(ended.stdout)
    report = pd.read_csv("report.csv")
    assert report.columns.tolist() == tfrecorder.validate("a.csv").columns.tolist()
    assert (report.code == "null_label").sum() == 50


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", ["schema SOURCE", "validate SOURCE --csv", "info out --json", "info --help"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(arguments: str, unbuffered: str) -> None:
    Path("a.csv").write_text(f"image_uri,label\n{PHOTOS[0]},x\n")
    tfrecorder.convert("a.csv", "out", progress=False)
    words = arguments.replace("SOURCE", "a.csv").split()
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tfrecorder", *words],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.stderr == "error: standard output cannot be written: No space left on device.\n"
    assert ended.returncode == 1


@pytest.mark.slow
def test_a_closed_pipe_is_no_traceback() -> None:
    rows = "".join(f"{number}.jpg,\n" for number in range(20_000))
    Path("a.csv").write_text("image_uri,label\nx.jpg,x\n" + rows)
    command = f"{sys.executable} -m tfrecorder validate a.csv --csv | head -2"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert len(ended.stdout.splitlines()) == 2
    assert ended.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--num-workers", "2"]], ids=str)
def test_ctrl_c_is_exit_code_130_and_two_lines(options: list[str]) -> None:
    photo_frame(12000).to_csv("a.csv", index=False)
    process = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tfrecorder",
            "convert",
            "a.csv",
            "out",
            "--num-shards",
            "12",
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for(lambda: done_shards("out") >= 1)
    os.killpg(process.pid, signal.SIGINT)
    printed, words = process.communicate(timeout=120)
    assert process.returncode == 130
    assert printed == ""
    assert re.fullmatch(
        r"\nInterrupted: no partial file .+ Run the same conversion again to continue .+\n", words
    )


@pytest.mark.slow
def test_what_fails_in_a_worker_process_is_one_line_too() -> None:
    Path("broken.jpg").write_text("no image")
    frame = photo_frame(6)
    frame.loc[3, "image_uri"] = "broken.jpg"
    frame.to_csv("a.csv", index=False)
    words = ("--max-reject-fraction", "0", "--num-workers", "2")
    ended = run("-W", "ignore", "-m", "tfrecorder", "convert", "a.csv", "out", *words)
    assert ended.returncode == 1
    assert re.fullmatch(
        r"error: 1 of 6 rows .+ were rejected, more than --max-reject-fraction 0.0 allows.+\n",
        ended.stderr,
    )


def fed_when(words: bytes, text: bytes, *arguments: str) -> bytes:
    """What a command writes to its terminal that gets its standard input once it said something."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    command = [sys.executable, "-m", "tfrecorder", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert process.stdin
    shown = b""
    with contextlib.suppress(OSError):  # the end of what it writes
        while select.select([terminal], [], [], 20)[0]:
            shown += os.read(terminal, 65536)
            if words in shown and not process.stdin.closed:
                process.stdin.write(text)
                process.stdin.close()
    process.kill()
    process.wait()
    os.close(terminal)
    return shown


@pytest.mark.slow
@pytest.mark.parametrize("command", [("convert", "-", "out", "--dry-run"), ("validate", "-")])
def test_in_a_terminal_a_table_that_takes_long_to_read_says_so(command: tuple[str, ...]) -> None:
    frame = photo_frame(3).assign(label="x", price=1)
    text = frame.to_csv(index=False).encode()
    shown = fed_when(b"reading the table [00:01]", text, *command)
    assert re.search(rb"\r +\r[^\r]*3 rows", shown)  # the line is gone by then


@pytest.mark.slow
def test_in_a_terminal_a_bar_shows_speed_and_time_left() -> None:
    photo_frame(3000).to_csv("a.csv", index=False)
    # Resized, so that the conversion lasts for several looks of the bar on any machine.
    shown = in_terminal("-m", "tfrecorder", "convert", "a.csv", "out", "--image-size", "100")
    states = re.findall(
        r"(\d+)%\|[^|]*\| (\d+)/3000 \[(\d\d:\d\d)<(\S+), +([\d.]+|\?) images/s\]", shown
    )
    assert re.search(r"starting \[00:0\d\]", shown)
    assert "0/3000 [" not in re.sub(r"[1-9]\d*0/3000", "", shown)
    assert states[-1][:2] == ("100", "3000")
    assert len({rows for _, rows, *_ in states}) > 2
    assert any(re.fullmatch(r"\d\d:\d\d", left) for *_, left, _ in states)
    assert "3,000 records in out" in shown
    photo_frame(100).to_csv("a.csv", index=False)
    quiet = in_terminal(
        "-W", "ignore", "-m", "tfrecorder", "convert", "a.csv", "quiet", "--no-progress"
    )
    assert "images/s]" not in quiet
    assert quiet.startswith("100 records in quiet")
