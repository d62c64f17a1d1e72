"""What this process may use of the machine: memory and cores."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import resource
from pathlib import Path


def is_address_space_limited() -> bool:
    """Whether `ulimit -v` limits the address space of this process."""
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def memory_used() -> int:
    """Bytes of this process that are in memory."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_limit(root: Path = Path("/")) -> int:
    """Bytes of the machine's memory, or of the least that a control group of this process allows.

    Args:
        root: of the file system.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):  # versions 2 and 1
            with contextlib.suppress(OSError, ValueError):  # "max"
                limits.append(int((folder / name).read_text()))
    return min(limit for limit in limits if limit > 0)


@functools.cache
def cpu_quota(root: Path = Path("/")) -> float:
    """Cores by the quota of this process's control group, or of one above it; inf without one.

    Args:
        root: of the file system.
    """
    return min(map(_quota_of, control_groups("cpu", root)), default=math.inf)


def _quota_of(folder: Path) -> float:
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (folder / "cpu.max").read_text().split()  # version 2
        return int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota = (folder / "cpu.cfs_quota_us").read_text()
        if int(quota) > 0:
            return int(quota) / int((folder / "cpu.cfs_period_us").read_text())
    return math.inf


def control_groups(controller: str, root: Path = Path("/")) -> list[Path]:
    """The folders of this process's control group and of those above it; none but on Linux.

    Args:
        controller: "cpu" or "memory", which version 1 keeps apart.
        root: of the file system.
    """
    folders: list[Path] = []
    try:
        text = os.fsdecode((root / "proc/self/cgroup").read_bytes())  # names may hold any byte
    except OSError:
        return folders
    for line in text.split("\n"):
        _, _, of_group = line.partition(":")
        names, _, path = of_group.partition(":")
        top = root / "sys/fs/cgroup"
        if names:
            if controller not in names.split(","):
                continue
            top /= controller
        inner = top
        if ".." not in path.split("/"):  # else it is outside of what this process sees
            inner /= path.lstrip("/")
        folders += [inner, *(above for above in inner.parents if above.is_relative_to(top)), top]
    return list(dict.fromkeys(folders))
