"""How the C library returns freed memory: the cost of large buffers apart from their content."""

from __future__ import annotations

import ctypes
import functools
import os

from tfrecorder.core.threads import cores

#: glibc's parameter numbers (malloc.h), and the values that suit reading.
#: A buffer up to the first size comes from memory the process already holds.  Each of the
#: allocator's arenas keeps up to the second size when buffers are freed, and grows by the third.
#: There are no more arenas than cores: by default glibc makes eight per core, the new threads of
#: each epoch take different ones, and the memory kept in them would grow from epoch to epoch.
M_MMAP_THRESHOLD, MAPPED_BYTES = -3, 2**26
M_TRIM_THRESHOLD, KEPT_BYTES = -1, 2**28
M_TOP_PAD, GROWN_BYTES = -2, 2**24
M_ARENA_MAX = -8

#: Variables that set the same from outside: if one is set, the user has decided.
_SET = (
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_ARENA_MAX",
)


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library keep the memory of freed buffers for the next ones, in this process.

    By default glibc returns large buffers, and many small ones, to the system and then requests
    them again page by page.  That takes longer than checking and copying a batch of raw pixels.
    Does nothing if the environment decides (`MALLOC_TRIM_THRESHOLD_` and the like,
    `GLIBC_TUNABLES`), or with another C library.

    Returns:
        Whether it was set.

    Source: https://man7.org/linux/man-pages/man3/mallopt.3.html
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if any(name in os.environ for name in _SET) or "glibc.malloc" in tunables:
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = (
        (M_MMAP_THRESHOLD, MAPPED_BYTES),
        (M_TRIM_THRESHOLD, KEPT_BYTES),
        (M_TOP_PAD, GROWN_BYTES),
        (M_ARENA_MAX, cores()),
    )
    return min(library.mallopt(name, value) for name, value in settings) == 1
