"""What stands beside a finding runs as printed, in Python and on the command line."""

from __future__ import annotations

import re
import shlex
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.growing_cases import QUIET
from helpers.looking_cases import annotated, noise, png, write_records
from PIL import Image, ImageDraw, ImageFilter
from support import PHOTOS, invoke, photo_frame

import tfrecorder
from tfrecorder.schema import Image as ImageKind, Label, Number, Schema, Split

#: A folder that a shell and Python must be told with care.
_FOLDER = """it's "a" `b` $HOME"""


def calls_in(page: str) -> list[str]:
    """All code that a page's findings print, the options that they name left out."""
    (section,) = re.findall(r'<section id="findings".*?</section>', page, re.S)
    codes = map(unescape, re.findall("<code>(.*?)</code>", section, re.S))
    return [code for code in codes if re.match(r"tfrecorder[ .].*[ (]|python ", code)]


def run_as_printed(call: str) -> Any:
    """The value of Python code, or what a command prints."""
    words = shlex.split(call) if not call.startswith("tfrecorder.") else []
    if words[:1] == ["tfrecorder"]:
        result = invoke(*words[1:])
        assert result.exit_code == 0, (call, result.output)
        return result.output
    if words:
        assert words[:2] == ["python", "-c"]
        return exec(words[2], {})
    return eval(call, {"tfrecorder": tfrecorder})


def with_faults(**more: Any) -> pd.DataFrame:
    """Photographs: one has a wrong label, and others are black, blurred, missing or a copy."""
    with Image.open(PHOTOS[3]) as sharp:
        sharp.filter(ImageFilter.GaussianBlur(4)).save("blurred.jpg", quality=95)
    Image.new("RGB", (60, 40)).save("black.jpg")
    shutil.copy(PHOTOS[0], "copy.jpg")
    frame = photo_frame().assign(split="TRAIN", **more)
    frame.loc[16, "label"] = "brick"
    odd = frame[:4].copy()
    odd["image_uri"] = ["blurred.jpg", "black.jpg", "copy.jpg", "gone.jpg"]
    odd["split"] = ["TRAIN", "TRAIN", "TEST", "TRAIN"]
    odd.loc[2, "label"] = "cat"
    return pd.concat([frame, odd], ignore_index=True)


def finding(calls: list[str], *words: str) -> str:
    """The one call with these words."""
    (found,) = [call for call in calls if all(word in call for word in words)]
    return found


@pytest.mark.parametrize("column", ["label", "what it is"])
def test_calls_of_python_run_as_printed(column: str) -> None:
    frame = with_faults(row=7).rename(columns={"label": column})
    kinds = {"split": Split(), "image_uri": ImageKind(), "row": Number(dtype="int64")}
    kinds |= {column: Label()}
    tfrecorder.convert(frame, _FOLDER, schema=Schema(**kinds), max_reject_fraction=0.5, **QUIET)
    preview = tfrecorder.preview(_FOLDER, progress=False)
    calls = calls_in(preview.page)
    results = {call: run_as_printed(call) for call in calls}
    correction = results[finding(calls, "update(")]
    assert correction.changes.labels["brick → cat"] == 1
    removals = [call for call in calls if "remove(" in call]
    assert {results[call].changes.removed for call in removals} == {1}
    assert "'source_row': [53]" in finding(calls, "remove(", "53"), "the black one"
    told = "\n".join(preview.findings)
    assert all(f"`{call}`" in told for call in calls), "what is printed has them too"
    assert tfrecorder.info(_FOLDER).records == len(frame) - 1


def test_commands_run_as_printed() -> None:
    tfrecorder.convert(with_faults(), _FOLDER, max_reject_fraction=0.5, **QUIET)
    assert invoke("preview", _FOLDER, "--html", "page.html").exit_code == 0
    calls = calls_in(Path("page.html").read_text())
    results = {call: run_as_printed(call) for call in calls}
    assert "1 row is removed" in results[finding(calls, "remove", "row=53", "--dry-run")]
    assert finding(calls, "python -c", "update(")
    assert any(call.startswith("tfrecorder duplicates") for call in calls)
    assert not [call for call in calls if call.startswith("tfrecorder.")]
    assert tfrecorder.info(_FOLDER).records == 55


def boxed(beside: int, rows: int = 6) -> pd.DataFrame:
    """Pictures with two squares, their boxes and a mask; some first boxes hold nothing of it."""
    listed = []
    for row in range(rows):
        picture = Image.fromarray(noise(row, 60, 80))
        mask = Image.new("L", picture.size)
        for number, left in enumerate((5, 45)):
            ImageDraw.Draw(mask).ellipse((left, 5, left + 20, 25), number + 1)
        picture.save(f"{row}.png")
        mask.save(f"{row}-mask.png")
        first = [5, 40, 25, 60] if row < beside else [5, 5, 25, 25]
        edges = zip(first, [45, 5, 65, 25], [80, 60, 80, 60], strict=True)
        x_min, y_min, x_max, y_max = ([a / of, b / of] for a, b, of in edges)
        values = {"x_min": x_min, "y_min": y_min, "x_max": x_max, "y_max": y_max}
        files = {"image_uri": f"{row}.png", "mask_uri": f"{row}-mask.png"}
        listed.append({"split": "TRAIN", **files, **values, "label": ["left", "right"]})
    return pd.DataFrame(listed)


def test_a_box_beside_its_mask_is_named_and_shown() -> None:
    tfrecorder.convert(boxed(beside=1), "out", **QUIET)
    preview = tfrecorder.preview("out", progress=False)
    words = "warning: 1 box holds (nearly) nothing of what the picture's mask marks, of 12 compared"
    (told,) = [one for one in preview.findings if one.startswith(words)]
    assert told.startswith(f"{words}: 'left' on 0.png.")
    assert "Beside what the mask marks" in preview.page
    rows = run_as_printed(finding(calls_in(preview.page), "to_frame("))
    assert rows["image_uri"].tolist() == ["0.png"]


def test_a_box_that_is_there_twice_is_named() -> None:
    frame = boxed(beside=0).drop(columns="mask_uri")
    for name in ("x_min", "y_min", "x_max", "y_max", "label"):
        frame.at[2, name] = [frame[name][2][0]] * 2
    tfrecorder.convert(frame, "out", **QUIET)
    findings = tfrecorder.preview("out", progress=False).findings
    words = "warning: 1 box is there twice, with the same class: 'left' on 2.png."
    assert next(one for one in findings if "twice, with" in one).startswith(words)


@pytest.mark.parametrize("beside", [0, 6])
def test_masks_that_fit_or_mark_other_things_are_no_fault(beside: int) -> None:
    tfrecorder.convert(boxed(beside), "out", **QUIET)
    findings = tfrecorder.preview("out", progress=False).findings
    told = [one for one in findings if "(nearly) nothing" in one]
    assert all(one.startswith("unknown: ") and "may mark other things" in one for one in told)
    assert len(told) == bool(beside)


def test_records_of_other_tools_get_no_call_that_they_refuse(tmp_path: Path) -> None:
    black = png(np.zeros((24, 32, 3), np.uint8))
    records = [annotated(), annotated(), {"image/encoded": black, "image/source_id": b"1"}]
    page = tfrecorder.preview(write_records(tmp_path / "in", records), progress=False).page
    calls = calls_in(page)
    assert [run_as_printed(call) is not None for call in calls] == [True] * len(calls)
    assert not [call for call in calls if "remove" in call or "update" in call]
