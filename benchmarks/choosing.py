"""Mixing two datasets: shares of an epoch, and what a resume on other hosts repeats or loses.

    choosing.py [--data DIR] [--quick]

10,240 samples are drawn of two datasets, 7 to 3, by `tfrecorder.batches`, MosaicML's MDS, LitData
and Grain (`mix` in an `ElasticIterator`), each with its own state for a resume on other hosts.
Two hosts read the epoch whole.  Then two hosts read 100 steps of it, and four continue.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness
import peers_packages
from harness import Bar, Case, Numbers, Timed

WEIGHTS = (0.7, 0.3)
#: Records of the two datasets: more than an epoch takes of each.
RECORDS = (8000, 4000)
#: The ids of the second dataset begin here.
SECOND = 100_000
BATCH, STEPS, FIRST_STEPS = 16, 320, 100

Reader = Callable[[list[str], int, int, Any], tuple[Any, Callable[[], Any]]]


def measure(tool: str, folder: str) -> Timed:
    """Whole on two hosts; interrupted on two, and continued on four."""
    directories = [os.path.join(folder, f"{tool}-{number}") for number in range(2)]
    for directory, records, first in zip(directories, RECORDS, (0, SECOND), strict=True):
        globals()[f"write_{tool}"](directory, range(first, first + records))

    def run() -> Numbers:
        whole, _ = hosts(tool, directories, 2, STEPS, [None])
        before, states = hosts(tool, directories, 2, FIRST_STEPS, [None])
        left = (STEPS - FIRST_STEPS) // 2
        second = sum(number >= SECOND for number in whole)
        numbers: Numbers = {
            "samples": len(whole),
            "share": 100 * second / len(whole),
            "off": abs(second - WEIGHTS[1] * len(whole)),
        }
        try:
            after, _ = hosts(tool, directories, 4, left, states)
        except subprocess.CalledProcessError:
            return numbers | {"refused": 1}  # the hosts have said why
        wanted, found = Counter(whole), Counter(before + after)
        repeated, lost = (found - wanted).total(), (wanted - found).total()
        return numbers | {"refused": 0, "repeated": repeated, "lost": lost}

    return run


def hosts(
    tool: str, directories: list[str], world: int, steps: int, states: Sequence[Any]
) -> tuple[list[int], list[Any]]:
    """The ids that hosts read, each in its own process, and their states afterwards."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as answers:
        free.bind(("127.0.0.1", 0))
        common = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1"}
        common["MASTER_PORT"] = free.getsockname()[1]
        free.close()
        running = []
        for rank in range(world):
            own = {"RANK": rank, "LOCAL_RANK": rank, "GLOBAL_RANK": rank, **common}
            about = [tool, directories, rank, world, steps, states[rank % len(states)]]
            command = [sys.executable, __file__, "host", json.dumps(about), f"{answers}/{rank}"]
            environment = os.environ | {name: str(value) for name, value in own.items()}
            running.append(subprocess.Popen(command, env=environment))
        codes = [process.wait() for process in running]
        for code, process in zip(codes, running, strict=True):
            if code:
                raise subprocess.CalledProcessError(code, process.args)
        found = [json.loads(Path(answers, str(rank)).read_text()) for rank in range(world)]
    return [number for ids, _ in found for number in ids], [state for _, state in found]


def host(tool: str, directories: list[str], rank: int, world: int, steps: int, state: Any) -> Any:
    """What one host reads in some steps, and its state."""
    read: Reader = globals()[f"read_{tool}"]
    loop, state_of = read(directories, rank, world, state)
    ids: list[int] = []
    batches = iter(loop)
    for _ in range(steps):
        ids += [int(number) for number in next(batches)]
    return ids, state_of()


def write_tfrecorder(directory: str, ids: range) -> None:
    import pandas as pd

    import tfrecorder
    from tfrecorder.schema import Number, Schema, Split

    frame = pd.DataFrame({"split": "TRAIN", "id": ids})
    schema = Schema(split=Split(), id=Number(dtype="int64"))
    tfrecorder.convert(frame, directory, schema=schema, progress=False)


def read_tfrecorder(directories: list[str], rank: int, world: int, state: Any) -> Any:
    import tfrecorder

    weights = dict(zip(directories, WEIGHTS, strict=True))
    loop = tfrecorder.batches(
        weights,
        "TRAIN",
        inputs=["id"],
        batch_size=BATCH,
        epoch_size=2 * BATCH * STEPS,
        seed=1,
        shard=(rank, world),
    )
    if state is not None:
        loop.load_state_dict(state)
    return loop, loop.state_dict


def write_mds(directory: str, ids: range) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=directory, columns={"id": "int"}, size_limit=2**14) as writer:
        for number in ids:
            writer.write({"id": number})


def read_mds(directories: list[str], rank: int, world: int, state: Any) -> Any:
    from streaming import Stream, StreamingDataLoader, StreamingDataset

    streams = [
        Stream(local=directory, proportion=weight)
        for directory, weight in zip(directories, WEIGHTS, strict=True)
    ]
    size = 2 * BATCH * STEPS
    dataset = StreamingDataset(
        streams=streams, epoch_size=size, shuffle=True, shuffle_seed=1, batch_size=BATCH
    )
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)
    if state is not None:
        loader.load_state_dict(state)
    return (batch["id"] for batch in loader), loader.state_dict


def write_litdata(directory: str, ids: range) -> None:
    from litdata.streaming.writer import BinaryWriter

    os.makedirs(directory)
    writer = BinaryWriter(directory, chunk_size=500)
    for place, number in enumerate(ids):
        writer[place] = {"id": number}
    writer.done()
    writer.merge()


def read_litdata(directories: list[str], rank: int, world: int, state: Any) -> Any:
    from litdata import CombinedStreamingDataset, StreamingDataLoader, StreamingDataset

    datasets = [StreamingDataset(directory, shuffle=True, seed=1) for directory in directories]
    mixed = CombinedStreamingDataset(datasets, seed=1, weights=WEIGHTS, iterate_over_all=False)
    loader = StreamingDataLoader(mixed, batch_size=BATCH, num_workers=0)
    if state is not None:
        loader.load_state_dict(state)
    return (batch["id"] for batch in loader), loader.state_dict


def write_grain(directory: str, ids: range) -> None:
    os.makedirs(directory)
    Path(directory, "ids.json").write_text(json.dumps([*ids]))


def read_grain(directories: list[str], rank: int, world: int, state: Any) -> Any:
    import grain

    every = [json.loads(Path(directory, "ids.json").read_text()) for directory in directories]
    shuffled = [grain.MapDataset.source(ids).shuffle(seed=1) for ids in every]
    mixed = grain.MapDataset.mix(shuffled, weights=WEIGHTS)
    options = grain.sharding.ShardOptions(rank, world)
    batches = iter(grain.experimental.ElasticIterator(mixed, BATCH * world, options))
    if state is not None:
        batches.set_state(state)
    return batches, batches.get_state


TOOLS = {"tfrecorder": (), "mds": ("streaming",), "litdata": ("litdata",), "grain": ("grain",)}


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="the same: it is small")
    chosen = parser.parse_args(arguments)
    chosen.data.mkdir(parents=True, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="choosing-", dir=chosen.data)
    environment = peers_packages.quiet(chosen.data)
    try:
        cases = [
            Case(
                tool,
                "choosing:measure",
                {"tool": tool, "folder": scratch},
                requires=packages,
                environment=environment,
            )
            for tool, packages in TOOLS.items()
        ]
        results = harness.run_rounds(cases, 1, chosen.data)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(harness.table(results, ["samples", "share", "off", "refused", "repeated", "lost"]) + "\n")
    ours = results[0]
    bars = [
        Bar(
            "records more or fewer than the share asked for", ours.median("off"), 1, at_least=False
        ),
        Bar("records repeated by a resume", ours.median("repeated"), 0, at_least=False),
        Bar("records lost by a resume", ours.median("lost"), 0, at_least=False),
    ]
    return harness.report("choosing", results, bars=bars, packages=peers_packages.versions())


if __name__ == "__main__":
    if sys.argv[1:2] == ["host"]:
        Path(sys.argv[3]).write_text(json.dumps(host(*json.loads(sys.argv[2])), default=int))
    else:
        sys.exit(0 if main() else 1)
