"""Trainings that are killed at any step and go on with another batch size and number of hosts."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reading_cases import convert_photos

import tfrecorder
from tfrecorder import batches
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
    """

    batch_size: int
    world: int
    steps: int


def interrupt(times: int, folder: Path, seed: int = 0) -> list[Count]:
    """Epochs of random runs, hosts, batch sizes, orders and remainders.

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
    return [Count("training killed, then more or fewer hosts", times, rows, 0)]


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
        runs: each begins where the one before was killed; two hosts then end the epoch.
    """
    orders = {"seed": seed, "shuffle": shuffle}
    whole = [one for batch in batches(directory, "TRAIN", **orders, **IDS) for one in batch]
    demand(len(set(whole)) == records, f"{len(set(whole))} of {records} records undisturbed")
    words = f"runs={[*runs]}, drop_remainder={drop_remainder}, {orders}"
    state, taken = None, []
    for run in [*runs, Run(4, 2, records)]:
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
        host = batches(
            directory,
            "TRAIN",
            batch_size=run.batch_size,
            shard=(rank, run.world),
            drop_remainder=drop_remainder,
            num_threads=2,  # what they make ahead and nobody takes has to come again
            **orders,
            **IDS,
        )
        if state is not None:
            host.load_state_dict(state)
        steps, loop = min(run.steps, len(host)), iter(host)
        parts.append([next(loop).tolist() for _ in range(steps)])
        states.append(json.dumps(host.state_dict()))
        loop.close()
    demand(len(set(states)) == 1, f"hosts of one run save different positions: {set(states)}")
    taken = [one for step in zip(*parts, strict=True) for part in step for one in part]
    return taken, json.loads(states[0])
