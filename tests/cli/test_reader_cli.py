"""The commands about reading."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from helpers.reading_cases import SAMPLES, convert_images, convert_photos, jpeg
from support import commands, invoke

import tfrecorder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


def run(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_info_shows_splits_and_classes(out: str) -> None:
    shown = run("info", out)
    assert "TRAIN            36" in shown
    assert "classes: 4: 'brick', 'cat', 'coffee', 'gravel'" in shown


@pytest.mark.slow
def test_benchmark_shows_rates_and_waiting(out: str) -> None:
    options = ["--batch-size", "6", "--image-size", "32x48", "--seconds", "0.3"]
    shown = run("benchmark", out, *options, "--step-ms", "20")
    assert "\nlimited by " in shown
    for words in ("images/s", "MB/s", "to the first batch", "step of 20 ms"):
        assert words in shown


def test_a_wrong_size_is_said(out: str) -> None:
    result = invoke("benchmark", out, "--image-size", "big")
    assert result.exit_code == 2
    assert "write, for example, 224" in result.output


def test_options_are_documented() -> None:
    for command in (commands()["info"], commands()["benchmark"]):
        assert command.help
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help  # type: ignore[attr-defined]


def test_info_shows_rejects(tmp_path: Path) -> None:
    good = (SAMPLES / "mixed/cat_rgb.png").read_bytes()
    images = {f"{n}.png": good for n in range(4)} | {"bad.png": good[:500]}
    out = convert_images(tmp_path / "out", images, max_reject_fraction=1.0)
    assert "rejects: 1 " in run("info", out)
    assert "rejects.csv" in run("info", out)


def test_info_counts_the_records_of_each_class(out: str) -> None:
    lines = run("info", out).splitlines()
    at = lines.index("class   TRAIN  VALIDATION  TEST  all")
    assert lines[at + 1 : at + 5] == [
        f"{name:6}      9           2     2   13" for name in ("brick", "cat", "coffee", "gravel")
    ]


def test_info_leaves_rejects_out_of_the_counts(tmp_path: Path) -> None:
    photos = pd.read_csv(SAMPLES / "photos.csv")
    photos["image_uri"] = [str(SAMPLES / uri) for uri in photos["image_uri"]]
    photos.loc[photos["label"] == "cat", "image_uri"] += ".gone"
    tfrecorder.convert(photos, tmp_path / "out", progress=False, max_reject_fraction=1.0)
    found = tfrecorder.info(tmp_path / "out")
    assert found.class_counts == {
        split: dict.fromkeys(("brick", "coffee", "gravel"), count)
        for split, count in (("TRAIN", 9), ("VALIDATION", 2), ("TEST", 2))
    }
    assert "cat         0           0     0    0" in str(found)
    assert found.rejects == {"read/not_found": 13}


def test_info_says_sizes_and_orientation(out: str, tmp_path: Path) -> None:
    assert "sizes: shorter side 120 to 180, longer side 160 to 240 pixels" in run("info", out)
    turned = (SAMPLES / "mixed/cat_orientation_6.jpg").read_bytes()
    shown = run("info", convert_images(tmp_path / "out", {"turned.jpg": turned}))
    assert "orientation: 1 image carries an EXIF orientation" in shown


def test_info_for_programs_holds_all_of_it(out: str) -> None:
    found = json.loads(run("info", out, "--json"))
    assert found["splits"]["TRAIN"]["records"] == 36
    assert (found["records"], found["shards"]) == (52, 12)
    assert found["bytes"] == sum(path.stat().st_size for path in Path(out).glob("*.tfrecord"))
    assert found["class_names"] == ["brick", "cat", "coffee", "gravel"]
    assert found["class_counts"]["TEST"] == dict.fromkeys(found["class_names"], 2)
    assert found["image_shape"] == [None, None, 3]
    assert found["image_sides"] == [[120, 180], [160, 240]]
    assert found["formats"] == {"jpeg": 52}
    assert found["rejects"] == {}
    assert found["options"]["num_shards"] == 4
    assert found["form"] == "tfrecorder"


def test_info_shows_the_most_frequent_of_many_classes(tmp_path: Path) -> None:
    images = {f"{n}.png": jpeg(np.full((8, 8, 3), n % 256, np.uint8)) for n in range(60)}
    folder = tmp_path / "images"
    folder.mkdir()
    rows = []
    for n, (name, data) in enumerate(images.items()):
        (folder / name).write_bytes(data)
        rows.append(("TRAIN", str(folder / name), f"class {n % 31:02d}"))
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "label"])
    tfrecorder.convert(frame, tmp_path / "out", progress=False)
    shown = run("info", str(tmp_path / "out"))
    assert shown.count("\nclass ") == 21
    assert "… 11 more" in shown
    assert "class 30" not in shown.partition("more")[0]  # one record; the others have two
    html = tfrecorder.info(tmp_path / "out")._repr_html_()
    splits, classes, columns, values = 1 + 1, 1 + 20, 1 + 2, 1 + 1
    assert html.count("<tr>") == splits + classes + columns + values


def test_info_needs_no_tables(out: str, tmp_path: Path) -> None:
    copy = shutil.copytree(out, tmp_path / "out")
    shutil.rmtree(copy / "_tfrecorder/tables")
    assert tfrecorder.info(copy).class_counts == tfrecorder.info(out).class_counts
    assert "classes: 4: 'brick'" in run("info", str(copy))


def test_a_class_name_cannot_move_the_cursor(tmp_path: Path) -> None:
    data = (SAMPLES / "mixed/cat_rgb.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data)
    frame = pd.DataFrame({"image_uri": [str(tmp_path / "a.png")], "label": ["\x1b[2Jx"]})
    tfrecorder.convert(frame.assign(split="TRAIN"), tmp_path / "out", progress=False)
    assert "\x1b" not in run("info", str(tmp_path / "out"))
