"""Splits and classes: words that are understood, rows that keep their split, names that survive.

The inner law of schema/: the split of a row is the same for ever, and each class name is a line of
its own in TFDS's labels file.
"""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support import PHOTOS, records, run

import tfrecorder
from tfrecorder.schema.labels import build_vocabulary, needs_escape, to_labels_file
from tfrecorder.schema.splits import Division, assign_splits, parse_splits

WORDS = {
    "TRAIN": ["train", "TRAIN", "Train", "training", "Training", " train "],
    "VALIDATION": ["val", "valid", "validation", "VALIDATE", "Validation"],
    "TEST": ["test", "TEST", "testing", "test\n"],
    "UNASSIGNED": ["unassigned", "UNASSIGNED", "", "  ", None, float("nan"), pd.NA],
}


def assigned(*arguments: Any) -> list[str]:
    return assign_splits(*arguments).tolist()


@pytest.mark.parametrize(
    ("word", "split"), [(word, split) for split, words in WORDS.items() for word in words]
)
def test_the_usual_words_in_any_case(word, split):
    assert parse_splits(pd.Series([word], dtype=object)).tolist() == [split]


@pytest.mark.parametrize("word", ["trian", "dev", "0", 1, "train test", ["train"]])
def test_any_other_word_is_missing(word):
    assert parse_splits(pd.Series([word], dtype=object)).isna().all()


@pytest.mark.parametrize("dtype", [object, "str", "string", "category", "string[pyarrow]"])
def test_a_column_of_any_text_dtype(dtype):
    column = pd.Series(["train", None, "val", "x"], index=[5, 3, 9, 1], dtype=dtype)
    parsed = parse_splits(column)
    assert parsed.astype(object).fillna("?").tolist() == ["TRAIN", "UNASSIGNED", "VALIDATION", "?"]
    assert parsed.index.equals(column.index)


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, "VA TR TR TR TR TR TR VA VA VA TR TR TR TR TR TR TE TE TR TR"),
        (1, "TR TR TR TR TR TR TE TR TR TR TR TR TR TE TR TR TR TR TR TR"),
    ],
)
def test_assigned_splits_are_the_same_on_every_machine_for_ever(seed, expected):
    found = assigned([f"photos/{i}.jpg" for i in range(20)], Division(seed=seed))
    assert " ".join(split[:2] for split in found) == expected


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True), st.data())
def test_a_row_keeps_its_split_when_rows_come_and_go(uris, data):
    kept = data.draw(st.lists(st.sampled_from(uris), unique=True)) if uris else []
    before = dict(zip(uris, assigned(uris, Division(seed=7)), strict=True))
    assert assigned(kept, Division(seed=7)) == [before[uri] for uri in kept]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_eight_in_ten_train_and_one_each_validates_and_tests(seed):
    counts = pd.Series(
        assigned([f"{i}.jpg" for i in range(20_000)], Division(seed=seed))
    ).value_counts()
    assert (counts / 20_000).round(2).to_dict() == {"TRAIN": 0.8, "VALIDATION": 0.1, "TEST": 0.1}


def test_another_seed_is_another_assignment():
    uris = [f"{i}.jpg" for i in range(100)]
    assert assigned(uris, Division(seed=0)) != assigned(uris, Division(seed=1))


def test_one_uri_is_one_split():
    division = Division(seed=3)
    assert assigned(["a", "b", "a"], division)[::2] == assigned(["a"], division) * 2


SHARES = {"TRAIN": 0.7, "VALIDATION": 0.3}


def test_the_shares_are_those_asked_for():
    names = [f"{i}.jpg" for i in range(20_000)]
    counts = pd.Series(assigned(names, Division(SHARES))).value_counts()
    assert (counts / 20_000).round(2).to_dict() == SHARES


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 5))
def test_stratified_each_label_has_these_shares_to_within_an_image(sizes, seed):
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    names = [f"{at}.jpg" for at in range(len(labels))]
    found = pd.Series(assigned(names, Division(SHARES, True, seed), labels))
    for label, size in enumerate(sizes):
        in_train = (found[[one == label for one in labels]] == "TRAIN").sum()
        assert abs(in_train - 0.7 * size) <= 0.5 + 1e-9


def of_patients() -> pd.DataFrame:
    """Twelve patients with three images each, of two labels."""
    rows = [(f"{p}_{i}.jpg", f"patient {p}", "ab"[p % 2]) for p in range(12) for i in range(3)]
    return pd.DataFrame(rows, columns=["image_uri", "patient", "label"])


def splits_of(frame: pd.DataFrame, folder: Path, **options: Any) -> pd.Series:
    """The split of each image, by its name, as a conversion made it."""
    for name in frame["image_uri"]:
        Path(name).write_bytes(PHOTOS[0].read_bytes())
    tfrecorder.convert(frame, folder, progress=False, **options)
    found = {
        record["image/filename"].decode(): split
        for split in ("TRAIN", "VALIDATION", "TEST")
        for record in records(folder, split)
    }
    return pd.Series(found)


@pytest.mark.parametrize("stratify", [False, True])
def test_all_images_of_a_group_are_in_one_split(tmp_path, stratify):
    frame = of_patients()
    options = {"splits": SHARES, "split_by": "patient", "stratify": stratify}
    found = splits_of(frame, tmp_path / "out", **options)
    assert set(found) == {"TRAIN", "VALIDATION"}
    by_patient = found.groupby(frame.set_index("image_uri")["patient"])
    assert (by_patient.nunique() == 1).all()


@pytest.mark.slow
def test_a_group_keeps_its_split_when_others_come(tmp_path):
    frame = of_patients()
    before = splits_of(frame.iloc[:18], tmp_path / "few", split_by="patient")
    after = splits_of(frame, tmp_path / "all", split_by="patient")
    assert after[before.index].equals(before)


def test_splits_that_are_given_stay(tmp_path):
    frame = of_patients().assign(split=["TEST"] * 6 + [None] * 30)
    found = splits_of(frame, tmp_path / "out", splits={"TRAIN": 1})
    assert found.value_counts().to_dict() == {"TRAIN": 30, "TEST": 6}


def notes_of(frame: pd.DataFrame, **options: Any) -> list[str]:
    """What is said of the splits: by a check, before a conversion, and after it."""
    for name in frame["image_uri"]:
        Path(name).write_bytes(PHOTOS[0].read_bytes())
    frame.to_csv("a.csv", index=False)
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    words = ["convert", "a.csv", "out", *(flag.replace("_", "-") for flag in flags)]
    shown = [
        *tfrecorder.validate(frame, **_parsed(options)).notes,
        *run("-m", "tfrecorder", *words, "--dry-run").stdout.splitlines(),
        *run("-m", "tfrecorder", *words).stdout.splitlines(),
    ]
    return [line for line in shown if line.startswith("splits: ")]


def _parsed(options: dict[str, str]) -> dict[str, Any]:
    pairs = [pair.split("=") for pair in options.get("splits", "").split(",") if pair]
    shares = {name: float(share) for name, share in pairs}
    return {**options, **({"splits": shares} if shares else {})}


@pytest.mark.slow
def test_splits_are_said_as_they_came_out():
    Path("photos").mkdir()
    frame = pd.DataFrame({"image_uri": [f"photos/{at}.jpg" for at in range(13)], "label": "x"})
    words = "TRAIN 9 (69%), VALIDATION 4 (31%), TEST none; asked for 80/10/10"
    words = f"splits: assigned to the 13 of 13 rows that had none: {words}"
    assert notes_of(frame) == [words] * 3


@pytest.mark.slow
def test_groups_leave_a_trace_in_what_is_said():
    found = notes_of(of_patients(), split_by="patient", splits="TRAIN=0.7,TEST=0.3")
    assert len(found) == 3
    for words in found:
        assert "by the 12 values of 'patient': TRAIN " in words
        assert words.endswith("; asked for TRAIN 70%, TEST 30%")


@pytest.mark.parametrize("extra", [{}, {"stratify": True}, {"split_by": "patient"}], ids=str)
def test_a_split_that_was_asked_for_and_has_no_row_is_a_warning(extra):
    options = {"splits": {"TRAIN": 0.99, "TEST": 0.01}, **extra}
    report = tfrecorder.validate(of_patients(), **options)
    [found] = report.query("code == 'empty_split'").to_dict("records")
    assert (found["severity"], found["value"]) == ("warning", "TEST")
    assert found["message"].startswith("no row is in TEST, although you asked for TRAIN 99%, TEST")
    there = of_patients().assign(split=["TEST"] + [None] * 35)
    assert "empty_split" not in set(tfrecorder.validate(there, **options)["code"])


def test_nobody_is_warned_of_a_default_split_without_rows():
    assert "empty_split" not in set(tfrecorder.validate(of_patients().iloc[:2])["code"])


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"splits": SHARES}, "splits"),
        ({"stratify": True, "split_by": "patient"}, "stratify, split_by"),
    ],
)
def test_options_that_find_nothing_to_divide_are_a_warning(options, value):
    frame = of_patients().assign(split="TRAIN")
    report = tfrecorder.validate(frame, **options)
    [found] = report.query("code == 'splits_ignored'").to_dict("records")
    assert (found["severity"], found["value"]) == ("warning", value)
    assert " and ".join(f"`{name}`" for name in options) in found["message"]
    assert "splits_ignored" not in set(tfrecorder.validate(frame)["code"])
    partly = frame.assign(split=["TRAIN"] * 20 + [None] * 16)
    assert "splits_ignored" not in set(tfrecorder.validate(partly, **options)["code"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split_by": "doctor"}, "split_by='doctor': the source has no such column"),
        ({"split_by": "patient"}, "the group is missing"),
        ({"stratify": True}, "splits cannot be stratified"),
    ],
)
def test_what_cannot_be_divided_is_an_error(tmp_path, options, words):
    frame = of_patients().drop(columns="label").assign(patient=None)
    with pytest.raises(tfrecorder.TfrecorderError, match=words):
        tfrecorder.convert(frame, tmp_path / "out", **options)


def test_a_word_that_is_no_valid_unicode_is_no_split():
    parsed = parse_splits(pd.Series(["train", "\ud800"], dtype=object))
    assert parsed[0] == "TRAIN"
    assert parsed.isna().tolist() == [False, True]


# ------------------------------------------------------------------------------ names of classes

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
