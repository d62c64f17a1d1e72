"""How much memory this process may use, and what reading takes of it by default."""

from __future__ import annotations

import os

#: Where a container's limit is written, by cgroups of version 2 and 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")

SHARE = 0.25


def memory_limit() -> int:
    """Bytes that the process may use: the machine's memory, or its container's if that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMITS:
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):  # no such cgroup, or "max"
            continue
    return min(limits)


def default_budget() -> int:
    """The `ram_budget` of a load that names none: a quarter of what the process may use."""
    return int(memory_limit() * SHARE)
