"""`preview`: one page that shows a dataset, right in what it says and safe to open."""

from __future__ import annotations

import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.looking_cases import ReadPage, annotated, convert, noise, page_of, png, write_records
from PIL import Image, ImageFilter
from support import PHOTOS, SAMPLES, photo_frame

import tfrecorder


@pytest.fixture(scope="module")
def page(dataset: Path) -> ReadPage:
    return page_of(dataset)


# ---------------------------------------------------------------------------------------------
# What the page says.


def sentences(directory: Any) -> str:
    """The text of a page whose names stand in their sentences without a space around them."""
    return ReadPage(re.sub("</?(bdi|code)>", "", tfrecorder.preview(directory).page)).text


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
        "compared): copy.jpg. The evaluation" in sentences("out")
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
        "Warning Copies among all 11 records: 6 exact (same bytes), 0 near"
        in ReadPage(found.page).text
    )


def test_copies_in_one_split_are_repeats_also_where_they_leak() -> None:
    rows = [("TRAIN", PHOTOS[0], "a")] * 3 + [("TEST", PHOTOS[0], "a"), ("TEST", PHOTOS[9], "a")]
    found = tfrecorder.preview(convert(rows))
    assert (found.leaks, found.repeats) == (1, 1)
    assert found.copies.exact == 3


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


def test_a_search_that_had_no_time_says_so(tmp_path: Path) -> None:
    records = [{"image/encoded": png(noise(n))} for n in range(3)]
    found = tfrecorder.preview(write_records(tmp_path / "in", records), seconds=0)
    assert found.compared < found.records
    text = ReadPage(found.page).text
    assert "Sampled: within the time given, 0 of 3 records were compared" in text
    assert "Copies among" not in text


def test_near_constant_images_are_found() -> None:
    from PIL import Image

    Image.new("RGB", (40, 30), (250, 250, 250)).save("white.png")
    rows = [("TRAIN", photo, "a") for photo in PHOTOS[:9]] + [("TRAIN", "white.png", "empty")]
    found = tfrecorder.preview(convert(rows))
    assert found.near_constant == 1
    text = ReadPage(found.page).text
    assert "1 of 10 images is near-constant: their grey levels vary by less than" in text
    assert re.search("Near-constant .{0,70} empty TRAIN · row 9", text)


def test_what_was_not_compared_is_not_called_well() -> None:
    out = convert([("TRAIN", photo, "a") for photo in PHOTOS[:3]], check="header")
    found = tfrecorder.preview(out)
    (unknown,) = (one for one in found.findings if one.startswith("unknown: "))
    assert "3 images have no fingerprint, so near copies of them are not found" in unknown
    assert re.search(r"Not compared: [^>]*>\?<.{0,20}Near copies: 3", found.page, re.DOTALL)


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
    for name, words in zip(
        odd,
        [
            "near-constant: their grey levels vary by less than 4 of 255",
            "of low contrast: their grey levels vary by less than 8 of 255",
            "dark: nearly all of their pixels are below the grey level 64 of 255",
            "bright: nearly all of their pixels are above the grey level 192 of 255",
            "of an odd size: their shorter side is below 15 or above 240 pixels, the median is 60",
            "of an odd shape: their sides stand at more than 4.0 : 1, the median at 1.3 : 1",
        ],
        strict=True,
    ):
        begin = f"warning: 1 of 26 images is {words} ({name})."
        assert any(one.startswith(begin) for one in found.findings)
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
    assert {*re.findall(r"\d\.jpg", found)} == {"0.jpg", "1.jpg", "2.jpg"}


@pytest.mark.slow
def test_what_differs_between_splits_is_named_with_both_shares() -> None:
    rows = [("TRAIN", made(f"{n}.jpg", 90 + n), "b" if n % 4 else "a") for n in range(60)]
    others = [made(f"t{n}.jpg", 170 + n % 40, size=(40, 60)) for n in range(60)]
    rows += [("TEST", name, "a") for name in others]
    found = tfrecorder.preview(convert(rows), num_records=1, per_split=1).findings
    begin = "warning: Class 'a' has 100% of the labels of TEST and 25% of those of TRAIN. Look: "
    assert [one for one in found if one.startswith(begin)]
    words = "100% of the images of TEST and 0% of those of TRAIN have a shorter side of at most 40"
    assert [one for one in found if one.startswith(f"warning: {words}.")]
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
    begin = f"warning: Class 'a' has 0% of the labels {of.format('50%')}. Look: "
    assert [one for one in found if one.startswith(begin)]
    words = f"0% of the images {of.format('100%')} have a shorter side of at most 60."
    assert [one for one in found if one.startswith(f"warning: {words}")]
    tfrecorder.remove("out", {"image_uri": "0.jpg"}, progress=False)
    found = tfrecorder.preview("out").findings  # as of before it cannot be read any more
    assert not [one for one in found if "of those of" in one]


def test_rejects_are_shown_with_their_reasons() -> None:
    Path("cut.jpg").write_bytes(PHOTOS[0].read_bytes()[:700])
    rows = [("TRAIN", photo, "a") for photo in PHOTOS[:9]]
    page = page_of(convert([*rows, ("TRAIN", "cut.jpg", "a"), ("TRAIN", "gone.jpg", "a")]))
    reasons = "check/truncated (1), read/not_found (1): cut.jpg , gone.jpg ."
    assert f"2 rows gave no record: {reasons}" in page.text
    assert "check/truncated 1" in page.text
    assert "10 gone.jpg read not_found" in page.text


def test_a_split_without_records_and_classes_without_train() -> None:
    rows = [("TRAIN", photo, "a") for photo in PHOTOS[:9]]
    rows += [("TEST", "gone.jpg", "a"), ("VALIDATION", PHOTOS[10], "b")]
    page = page_of(convert(rows))
    assert "TEST all 0 No records." in page.text
    text = sentences("out")
    mended = "A conversion with stratify=True gives each split its share of every class."
    assert f"Warning 1 class has no TRAIN record: 'b'. {mended}" in text
    assert f"Warning 1 class has no VALIDATION record: 'a'. {mended}" in text
    assert "no TEST record" not in text  # it has none at all


def test_classes_are_named_and_the_rest_of_them_counted() -> None:
    rows = [("TRAIN", PHOTOS[n], "many") for n in range(21)] + [("TRAIN", PHOTOS[21], "few")]
    rows += [("TEST", PHOTOS[22 + n], f"c{n}") for n in range(5)]
    text = sentences(convert(rows))
    assert "5 classes have no TRAIN record: 'c0', 'c1', 'c2' and 2 more." in text
    assert "Class 'many' has 21 times the TRAIN records of 'few'. balance='label' of" in text


@pytest.mark.parametrize(("many", "is_named"), [(10, False), (11, True)])
def test_an_imbalance_beyond_ten_to_one_is_named(many: int, is_named: bool) -> None:
    rows = [("TRAIN", photo, "many") for photo in PHOTOS[:many]] + [("TRAIN", PHOTOS[20], "few")]
    assert ("times the TRAIN records" in sentences(convert(rows))) == is_named


def test_findings_come_first_then_splits_labels_and_pictures(page: ReadPage) -> None:
    sections = [one["id"] for one in page.all("section")]
    assert sections[:5] == ["findings", "splits", "labels", "sheets", "records"]


def test_eight_pictures_of_a_split_are_there_and_the_others_behind_a_click(page: ReadPage) -> None:
    assert "TRAIN 24 of 36" in page.text
    shown = page.text.partition("Drawn at random")[2]
    assert shown.count(" more") == 1, "TEST and VALIDATION have eight each"
    assert "16 more" in shown


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


def test_boxes_are_drawn_where_they_are(tmp_path: Path) -> None:
    page = page_of(write_records(tmp_path / "in", [annotated()]))
    drawn = {
        tuple(float(one[side]) for side in ("x", "y", "width", "height"))
        for one in page.all("rect")
    }
    assert drawn == {(0.1, 0.2, 0.5, 0.6), (0.5, 0.0, 0.5, 0.25)}  # cut to the image
    alts = [one["alt"] for one in page.all("img")]
    assert "TRAIN record 0: eye, <b>ear; 2 boxes: eye, <b>ear" in alts


def test_a_mask_is_outlined_on_its_image(tmp_path: Path) -> None:
    mask = np.zeros((90, 120), np.uint8)
    mask[:45, :60] = 1
    mask[45:, 60:] = 255  # "ignore", which is not a class
    record = {"image/encoded": png(np.full((90, 120, 3), 128, np.uint8))}
    record["image/segmentation/class/encoded"] = png(mask)
    page = page_of(write_records(tmp_path / "in", [record]))
    shown = np.asarray(page.pictures()["TRAIN record 0: no label; with its mask"], int)
    assert np.ptp(shown[20, 59]) > 40
    assert np.abs(shown[20, 30] - 128).max() < 20, "the object is not hidden"
    for none in (shown[20, 90], shown[70, 30]):
        assert np.abs(none - 128).max() < 6
    void = shown[50:85, 65:115]
    assert void.min() < 60, "stripes"
    assert void.max() > 200, "stripes"


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"image/object/bbox/xmax": np.array([0.5], np.float32)}, "do not have four sides"),
        ({"image/object/bbox/xmax": np.array([0.5, np.nan], np.float32)}, "is not a number"),
        ({"image/object/class/text": [b"eye"]}, "2 boxes, but 1 classes"),
        ({"image/segmentation/class/encoded": b"no image"}, "begins like no image format"),
        ({"image/encoded": b"no image"}, "begins like no image format"),
        ({"image/encoded": b""}, "the file has no bytes"),
    ],
)
def test_a_record_that_cannot_be_drawn_says_why(
    tmp_path: Path, broken: dict[str, Any], words: str
) -> None:
    page = page_of(write_records(tmp_path / "in", [annotated(**broken)]))
    assert words in page.text
    assert "0x" not in page.text  # no address of an object


def test_a_frame_of_relative_paths_is_shown_from_their_folder(tmp_path: Path) -> None:
    frame = pd.DataFrame({"image_uri": [photo.name for photo in PHOTOS[:2]], "label": "a"})
    shown = frame.tensorflow.preview(base=PHOTOS[0].parent)
    assert [row.fault for row in shown.rows] == ["", ""]
    assert all(row.fault for row in frame.tensorflow.preview().rows)
