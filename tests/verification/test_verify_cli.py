"""`tfrecorder verify` and `tfrecorder repair` on the command line: words and exit codes."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers.damage import flip
from helpers.public_types import RepairResult, VerificationReport
from helpers.wall_cases import COMMAND, HEAVY, attempts_of
from support import invoke

import tfrecorder

SHARD = "train-00001.tfrecord"


@pytest.fixture
def out(dataset: Path) -> Path:
    return Path(shutil.copytree(dataset, "out"))


@pytest.fixture
def damaged(out: Path) -> Path:
    data = (out / SHARD).read_bytes()
    (out / SHARD).write_bytes(flip(data, len(data) // 2, 1))
    return out


def test_the_functions_are_public(damaged: Path) -> None:
    assert not tfrecorder.verify(damaged).ok
    assert isinstance(tfrecorder.repair(damaged), RepairResult)
    assert isinstance(tfrecorder.verify(damaged), VerificationReport)


def test_all_is_well(out: Path) -> None:
    for options in ([], ["--decode"]):
        finished = invoke("verify", "out", *options)
        assert (finished.exit_code, finished.stderr) == (0, "")
        assert finished.stdout.startswith("out: all is well: ")
    finished = invoke("repair", "out")
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert finished.stdout.startswith("out: all is well; nothing was written.")


def test_faults_are_named_and_repaired(damaged: Path) -> None:
    finished = invoke("verify", "out")
    assert finished.exit_code == 1
    assert f"{SHARD}: 2 faults" in finished.stdout
    assert "record_checksum" in finished.stdout
    finished = invoke("repair", "out")
    assert (finished.exit_code, finished.stderr) == (0, "")
    assert SHARD in finished.stdout
    assert invoke("verify", "out").exit_code == 0


def test_faults_as_csv(damaged: Path) -> None:
    finished = invoke("verify", "out", "--csv")
    assert finished.exit_code == 1
    table = pd.read_csv(io.StringIO(finished.stdout))
    assert list(table.columns) == ["file", "record", "offset", "code", "message"]
    assert set(table["file"]) == {SHARD}


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_what_is_no_dataset_is_one_line(command: str) -> None:
    finished = invoke(command, "nowhere")
    assert (finished.exit_code, finished.stdout) == (1, "")
    assert finished.stderr == "error: nowhere: there is no such directory. Check the path.\n"


@pytest.mark.parametrize("command", ["verify", "repair"])
def test_a_bar_is_shown_where_it_is_asked_for(out: Path, command: str) -> None:
    assert "100%" in invoke(command, "out", "--progress").stderr
    assert invoke(command, "out", "--no-progress").stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "repair"])
def test_help_has_an_example_and_loads_nothing_heavy(command: str) -> None:
    assert f"Example: tfrecorder {command} out" in invoke(command, "--help").stdout
    assert attempts_of(COMMAND.format(f"{command!r}, '--help'"), HEAVY) == []


def test_a_source_that_has_changed_is_one_line_and_a_failure(frame: pd.DataFrame) -> None:
    shutil.copy(frame["image_uri"][0], "a.jpg")
    frame.loc[0, "image_uri"] = "a.jpg"
    tfrecorder.convert(frame.iloc[:4], "out", num_shards=1)
    Path("out/train-00000.tfrecord").unlink()
    Path("a.jpg").unlink()
    finished = invoke("repair", "out")
    assert finished.exit_code == 1
    assert finished.stderr.count("\n") == 1
    assert "row 0, image 'a.jpg', cannot be used now" in finished.stderr
