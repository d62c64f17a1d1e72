"""The page of `preview` in a real browser: nothing is missing, nothing is fetched, all is read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers.chromium import CHROMIUM, Page, browser
from helpers.looking_cases import noise, png, write_records
from PIL import Image
from support import PHOTOS, SAMPLES

import tfrecorder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

_SIDES = ("xmin", "ymin", "xmax", "ymax")

#: Narrow and wide, light and dark.
WINDOWS = list(itertools.product((400, 1400), (False, True)))


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all that a page can have: leaks, repeats, rejects, constants, long names."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "cut.jpg").write_bytes(PHOTOS[0].read_bytes()[:700])
    Image.new("RGB", (300, 3), (9, 9, 9)).save(folder / "flat.png")
    mixed = [str(path) for path in sorted((SAMPLES / "mixed").iterdir())]
    long_name = "a_class_with_a_very_long_name_" * 6
    rows = [("TRAIN", str(photo), photo.parent.name) for photo in PHOTOS]
    rows += [("TEST", str(photo), "cat") for photo in PHOTOS[:3]]
    rows += [("TRAIN", str(photo), photo.parent.name) for photo in PHOTOS[5:7]]
    rows += [("VALIDATION", uri, long_name) for uri in mixed]
    rows += [("TRAIN", str(folder / "cut.jpg"), "cat"), ("TRAIN", f"{long_name}.jpg", "cat")]
    rows += [("TRAIN", str(folder / "flat.png"), "<script>document.title='owned'</script>")]
    frame = pd.DataFrame(rows, columns=["split", "image_uri", "label"])
    tfrecorder.convert(frame, folder / "out", progress=False, max_reject_fraction=1.0)
    tfrecorder.preview(folder / "out", html=folder / "report.html")
    return folder / "report.html"


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_it_loads_without_a_complaint_and_fetches_nothing(
    window: Page, report: Path, width: int, dark: bool
) -> None:
    window.errors.clear()
    window.requests.clear()
    window.open(report, width, dark=dark)
    assert window.errors == []
    assert set(window.requests) == {report.resolve().as_uri()}
    assert window.evaluate("document.title") == "out: preview"


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_every_picture_is_there(window: Page, report: Path, width: int, dark: bool) -> None:
    window.open(report, width, dark=dark)
    window.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    images = window.evaluate(
        "Promise.all([...document.images].map(one => one.decode().then(() => ["
        "one.complete, one.naturalWidth > 0, one.getBoundingClientRect().width >= 1])))"
    )
    assert len(images) > 40
    assert all(all(one) for one in images)


@pytest.mark.parametrize("width", [320, 400, 768, 1400, 2200])
def test_nothing_is_wider_than_the_window(window: Page, report: Path, width: int) -> None:
    window.open(report, width)
    assert window.evaluate("document.documentElement.scrollWidth") == width
    beyond = window.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, p, main li, dd, figcaption, .frame, svg')]"
        ".filter(one => { const at = one.getBoundingClientRect();"
        " return at.left < 0 || at.right > innerWidth + 1 }).map(one => one.outerHTML)"
    )
    assert beyond == []


@pytest.mark.parametrize("width", [400, 1400])
def test_every_picture_is_whole_within_its_frame(window: Page, report: Path, width: int) -> None:
    window.open(report, width)
    beyond = window.evaluate(
        "[...document.querySelectorAll('.picture')].filter(one => {"
        " const frame = one.parentElement.getBoundingClientRect();"
        " const at = one.getBoundingClientRect();"
        " return at.top < frame.top - 1 || at.bottom > frame.bottom + 1"
        "  || at.left < frame.left - 1 || at.right > frame.right + 1 }).length"
    )
    assert beyond == 0


@pytest.mark.parametrize("width", [400, 768, 1400])
def test_no_word_is_cut(window: Page, report: Path, width: int) -> None:
    """Nothing runs into its neighbour, and short words stand on one line."""
    window.open(report, width)
    cut = window.evaluate(
        "[...document.querySelectorAll('th, dt, dd, .mark, nav a')]"
        ".filter(one => one.scrollWidth > one.clientWidth + 1 && one.clientWidth)"
        ".map(one => one.textContent)"
    )
    assert cut == []
    broken = window.evaluate(
        "[...document.querySelectorAll('.mark, dt, dd, nav a, th')]"
        ".filter(one => { const range = document.createRange(); range.selectNodeContents(one);"
        " return new Set([...range.getClientRects()].map(at => Math.round(at.top))).size > 1 })"
        ".map(one => one.textContent)"
    )
    assert broken == []


@pytest.mark.parametrize("width", [400, 768, 1400])
def test_no_grid_has_a_hole(window: Page, report: Path, width: int) -> None:
    window.open(report, width)
    ends = window.evaluate(
        "[...document.querySelectorAll('.facts, .plots, .sheet')].filter(one =>"
        "  !one.matches('.sheet') || one.childElementCount === 8).map(one => ["
        " one.className, one.getBoundingClientRect().right, one.lastElementChild"
        ".getBoundingClientRect().right, one.childElementCount])"
    )
    grids = {"facts", "plots", "sheet", "sheet small", "sheet small of-class"}
    assert {name for name, *_ in ends} == grids
    room = 480 if width == 768 else 40  # a plot is at most 30rem wide
    assert [one for one in ends if one[1] - one[2] > (room if one[0] == "plots" else 2)] == []


@pytest.mark.parametrize("width", [400, 1400])
def test_the_sections_stay_in_reach(window: Page, report: Path, width: int) -> None:
    window.open(report, width)
    window.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    window.evaluate("document.getElementById('images').scrollIntoView()")
    assert window.evaluate("scrollY > 500")
    nav, section = window.evaluate(
        "['nav', '#images h2'].map(one => { const at ="
        " document.querySelector(one).getBoundingClientRect(); return [at.top, at.bottom] })"
    )
    assert nav[0] == 0
    assert nav[1] <= section[0]


#: Of each text that can be seen: its words, and the contrast with what is behind it (WCAG 2.1).
_CONTRAST = """
(() => {
  const parse = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b]
    .map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = one => {
    for (; one; one = one.parentElement) {
      const colour = parse(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (!text || !one.getClientRects().length) continue;
    const style = getComputedStyle(one);
    const colour = parse(one instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(colour), luminance(behind(one))].sort((x, y) => y - x);
    found.push([text.slice(0, 40), (a + 0.05) / (b + 0.05), parseFloat(style.fontSize)]);
  }
  return found;
})()
"""


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_every_text_can_be_read(window: Page, report: Path, width: int, dark: bool) -> None:
    window.open(report, width, dark=dark)
    texts = window.evaluate(_CONTRAST)
    assert len(texts) > 200
    assert [(text, contrast) for text, contrast, _ in texts if contrast < 4.5] == []
    assert [(text, size) for text, _, size in texts if size < 11] == []


def test_light_and_dark_differ(window: Page, report: Path) -> None:
    def paper(dark: bool) -> str:
        window.open(report, 1400, dark=dark)
        return window.evaluate("getComputedStyle(document.body).backgroundColor")

    assert paper(False) != paper(True)


def test_links_lead_to_sections(window: Page, report: Path) -> None:
    window.open(report, 1400)
    lost = window.evaluate(
        "[...document.querySelectorAll('a')].map(one => one.getAttribute('href'))"
        ".filter(href => !document.getElementById(href.slice(1)))"
    )
    assert lost == []
    assert window.evaluate("document.querySelectorAll('nav a').length") >= 8


def test_long_names_of_objects_and_rows_do_not_widen_it(window: Page, tmp_path: Path) -> None:
    name = "x" * 300
    keys = ("class/text", "filename", "source_id", "object/class/text")
    sides = {f"image/object/bbox/{side}": np.array([0.5], np.float32) for side in _SIDES}
    record = {"image/encoded": png(noise(0)), **sides, **{f"image/{key}": name for key in keys}}
    report = tmp_path / "page.html"
    tfrecorder.preview(write_records(tmp_path / "in", [record, record]), html=report)
    for width in (400, 1400):
        window.open(report, width)
        assert window.evaluate("document.documentElement.scrollWidth") == width


def test_boxes_lie_over_their_picture(window: Page, tmp_path: Path) -> None:
    sides = {"xmin": 0.25, "ymin": 0.5, "xmax": 0.75, "ymax": 1.0}
    boxes = {f"image/object/bbox/{k}": np.array([v], np.float32) for k, v in sides.items()}
    records = [
        {"image/encoded": png(noise(0, height, width)), **boxes}
        for height, width in ((30, 90), (90, 30), (40, 40))
    ]
    report = tmp_path / "page.html"
    tfrecorder.preview(write_records(tmp_path / "in", records), html=report)
    window.open(report, 400)
    places = window.evaluate(
        "[...document.querySelectorAll('#records .picture')].map(one => {"
        " const image = one.querySelector('img').getBoundingClientRect();"
        " return [...one.querySelectorAll('rect')].map(rect => {"
        "  const at = rect.getBoundingClientRect();"
        "  return [(at.left - image.left) / image.width, (at.top - image.top) / image.height,"
        "          (at.right - image.left) / image.width, (at.bottom - image.top) / image.height,"
        "          image.width / image.height] }) })"
    )
    assert len(places) == 3
    for rectangles in places:
        for rectangle in rectangles:
            assert rectangle[:4] == pytest.approx(list(sides.values()), abs=0.06)
    assert sorted(round(rectangles[0][4], 1) for rectangles in places) == [0.3, 1.0, 3.0]


def test_a_frame_in_a_notebook_shows_its_pictures(window: Page, tmp_path: Path) -> None:
    frame = pd.DataFrame({"image_uri": [*map(str, PHOTOS[:6]), "gone.jpg"], "label": "a"})
    page = tmp_path / "cell.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8>{frame.tensorflow.preview()._repr_html_()}"
    )
    window.errors.clear()
    window.open(page, 400)
    assert window.errors == []
    sizes = window.evaluate("[...document.images].map(one => one.naturalWidth)")
    assert len(sizes) == 6
    assert min(sizes) > 0


def test_a_page_with_a_fault_is_noticed(window: Page, tmp_path: Path) -> None:
    """The proofs above can fail: a missing picture, a script's error, a request."""
    page = tmp_path / "faulty.html"
    page.write_text("<img src='gone.png'><script>undefined_function()</script>")
    window.errors.clear()
    window.requests.clear()
    window.open(page, 400)
    assert any("undefined_function" in error for error in window.errors)
    assert any("gone.png" in request for request in window.requests)
    assert any("ERR_FILE_NOT_FOUND" in error for error in window.errors)
