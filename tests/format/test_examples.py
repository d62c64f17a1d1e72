"""Examples are, byte for byte, those of TensorFlow, and those of TensorFlow are read back."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as npst
from support import encoded

from tfrecorder import parse_example

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = npst.integer_dtypes() | npst.unsigned_integer_dtypes(sizes=(8, 16, 32))
ARRAYS = npst.arrays(
    NUMBERS | npst.floating_dtypes(sizes=(16, 32, 64)),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
VALUES = st.one_of(
    st.binary(max_size=300),
    TEXT,
    INT64,
    st.booleans(),
    st.floats(),
    st.lists(st.binary(max_size=20) | TEXT, min_size=1, max_size=5),
    ARRAYS,
)
FEATURES = st.dictionaries(TEXT, VALUES, max_size=5)


def tensorflow_feature(value):
    """The Feature that a user of TensorFlow would write for a value."""
    items = value.ravel().tolist() if isinstance(value, np.ndarray) else value
    items = items if isinstance(items, list) else [items]
    kinds = {type(item) for item in items}
    if kinds & {str, bytes}:
        raw = [item.encode() if isinstance(item, str) else item for item in items]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=raw))
    if float in kinds or (isinstance(value, np.ndarray) and value.dtype.kind == "f"):
        return tf.train.Feature(float_list=tf.train.FloatList(value=items))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=items))


def tensorflow_example(features):
    feature = {key: tensorflow_feature(value) for key, value in features.items()}
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(FEATURES)
def test_the_bytes_are_those_of_tensorflow(features):
    assert encoded(features) == tensorflow_example(features)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_152])
def test_sizes_around_the_steps_of_the_length_encoding(size):
    features = {"bytes": bytes(size), "ints": np.ones(size // 8, dtype=np.int64)}
    assert encoded(features) == tensorflow_example(features)


def test_a_key_that_begins_another_comes_behind_it():
    features = {"image/class": 1, "image/class/text": "a", "image/classes": 2, "": 3}
    assert encoded(features) == tensorflow_example(features)
    keys = ["image/class/text", "image/classes", "image/class", ""]
    assert list(parse_example(encoded(features))) == keys


def test_no_features_at_all():
    assert encoded({}) == tensorflow_example({})


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (True, 1),
        (1e300, float("inf")),
        (np.array(7), 7),
        (np.array([1, 2], dtype=">i4"), [1, 2]),
        (np.array([1.5, 2.5], dtype=">f8"), [1.5, 2.5]),
        (np.arange(6).reshape(2, 3).T, [0, 3, 1, 4, 2, 5]),
        (np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]), [1.0, 2.0, 3.0, 4.0]),
        (np.array([b"a", b"bc"]), [b"a", b"bc"]),
    ],
    ids=str,
)
def test_a_value_counts_as_what_it_holds(value, plain):
    assert encoded({"key": value}) == tensorflow_example({"key": plain})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([], "bytes"),
        (np.empty(0, "S1"), "bytes"),
        (np.empty(0, "f8"), "float"),
        (np.empty(0, "u2"), "int64"),
    ],
    ids=["list", "S1", "f8", "u2"],
)
def test_an_empty_array_is_an_empty_list_of_its_own_type(value, kind):
    example = tf.train.Example.FromString(encoded({"key": value}))
    assert example.features.feature["key"].WhichOneof("kind") == f"{kind}_list"


@settings(deadline=None)
@given(FEATURES)
def test_what_was_encoded_is_parsed_back_as_tensorflow_parses_it(features):
    data = encoded(features)
    parsed = parse_example(data)
    expected = tf.train.Example.FromString(data).features.feature
    assert sorted(parsed) == sorted(expected)
    for key, values in parsed.items():
        kind = {list: "bytes_list", np.float32: "float_list", np.int64: "int64_list"}
        of = type(values) if isinstance(values, list) else values.dtype.type
        assert expected[key].WhichOneof("kind") == kind[of]
        np.testing.assert_array_equal(values, list(getattr(expected[key], kind[of]).value))


def test_numbers_that_a_writer_left_unpacked_are_parsed():
    varints = b"\x08\x05\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 5, -1
    floats = b"\x0d" + np.float32(1.5).tobytes()
    for body, tag, expected in ((varints, b"\x1a", [5, -1]), (floats, b"\x12", [1.5])):
        feature = tag + bytes([len(body)]) + body
        entry = b"\x0a\x01k\x12" + bytes([len(feature)]) + feature
        features = b"\x0a" + bytes([len(entry)]) + entry
        data = b"\x0a" + bytes([len(features)]) + features
        assert tf.train.Example.FromString(data).features.feature["k"].ByteSize()
        assert parse_example(data)["k"].tolist() == expected


def test_fields_that_a_later_protocol_may_add_are_passed_over():
    later = b"\x18\x07" + b"\x25\0\0\0\0" + b"\x29\0\0\0\0\0\0\0\0" + b"\x32\x01x"
    assert parse_example(encoded({"a": 1}) + later)["a"].tolist() == [1]


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (None, TypeError, "NoneType"),
        (["a", 1], TypeError, "numbers go into a NumPy array"),
        ([1, 2], TypeError, "numbers go into a NumPy array"),
        (1j, TypeError, "complex"),
        (np.array([1j]), TypeError, "complex"),
        (np.array([0], dtype="datetime64[ns]"), TypeError, "datetime64"),
        ({"a": 1}, TypeError, "dict"),
        (2**63, OverflowError, str(2**63)),
        (np.array([2**63], dtype=np.uint64), OverflowError, "int64"),
        ("\ud800", ValueError, "Unicode"),
    ],
    ids=ascii,
)
def test_what_no_feature_can_hold_is_refused_with_the_key_and_the_reason(value, error, words):
    with pytest.raises(error, match="feature 'the key'") as refused:
        encoded({"the key": value})
    assert words in str(refused.value)


@pytest.mark.parametrize(("key", "error"), [(5, TypeError), ("\ud800", ValueError)])
def test_a_key_that_is_no_text_is_refused_by_name(key, error):
    with pytest.raises(error, match="feature"):
        encoded({key: 1})


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=200))
def test_junk_raises_nothing_but_a_value_error(junk):
    with contextlib.suppress(ValueError):
        parse_example(junk)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(FEATURES, st.integers(0), st.binary(min_size=1, max_size=3))
def test_a_damaged_example_raises_nothing_but_a_value_error(features, at, junk):
    data = encoded(features)
    at %= len(data)
    with contextlib.suppress(ValueError):
        parse_example(data[:at] + junk + data[at + len(junk) :])


def test_an_example_that_was_cut_is_refused():
    data = encoded({"image/encoded": b"abc", "label": 5})
    for end in range(1, len(data)):
        with pytest.raises(ValueError, match=r"^not a tf\.train\.Example: "):
            parse_example(data[:end])
