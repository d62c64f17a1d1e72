"""Control groups as no machine should have them: the default `ram_budget` is of the least limit.

That of the process's own group or of one above it, whatever their names, versions and files are;
groups at its side, other controllers and what lies outside the mount count for nothing.

The inner law: which limits of memory and of processors hold for this process.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest import mock

from support import photo_frame

import tfrecorder
from tfrecorder.core.threads import control_groups, cpu_quota, memory_limit
from tfrecorder.loading.options import LoadOptions
from tfrecorder.options import ranks
from torture.counts import Count, demand
from torture.disks import CannotMountError

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

#: What a file of a limit may hold, and the limit that it states.
LIMITS: dict[bytes, int | None] = {
    **{b"400000000\n": 400_000_000, b"300000000": 300_000_000, b" 500000000 \n": 500_000_000},
    **{b"%d\n" % (MACHINE - 4096): MACHINE - 4096, b"4096\n": 4096},
    **{b"max\n": None, b"9223372036854771712\n": None, b"18446744073709551615\n": None},
    **{b"": None, b"\n": None, b"\xff\xfe": None, b"-1\n": None, b"0\n": None, b"4e8\n": None},
    **{b"9" * 5000: None, b"1.5": None, b"1 2\n": None, b"\0": None, b"0x10\n": None},
}
#: In the place of such a file.
SPECIAL = ("folder", "nowhere", "circle", "missing", "unreadable")

#: Names that a group may have; a mount may also show one that lies outside of it.
NAMES = (
    *(b"a", b"a b", b"x:y", b"..x", b"...", b"user.slice", b"caf\xe9", b"\xff", b"n" * 255),
    *(
        "a\x85b".encode(),
        "a\u2028b".encode(),
        b"a\x0bb",
        b"a\x1cb",
        "日本".encode(),
        b"x (deleted)",
    ),
)


def make_tree(root: Path, dice: random.Random) -> int:
    """Make the files that a process sees of its groups; gives the memory that it may use."""
    version = dice.choice([1, 2])
    names = [dice.choice(NAMES) for _ in range(dice.choice([0, 1, 1, 2, 3, 40]))]
    while sum(map(len, names)) > 3000:
        names.pop()
    outside = dice.random() < 0.2
    top = os.fsencode(root / "sys/fs/cgroup") + (b"/memory" if version == 1 else b"")
    os.makedirs(top)
    path = b"/".join([b"", *([b"..", b".."] if outside else []), *names]) or b"/"
    lines = [b"1:name=systemd:/other", b"3:cpu,cpuacct:/other", b"", b"no line"]
    if version == 1:
        lines.append(b"4:" + dice.choice([b"memory", b"pids,memory"]) + b":" + path)
        lines.append(b"0::/other")
    else:
        lines.append(b"0::" + path)
    dice.shuffle(lines)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_bytes(b"\n".join(lines) + b"\n")
    shown = 0 if outside else dice.choice([len(names), len(names), 0, len(names) // 2])
    file = b"memory.max" if version == 2 else b"memory.limit_in_bytes"
    limits = [MACHINE]
    for depth in range(shown + 1):
        folder = b"/".join([top, *names[:depth]])
        os.makedirs(folder, exist_ok=True)
        limits.append(_put(folder + b"/" + file, dice) or MACHINE)
        _bait(folder + b"/side", file)
    for folder in (os.fsencode(root), os.fsencode(root / "sys"), os.fsencode(root / "sys/fs")):
        _bait(b"/".join([folder, *names]) if outside else folder, file)
    if version == 1:
        _bait(os.fsencode(root / "sys/fs/cgroup/cpu"), file)
    return min(limits)


def _put(path: bytes, dice: random.Random) -> int | None:
    """A limit, or something else in its place; gives what counts of it."""
    if dice.random() < 0.7:
        text = dice.choice([*LIMITS])
        with open(path, "wb") as file:
            file.write(text)
        return LIMITS[text]
    kind = dice.choice(SPECIAL)
    if kind == "folder":
        os.mkdir(path)
    elif kind in ("nowhere", "circle"):
        os.symlink(b"nowhere" if kind == "nowhere" else os.path.basename(path), path)
    elif kind == "unreadable" and os.getuid():
        os.close(os.open(path, os.O_CREAT, 0o000))
    return None


def _bait(folder: bytes, file: bytes) -> None:
    """A tiny limit where none counts; a group of the process's own keeps what it has."""
    os.makedirs(folder, exist_ok=True)
    if not os.path.lexists(folder + b"/" + file):
        with open(folder + b"/" + file, "w") as bait:
            bait.write("1234")


def entangle(folder: Path, times: int, seed: int = 0) -> list[Count]:
    """Make so many trees, and ask for the default budget in each; some also in the place of ours.

    Raises:
        BrokenError: it is not a quarter of the least limit that counts, or an error is raised.
    """
    for number in range(times):
        root = folder / f"{number}"
        root.mkdir(parents=True)
        words = f"tree {number} of seed {seed} in {root}"
        least = make_tree(root, random.Random(f"{seed}/{number}"))
        with mock.patch.object(ranks, "memory_limit", partial(memory_limit, root)):
            budget = LoadOptions().budget
        demand(budget == least // 4, f"{words}: {budget:,} of {least:,} bytes")
        demand(cpu_quota(root) > 0, words)
        demand(len({*control_groups("cpu", root)}) < 60, words)
        shutil.rmtree(root)
    return [Count("trees of control groups", times, times, 0)]


#: In mounts that nobody else sees, this process's own groups become those of a tree.
_OURS = """
mount --bind "$1/sys/fs/cgroup" /sys/fs/cgroup || exit 77
mount --bind "$1/proc/self/cgroup" /proc/$$/cgroup || exit 77
exec "$2" -c '
import sys, tfrecorder
from tfrecorder.loading.options import LoadOptions
batch = next(iter(tfrecorder.load(sys.argv[1], "TRAIN", batch_size=4, image_size=16)))
print(len(batch[1]), LoadOptions().budget)
' "$3"
"""


def live_in(folder: Path, times: int, seed: int = 0) -> list[Count]:
    """Load in a process whose own groups are those of such a tree.

    Raises:
        BrokenError: it failed, or its budget is another one.
        CannotMountError: this user may not mount.
    """
    out = folder / "out"
    tfrecorder.convert(photo_frame(8), out, progress=False)
    for number in range(times):
        root = folder / f"{number}"
        root.mkdir()
        least = make_tree(root, random.Random(f"{seed}/{number}"))
        ended = subprocess.run(
            ["unshare", "-m", "sh", "-c", _OURS, "sh", str(root), sys.executable, str(out)],
            capture_output=True,
            text=True,
            timeout=240,
        )
        if ended.returncode == 77 or "unshare" in ended.stderr:
            raise CannotMountError(ended.stderr)
        words = f"tree {number} of seed {seed} in {root}: {ended.stderr[-2000:]}"
        demand(ended.returncode == 0, words)
        demand(ended.stdout.split() == ["4", f"{least // 4}"], f"{words}{ended.stdout}{least}")
        shutil.rmtree(root)
    return [Count("lives in such control groups", times, 4 * times, 0)]
