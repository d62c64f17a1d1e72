"""The recording layer itself: what it keeps of a script's writes through a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.power_cut import Recording, contents, recorded, strace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(strace() is None, reason="strace is not installed"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    folder = tmp_path / "disk"
    folder.mkdir()
    folder.joinpath("old").write_bytes(b"old")
    return folder


def states(recording: Recording, disk: Path, *more: object, **given: object) -> list[dict]:
    where = disk.parent / "after"
    return [contents(path) for _, path in recording.states(where, *more, **given)]  # type: ignore[arg-type]


def test_a_file_is_no_use_without_its_name_nor_a_name_without_its_file(disk: Path) -> None:
    script = """
import os, sys
os.chdir(sys.argv[1])
with open("a", "wb") as file:
    file.write(b"data")
    file.flush()
    os.fsync(file.fileno())
open("b", "w").write("data")
"""
    syncs = "os.fsync(os.open('.', os.O_RDONLY))\n"
    for more, kept in (("", {}), (syncs, {"a": b"data", "b": b""})):
        recording = recorded(script + more, disk, str(disk))
        assert states(recording, disk, [len(recording.calls)])[0] == {"old": b"old"} | kept
        for name in ("a", "b"):
            disk.joinpath(name).unlink()


EVERYTHING = """
import multiprocessing, os, subprocess, sys, threading
os.chdir(sys.argv[1])
os.makedirs("sub dir/grün")
opened = os.open("sub dir", os.O_RDONLY)
one = os.open("one", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=opened)
os.posix_fallocate(one, 0, 100)
os.writev(one, [b"\\0\\xff", "x, \\"y\\" grün>".encode()])
os.pwrite(one, b"AB", 1)
os.lseek(one, 3, os.SEEK_SET)
os.read(one, 2)
os.write(os.dup(one), b"--")
os.ftruncate(one, 9)
os.link("one", "grün/1", src_dir_fd=opened, dst_dir_fd=opened)
os.symlink("one", "sub dir/link")
os.rename("sub dir/grün", "moved")
os.replace("old", "moved/old")
def write(name, text, how="w"):
    with open(name, how) as file:
        file.write(text)
write("log", "1")
threads = [threading.Thread(target=write, args=(f"t{n}", f"{n}" * 100_000)) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
write("log", "2", "a")
processes = [multiprocessing.get_context(how).Process(target=write, args=(how, how))
    for how in ("fork",)]
for process in processes:
    process.start(); process.join()
subprocess.run([sys.executable, "-c", "open('t1', 'w').write('by a child')"], check=True)
os.unlink("t0")
os.mkdir("gone"); os.rmdir("gone")
os.truncate("t2", 5)
"""


def test_all_that_a_script_does_is_replayed(disk: Path) -> None:
    recording = recorded(EVERYTHING, disk, str(disk))
    for _, path in recording.states(disk.parent / "after", [len(recording.calls)], ["all"]):
        assert contents(path) == contents(disk)
        assert path.joinpath("sub dir/link").readlink() == Path("one")
        assert path.joinpath("moved/1").samefile(path / "sub dir/one")
        assert sorted(os.listdir(path)) == sorted(os.listdir(disk))
    assert contents(disk)["log"] == b"12"


def test_a_rename_is_never_half_done(disk: Path) -> None:
    script = """
import os, sys
os.chdir(sys.argv[1])
os.mkdir("a"), os.mkdir("b")
os.fsync(os.open(".", os.O_RDONLY))
for name in "ab" * 3:
    os.rename("old", f"{name}/old"); os.rename(f"{name}/old", "old")
"""
    recording = recorded(script, disk, str(disk))
    cuts = range(len(recording.calls) + 1)
    for state in states(recording, disk, cuts, range(30)):
        assert list(state.values()) == [b"old"]


def test_what_cannot_be_replayed_fails(disk: Path) -> None:
    script = """
import mmap, sys
with open(sys.argv[1] + "/old", "r+b") as file:
    mmap.mmap(file.fileno(), 0)[:1] = b"O"
"""
    with pytest.raises(AssertionError, match="mmap"):
        recorded(script, disk, str(disk))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        recorded("1 / 0", disk)
