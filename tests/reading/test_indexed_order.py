"""The inner law of an epoch's order and of positions: every record once, whoever continues."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tfrecorder.errors import OptionError
from tfrecorder.reading.order import Order
from tfrecorder.reading.position import Position, Share

SHUFFLED = ("exact", "blocks")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["stored", *SHUFFLED])
@given(records=st.integers(1, 3000), block=st.integers(1, 50), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_each_record_has_one_place(mode, records, block, seed):
    numbers = Order(records, mode, seed, 3, block).numbers(np.arange(records))
    assert np.array_equal(np.sort(numbers), np.arange(records))


@pytest.mark.slow
@pytest.mark.parametrize("mode", SHUFFLED)
@given(records=st.integers(1, 10**12), seed=st.integers(0, 2**32 - 1), data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_place_is_computed_alone_as_among_others(mode, records, seed, data):
    order = Order(records, mode, seed, 0, 7)
    places = np.array(data.draw(st.lists(st.integers(0, records - 1), min_size=1, max_size=9)))
    together = order.numbers(places)
    alone = [order.numbers(places[at : at + 1])[0] for at in range(len(places))]
    assert together.tolist() == alone
    assert together.min() >= 0
    assert together.max() < records


def test_the_order_is_the_same_on_every_machine():
    """A position that was saved must mean the same places in years to come."""
    places = np.arange(8)
    assert Order(1000, "exact", 7, 0).numbers(places).tolist() == EXACT
    assert Order(1000, "blocks", 7, 0, 5).numbers(places).tolist() == BLOCKS


EXACT = [100, 461, 500, 940, 784, 324, 903, 606]
BLOCKS = [876, 336, 733, 176, 699, 749, 541, 74]


@pytest.mark.parametrize("mode", SHUFFLED)
def test_the_order_is_near_to_a_random_one(mode):
    """As docs/read-options.md measures `load`: all three numbers are 0 for a uniform order."""
    rows, labels, seeds = 4000, 10, 12
    identity, drawn, runs = np.arange(rows), [], []
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        orders = [Order(rows, mode, seed, epoch, 5).numbers(identity) for epoch in (0, 1)]
        drawn.append((_correlation(identity, orders[0]), _correlation(*orders)))
        of_one = rows // labels
        runs.append([_runs(one, of_one) for one in (orders[0], rng.permutation(rows))])
    by_source, by_epoch = np.mean(drawn, axis=0)
    ours, numpys = np.mean(runs, axis=0)
    assert abs(by_source) < 0.01
    assert abs(by_epoch) < 0.01
    assert abs(ours / numpys - 1) < 0.01


def _correlation(one, other):
    return np.corrcoef(one, other)[0, 1]


def _runs(numbers, per_label):
    """The mean length of runs of one label, where the source is sorted by label."""
    return np.mean([len(list(run)) for _, run in itertools.groupby(numbers // per_label)])


@pytest.mark.slow
def test_few_records_come_in_every_order():
    seen = {tuple(Order(3, "exact", seed, 0).numbers(np.arange(3))) for seed in range(60)}
    assert len(seen) == 6


def test_blocks_keep_their_records_near_each_other():
    order = Order(100_000, "blocks", 1, 0, 10)
    numbers = order.numbers(np.arange(6400))  # a window is 128 blocks of 10
    windows = numbers[:1280], numbers[1280:2560]
    assert all(len(np.unique(window // 10)) == 128 for window in windows)
    assert not set(windows[0] // 10) & set(windows[1] // 10)


# ---------------------------------------------------------------------------------------------
# Positions.

worlds = st.tuples(st.integers(1, 9), st.integers(1, 6))


@pytest.mark.slow
@given(
    records=st.integers(0, 300),
    runs=st.lists(st.tuples(worlds, st.integers(0, 12)), min_size=1, max_size=6),
    drop=st.booleans(),
    last=worlds,
)
@settings(max_examples=300, deadline=None)
def test_every_place_is_seen_once_however_often_a_run_is_interrupted(records, runs, drop, last):
    """Each run takes some steps and is killed; the next has another batch size and world."""
    at, seen = 0, []
    for (batch_size, world), steps in [*runs, (last, 10**6)]:
        hosts = [Share(records, batch_size, rank, world, drop) for rank in range(world)]
        assert len({host.steps(at) for host in hosts}) == 1
        for _ in range(min(steps, hosts[0].steps(at))):
            parts = [list(host.places(at)) for host in hosts]
            lengths = sorted(map(len, parts))
            assert lengths[-1] - lengths[0] <= 1
            assert lengths[-1] <= batch_size
            seen += itertools.chain(*parts)
            assert len({host.after(at) for host in hosts}) == 1
            at = hosts[0].after(at)
    dropped = records - len(seen)
    assert seen == list(range(len(seen)))
    assert dropped < last[0] * last[1] if drop else dropped == 0


@given(records=st.integers(1, 300), world=worlds)
@settings(max_examples=50, deadline=None)
def test_places_go_to_the_hosts_by_the_rule(records, world):
    size, hosts = world
    for start in range(0, records - size * hosts + 1, size * hosts):
        for rank in range(hosts):
            places = Share(records, size, rank, hosts, True).places(start)
            assert all((place % (size * hosts)) // size == rank for place in places)


POSITION = Position("3f2a", "TRAIN", "exact", 7, epoch=2, next=40)


def test_a_position_goes_through_json():
    import json

    state = json.loads(json.dumps(POSITION.to_json()))
    begin = Position("3f2a", "TRAIN", "exact", 7)
    assert begin.with_saved(state, 100, since=0, takes_seed=True) == POSITION


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 8}, "saved with `seed=8`, but this run has 7; give the seed that the run"),
        ({"fingerprint": "0000"}, "give the dataset that the run began with"),
        ({"split": "TEST"}, "give the split"),
        ({"mode": "blocks"}, "give the shuffle"),
        ({"version": 0}, "version=0"),
        ({"next": 101}, "next=101 is beyond the 100 records"),
        ({"epoch": "2"}, "epoch: '2' is not a whole number"),
        ({"more": 1}, "is not what `state_dict"),
    ],
)
def test_a_position_of_another_run_is_refused(change, words):
    with pytest.raises(OptionError, match=words):
        POSITION.with_saved(POSITION.to_json() | change, 100, since=0, takes_seed=False)
