"""Each process of a training reads its share, as its launcher or its framework states it.

The processes are environments here, one after the other; those of the trainers are true ones, in
test_trainers_ranks.py.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import socket
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from helpers.reading_cases import convert_photos, ids
from support import run, skip_without, slow_cases

import tfrecorder
from tfrecorder import Records, batches
from tfrecorder.errors import OptionError
from tfrecorder.torch import BatchSampler

IDS: dict[str, Any] = {
    "decode": False,
    "inputs": ["image_uri"],
    "map_fn": lambda data, _: hash(data),
}

#: What launchers set in a process, by its rank and the number of processes.
LAUNCHERS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "torchrun": lambda rank, world: {"RANK": rank, "WORLD_SIZE": world},
    "srun": lambda rank, world: {
        **{"SLURM_PROCID": rank, "SLURM_NTASKS": world, "SLURM_STEP_NUM_TASKS": world},
        "SLURM_STEP_TASKS_PER_NODE": f"{world}(x1)",
    },
    "torchrun in srun": lambda rank, world: {
        **{"RANK": rank, "WORLD_SIZE": world, "SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 2},
    },
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the environment that of a process."""
    given: set[str] = set()

    def launch(**variables: Any) -> None:
        for name in given - {*variables}:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))
        given.clear()
        given.update(variables)

    return launch


def by_batches(out: str, **more: Any) -> list[int]:
    return [one for batch in batches(out, "TRAIN", batch_size=4, **more, **IDS) for one in batch]


def by_sampler(out: str, **more: Any) -> list[int]:
    records = Records(out, "TRAIN", **IDS)
    return [one for some in BatchSampler(records, 4, **more) for one in records[some]]


def by_load(out: str, **more: Any) -> list[int]:
    return ids(
        tfrecorder.load(out, "TRAIN", inputs="all", decode=False, **more).as_numpy_iterator()
    )


READERS = {
    "batches": by_batches,
    "sampler": by_sampler,
    "load": by_load,
    "load exactly": lambda out, **more: by_load(out, shuffle="exact", batch_size=4, **more),
}


# --------------------------------------------------------------------------- each rank its share


@pytest.mark.parametrize(
    ("reader", "launcher"),
    [(reader, "torchrun") for reader in READERS] + [("batches", one) for one in [*LAUNCHERS][1:]],
)
def test_the_default_call_reads_a_share_in_each_process(
    out: str, launched: Callable[..., None], reader: str, launcher: str
) -> None:
    shares = []
    for rank in range(3):
        launched(**LAUNCHERS[launcher](rank, 3))
        shares.append(READERS[reader](out))
        assert len(READERS[reader](out, shard=(0, 1))) == 36, "asked for, all is read"
    assert [len(share) for share in shares] == [12, 12, 12]
    assert len({*shares[0], *shares[1], *shares[2]}) == 36


def test_what_was_chosen_is_shown(
    out: str, launched: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    records = Records(out, "TRAIN", **IDS)
    readers = batches(out, "TRAIN", batch_size=4, **IDS), BatchSampler(records, 4)
    launched(RANK=0, WORLD_SIZE=5)
    with caplog.at_level(logging.WARNING, "tfrecorder"):
        for reader in readers:
            assert "shard=(0, 5) by RANK and WORLD_SIZE" in repr(reader)
            list(reader)
    [said] = [record.getMessage() for record in caplog.records]
    assert said == (
        "each of 5 processes reads about 7 of 36 records, divided by RANK and WORLD_SIZE; "
        "`shard=(0, 1)` reads all of them in each"
    ), "once a process, not once a reader"
    launched(RANK=1, WORLD_SIZE=5)
    list(readers[0])
    assert len(caplog.records) == 1, "the other processes say nothing"
    launched()
    assert "shard=(0, 1) for a process that is alone" in repr(readers[0])
    shown = repr(batches(out, "TRAIN", batch_size=4, shard=(1, 2), **IDS))
    assert shown.endswith("seed=0, shard=(1, 2))")
    assert "shard" not in repr(records), "as Grain compares it between processes"


@pytest.mark.parametrize(("world", "options"), [(6, {}), (9, {"shuffle": "exact"})])
def test_load_says_once_how_it_divides(
    out: str,
    launched: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    world: int,
    options: dict[str, Any],
) -> None:
    launched(SLURM_PROCID=0, SLURM_NTASKS=world, SLURM_STEP_NUM_TASKS=world)
    with caplog.at_level(logging.WARNING, "tfrecorder"):
        tfrecorder.load(out, "TRAIN", shard=(0, world), **options)
        assert not caplog.records, "who gives `shard` knows"
        for _ in range(2):
            tfrecorder.load(out, "TRAIN", **options)
    [said] = [record.getMessage() for record in caplog.records]
    assert f"each of {world} processes reads about {36 // world} of 36 records" in said


def test_processes_that_connect_later_have_one_order_too(
    out: str, launched: Callable[..., None]
) -> None:
    """As Lightning does: the readers are there before the second process is."""
    readers = [batches(out, "TRAIN", batch_size=4, **IDS) for _ in range(2)]
    records = Records(out, "TRAIN", **IDS)
    samplers = [BatchSampler(records, 4) for _ in range(2)]
    assert readers[0].state_dict()["seed"] != readers[1].state_dict()["seed"]
    found: list[Any] = []
    for rank in range(2):
        launched(RANK=rank, WORLD_SIZE=2)
        assert (len(readers[rank]), len(samplers[rank])) == (4, 4)
        found.append([one for batch in readers[rank] for one in batch])
        found.append([one for some in samplers[rank] for one in records[some]])
        assert readers[rank].state_dict()["seed"] == samplers[rank].state_dict()["seed"] == 0
    assert found[0] == found[1]
    assert len({*found[0], *found[2]}) == len(found[0] + found[2]) == 32


def test_another_epoch_has_another_order(out: str, launched: Callable[..., None]) -> None:
    launched(RANK=1, WORLD_SIZE=3)
    loop = batches(out, "TRAIN", batch_size=4, **IDS)
    first, second = ([one for batch in loop for one in batch] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("reader", ["batches", "sampler"])
def test_a_run_goes_on_with_any_number_of_processes(
    out: str, launched: Callable[..., None], reader: str
) -> None:
    """Nobody gives a shard or a seed: 1 process, then 2, then 3, then 1."""
    found, state = [], None
    records = Records(out, "TRAIN", **IDS)
    for world, steps in ((1, 1), (2, 2), (3, 1), (1, 99)):
        states = []
        for rank in range(world):
            launched(**(LAUNCHERS["torchrun"](rank, world) if world > 1 else {}))
            sampler = BatchSampler(records, 2)
            one = batches(out, "TRAIN", batch_size=2, **IDS) if reader == "batches" else sampler
            if state is not None:
                one.load_state_dict(state)
            loop = iter(one)
            for _ in range(min(steps, one.remaining)):
                numbers = next(loop)
                found += list(numbers) if reader == "batches" else records[numbers]
            states.append(one.state_dict())
        assert states[1:] == states[:-1]
        state = states[0]
    assert len(found) == 36 == len({*found})


def test_evaluation_reads_every_record_once(out: str, launched: Callable[..., None]) -> None:
    """8 records on 3 processes: only of TRAIN the last ones are left out by default."""
    shares, steps = [], []
    for rank in range(3):
        launched(RANK=rank, WORLD_SIZE=3)
        loop = batches(out, "VALIDATION", batch_size=2, **IDS)
        steps.append(len(loop))
        shares += [one for batch in loop for one in batch]
        assert len(batches(out, "TRAIN", batch_size=5, **IDS)) == 2
    assert steps == [2, 2, 2]
    assert len(shares) == 8 == len({*shares})


# ------------------------------------------------------- equally many batches, none of them empty


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [1, 4, *slow_cases(2, 7)])
def test_all_ranks_have_equally_many_batches_and_none_is_empty(
    out: str, world: int, batch_size: int
) -> None:
    """Or it is refused before the first one; no record is lost or comes twice."""
    for records in range(1, 15):
        more = {"epoch_size": records, "batch_size": batch_size, "seed": 3}
        [*whole] = itertools.chain.from_iterable(batches(out, "TRAIN", shard=(0, 1), **more, **IDS))
        given: dict[str, Any] = {**more, "drop_remainder": False}
        fills = records >= world if batch_size > 1 else records % world == 0
        if not fills:
            for rank in range(world):
                with pytest.raises(
                    OptionError, match=f"{records:,} records? of TRAIN cannot give each"
                ):
                    batches(out, "TRAIN", shard=(rank, world), **given, **IDS)
                with pytest.raises(
                    OptionError, match=f"{records:,} records? of TRAIN cannot give each"
                ):
                    sampler_of(out, shard=(rank, world), **given)
            continue
        ranks = [
            [batch.tolist() for batch in batches(out, "TRAIN", shard=(rank, world), **given, **IDS)]
            for rank in range(world)
        ]
        assert len({len(steps) for steps in ranks}) == 1
        sizes = {len(batch) for steps in ranks for batch in steps}
        assert sizes <= {*range(1, batch_size + 1)}
        taken = [one for step in zip(*ranks, strict=True) for batch in step for one in batch]
        assert taken == whole
        drawn = [[*sampler_of(out, shard=(rank, world), **given)] for rank in range(world)]
        assert [[*map(len, steps)] for steps in drawn] == [[*map(len, steps)] for steps in ranks]


def sampler_of(out: str, **more: Any) -> BatchSampler:
    return BatchSampler(Records(out, "TRAIN", **IDS), **more)


@pytest.mark.parametrize(("records", "world", "batch_size"), [(9, 2, 4), (3, 4, 2), (1, 3, 1)])
def test_what_is_padded_is_said_by_the_last_value(
    out: str, records: int, world: int, batch_size: int
) -> None:
    more: dict[str, Any] = {"epoch_size": records, "batch_size": batch_size, "seed": 3}
    whole = [one for batch in batches(out, "TRAIN", **more, **IDS) for one in batch]
    ranks = [
        [*batches(out, "TRAIN", shard=(rank, world), pad=True, **more, **IDS)]
        for rank in range(world)
    ]
    assert len({len(steps) for steps in ranks}) == 1
    real: list[int] = []
    for step in zip(*ranks, strict=True):
        for values, mask in step:
            assert (values.shape, mask.shape, mask.dtype) == ((batch_size,), (batch_size,), bool)
            assert {*values.tolist()} <= {*whole}
            real += values[mask].tolist()
    assert real == whole
    images, labels, mask = next(iter(batches(out, "TEST", batch_size=99, image_size=9, pad=True)))
    assert (len(images), len(labels), mask.sum()) == (99, 99, 8)
    with pytest.raises(OptionError, match="pad=True: `drop_remainder` leaves out what"):
        batches(out, "TEST", pad=True, drop_remainder=True)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"batch_size": 64, "drop_remainder": True}, "36 records cannot fill a batch. Give"),
        ({"batch_size": 19, "shard": (1, 2)}, "36 records cannot fill a batch in each of 2 proc"),
        ({"batch_size": 4, "epoch_size": 3, "drop_remainder": True}, "3 records cannot fill"),
    ],
)
def test_an_epoch_without_a_step_is_refused(out: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=f"an epoch of TRAIN has no step, as {words}"):
        batches(out, "TRAIN", **more, **IDS)
    with pytest.raises(OptionError, match=f"an epoch of TRAIN has no step, as {words}"):
        sampler_of(out, **more)
    given = {"drop_remainder": True, **more}
    with pytest.raises(OptionError, match=f"an epoch of TRAIN has no step, as {words}"):
        tfrecorder.load(out, "TRAIN", image_size=9, **given)
    with pytest.raises(OptionError, match="an epoch of VALIDATION has no step, as 8"):
        tfrecorder.load(out, batch_size=9, image_size=9, drop_remainder=True)


@pytest.mark.parametrize("batch_size", [5, *slow_cases(2, 4, 11, 12)])
@pytest.mark.parametrize("chosen", [{}, *slow_cases({"shuffle": "exact", "seed": 3})])
@pytest.mark.parametrize("drop", [False, True])
def test_load_gives_every_rank_equally_many_batches(
    out: str, batch_size: int, chosen: dict[str, Any], drop: bool
) -> None:
    for world in (2, 3, 5):
        given: dict[str, Any] = {"batch_size": batch_size, "inputs": "all", "decode": False}
        if drop and batch_size * world > 36:
            continue
        counts, found = set(), []
        for rank in range(world):
            shard = {"shard": (rank, world), "drop_remainder": drop}
            data = tfrecorder.load(out, "TRAIN", **shard, **given, **chosen)
            steps = [ids([one]) for one in data.as_numpy_iterator()]
            assert len(steps) == len(data)
            assert {len(step) for step in steps} <= {*range(1, batch_size + 1)}
            counts.add(len(steps))
            found += itertools.chain(*steps)
        assert len(counts) == 1
        assert len(found) == len({*found})
        assert drop or len(found) == 36


def test_processes_that_connect_later_are_refused_at_the_first_loop(
    out: str, launched: Callable[..., None]
) -> None:
    readers = batches(out, "TRAIN", batch_size=19, **IDS), sampler_of(out, batch_size=19)
    launched(RANK=0, WORLD_SIZE=2)
    for reader in readers:
        with pytest.raises(OptionError, match="cannot fill a batch in each of 2 processes"):
            next(iter(reader))


# --------------------------------------------------------------------------- a wrong environment


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RANK": 3}, r"has RANK='3', no WORLD_SIZE, which .* Set both rightly, or .* `shard="),
        ({"WORLD_SIZE": 4}, "has no RANK, WORLD_SIZE='4', which"),
        ({"RANK": 4, "WORLD_SIZE": 4}, "has RANK='4', WORLD_SIZE='4', which"),
        ({"RANK": -1, "WORLD_SIZE": 4}, "has RANK='-1', WORLD_SIZE='4', which"),
        ({"RANK": "٠", "WORLD_SIZE": "٢"}, "has RANK='٠', WORLD_SIZE='٢', which"),
        ({"RANK": 0, "WORLD_SIZE": "two"}, "has RANK='0', WORLD_SIZE='two', which"),
        ({"SLURM_STEP_NUM_TASKS": 2}, "has no SLURM_PROCID, SLURM_STEP_NUM_TASKS='2'"),
    ],
)
@pytest.mark.parametrize("reader", READERS)
def test_a_wrong_environment_is_refused_in_words(
    out: str, launched: Callable[..., None], reader: str, variables: dict[str, Any], words: str
) -> None:
    launched(**variables)
    with pytest.raises(OptionError, match=f"the environment {words}"):
        READERS[reader](out)
    assert len(READERS[reader](out, shard=(0, 1))) == 36


@pytest.mark.parametrize(
    "variables",
    [
        {"WORLD_SIZE": 1},
        {"WORLD_SIZE": "", "RANK": ""},
        {"SLURM_NTASKS": 8, "SLURM_PROCID": 0},  # a batch script, without srun
        {"SLURM_NTASKS": 1, "SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 1},
    ],
)
def test_a_process_that_is_alone_reads_everything(
    out: str, launched: Callable[..., None], variables: dict[str, Any]
) -> None:
    launched(**variables)
    assert len(by_batches(out)) == 36


def test_what_is_no_training_reads_everything(out: str, launched: Callable[..., None]) -> None:
    launched(RANK=1, WORLD_SIZE=2)
    assert len(Records(out, "TRAIN", **IDS)) == 36
    assert len(tfrecorder.to_frame(out, "TRAIN")) == 36
    assert tfrecorder.info(out).splits["TRAIN"].records == 36
    assert tfrecorder.verify(out).ok


def test_hosts_do_not_follow_a_growing_dataset(out: str, launched: Callable[..., None]) -> None:
    launched(RANK=1, WORLD_SIZE=2)
    loop = batches(out, "TRAIN", follow=True, **IDS)
    with pytest.raises(OptionError, match="follow=True: each host would look for new generations"):
        next(iter(loop))


@pytest.mark.slow
def test_jax_states_it_once_it_is_connected(out: str) -> None:
    """Two processes, which their environments do not tell apart."""
    skip_without("jax")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"""
    import sys, zlib, jax, tfrecorder
    options = dict(decode=False, inputs=["image_uri"], map_fn=lambda data, _: zlib.crc32(data))
    train = tfrecorder.batches({out!r}, "TRAIN", batch_size=4, **options)
    assert len(train) == 3
    jax.distributed.initialize("127.0.0.1:{port}", 2, int(sys.argv[1]))
    print([one.item() for batch in train for one in batch])
    print(train)
    """
    stated = os.environ | {"RANK": "1", "WORLD_SIZE": "3", "JAX_PLATFORMS": "cpu"}
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda rank: run("-c", textwrap.dedent(code), rank, env=stated), "01"))
    shares = []
    for rank, done in enumerate(both):
        assert f"shard=({rank}, 2) by jax.distributed" in done.stdout, done.stderr
        shares += json.loads(done.stdout.splitlines()[0])
    assert len(shares) == len({*shares}) == 32
