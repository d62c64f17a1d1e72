"""Files by their paths or uris: all that this package reads and writes goes through here.

What the rest of the package uses of this folder, as `storage.read_bytes` and so on.
"""

from tfrecorder.storage.files import (
    REMOTE_THREADS,
    crc32c_or_none,
    each,
    exists,
    failing_as,
    files_below,
    is_folder,
    local_copy,
    names,
    open_seekable,
    overwrite,
    publish,
    publish_bytes,
    publish_new,
    read_bytes,
    remove,
    remove_all,
    size,
    size_or_none,
    sizes,
    write_all,
)
from tfrecorder.storage.store import UnreadableError, UnwritableError
from tfrecorder.storage.uris import absolute, is_local, parent, refusal, resolve, scheme

__all__ = [
    "REMOTE_THREADS",
    "UnreadableError",
    "UnwritableError",
    "absolute",
    "crc32c_or_none",
    "each",
    "exists",
    "failing_as",
    "files_below",
    "is_folder",
    "is_local",
    "local_copy",
    "names",
    "open_seekable",
    "overwrite",
    "parent",
    "publish",
    "publish_bytes",
    "publish_new",
    "read_bytes",
    "refusal",
    "remove",
    "remove_all",
    "resolve",
    "scheme",
    "size",
    "size_or_none",
    "sizes",
    "write_all",
]
