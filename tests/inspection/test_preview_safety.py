"""The page of `preview`: safe to open and to pass on, and written only where it may be."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.looking_cases import (
    EVIL,
    ReadPage,
    annotated,
    convert,
    noise,
    page_of,
    png,
    write_records,
)
from support import PHOTOS

import tfrecorder


@pytest.fixture(scope="module")
def page(dataset: Path) -> ReadPage:
    return page_of(dataset)


# ---------------------------------------------------------------------------------------------
# Safe to open, and to pass on.


def evil_dataset(tmp_path: Path) -> str:
    """Records whose every text is an attack."""
    record = {
        "image/encoded": png(noise(0)),
        "image/class/text": EVIL,
        "image/filename": f"../../{EVIL}.jpg",
        "image/source_id": EVIL,
        "image/format": EVIL,
        **{f"image/object/bbox/{side}min": np.array([0.1], np.float32) for side in "xy"},
        **{f"image/object/bbox/{side}max": np.array([0.9], np.float32) for side in "xy"},
        "image/object/class/text": [EVIL.encode()],
    }
    out = write_records(tmp_path / EVIL.replace("/", ""), [record, record])
    return write_records(Path(out), [record], "test-00000.tfrecord")


def test_no_text_of_the_data_becomes_markup(tmp_path: Path) -> None:
    page = page_of(evil_dataset(tmp_path))
    assert page.text.count(EVIL) > 10
    assert not page.all("script")
    allowed = {"html", "head", "meta", "link", "title", "style", "body", "header", "div", "h1"}
    allowed |= {"h2", "h3", "p", "dl", "dt", "dd", "nav", "ul", "li", "a", "main", "section"}
    allowed |= {"span", "bdi", "table", "thead", "tbody", "tr", "th", "td", "figure", "img", "svg"}
    allowed |= {
        "figcaption",
        "rect",
        "g",
        "path",
        "line",
        "text",
        "footer",
        "i",
        "strong",
        "input",
        "label",
        "details",
        "summary",
        "fieldset",
        "legend",
        "code",
    }
    assert {tag for tag, _ in page.elements} <= allowed
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on")]


@pytest.mark.parametrize("text", ["a\0b", "a\u202eb", "\ud800", "line\nbreak", "é漢🙂", " "])
def test_texts_of_every_kind_give_a_page_in_utf8(tmp_path: Path, text: str) -> None:
    stored = text.encode(errors="surrogatepass")
    keys = ("class/text", "filename", "source_id", "format")
    record = annotated(**{f"image/{key}": stored for key in keys})
    record["image/object/class/text"] = [stored, stored]
    broken = record | {"image/encoded": b"no image"}
    out = write_records(tmp_path / "in", [record, record, broken])  # a repeat, and a fault
    tfrecorder.preview(out, html="page.html")
    page = Path("page.html").read_bytes().decode()
    assert not re.search("[\0\x01-\x08\ud800-\udfff]", page)
    assert ("\u202e" in page) == ("\u202e" in text)
    assert_direction_kept(page)


def assert_direction_kept(page: str) -> None:
    """What turns the direction of writing stays within its own element."""
    assert "\u202e" not in re.sub('<bdi>.*?</bdi>|="[^"]*"', "", page)


def test_rejects_and_class_names_of_a_conversion_stay_text() -> None:
    evil = f"{EVIL}\u202e{{{{ 7 * 7 }}}}"
    rows = [("TRAIN", photo, evil) for photo in PHOTOS[:9]]
    found = tfrecorder.preview(convert([*rows, ("TRAIN", f"{evil}\x07.jpg", evil)]))
    page = ReadPage(found.page)
    assert f"9 {evil}␇.jpg read not_found" in page.text
    assert f"{evil} 9 9 100.0%" in page.text
    assert not page.all("script")
    assert_direction_kept(found.page)


@pytest.mark.parametrize("form", ["dataset", "frame"])
def test_texts_beyond_all_length_are_cut(tmp_path: Path, form: str) -> None:
    text = "x" * 100_000
    if form == "frame":
        frame = pd.DataFrame({"image_uri": ["gone.jpg"], "split": "TRAIN", "label": text})
        read = ReadPage(frame.tensorflow.preview()._repr_html_())
    else:
        keys = ("class/text", "filename", "source_id", "object/class/text")
        record = annotated(**{f"image/{key}": text for key in keys})
        read = page_of(write_records(tmp_path / "in", [record, record]))
    assert "x" * 119 + "…" in read.text
    assert "x" * 120 not in read.text


def test_it_holds_all_it_shows(page: ReadPage) -> None:
    for tag, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "poster", "action"):
            value = attributes.get(name, "#")
            assert value.startswith(("data:", "#")), (tag, name, value[:50])
        assert "url(" not in attributes.get("style", "")
    policy = [one["content"] for one in page.all("meta") if "http-equiv" in one]
    assert policy == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_every_picture_and_plot_has_words(page: ReadPage) -> None:
    assert all(one["alt"] for one in page.all("img"))
    plots = [one for one in page.all("svg") if one.get("role") == "img"]
    assert len(plots) == 6
    assert all(len(one["aria-label"]) > 30 for one in plots)


@pytest.mark.slow
def test_its_size_does_not_grow_with_the_dataset(tmp_path: Path) -> None:
    images = [png(noise(n)) for n in range(50)]
    records = (
        {"image/encoded": images[n % 50], "image/class/text": f"class {n % 3000}"}
        for n in range(10_000)
    )
    found = tfrecorder.preview(write_records(tmp_path / "in", records), num_records=3000)
    assert len(found.page) < 1_500_000
    assert found.compared == 10_000
    assert found.repeats == 50


# ---------------------------------------------------------------------------------------------
# Where it is written.


def test_it_is_written_and_replaced(dataset: Path) -> None:
    found = tfrecorder.preview(dataset, html="page.html", num_records=3, per_split=1)
    assert Path("page.html").read_text() == found.page
    again = tfrecorder.preview(dataset, html="page.html", num_records=3, per_split=2)
    assert Path("page.html").read_text() == again.page != found.page
    assert [path.name for path in Path().iterdir()] == ["page.html"]


def test_no_other_file_is_replaced(dataset: Path) -> None:
    Path("notes.html").write_text("<p>mine")
    with pytest.raises(
        tfrecorder.errors.OutputError, match=r"notes\.html already exists, and is no"
    ):
        tfrecorder.preview(dataset, html="notes.html")
    assert Path("notes.html").read_text() == "<p>mine"


@pytest.mark.parametrize(
    ("html", "words"),
    [
        ("{dataset}/page.html", "inside the dataset"),
        ("{dataset}/_tfrecorder/page.html", "inside the dataset"),
        ("nowhere/page.html", "nowhere: there is no such folder"),
        (".", "is a folder"),
        ("gs://bucket/page.html", "give a local path"),
        ("", "give a path"),
    ],
)
def test_a_place_that_cannot_be_is_refused_before_any_work(
    dataset: Path, html: str, words: str
) -> None:
    before = sorted(dataset.rglob("*"))
    with pytest.raises(tfrecorder.TfrecorderError, match=words):
        tfrecorder.preview(dataset, html=html.format(dataset=dataset))
    assert sorted(dataset.rglob("*")) == before


@pytest.mark.parametrize(
    "options",
    [{"num_records": 0}, {"per_split": 201}, {"seconds": -1}, {"seed": "x"}, {"progress": "x"}],
)
def test_a_wrong_number_is_named(dataset: Path, options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(tfrecorder.errors.OptionError, match=f"{name}={value!r}: give "):
        tfrecorder.preview(dataset, **options)


def test_a_damaged_dataset_is_named(dataset: Path, tmp_path: Path) -> None:
    out = shutil.copytree(dataset, tmp_path / "out")
    index = next(out.glob("_tfrecorder/index/train-*.idx"))
    index.write_text(index.read_text()[:-5])
    with pytest.raises(
        tfrecorder.errors.DatasetError, match=rf"{index.name} is damaged.*tfrecorder ver"
    ):
        tfrecorder.preview(out)


def test_a_damaged_record_is_named(dataset: Path, tmp_path: Path) -> None:
    out = shutil.copytree(dataset, tmp_path / "out")
    shard = next(out.glob("test-*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(
        tfrecorder.errors.DatasetError, match=rf"{shard.name} is damaged: of the record"
    ):
        tfrecorder.preview(out)
