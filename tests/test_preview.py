"""`preview`: one page that shows a dataset, right in what it says and safe to open."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from looking_cases import ReadPage, noise, png, write_records
from PIL import Image, ImageFilter
from support import CSV, PHOTOS, SAMPLES, invoke, photo_frame, run
from terminal_cases import in_terminal
from wall_cases import BEAM, TENSORFLOW, attempts_of

import tfrecorder

EVIL = "<script>alert(1)</script>\"'&"


def page_of(directory: Any, **options: Any) -> ReadPage:
    return ReadPage(tfrecorder.preview(directory, **options).page)


def convert(rows: list[tuple[str, Any, str]], **options: Any) -> str:
    """A dataset of (split, file, label)."""
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "label"]).astype(str)
    tfrecorder.convert(frame, "out", progress=False, **{"max_reject_fraction": 1.0} | options)
    return "out"


@pytest.fixture(scope="module")
def page(dataset: Path) -> ReadPage:
    return page_of(dataset)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled photographs, converted once."""
    out = tmp_path_factory.mktemp("photos") / "out"
    tfrecorder.convert(CSV, out, progress=False)
    return out


# ---------------------------------------------------------------------------------------------
# What the page says.


def sentences(directory: Any) -> str:
    """The text of a page whose names stand in their sentences without a space around them."""
    return ReadPage(re.sub("</?bdi>", "", tfrecorder.preview(directory).page)).text


def test_it_shows_each_split_with_its_counts(page: ReadPage) -> None:
    assert "TRAIN 24 of 36" in page.text
    assert "VALIDATION all 8" in page.text
    assert "TEST all 8" in page.text
    assert "Pictures and plots cover all 52 records." in page.text


def test_its_pictures_are_those_of_the_records(dataset: Path, page: ReadPage) -> None:
    from PIL import Image

    table = tfrecorder.inspect(dataset, "TEST", num_records=8)
    pictures = page.pictures()
    for row in table.itertuples():
        name = table.loc[row.Index, "image/class/text"]
        shown = pictures[f"TEST record {row.record}: {name}"]
        true = Image.open(SAMPLES / table.loc[row.Index, "image/filename"]).convert("RGB")
        assert abs(shown.width / shown.height - true.width / true.height) < 0.02
        difference = np.asarray(true.resize(shown.size), int) - np.asarray(shown, int)
        assert np.abs(difference).mean() < 12


def test_labels_are_counted_over_all_records() -> None:
    rows = [("TRAIN", PHOTOS[n], "a") for n in range(7)]
    rows += [("TRAIN", PHOTOS[n], "b") for n in range(7, 10)] + [("TEST", PHOTOS[10], "b")]
    rows += [("TRAIN", "missing.jpg", "b")] * 2
    page = page_of(convert(rows), num_records=1, per_split=1)
    assert "Counts cover all records" in page.text
    assert "a 7 7 70.0% 0 b 4 3 30.0% 1 100.0% all 11 10 1" in page.text


def test_it_says_what_it_sampled(dataset: Path) -> None:
    page = page_of(dataset, num_records=5, per_split=3)
    assert (
        "Sampled: pictures and plots cover 15 records, drawn at random from 52 "
        "(seed 0): 5 of 36 in TRAIN, 5 of 8 in VALIDATION, 5 of 8 in TEST." in page.text
    )
    assert len([one for one in page.all("img") if one["width"] > "200"]) <= 9


def test_another_seed_draws_other_records(dataset: Path) -> None:
    def drawn(seed: int) -> list[str]:
        pictures = page_of(dataset, num_records=6, per_split=6, seed=seed).all("img")
        return [one["alt"] for one in pictures[:6]]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_the_same_dataset_gives_the_same_page(dataset: Path) -> None:
    assert tfrecorder.preview(dataset).page == tfrecorder.preview(dataset).page


def test_copies_across_splits_are_leakage() -> None:
    shutil.copy(PHOTOS[0], "copy.jpg")
    rows = [("TRAIN", photo, "a") for photo in PHOTOS[:9]]
    rows += [("TEST", "copy.jpg", "b"), ("TEST", PHOTOS[20], "a")]
    found = tfrecorder.preview(convert(rows))
    assert (found.leaks, found.repeats) == (1, 0)
    page = ReadPage(found.page)
    assert (
        "Error Leakage: 1 TEST record is also in TRAIN, byte for byte (50% of the TEST records "
        "compared): brick/brick_01.jpg. The evaluation" in sentences("out")
    )
    assert "Warning 1 image has different labels in different records: brick" in page.text
    assert page.text.index("Error Leakage") < page.text.index("Warning 1 image has different")
    assert "TRAIN × 1, TEST × 1 · different labels" in page.text
    assert "copy.jpg" in page.text


def test_copies_in_one_split_are_repeats() -> None:
    rows = [("TRAIN", PHOTOS[n % 4], "a") for n in range(10)] + [("TEST", PHOTOS[9], "a")]
    found = tfrecorder.preview(convert(rows))
    assert (found.leaks, found.repeats) == (0, 4)
    assert (
        "6 records repeat an image of the same split, byte for byte: brick/"
        in ReadPage(found.page).text
    )


def test_copies_in_one_split_are_repeats_also_where_they_leak() -> None:
    rows = [("TRAIN", PHOTOS[0], "a")] * 3 + [("TEST", PHOTOS[0], "a"), ("TEST", PHOTOS[9], "a")]
    found = tfrecorder.preview(convert(rows))
    assert (found.leaks, found.repeats) == (1, 1)
    assert "2 records repeat an image of the same split" in ReadPage(found.page).text


def test_images_that_differ_only_at_their_end_are_no_copies(tmp_path: Path) -> None:
    # Longer than the head that is compared first; the last two are the same.
    images = [png(noise(0, 60, 60))[:-12] + b"tail" + bytes([n]) * 8 for n in (1, 2, 2)]
    assert len(images[0]) > 8192
    found = tfrecorder.preview(
        write_records(tmp_path / "in", [{"image/encoded": one} for one in images])
    )
    assert found.repeats == 1
    assert "TRAIN × 2" in ReadPage(found.page).text


def test_keys_in_any_order_and_of_any_size_are_compared(tmp_path: Path) -> None:
    records = [{"image/encoded": png(noise(n % 2)), "image/a": bytes([n]) * 9000} for n in range(3)]
    assert tfrecorder.preview(write_records(tmp_path / "in", records)).repeats == 1


def test_a_search_that_had_no_time_says_so(dataset: Path) -> None:
    found = tfrecorder.preview(dataset, seconds=0)
    assert found.compared < found.records
    text = ReadPage(found.page).text
    assert "Sampled: within the time given, 0 of 52 records were compared" in text
    assert "No image appears twice among" not in text


def test_near_constant_images_are_found() -> None:
    from PIL import Image

    Image.new("RGB", (40, 30), (250, 250, 250)).save("white.png")
    rows = [("TRAIN", photo, "a") for photo in PHOTOS[:9]] + [("TRAIN", "white.png", "empty")]
    found = tfrecorder.preview(convert(rows))
    assert found.near_constant == 1
    text = ReadPage(found.page).text
    assert "1 of 10 images is near-constant: their grey levels vary by less than" in text
    assert re.search("Near-constant .{0,70} empty TRAIN · row 9", text)


def made(name: str, level: float, spread: float = 30, size: tuple[int, int] = (60, 80)) -> str:
    """A picture of patches around a grey level, as JPEG."""
    from PIL import Image

    height, width = size
    patches = np.random.default_rng(zlib.crc32(name.encode())).normal(
        size=(height // 20, width // 20)
    )
    patches = level + spread * (patches - patches.mean()) / patches.std()
    pixels = np.kron(patches, np.ones((20, 20))).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(name, quality=95)
    return name


def test_what_is_unlike_others_is_found_among_all_records_not_in_the_sample() -> None:
    rows = [("TRAIN", made(f"{n}.jpg", 120), "a") for n in range(20)]
    odd = [made("white.jpg", 250, 0), made("fog.jpg", 140, 6), made("night.jpg", 20, 10)]
    odd += [made("snow.jpg", 235, 10), made("large.jpg", 120, size=(400, 300))]
    odd += [made("strip.jpg", 120, size=(60, 400))]
    found = tfrecorder.preview(
        convert([*rows, *(("TEST", name, "a") for name in odd)]), num_records=1, per_split=1
    )
    assert (found.looked_at, found.near_constant) == (2, 1)
    for row, words in enumerate(
        [
            "near-constant: their grey levels vary by less than 4 of 255",
            "of low contrast: their grey levels vary by less than 8 of 255",
            "dark: nearly all of their pixels are below the grey level 64 of 255",
            "bright: nearly all of their pixels are above the grey level 192 of 255",
            "of an odd size: their shorter side is below 15 or above 240 pixels, the median is 60",
            "of an odd shape: their sides stand at more than 4.0 : 1, the median at 1.3 : 1",
        ],
        start=20,
    ):
        assert f"warning: 1 of 26 images is {words} (TEST row {row})." in found.findings
    text = ReadPage(found.page).text
    assert re.search("Darkest .{0,200} TEST · row 22", text)
    assert re.search("Of an odd shape 1, their sides .{0,100} TEST · row 25", text)


def test_blurred_images_are_found_in_the_sample() -> None:
    rows = [("TRAIN", photo, "a") for photo in PHOTOS[:20]]
    for number, photo in enumerate(PHOTOS[:3]):
        with Image.open(photo) as sharp:
            sharp.filter(ImageFilter.GaussianBlur(4)).save(f"{number}.jpg", quality=95)
        rows.append(("TRAIN", f"{number}.jpg", "a"))
    findings = tfrecorder.preview(convert(rows)).findings
    words = "smoothing hardly changes their edges"
    (found,) = [text for text in findings if words in text]
    begin = f"warning: 3 of 23 images looked at in full size are blurred: {words} ("
    assert found.startswith(begin)
    assert {*re.findall(r"TRAIN row (\d+)", found)} == {"20", "21", "22"}


@pytest.mark.slow
def test_what_differs_between_splits_is_named_with_both_shares() -> None:
    rows = [("TRAIN", made(f"{n}.jpg", 90 + n), "b" if n % 4 else "a") for n in range(60)]
    others = [made(f"t{n}.jpg", 170 + n % 40, size=(40, 60)) for n in range(60)]
    rows += [("TEST", name, "a") for name in others]
    found = tfrecorder.preview(convert(rows), num_records=1, per_split=1).findings
    assert "warning: Class 'a' has 100% of the labels of TEST and 25% of those of TRAIN." in found
    words = "100% of the images of TEST and 0% of those of TRAIN have a shorter side of at most 40"
    assert f"warning: {words}." in found
    assert any("of those of TRAIN have a mean grey level of at most" in one for one in found)
    same = [(split, f"{n}.jpg", "ab"[n % 2]) for n in range(60) for split in ("TRAIN", "TEST")]
    frame = pd.DataFrame(same, columns=["split", "image_uri", "label"])
    tfrecorder.convert(frame, "same", progress=False)
    assert not [one for one in tfrecorder.preview("same").findings if "of those of" in one]


@pytest.mark.slow
def test_what_differs_in_the_newest_generation_is_named() -> None:
    rows = [("TRAIN", made(f"{n}.jpg", 90 + n * 37 % 60), "ab"[n % 2]) for n in range(60)]
    convert(rows[:40])
    names = ["split", "image_uri", "label"]
    tfrecorder.append(pd.DataFrame(rows[40:60], columns=names), "out", progress=False)
    assert not [one for one in tfrecorder.preview("out").findings if "of those of" in one]
    new = [("TRAIN", made(f"n{n}.jpg", 200, size=(120, 160)), "b") for n in range(30)]
    tfrecorder.append(pd.DataFrame(new, columns=names), "out", progress=False)
    found = tfrecorder.preview("out").findings
    of = "of generation 2 and {} of those of the earlier generations"
    assert f"warning: Class 'a' has 0% of the labels {of.format('50%')}." in found
    words = f"0% of the images {of.format('100%')} have a shorter side of at most 60."
    assert f"warning: {words}" in found
    tfrecorder.remove("out", {"image_uri": "0.jpg"}, progress=False)
    found = tfrecorder.preview("out").findings  # as of before it cannot be read any more
    assert not [one for one in found if "of those of" in one]


def test_rejects_are_shown_with_their_reasons() -> None:
    Path("cut.jpg").write_bytes(PHOTOS[0].read_bytes()[:700])
    rows = [("TRAIN", photo, "a") for photo in PHOTOS[:9]]
    page = page_of(convert([*rows, ("TRAIN", "cut.jpg", "a"), ("TRAIN", "gone.jpg", "a")]))
    assert "2 rows gave no record: check/truncated (1), read/not_found (1)." in page.text
    assert "check/truncated 1" in page.text
    assert "10 gone.jpg read not_found" in page.text


def test_a_split_without_records_and_classes_without_train() -> None:
    rows = [("TRAIN", photo, "a") for photo in PHOTOS[:9]]
    rows += [("TEST", "gone.jpg", "a"), ("VALIDATION", PHOTOS[10], "b")]
    page = page_of(convert(rows))
    assert "TEST all 0 No records." in page.text
    text = sentences("out")
    mended = "A conversion with `stratify=True` gives each split its share of every class."
    assert f"Warning 1 class has no TRAIN record: 'b'. {mended}" in text
    assert f"Warning 1 class has no VALIDATION record: 'a'. {mended}" in text
    assert "no TEST record" not in text  # it has none at all


def test_classes_are_named_and_the_rest_of_them_counted() -> None:
    rows = [("TRAIN", PHOTOS[n], "many") for n in range(21)] + [("TRAIN", PHOTOS[21], "few")]
    rows += [("TEST", PHOTOS[22 + n], f"c{n}") for n in range(5)]
    text = sentences(convert(rows))
    assert "5 classes have no TRAIN record: 'c0', 'c1', 'c2' and 2 more." in text
    assert "Class 'many' has 21 times the TRAIN records of 'few'. `tfrecorder.batches(" in text


@pytest.mark.parametrize(("many", "is_named"), [(10, False), (11, True)])
def test_an_imbalance_beyond_ten_to_one_is_named(many: int, is_named: bool) -> None:
    rows = [("TRAIN", photo, "many") for photo in PHOTOS[:many]] + [("TRAIN", PHOTOS[20], "few")]
    assert ("times the TRAIN records" in sentences(convert(rows))) == is_named


def test_findings_come_first_then_splits_labels_and_pictures(page: ReadPage) -> None:
    sections = [one["id"] for one in page.all("section")]
    assert sections[:4] == ["findings", "splits", "labels", "records"]


def test_eight_pictures_of_a_split_are_there_and_the_others_behind_a_click(page: ReadPage) -> None:
    assert "TRAIN 24 of 36" in page.text
    assert len(page.all("summary")) == 1  # TEST and VALIDATION have eight each
    assert "16 more" in page.text


def test_what_lies_beyond_the_percentiles_is_counted_not_drawn(tmp_path: Path) -> None:
    sizes = [(30, 40 + n % 20) for n in range(198)] + [(30, 3000), (3, 40)]
    records = [{"image/encoded": png(noise(n, *size))} for n, size in enumerate(sizes)]
    text = page_of(write_records(tmp_path / "in", records)).text
    assert re.search(r"Aspect: .{0,80}not shown: 1 above 13\.3, up to 100", text)
    assert re.search(r"Shorter side in pixels .{0,80}not shown: 1 below 30, down to 3", text)
    few = page_of(write_records(tmp_path / "few", records[150:])).text
    assert "not shown: " not in few  # of fewer than a hundred, none is an outlier


def test_a_dataset_without_any_record(tmp_path: Path) -> None:
    page = page_of(write_records(tmp_path / "in", []))
    assert "TRAIN all 0 No records." in page.text
    assert not page.all("img")


@pytest.mark.slow
@pytest.mark.parametrize("labels", [None, [7] * 9, [f"class {n}" for n in range(50)]])
def test_labels_of_every_kind(labels: list[Any] | None) -> None:
    frame = photo_frame(len(labels or PHOTOS)).drop(columns="label")
    if labels:
        frame["label"] = labels
    tfrecorder.convert(frame, "out", progress=False)
    page = page_of("out")
    if labels is None:
        assert "no label" in page.text
        assert not [one for one in page.all("section") if one.get("id") == "labels"]
    elif len(labels) > 30:
        assert all(f" {name} 1 1 " in page.text for name in labels)
    else:
        assert "7 9 9 100.0%" in page.text


# ---------------------------------------------------------------------------------------------
# Boxes and masks.


def annotated(**features: Any) -> dict[str, Any]:
    """A grey image with two boxes."""
    sides = {"xmin": [0.1, 0.5], "ymin": [0.2, 0.0], "xmax": [0.6, 1.5], "ymax": [0.8, 0.25]}
    boxes = {f"image/object/bbox/{k}": np.array(v, np.float32) for k, v in sides.items()}
    names = {"image/object/class/text": [b"eye", b"<b>ear"]}
    grey = np.full((90, 120, 3), 128, np.uint8)
    return {"image/encoded": png(grey), **boxes, **names, **features}


def test_boxes_are_drawn_where_they_are(tmp_path: Path) -> None:
    page = page_of(write_records(tmp_path / "in", [annotated()]))
    drawn = {
        tuple(float(one[side]) for side in ("x", "y", "width", "height"))
        for one in page.all("rect")
    }
    assert drawn == {(0.1, 0.2, 0.5, 0.6), (0.5, 0.0, 0.5, 0.25)}  # cut to the image
    alts = [one["alt"] for one in page.all("img")]
    assert "TRAIN record 0: eye, <b>ear; 2 boxes: eye, <b>ear" in alts


def test_a_mask_is_laid_over_its_image(tmp_path: Path) -> None:
    mask = np.zeros((90, 120), np.uint8)
    mask[:45, :60] = 1
    mask[45:, 60:] = 255  # "ignore", which is not a class
    record = {"image/encoded": png(np.full((90, 120, 3), 128, np.uint8))}
    record["image/segmentation/class/encoded"] = png(mask)
    page = page_of(write_records(tmp_path / "in", [record]))
    shown = np.asarray(page.pictures()["TRAIN record 0: no label; with its mask"], int)
    assert np.ptp(shown[20, 30]) > 40
    for other in (shown[20, 90], shown[70, 30], shown[70, 90]):
        assert np.abs(other - 128).max() < 6


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"image/object/bbox/xmax": np.array([0.5], np.float32)}, "do not have four sides"),
        ({"image/object/bbox/xmax": np.array([0.5, np.nan], np.float32)}, "is not a number"),
        ({"image/object/class/text": [b"eye"]}, "2 boxes, but 1 classes"),
        ({"image/segmentation/class/encoded": b"no image"}, "cannot identify image"),
        ({"image/encoded": b"no image"}, "cannot identify image"),
        ({"image/encoded": b""}, "cannot identify image"),
    ],
)
def test_a_record_that_cannot_be_drawn_says_why(
    tmp_path: Path, broken: dict[str, Any], words: str
) -> None:
    page = page_of(write_records(tmp_path / "in", [annotated(**broken)]))
    assert words in page.text
    assert "0x" not in page.text  # no address of an object


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
    assert "note: No image appears twice among all 52 records." in result.output


@pytest.mark.slow
def test_in_a_terminal_a_bar_counts_the_records(dataset: Path) -> None:
    command = ["-m", "tfrecorder", "preview", str(dataset), "--html", "page.html"]
    shown = in_terminal(*command)
    for stage in ("decoding", "comparing", "drawing"):
        assert re.search(rf"{stage}: 100%\|[^|]*\| \d+/\d+ \[[^]]+ records/s\]", shown), stage
    quiet = in_terminal(*command, "--no-progress")
    assert "records/s" not in quiet
    assert quiet.startswith("page.html (")


def test_elsewhere_there_is_a_bar_only_where_it_is_asked_for(dataset: Path) -> None:
    command = ["preview", str(dataset), "--html", "page.html"]
    assert invoke(*command).stderr == ""
    asked = invoke(*command, "--progress").stderr
    assert "comparing: 100%" in asked


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
