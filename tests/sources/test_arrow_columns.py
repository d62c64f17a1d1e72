"""Texts that Arrow judges: nothing may be otherwise than where pandas and Python judge them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from source_cases import (
    BY_PANDAS,
    Checked,
    digest_of,
    judged,
    large_from_here,
    report_of,
    source_of,
)
from support import labelled

from tfrecorder.errors import SourceError

pytestmark = pytest.mark.filterwarnings("ignore")

EACH_IN_ONE_FOLDER = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

PIECES = [
    "a",
    "b.jpg",
    ",",
    ",",
    "\n",
    "\n",
    " ",
    "\t",
    '"',
    "\r",
    "\r\n",
    "\0",
    "é",
    "#",
    "'",
    "1",
]
PIECES += ["\ufeff", "\u2028", "\x1c", "\x85", "TRAIN,c.jpg,x\n", "NA", "-0"]
HEADERS = ["split,image_uri,label\n", "\ufeffimage_uri,label\n", "image_uri\n", "label,image_uri"]
HEADERS += ["image_uri,label,label\n", "image_uri,,label\n", " \nimage_uri,label\n", ""]


@pytest.fixture(autouse=True)
def _small_files_by_arrow_too(monkeypatch: pytest.MonkeyPatch) -> None:
    large_from_here(monkeypatch)


def outcome(path: str, **form: Any) -> Any:
    try:
        return source_of(path, **form).frame
    except SourceError as error:
        return str(error)


@pytest.mark.slow
@EACH_IN_ONE_FOLDER
@given(st.sampled_from(HEADERS), st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
@example(HEADERS[0], 'TRAIN,"a,b.jpg",x\n')
@example(HEADERS[0], 'TRAIN,"a.jpg",x\n')
@example(HEADERS[0], "TRAIN,a\0.jpg,x\n")
@example(HEADERS[0], "TRAIN,a.jpg,x\rTRAIN,b.jpg,y\r")
@example(HEADERS[0], "TRAIN,a.jpg,x\n\n \nTRAIN,b.jpg,y")
@example(HEADERS[0], "TRAIN,a.jpg\nTRAIN,b.jpg,y\n")
@example(HEADERS[0], "TRAIN,a.jpg,x,more\n")
@example(HEADERS[0], " TRAIN,NA,\n\tTRAIN,null,nan\n")
def test_a_csv_is_read_as_pandas_reads_it(header: str, body: str) -> None:
    Path("t.csv").write_bytes((header + body).encode())
    found, expected = outcome("t.csv"), outcome("t.csv", encoding=BY_PANDAS)
    if isinstance(expected, str):
        assert found == expected
    else:
        pd.testing.assert_frame_equal(found, expected)


def test_a_csv_that_is_no_utf8_is_refused_with_the_same_words() -> None:
    Path("t.csv").write_bytes(b"image_uri,label\na.jpg,x\nb\xff.jpg,y\n")
    with pytest.raises(SourceError, match=r"t\.csv: .*UTF-8"):
        source_of("t.csv")


URIS = ["a.jpg", "b.jpg", "a.jpg", "", "gs://b/c.jpg", "nowhere://b/c.jpg", "file:///a.jpg"]
URIS += ["a b://c", "x://y://z", "http://h/a.jpg", "ftp://h/a.jpg", "://", "é\0", None]
LABELS = ["cat", "dog", "Cat ", "", "1", "é", None]
SPLITS = ["TRAIN", "train ", "val", "TEST", "", "unassigned", "trian", None]


def checked(rows: list[tuple[Any, ...]], dtype: Any, labels: list[str] | None) -> Checked:
    table = pd.DataFrame(rows, columns=["split", "image_uri", "label"], dtype=object)
    schema = None if labels is None else labelled(*labels)
    return judged(source_of(table.astype(dtype), schema=schema))


@pytest.mark.slow
@EACH_IN_ONE_FOLDER
@given(
    st.lists(
        st.tuples(st.sampled_from(SPLITS), st.sampled_from(URIS), st.sampled_from(LABELS)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([None, ["cat", "dog", "Cat ", "1", "é"], ["dog"]]),
    st.sampled_from(["str", "string[pyarrow]", "string[python]"]),
)
@example([("TRAIN", "a.jpg", "cat"), ("TEST", "b.jpg", "dog")], None, "str")
@example([("TRAIN", "a.jpg", "cat"), ("TEST", "a.jpg", "dog")], None, "str")
@example([("TRAIN", "gs://b/c.jpg", "cat"), ("", "x://y", "dog")], ["cat"], "str")
@example([("TRAIN", "a.jpg", "cat"), ("", "a.jpg", "dog")], None, "string[pyarrow]")
def test_texts_in_arrow_are_judged_as_the_same_texts_in_python(
    rows: list[tuple[Any, ...]], names: list[str] | None, dtype: str
) -> None:
    one, other = (checked(rows, kind, names) for kind in (dtype, object))
    pd.testing.assert_frame_equal(*map(report_of, (one, other)))
    assert one.fields == other.fields
    assert one.notes == other.notes
    assert one.values.keys() == other.values.keys()
    if one.values and not one.frame["split"].isna().any():
        assert digest_of(one) == digest_of(other)
    for name in one.frame:
        assert one.frame[name].astype(object).where(one.frame[name].notna(), None).tolist() == (
            other.frame[name].astype(object).where(other.frame[name].notna(), None).tolist()
        )
