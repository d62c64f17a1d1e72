"""`preview` of directories that other tools wrote, in a shell, in a notebook, and of a frame."""

from __future__ import annotations

import itertools
import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from helpers.looking_cases import EVIL, ReadPage, noise, page_of, png, write_records
from helpers.terminal_cases import in_terminal
from helpers.wall_cases import BEAM, TENSORFLOW, attempts_of
from support import SAMPLES, invoke, photo_frame, run

import tfrecorder

# ---------------------------------------------------------------------------------------------
# Directories that other tools wrote, and other stores.


def test_a_tfds_directory_has_its_own_keys_and_names(tmp_path: Path) -> None:
    records = [{"image": png(noise(n)), "label": n % 2, "file_name": f"{n}.png"} for n in range(6)]
    out = Path(write_records(tmp_path / "1.0.0", records, "birds-train.tfrecord-00000-of-00001"))
    kind = "tensorflow_datasets.core.features"
    forms = {
        "image": {"pythonClassName": f"{kind}.image_feature.Image"},
        "label": {"pythonClassName": f"{kind}.class_label_feature.ClassLabel"},
        "file_name": {"pythonClassName": f"{kind}.text_feature.Text"},
    }
    (out / "features.json").write_text(json.dumps({"featuresDict": {"features": forms}}))
    splits = [{"name": "train", "shardLengths": ["6"]}]
    (out / "dataset_info.json").write_text(json.dumps({"name": "birds", "splits": splits}))
    (out / "label.labels.txt").write_text("heron\nwren\n")
    page = page_of(out)
    assert "Counts cover the records looked at" in page.text
    assert "heron 3 3 50.0% wren 3 3 50.0%" in page.text
    assert "TRAIN record 1: wren" in [one["alt"] for one in page.all("img")]
    assert "5.png" in page.text
    assert not [one for one in page.all("section") if one.get("id") in ("rejects", "options")]


def test_a_dataset_on_another_store_is_read_from_there(dataset: Path) -> None:
    store = pytest.importorskip("fsspec").filesystem("memory")
    for path in filter(Path.is_file, dataset.rglob("*")):
        store.pipe(f"/preview/{path.relative_to(dataset)}", path.read_bytes())
    try:
        there = ReadPage(tfrecorder.preview("memory://preview").page)
        assert there.all("img") == page_of(dataset).all("img")
        table = tfrecorder.inspect("memory://preview", "TEST", 3)
        pd.testing.assert_frame_equal(table, tfrecorder.inspect(dataset, "TEST", 3))
    finally:
        store.rm("/preview", recursive=True)


# ---------------------------------------------------------------------------------------------
# From a shell, and in a notebook.


def test_the_command_says_what_it_made(dataset: Path) -> None:
    arguments = ["preview", str(dataset), "--html", "page.html", "--num-records", "30"]
    result = invoke(*arguments)
    assert result.exit_code == 0
    assert re.match(r"page\.html \(\d+\.\d KiB\)\n\nSampled: ", result.output)
    assert "note: Copies among all 52 records: 0 exact (same bytes), 0 near" in result.output


@pytest.mark.slow
def test_in_a_terminal_a_bar_counts_the_records(dataset: Path) -> None:
    command = ["-m", "tfrecorder", "preview", str(dataset), "--html", "page.html"]
    shown = in_terminal(*command)
    for stage in ("decoding", "drawing"):
        assert re.search(rf"{stage}: 100%\|[^|]*\| \d+/\d+ \[[^]]+ records/s\]", shown), stage
    quiet = in_terminal(*command, "--no-progress")
    assert "records/s" not in quiet
    assert quiet.startswith("page.html (")


def test_elsewhere_there_is_a_bar_only_where_it_is_asked_for(dataset: Path) -> None:
    command = ["preview", str(dataset), "--html", "page.html"]
    assert invoke(*command).stderr == ""
    asked = invoke(*command, "--progress").stderr
    assert "decoding: 100%" in asked


def test_the_command_fails_in_one_line() -> None:
    result = invoke("preview", "nowhere", "--html", "page.html")
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "nowhere: there is no such directory" in result.output


@pytest.mark.slow
@pytest.mark.parametrize("given", [[], ["--html", "page.html"]], ids=["temporary", "named"])
def test_open_shows_the_page_in_the_browser(dataset: Path, given: list[str]) -> None:
    Path("browser").write_text('#!/bin/sh\nprintf "%s" "$1" > opened\n')
    Path("browser").chmod(0o755)
    environment = {**os.environ, "BROWSER": f"{Path('browser').resolve()} %s"}
    ended = run("-m", "tfrecorder", "preview", dataset, "--open", *given, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    written = ended.stdout.partition(" (")[0]
    assert Path("opened").read_text() == Path(written).resolve().as_uri()
    assert Path(written).read_text().startswith("<!doctype html>")
    assert not given or written == "page.html"
    environment["BROWSER"] = "/nowhere/browser %s"
    environment["PATH"] = "/nowhere"
    ended = run("-m", "tfrecorder", "preview", dataset, "--open", *given, env=environment)
    assert ended.returncode == 0
    assert re.fullmatch(r"warning: no browser could be started; open .+ yourself\.\n", ended.stderr)


def test_a_page_without_a_name_is_named_for_its_dataset(dataset: Path) -> None:
    for words in ([str(dataset)], [f"{dataset}/*.tfrecord"]):
        ended = invoke("preview", *words, "--num-records", "3")
        assert ended.exit_code == 0, ended.output
        written = ended.stdout.partition(" (")[0]
        assert Path(written).read_text().startswith("<!doctype html>")
        assert Path(written).parent.resolve() == Path.cwd()
    assert {path.name for path in Path().iterdir()} == {
        f"{dataset.name}-preview.html",
        "tfrecord-preview.html",
    }


def test_in_a_notebook_it_is_a_frame_apart(dataset: Path) -> None:
    found = tfrecorder.preview(dataset, num_records=3, per_split=1)
    shown = ReadPage(found._repr_html_())
    (inner,) = shown.all("iframe")
    assert inner["srcdoc"] == found.page
    assert inner["sandbox"] == ""


@pytest.mark.slow
def test_it_needs_neither_tensorflow_nor_beam(dataset: Path) -> None:
    code = f"import tfrecorder; tfrecorder.preview({str(dataset)!r}, html='page.html')"
    assert attempts_of(code, (*TENSORFLOW, *BEAM)) == []
    assert Path("page.html").exists()


# ---------------------------------------------------------------------------------------------
# A frame before it is converted.


def test_a_frame_shows_its_images() -> None:
    frame = photo_frame(30).assign(label=EVIL)
    found = frame.tensorflow.preview(5)
    page = ReadPage(found._repr_html_())
    assert "5 of 30 rows, drawn at random" in page.text
    assert len(page.all("img")) == 5
    assert page.text.count(EVIL) == 5
    assert not page.all("script")
    assert frame.tensorflow.preview(5, seed=0) == found != frame.tensorflow.preview(5, seed=3)


def test_a_frame_shows_why_an_image_cannot_be_shown() -> None:
    Path("cut.png").write_bytes((SAMPLES / "mixed/cat_rgb.png").read_bytes()[:20])
    uris = [str(SAMPLES / "mixed/coffee.webp"), "gone.jpg", None, "cut.png", 7]
    found = pd.DataFrame({"image_uri": uris}).tensorflow.preview()
    assert [one.fault.partition(":")[0] for one in found.rows] == [
        *("", "not_found", "the image is missing", "truncated", "not_found"),
    ]
    printed = str(found)
    assert printed.startswith("all 5 rows")
    assert "240 x 180" in printed or re.search(r"\d+ x \d+", printed)


def test_a_frame_without_images_is_told_to_rename_their_column() -> None:
    frame = photo_frame(3).rename(columns={"image_uri": "path"})
    words = r"no column 'image_uri'.*`frame.rename\(columns={'path': 'image_uri'}\)`"
    with pytest.raises(tfrecorder.errors.SourceError, match=words):
        frame.tensorflow.preview()


def test_a_frame_is_left_as_it_is() -> None:
    frame = photo_frame(3)
    before = frame.copy()
    frame.tensorflow.preview()
    pd.testing.assert_frame_equal(frame, before)
    assert not list(itertools.chain(Path().iterdir()))
