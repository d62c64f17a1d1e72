"""`inspect`: the records of a dataset as a table, and as files in the folder that was given."""

from __future__ import annotations

import csv
import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.looking_cases import noise, png, write_records
from helpers.wall_cases import BEAM, TENSORFLOW, attempts_of
from support import invoke, records

import tfrecorder


def run(*arguments: Any) -> str:
    result = invoke("inspect", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def files(folder: Path | str = ".") -> dict[str, bytes]:
    """Every file below a folder, with its bytes."""
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_the_table_holds_the_records_in_their_order(dataset: Path) -> None:
    table = tfrecorder.inspect(dataset, "TRAIN", num_records=1000)
    assert len(table) == 36
    for (_, row), record in zip(table.iterrows(), records(dataset, "TRAIN"), strict=True):
        image = record.pop("image/encoded")
        assert row["image_bytes"] == len(image)
        for key, value in record.items():
            assert row[key] == (value.decode() if isinstance(value, bytes) else value)
    assert table["record"].tolist() == list(range(36))
    assert set(table["image_file"]) == {""}


def test_the_command_prints_a_table(dataset: Path) -> None:
    head, *rows = run(dataset, "--split", "validation", "--num-records", "3").splitlines()
    assert head.split()[:4] == ["record", "row", "class/label", "class/text"]
    table = tfrecorder.inspect(dataset, "VALIDATION", 3)
    assert [row.split()[1] for row in rows] == table["image/source_id"].tolist()
    assert [row.split()[-1] for row in rows] == table["image/filename"].tolist()


def test_the_command_prints_csv(dataset: Path) -> None:
    rows = list(csv.DictReader(run(dataset, "--num-records", "2", "--csv").splitlines()))
    assert [row["image/filename"] for row in rows] == (
        tfrecorder.inspect(dataset, num_records=2)["image/filename"].tolist()
    )


def test_the_folder_holds_the_images_as_stored_and_the_table(dataset: Path) -> None:
    before = files(dataset)
    assert "5 records written to look" in run(
        dataset, "--split", "TEST", "--num-records", "5", "--output-dir", "look"
    )
    written = files("look")
    table = pd.read_csv("look/records.csv")
    assert written.keys() == {"records.csv", *table["image_file"]}
    for name, record in zip(table["image_file"], records(dataset, "TEST")[:5], strict=True):
        assert written[name] == record["image/encoded"]
    assert table["image/filename"].tolist() == [
        record["image/filename"].decode() for record in records(dataset, "TEST")[:5]
    ]
    assert files() == {f"look/{name}": data for name, data in written.items()}
    assert files(dataset) == before


def test_names_come_from_numbers_alone(tmp_path: Path) -> None:
    evil = {
        "image/encoded": png(noise(0)),
        "image/filename": "../../evil.png",
        "image/source_id": "../evil",
        "image/format": "/../../evil",
        "image/class/text": "../\n\x1b[31mevil",
    }
    others = {"image/encoded": b"no image at all", "image/format": "png"}
    source = write_records(tmp_path / "in", [evil, others, {"image/format": "png"}])
    printed = run(source, "--output-dir", "deep/look")
    assert sorted(files("deep/look")) == [
        *("records.csv", "train-000000.png", "train-000001.bin"),
    ]
    assert set(files()) == {f"deep/look/{name}" for name in files("deep/look")} | {
        "in/train-00000.tfrecord"
    }
    assert r"../\n\x1b[31mevil" in printed  # nothing in it moves the cursor
    assert "\x1b" not in printed


def test_masks_are_written_beside_their_images(tmp_path: Path) -> None:
    mask = png(np.eye(8, dtype=np.uint8))
    record = {"image/encoded": png(noise(0)), "image/segmentation/class/encoded": mask}
    run(write_records(tmp_path / "in", [record]), "--output-dir", "look")
    assert files("look")["train-000000-mask.png"] == mask


def test_an_empty_folder_is_taken(dataset: Path) -> None:
    Path("look").mkdir()
    Path("look/.DS_Store").write_bytes(b"a desktop was here")
    tfrecorder.inspect(dataset, "TEST", 2, output_dir="look")
    assert set(files("look")) == {
        *("records.csv", "test-000000.jpg", "test-000001.jpg", ".DS_Store"),
    }


@pytest.mark.parametrize("name", ["notes.txt", "train-000001.jpg", "records.csv", "sub/file"])
def test_a_folder_with_anything_else_is_refused(dataset: Path, name: str) -> None:
    Path("look", name).parent.mkdir(parents=True)
    Path("look", name).write_text("mine")
    with pytest.raises(tfrecorder.errors.OutputError, match=r"look holds .* new or empty folder"):
        tfrecorder.inspect(dataset, output_dir="look")
    assert files("look") == {name: b"mine"}


def test_the_dataset_itself_is_no_folder_to_write_to(dataset: Path) -> None:
    before = files(dataset)
    with pytest.raises(tfrecorder.errors.OutputError, match="choose a new or empty folder"):
        tfrecorder.inspect(dataset, output_dir=dataset)
    assert files(dataset) == before


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "Ask for the right to write there, or give another path."),
        (errno.ENOSPC, "Free space there and repeat the call with a new or empty folder."),
    ],
)
def test_a_failed_write_is_one_line(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.replace", fail)
    monkeypatch.setattr("os.remove", fail)  # of a file system that is read-only
    with pytest.raises(tfrecorder.errors.OutputError) as caught:
        tfrecorder.inspect(dataset, output_dir="look")
    assert f"cannot be written: {os.strerror(number)}. {words}" in str(caught.value)


@pytest.mark.slow
def test_a_file_that_does_not_fit_is_not_there_in_part(dataset: Path) -> None:
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000));"
    code += "sys.argv = ['tfrecorder', 'inspect', sys.argv[1], '--output-dir', 'look'];"
    code += "import runpy; runpy.run_module('tfrecorder', run_name='__main__')"
    finished = subprocess.run(
        [sys.executable, "-B", "-c", code, str(dataset)], capture_output=True, text=True
    )
    assert finished.returncode == 1
    assert re.fullmatch(r"error: look/train-\d+\.jpg cannot be written: .+\n", finished.stderr)
    images = {record["image/encoded"] for record in records(dataset, "TRAIN")}
    left = files("look")  # without the table, which comes last
    assert set(left.values()) <= images
    assert all(re.fullmatch(r"train-\d{6}\.jpg", name) for name in left)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "TRIAN"}, "did you mean 'TRAIN'"),
        ({"num_records": 0}, "num_records=0: give a whole number from 1"),
        ({"output_dir": "s3://bucket/x"}, "give a local path, without a scheme"),
        ({"output_dir": "file"}, "file is a file; give a new or empty folder"),
    ],
)
def test_what_cannot_be_is_said(dataset: Path, options: dict[str, Any], words: str) -> None:
    Path("file").write_text("mine")
    with pytest.raises(tfrecorder.TfrecorderError, match=re.escape(words)):
        tfrecorder.inspect(dataset, **options)


def test_a_damaged_record_is_named(dataset: Path, tmp_path: Path) -> None:
    out = shutil.copytree(dataset, tmp_path / "out")
    shard = sorted(out.glob("train-*.tfrecord"))[0]
    data = bytearray(shard.read_bytes())
    data[5000] ^= 1
    shard.write_bytes(data)
    with pytest.raises(
        tfrecorder.errors.DatasetError, match=r"of the record at byte .*`tfrecorder verify"
    ):
        tfrecorder.inspect(out)


def test_a_shard_cut_short_is_named(tmp_path: Path) -> None:
    source = Path(write_records(tmp_path / "in", [{"image/encoded": png(noise(0))}] * 2))
    (shard,) = source.iterdir()
    shard.write_bytes(shard.read_bytes()[:-7])
    with pytest.raises(tfrecorder.errors.DatasetError, match="not a whole TFRecord file"):
        tfrecorder.inspect(source)


@pytest.mark.slow
def test_it_needs_neither_tensorflow_nor_beam(dataset: Path) -> None:
    code = f"import tfrecorder; tfrecorder.inspect({str(dataset)!r}, output_dir='look')"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []
    assert Path("look/records.csv").exists()
