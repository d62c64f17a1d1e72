"""The look before a launch: a disk that is not mounted must not make an empty dataset."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tfrecorder import storage
from tfrecorder.errors import ImagesUnreachableError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.plan import sample_rows
from tfrecorder.rules import Checked

#: Rows whose images are opened, and the share of them that may be missing.
OPENED_ROWS = 100
MISSING_SHARE = 0.5


def open_some(checked: Checked, base: str, options: ConvertOptions) -> None:
    """Open the images and masks of some rows, a seeded sample.

    Raises:
        ImagesUnreachableError: of a column more than may be rejected cannot be read.
    """
    columns = checked.file_columns
    rows = sample_rows(len(checked.frame), OPENED_ROWS, options.seed)
    paths = [[storage.resolve(uri, base) for uri in column.iloc[rows]] for column in columns]
    with ThreadPoolExecutor(storage.REMOTE_THREADS) as pool:
        # All at once: a store elsewhere is waited for as long as for one column.
        found = [pool.map(_fault, of_column) for of_column in paths]
        faults = [[words for words in of_column if words] for of_column in found]
    allowed = max(MISSING_SHARE, options.max_reject_fraction)
    for column, opened, failed in zip(columns, paths, faults, strict=True):
        if failed and (len(failed) == len(opened) or len(failed) > allowed * len(opened)):
            name = str(column.name) if len(columns) > 1 else None
            raise unreachable(failed, len(opened), base, name)


def _fault(path: str) -> str | None:
    try:
        storage.read_bytes(path)
    except storage.UnreadableError as error:
        return f"{path}: {error.detail}"
    return None


def unreachable(
    faults: list[str], opened: int, base: str, column: str | None = None
) -> ImagesUnreachableError:
    """The error that shows some of the images that cannot be read.

    Args:
        faults: words for each of them.
        opened: how many were tried.
        base: the folder that relative paths are taken from.
        column: of the images, where there are several.
    """
    examples = "".join(f"\n  {words}" for words in faults[:3])
    where = "" if column is None else f"column {column!r}: "
    return ImagesUnreachableError(
        f"{where}{len(faults)} of {opened} images opened before the launch cannot be read:"
        f"{examples}\nNothing was written. Is a disk not mounted? Relative paths are taken from "
        f"{base!r}."
    )
