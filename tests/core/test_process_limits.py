"""Limits of the process and of its container: fewer threads where that is enough, else one line.

The inner law of core/: how many threads, and how much memory.  And of what follows from them: the
number of worker processes, and the limit that a benchmark names.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.expensive_cases import strips
from support import CSV, SAMPLES, photo_frame, public_files, run, wait_for
from torture import control_groups, disks

import tfrecorder
from tfrecorder.cli.process import LEAST_ADDRESS_SPACE
from tfrecorder.core.threads import (
    ThreadPool,
    cores,
    cpu_quota,
    memory_limit,
    result_of,
    run_in_order,
)
from tfrecorder.loading.options import LoadOptions
from tfrecorder.loading.order import shuffle_records
from tfrecorder.loading.throughput import limit_of, looks_at_lock
from tfrecorder.options import ranks, read
from tfrecorder.options.read import parallel_calls, prefetched
from tfrecorder.runners.local_workers import CORES, ROWS, worker_count

MEGABYTE = 2**20


def convert_within(limit: int, what: int, source: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tfrecorder", "convert", str(source), "out"],
        preexec_fn=lambda: resource.setrlimit(what, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=240,
    )


def one_line(finished: subprocess.CompletedProcess[str]) -> str:
    """The words of a command that failed as it should: without a traceback, nothing committed."""
    assert finished.returncode == 1, finished.stderr
    assert len(finished.stderr.splitlines()) == 1, finished.stderr
    assert finished.stderr.startswith("error: ")
    assert not Path("out/dataset_info.json").exists()
    return finished.stderr


@pytest.mark.slow
def test_the_least_address_space_is_enough() -> None:
    finished = convert_within(LEAST_ADDRESS_SPACE, resource.RLIMIT_AS, CSV)
    assert (finished.returncode, finished.stderr) == (0, "")
    tfrecorder.convert(CSV, "free")
    assert public_files("out") == public_files("free")


@pytest.mark.slow
def test_too_little_address_space_is_one_line() -> None:
    """Protobuf raised a TypeError under one limit, and Arrow aborted the process under another."""
    for limit in (320 * MEGABYTE, LEAST_ADDRESS_SPACE - MEGABYTE):
        finished = convert_within(limit, resource.RLIMIT_AS, CSV)
        assert "raise its limit (`ulimit -v`" in one_line(finished)


@pytest.mark.slow
def test_an_image_that_a_limit_leaves_no_memory_for_is_no_reject() -> None:
    pixels = [bytes(9000 * 1000)] * 9  # of 81 MB, and more to make a PNG of them
    Path("large.tif").write_bytes(strips(9000, 9000, 1000, pixels))
    Path("large.csv").write_text("image_uri\nlarge.tif\n")
    code = """
import resource, tfrecorder
resource.setrlimit(resource.RLIMIT_AS, (900 * 2**20, 900 * 2**20))
tfrecorder.convert("large.csv", "out", num_threads=1)
"""
    finished = run("-c", code, env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"})
    words = finished.stderr.splitlines()[-1]
    assert "row 0, image 'large.tif'" in words
    assert "ulimit -v" in words
    assert not list(Path("out").glob("*.tfrecord"))
    assert tfrecorder.convert("large.csv", "out").records == 1


# ------------------------------------------------------------------------------ a limit of threads

#: Everything is imported before the user changes, who may not read where it lies.
AS_ANOTHER_USER = """
import os, resource, sys, tfrecorder, tfrecorder.cli.main
tfrecorder.convert("photos.csv", "free", progress=False)
os.setgroups([]); os.setgid(54321); os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv[1]),) * 2)
sys.argv = ["tfrecorder", "convert", "photos.csv", "out"]
tfrecorder.cli.main.main()
"""


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with the photographs, where every user may write."""
    if os.getuid() != 0:
        pytest.skip("needs root, to become a user with no other process")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        shutil.copy(CSV, folder)
        shutil.copytree(SAMPLES / "photos", Path(folder, "photos"))
        monkeypatch.chdir(folder)
        yield Path(folder)
        monkeypatch.undo()


def convert_with_threads(most: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, str(most)],
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.slow
def test_with_few_threads_the_conversion_is_the_same(open_folder: Path) -> None:
    finished = convert_with_threads(12)  # 10 at least, and on a busy machine one may end late
    assert (finished.returncode, finished.stderr) == (0, "")
    assert public_files("out") == public_files("free")


@pytest.mark.slow
def test_with_too_few_threads_it_is_one_line(open_folder: Path) -> None:
    assert "raise its limit (`ulimit -u`" in one_line(convert_with_threads(4))


@pytest.fixture
def few_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets so many threads start from now on."""

    def allow(most: int) -> None:
        left = [most]
        start = threading.Thread.start

        def starting(thread: threading.Thread) -> None:
            if not left[0]:
                raise RuntimeError("can't start new thread")
            left[0] -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", starting)

    return allow


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_pool_does_with_the_threads_that_it_gets(few_threads, threads: int) -> None:
    few_threads(threads)
    finished: list[int] = []
    with ThreadPool(8) as pool:
        assert list(pool.map(abs, range(-20, 0))) == [*range(20, 0, -1)]
        run_in_order(pool, 8, abs, finished.extend, [-1, -2, -3, -4], ahead=16)
        with pytest.raises(ZeroDivisionError):
            result_of(pool.submit(divmod, 1, 0))
    assert finished == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(abs, 1)


def test_the_threads_of_a_pool_end_with_it() -> None:
    before = threading.active_count()
    pool = ThreadPool(3)
    assert list(pool.map(abs, [1, 2, 3])) == [1, 2, 3]
    del pool
    wait_for(lambda: threading.active_count() <= before)


# -------------------------------------------------------------------------------- control groups


def make_files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_quota_of_a_container_counts_as_its_cores(tmp_path: Path) -> None:
    second = {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
    }
    assert cpu_quota(make_files(tmp_path / "2", second)) == 1.5
    first = {
        "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/docker/1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert cpu_quota(make_files(tmp_path / "1", first)) == 2.5
    endless = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}
    assert cpu_quota(make_files(tmp_path / "0", endless)) == math.inf
    assert cpu_quota(tmp_path / "nowhere") == math.inf


def test_the_default_ram_budget_is_of_the_least_memory_that_a_group_above_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SLURM and systemd set it: on the job or its slice, never at the root."""
    second = {
        "proc/self/cgroup": "0::/slurm/job_1/step_0\n",
        "sys/fs/cgroup/slurm/job_1/memory.max": "400000000\n",
        "sys/fs/cgroup/slurm/job_1/step_0/memory.max": "max\n",
    }
    first = {
        "proc/self/cgroup": "4:memory:/user.slice\n3:cpu,cpuacct:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes": "400000000\n",
    }
    for version, files in (("2", second), ("1", first)):
        root = make_files(tmp_path / version, files)
        monkeypatch.setattr(ranks, "memory_limit", partial(memory_limit, root))
        assert read.EpochOptions().budget == 100_000_000
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_limit(tmp_path / "nowhere") == machine


@pytest.mark.slow
def test_the_budget_is_right_in_trees_of_groups_as_nobody_expects_them(tmp_path: Path) -> None:
    (count,) = control_groups.entangle(tmp_path / "groups", 60)
    assert count.times == 60


@pytest.mark.slow
def test_a_process_in_such_groups_loads(tmp_path: Path) -> None:
    try:
        (count,) = control_groups.live_in(tmp_path / "own", 2)
    except disks.CannotMountError as error:
        pytest.skip(str(error))
    assert count.times == 2


def test_the_name_of_a_group_may_be_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_bytes(b"0::/caf\xe9/a\xc2\x85b\n")
    group = os.path.join(os.fsencode(tmp_path), b"sys/fs/cgroup/caf\xe9/a\xc2\x85b")
    os.makedirs(group)
    for name, text in ((b"memory.max", "4096\n"), (b"cpu.max", "50000 100000\n")):
        Path(os.fsdecode(os.path.join(group, name))).write_text(text)
    assert (memory_limit(tmp_path), cpu_quota(tmp_path)) == (4096, 0.5)


def test_cores_are_no_more_than_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrecorder.core.threads.cpu_quota", lambda: 0.5)
    assert cores() == 1
    monkeypatch.setattr("tfrecorder.core.threads.cpu_quota", lambda: math.inf)
    assert cores() == len(os.sched_getaffinity(0))


# --------------------------------------------------------------------- the memory of a reader


def test_the_shuffle_buffer_fits_the_memory() -> None:
    """12-megapixel photographs of 3.6 MB, on a machine of 16 GiB."""
    options = LoadOptions(ram_budget="4GiB")
    held = shuffle_records(3.6e6, 100_000, options)
    assert held >= 64
    assert held * 3.6e6 <= 2**28
    assert shuffle_records(5e3, 1_000_000, options) == 2048
    assert shuffle_records(5e3, 300, options) == 300
    assert shuffle_records(1e6, 300, LoadOptions(ram_budget="20MiB")) == 5
    assert shuffle_records(1e9, 300, LoadOptions(ram_budget="1MiB")) == 1
    assert shuffle_records(1e9, 300, LoadOptions(ram_budget="1MiB", shuffle=77)) == 77


def test_what_is_decoded_ahead_fits_the_memory() -> None:
    """Batches of 256 raw images of 512x512: 200 MB each, on a machine of 4 GiB."""
    batch = 256 * 512 * 512 * 3
    assert prefetched(batch, 2**30) * batch <= 2**28
    assert parallel_calls(batch, 2**30) * batch <= 2**28
    assert prefetched(64 * 224 * 224 * 3, 2**32) == 8
    assert parallel_calls(224 * 224 * 3, 2**32) == cores()


# ------------------------------------------------- several processes of a training on a machine

_SLURM = {"SLURM_STEP_NUM_TASKS": 8, "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({}, 15),
        ({"LOCAL_WORLD_SIZE": 4}, 3),
        ({"LOCAL_WORLD_SIZE": 16}, 1),
        ({"LOCAL_WORLD_SIZE": 99}, 1),
        ({"WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": 0}, 7),  # as Lightning
        ({"WORLD_SIZE": 2, "MASTER_ADDR": "node-1", "LOCAL_RANK": 0}, 15),
        (_SLURM, 3),
        (_SLURM | {"SLURM_CPUS_PER_TASK": 6}, 5),
        (_SLURM | {"SLURM_CPUS_PER_TASK": 6, "LOCAL_WORLD_SIZE": 2}, 7),
        ({"SLURM_CPUS_PER_TASK": 6}, 15),
    ],
)
def test_the_processes_of_a_machine_divide_its_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], threads: int
) -> None:
    """Of 16 cores; each process leaves one to its trainer."""
    tfrecorder.convert(photo_frame(32), tmp_path / "out", progress=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(16)})
    monkeypatch.setattr("tfrecorder.core.threads.cpu_quota", lambda: math.inf)
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    options = {"batch_size": 16, "image_size": 32, "shard": (0, 1)}
    for _ in tfrecorder.batches(tmp_path / "out", "TRAIN", **options):
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("tfrecorder-batches") == threads
        break


def test_the_processes_of_a_machine_divide_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of `ram_budget`; one that is given is each process's own."""
    alone = LoadOptions().budget
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert LoadOptions().budget == pytest.approx(alone / 8, rel=0.01)
    assert LoadOptions(ram_budget="1GiB").budget == 2**30


# ------------------------------------------------------------ processes, and what limits a reader


@pytest.mark.parametrize("cores", [1, 2, 4, 7, 8, 12, 13, 16, 17, 32, 64, 96, 256])
def test_each_process_has_four_to_six_cores(cores: int) -> None:
    assert worker_count(cores, ROWS - 1) == 1
    workers = worker_count(cores, ROWS)
    assert workers == 1 or 4 <= cores / workers <= 6
    assert workers > 1 or cores < 2 * CORES


#: Of a reader that waits for nothing that we know.
IDLE = {"cores": 4, "busy": 1.0, "taken": 0.02, "megabytes": 80.0, "from_disk": 0.0}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"waiting": 0.01, "busy": 4.0, "taken": 1.0}, "the step: the next batch was ready"),
        ({"waiting": 0.2, "busy": 3.6}, "the cores: 3.6 of 4 were busy"),
        ({"busy": 3.6, "taken": 1.0, "remote": True}, "the cores: 3.6 of 4 were busy"),
        ({"taken": 0.93, "remote": True}, "Python's lock (the GIL): another thread had it at 93%"),
        ({"remote": True}, "the network: 80.0 MB/s came from the store"),
        ({"from_disk": 0.97}, "the disk: 97% of 80.0 MB/s came from it"),
        ({}, "none of cores (1.0 of 4 were busy), lock and disk"),
    ],
    ids=["step", "cores", "cores first", "lock", "network", "disk", "none"],
)
def test_the_first_limit_that_was_met_is_named(changed: dict[str, float], words: str) -> None:
    used: dict[str, Any] = {**IDLE, "remote": False, **changed}
    assert limit_of(**used).startswith(words)


def taken_while(work: Callable[[], object]) -> float:
    """The share of looks, in a third of a second, at which another thread had Python's lock."""
    end = time.perf_counter() + 0.3
    with looks_at_lock() as looks:
        while time.perf_counter() < end:
            work()
    return sum(looks) / len(looks)


@pytest.mark.slow
def test_the_looks_tell_a_thread_that_has_the_lock_from_one_that_has_not() -> None:
    # A busy machine may take the processor from the thread that has the lock, and may wake up who
    # looks as late as a taken lock does; not for ever.
    wait_for(lambda: taken_while(lambda: sum(range(1000))) > 0.8)
    wait_for(lambda: taken_while(lambda: time.sleep(0.3)) < 0.5)


OPENS_MANY = """
import os, resource, sys
import tfrecorder

limit, *more = map(int, sys.argv[1:])
readers = []
def open_files():
    return len(os.listdir("/dev/fd"))
before = open_files()
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(4):
    readers.append(records := tfrecorder.Records("out", "TRAIN"))
    assert len([records[n] for n in range(len(records))]) == 60
    assert open_files() <= limit // 2 + 2, open_files()
if more:  # somebody else has all files but the few that one read needs
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for number in held[-4:]:
            os.close(number)
for shuffle in (True, False):
    read = dict(batch_size=8, image_size=8, shuffle=shuffle, num_threads=1, seed=1)
    assert sum(len(labels) for _, labels in tfrecorder.batches("out", "TRAIN", **read)) == 60
print(open_files() - before)
"""


@pytest.mark.parametrize("more", [(1,), pytest.param((), marks=pytest.mark.slow)])
def test_readers_keep_half_of_the_files_open_at_most(more: tuple[int, ...]) -> None:
    tfrecorder.convert(photo_frame(60, split="TRAIN"), "out", num_shards=60, progress=False)
    done = run("-c", OPENS_MANY, "64", *map(str, more))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5  # some stay open
