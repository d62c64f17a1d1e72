"""Limits of the process and of its container: fewer threads where that is enough, else one line."""

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

import pytest
from expensive_cases import strips
from support import CSV, SAMPLES, public_files
from torture import limits

import tfrecorder
from tfrecorder.core.limits import cpu_quota, memory_limit
from tfrecorder.core.threads import ThreadPool, cores, result_of, run_in_order
from tfrecorder.options import read

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
@pytest.mark.parametrize("megabytes", [1200, 1465])
def test_under_a_limit_of_address_space_fewer_threads_do_the_same(megabytes: int) -> None:
    """Sixteen threads that look at some images would take 2 GB of it, before anything begins.

    Under the larger limit, Arrow's pool used to reserve a gigabyte.
    """
    finished = convert_within(megabytes * MEGABYTE, resource.RLIMIT_AS, CSV)
    assert (finished.returncode, finished.stderr) == (0, "")
    tfrecorder.convert(CSV, "free")
    assert public_files("out") == public_files("free")


@pytest.mark.slow
def test_too_little_address_space_is_one_line() -> None:
    finished = convert_within(550 * MEGABYTE, resource.RLIMIT_AS, CSV)
    assert "raise its limit (`ulimit -v`" in one_line(finished)


@pytest.mark.slow
def test_any_limit_of_address_space_is_enough_or_named_in_one_line(tmp_path: Path) -> None:
    """Protobuf raised a TypeError under one, and Arrow aborted the process under another."""
    (count,) = limits.squeeze(tmp_path / "limits", (320, 400, 600))
    assert count.times > 20


@pytest.mark.slow
def test_an_image_that_a_limit_leaves_no_memory_for_is_no_reject() -> None:
    pixels = [bytes(9000 * 1000)] * 9  # of 81 MB, and more to make a PNG of them
    Path("large.tif").write_bytes(strips(9000, 9000, 1000, pixels))
    Path("large.csv").write_text("image_uri\nlarge.tif\n")
    words = one_line(convert_within(900 * MEGABYTE, resource.RLIMIT_AS, "large.csv"))
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
    finished = convert_with_threads(10)
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
    end = time.monotonic() + 10
    while threading.active_count() > before:
        assert time.monotonic() < end
        time.sleep(0.01)


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
        monkeypatch.setattr(read, "memory_limit", partial(memory_limit, root))
        assert read.EpochOptions().budget == 100_000_000
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_limit(tmp_path / "nowhere") == machine


def test_cores_are_no_more_than_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfrecorder.core.threads.cpu_quota", lambda: 0.5)
    assert cores() == 1
    monkeypatch.setattr("tfrecorder.core.threads.cpu_quota", lambda: math.inf)
    assert cores() == len(os.sched_getaffinity(0))
