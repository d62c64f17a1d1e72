"""What a call returns is one line in a REPL, a log or a debugger; `print` shows all of it."""

from __future__ import annotations

from typing import Any

import pytest
from support import photo_frame

import tfrecorder


def results() -> list[Any]:
    """What the calls over one small dataset return."""
    frame = photo_frame(9)
    frame.loc[9] = ["TRAIN", "gone\n" * 60 + ".jpg", "cat"]
    quiet: dict[str, Any] = {"progress": False}
    found = [
        frame.tensorflow,
        frame.tensorflow.validate(check_images=True, **quiet),
        tfrecorder.convert(frame, "out", dry_run=True),
        tfrecorder.convert(frame, "out", num_shards=1, **quiet),
        tfrecorder.info("out"),
        tfrecorder.status("out"),
        tfrecorder.verify("out", **quiet),
        tfrecorder.repair("out", **quiet),
        tfrecorder.update(frame.assign(label="cat"), "out", **quiet),
        *tfrecorder.history("out"),
        tfrecorder.undo("out"),
        tfrecorder.append(frame, "out", **quiet),
        tfrecorder.export("out", "csv", to="csv"),
    ]
    return found


@pytest.mark.slow
def test_each_result_is_one_line() -> None:
    for result in results():
        line = repr(result)
        assert len(line.splitlines()) == 1, line
        assert len(line) <= 160, line
        assert line.startswith(f"<{type(result).__name__} ") or line.startswith("<df.tensorflow")


def test_a_conversion_says_how_much_became_of_it() -> None:
    frame = photo_frame(9)
    frame.loc[9] = ["TRAIN", "gone.jpg", "cat"]
    result = tfrecorder.convert(frame, "out", num_shards=1, progress=False)
    assert repr(result) == "<ConversionResult out: 9 records, 1 reject, 1 shard>"


@pytest.mark.parametrize("call", ["validate", "preview", "to_tfrecord"])
def test_the_accessor_names_its_methods(call: str) -> None:
    assert call in repr(photo_frame(1).tensorflow)
