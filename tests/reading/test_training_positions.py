"""What `batches` and `BatchSampler` say of an epoch, and which positions and loops they refuse."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.reading_cases import PHOTOS_CSV, convert_photos
from hypothesis import HealthCheck, given, settings, strategies as st
from support import skip_without
from torture import trainings
from torture.trainings import IDS

import tfrecorder
from tfrecorder import Records, batches
from tfrecorder.errors import OptionError
from tfrecorder.torch import BatchSampler

#: A reader with a position, made anew.
Reader = Callable[..., Any]

law = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


@pytest.fixture(params=["batches", "sampler"])
def reader(request: pytest.FixtureRequest, out: str) -> Reader:
    if request.param == "batches":
        return lambda **more: batches(out, "TRAIN", **{"batch_size": 5, "seed": 7} | more, **IDS)
    records = Records(out, "TRAIN", **IDS)
    return lambda **more: BatchSampler(records, **{"batch_size": 5, "seed": 7} | more)


# ------------------------------------------------------------------------- how long an epoch is


@pytest.mark.slow
@given(
    before=st.tuples(st.integers(1, 9), st.integers(0, 40)),
    batch_size=st.integers(1, 9),
    world=st.integers(1, 3),
    drop=st.booleans(),
)
@law
def test_the_length_is_the_whole_epochs_and_what_remains_is_what_comes(
    reader: Reader, before: tuple[int, int], batch_size: int, world: int, drop: bool
) -> None:
    more = {"batch_size": batch_size, "shard": (0, world), "drop_remainder": drop}
    first, again = reader(batch_size=before[0]), reader(**more)
    left = 36 - before[0] * before[1] % 36 if before[0] * before[1] < 36 else 36
    if not drop and left % world and (batch_size == 1 or left < world):
        return  # not every process has a record in each step: refused
    whole = len(again)
    assert whole == again.remaining
    taken = len(list(itertools.islice(first, before[1])))
    again.load_state_dict(first.state_dict())
    remaining = again.remaining
    assert len(again) == whole
    if (batch_size, world) == (before[0], 1) and 0 < taken < len(first) and not drop:
        assert taken + remaining == whole
    assert len(list(again)) == remaining
    assert (len(again), again.remaining) == (whole, whole), "of the next epoch"


def test_a_trainer_that_counts_on_to_the_length_sees_the_rest_of_the_epoch(reader: Reader) -> None:
    """As Lightning does: it never asks for more than the length."""
    whole = reader()
    epochs = [[list(batch) for batch in whole] for _ in range(2)]
    first = reader()
    taken = [list(batch) for batch in itertools.islice(first, 3)]
    again = reader()
    again.load_state_dict(first.state_dict())
    for epoch, begin in ((0, 3), (1, 0)):
        loop = iter(again)
        found = [list(next(loop)) for _ in range(begin, len(again))]
        assert taken * (epoch == 0) + found == epochs[epoch]


def test_what_remains_is_counted_down(out: str) -> None:
    loop = batches(out, "TRAIN", batch_size=5, seed=7, **IDS)
    assert [(len(loop), loop.remaining) for _ in loop] == [
        *((8, 7 - step) for step in range(7)),
        (8, 8),
    ]


# ------------------------------------------------------------------------------ one loop at a time


def test_two_loops_at_once_are_refused_before_a_record_comes_twice(out: str) -> None:
    loop = batches(out, "TRAIN", batch_size=5, seed=7, **IDS)
    epochs = [[batch.tolist() for batch in loop] for _ in range(3)]
    loop = batches(out, "TRAIN", batch_size=5, seed=7, **IDS)
    first, second = iter(loop), iter(loop)
    assert [next(first).tolist(), next(second).tolist()] == [epochs[0][0], epochs[1][0]]
    with pytest.raises(
        OptionError, match=r"another loop over these batches .* call `batches` twice"
    ):
        next(first)
    assert [batch.tolist() for batch in second] == epochs[1][1:], "an iterator that is kept goes on"
    assert [batch.tolist() for batch in loop] == epochs[2]


def test_a_loop_within_a_loop_is_refused(out: str) -> None:
    loop = batches(out, "TRAIN", batch_size=5, seed=7, **IDS)
    with pytest.raises(OptionError, match="another loop"):
        print([len(list(loop)) for _ in loop])
    assert (loop.epoch, loop.remaining) == (2, 8), "the inner one took a whole epoch"


def test_a_loop_that_was_left_never_blocks_the_next(out: str) -> None:
    """Neither where its iterator lives on, as Keras keeps it, nor where it was closed."""
    loop = batches(out, "TRAIN", batch_size=5, seed=7, **IDS)
    epochs = of_epochs(batches(out, "TRAIN", batch_size=5, seed=7, **IDS), 5)
    kept = []
    for number in range(4):
        kept.append(iter(loop))
        assert next(kept[-1]).tolist() == epochs[number][0]
        if number == 2:
            kept[-1].close()
    assert of_epochs(loop, 1) == epochs[4:]
    for left in (kept[0], kept[3]):
        with pytest.raises(OptionError, match="another loop"):
            next(left)


def of_epochs(loop: Any, epochs: int, most: int | None = None) -> list[list[list[int]]]:
    """What some loops take, each left after its first batches."""
    return [[[*map(int, one)] for one in itertools.islice(loop, most)] for _ in range(epochs)]


def test_each_loop_begins_an_epoch_whatever_the_one_before_took(reader: Reader) -> None:
    """In TRAIN the next one, as after a loop to the end."""
    whole = of_epochs(reader(), 6)
    loop = reader()
    for epoch, most in enumerate((3, 0, 1, 8, 2)):
        begins = epoch - (epoch > 1)  # of a loop that took nothing, nothing is used up
        assert of_epochs(loop, 1, most) == [whole[begins][:most]]
    assert of_epochs(loop, 1) == [whole[4]]


@pytest.mark.parametrize("split", ["VALIDATION", "TEST"])
def test_each_evaluation_begins_with_the_first_record(out: str, split: str) -> None:
    """However short the one before was, as of a trainer that checks a few batches first."""
    records = Records(out, split, **IDS)
    for loop in (batches(out, split, batch_size=3, **IDS), BatchSampler(records, 3)):
        first = of_epochs(loop, 1, 2)
        assert of_epochs(loop, 2, 2) == first * 2
        assert [batch[:2] for batch in of_epochs(loop, 2)] == first * 2


def test_only_a_loaded_position_goes_on_and_only_once(reader: Reader) -> None:
    whole = of_epochs(reader(), 4)
    loop = reader()
    of_epochs(loop, 1, 3)
    state = loop.state_dict()
    assert (state["epoch"], state["next"]) == (0, 15), "where the loop stood that was left"
    again = reader()
    again.load_state_dict(state)
    iter(again)  # which takes nothing
    assert of_epochs(again, 1, 2) == [whole[0][3:5]]
    assert again.state_dict() == state | {"next": 25}
    assert of_epochs(again, 2) == whole[1:3]


def test_a_loop_that_ends_in_an_error_says_where_it_stood(out: str) -> None:
    """And a loop that fails before its first batch has not used up what was loaded."""
    calls = itertools.count(1)
    fails = {18}  # in the fourth batch

    def some(data: Any, _: Any) -> int:
        if (call := next(calls)) in fails:
            raise RuntimeError(f"no more at {call}")
        return hash(data)

    more: dict[str, Any] = {"batch_size": 5, "seed": 7, "num_threads": 1}
    loop = batches(out, "TRAIN", **more, **IDS | {"map_fn": some})
    whole = of_epochs(batches(out, "TRAIN", **more, **IDS), 2)
    found: list[list[int]] = []
    with pytest.raises(RuntimeError, match="no more at 18"):
        found.extend([*map(int, one)] for one in loop)
    assert found == whole[0][:3]
    state = loop.state_dict()
    assert (state["epoch"], state["next"]) == (0, 15)
    loop.load_state_dict(state)
    fails.add(next(calls) + 1)
    with pytest.raises(RuntimeError, match="no more"):
        list(loop)
    fails.clear()
    assert [found + of_epochs(loop, 1)[0], of_epochs(loop, 1)[0]] == whole


def test_a_loop_that_took_its_last_batch_has_ended(out: str) -> None:
    """As a trainer leaves it that counts its steps, and does not ask for one more."""
    loop = batches(out, "TRAIN", batch_size=5, seed=7, **IDS)
    first = iter(loop)
    for _ in range(len(loop)):
        next(first)
    second = iter(loop)
    next(second)
    assert list(first) == []
    assert len(list(second)) == 7


def test_a_loop_does_not_go_on_over_a_position_that_was_loaded(out: str) -> None:
    loop = batches(out, "TRAIN", batch_size=5, seed=7, **IDS)
    epoch = [batch.tolist() for batch in batches(out, "TRAIN", batch_size=5, seed=7, **IDS)]
    state, running = loop.state_dict(), iter(loop)
    next(running)
    loop.load_state_dict(state)
    with pytest.raises(OptionError, match="`load_state_dict` has moved their position"):
        next(running)
    assert [batch.tolist() for batch in loop] == epoch


@pytest.mark.slow
@given(moves=st.lists(st.tuples(st.integers(0, 3), st.sampled_from("nnnnci")), max_size=40))
@law
def test_whatever_loops_do_the_records_come_in_order_and_once(
    out: str, moves: list[tuple[int, str]]
) -> None:
    assert trainings.confuse(out, moves) >= 0


# ------------------------------------------------------------------------------------- positions


FIELDS = ("version", "fingerprint", "split", "mode", "seed", "epoch", "next", "generation")
wrong = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["x", 2**32, 2**53 + 1, 2**70, 2**80, -1, 2.0, 7.0, [], {}, [7], b"7"]),
    st.integers(),
)


@pytest.mark.slow
@given(field=st.sampled_from(FIELDS), value=wrong)
@law
def test_a_field_of_a_position_is_right_or_refused(reader: Reader, field: str, value: Any) -> None:
    trainings.mangle(reader(seed=None), reader().state_dict() | {field: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": "x"}, "seed: 'x' is not a whole number from 0 to 4294967295"),
        ({"seed": 2**70}, "seed: 1180591620717411303424 is not a whole number"),
        ({"seed": True}, "seed: True is not"),
        ({"epoch": 2**80}, "epoch: 1208925819614629174706176 is not"),
        ({"epoch": 1.0}, "epoch: 1.0 is not"),
        ({"next": None}, "next: None is not"),
        ({"next": 37}, "next=37 is beyond the 36 records"),
        ({"version": 2.0}, "version: 2.0 is not"),
        ({"version": 3}, "`version=3`, but this run has 2; continue with the tfrecorder that"),
        ({"generation": "x"}, "generation: 'x' is not"),
        ({"fingerprint": ["x"]}, "give the dataset that the run began with"),
        ({"fingerprint": ""}, "give the dataset that the run began with"),
    ],
)
def test_a_wrong_field_is_named(reader: Reader, change: dict[str, Any], words: str) -> None:
    other = reader(seed=None)
    before = other.state_dict()
    with pytest.raises(OptionError, match=words):
        other.load_state_dict(reader().state_dict() | change)
    assert other.state_dict() == before


@pytest.mark.parametrize("state", [None, [], "x", 5, {}, {"version": 2}, {"more": 1}])
def test_what_is_no_position_is_refused(reader: Reader, state: Any) -> None:
    with pytest.raises(OptionError, match="is not what `state_dict"):
        reader().load_state_dict(state)


def test_numbers_of_numpy_are_numbers(reader: Reader) -> None:
    """Some checkpoints turn Python's integers into these."""
    state = reader().state_dict() | {"epoch": 3, "next": 10}
    loop = reader(seed=None)
    loop.load_state_dict({k: np.int64(v) if type(v) is int else v for k, v in state.items()})
    assert json.loads(json.dumps(loop.state_dict())) == state


@pytest.mark.slow
def test_a_position_of_before_an_append_names_its_generation(tmp_path: Path) -> None:
    rows = pd.read_csv(PHOTOS_CSV)
    rows["image_uri"] = [str(PHOTOS_CSV.parent / uri) for uri in rows["image_uri"]]
    parts = [rows[first::6] for first in range(6)]
    tfrecorder.convert(parts[0], tmp_path / "out", progress=False)

    def readers(**at: Any) -> list[Any]:
        of_records = Records(tmp_path / "out", "TRAIN", **at, **IDS)
        loop = batches(tmp_path / "out", "TRAIN", seed=7, batch_size=2, **at, **IDS)
        return [loop, BatchSampler(of_records, 2, seed=7)]

    states = []
    for part in parts[1:]:
        states.append([one.state_dict() | {"next": 2} for one in readers()])
        tfrecorder.append(part, tmp_path / "out", progress=False)
    for generation, of_generation in enumerate(states):
        for number, state in enumerate(of_generation):
            assert state["generation"] == generation
            for at in ({}, {"at": 5}, {"at": 0}):
                if at.get("at") != generation:
                    with pytest.raises(OptionError, match=f"as it was then: `at={generation}`\\."):
                        readers(**at)[number].load_state_dict(state)
            for continued in readers(at=generation):
                continued.load_state_dict(state)
                assert continued.state_dict() == state
                assert len(list(continued)) == continued.remaining - 1
    follows = batches(tmp_path / "out", "TRAIN", follow=True, seed=7, batch_size=2, **IDS)
    follows.load_state_dict(states[3][0])
    assert follows.state_dict() == states[3][0], "it finds the generations by itself"


# ------------------------------------------------------------------------------------- Lightning


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["batches", "loader-0"])
def test_lightning_in_two_processes_goes_on_after_a_kill(
    out: str, tmp_path: Path, reading: str
) -> None:
    skip_without("torch", "torchdata", "pytorch_lightning")
    chosen = {"reader": reading, "world": 2, "batch_size": 3, "seed": 7, "epochs": 2}
    assert trainings.finish_by_lightning(out, tmp_path, chosen, kills=[2]) == 2 * 36
