"""Numbers that float32 would change are named; those that it only shortens are not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support import invoke, photo_frame

import tfrecorder
from tfrecorder.errors import OptionError
from tfrecorder.schema import Number, Schema


def rounded(cells: Any, **settings: Any) -> list[tuple[int, str]]:
    """The rows with a warning, and its words."""
    frame = pd.DataFrame({"n": pd.Series(cells, dtype=object)})
    report = tfrecorder.validate(frame, schema=Schema(n=Number(**settings)))
    found = report[report.code == "rounded_number"]
    assert set(found.severity) <= {"warning"}
    assert set(found.column) <= {"n"}
    return [*zip(found.row.tolist(), found.message.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (2**24 + 1, "16777217 is stored as 16777216"),
        (-(2**24) - 1, "-16777217 is stored as -16777216"),
        (2**40 + 1, "1099511627777 is stored as 1099511627776"),
        (2**60 + 1, "1152921504606846977 is stored as 1152921504606846976"),
        (np.int64(2**40 + 1), "1099511627777 is stored as 1099511627776"),
        (math.pi * 10**10, "31415926535.89793 is stored as 31415926784"),
        (1700000000.5, "1700000000.5 is stored as 1700000000"),
        ("16777217", "16777217 is stored as 16777216"),
        (" +16777217 ", "16777217 is stored as 16777216"),
        ("31415926535.897932", "31415926535.897932 is stored as 31415926784"),
    ],
    ids=str,
)
def test_a_number_that_float32_changes_is_named_with_its_row(cell: Any, words: str) -> None:
    assert rounded([0.5, cell, 1]) == [(1, words)]


@pytest.mark.parametrize(
    "cells",
    [
        [0.1, 52.520008, math.pi, 1e-30, 2.5e6 + 0.3, "0.1", "1e7"],
        [2**24, 2**24 + 2, 2**40, -(2**60), "16777216", 2.0**100],
        [math.inf, -math.inf, "inf", True, np.float32(1e30)],
        np.random.default_rng(0).random(1000),
        np.random.default_rng(0).normal(size=1000).astype(np.float32) * 1e20,
    ],
    ids=["shortened", "exact", "special", "random", "float32"],
)
def test_a_number_that_is_only_shortened_is_not(cells: Any) -> None:
    assert rounded(cells) == []
    assert rounded([[cell] for cell in cells if not isinstance(cell, str)], shape=(None,)) == []


def test_whole_numbers_as_int64_are_exact() -> None:
    assert rounded([2**40 + row for row in range(5)], dtype="int64") == []


def test_lists_and_arrays_are_looked_at_too() -> None:
    words = "is stored as 33554432"
    lists = [[1.5], [], [2, 2**25 + 1], "[33554433, 1]", [math.nan, 2.0**25], np.array([2**25 + 1])]
    assert rounded(lists, shape=(None,)) == [(row, f"33554433 {words}") for row in (2, 3, 5)]
    assert rounded([np.full((2, 2), 33554433.0)], shape=(2, 2)) == [(0, f"33554433.0 {words}")]
    assert rounded([None], default=33554433) == [(0, f"33554433 {words}")]


def test_a_conversion_warns_and_strict_refuses() -> None:
    frame = photo_frame(3).assign(n=[2**40 + row for row in range(3)])
    schema = {"image_uri": "image", "n": "number"}
    with pytest.warns(UserWarning, match="rounded_number 2"):
        tfrecorder.convert(frame, "out", schema=schema)
    with pytest.raises(tfrecorder.ValidationError, match="row 1, column 'n': 1099511627777 is"):
        tfrecorder.convert(frame, "other", schema=schema, warnings="error")


def test_the_command_names_line_column_and_remedy() -> None:
    Path("n.csv").write_text("image_uri,n\na.jpg,1\nb.jpg,16777217\n")
    Path("s.yaml").write_text("image_uri: image\nn: number\n")
    done = invoke("validate", "n.csv", "--schema", "s.yaml")
    assert (done.exit_code, "rounded_number (1)" in done.output) == (0, True)
    assert "line 3, column 'n': 16777217 is stored as 16777216" in done.output
    assert "dtype int64" in done.output


@pytest.mark.parametrize("dtype", ["float64", np.dtype("float64")])
def test_float64_is_said_to_be_impossible(dtype: Any) -> None:
    with pytest.raises(OptionError, match=r"records .* have no float64; give .*int64.*Text\(\)"):
        Number(dtype=dtype)
    with pytest.raises(OptionError, match="no float64"):
        tfrecorder.validate(photo_frame(1), schema={"n": {"kind": "number", "dtype": "float64"}})


def test_ordinary_numbers_are_never_compared_with_what_is_stored_of_them() -> None:

    class Never(float):
        def __eq__(self, other: object) -> bool:
            if other is not self:  # as pandas asks, to see what is missing
                raise AssertionError("it is compared")
            return True

        def __ne__(self, other: object) -> bool:
            return not self == other

        __hash__ = float.__hash__

    numbers = np.random.default_rng(0).random(10**4)
    assert rounded([*map(Never, numbers)]) == []
    with pytest.raises(AssertionError, match="it is compared"):
        rounded([Never(2**24 + 1)])
