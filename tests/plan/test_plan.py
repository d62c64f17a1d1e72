"""The plan: every row once, in balanced shards, the same on every machine and every rerun.

The inner law: the arithmetic of a plan, with rows that have no images.
"""

import dataclasses
import itertools
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.public_types import ConvertOptions
from hypothesis import given, settings, strategies as st
from support import labelled

from tfrecorder.core.arrays import balanced_part
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.documents import seal, unseal
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan import Plan, PlannedRow
from tfrecorder.loading.order import slices
from tfrecorder.output.staging import read_plan, read_row_group, row_blocks, stage_plan
from tfrecorder.plan.history import describe_difference
from tfrecorder.plan.make_plan import (
    fingerprint,
    make_plan,
    refuse_taken_numbers,
    sample_rows,
    shard_count,
    shard_counts,
    shuffled,
)
from tfrecorder.reading.dataset import ShardFile
from tfrecorder.schema.keys import FILENAME, LABEL, SOURCE_ID, TEXT
from tfrecorder.sources.source import read_source
from tfrecorder.validation.rules import check_source

SPLITS = ("TRAIN", "VALIDATION", "TEST")
MIB = 2**20
ROWS = st.integers(1, 100_000)


def make_frame(rows=60, **columns):
    frame = pd.DataFrame(
        {
            "split": [SPLITS[i % 3] for i in range(rows)],
            "image_uri": [f"photos/{i}.jpg" for i in range(rows)],
            "label": [("rose", "daisy")[i % 2] for i in range(rows)],
        }
    )
    return frame.assign(**columns)


def plan_of(frame=None, sizes=(100_000,), base="/data", **options):
    """The plan of a frame, and its rows."""
    chosen = ConvertOptions(**options)
    frame = make_frame() if frame is None else frame
    checked = check_source(read_source(frame, chosen), chosen.division)
    plan, rows = make_plan(checked, base, chosen)
    counts = shard_counts(plan.layout.split_rows, sizes, chosen)
    return plan.laid_out(split_shards=counts), rows.to_pandas()


def labels_of(plan):
    """The plan's column of labels."""
    return next(field for field in plan.fields if field.column == "label")


def stage(directory, frame=None, **options):
    chosen = ConvertOptions(**options)
    checked = check_source(read_source(make_frame() if frame is None else frame), chosen.division)
    plan, rows = make_plan(checked, "/data", chosen)
    stage_plan(plan, rows, str(directory))
    return plan


def shard_rows(directory: str, group: int) -> list:
    """All rows of a shard."""
    return [row for block in row_blocks(read_row_group(directory, group)) for row in block]


# ---------------------------------------------------------------------------------------------
# Where each row goes.


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    splits=st.lists(st.sampled_from([*SPLITS, None]), min_size=1, max_size=40),
    shards=st.none() | st.integers(1, 5),
    shuffle=st.booleans(),
)
def test_every_row_has_exactly_one_place_in_a_shard_of_its_split(
    tmp_path_factory, splits, shards, shuffle
):
    folder = tmp_path_factory.mktemp("plan")
    frame = make_frame(len(splits), split=pd.Series(splits, dtype=object))
    plan = stage(folder, frame, num_shards=shards, shuffle=shuffle)
    seen = []
    for group, shard in enumerate(plan.layout.shards):
        rows = shard_rows(str(folder), group)
        assert len(rows) == plan.layout.shard_rows(shard) >= 1
        assert {splits[row.row] or shard.split for row in rows} == {shard.split}
        assert all(row.image_uri == frame["image_uri"][row.row] for row in rows)
        assert all(row.values[TEXT] == frame["label"][row.row] for row in rows)
        seen += [row.row for row in rows]
    assert sorted(seen) == list(range(len(splits)))
    assert sum(plan.layout.split_rows.values()) == plan.rows.count == len(splits)


@given(ROWS, st.integers(1, 1000))
def test_shards_are_consecutive_and_differ_by_one_row_at_most(rows, shards):
    count = min(rows, shards)
    bounds = [balanced_part(rows, index, count) for index in range(count)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == rows
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(bounds))
    sizes = {stop - start for start, stop in bounds}
    assert max(sizes) - min(sizes) <= 1 <= min(sizes)


@given(st.integers(0, 2000), st.sampled_from(SPLITS), st.integers(0, 2**32 - 1))
def test_a_shuffle_loses_and_invents_no_row(rows, split, seed):
    before = np.arange(rows)
    assert np.array_equal(np.sort(shuffled(before, split, seed)), before)


def test_each_seed_and_each_split_has_an_order_of_its_own():
    rows = np.arange(1000)
    orders = {
        tuple(shuffled(rows, split, seed)) for split in SPLITS for seed in (0, 1, 2, 2**32 - 1)
    }
    assert len(orders) == 12


def test_the_shuffle_is_the_same_for_ever():
    # Literal values: were NumPy or we to change them, reruns would write other files.
    rows = np.arange(8)
    assert shuffled(rows, "TRAIN", 0).tolist() == [3, 7, 4, 0, 2, 6, 5, 1]
    assert shuffled(rows, "TEST", 0).tolist() == [2, 6, 4, 1, 7, 3, 0, 5]
    assert shuffled(rows, "TRAIN", 2**32 - 1).tolist() == [5, 3, 6, 7, 1, 0, 4, 2]
    assert sample_rows(1_000_000, 3, 0).tolist() == [54081, 353181, 368114]


def test_without_shuffle_the_rows_keep_the_order_of_the_source():
    _, rows = plan_of(shuffle=False)
    assert [row % 3 for row in rows[SOURCE_ID]] == [0] * 20 + [1] * 20 + [2] * 20
    assert all(rows[SOURCE_ID].iloc[i : i + 20].is_monotonic_increasing for i in (0, 20, 40))


def test_the_shuffle_is_over_the_whole_split_not_within_a_shard():
    _, rows = plan_of(make_frame(3000, split="TRAIN"), num_shards=10)
    first = rows[SOURCE_ID].iloc[:300]
    assert first.min() < 300 < 2700 < first.max()


@given(ROWS, st.integers(1, 500), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_a_sample_is_of_distinct_rows_in_ascending_order(rows, size, seed):
    chosen = sample_rows(rows, size, seed)
    assert len(chosen) == min(rows, size)
    assert np.all(np.diff(chosen) > 0)
    assert np.all((chosen >= 0) & (chosen < rows))


# ---------------------------------------------------------------------------------------------
# How many shards.


@given(ROWS, st.floats(1, 1e7), st.integers(1, 2**40))
def test_a_split_has_at_least_one_shard_and_at_most_one_a_row(rows, row_bytes, shard_bytes):
    assert 1 <= shard_count(rows, row_bytes, shard_bytes) <= rows


@given(ROWS, ROWS, st.floats(1, 1e7), st.integers(1, 2**40))
def test_more_rows_never_make_fewer_shards(some, more, row_bytes, shard_bytes):
    counts = [shard_count(rows, row_bytes, shard_bytes) for rows in sorted((some, more))]
    assert counts[0] <= counts[1]


@given(ROWS, st.integers(1, 1000))
def test_the_number_asked_for_is_given_as_far_as_there_are_rows(rows, asked):
    assert shard_count(rows, 100_000, 128 * MIB, asked) == min(rows, asked)


@given(st.integers(10_000, 10**7), st.integers(10_000, 10**6))
def test_large_data_makes_shards_of_about_the_size_aimed_at(rows, row_bytes):
    shards = shard_count(rows, row_bytes, 128 * MIB)
    if shards > 8:
        assert 0.85 * 128 * MIB < rows * row_bytes / shards <= 128 * MIB + 1


@pytest.mark.parametrize(
    ("rows", "shards"), [(1, 1), (8, 1), (9, 2), (16, 2), (57, 8), (1000, 8), (10_000, 8)]
)
def test_small_data_makes_a_few_shards_all_the_same(rows, shards):
    assert shard_count(rows, 1000, 128 * MIB) == shards


def test_each_split_gets_the_number_asked_for_it():
    plan, _ = plan_of(num_shards={"train": 4, "val": 100})
    assert plan.layout.split_shards == {"TRAIN": 4, "VALIDATION": 20, "TEST": 3}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_the_number_of_shards_depends_on_rows_and_image_sizes_alone():
    everything = os.sched_getaffinity(0)
    here, _ = plan_of(make_frame(3000), sizes=[MIB, 3 * MIB], base="/data")
    try:
        os.sched_setaffinity(0, {min(everything)})
        on_one_core, _ = plan_of(make_frame(3000), sizes=[MIB, 3 * MIB], base="/elsewhere")
    finally:
        os.sched_setaffinity(0, everything)
    assert here.layout.split_shards == {"TRAIN": 16, "VALIDATION": 16, "TEST": 16}
    assert here.digest == on_one_core.digest


def test_image_sizes_may_be_unknown():
    assert plan_of(sizes=[])[0].layout.split_shards == {"TRAIN": 3, "VALIDATION": 3, "TEST": 3}


# ---------------------------------------------------------------------------------------------
# Labels.


def test_text_labels_are_numbered_by_the_sorted_vocabulary_of_all_splits():
    frame = make_frame(3, split=["TRAIN", "TRAIN", "TEST"], label=["b", "c", "a"])
    plan, rows = plan_of(frame, shuffle=False)
    label = labels_of(plan)
    assert label.names == ("a", "b", "c")
    assert list(zip(rows[LABEL], rows[TEXT], strict=True)) == [(1, "b"), (2, "c"), (0, "a")]
    assert (label.integer, label.num_classes) == (False, 3)


def test_given_labels_are_numbered_in_the_order_given():
    plan, rows = plan_of(make_frame(2), schema=labelled("rose", "tulip", "daisy"), shuffle=False)
    assert labels_of(plan).names == ("rose", "tulip", "daisy")
    assert rows[LABEL].tolist() == [0, 2]


def test_integer_labels_stay_as_they_are():
    plan, rows = plan_of(make_frame(3, split="TRAIN", label=[7, 0, 7]), shuffle=False)
    assert rows[LABEL].tolist() == [7, 0, 7]
    assert rows[TEXT].tolist() == ["7", "0", "7"]
    label = labels_of(plan)
    assert (label.integer, label.num_classes, label.names) == (True, 8, None)


def test_integer_labels_may_be_given_names():
    frame = make_frame(2, split="TRAIN", label=[1, 0])
    plan, rows = plan_of(frame, schema=labelled("daisy", "rose"), shuffle=False)
    assert rows[LABEL].tolist() == [1, 0]
    assert rows[TEXT].tolist() == ["rose", "daisy"]
    assert labels_of(plan).num_classes == 2


def test_without_labels_every_label_is_minus_one():
    plan, rows = plan_of(make_frame(3).drop(columns="label"))
    assert rows[LABEL].tolist() == [-1, -1, -1]
    assert rows[TEXT].tolist() == ["", "", ""]
    label = labels_of(plan)
    assert (label.is_unlabelled, label.num_classes, label.names) == (True, 0, None)


# ---------------------------------------------------------------------------------------------
# The fingerprint: is this still the same source?


def fingerprint_of(frame):
    """The fingerprint of a frame's columns as the values of a plan."""
    columns = {name: frame[name].astype(object).tolist() for name in frame}
    texts = {name: isinstance(cells[0] if cells else "", str) for name, cells in columns.items()}
    types = {True: pa.large_string(), False: pa.int64()}
    values = {name: pa.array(cells, types[texts[name]]) for name, cells in columns.items()}
    return fingerprint(pd.Series("TRAIN", frame.index), values)


def text_frame(texts, **more):
    return pd.DataFrame({"image_uri": texts, **more})


@pytest.mark.parametrize(
    "dtype", ["str", "string", "string[python]", "category", "string[pyarrow]", "large_string"]
)
def test_a_column_of_any_text_dtype_has_the_fingerprint_of_its_texts(dtype):
    dtype = pd.ArrowDtype(pa.large_string()) if dtype == "large_string" else dtype
    frame = make_frame()
    assert fingerprint_of(frame.astype(dtype)) == fingerprint_of(frame.astype(object))
    assert plan_of(frame.astype(dtype))[0].digest == plan_of(frame.astype(object))[0].digest


@pytest.mark.parametrize("dtype", ["int32", "uint8", "Int64", "int64[pyarrow]", "category", object])
def test_a_column_of_any_integer_dtype_makes_the_same_plan(dtype):
    frame = make_frame(label=[i % 5 for i in range(60)])
    assert plan_of(frame.astype({"label": dtype}))[0].digest == plan_of(frame)[0].digest


TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=4)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS)
def test_other_texts_have_another_fingerprint(one, other):
    frames = [text_frame(pd.Series(texts, dtype=object)) for texts in (one, other)]
    assert (fingerprint_of(frames[0]) == fingerprint_of(frames[1])) == (one == other)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.iloc[:-1],
        lambda frame: frame.iloc[::-1],
        lambda frame: frame.drop(columns="label"),
        lambda frame: frame.assign(label=frame["label"].str.upper()),
        lambda frame: frame.assign(split="TRAIN"),
        lambda frame: frame.assign(label=frame["image_uri"], image_uri=frame["label"]),
        lambda frame: frame.assign(
            image_uri=["photos/" + frame["image_uri"][0], *frame["image_uri"][1:]]
        ),
    ],
)
def test_any_change_of_the_rows_changes_the_fingerprint(change):
    frame = make_frame()
    assert fingerprint_of(change(frame)) != fingerprint_of(frame)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        (["a", ""], ["", "a"]),
        (["a\0b"], ["a", "b"]),
        (["a,b", "c"], ["a", "b,c"]),
    ],
)
def test_a_text_that_moves_between_cells_changes_the_fingerprint(one, other):
    assert fingerprint_of(text_frame(one)) != fingerprint_of(text_frame(other))
    pairs = [pd.DataFrame([texts[:2]]) for texts in (one, other) if len(texts) == 2]
    assert len({fingerprint_of(pair.rename(columns=str)) for pair in pairs}) == len(pairs)


def test_numbers_are_not_taken_for_their_texts():
    assert fingerprint_of(pd.DataFrame({"label": [1, 2]})) != fingerprint_of(
        pd.DataFrame({"label": ["1", "2"]})
    )


# ---------------------------------------------------------------------------------------------
# Staging.


def test_a_staged_plan_is_read_back(tmp_path):
    frame = make_frame(label=[f"ä\n{i % 4}" for i in range(60)])
    plan = stage(tmp_path, frame, num_shards={"TEST": 2})
    assert read_plan(str(tmp_path)) == plan
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).digest == plan.digest


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"split_shards": {"../../x": 1}}, "other splits"),
        ({"version": 9}, "it is of version 9"),
        ({"kind": "harvest"}, "'harvest' is not a valid"),
    ],
)
def test_a_plan_that_is_sealed_and_yet_not_ours_is_refused(tmp_path, change, words):
    values = unseal(stage(tmp_path, make_frame()).to_json())
    with pytest.raises(ValueError, match=words):
        Plan.from_json(seal({**values, **change}))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b"[" * 200_000, b'{"a":' * 200_000])
def test_what_is_no_plan_is_one_kind_of_error(data):
    with pytest.raises(ValueError):
        Plan.from_json(data)


def test_staged_rows_are_read_back(tmp_path):
    uris = ["a,b.jpg", 'quo"te.jpg', "new\nline.jpg", "ünï.jpg", " "]
    frame = pd.DataFrame({"image_uri": uris, "label": uris[::-1], "split": "TRAIN"})
    plan = stage(tmp_path, frame, num_shards=2, shuffle=False)
    rows = shard_rows(str(tmp_path), 0) + shard_rows(str(tmp_path), 1)
    names = labels_of(plan).names
    assert rows == [
        PlannedRow(
            row=i,
            image_uri=uri,
            values={SOURCE_ID: i, FILENAME: uri, LABEL: names.index(label), TEXT: label},
        )
        for i, (uri, label) in enumerate(zip(uris, uris[::-1], strict=True))
    ]


@pytest.mark.slow
def test_the_rows_of_a_large_shard_come_in_blocks_and_in_order(tmp_path):
    uris = [f"{number}.jpg" for number in range(20_000)]
    frame = pd.DataFrame({"image_uri": uris, "split": "TRAIN"})
    stage(tmp_path, frame, num_shards=1, shuffle=False)
    blocks = list(row_blocks(read_row_group(str(tmp_path), 0)))
    assert max(map(len, blocks)) < len(uris) / 2
    assert [row.image_uri for block in blocks for row in block] == uris


def test_a_directory_without_a_plan_has_none(tmp_path):
    assert read_plan(str(tmp_path)) is None


@pytest.mark.parametrize("content", [b"{}", b'{"version": 99}', b"[]", b"\xff"])
def test_a_plan_of_another_version_is_refused_in_words(tmp_path, content):
    path = tmp_path / layout.PLAN
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(OutputError, match="not a plan that this version of tfrecorder can read"):
        read_plan(str(tmp_path))


def test_a_worker_reads_only_its_own_rows(tmp_path):
    stage(tmp_path, make_frame(600), num_shards=4)
    expected = shard_rows(str(tmp_path), 5)
    path = tmp_path / layout.PLAN_ROWS
    data = bytearray(path.read_bytes())
    metadata = pq.read_metadata(path)
    for group in set(range(metadata.num_row_groups)) - {5}:
        column = metadata.row_group(group).column(0)
        start = column.data_page_offset
        data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)
    assert shard_rows(str(tmp_path), 5) == expected
    with pytest.raises(OSError, match=r"Corrupt|Couldn.t deserialize|zero"):
        shard_rows(str(tmp_path), 4)


def test_a_shard_may_have_more_rows_than_parquet_groups_by_default(tmp_path):
    many = 2**20 + 1
    plan = plan_of()[0].laid_out(split_rows={"TEST": many}, split_shards={"TEST": 1})
    stage_plan(plan, pa.table({SOURCE_ID: range(many)}), str(tmp_path))
    assert pq.read_metadata(tmp_path / layout.PLAN_ROWS).num_row_groups == 1


def test_a_plan_that_was_staged_meanwhile_stays(tmp_path):
    first = stage(tmp_path, num_shards=3)
    with pytest.raises(OutputError, match="another conversion started there at the same moment"):
        stage(tmp_path, num_shards=4)
    assert read_plan(str(tmp_path)) == first
    stage(tmp_path, num_shards=3)


def test_the_same_source_and_options_make_the_same_files(tmp_path):
    for name in ("one", "two"):
        stage(tmp_path / name, num_shards=3)
    for file in (layout.PLAN, layout.PLAN_ROWS):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_shards_are_numbered_within_their_split():
    plan, _ = plan_of(num_shards={"TRAIN": 2, "VALIDATION": 1, "TEST": 1})
    assert plan.layout.shards == [
        Shard("TRAIN", 0),
        Shard("TRAIN", 1),
        Shard("VALIDATION", 0),
        Shard("TEST", 0),
    ]


# ---------------------------------------------------------------------------------------------
# What keeps a conversion from being continued.

CHANGES = {
    "columns": {"path": "image_uri"},
    "num_shards": 2,
    "shard_size": "1MiB",
    "shuffle": False,
    "seed": 1,
    "check": "header",
    "max_pixels": 1000,
}


@pytest.mark.parametrize("name", ConvertOptions().content_options())
def test_every_option_that_differs_is_named_with_both_values(name):
    staged, _ = plan_of()
    options = ConvertOptions(**{name: CHANGES[name]}).content_options()
    (words,) = describe_difference(staged, dataclasses.replace(staged, options=options))
    was = "not given" if staged.options[name] is None else repr(staged.options[name])
    now = repr(options[name])
    if name == "shard_size":
        was, now = "128MiB", "1MiB"  # as one gives them
    assert words == f"`{name}` was {was} and now is {now}"


def test_a_source_of_another_length_is_described():
    (words,) = describe_difference(plan_of(make_frame(60))[0], plan_of(make_frame(61))[0])
    assert words == "the source had 60 rows and now has 61"


def test_a_source_with_other_values_is_described():
    (words,) = describe_difference(plan_of()[0], plan_of(make_frame(label="rose"))[0])
    assert words == "the values in the source's rows have changed"


def test_nothing_differs_after_staging_in_another_folder_with_other_image_sizes(tmp_path):
    stage(tmp_path, num_shards={"TEST": 2}, schema=labelled("daisy", "rose"))
    again, _ = plan_of(
        num_shards={"test": 2}, schema=labelled("daisy", "rose"), base="/moved", sizes=[10**9]
    )
    assert describe_difference(read_plan(str(tmp_path)), again) == []


def test_hosts_read_few_shards_beside_their_own() -> None:
    shards = [ShardFile(str(n), 1 + n % 7, 0) for n in range(30)]
    total = sum(shard.records or 0 for shard in shards)
    for count in (1, 3, 8, 50):
        runs = [slices(shards, (index, count)) for index in range(count)]
        assert [sum(run.take for run in part) for part in runs] == [
            end - first for first, end in (balanced_part(total, i, count) for i in range(count))
        ]
        assert sum(map(len, runs)) <= len(shards) + count - 1


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([7, 8, 7], "1 row numbers stand for two records or more, such as 7"),
        ([9, 5, 10], "a new row would get the number 5, but the next free one is 7"),
        ([2**40, 7, 2**40], "such as 1099511627776"),
    ],
)
def test_a_number_that_is_given_already_is_refused(numbers: list[int], words: str) -> None:
    planned = pa.table({SOURCE_ID: pa.array(numbers, pa.int64())})
    with pytest.raises(OutputError, match=words):
        refuse_taken_numbers("out", planned, 7)


def test_rejects_that_are_tried_again_keep_their_numbers() -> None:
    planned = pa.table({SOURCE_ID: pa.array([9, 5, 7], pa.int64())})
    refuse_taken_numbers("out", planned, 7, retried=np.array([-1, 5]))
