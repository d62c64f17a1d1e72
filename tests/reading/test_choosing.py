"""What an epoch is made of: chosen records, even classes, several datasets; the same everywhere."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.reading_cases import assert_alike, convert_photos
from hypothesis import HealthCheck, given, settings, strategies as st

import tfrecorder
from tfrecorder import Records, batches, load
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.schema import Label, Labels, Number, Schema, Split, Text

SCHEMA = Schema(
    split=Split(), label=Label(), id=Number(dtype="int64"), age=Number(dtype="int64"), camera=Text()
)
OPTIONS: dict[str, Any] = {"inputs": ["id"], "targets": ["label"]}
FIRST = ["cat"] * 5 + ["dog"] * 83 + ["eel"] * 12
SECOND = ["dog"] * 20 + ["fox"] * 30


def rows(labels: list[str], first: int, split: str = "TRAIN") -> pd.DataFrame:
    ids = np.arange(first, first + len(labels))
    cameras = [f"camera-{number % 3}" for number in ids]
    columns = {"split": split, "label": labels, "id": ids, "age": ids % 90, "camera": cameras}
    return pd.DataFrame(columns).sample(frac=1, random_state=first)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """The rows of both datasets, by their ids."""
    return pd.concat([rows(FIRST, 0), rows(SECOND, 1000)]).set_index("id")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two datasets without pictures: of 100 records in three classes, and of 50 in two."""
    folder, made = tmp_path_factory.mktemp("both"), []
    for name, labels, first in (("one", FIRST, 0), ("other", SECOND, 1000)):
        tests = rows(labels[::10], first + 500, "TEST")
        table = pd.concat([rows(labels, first), tests])
        made.append(str(folder / name))
        tfrecorder.convert(table, made[-1], schema=SCHEMA, num_shards=2, progress=False)
    return made


def taken(loop: Any) -> tuple[list[int], list[int]]:
    """The ids and the classes that a loop gives."""
    pairs = [(np.asarray(ids).tolist(), np.asarray(labels).tolist()) for ids, labels in loop]
    return [one for ids, _ in pairs for one in ids], [one for _, some in pairs for one in some]


def by_sampler(datasets: Any, seed: int, size: int, **options: Any) -> list[int]:
    torch = pytest.importorskip("torch")
    of_epoch = {name: options.pop(name) for name in ("balance", "epoch_size") if name in options}
    records = Records(datasets, "TRAIN", **options)
    sampler = tfrecorder.torch.BatchSampler(records, size, seed=seed, **of_epoch)
    loader = torch.utils.data.DataLoader(records, batch_sampler=sampler)
    return [number for ids, _ in loader for number in ids.tolist()]


CONDITIONS: dict[str, tuple[Any, Callable[[pd.DataFrame], Any]]] = {
    "a value": ({"label": "cat"}, lambda frame: frame.label == "cat"),
    "values": ({"label": ["cat", "eel"]}, lambda frame: frame.label.isin(["cat", "eel"])),
    "a range": ({"age": (20, 60)}, lambda frame: frame.age.between(20, 60)),
    "an open range": ({"age": (18, None)}, lambda frame: frame.age >= 18),
    "two columns": (
        {"label": "dog", "camera": "camera-2"},
        lambda frame: (frame.label == "dog") & (frame.camera == "camera-2"),
    ),
    "a function": (lambda frame: frame.age % 7 == 0, lambda frame: frame.age % 7 == 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONDITIONS)
def test_only_the_records_that_a_condition_means_are_read(
    both: list[str], frame: pd.DataFrame, name: str
) -> None:
    where, holds = CONDITIONS[name]
    frame = frame[frame.index < 1000]
    expected = sorted(frame.index[holds(frame)])
    records = Records(both[0], "TRAIN", where=where, **OPTIONS)
    assert sorted(int(number) for number, _ in records) == expected
    assert sorted(records.table()["id"]) == expected
    assert [int(number) for number, _ in records] == records.table()["id"].tolist()
    options = {"where": where, "batch_size": 7, "seed": 5, **OPTIONS}
    ids, labels = taken(batches(both[0], "TRAIN", **options))
    assert sorted(ids) == expected
    assert [records.class_names[label] for label in labels] == frame.label[ids].tolist()
    assert taken(load(both[0], "TRAIN", **options)) == (ids, labels)
    assert by_sampler(both[0], 5, 9, where=where, **OPTIONS) == ids
    stored = [int(number) for number, _ in records]
    assert taken(batches(both[0], "TRAIN", **{**options, "shuffle": False}))[0] == stored
    assert taken(load(both[0], "TRAIN", **{**options, "shuffle": False}))[0] == stored
    assert (
        sorted(taken(batches(both[0], "TRAIN", **{**options, "shuffle": "blocks"}))[0]) == expected
    )


def assert_as_expected(ids: list[int], weights: pd.Series, size: int, groups: pd.Series) -> None:
    """Each record and each group come as often as expected, to the next whole number."""
    expected = weights / weights.sum() * size
    counts = pd.Series(ids).value_counts().reindex(weights.index, fill_value=0)
    assert len(ids) == size
    assert (counts - expected).abs().max() < 1
    of_groups = (counts.groupby(groups).sum() - expected.groupby(groups).sum()).abs()
    assert of_groups.max() < 1


@pytest.mark.slow
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_each_record_and_each_class_come_as_often_as_promised(
    both: list[str], frame: pd.DataFrame, data: st.DataObject
) -> None:
    frame = frame[frame.index < 1000]
    kind = data.draw(st.sampled_from(["label", "camera", "age", "classes", "array", "none"]))
    seed, size = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(1, 400))
    counts = frame.label.map(frame.label.value_counts())
    balance: Any = kind
    weights, groups = 1 / counts, frame.label
    if kind == "camera":
        weights, groups = 1 / frame.camera.map(frame.camera.value_counts()), frame.camera
    elif kind == "age":
        weights = frame.age.astype(float)
    elif kind == "classes":
        balance = {"cat": data.draw(st.integers(0, 9)), "dog": 1.5, "eel": 3}
        weights = frame.label.map(balance) / counts
    elif kind == "array":
        numbers = Records(both[0], "TRAIN", **OPTIONS).table()["id"]
        balance = data.draw(st.lists(st.sampled_from([0, 0.5, 1, 7]), min_size=100, max_size=100))
        balance[3] = 2
        weights, groups = pd.Series(balance, numbers).astype(float), frame.camera * 0
        groups = pd.Series("all", frame.index)
    elif kind == "none":
        balance, weights, groups = None, pd.Series(1.0, frame.index), pd.Series("all", frame.index)
    weights = weights.reindex(frame.index)
    options = {"balance": balance, "epoch_size": size, "seed": seed, **OPTIONS}
    loop = batches(both[0], "TRAIN", batch_size=16, **options)
    for _ in range(3):
        assert_as_expected(taken(loop)[0], weights, size, groups)


@pytest.mark.slow
def test_a_rarely_drawn_record_comes_in_its_share_of_the_epochs(both: list[str]) -> None:
    loop = batches(
        both[0], "TRAIN", batch_size=20, balance="label", epoch_size=60, seed=1, **OPTIONS
    )
    counts = Counter(number for _ in range(83) for number in taken(loop)[0])
    dogs = [counts[number] for number in range(5, 88)]
    assert 18 <= min(dogs) <= max(dogs) <= 22  # 20 of each are expected


@pytest.mark.slow
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_hosts_batches_and_interruptions_change_nothing(
    both: list[str], data: st.DataObject
) -> None:
    """The union over hosts, with any batch sizes and interruptions, is the epoch."""
    datasets: Any = data.draw(
        st.sampled_from([both[0], tuple(both), tuple(zip(both, (1, 3), strict=True))])
    )
    if isinstance(datasets[0], tuple):
        datasets = dict(datasets)
    chosen: dict[str, Any] = {
        "where": data.draw(st.sampled_from([None, {"age": (5, 80)}])),
        "balance": data.draw(st.sampled_from([None, "label", "camera"])),
        "epoch_size": data.draw(st.sampled_from([None, 37, 211])),
        **OPTIONS,
    }
    whole = taken(batches(datasets, "TRAIN", batch_size=1000, seed=9, **chosen))
    ids: list[int] = []
    state: Any = None
    while len(ids) < len(whole[0]):
        # A process without a record in a step would be refused.
        world = data.draw(st.integers(1, min(3, len(whole[0]) - len(ids))))
        size = data.draw(st.integers(2 if world > 1 else 1, 30))
        steps = data.draw(st.integers(1, 4))
        options = {**chosen, "seed": 9, "batch_size": size, "drop_remainder": False}
        hosts = [
            batches(datasets, "TRAIN", shard=(rank, world), **options) for rank in range(world)
        ]
        loops = []
        for host in hosts:
            if state is not None:
                host.load_state_dict(state)
            loops.append(iter(host))
        for _ in range(min(steps, hosts[0].remaining)):
            for loop in loops:
                ids += next(loop)[0].tolist()
        state = hosts[0].state_dict()
    assert ids == whole[0]


@pytest.mark.slow
def test_every_reader_gives_the_same_sequence(both: list[str]) -> None:
    options = {"balance": "label", "epoch_size": 130, "where": {"age": (3, None)}, **OPTIONS}
    for datasets in (both[0], both, {both[0]: 2, both[1]: 1}):
        loop = batches(datasets, "TRAIN", batch_size=16, seed=4, **options)
        epochs = [taken(loop) for _ in range(2)]
        assert epochs[0] != epochs[1]
        loaded = load(datasets, "TRAIN", batch_size=16, seed=4, **options)
        assert [taken(loaded) for _ in range(2)] == epochs
        resumed = load(datasets, "TRAIN", batch_size=16, seed=4, start=(1, 3), **options)
        assert taken(resumed)[0] == epochs[1][0][48:]
        assert by_sampler(datasets, 4, 11, **options) == epochs[0][0]
        assert len(loaded) == len(loop) == 9


def test_classes_are_joined_by_name(both: list[str], frame: pd.DataFrame) -> None:
    loop = batches(both, "TRAIN", batch_size=16, **OPTIONS)
    assert loop.class_names == ("cat", "dog", "eel", "fox")
    for reader in (loop, load(both, "TRAIN", batch_size=16, **OPTIONS)):
        ids, labels = taken(reader)
        assert sorted(ids) == sorted(frame.index)
        assert [loop.class_names[label] for label in labels] == frame.label[ids].tolist()
    records = Records(both, "TRAIN", **OPTIONS)
    assert records.table()["label"].tolist() == [frame.label[number] for number, _ in records]
    assert records.labels().tolist() == [int(label) for _, label in records]
    copy = pickle.loads(pickle.dumps(records))
    assert [int(label) for _, label in copy] == [int(label) for _, label in records]


def test_classes_are_merged_renamed_and_left_out(both: list[str], frame: pd.DataFrame) -> None:
    classes = {"fish": "eel", "pet": ["dog", "cat"]}
    for datasets, expected in ((both[0], frame[frame.index < 1000]), (both, frame)):
        options = {"classes": classes, "batch_size": 16, "balance": "label", **OPTIONS}
        loop = batches(datasets, "TRAIN", epoch_size=200, **options)
        assert loop.class_names == ("fish", "pet")
        ids, labels = taken(loop)
        names = expected.label[ids].map({"eel": 0, "dog": 1, "cat": 1})
        assert labels == names.tolist()
        assert labels.count(0) == 100
    unread = Records(both, "TRAIN", classes=classes, inputs=["id"], targets=["age"])
    assert len(unread) == 120
    some = Records(both, "TRAIN", classes=classes, where={"label": "pet"}, **OPTIONS)
    assert len(some) == 108
    assert {*some.table()["label"]} == {"pet"}


def test_shares_of_datasets_are_exact_to_one_record(both: list[str], frame: pd.DataFrame) -> None:
    for balance in (None, "label"):
        shares = {both[0]: 1, both[1]: 3}
        loop = batches(shares, "TRAIN", batch_size=64, epoch_size=1001, balance=balance, **OPTIONS)
        ids, labels = taken(loop)
        assert abs(sum(number >= 1000 for number in ids) - 0.75 * 1001) < 1
        foxes = labels.count(3) / 1001
        assert foxes == pytest.approx(0.375 if balance else 0.45, abs=1 / 1001)


@pytest.mark.slow
def test_labels_of_several_columns_are_joined_too(tmp_path: Path) -> None:
    schema = Schema(split=Split(), tags=Labels(), id=Number(dtype="int64"))
    datasets = []
    for name, tags in (("one", [["a", "c"], ["c"]]), ("other", [["b"], ["a", "b"]])):
        table = pd.DataFrame({"split": "TRAIN", "tags": tags, "id": [0, 1]})
        datasets.append(str(tmp_path / name))
        tfrecorder.convert(table, datasets[-1], schema=schema, progress=False)
    options: dict[str, Any] = {"inputs": ["id"], "targets": ["tags"]}
    records = Records(datasets, "TRAIN", **options)
    assert records.class_names == ("a", "c", "b")
    loaded = load(datasets, "TRAIN", shuffle=False, **options).as_numpy_iterator()
    named = zip(records, loaded, records.table()["tags"], records.labels(), strict=True)
    for (_, hot), (_, same), tags, numbers in named:
        assert {*numbers} == {*np.flatnonzero(hot)}
        assert {records.class_names[number] for number in np.flatnonzero(hot)} == {*tags}
        np.testing.assert_array_equal(hot, same)


@pytest.mark.slow
def test_photographs_of_several_datasets(tmp_path: Path) -> None:
    """Sizes that each dataset has alone are not those of all, and each record decodes as before."""
    small = convert_photos(tmp_path / "small", image_size=(40, 50), image_format="png")
    large = convert_photos(tmp_path / "large")
    with pytest.raises(OptionError, match="differ in size"):
        batches([small, large], "TRAIN", batch_size=2)
    both = Records([small, large], "TRAIN", image_size=32)
    alone = [*Records(small, "TRAIN", image_size=32), *Records(large, "TRAIN", image_size=32)]
    assert len(both) == len(alone) == 72
    assert_alike(tuple(both), tuple(alone))
    augmented = {"image_size": 32, "augment": True, "seed": 3, "batch_size": 8}
    for ours, theirs in zip(
        batches([small, large], "TRAIN", **augmented),
        load([small, large], "TRAIN", **augmented).as_numpy_iterator(),
        strict=True,
    ):
        assert_alike(ours, theirs, pixels=2)


def test_a_class_without_a_record_may_have_the_weight_0(both: list[str]) -> None:
    where, weights = {"label": ["cat", "eel"]}, {"cat": 1, "eel": 1, "dog": 0}
    assert len(batches(both[0], "TRAIN", where=where, balance=weights, **OPTIONS))
    with pytest.raises(OptionError, match="no record has the class 'dog'"):
        batches(both[0], "TRAIN", where=where, balance={**weights, "dog": 1}, **OPTIONS)
    with pytest.raises(OptionError, match="no record has the class 'cow'"):
        batches(both[0], "TRAIN", where=where, balance={**weights, "cow": 0}, **OPTIONS)


MISTAKES: dict[str, tuple[Callable[[list[str]], Any], str]] = {
    "no such column": (
        lambda both: batches(both[0], "TRAIN", balance="lable", **OPTIONS),
        "balance='lable': there is no such column; did you mean 'label'?",
    ),
    "a class without a weight": (
        lambda both: batches(both[0], "TRAIN", balance={"cat": 1, "eel": 2}, **OPTIONS),
        "it has no weight for the class 'dog'; with 0 a class is never drawn.",
    ),
    "a class that is not there": (
        lambda both: batches(
            both[0], "TRAIN", balance={"cat": 1, "eel": 2, "dog": 1, "cow": 1}, **OPTIONS
        ),
        "no record has the class 'cow'",
    ),
    "weights for other records": (
        lambda both: batches(both[0], "TRAIN", balance=[1, 2], **OPTIONS),
        "balance: it has the shape (2,), and there are 100 records.",
    ),
    "a negative weight": (
        lambda both: batches(both[0], "TRAIN", balance=[-1] * 100, **OPTIONS),
        "balance: give finite numbers from 0, not all 0.",
    ),
    "no weights": (
        lambda both: batches(both[0], "TRAIN", balance=5, **OPTIONS),
        "balance=5: give the name of a column",
    ),
    "another order": (
        lambda both: batches(both[0], "TRAIN", balance="label", shuffle=False, **OPTIONS),
        "shuffle=False: records that are drawn by weights or for `epoch_size` come in exact order",
    ),
    "a sequence": (
        lambda both: Records(both[0], "TRAIN", balance="label", **OPTIONS),
        "records are a sequence; give it to `tfrecorder.batches`",
    ),
    "no record": (
        lambda both: batches(both[0], "TRAIN", where={"label": "cow"}, **OPTIONS),
        "where: no row has 'label' 'cow'",
    ),
    "no condition": (
        lambda both: batches(both[0], "TRAIN", where="cat", **OPTIONS),
        "where='cat': give columns with values",
    ),
    "a cache": (
        lambda both: load(both[0], "TRAIN", where={"label": "cat"}, cache=True, **OPTIONS),
        "cache=True: a cache keeps the records in one order; leave out one of the two.",
    ),
    "a cache of several": (
        lambda both: load(both, "TRAIN", cache=True, **OPTIONS),
        "cache=True: ",
    ),
    "following several": (
        lambda both: batches(both, "TRAIN", follow=True, **OPTIONS),
        "follow=True: it reads one dataset",
    ),
    "following and balancing": (
        lambda both: batches(both[0], "TRAIN", follow=True, balance="label", **OPTIONS),
        "`follow` adds records, and goes with `where` alone",
    ),
    "a generation of several": (
        lambda both: batches(both, "TRAIN", at=0, **OPTIONS),
        "at=0: each dataset has its own generations",
    ),
    "a negative share": (
        lambda both: batches({both[0]: -1}, "TRAIN", **OPTIONS),
        "give each dataset a finite weight from 0, not all 0.",
    ),
    "nothing": (
        lambda both: batches([], "TRAIN", **OPTIONS),
        "give a dataset, a list of several, or a dict",
    ),
    "a set": (lambda both: batches({*both}, "TRAIN", **OPTIONS), "give a dataset, a list"),
    "no value": (
        lambda both: batches(both[0], "TRAIN", where={"age": None}, **OPTIONS),
        "no row has 'age' None",
    ),
    "a function that holds for none": (
        lambda both: batches(both[0], "TRAIN", where=lambda table: table.age > 99, **OPTIONS),
        "it holds for no row.",
    ),
    "other classes": (
        lambda both: batches(both, "TRAIN", classes="equal", **OPTIONS),
        "has 3 classes ('cat', 'dog', 'eel')",
    ),
    "a class that no dataset has": (
        lambda both: batches(both, "TRAIN", classes={"a": ["cow"]}, **OPTIONS),
        "no dataset has the class 'cow'; there is cat, dog, eel, fox.",
    ),
    "one class twice": (
        lambda both: batches(both, "TRAIN", classes={"a": ["cat"], "b": ["cat"]}, **OPTIONS),
        "'cat' becomes two classes; name it once.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_its_remedy(both: list[str], name: str) -> None:
    call, words = MISTAKES[name]
    with pytest.raises(OptionError) as error:
        call(both)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_that_one_dataset_lacks_are_named(both: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    schema = Schema(split=Split(), label=Label(), id=Number(dtype="float32"))
    table = pd.DataFrame({"split": "TRAIN", "label": ["dog"], "id": [7.0]})
    tfrecorder.convert(table, out, schema=schema, progress=False)
    with pytest.raises(OptionError, match=r"has the column 'age', .*out does not"):
        batches([both[0], out], "TRAIN")
    with pytest.raises(
        OptionError,
        match=r"two forms: Number\(dtype='int64'\) under 'id'",
    ):
        batches([both[0], out], "TRAIN", **OPTIONS)
    labels = Records([both[0], out], "TRAIN", inputs=["label"], targets=["label"])
    assert len(labels) == 101
    with pytest.raises(DatasetError, match="no split 'TEST'"):
        batches([both[0], out], "TEST", inputs=["label"], targets=["label"])


def test_a_position_says_what_differs(both: list[str]) -> None:
    options: dict[str, Any] = {"batch_size": 16, "seed": 3, **OPTIONS}
    run = batches(both[0], "TRAIN", balance="label", **options)
    next(iter(run))
    state = run.state_dict()
    other = batches(both[0], "TRAIN", balance={"cat": 1, "dog": 2, "eel": 1}, **options)
    with pytest.raises(OptionError, match=r"give the `balance`, .* of the run"):
        other.load_state_dict(state)
    with pytest.raises(OptionError, match="give the `where` and `classes` and `balance`"):
        batches(both[0], "TRAIN", where={"label": "dog"}, **options).load_state_dict(state)
    with pytest.raises(OptionError, match="the records differ"):
        batches(both[1], "TRAIN", balance="label", **options).load_state_dict(state)
    by_function = batches(both[0], "TRAIN", where=lambda frame: frame.label == "dog", **options)
    by_values = batches(both[0], "TRAIN", where={"label": "dog"}, **options)
    by_function.load_state_dict(by_values.state_dict())


def test_a_curriculum_changes_its_weights_between_epochs(both: list[str]) -> None:
    shares = []
    for epoch, weight in enumerate((1, 4, 16)):
        weights = {"cat": weight, "dog": 16, "eel": 16}
        loop = batches(both[0], "TRAIN", balance=weights, epoch_size=400, seed=2, **OPTIONS)
        loop.set_epoch(epoch)
        ids, labels = taken(loop)
        shares.append(labels.count(0))
        assert loop.epoch == epoch + 1
        again = batches(both[0], "TRAIN", balance=weights, epoch_size=400, seed=2, **OPTIONS)
        assert epoch == 0 or taken(again)[0] != ids
    assert shares == [12, 44, 133]


@pytest.mark.slow
def test_following_reads_what_a_condition_means_of_newer_generations(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    tfrecorder.convert(rows(FIRST, 0), out, schema=SCHEMA, progress=False)
    options: dict[str, Any] = {"where": {"label": "cat"}, "follow": True, "seed": 1, **OPTIONS}
    loop = batches(out, "TRAIN", batch_size=2, **options)
    assert sorted(taken(loop)[0]) == [0, 1, 2, 3, 4]
    state = loop.state_dict()
    tfrecorder.append(rows(["cat", "dog"], 200), out, progress=False)
    assert sorted(taken(loop)[0]) == [0, 1, 2, 3, 4, 200]
    resumed = batches(out, "TRAIN", batch_size=2, **options)
    resumed.load_state_dict(state)
    assert sorted(taken(resumed)[0]) == [0, 1, 2, 3, 4, 200]
