"""Splits: every usual word is understood, and a row without one keeps the one it is given."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecorder.schema.splits import assign_split, assign_splits, parse_splits

WORDS = {
    "TRAIN": ["train", "TRAIN", "Train", "training", "Training", " train "],
    "VALIDATION": ["val", "valid", "validation", "VALID", "Validation"],
    "TEST": ["test", "TEST", "testing", "test\n"],
    "UNASSIGNED": ["unassigned", "UNASSIGNED", "", "  ", None, float("nan"), pd.NA],
}


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
    assert parsed.fillna("?").tolist() == ["TRAIN", "UNASSIGNED", "VALIDATION", "?"]
    assert parsed.index.equals(column.index)


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, "VA TR TR TR TR TR TR VA VA VA TR TR TR TR TR TR TE TE TR TR"),
        (1, "TR TR TR TR TR TR TE TR TR TR TR TR TR TE TR TR TR TR TR TR"),
    ],
)
def test_assigned_splits_are_the_same_on_every_machine_for_ever(seed, expected):
    assigned = assign_splits((f"photos/{i}.jpg" for i in range(20)), seed)
    assert " ".join(split[:2] for split in assigned) == expected


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), unique=True), st.data())
def test_a_row_keeps_its_split_when_rows_come_and_go(uris, data):
    kept = data.draw(st.lists(st.sampled_from(uris), unique=True)) if uris else []
    before = dict(zip(uris, assign_splits(uris, seed=7), strict=True))
    assert assign_splits(kept, seed=7) == [before[uri] for uri in kept]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_eight_in_ten_train_and_one_each_validates_and_tests(seed):
    counts = pd.Series(assign_splits((f"{i}.jpg" for i in range(20_000)), seed)).value_counts()
    assert (counts / 20_000).round(2).to_dict() == {"TRAIN": 0.8, "VALIDATION": 0.1, "TEST": 0.1}


def test_another_seed_is_another_assignment():
    uris = [f"{i}.jpg" for i in range(100)]
    assert assign_splits(uris, seed=0) != assign_splits(uris, seed=1)


def test_one_uri_is_one_split():
    assert assign_splits(["a", "b", "a"], seed=3)[::2] == [assign_split("a", seed=3)] * 2


def test_a_word_that_is_no_valid_unicode_is_no_split():
    assert parse_splits(pd.Series(["train", "\ud800"], dtype=object)).tolist() == ["TRAIN", None]
