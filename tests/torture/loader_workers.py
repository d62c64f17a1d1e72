"""Loops over `tfrecorder.torch.batches` with workers that are left, and processes that are killed.

What is left behind is looked for: processes, open descriptors and shared memory.

    python -m torture.loader_workers DIRECTORY

is such a loop without an end, which prints a line once its workers read.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import psutil
from helpers.reading_cases import convert_photos

import tfrecorder
from torture.counts import Count, demand

#: Seconds in which workers end that have lost their parent: 15, on a quiet machine.
PATIENCE = 40

#: What elements are: pictures, which go through shared memory, or stored bytes, through a pipe.
FORMS: list[dict[str, Any]] = [{"image_size": 40}, {"decode": False}]


def torment(folder: Path, leave: int, kills: int) -> list[Count]:
    """All of it.

    Args:
        folder: for a dataset.
        leave: how many loops are left half-way.
        kills: of workers, and as many of the process that trains.

    Raises:
        BrokenError: something was left behind, or a record came twice or not at all.
    """
    directory = convert_photos(folder / "photographs")
    return [
        leave_loops(directory, leave),
        kill_workers(directory, kills),
        kill_parents(directory, kills),
    ]


def number(data: Any, _: Any) -> int:
    return zlib.crc32(data)


def loop_over(directory: str, workers: int, **more: Any) -> Any:
    """Batches of two, each record as a number if it is not to be anything else."""
    of_numbers = {"decode": False, "inputs": ["image_uri"], "map_fn": number}
    given = {"batch_size": 2, "seed": 7, "num_workers": workers, **(more or of_numbers)}
    return tfrecorder.torch.batches(directory, "TRAIN", **given)


def left_behind(killed: Collection[int] = ()) -> tuple[int, int, int]:
    """Processes that this one started, its descriptors, and its pieces of shared memory.

    If torch cannot reach a worker, it opens temporary files to see whether there are descriptors
    left, and its own error for a killed worker may come in between: these do not count.
    """
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    descriptors = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # of the listing itself
            descriptors += not os.readlink(one).startswith(f"{tempfile.gettempdir()}/tmp")
    # Of torch, with a name; of ours, without one.
    shared = sum("/torch_" in line or "/dev/zero (deleted)" in line for line in maps)
    return len(psutil.Process().children(recursive=True)), descriptors, shared + files(killed)


def files(killed: Collection[int] = ()) -> int:
    """Pieces of shared memory that have a name, and so outlived the process that it begins with.

    Other programs of this machine have theirs while they run.  Torch takes the name away as soon as
    it has made a piece: a process that was killed between the two leaves it.
    """
    makers = [int(path.name.split("_")[1]) for path in Path("/dev/shm").glob("torch_*")]
    return sum(not psutil.pid_exists(maker) for maker in makers if maker not in killed)


def leave_loops(directory: str, times: int) -> Count:
    for _ in loop_over(directory, 1):  # the first brings what stays: a thread that hands out memory
        break
    before = left_behind()
    for turn in range(times):
        found = []
        train = loop_over(directory, 1 + turn % 3, **FORMS[turn % 2] if turn % 3 else {})
        for step, batch in enumerate(train):
            found.append(batch)
            if step == turn % 8:
                break
        demand(not psutil.Process().children(), f"loop {turn} left a worker")
        del found, batch, train
    demand(left_behind() == before, f"after {times} loops {left_behind()}, before {before}")
    return Count("loop with workers left half-way", times, 0, 0)


@contextlib.contextmanager
def nothing_kept_of_lost_errors() -> Iterator[None]:
    """Forget what is raised where nothing can be raised.

    Torch raises its error for a killed worker in whatever runs then, which may be a destructor.
    pytest keeps such an error until the test ends, and with it the frames and so the descriptors
    and shared memory of the loop.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


@nothing_kept_of_lost_errors()
def kill_workers(directory: str, times: int) -> Count:
    """The loop ends with an error of torch's; loaded, its position is where it ended."""
    whole = [one for batch in loop_over(directory, 0) for one in batch.tolist()]
    before, rows = left_behind(), 0
    killed: list[int] = []
    for turn in range(times):
        train = loop_over(directory, 1 + turn % 3)
        found = until_killed(train, turn % 4, turn, killed)
        demand(0 < len(found) < 36, f"kill {turn}: {len(found)} records, and no error")
        train.load_state_dict(train.state_dict())
        found += [one for batch in train for one in batch.tolist()]
        demand(found == whole, f"kill {turn}: other records")
        rows += len(found)
    left = left_behind(killed)
    demand(left == before, f"after {times} kills {left}, before {before}")
    return Count("worker of a loop killed", times, rows, 0)


def until_killed(train: Any, last: int, which: int, killed: list[int]) -> list[int]:
    """What a loop takes until its next batch is missing, as one of its workers was killed."""
    found: list[int] = []
    try:
        try:
            for step, batch in enumerate(train):
                found += batch.tolist()
                if step == last:
                    workers = psutil.Process().children()
                    killed.append(workers[which % len(workers)].pid)
                    workers[which % len(workers)].kill()
        finally:
            time.sleep(0.2)  # torch raises its error in whatever runs then
    except (RuntimeError, OSError, EOFError):  # or the connection to the worker ended before
        return found
    return found


def kill_parents(directory: str, times: int) -> Count:
    before = files()
    for turn in range(times):
        command = [sys.executable, "-W", "ignore", "-m", "torture.loader_workers", directory]
        paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            [*command, str(turn)], stdout=subprocess.PIPE, text=True, env={**os.environ, **paths}
        ) as process:
            try:
                demand(process.stdout and process.stdout.readline(), "the loop did not begin")
                workers = psutil.Process(process.pid).children(recursive=True)
                demand(len(workers) == 1 + turn % 3, f"{len(workers)} workers")
            finally:
                process.send_signal(signal.SIGKILL if turn % 4 < 3 else signal.SIGTERM)
        _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
        for one in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        demand(not alive, f"kill {turn} left {alive}")
    demand(files() == before, f"after {times} kills {files() - before} pieces of shared memory")
    return Count("training with workers killed", times, 0, 0)


def main(directory: str, turn: int) -> None:
    train = loop_over(directory, 1 + turn % 3, **FORMS[turn % 2])
    while True:
        for step, _ in enumerate(train):
            if step == turn % 4:
                print("reads", flush=True)
                time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
