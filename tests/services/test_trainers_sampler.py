"""`BatchSampler`: the batches of numbers for a `DataLoader`, from any position on.

torch is not needed for it: a loader's loop is a loop over the sampler that asks the records.
"""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest
from helpers.reading_cases import convert_photos, mean_difference
from hypothesis import HealthCheck, given, settings, strategies as st

from tfrecorder import Records, batches
from tfrecorder.errors import OptionError
from tfrecorder.torch import BatchSampler

IDS = {"decode": False, "inputs": ["image_uri"], "map_fn": lambda data, _: hash(data)}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


@pytest.fixture(scope="module")
def records(out: str) -> Records:
    return Records(out, "TRAIN", **IDS)


def taken(records: Records, sampler: BatchSampler, most: int | None = None) -> list[list[int]]:
    """What a loop over a `DataLoader` gets, of so many batches."""
    return [records.__getitems__(numbers) for numbers in itertools.islice(sampler, most)]


@pytest.mark.parametrize("shuffle", ["exact", "blocks", False])
@pytest.mark.parametrize("shard", [None, (1, 2)])
def test_the_order_is_that_of_batches(
    out: str, records: Records, shuffle: str | bool, shard: tuple[int, int] | None
) -> None:
    more: dict[str, Any] = {"batch_size": 5, "shuffle": shuffle, "shard": shard, "seed": 7}
    sampler, loop = BatchSampler(records, **more), batches(out, "TRAIN", **more, **IDS)
    assert len(sampler) == len(loop)
    for epoch in range(2):
        assert sampler.epoch == epoch
        assert taken(records, sampler) == [batch.tolist() for batch in loop]


run = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(0, 6))


@given(runs=st.lists(run, min_size=1, max_size=4), drop=st.booleans(), seed=st.integers(0, 99))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_run_that_is_killed_goes_on_with_any_batch_size_and_world(
    records: Records, runs: list[tuple[int, int, int]], drop: bool, seed: int
) -> None:
    whole = [one for batch in taken(records, BatchSampler(records, seed=seed)) for one in batch]
    state, found, world = None, [], 1
    for batch_size, world, steps in [*runs, (4, 2, 10**6)]:
        left = 36 - len(found)
        if not drop and left % world and (batch_size == 1 or left < world):
            continue  # not every process has a record in each step: refused
        parts, states = [], []
        for rank in range(world):
            more = {"shard": (rank, world), "drop_remainder": drop, "seed": seed}
            sampler = BatchSampler(records, batch_size, **more)
            if state is not None:
                sampler.load_state_dict(state)
            parts.append(taken(records, sampler, min(steps, sampler.remaining)))
            states.append(json.dumps(sampler.state_dict()))
        assert len(set(states)) == 1
        assert len({len(part) for part in parts}) == 1
        found += [one for step in zip(*parts, strict=True) for part in step for one in part]
        state = json.loads(states[0])
        if state["next"] == 36:
            break
    assert found == whole[: len(found)]
    assert len(found) > 36 - (batch_size * world if drop else world)


def test_a_state_goes_from_a_sampler_to_batches_and_back(out: str, records: Records) -> None:
    whole = [one for batch in taken(records, BatchSampler(records, seed=7)) for one in batch]
    sampler = BatchSampler(records, 5, seed=7)
    found = taken(records, sampler, 2)
    loop = batches(out, "TRAIN", batch_size=3, seed=7, **IDS)
    loop.load_state_dict(sampler.state_dict())
    found += [batch.tolist() for batch in itertools.islice(loop, 4)]
    again = BatchSampler(records, 2, seed=7)
    again.load_state_dict(loop.state_dict())
    assert again.state_dict() == loop.state_dict()
    found += taken(records, again)
    assert [one for batch in found for one in batch] == whole


def test_what_was_dropped_stays_dropped(out: str, records: Records) -> None:
    """Else a smaller batch size would take it behind the epoch's last step."""
    sampler = BatchSampler(records, 8, seed=7, drop_remainder=True)
    assert [len(batch) for batch in taken(records, sampler)] == [8, 8, 8, 8]
    again = BatchSampler(records, 2, seed=7, drop_remainder=True)
    again.load_state_dict(sampler.state_dict())
    assert taken(records, again) == []
    assert (again.epoch, len(again)) == (1, 18)


def test_an_iterator_that_is_not_used_moves_nothing(records: Records) -> None:
    """Loaders draw ahead, and ask for more than they use."""
    sampler = BatchSampler(records, 5, seed=7)
    first, second = (taken(records, sampler) for _ in range(2))
    sampler.set_epoch(0)
    assert taken(records, sampler, 3) == first[:3]
    assert sampler.state_dict()["next"] == 15
    iter(sampler)
    assert taken(records, sampler) == second
    state = BatchSampler(records, 5, seed=7).state_dict() | {"next": 20}
    sampler.load_state_dict(state)
    iter(sampler)
    assert taken(records, sampler, 2) == first[4:6]
    assert taken(records, sampler, 2) == second[:2], "what is loaded is for one loop"


def test_an_epoch_can_be_chosen(records: Records) -> None:
    sampler = BatchSampler(records, 5, seed=7)
    epochs = [taken(records, sampler) for _ in range(3)]
    assert len({str(epoch) for epoch in epochs}) == 3
    sampler.set_epoch(1)
    assert taken(records, sampler) == epochs[1]
    sampler.load_state_dict(sampler.state_dict() | {"epoch": 2, "next": 10})
    sampler.set_epoch(2)
    assert taken(records, sampler) == epochs[2][2:], "where it stands in this epoch, it stays"
    with pytest.raises(OptionError, match="epoch=-1: give a whole number from 0"):
        sampler.set_epoch(-1)


def test_each_number_brings_its_epoch_to_wherever_it_is_read(out: str) -> None:
    """Workers that live on have the records of the epoch in which they were started."""
    records = Records(out, "TRAIN", image_size=48, augment=True, seed=7)
    sampler = BatchSampler(records, 36, shuffle=False)
    first, second = ([one[0] for one in taken(records, sampler)[0]] for _ in range(2))
    for expected, epoch in ((first, 0), (second, 1)):
        records.set_epoch(epoch)
        for ours, theirs in zip(expected, records, strict=True):
            np.testing.assert_array_equal(ours, theirs[0])
    assert np.mean([mean_difference(*pair) for pair in zip(first, second, strict=True)]) > 1
    records.set_epoch(0)
    numbers = next(iter(BatchSampler(records, 36, shuffle=False, seed=7)))
    there = pickle.loads(pickle.dumps(numbers))
    assert there == numbers
    assert [one.epoch for one in there] == [one.epoch for one in numbers]


def test_without_a_seed_it_is_that_of_the_records_or_of_the_position(out: str) -> None:
    records = Records(out, "TRAIN", seed=11, **IDS)
    assert list(BatchSampler(records)) == list(BatchSampler(records, seed=11))
    other = BatchSampler(Records(out, "TRAIN", **IDS))
    other.load_state_dict(BatchSampler(records, 5).state_dict())
    assert [*other] == [*BatchSampler(records)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"shuffle": 100}, "shuffle=100: give True, False, 'exact' or 'blocks'"),
        ({"shard": (2, 2), "seed": 1}, "shard="),
        ({"records": range(9)}, "give the tfrecorder.Records to read"),
    ],
)
def test_a_wrong_option_is_named(records: Records, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        BatchSampler(**{"records": records} | options)


def test_a_position_of_another_run_is_refused(out: str, records: Records) -> None:
    state = BatchSampler(records, seed=1).state_dict()
    with pytest.raises(OptionError, match="saved with `seed=1`, but this run has 2"):
        BatchSampler(records, seed=2).load_state_dict(state)
    with pytest.raises(OptionError, match="the dataset that the run began with"):
        BatchSampler(Records(out, "TEST", **IDS), seed=1).load_state_dict(state)
