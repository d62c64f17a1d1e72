"""The page shows what is wrong first: wrong labels, misplaced boxes, boxes of the whole picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from helpers.growing_cases import QUIET
from helpers.planted_cases import SEEDS, Planted, planted
from support import photo_frame, slow_cases

import tfrecorder
from tfrecorder.errors import OptionError


class Sheet(NamedTuple):
    """The pictures of a class, in their order: the name of each file, and what it looks like."""

    files: list[str]
    like: dict[str, str]


def sheets_in(page: str) -> dict[str, Sheet]:
    """The class sheets of a page."""
    section = re.search(r'<section id="sheets".*?</section>', page, re.S)
    assert section is not None
    found = {}
    parts = re.split(r"<h3><bdi>(.*?)</bdi>.*?</h3>", section[0], flags=re.S)
    for name, shown in zip(parts[1::2], parts[2::2], strict=True):
        files = []
        like = {}
        for figure in re.findall(r"<figure.*?</figure>", shown, re.S):
            file = re.search(r'title="[^"]*?([^/"]+)"', figure)
            assert file is not None
            files.append(file[1])
            if mark := re.search(r"like <bdi>(.*?)</bdi>", figure):
                like[file[1]] = mark[1]
        found[name] = Sheet(files, like)
    return found


def place_of(row: int, case: Planted, sheets: dict[str, Sheet]) -> int:
    """Where a row is on the sheet of its class, from 1."""
    return sheets[case.frame["label"][row][0]].files.index(f"{row}.jpg") + 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_wrong_is_what_one_sees_first(seed: int, tmp_path: Path) -> None:
    case = planted(tmp_path, seed)
    tfrecorder.convert(case.frame, tmp_path / "out", **QUIET)
    preview = tfrecorder.preview(tmp_path / "out", progress=False)
    sheets = sheets_in(preview.page)
    assert all(place_of(row, case, sheets) <= 12 for row in case.wrong)
    assert all(place_of(row, case, sheets) <= 12 for row in case.misplaced)
    marked = {file for sheet in sheets.values() for file in sheet.like}
    planted_files = {f"{row}.jpg" for row in (*case.wrong, *case.misplaced, case.whole, case.twice)}
    assert sum(f"{row}.jpg" in marked for row in case.wrong) >= 3
    assert len(marked - planted_files) <= 2
    told = "\n".join(preview.findings)
    assert re.search(rf"1 box covers over 90 % of the picture: .*/{case.whole}\.jpg", told)
    assert re.search(rf"1 pair of boxes is nearly .*/{case.twice}\.jpg", told)
    assert "look like another class" in told
    assert len(preview.page) < 3_000_000


def wrongly_labelled(rows: dict[int, str]) -> pd.DataFrame:
    frame = photo_frame()
    for row, label in rows.items():
        frame.loc[row, "label"] = label
    return frame


def test_pictures_of_a_class_are_compared_too(tmp_path: Path) -> None:
    frame = wrongly_labelled({16: "brick"})
    tfrecorder.convert(frame, tmp_path / "out", **QUIET)
    preview = tfrecorder.preview(tmp_path / "out", progress=False)
    sheets = sheets_in(preview.page)
    name = Path(frame["image_uri"][16]).name
    assert sheets["brick"].files[0] == name
    assert sheets["brick"].like[name] == photo_frame()["label"][16]


def test_where_looks_do_not_tell_classes_apart_nothing_is_marked(tmp_path: Path) -> None:
    frame = photo_frame()
    frame["label"] = [["odd", "even"][number % 2] for number in range(len(frame))]
    tfrecorder.convert(frame, tmp_path / "out", **QUIET)
    preview = tfrecorder.preview(tmp_path / "out", progress=False)
    assert "too few to doubt a label by them" in preview.page
    assert not any(sheet.like for sheet in sheets_in(preview.page).values())
    assert "like another class" not in "".join(preview.findings)


def test_neighbours_come_from_the_embeddings_that_are_given(tmp_path: Path) -> None:
    frame = photo_frame()[:30]
    truth = np.arange(len(frame)) % 2
    frame["label"] = np.where(truth, "odd", "even")
    frame.loc[7, "label"] = "even"
    tfrecorder.convert(frame, tmp_path / "out", **QUIET)
    rows = tfrecorder.to_frame(tmp_path / "out").index
    # Of any length: their directions tell the two apart.
    random = np.random.default_rng(3)
    vectors = np.eye(2, 16)[truth[rows]] + random.normal(0, 0.1, (len(rows), 16))
    vectors *= 10 ** random.uniform(-3, 3, (len(rows), 1))
    keyed = pd.DataFrame(vectors, rows.rename("row")).reset_index()[::-1]
    for given, compared in ((vectors, 30), (keyed[keyed["row"] > 2], 27)):
        page = tfrecorder.preview(tmp_path / "out", embeddings=given, progress=False).page
        sheet = sheets_in(page)["even"]
        assert sheet.like == {sheet.files[0]: "odd"}
        assert sheet.files[0] == Path(frame["image_uri"][7]).name
        assert f"of the {compared} compared" in page
        assert "Alike means close in the embeddings that were given" in page


def test_embeddings_that_do_not_fit_are_named(tmp_path: Path) -> None:
    frame = photo_frame()[:9]
    tfrecorder.convert(frame.assign(label=[*"abababab", "b"]), tmp_path / "out", **QUIET)
    vectors = np.eye(9)
    unsound = vectors.copy()
    unsound[5, 2] = np.inf
    for given, words in {
        "too few": (vectors[:8], r"\(8, 9\): give a row for each of 9 records and a column"),
        "flat": (vectors[0], r"\(9,\): give a row"),
        "infinite": (unsound, "row 5 has a number that is not finite"),
        "texts": (frame, "give numbers: could not convert"),
        "another row": (pd.DataFrame(vectors, index=[*range(8), 12]), "=12: 1 row is not among"),
    }.values():
        with pytest.raises(OptionError, match=f"^embeddings.*{words}"):
            tfrecorder.preview(tmp_path / "out", embeddings=given, progress=False)
    boxes = {"x_min": 0.1, "y_min": 0.1, "x_max": 0.6, "y_max": 0.6}
    for name, other in {"objects": frame.assign(**boxes), "one": frame.assign(label="a")}.items():
        tfrecorder.convert(other, tmp_path / name, **QUIET)
        with pytest.raises(OptionError, match="embeddings: they compare pictures with one label"):
            tfrecorder.preview(tmp_path / name, embeddings=vectors, progress=False)


@pytest.mark.slow
def test_a_picture_of_a_repeated_scene_is_no_suspect(tmp_path: Path) -> None:
    """Each photograph with six shapes, as classes of whole pictures: what is behind decides."""
    case = planted(tmp_path, 11)
    frame = case.frame[["split", "image_uri"]].assign(label=[one[0] for one in case.frame["label"]])
    tfrecorder.convert(frame, tmp_path / "out", **QUIET)
    page = tfrecorder.preview(tmp_path / "out", progress=False).page
    assert not any(sheet.like for sheet in sheets_in(page).values())


@pytest.mark.parametrize("classes", [130, *slow_cases(1, 40)])
def test_the_page_stays_small_whatever_the_number_of_classes(classes: int, tmp_path: Path) -> None:
    frame = pd.concat([photo_frame()] * 5, ignore_index=True)
    frame["label"] = [f"class {number % classes}" for number in range(len(frame))]
    tfrecorder.convert(frame, tmp_path / "out", **QUIET)
    page = tfrecorder.preview(tmp_path / "out", progress=False).page
    assert len(page) < 3_000_000
    assert ('<section id="sheets"' in page) == (classes > 1)
    if classes > 60:
        assert f"60 of {classes} classes are shown" in page


def test_a_class_has_one_colour_in_all_pictures(tmp_path: Path) -> None:
    values: dict[str, Any] = {"x_min": [0.1, 0.5], "y_min": [0.1, 0.5]}
    values |= {"x_max": [0.4, 0.9], "y_max": [0.4, 0.9]}
    frame = photo_frame()[["split", "image_uri"]][:9]
    for name, pair in values.items():
        frame[name] = [pair] * 9
    names = ["ant", "bee", "cow"]
    frame["label"] = [[names[n % 3], names[(n + 1) % 3]] for n in range(9)]
    tfrecorder.convert(frame, tmp_path / "out", **QUIET)
    page = tfrecorder.preview(tmp_path / "out", progress=False).page
    keys = set(re.findall(r'<i style="background:(#\w+)"></i><bdi>(\w+)</bdi>', page))
    assert len(keys) == len(names)
    drawn = re.findall(r'stroke="(#\w{6})"', page)
    assert {*drawn} == {colour for colour, _ in keys}


@pytest.mark.slow
def test_each_split_is_compared_where_there_are_too_many_objects(tmp_path: Path) -> None:
    photos = pd.concat([photo_frame()] * 7, ignore_index=True)[["image_uri"]]
    frame = photos.assign(split="TRAIN")
    frame.loc[frame.index[-4:], "split"] = "TEST"
    sides = [number / 20 for number in range(16)]
    for name, shift in (("x_min", 0), ("y_min", 0), ("x_max", 0.2), ("y_max", 0.2)):
        frame[name] = [[side + shift for side in sides]] * len(frame)
    is_test = frame["split"] == "TEST"
    frame["label"] = [["of test" if test else "of train"] * 16 for test in is_test]
    tfrecorder.convert(frame, tmp_path / "out", **QUIET)
    sheets = sheets_in(tfrecorder.preview(tmp_path / "out", progress=False).page)
    assert {*sheets} == {"of test", "of train"}
