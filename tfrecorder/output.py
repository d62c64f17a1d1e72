"""The output directory before a conversion: who may write it, and what stands there already."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tfrecorder import layout, schema, storage
from tfrecorder.errors import OutputError
from tfrecorder.options import ConvertOptions
from tfrecorder.plan import Plan, describe_difference, read_plan


@contextlib.contextmanager
def claim(output_dir: str) -> Iterator[None]:
    """Hold the directory for one conversion; the claim dies with its process.

    Raises:
        OutputError: the directory cannot be made or written, is foreign, or is claimed already.
    """
    import filelock

    refuse_foreign(output_dir)
    lock = os.path.join(output_dir, layout.LOCK)
    try:
        os.makedirs(os.path.dirname(lock), exist_ok=True)
        with filelock.FileLock(lock, timeout=0):
            yield
    except filelock.Timeout as error:
        raise OutputError(
            f"{output_dir}: another conversion is writing this directory; wait for its end, or "
            "choose another output_dir."
        ) from error
    except OSError as error:
        raise OutputError(f"{output_dir} cannot be written: {error.strerror or error}.") from error


def refuse_foreign(output_dir: str) -> None:
    """Raise an OutputError where the directory holds anything that no conversion wrote."""
    if storage.exists(output_dir) and not os.path.isdir(output_dir):
        raise OutputError(f"{output_dir} is a file; give a directory, new or empty, as output_dir.")
    for name in storage.names(output_dir):
        if name not in layout.DESKTOP_FILES and not layout.is_ours(name, schema.LABEL_KEYS):
            raise OutputError(
                f"{output_dir} holds {name!r}, which is not of a dataset that tfrecorder wrote; "
                "choose a new or empty directory as output_dir."
            )
    has_files = any(layout.parse_shard(name) for name in storage.names(output_dir))
    if (has_files or _is_committed(output_dir)) and read_plan(output_dir) is None:
        raise OutputError(
            f"{output_dir} holds a dataset without a plan of tfrecorder, perhaps another tool's; "
            "choose a new or empty directory as output_dir."
        )


def open_plan(output_dir: str, wanted: Plan, options: ConvertOptions) -> Plan | None:
    """What to continue: the staged plan, or None where a new one is to be staged.

    Brings the directory into the state from which the conversion goes on: with overwrite=True all
    that an earlier one wrote is removed; with retry_rejects=True the commit is.

    Args:
        wanted: the plan of this call; its shard counts do not matter.

    Raises:
        OutputError: the directory is committed, or was planned with another source or options.
    """
    staged = read_plan(output_dir)
    if staged is None:
        return None
    if options.overwrite:
        clear(output_dir)
        return None
    differences = describe_difference(staged, wanted)
    committed = _is_committed(output_dir)
    if committed and not options.retry_rejects:
        raise OutputError(
            f"{output_dir} is a finished dataset; give overwrite=True to replace it"
            + ("." if differences else ", or retry_rejects=True to try its unread images again.")
        )
    if differences:
        raise OutputError(
            f"{output_dir} holds {'a' if committed else 'an unfinished'} conversion of another kind: "
            f"{'; '.join(differences)}. Give the same source and options to continue it, "
            "overwrite=True to start anew, or another output_dir."
        )
    if committed:
        storage.remove(os.path.join(output_dir, layout.COMMIT))
    return staged


def clear(output_dir: str) -> None:
    """Remove a dataset: the commit first, so that no reader takes the rest for a whole one."""
    storage.remove(os.path.join(output_dir, layout.COMMIT))
    for name in storage.names(output_dir):
        if layout.is_ours(name, schema.LABEL_KEYS) and name != layout.PRIVATE:
            storage.remove(os.path.join(output_dir, name))
    for name in storage.names(os.path.join(output_dir, layout.PRIVATE)):
        private = f"{layout.PRIVATE}/{name}"
        if private not in (layout.LOCK, layout.PLAN):
            storage.remove(os.path.join(output_dir, private))
    # Last, because it is what makes the directory known as ours should we be interrupted here.
    storage.remove(os.path.join(output_dir, layout.PLAN))


def _is_committed(output_dir: str) -> bool:
    return storage.exists(os.path.join(output_dir, layout.COMMIT))
