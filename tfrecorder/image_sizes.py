"""How large some of the images are, asked before the launch: shards are planned by it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tfrecorder import storage
from tfrecorder.errors import ImagesUnreachableError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.outage import unreachable
from tfrecorder.plan import SAMPLE_ROWS, sample_rows
from tfrecorder.rules import Checked
from tfrecorder.schema import URI_COLUMN

#: Faults of a store, which another day may not have; all others are of the one file.
_OF_STORES = ("read_failed", "no_credentials")


def sizes_of_some(
    checked: Checked, base: str, options: ConvertOptions, decisive: bool
) -> list[int]:
    """File sizes in bytes of the images of some rows, a seeded sample.

    Those that are missing or not permitted have none, today and tomorrow, and are left out.

    Args:
        checked: a table without errors.
        base: the folder that relative uris are taken from.
        decisive: the number of shards follows from these sizes.  If not, only the first are asked
            for: whether their store answers is worth knowing.

    Raises:
        ImagesUnreachableError: a store answers none of the first requests, often as they were
            tried, so that the others would be waited for in vain, for minutes; or it did not tell
            a decisive size, without which there might be another number of shards.
    """
    if URI_COLUMN not in checked.frame:
        return []
    rows = sample_rows(len(checked.frame), SAMPLE_ROWS, options.seed)
    paths = [storage.resolve(uri, base) for uri in checked.frame[URI_COLUMN].iloc[rows]]
    first, others = paths[: storage.REMOTE_THREADS], paths[storage.REMOTE_THREADS :]
    remote = not all(map(storage.is_local, paths))
    with ThreadPoolExecutor(storage.REMOTE_THREADS) as pool:
        found = list(pool.map(_size, first) if remote else map(_size, first))
        faults = _faults(first, found)
        if first and len(faults) == len(first):
            raise unreachable(faults, len(first), base)
        if not decisive:
            return []
        found += pool.map(_size, others) if remote else map(_size, others)
    faults = _faults(paths, found)
    if faults:
        examples = "".join(f"\n  {words}" for words in faults[:3])
        raise ImagesUnreachableError(
            f"the sizes of {len(faults):,} of {len(paths):,} images, from which the number of "
            f"shards follows, cannot be had:{examples}\n"
            "Nothing was written. Try again, or give num_shards."
        )
    return [size for size in found if isinstance(size, int)]


def _size(path: str) -> int | storage.UnreadableError | None:
    try:
        return storage.size(path)
    except storage.UnreadableError as error:
        return error


def _faults(paths: Sequence[str], found: Sequence[object]) -> list[str]:
    """The failures of stores, in words."""
    return [
        f"{path}: {one.detail}"
        for path, one in zip(paths, found, strict=True)
        if isinstance(one, storage.UnreadableError) and one.code in _OF_STORES
    ]
