"""Paths as people write them: with `~`, with backslashes, of a file where a folder belongs; and of
files that are not there, while others lie beside them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.streaming_cases import TO_ITS_END
from support import PHOTOS, error_of, invoke, photo_frame, put, rejects, run

import tfrecorder
from tfrecorder.errors import DatasetError, ImagesUnreachableError, OptionError, SourceError


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


# --------------------------------------------------------------- what lies there instead of a file


def missing(*uris: str, **options: Any) -> str:
    """The message on images none of which is there."""
    frame = pd.DataFrame({"image_uri": uris})
    return error_of(ImagesUnreachableError, frame, **options)


def photo_at(*paths: str) -> None:
    for number, path in enumerate(paths):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(PHOTOS[number].read_bytes())


NFC = "caf\u00e9"
NFD = "cafe\u0301"


@pytest.mark.parametrize(
    ("asked", "is_there", "says"),
    [
        ("in/00012", "in/00012.jpg", "'in/00012.jpg' is there, with another ending"),
        ("in/00012.png", "in/00012.JPEG", "'in/00012.JPEG' is there, with another ending"),
        ("in/a.b", "in/a.b.tif", "'in/a.b.tif' is there, with another ending"),
        ("in/a.jpg", "in/A.JPG", "'in/A.JPG' is there, in other upper and lower case"),
        ("Train/Images/a.jpg", "train/images/a.jpg", "is there, in other upper and lower case"),
        ("in\\a.jpg", "in/a.jpg", "'in/a.jpg' is there: write / between folders, not \\"),
    ],
)
def test_a_missing_image_is_compared_with_what_lies_beside_it(
    asked: str, is_there: str, says: str
) -> None:
    photo_at(is_there, "in/other.jpg", "in/notes.txt")
    message = missing(asked)
    assert f"No such file or directory; {says}" in message or says in message
    assert "mounted" not in message
    assert "base" not in message
    assert f"Write paths as the files have them: {is_there!r} for {asked!r}." in message
    frame = pd.DataFrame({"image_uri": [asked]})
    assert says in str(tfrecorder.validate(frame, check_images=True, progress=False))


def test_on_a_store_the_form_of_unicode_is_shown() -> None:
    put("memory://pictures", f"in/{NFD}.jpg", PHOTOS[0].read_bytes())
    message = missing(f"memory://pictures/in/{NFC}.jpg")
    there = ascii(f"memory://pictures/in/{NFD}.jpg")
    asked = ascii(f"memory://pictures/in/{NFC}.jpg")
    assert f"{there} is there, in another Unicode form" in message
    assert f"Write paths as the files have them: {there} for {asked}." in message


def test_of_several_files_beside_the_one_most_like_it_is_named() -> None:
    photo_at("a.png", "A.JPG")
    Path("b.xml").write_text("<annotation/>")
    assert "'A.JPG' is there" in missing("a.jpg")
    assert "Is a disk not mounted?" in missing("b.jpg")  # what no image can be is not named


def test_blanks_around_a_name_are_told_where_images_are_checked() -> None:
    photo_at("in/a.jpg", "in/b c.jpg")
    frame = pd.DataFrame({"image_uri": ["in/a.jpg ", "in/ b c.jpg"]})
    report = tfrecorder.validate(frame, check_images=True, progress=False)
    for message, name in zip(
        report.query("severity == 'error'").message, ("a", "b c"), strict=True
    ):
        assert message.endswith(f"; 'in/{name}.jpg' is there, without the blanks")
    assert "Remove the blanks around paths, such as 'in/a.jpg '." in missing("in/a.jpg ")


def test_a_missing_image_is_looked_for_below_the_base() -> None:
    photo_at("x/photos/cat/0.jpg", "x/photos/dog/0.jpg", "x/photos/dog/1.jpg")
    message = missing("photos/cat/0.jpg", "photos/dog/0.jpg")
    assert "; 'x/photos/cat/0.jpg' has the same name" in message
    assert f"Nothing was written. Give `base='{Path.cwd()}/x'`." in message
    pd.DataFrame({"image_uri": ["dog/1.jpg"]}).to_csv("rows.csv", index=False)
    assert f"Give --base {Path.cwd()}/x/photos." in invoke("convert", "rows.csv", "out").stderr
    moved = missing("C:\\me\\photos\\dog\\0.jpg")
    assert "Write paths as the files have them: 'x/photos/dog/0.jpg' for 'C:" in moved
    assert "x/photos" not in missing("0.jpg")  # there are two


def test_a_base_above_the_table_is_the_remedy_where_images_lie_from_there() -> None:
    photo_at("set/images/a.jpg", "set/b.jpg")
    Path("set/lists/of 2026").mkdir(parents=True)
    frame = pd.DataFrame({"image_uri": ["images/a.jpg"], "label": "x"})
    frame.to_csv("set/lists/of 2026/rows.csv", index=False)
    message = error_of(ImagesUnreachableError, "set/lists/of 2026/rows.csv")
    assert f"Nothing was written. Give `base='{Path.cwd()}/set'`." in message
    with pytest.raises(OptionError, match=r"no such folder; '.*/set/lists' is there, in other"):
        tfrecorder.validate(frame, base="set/Lists", progress=False)


def test_a_folder_that_yolo_names_is_compared_too() -> None:
    photo_at("set/Images/a.jpg")
    Path("set/data.yaml").write_text("train: images\nnames: [cat]\n")
    with pytest.raises(SourceError, match=r"'images', which is not there: .*set/Images' is there"):
        tfrecorder.validate("set", progress=False)


def test_a_link_that_leads_nowhere_is_called_one() -> None:
    Path("a.jpg").symlink_to("/mnt/gone/a.jpg")
    Path("b.jpg").symlink_to(".git/annex/objects/b.jpg")
    message = missing("a.jpg")
    assert "it is a link to '/mnt/gone/a.jpg', which is not there\n" in message
    assert message.endswith("Nothing was written. Is a disk not mounted?")
    assert missing("b.jpg").endswith("`git annex get` brings the files that such links lead to.")


def test_a_few_missing_images_with_others_beside_them_are_told_before_the_launch() -> None:
    photo_at("0.jpg", "1.jpg", "2.jpg")
    frame = pd.DataFrame({"image_uri": ["0.jpg", "1.jpg", "2.jpeg", "3.jpg"], "split": "TRAIN"})
    with pytest.warns(UserWarning, match=r"2 of 4 images .*\n .*'2.jpg' is there, with another"):
        tfrecorder.convert(frame, "out", progress=False, max_reject_fraction=1)
    frame = frame[frame["image_uri"] != "2.jpeg"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a file that is simply missing is a reject
        tfrecorder.convert(frame, "new", progress=False, max_reject_fraction=1)


@pytest.mark.parametrize("levels", [3, 1500])
def test_a_path_of_many_folders_that_are_not_there_is_only_missing(levels: int) -> None:
    assert "No such file or directory\n" in missing("a/" * levels + "a.jpg")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"


def test_a_pointer_of_git_lfs_is_called_one() -> None:
    Path("a.jpg").write_bytes(POINTER)
    Path("a.csv").write_bytes(POINTER)
    says = "is a pointer of Git LFS; `git lfs pull` brings the file itself"
    assert missing("a.jpg").endswith(f"a.jpg {says}\nNothing was written.")
    with pytest.raises(SourceError, match=f"source 'a.csv' {says}"):
        tfrecorder.validate("a.csv", progress=False)
    photo_at("0.jpg", "1.jpg")
    frame = pd.DataFrame({"image_uri": ["a.jpg", "0.jpg", "1.jpg"], "split": "TRAIN"})
    with pytest.warns(UserWarning, match=rf"1 of 3 images .*\n .*{says}\Z"):
        tfrecorder.convert(frame, "out", progress=False, max_reject_fraction=1)
    assert rejects("out")["reason"].tolist() == [f"not_an_image: the file {says}"]
    for name in ("train-00000.tfrecord", "_tfrecorder/commits/00000.json", "dataset_info.json"):
        whole = Path("out", name).read_bytes()
        Path("out", name).write_bytes(POINTER)
        with pytest.raises(DatasetError, match=says):
            tfrecorder.info("out")
        Path("out", name).write_bytes(whole)
    for name in ("table/metadata.csv", "coco/annotations/instances_val.json", "yolo/data.yaml"):
        photo_at(f"{name.partition('/')[0]}/images/a.jpg")
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(POINTER)
        with pytest.raises(SourceError, match=f"{name} {says}"):
            tfrecorder.validate(name.partition("/")[0], progress=False)
    Path("other.tfrecord").write_bytes(POINTER)
    with pytest.raises(DatasetError, match=says):
        tfrecorder.info("other.tfrecord")


def test_a_source_or_a_dataset_that_is_not_there_is_compared_too() -> None:
    photo_frame(2).to_csv("Photos.csv", index=False)
    for path, says in (("Photos", "another ending"), ("photos.csv", "other upper and lower case")):
        with pytest.raises(SourceError, match=rf"Photos.csv' is there, (with|in) {says}\."):
            tfrecorder.validate(path, progress=False)
    Path(NFD).mkdir()
    with pytest.raises(DatasetError, match=r"cafe\\u0301' is there, in another Unicode form"):
        tfrecorder.info(NFC)
