"""Options validate themselves: what is wrong is named, shown, and put right."""

import dataclasses
import json
import pickle
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from helpers.public_types import ConvertOptions

import tfrecorder
from tfrecorder.errors import OptionError
from tfrecorder.schema import Label

FIELDS = [item.name for item in dataclasses.fields(ConvertOptions)]

# For each option: values that it refuses, and words of the remedy.
REFUSED = {
    "sep": [(";;", "give one character"), ("", "give one"), ('"', "give one"), (1, "give one")],
    "encoding": [("klingon", "as 'cp1252'"), (8, "as 'cp1252'"), ("", "as 'cp1252'")],
    "base": [("", "the path of a folder"), (1, "the path of a folder")],
    "form": [("labelme", "one of 'coco', 'yolo'"), ("", "one of"), (1, "'datumaro:kitti'")],
    "columns": [
        ("path", "give a dict"),
        ({1: "label"}, "give a dict"),
        ({"\ud800": "label"}, "give a dict"),
        ({"image_uri": "path"}, "first comes the source's name, then one of split, image_uri,"),
        ({"path": None}, "as in `columns={'path': 'image_uri'}`"),
        ({"a": "label", "b": "label"}, "same column"),
    ],
    "num_shards": [
        (0, "whole number from 1"),
        (True, "whole number from 1"),
        (2.0, "whole number from 1"),
        ("8", "whole number from 1"),
        (np.array([1, 2]), "whole number from 1"),
        ({"dev": 2}, "'dev' is not a split; there are TRAIN, VALIDATION, TEST"),
        ({"unassigned": 2}, "not a split"),
        ({"train": 0}, "train: give a whole number from 1"),
        ({"train": 1, "TRAIN": 2}, "TRAIN is given more than once"),
    ],
    "shard_size": [
        ("128 parsecs", "as '128MiB'"),
        ("-1MB", "as '128MiB'"),
        ("", "as '128MiB'"),
        (None, "as '128MiB'"),
        (float("inf"), "as '128MiB'"),
        (float("nan"), "as '128MiB'"),
        (0, "at least 1 byte"),
        (-5, "at least 1 byte"),
        ("0.1B", "at least 1 byte"),
        (True, "at least 1 byte"),
    ],
    "shuffle": [(1, "True or False"), (None, "True or False"), ("no", "True or False")],
    "seed": [
        (-1, "from 0 to 4294967295"),
        (2**32, "from 0 to 4294967295"),
        (None, "whole number"),
        (0.5, "whole number"),
        (False, "whole number"),
    ],
    "check": [
        ("full", "'decode', 'strict', 'header'"),
        ("none", "'decode', 'strict', 'header'"),
        (None, "'decode'"),
        (True, "'decode'"),
    ],
    "max_pixels": [(0, "from 1"), (1e6, "from 1"), ("many", "from 1"), (None, "from 1")],
    "schema": [
        (1, "a tfrecorder.schema.Schema, or the path"),
        ("nowhere.yaml", "cannot be read"),
        ({"age": "nmber"}, "there is no kind 'nmber'; did you mean number?"),
        ({"age": {"kind": "number", "type": "int64"}}, "number has no setting 'type'"),
        ({"age": {"kind": "number", "dtype": "int8"}}, "'float32', 'int64', 'bool'"),
        ({"split": "split"}, "no column makes a feature"),
        ({"a": "boxes", "image_uri": "image", "b": "boxes"}, "can be only one"),
        ({"a": "mask"}, "of which image"),
        ({"a_uri": "image", "b_uri": "image", "m": {"kind": "mask", "of": "c"}}, "no such Image"),
        ({"a": "text", "b": {"kind": "labels", "columns": ["a"]}}, "'a' is needed for 'a' and"),
    ],
    "image_size": [
        (0, "height and width"),
        ("256", "one number for both"),
        ((224,), "height and width in pixels, such as `image_size=(192, 256)`"),
        ((224, 0), "height and width"),
        (True, "one number for both"),
    ],
    "short_side": [(0, "from 1"), ((224, 224), "from 1"), ("256", "from 1")],
    "resize": [("fill", "'stretch', 'crop', 'pad', 'fit'")],
    "image_format": [("webp", "'keep', 'jpeg', 'png', 'raw'")],
    "image_quality": [(0, "from 1 to 100"), (101, "from 1 to 100"), (0.9, "from 1")],
    "apply_exif": [("yes", "True or False")],
    "fingerprints": [("yes", "True or False")],
    "group_copies": [("yes", "True or False")],
    "strip_metadata": [("yes", "True or False")],
    "max_reject_fraction": [
        (-0.1, "from 0 to 1"),
        (1.1, "from 0 to 1"),
        (float("nan"), "from 0 to 1"),
        (True, "from 0 to 1"),
        ("0.1", "from 0 to 1"),
        (None, "from 0 to 1"),
        (np.array([0.1, 0.2]), "from 0 to 1"),
    ],
    "splits": [
        (0.8, "give the share of each split"),
        ({}, "give the share of each split"),
        ({"dev": 1}, "'dev' is not a split; there are TRAIN, VALIDATION, TEST"),
        ({"train": 0, "test": 1}, "train: give a share above 0"),
        ({"train": "0.7", "test": 0.3}, "train: give a share above 0"),
        ({"train": 0.5, "TRAIN": 0.5}, "more than once"),
        ({"train": 0.7, "test": 0.2}, "sum to 0.9"),
    ],
    "stratify": [("yes", "True or False")],
    "split_by": [(5, "give text")],
    "group_by": [(5, "give text")],
    "name": [
        ("MyFlowers", "such as 'my_flowers'"),
        ("my-flowers", "such as 'my_flowers'"),
        ("../flowers", "such as 'flowers'"),
        ("", "beginning with a letter, such as 'my_flowers'"),
        ("7flowers", "a-z, 0-9 and _"),
        ("blümchen", "a-z, 0-9 and _"),
        ("flowers\n", "such as 'flowers'"),
        (7, "a-z, 0-9 and _"),
        ("flowers:1.0", "such as 'flowers:1.0.1'"),
        ("flowers:1.0.0.0", "three whole numbers"),
        ("flowers:v1.0.0", "three whole numbers"),
        ("flowers:01.0.0", "none with a leading zero"),
        ("flowers:1.0.0\n", "three whole numbers"),
        ("flowers:", "three whole numbers"),
    ],
    "warnings": [("yes", "'show', 'error', or a list"), ([], "a list of codes"), (True, "a list")],
    "overwrite": [("yes", "one of False, True, 'all'"), (None, "one of False, True, 'all'")],
    "private_hosts": [("no", "True or False")],
    "runner": [("", "a runner's name"), (1, "a runner's name")],
    "runner_options": [
        ("machine_type=x", "give a dict"),
        ([("machine_type", "x")], "give a dict"),
        ({1: "x"}, "1 is not an option's name"),
        ({"--": "x"}, "'--' is not an option's name"),
        ({"--a-b": 1, "a_b": 2}, "'a_b' is given more than once"),
        ({"machine_type": object}, "machine_type=<class 'object'>: give text, a number"),
        ({"labels": [b"a"]}, "give text, a number"),
    ],
    "wait": [(1, "True or False"), (None, "True or False"), ("no", "True or False")],
    "project": [(1, "give text")],
    "region": [(b"europe", "give text")],
    "num_workers": [(0, "from 1"), (1.5, "from 1"), (True, "from 1")],
    "num_threads": [(0, "from 1"), (-1, "from 1"), ("4", "from 1")],
    "progress": [("yes", "True, False or None"), (1, "True, False or None")],
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_option_refuses_something(name):
    assert REFUSED[name]


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [(name, value, remedy) for name, cases in REFUSED.items() for value, remedy in cases],
)
def test_an_error_names_the_option_shows_the_value_and_gives_the_remedy(name, value, remedy):
    with pytest.raises(OptionError) as refused:
        ConvertOptions(**{name: value})
    error = refused.value
    assert str(error) == f"{name}={value!r}: {error.remedy}"
    assert remedy in error.remedy
    assert (error.name, repr(error.value)) == (name, repr(value))


def test_an_error_about_a_value_that_cannot_be_pickled_can_be_pickled_itself():
    with pytest.raises(OptionError) as refused:
        ConvertOptions(num_shards=lambda: 4)
    error = refused.value
    again = pickle.loads(pickle.dumps(OptionError("both are wrong:", error, "so is a file")))
    assert str(again) == f"both are wrong:\n- {error}\n- so is a file"
    assert (again.args[1].name, again.args[1].remedy) == (error.name, error.remedy)
    assert again.args[1].value is ...


@pytest.mark.parametrize(
    ("call", "name", "words"),
    [
        (tfrecorder.validate, "num_shards", "validate writes nothing; leave it out."),
        (tfrecorder.validate, "chek", "did you mean `check`?"),
        (tfrecorder.load, "batchsize", "did you mean `batch_size`?"),
    ],
)
def test_a_call_refuses_the_options_of_others(call, name, words):
    with pytest.raises(OptionError, match=re.escape(words)):
        call("nowhere", **{name: 1})


@pytest.mark.parametrize("name", FIELDS)
def test_every_option_has_a_help_text_of_one_sentence_at_least(name):
    (item,) = [item for item in dataclasses.fields(ConvertOptions) if item.name == name]
    assert item.metadata["help"].rstrip()[-1] in ".;0123456789"


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [("num_shard", "num_shards"), ("overwrit", "overwrite"), ("chek", "check")],
)
def test_a_misspelt_option_suggests_the_nearest(misspelt, meant):
    with pytest.raises(OptionError, match=f"no option '{misspelt}'; did you mean `{meant}`\\?"):
        ConvertOptions.of({misspelt: 1})


def test_an_option_like_no_other_is_answered_with_all():
    with pytest.raises(OptionError) as refused:
        ConvertOptions.of({"xyzzy": 1})
    assert all(name in str(refused.value) for name in FIELDS)


def test_the_defaults_are_valid():
    assert ConvertOptions.of({}) == ConvertOptions()


def test_numpy_numbers_are_as_good_as_pythons():
    given = ConvertOptions(
        num_shards=np.int64(4),
        shard_size=np.int32(1000),
        seed=np.uint32(7),
        max_pixels=np.int64(10),
        max_reject_fraction=np.float32(0.5),
        num_workers=np.int8(2),
        num_threads=np.int8(2),
    )
    plain = ConvertOptions(
        num_shards=4,
        shard_size=1000,
        seed=7,
        max_pixels=10,
        max_reject_fraction=0.5,
        num_workers=2,
        num_threads=2,
    )
    assert given == plain
    assert {type(given.seed), type(given.num_shards), type(given.max_pixels)} == {int}
    assert json.dumps(given.content_options()) == json.dumps(plain.content_options())


@pytest.mark.parametrize("fraction", [0, 1, 0.25, Decimal("0.25"), np.float64(0.25)])
def test_any_number_from_0_to_1_is_a_fraction(fraction):
    assert ConvertOptions(max_reject_fraction=fraction).max_reject_fraction == float(fraction)


@pytest.mark.parametrize(
    "labels", [["b", "a"], ("b", "a"), pd.Index(["b", "a"]), pd.array(["b", "a"])]
)
def test_labels_keep_the_order_in_which_they_are_given(labels):
    assert Label(names=labels).names == ("b", "a")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("rose", "give a list"),
        (5, "give a list"),
        ({"rose"}, "give a list"),
        ({"rose": 0}, "give a list"),
        pytest.param(iter(["rose"]), "give a list", id="an iterator"),
        ([], "at least one name"),
        (["rose", "rose"], "'rose' appears more than once"),
        ([1, "1"], "'1' appears more than once"),
        ([None], "None is not a class name"),
        ([1.5], "1.5 is not a class name"),
        (["\ud800"], "is not a class name"),
    ],
    ids=str,
)
def test_names_that_are_no_list_of_classes_are_refused(names, words):
    with pytest.raises(OptionError, match=words):
        Label(names=names)


def test_integer_labels_are_names_as_well():
    assert Label(names=[np.int64(2), 1]).names == ("2", "1")


def test_shards_are_asked_for_all_splits_or_for_each_in_any_spelling():
    assert ConvertOptions(num_shards=4).shards_of("TEST") == 4
    by_split = ConvertOptions(num_shards={"Training": 4, "val": np.int64(2)})
    assert [by_split.shards_of(split) for split in ("TRAIN", "VALIDATION", "TEST")] == [4, 2, None]
    assert ConvertOptions().shards_of("TRAIN") is None


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("128MiB", 128 * 2**20),
        ("1.5 GiB", 3 * 2**29),
        ("2kb", 2000),
        ("100 B", 100),
        ("1GB", 10**9),
        ("77", 77),
        (1e6, 10**6),
    ],
)
def test_sizes(size, expected):
    assert ConvertOptions(shard_size=size).shard_bytes == expected


@pytest.mark.parametrize(
    ("given", "runner"),
    [
        ("DataFlowRunner", "DataflowRunner"),
        ("dataflowrunner", "DataflowRunner"),
        ("DIRECTRUNNER", "DirectRunner"),
    ],
)
def test_a_runner_in_any_case(given, runner):
    assert ConvertOptions(runner=given).runner == runner


def test_options_of_the_runner_with_or_without_what_a_command_line_adds():
    given = {"--machine-type": "x", "max-num-workers": np.int64(3), "experiments": ("a", "b")}
    plain = {"machine_type": "x", "max_num_workers": 3, "experiments": ("a", "b")}
    assert ConvertOptions(runner_options=given).runner_options == plain
    assert ConvertOptions(runner_options=None).runner_options is None


def test_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ConvertOptions().seed = 5


def test_what_the_caller_changes_later_changes_no_option():
    columns, shards = {"path": "image_uri"}, {"TRAIN": 2}
    options = ConvertOptions(columns=columns, num_shards=shards)
    columns["x"], shards["TEST"] = "label", 1
    expected = ConvertOptions(columns={"path": "image_uri"}, num_shards={"TRAIN": 2})
    assert options == expected


def test_the_options_of_the_content_are_the_same_after_json():
    options = ConvertOptions(
        columns={"path": "image_uri"}, num_shards={"val": 2}, shard_size="1MiB"
    ).content_options()
    assert json.loads(json.dumps(options)) == options


def test_only_what_decides_the_content_must_stay_when_a_conversion_is_continued():
    content = set(ConvertOptions().content_options())
    assert content == {
        "columns",
        "num_shards",
        "shard_size",
        "shuffle",
        "seed",
        "check",
        "max_pixels",
    }


def test_one_shard_size_in_two_units_is_one_option():
    assert (
        ConvertOptions(shard_size="1MiB").content_options()
        == ConvertOptions(shard_size=2**20).content_options()
    )
