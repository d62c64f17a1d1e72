"""Images that give no record: listed with their reason, counted, and tried again when mended."""

from __future__ import annotations

import csv
import html
import os
import pickle
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers.image_cases import photo, save
from support import PHOTOS, error_of, filenames, invoke, photo_frame, public_files, records, rejects

import tfrecorder
from tfrecorder.errors import ImagesUnreachableError, RejectedError

GOOD = PHOTOS[0].read_bytes()

#: The stage and reason for which each of the images that `make_bad_images` makes is rejected.
BAD = {
    "missing.jpg": "read not_found",
    "empty.jpg": "check empty",
    "cut.jpg": "check truncated",
    "words.jpg": "check not_an_image",
    "page.png": "check not_an_image",
    "huge.png": "check too_large",
    "folder.jpg": "read not_a_file",
    "pipe.jpg": "read not_a_file",
    "/dev/zero": "read not_a_file",
    "broken.jpg": "read not_found",
    "circle.jpg": "read bad_name",
    "cut.jpg/x": "read not_found",
    "nul\0.jpg": "read bad_name",
    "a" * 300: "read bad_name",
    "long/" * 1000: "read bad_name",
    "two\nlines.jpg": "read not_found",
    "carriage\rreturn.jpg": "read not_found",
    'quote",comma.jpg': "read not_found",
    "naïve 日本.jpg": "read not_found",
    "../../../../../../../../missing.jpg": "read not_found",
}


def make_bad_images() -> None:
    Path("empty.jpg").write_bytes(b"")
    Path("cut.jpg").write_bytes(GOOD[: len(GOOD) // 2])
    Path("words.jpg").write_bytes(b"Hello, I am no image at all.\n")
    Path("page.png").write_bytes(b"<html>404</html>")
    Path("huge.png").write_bytes(save(photo(size=(500, 500)), "PNG"))
    Path("folder.jpg").mkdir()
    os.mkfifo("pipe.jpg")
    os.symlink("nowhere", "broken.jpg")
    os.symlink("circle.jpg", "circle.jpg")


def with_photos(uris: list[str], photos: int = 40) -> pd.DataFrame:
    """Rows of some images, and then as many sound ones as asked for."""
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "cat"})
    return pd.concat([frame, photo_frame(photos)], ignore_index=True)


def test_bad_images_are_listed_with_their_reasons_and_the_run_goes_on() -> None:
    make_bad_images()
    frame = with_photos([*BAD])
    options = {"max_reject_fraction": 0.5, "max_pixels": 200_000}
    result = tfrecorder.convert(frame, "out", **options)
    listed = rejects("out").sort_values("row")
    assert listed.columns.tolist() == ["row", "image_uri", "stage", "reason"]
    assert listed.row.tolist() == list(range(len(BAD)))
    assert listed.image_uri.tolist() == [*BAD]
    found = listed.stage + " " + listed.reason.str.partition(":")[0]
    assert found.tolist() == [*BAD.values()]
    assert {int(one["image/source_id"]) for one in records("out")} == set(
        range(len(BAD), len(frame))
    )
    assert result.rows == result.records + sum(result.rejects.values()) == len(frame)
    assert result.rejects["read/not_found"] == sum("not_found" in why for why in BAD.values())
    assert re.search(rf"TRAIN +40 +{len(BAD)} ", str(result))
    assert "see out/rejects.csv" in str(result)


@pytest.mark.slow
def test_reasons_are_the_same_every_time_and_name_no_machine() -> None:
    make_bad_images()
    frame = with_photos([*BAD])
    for out in ("a", "b"):
        tfrecorder.convert(frame, out, max_reject_fraction=0.5, num_threads=2)
    assert public_files("a") == public_files("b")
    reasons = " ".join(rejects("a").reason)
    assert str(Path.cwd()) not in reasons
    assert "0x" not in reasons


@pytest.mark.slow
def test_an_image_without_permission(plain_user) -> None:
    for name in ("a.jpg", "b.jpg", "locked.jpg"):
        Path(name).write_bytes(GOOD)
    frame = pd.DataFrame({"image_uri": ["a.jpg", "b.jpg", "locked.jpg"]})
    tfrecorder.convert(frame, "warm_up")
    os.chmod("locked.jpg", 0)
    with plain_user():
        result = tfrecorder.convert(frame, "out", max_reject_fraction=0.5)
    assert result.rejects == {"read/no_permission": 1}


@pytest.mark.slow
def test_a_fraction_of_0_allows_no_reject() -> None:
    Path("cut.jpg").write_bytes(GOOD[:3000])
    frame = with_photos(["cut.jpg"])
    message = error_of(RejectedError, frame, max_reject_fraction=0)
    assert re.match(r"1 of \d+ rows \(.*\) were rejected, .*: 1 check/truncated. Noth", message)
    assert "\n" not in message
    assert "while running" not in message
    assert "dataset_info.json" not in public_files("out")
    # The same call that allows it, or with the image mended, goes on.
    assert tfrecorder.convert(frame, "out").rejects == {"check/truncated": 1}


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=str)
def test_a_failure_in_a_worker_is_the_same_error_everywhere(options: dict[str, int]) -> None:
    frame = with_photos(["missing.jpg"], photos=5)
    with pytest.raises(RejectedError, match=r"1 of 6 rows .* 1 read/not_found") as caught:
        tfrecorder.convert(frame, "out", max_reject_fraction=0, **options)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_too_many_rejects_commit_nothing_and_count_the_reasons() -> None:
    make_bad_images()
    message = error_of(RejectedError, with_photos([*BAD]), max_pixels=200_000)
    assert f"{len(BAD)} of {40 + len(BAD)} rows (33.3%) were rejected" in message
    assert "`max_reject_fraction=0.1` allows" in message
    assert "2 check/not_an_image" in message
    assert "dataset_info.json" not in public_files("out")


@pytest.mark.slow
def test_after_mending_the_images_the_same_call_completes() -> None:
    for name in ("a.jpg", "b.jpg"):
        Path(name).write_bytes(GOOD[:3000])
    frame = with_photos(["a.jpg", "b.jpg", "c.jpg"], photos=10)
    error_of(RejectedError, frame, num_shards=4)
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        Path(name).write_bytes(GOOD)
    assert tfrecorder.convert(frame, "out", num_shards=4).rejects == {}
    tfrecorder.convert(frame, "fresh", num_shards=4)
    assert public_files("out") == public_files("fresh")


@pytest.mark.slow
def test_a_higher_fraction_commits_what_is_there_without_writing_it_again() -> None:
    Path("cut.jpg").write_bytes(GOOD[:3000])
    frame = with_photos(["cut.jpg"], photos=4)
    error_of(RejectedError, frame, num_shards=1)
    before = Path("out/train-00000.tfrecord").stat().st_mtime_ns
    assert tfrecorder.convert(frame, "out", num_shards=1, max_reject_fraction=0.2).records == 4
    assert Path("out/train-00000.tfrecord").stat().st_mtime_ns == before


def test_a_dataset_without_any_record_is_none() -> None:
    Path("a.jpg").write_bytes(b"no image")
    frame = pd.DataFrame({"image_uri": ["a.jpg"] * 3})
    assert "3 of 3 rows" in error_of(RejectedError, frame, max_reject_fraction=1)


# ---------------------------------------------------------------------------- disks that are away


@pytest.fixture
def disk() -> Path:
    """A folder with a CSV's images, which a test takes away like a disk that is not mounted."""
    Path("disk").mkdir()
    lines = []
    for number, path in enumerate(PHOTOS):
        shutil.copy(path, f"disk/{number:02}.jpg")
        lines.append(f"TRAIN,disk/{number:02}.jpg,x\n")
    Path("images.csv").write_text("".join(lines))
    return Path("disk")


def test_an_unmounted_disk_stops_before_anything_is_staged(disk: Path) -> None:
    disk.rename("away")
    message = error_of(ImagesUnreachableError, "images.csv")
    assert "52 of 52 images opened before the launch cannot be read" in message
    assert f"{Path.cwd()}/disk/00.jpg: No such file or directory" in message
    assert "Is a disk not mounted?" in message
    assert not list(Path("out").glob("_tfrecorder/plan*"))
    Path("away").rename("disk")
    assert tfrecorder.convert("images.csv", "out").records == 52


@pytest.mark.parametrize(
    ("uri", "says", "keeps_still"),
    [
        ("photos/{}", "Relative paths are taken from '{cwd}'; `base` names another folder.", "~"),
        ("/nowhere/{}", "Is a disk not mounted?", "Relative paths"),
        (" photos/{}", "Remove the blanks around paths, such as ' photos/", "mounted"),
        ("photos/{} ", "Remove the blanks around paths, such as 'photos/", "mounted"),
        ("~/photos/{}", "Write whole paths: in a table, ~ is not the home folder.", "mounted"),
        ("http://127.0.0.1:9/{}", "Nothing was written.", "mounted"),
    ],
)
def test_the_remedy_fits_the_uris_that_cannot_be_read(
    uri: str, says: str, keeps_still: str
) -> None:
    frame = pd.DataFrame({"image_uri": [uri.format(f"{number}.jpg") for number in range(3)]})
    message = error_of(ImagesUnreachableError, frame)
    assert says.format(cwd=Path.cwd()) in message
    assert keeps_still not in message
    frame.to_csv("images.csv", index=False)
    if "base" in says:
        assert "; --base names another folder." in invoke("convert", "images.csv", "out").stderr
        report = frame.tensorflow.validate(check_images=True)
        says = f"No such file or directory; relative paths start at {str(Path.cwd())!r}, or at"
        assert f"{says} `base`" in report.message[0]
    else:
        assert "base" not in message


@pytest.mark.parametrize("place", [0, 3])
def test_the_folder_of_the_others_is_the_remedy_though_one_is_nowhere(place: int) -> None:
    Path("in").mkdir()
    uris = [f"{number}.jpg" for number in range(3)]
    for uri in uris:
        Path("in", uri).write_bytes(b"there")
    uris.insert(place, "nowhere.jpg")
    message = error_of(ImagesUnreachableError, pd.DataFrame({"image_uri": uris}))
    assert message.endswith(f"Nothing was written. Give `base={str(Path('in').absolute())!r}`.")


def test_an_unmounted_disk_does_not_cost_the_dataset_that_was_there(disk: Path) -> None:
    (disk / "00.jpg").rename("first.jpg")
    tfrecorder.convert("images.csv", "out")
    before = public_files("out")
    disk.rename("away")
    error_of(ImagesUnreachableError, "images.csv", overwrite=True)
    with pytest.raises(ImagesUnreachableError):
        tfrecorder.append("images.csv", "out", retry_rejects=True)
    assert public_files("out") == before


def test_a_disk_that_was_half_there_does_not_poison_the_rerun(disk: Path) -> None:
    Path("away").mkdir()
    for number in range(0, 52, 3):
        (disk / f"{number:02}.jpg").rename(f"away/{number:02}.jpg")
    message = error_of(RejectedError, "images.csv", num_shards=4)
    assert "18 read/not_found" in message
    for path in Path("away").iterdir():
        path.rename(disk / path.name)
    assert tfrecorder.convert("images.csv", "out", num_shards=4).records == 52
    assert rejects("out").empty


@pytest.mark.slow
def test_rejects_of_a_finished_dataset_are_tried_again_on_request(disk: Path) -> None:
    (disk / "07.jpg").rename("away.jpg")
    (disk / "09.jpg").write_bytes(b"no image")
    result = tfrecorder.convert("images.csv", "out", num_shards=8)
    assert result.rejects == {"read/not_found": 1, "check/not_an_image": 1}
    again = tfrecorder.convert("images.csv", "out", num_shards=8)
    assert again.was_finished
    assert "`append` with `retry_rejects=True` tries those again" in str(again)
    shards = {path: path.stat().st_mtime_ns for path in Path("out").glob("*.tfrecord")}
    Path("away.jpg").rename(disk / "07.jpg")
    again = tfrecorder.append("images.csv", "out", retry_rejects=True)
    assert again.rejects == {"check/not_an_image": 1}
    assert again.records == 1
    assert all(path.stat().st_mtime_ns == changed for path, changed in shards.items())
    tfrecorder.convert("images.csv", "fresh", num_shards=8)
    assert sorted(filenames("out")) == sorted(filenames("fresh"))
    assert public_files("out")["rejects.csv"] == public_files("fresh")["rejects.csv"]


# -------------------------------------------------------------------------------------- suspects


@pytest.mark.slow
def test_suspects_are_kept_and_listed_with_the_decoders_words() -> None:
    # Bytes between the scan and the end marker: every decoder reads it, and one complains.
    Path("odd.jpg").write_bytes(GOOD[:-2] + b"\0" * 100 + GOOD[-2:])
    frame = with_photos(["odd.jpg"], photos=5)
    result = tfrecorder.convert(frame, "out")
    listed = rejects("out", "suspects.csv")
    assert result.records == 6
    assert result.suspects == len(listed) == 1
    assert listed.iloc[0][["row", "image_uri"]].tolist() == [0, "odd.jpg"]
    assert listed.iloc[0].warning
    assert "1 image decodes with a warning; see out/suspects.csv" in str(result)
    strict = tfrecorder.convert(frame, "strict", check="strict", max_reject_fraction=0.2)
    assert strict.rejects == {"check/suspect": 1}


# ------------------------------------------------------------------------------ as a spreadsheet

#: Names that a spreadsheet would run, names that begin with a quote, and one that is neither.
FORMULAS = (
    '=HYPERLINK("#a","x").jpg',
    "+1.jpg",
    "-1.jpg",
    "@SUM(1).jpg",
    "\t=1.jpg",
    "\r=1.jpg",
    "'=1.jpg",
    "''quoted'.jpg",
    "a=1.jpg",
)


def raw_fields(path: str) -> list[list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def test_no_field_is_a_formula_and_each_gives_its_exact_value_back() -> None:
    for name in FORMULAS[::2]:  # the others are missing
        Path(name).write_bytes(GOOD[:-2] + b"\0" * 100 + GOOD[-2:])
    tfrecorder.convert(with_photos([*FORMULAS]), "out", num_shards=2, max_reject_fraction=0.5)
    for name, uris in (("rejects.csv", FORMULAS[1::2]), ("suspects.csv", FORMULAS[::2])):
        fields = [row[1] for row in raw_fields(f"out/{name}")]
        assert not [field for field in fields if field[0] in "=+-@\t\r"]
        # What the documentation says: take away one quote from the begin of a field.
        assert sorted(field.removeprefix("'") for field in fields) == sorted(uris)
    assert "a=1.jpg" in [row[1] for row in raw_fields("out/suspects.csv")]


def test_who_reads_the_lists_knows_the_exact_values() -> None:
    Path("'=1.jpg").write_bytes(GOOD[:-2] + b"\0" * 100 + GOOD[-2:])
    tfrecorder.convert(with_photos([*FORMULAS]), "out", num_shards=2, max_reject_fraction=0.5)
    assert tfrecorder.verify("out", progress=False).ok
    before = public_files("out")
    for path in ("rejects.csv", "suspects.csv", "train-00000.tfrecord"):
        Path("out", path).unlink()
    tfrecorder.repair("out", progress=False)
    assert public_files("out") == before
    page = html.unescape(tfrecorder.preview("out", progress=False).page)
    assert ">@SUM(1).jpg<" in page
    assert ">'=1.jpg<" in page
