"""The files of `cache=`: the name under which a split's elements are kept, and who fills them.

TensorFlow reads any cache that it finds under a name.  So the name depends on the files that are
read and on all options, but for those that change no element.  Whoever fills a cache holds a lock,
which dies with the process: what it left is begun anew, and a second process fills a cache of its
own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import itertools
import os
import weakref

import tensorflow as tf

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.loading.options import LoadOptions
from tfrecorder.loading.python_side import PythonSide
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.storage import folders
from tfrecorder.version import __version__

#: Options that change no element of a cache: they say where it is, or what follows it.
_AFTER_CACHE = frozenset(
    (
        "cache",
        "batch_size",
        "drop_remainder",
        "shuffle",
        "seed",
        "start",
        "map_fn",
        "ram_budget",
    )
)

#: What TensorFlow adds to the name of a whole cache, and of one that is being filled.
_WHOLE = ".index"
_UNREADY = "_0.lockfile"

#: What follows the name in that of the lock of who fills it, on a disk.
_LOCK = ".filling"


def cache_path(
    stored: StoredDataset,
    split: str,
    options: LoadOptions,
    side: PythonSide,
) -> str:
    """The path of a split's cache files: of whole ones, or a free one; "" means memory.

    Args:
        side: of the dataset, in Python; it holds the lock.

    Raises:
        OptionError: the folder cannot be written.
    """
    if options.cache is True:
        return ""
    folder = str(options.cache)
    name = f"{split.lower()}-{_digest(stored, split, options)}"
    path = os.path.join(folder, name)
    try:
        tf.io.gfile.makedirs(folder)
        there = [os.path.join(folder, file) for file in sorted(tf.io.gfile.listdir(folder))]
        indexes = (file for file in there if file.startswith(path) and file.endswith(_WHOLE))
        whole = filter(_is_whole, (index.removesuffix(_WHOLE) for index in indexes))
        every = (path if n == 1 else f"{path}-{n}" for n in itertools.count(1))
        return next(whole, None) or next(free for free in every if _is_taken(free, side))
    except (OSError, tf.errors.OpError) as error:
        fault = getattr(error, "message", None) or str(error)
        raise OptionError.of(
            "cache",
            folder,
            f"{fault}; give a folder that can be written.",
        ) from error


def _digest(stored: StoredDataset, split: str, options: LoadOptions) -> str:
    """A short text that differs wherever an element of the cache may."""
    decides = []
    for field in dataclasses.fields(options):
        if field.name not in _AFTER_CACHE:
            decides.append((field.name, getattr(options, field.name)))
    shards = stored.splits[split]
    files: list[object] = [stored.contents.get(split)]
    if split in stored.contents:  # a copy of the dataset has other times
        files += [shard[:4] for shard in shards]
    else:
        files += [(shard, _changed(shard.path)) for shard in shards]
    versions = (__version__, tf.__version__)
    where = storage.absolute(stored.directory)
    told = (versions, where, files, stored.fields, stored.record, decides)
    return hashlib.blake2b(repr(told).encode(), digest_size=6).hexdigest()


def _changed(path: str) -> int:
    """When a local file was last written, by a clock that no copying sets back, in nanoseconds."""
    return os.stat(path).st_ctime_ns if storage.is_local(path) else 0


def _is_whole(path: str) -> bool:
    return tf.io.gfile.exists(path + _WHOLE) and not tf.io.gfile.exists(path + _UNREADY)


def _is_taken(path: str, side: PythonSide) -> bool:
    """Take a name, on a disk without what was left there; False if somebody else fills it."""
    if not storage.is_local(path):
        return not tf.io.gfile.exists(path + _UNREADY)
    folder, name = os.path.split(path)
    held = contextlib.ExitStack()
    if not held.enter_context(folders.locked(folder, f"{name}{_LOCK}")):
        held.close()
        return False
    for left in glob.glob(f"{glob.escape(path)}[_.]*"):
        if not left.endswith(_LOCK):
            os.remove(left)
    weakref.finalize(side, held.close)
    return True
