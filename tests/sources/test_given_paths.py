"""Paths as people write them: with `~`, with backslashes, and of a file where a folder belongs."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.streaming_cases import TO_ITS_END
from support import photo_frame, run

import tfrecorder
from tfrecorder.errors import DatasetError, ImagesUnreachableError, SourceError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    photo_frame(4).to_csv(home / "photos.csv", index=False)
    (home / "schema.yaml").write_text("image_uri: image\nlabel: label\n")
    return home


@pytest.mark.slow
def test_a_home_folder_is_expanded_wherever_a_path_is_given(home: Path) -> None:
    options = {"schema": "~/schema.yaml", "base": "~", "progress": False}
    result = tfrecorder.convert("~/photos.csv", "~/out", **options)
    assert (result.records, (home / "out/dataset_info.json").exists()) == (4, True)
    assert len(tfrecorder.validate("~/photos.csv", progress=False).errors) == 0
    assert tfrecorder.info("~/out").records == 4
    assert len(tfrecorder.Records("~/out", "TRAIN")) >= 1
    assert len(tfrecorder.to_frame("~/out")) == 4
    assert tfrecorder.status("~/out").rows == 4
    assert tfrecorder.verify("~/out", progress=False).ok
    assert len(tfrecorder.generations("~/out")) == 1
    tfrecorder.inspect("~/out", "TRAIN", 1, output_dir="~/look")
    (home / "drop.txt").write_text(tfrecorder.to_frame("~/out")["image_uri"][0] + "\n")
    tfrecorder.compact("~/out", "~/new", drop="~/drop.txt", progress=False)
    assert (home / "new").is_dir()
    assert (home / "look/records.csv").exists()
    assert not Path("~").exists()


def test_a_watched_folder_may_be_below_the_home_folder(home: Path) -> None:
    (home / "in/a").mkdir(parents=True)
    (home / "in/a/0.jpg").write_bytes(Path(photo_frame(1)["image_uri"][0]).read_bytes())
    options = {"source_options": {"settle": 0}, **TO_ITS_END}
    assert tfrecorder.stream("~/in", "~/out", **options).records == 1
    assert tfrecorder.info(home / "out").records == 1
    assert not Path("~").exists()


@pytest.mark.slow
def test_the_command_line_expands_a_home_folder_that_is_quoted(home: Path) -> None:
    schema = run("-m", "tfrecorder", "schema", "~/photos.csv").stdout
    (home / "schema.yaml").write_text(schema)
    done = run("-m", "tfrecorder", "validate", "~/photos.csv", "--base=~", "--schema=~/schema.yaml")
    assert done.returncode == 0, done.stderr


def test_a_folder_that_only_looks_like_a_home_folder_stays_one() -> None:
    Path("~x").mkdir()
    photo_frame(2).to_csv("~x/photos.csv", index=False)
    assert len(tfrecorder.validate("~x/photos.csv", progress=False).errors) == 0


@pytest.mark.parametrize("path", ["photos\\cat.csv", "C:\\photos", "in\\a"])
def test_a_missing_path_with_backslashes_gets_a_hint(path: str) -> None:
    hint = r"; write / between folders, not \\, and no drive"
    with pytest.raises(SourceError, match=hint):
        tfrecorder.validate(path, progress=False)
    with pytest.raises(SourceError, match=hint):
        tfrecorder.stream(path, "out", **TO_ITS_END)
    with pytest.raises(DatasetError, match=hint):
        tfrecorder.info(path)


def test_missing_images_with_backslashes_get_a_hint() -> None:
    frame = photo_frame(3).assign(image_uri=["photos\\cat.jpg", "C:\\x.jpg", "C:\\y.jpg"])
    with pytest.raises(ImagesUnreachableError, match=r"write / between folders, not \\"):
        tfrecorder.convert(frame, "out", progress=False)


@pytest.mark.slow
def test_a_stream_of_a_file_says_what_writes_a_file() -> None:
    photo_frame(2).to_csv("photos.csv", index=False)
    with pytest.raises(SourceError, match=r"rows of a file are written once, by `convert`"):
        tfrecorder.stream("photos.csv", "out", **TO_ITS_END)
    shown = run("-m", "tfrecorder", "stream", "photos.csv", "out")
    assert "A stream watches a folder; the rows of a file" in shown.stderr
    assert not Path("out").exists()
