"""The page of `preview` as a reader uses it: pictures enlarge and are filtered, by keys too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.chromium import CHROMIUM, Page, browser
from helpers.growing_cases import QUIET
from PIL import Image
from support import photo_frame

import tfrecorder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

WINDOWS = list(itertools.product((400, 1280), (False, True)))

#: A class whose name is an attack on a style sheet, on markup and on an id.
EVIL = "</style><script>document.title='owned'</script>} * { display: none } #pick-C0 \" '"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs with a hostile class, one picture in two splits, and boxes on some."""
    folder = tmp_path_factory.mktemp("report")
    frame = photo_frame().assign(split="TRAIN")
    frame.loc[frame["label"] == "cat", "label"] = EVIL
    frame.loc[40:, "split"] = "TEST"
    Image.new("RGB", (60, 40)).save(folder / "black.jpg")
    frame.loc[1, "image_uri"] = str(folder / "black.jpg")
    tfrecorder.convert(frame, folder / "out", **QUIET)
    tfrecorder.preview(folder / "out", html=folder / "report.html", progress=False)
    return folder / "report.html"


def look(window: Page, report: Path, width: int, dark: bool) -> None:
    window.errors.clear()
    window.open(Path("/dev/null"), width)  # the same address with a fragment is no new page
    window.open(report, width, dark=dark)
    window.evaluate("document.documentElement.style.scrollBehavior = 'auto'")


def focused(window: Page) -> dict[str, Any]:
    """What has the focus, and whether that can be seen."""
    return window.evaluate(
        "(() => { const one = document.activeElement; return {id: one.id,"
        " text: one.textContent.trim(), ring: getComputedStyle(one).outlineStyle,"
        " top: one.getBoundingClientRect().top, hash: location.hash} })()"
    )


def follow(window: Page, *keys: str) -> dict[str, Any]:
    for key in keys:
        window.press(key)
    return focused(window)


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_a_picture_is_enlarged_by_keys(window: Page, report: Path, width: int, dark: bool) -> None:
    look(window, report, width, dark)
    before = window.evaluate(
        "(document.querySelector('#records a.frame').focus(),"
        " document.activeElement.getBoundingClientRect().width)"
    )
    start = focused(window)
    window.press("Enter")
    number = int(start["id"][1:])
    shown = window.evaluate(
        "(() => { const one = document.querySelector(':target'), at = one.getBoundingClientRect();"
        " const image = one.querySelector('img'); const of = image.getBoundingClientRect();"
        " return {id: one.id, covers: at.left <= 0 && at.top <= 0 && at.right >= innerWidth"
        "  && at.bottom >= innerHeight, width: of.width, natural: image.naturalWidth,"
        "  inside: of.left >= 0 && of.right <= innerWidth, wide: one.scrollWidth,"
        "  text: one.innerText, title: getComputedStyle(document.querySelector('h1')).visibility,"
        "  image: getComputedStyle(image).visibility} })()"
    )
    assert shown["id"] == f"t{number}"
    assert shown["covers"]
    assert shown["inside"]
    assert shown["wide"] == width
    assert shown["width"] >= min(shown["natural"], width - 40) > before
    assert (shown["image"], shown["title"]) == ("visible", "hidden")
    assert "TRAIN" in shown["text"]
    assert ".jpg" in shown["text"]
    assert follow(window, "Tab")["text"] == "Close"
    after = follow(window, "Tab", "Enter")
    assert after["hash"] == f"#t{number + 1}", "the next one"
    assert follow(window, "Tab", "Tab")["text"] == "Previous"
    assert follow(window, "Tab", "Tab")["text"] != "Findings", "what is behind stays behind"
    window.evaluate("document.querySelector(':target .turn a').focus()")
    back = follow(window, "Enter")
    assert back["id"] == f"z{number + 1}", "the focus is where it was"
    assert 0 < back["top"] < 900
    assert back["ring"] != "none"
    assert not window.evaluate("!!document.querySelector('figure:target')")
    assert window.errors == []


def shown_keys(window: Page) -> list[str]:
    """What the pictures that can be seen are filtered by."""
    return window.evaluate(
        "[...document.querySelectorAll('figure[id]')].filter(one => one.checkVisibility("
        "{contentVisibilityAuto: true}) && one.getClientRects().length).map(one => one.className)"
    )


@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_pictures_are_filtered_by_keys(window: Page, report: Path, width: int, dark: bool) -> None:
    look(window, report, width, dark)
    every = shown_keys(window)
    assert window.evaluate("(document.querySelector('summary').focus(), true)")
    assert follow(window, "Enter", "Tab", "ArrowRight", "ArrowRight")["ring"] != "none"
    picked = focused(window)["id"].removeprefix("pick-")
    name = window.evaluate("document.activeElement.parentElement.innerText.trim()")
    chosen = shown_keys(window)
    assert chosen
    assert all(picked in one.split() for one in chosen), name
    assert len(chosen) < len(every)
    assert follow(window, "Tab", "ArrowRight")["id"] == "pick-S0"
    both = shown_keys(window)
    assert both
    assert all({picked, "S0"} <= {*one.split()} for one in both)
    panel = window.evaluate(
        "(() => { const at = document.querySelector('.filters > div').getBoundingClientRect();"
        " return [at.left, at.right, document.documentElement.scrollWidth] })()"
    )
    assert panel[0] >= 0
    assert panel[1] <= width == panel[2]
    assert "on" in window.evaluate(
        "getComputedStyle(document.querySelector('.filters summary'), '::after').content"
    )
    window.evaluate("document.querySelectorAll('.all').forEach(one => one.checked = true)")
    assert shown_keys(window) == every


def test_a_filter_brings_out_what_waits_for_a_click(window: Page, report: Path) -> None:
    look(window, report, 1280, False)
    window.evaluate("document.getElementById('pick-C0').click()")
    hidden = window.evaluate(
        "[...document.querySelectorAll('details:not([open]) figure.C0')].filter(one =>"
        " !one.checkVisibility()).length"
    )
    assert window.evaluate("document.querySelectorAll('details:not([open]) figure.C0').length") > 3
    assert hidden == 0


def test_a_finding_is_something_to_filter_by(window: Page, report: Path) -> None:
    look(window, report, 1280, False)
    window.evaluate(
        "[...document.querySelectorAll('.filters label')].find(one =>"
        " one.innerText.includes('near-constant') || one.textContent.includes('near-constant'))"
        ".querySelector('input').click()"
    )
    files = window.evaluate(
        "[...document.querySelectorAll('figure[id]')].filter(one => one.getClientRects().length)"
        ".map(one => one.querySelector('.file').textContent)"
    )
    assert {*files} == {"black.jpg"}


@pytest.mark.parametrize("width", [400, 1280])
def test_hostile_names_stay_dead(window: Page, report: Path, width: int) -> None:
    look(window, report, width, False)
    assert window.evaluate("document.title") == "out: preview"
    assert window.evaluate("document.scripts.length + document.styleSheets.length") == 1
    assert window.errors == []
    names = "[...document.querySelectorAll('.filters label')].map(one => one.textContent)"
    assert any(name.startswith("</style><script>") for name in window.evaluate(names))
    ids = window.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len({*ids})
    assert all(one.isascii() and one.replace("-", "").isalnum() for one in ids)


def test_many_classes_have_no_many_buttons(tmp_path: Path) -> None:
    frame = pd.concat([photo_frame()] * 2, ignore_index=True)
    frame["label"] = [f"class {number % 50}" for number in range(len(frame))]
    tfrecorder.convert(frame, tmp_path / "out", **QUIET)
    page = tfrecorder.preview(tmp_path / "out", progress=False).page
    assert page.count('id="pick-C') == 30
    assert "The 30 most frequent classes." in page
