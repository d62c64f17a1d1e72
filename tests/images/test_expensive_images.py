"""No accepted image takes longer than its pixels and bytes allow; the others are rejected."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from helpers.expensive_cases import (
    dear_but_sound,
    decoded_in_python,
    every_legal_scan,
    expensive,
    jpeg_of_scans,
)
from helpers.image_cases import photo
from support import press_ctrl_c, records, rejects, start, wait_for
from torture.judging import Accepted, Refused, judge

import tfrecorder

LEVELS = ("header", "decode", "strict")
#: What the check of a header passes by: it looks at no image data.
ONLY_DECODED = ("IDAT chunks of a byte", "PNG with a small window")

EXPENSIVE, SOUND = expensive(), dear_but_sound()


def allowed(data: bytes, pixels: int = 0) -> float:
    """Seconds of CPU that an image may take."""
    return 1 + 0.1 * pixels / 1e6 + 0.1 * len(data) / 1e6


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPENSIVE)
def test_what_takes_too_long_is_rejected_with_its_numbers(name: str) -> None:
    data = EXPENSIVE[name]()
    began = time.process_time()
    for level in ("decode", "strict"):
        refused = judge(data, level)
        assert isinstance(refused, Refused)
        assert (refused.stage, refused.code) == ("check", "too_expensive")
        assert re.search(r"\d", refused.words)
    assert name in ONLY_DECODED or judge(data, "header").code == "too_expensive"
    assert time.process_time() - began < 3 * allowed(data)


@pytest.mark.parametrize("name", SOUND)
def test_what_encoders_make_is_accepted_within_its_time(name: str) -> None:
    data = SOUND[name]()
    for level in LEVELS:
        began = time.process_time()
        accepted = judge(data, level)
        assert isinstance(accepted, Accepted)
        height, width, _ = accepted.shape
        assert time.process_time() - began < allowed(data, height * width)


def test_what_pillow_decodes_in_python_is_refused_at_once() -> None:
    began = time.process_time()
    for what, data in decoded_in_python().items():
        for level in LEVELS:
            refused = judge(data, level)
            assert isinstance(refused, Refused)
            assert refused.code == "unsupported"
            assert what in refused.words
    assert time.process_time() - began < 1


@pytest.mark.slow
def test_a_conversion_lists_them_and_goes_on() -> None:
    uris = []
    for number, name in enumerate(EXPENSIVE):
        Path(f"{number}.jpg").write_bytes(EXPENSIVE[name]())
        uris.append(f"{number}.jpg")
    photo(size=None).save("sound.jpg")
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [*uris, "sound.jpg"], "label": "x"})
    result = tfrecorder.convert(frame, "out", max_reject_fraction=1.0)
    assert result.rejects == {"check/too_expensive": len(uris)}
    assert [one["image/filename"] for one in records("out")] == [b"sound.jpg"]
    words = dict(rejects("out")[["image_uri", "reason"]].itertuples(index=False))
    assert words["0.jpg"].startswith("too_expensive: 757 scans of 1200 x 1200 pixels visit ")
    report = tfrecorder.validate(frame, check_images=True)
    assert report.message.str.contains("too_expensive").sum() == len(uris)


# ------------------------------------------------------------------------------------------ Ctrl-C

LONG = jpeg_of_scans(9400, 9400, every_legal_scan()[:110])  # 3 s, and within its bound

INTERRUPTED = """
import atexit, tfrecorder
atexit.register(print, "ending", flush=True)
print("imported", flush=True)
try:
    tfrecorder.{call}
except KeyboardInterrupt:
    print("heard", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "seconds"),
    [
        ("convert('long.csv', 'out', progress=False)", 2),
        ("validate('long.csv', check_images=True)", 2),
        ("convert('long.csv', 'out', progress=False, num_workers=2, num_shards=4)", 2),
    ],
)
def test_ctrl_c_is_heard_while_a_decoder_runs(call: str, seconds: float) -> None:
    for number in range(8):
        Path(f"{number}.jpg").write_bytes(LONG)
    lines = "".join(f"{number}.jpg\n" for number in range(8))
    Path("long.csv").write_text("image_uri\n" + lines)
    process = start(INTERRUPTED.format(call=call))
    assert process.stdout is not None
    assert process.stdout.readline() == "imported\n"
    wait_for(lambda: any_is_at_work(psutil.Process(process.pid)))
    began = time.monotonic()
    press_ctrl_c(process)
    assert process.stdout.readline() == "heard\n"
    assert process.stdout.readline() == "ending\n"  # no thread is waited for any more
    assert time.monotonic() - began < seconds
    process.communicate(timeout=60)


def any_is_at_work(process: psutil.Process) -> bool:
    """True once a thread of a process or of its workers decodes."""
    workers = process.children(recursive=True)
    return any(
        thread.id != one.pid and thread.user_time > 0.3
        for one in (workers or [process])
        for thread in one.threads()
    )
