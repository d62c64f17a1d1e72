"""Class names keep their places, in our metadata as they are and in TFDS's labels file escaped."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfrecorder.schema.labels import build_vocabulary, needs_escape, to_labels_file

# Names as mean as they come: white space of all kinds, breaks, backslashes, escapes typed by hand.
PIECES = ["", " ", "\t", "\n", "\r", "\x1c", "\x85", "\u2028", "\\", "\\u0020", "u0020", "a", "ä"]
NAMES = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=4).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)


def unescape(line):
    """The name that an escaped line stands for."""
    if line == "\\":
        return ""
    return re.sub(
        r"\\\\|\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)) if match[1] else "\\", line
    )


def as_tfds_reads(text):
    """TFDS: universal newlines, each line stripped, blank ones dropped."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [line.strip() for line in lines if line.strip()]


@given(st.lists(NAMES, unique=True))
def test_names_that_survive_are_written_as_they_are(names):
    plain = [name for name in names if not needs_escape(name)]
    assert as_tfds_reads(to_labels_file(plain)) == plain


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(NAMES, unique=True))
def test_with_a_name_that_would_not_all_lines_can_be_turned_back(names):
    lines = as_tfds_reads(to_labels_file(["", *names]))
    assert [unescape(line) for line in lines] == ["", *names]


@given(st.lists(NAMES, unique=True))
def test_every_name_is_a_line_of_its_own(names):
    lines = as_tfds_reads(to_labels_file(names))
    assert len(lines) == len(set(lines)) == len(names)


@given(NAMES)
def test_a_name_is_escaped_exactly_if_it_would_not_be_read_back(name):
    assert needs_escape(name) == (as_tfds_reads(f"{name}\n") != [name])


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (" c", "\\u0020c"),
        ("c\t", "c\\u0009"),
        ("a\nb", "a\\u000ab"),
        ("", "\\"),
        ("  ", "\\u0020\\u0020"),
        ("in between", "in between"),
        ("back\\slash", "back\\\\slash"),
    ],
)
def test_the_escapes(name, line):
    assert to_labels_file([name, "\n"]).splitlines()[0] == line


def test_the_vocabulary_is_sorted_by_code_points_whatever_the_locale():
    assert build_vocabulary(["é", "b", "a", "Z", "10", "9", "a"]) == ("10", "9", "Z", "a", "b", "é")
