"""The exchange: a finished dataset below `_tfrecorder/next/` replaces the old one.

    old commit away ──► its generations and files away ──► new files in place ──► new plan
    ──► new commit

The files themselves show how far it got, so any process can continue an interrupted exchange:

    next/ has a plan, no commit             an overwrite is under way; the old dataset is in place
    both commits, next/ has a plan          the new dataset is complete; the old is still in place
    a commit in next/ alone                 the exchange has begun: `complete` finishes it
    a commit in the directory, next/
    without a plan                          the new dataset is in place; the rest of next/ is junk

Two processes may do it at once (a worker presumed lost, and its successor); they move the same
files.
"""

from __future__ import annotations

import os

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.output.directory import (
    dataset_files,
    exchange_begun,
    refuse_foreign,
    refuse_foreign_generations,
    remove_files,
    remove_generations,
)
from tfrecorder.output.staging import read_plan


def exchange(output_dir: str) -> None:
    """Replace the dataset in the directory with the finished one below `next/`.

    Raises:
        OutputError: a foreign file is in the way; nothing was changed.
        OSError: a file cannot be moved or removed; the next call continues.
    """
    folder = layout.next_of(output_dir)
    new = read_plan(folder)
    if new is not None:  # else all but the commit is already in place
        if storage.exists(os.path.join(output_dir, layout.COMMIT)):
            refuse_foreign(output_dir)
            refuse_foreign_generations(output_dir)
            storage.remove(output_dir, layout.COMMIT)
        remove_generations(output_dir)  # which belong to the old dataset
        files = dataset_files(new)
        remove_files(output_dir, read_plan(output_dir), keep=files)
        last = (layout.PLAN, layout.COMMIT)
        moving = [name for name in storage.files_below(folder) if name in files.difference(last)]
        storage.each(lambda name: _into_place(output_dir, name), moving, output_dir)
        _into_place(output_dir, layout.PLAN)
    _into_place(output_dir, layout.COMMIT)
    storage.remove(output_dir, layout.NEXT)


def _into_place(output_dir: str, name: str) -> None:
    storage.move(output_dir, f"{layout.NEXT}/{name}", name)


def complete(output_dir: str) -> bool:
    """Finish an exchange that has begun; if there is none, change nothing and return False.

    Raises:
        OSError: as for `exchange`.
    """
    if not exchange_begun(output_dir):
        return False
    exchange(output_dir)
    return True


def is_in_place(folder: str) -> bool:
    """True if what was written to a folder is committed and is in its dataset's directory.

    Args:
        folder: a dataset directory, or the `next/` of one.
    """
    output_dir = layout.dataset_of(folder)
    committed = storage.exists(os.path.join(output_dir, layout.COMMIT))
    waits = folder != output_dir and storage.exists(os.path.join(folder, layout.PLAN))
    return committed and not waits
