"""Trainings that are killed at any step and go on, also with other batch sizes, hosts and trainers.

And what may not go wrong silently: several loops over one `Batches`, and positions that were
changed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.reading_cases import convert_photos
from support import is_installed

import tfrecorder
from tfrecorder import Records, batches
from tfrecorder.errors import OptionError
from tfrecorder.torch import BatchSampler
from torture.counts import Count, demand

#: What a batch is made of here: a number for each record, by its bytes.
IDS: dict[str, Any] = {
    "decode": False,
    "inputs": ["image_uri"],
    "map_fn": lambda data, _: hash(data),
}


@dataclass(frozen=True)
class Run:
    """A part of a training, until it is killed.

    Attributes:
        batch_size: of each host.
        world: how many hosts there are.
        steps: that they take, or fewer where the epoch ends.
        workers: processes that read for each of them, by torch; 0 for threads.
    """

    batch_size: int
    world: int
    steps: int
    workers: int = 0


def interrupt(times: int, folder: Path, seed: int = 0, by_lightning: int = 20) -> list[Count]:
    """Epochs of random runs, hosts, batch sizes, orders and remainders; loops, and positions.

    Args:
        times: how often each is attacked.
        by_lightning: how many trainings by Lightning; each takes about half a minute.

    Raises:
        BrokenError: a record was seen twice or not at all, or in another order.
    """
    directory = convert_photos(folder / "photographs")
    records, rows = tfrecorder.info(directory).splits["TRAIN"].records, 0
    for number in range(times):
        dice = random.Random(seed * times + number)
        runs = [
            Run(dice.randint(1, 9), dice.randint(1, 5), dice.randint(0, 8))
            for _ in range(dice.randint(1, 6))
        ]
        drop, shuffle = dice.random() < 0.5, dice.choice(["exact", "blocks"])
        rows += len(finish(directory, records, runs, drop, number, shuffle))
    counts = [Count("training killed, then more or fewer hosts", times, rows, 0)]
    dice = random.Random(seed)
    rows = sum(
        confuse(directory, [(dice.randrange(4), dice.choice("nnnnnnci")) for _ in range(40)])
        for _ in range(times)
    )
    counts.append(Count("several loops over one Batches", times, rows, 0))
    refused = sum(_mangle(directory, dice) for _ in range(times))
    counts.append(Count("position changed", times, 0, 0, f"{refused} refused"))
    if by_lightning and is_installed("pytorch_lightning") and is_installed("torchdata"):
        places = [folder / f"{number}" for number in range(by_lightning)]
        rows = sum(_by_lightning(directory, place, dice) for place in places)
        counts.append(Count("training by Lightning killed", by_lightning, rows, 0))
    return counts


def finish(
    directory: str,
    records: int,
    runs: Sequence[Run],
    drop_remainder: bool,
    seed: int,
    shuffle: str = "exact",
) -> list[int]:
    """The records of an epoch in the order in which its runs took them; checked.

    Args:
        directory: of a dataset.
        records: of its split TRAIN.
        runs: each begins where the one before was killed; two hosts then end the epoch, or one.
    """
    orders = {"seed": seed, "shuffle": shuffle}
    whole = [one for batch in batches(directory, "TRAIN", **orders, **IDS) for one in batch]
    demand(len(set(whole)) == records, f"{len(set(whole))} of {records} records undisturbed")
    words = f"runs={[*runs]}, drop_remainder={drop_remainder}, {orders}"
    state, taken = None, []
    for run in [*runs, Run(4, 2, records), Run(4, 1, records)]:
        left = records - len(taken)
        fills = run.batch_size > 1 and left >= run.world
        if not drop_remainder and not fills and left % run.world:
            continue  # not every host has a record in each step: refused, as test_ranks.py says
        taken_now, state = _until_killed(directory, run, state, drop_remainder, orders)
        taken += taken_now
        if state["epoch"] == 1:
            break
    demand(taken == whole[: len(taken)], f"another order after a kill: {words}")
    dropped = run.batch_size * run.world - 1 if drop_remainder else 0
    demand(records - dropped <= len(taken) <= records, f"{len(taken)} of {records}: {words}")
    return taken


def _until_killed(
    directory: str, run: Run, state: Any, drop_remainder: bool, orders: dict[str, Any]
) -> tuple[list[int], Any]:
    """What the hosts of a run take, a step after the other, and the position that they save."""
    parts, states = [], []
    for rank in range(run.world):
        # What is made ahead and nobody takes has to come again.
        read = batches if not run.workers else tfrecorder.torch.batches
        ahead = {"num_workers": run.workers} if run.workers else {"num_threads": 2}
        host: Any = read(
            directory,
            "TRAIN",
            batch_size=run.batch_size,
            shard=(rank, run.world),
            drop_remainder=drop_remainder,
            **ahead,
            **orders,
            **IDS,
        )
        if state is not None:
            host.load_state_dict(state)
        steps, loop = min(run.steps, host.remaining), iter(host)
        parts.append([next(loop).tolist() for _ in range(steps)])
        states.append(json.dumps(host.state_dict()))
        loop.close()
    demand(len(set(states)) == 1, f"hosts of one run save different positions: {set(states)}")
    taken = [one for step in zip(*parts, strict=True) for part in step for one in part]
    return taken, json.loads(states[0])


# ---------------------------------------------------------------------------------------------
# Several loops over one `Batches`.


def confuse(directory: str, moves: Iterable[tuple[int, str]]) -> int:
    """The records that several loops over one `Batches` take in turns; checked.

    A loop that takes its first batch begins an epoch: the next one, if any batch was taken of the
    one before. It goes on as long as no other loop has begun.

    Args:
        directory: of a dataset.
        moves: a loop by its number, and what happens to it: "n" takes its next batch, "c" closes
            it, "i" begins another in its place.
    """
    numbered = batches(directory, "TRAIN", batch_size=5, seed=7, **IDS)
    epochs: list[list[list[int]]] = []
    shared = batches(directory, "TRAIN", batch_size=5, seed=7, **IDS)
    loops = [iter(shared) for _ in range(4)]
    fresh = {*range(4)}
    running: int | None = None
    epoch = step = rows = 0
    for number, move in [*moves, (0, "i"), *[(0, "n")] * 99]:
        if move != "n":
            loops[number].close()
            fresh.discard(number)
            running = None if running == number else running
        if move == "i":
            loops[number] = iter(shared)
            fresh.add(number)
        if move != "n":
            continue
        if number in fresh:
            fresh.remove(number)
            running, epoch, step = number, epoch + (step > 0), 0
        try:
            found = next(loops[number]).tolist()
        except (OptionError, StopIteration) as error:
            refused = isinstance(error, OptionError)
            demand(running != number, f"the loop that runs ended after {moves!r}: {refused}")
            continue
        while len(epochs) <= epoch:
            epochs.append([batch.tolist() for batch in numbered])
        demand(running == number, f"a loop went on beside another: {moves!r}")
        demand(found == epochs[epoch][step], f"lost, twice or in another order after {moves!r}")
        rows += len(found)
        step += 1
        if step == len(epochs[epoch]):
            running, epoch, step = None, epoch + 1, 0
    return rows


# ---------------------------------------------------------------------------------------------
# Positions that were changed.

#: Values that no field of a position may have, and some that are right in one of them.
_VALUES: tuple[Any, ...] = (
    *("x", "", None, True, False, 2.0, 1.5, float("nan"), [], [7], {}, b"7", 1j),
    *(-1, 0, 1, 2, 7, 36, 37, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63, 2**70, 2**80),
)


def mangle(reader: Any, state: Any) -> bool:
    """True if a reader refuses a state; else checks that it stands there and reads on."""
    before = reader.state_dict()
    try:
        reader.load_state_dict(state)
    except OptionError:
        demand(reader.state_dict() == before, f"moved by {state!r}, which it refused")
        return True
    demand(repr(reader.state_dict() | {"generation": 0}) == repr({**state} | {"generation": 0}),
           f"{state!r} was loaded as {reader.state_dict()}")  # fmt: skip
    next(iter(reader), None)
    return False


def _mangle(directory: str, dice: random.Random) -> bool:
    """Change one or two fields of a position, for a reader that takes any seed."""
    reader: Any = batches(directory, "TRAIN", **IDS)
    if dice.random() < 0.5:
        reader = BatchSampler(Records(directory, "TRAIN", **IDS))
    state = reader.state_dict()
    fields = dice.sample([*state], dice.randint(1, 2))
    return mangle(reader, state | {field: dice.choice(_VALUES) for field in fields})


# ---------------------------------------------------------------------------------------------
# Trainings by Lightning.

_TRAINING = Path(__file__).parent.parent / "services/trainers/lightning_training.py"


def train_by_lightning(directory: str, folder: Path, chosen: dict[str, Any], kill: int) -> str:
    """What a training says until it ends or all its processes are killed before a step."""
    with subprocess.Popen(
        [sys.executable, _TRAINING, directory, folder, json.dumps(chosen | {"kill": kill})],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, words = process.communicate(timeout=600)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return words


def finish_by_lightning(
    directory: str, folder: Path, chosen: dict[str, Any], kills: Sequence[int]
) -> int:
    """The records that a training takes, which is killed before steps and goes on; checked.

    Args:
        directory: of a dataset.
        folder: empty, of the training.
        chosen: "reader", "world", "batch_size", "seed", "epochs"; "every", steps between saves.
        kills: numbers of steps in the whole training.
    """
    said = [train_by_lightning(directory, folder, chosen, kill) for kill in (*kills, -1)]
    ranks = []
    for rank in range(chosen["world"]):
        lines = map(json.loads, (folder / f"rank-{rank}.log").read_text().splitlines())
        ranks.append(dict(lines))  # of a step that was done twice, the second time
    undisturbed = batches(
        directory,
        "TRAIN",
        batch_size=chosen["batch_size"] * chosen["world"],
        drop_remainder=True,
        seed=chosen["seed"],
        **IDS | {"map_fn": lambda data, _: zlib.crc32(data)},
    )
    expected = [batch.tolist() for _ in range(chosen["epochs"]) for batch in undisturbed]
    words = f"{chosen}, {kills=}: {said[-1][-2000:]}"
    demand(all([*rank] == [*range(len(expected))] for rank in map(sorted, ranks)), words)
    for step, batch in enumerate(expected):
        demand([*itertools.chain(*(rank[step] for rank in ranks))] == batch, f"{step=}, {words}")
    return sum(map(len, expected))


def _by_lightning(directory: str, folder: Path, dice: random.Random) -> int:
    """A training of random processes and batches; killed at most once in each epoch."""
    folder.mkdir()
    world, batch_size = dice.randint(1, 2), dice.randint(2, 5)
    steps = 36 // (world * batch_size)
    chosen = {
        "reader": dice.choice(["batches", "loader-0", "loader-2"]),
        "world": world,
        "batch_size": batch_size,
        "seed": dice.randrange(100),
        "epochs": dice.randint(1, 3),
    }
    # From a StatefulDataLoader's last step of an epoch, Lightning goes on without the next epoch.
    ends = chosen["reader"] == "batches"
    chosen["every"] = dice.randint(1, 3) if ends else 1
    kills = [
        epoch * steps + dice.randint(1, steps if ends else steps - 1)
        for epoch in range(chosen["epochs"])
    ]
    return finish_by_lightning(directory, folder, chosen, kills)
