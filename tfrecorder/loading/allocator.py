"""How the C library gives freed memory back: what large buffers cost beside their content."""

from __future__ import annotations

import ctypes
import functools
import os

from tfrecorder.threads import cores

#: glibc's numbers (malloc.h), and the values that reading wants.
#: A buffer up to the first is cut from memory at hand; up to the second stays at hand when it is
#: freed, in each of the allocator's arenas; an arena grows by the third.  There are no more arenas
#: than cores: of its own glibc makes eight a core, each epoch's new threads take others of them,
#: and what stays at hand in each would grow from epoch to epoch.
M_MMAP_THRESHOLD, MAPPED_BYTES = -3, 2**26
M_TRIM_THRESHOLD, KEPT_BYTES = -1, 2**28
M_TOP_PAD, GROWN_BYTES = -2, 2**24
M_ARENA_MAX = -8

#: What sets the same from outside: whoever uses it has decided.
_SET = (
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_ARENA_MAX",
)


@functools.cache
def keep_freed_memory() -> bool:
    """Let the C library keep the memory of freed buffers for the next ones, in this process.

    Of its own glibc returns large ones, and many small ones, to the system and asks for them anew:
    page by page, which takes longer than to check and copy a batch of raw pixels.  Does nothing
    where the environment decides (`MALLOC_TRIM_THRESHOLD_` and its like, `GLIBC_TUNABLES`), or
    another C library is in use.

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
