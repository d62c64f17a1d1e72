"""The generations of a dataset: which are committed, and their metadata.

Generation 0 is what `convert` wrote into the directory; each `append` adds one below `appended/`.
A generation counts once its `dataset_info.json` is there.  The newest one describes them all: its
columns, classes and sizes include those of every earlier generation.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.core.checks import Whole
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import parse_metadata
from tfrecorder.options.option import require
from tfrecorder.reading.dataset_files import STORED_FILES, StoredFiles


@dataclass(frozen=True)
class Generation:
    """One committed generation.

    Attributes:
        number: from 0.
        directory: where it is.
        sizes: of its files, by name.
        metadata: from the file that this package wrote.
    """

    number: int
    directory: str
    sizes: Mapping[str, int]
    metadata: Mapping[str, Any]


def generations(directory: str | os.PathLike[str], at: int | None = None) -> list[str]:
    """The directories that hold the records of a dataset, newest first.

    Use it to read all records with TFDS or plain tf.data. TFDS takes the features and class names
    from the first directory, and the newest generation's cover all the others:

        tfds.builder_from_directories(tfrecorder.generations("out"))
        tf.data.Dataset.list_files([f"{g}/train-*.tfrecord" for g in tfrecorder.generations("out")])

    Args:
        directory: what `convert` and `append` wrote.
        at: list generations only up to this one, counted from 0; None is the newest.

    Raises:
        DatasetError: the directory is not a dataset written by this package, a generation is
            missing, or there is no generation `at`.
        OptionError: `at` is not a whole number from 0.

    Example:
        >>> tfrecorder.generations("out")  # doctest: +SKIP
        ['out/appended/00002', 'out/appended/00001', 'out']
    """
    where = storage.given_path(directory)
    files = STORED_FILES
    with storage.failing_as(DatasetError, where):
        sizes = files.sizes(where)
        metadata = own_metadata(where, sizes, files)
        if metadata is None:
            raise DatasetError(f"{where} is not a finished dataset that tfrecorder wrote.")
        committed = read_generations(where, sizes, metadata, files, at)
    return [generation.directory for generation in reversed(committed)]


def read_generations(
    directory: str,
    sizes: Mapping[str, int],
    metadata: Mapping[str, Any],
    files: StoredFiles,
    at: int | None = None,
    known: Sequence[Generation] = (),
) -> list[Generation]:
    """The committed generations of a dataset, oldest first.  All readers get them from here.

    Args:
        directory: of the dataset.
        sizes: of its files, by name.
        metadata: of its generation 0.
        files: how to read them.
        at: as in `generations`.
        known: those that an earlier call found; only later ones are read.

    Raises:
        DatasetError, OptionError: as `generations`; or the dataset is not the one in `known`.
    """
    if known and known[0].metadata != metadata:
        raise DatasetError(
            f"{directory} was overwritten while it was being read. Open it again to read the new "
            "dataset."
        )
    earlier = [Generation(0, directory, sizes, metadata), *known[1:]]
    later = _committed(directory, files, at, earlier[-1].number)

    def read(number: int) -> Generation:
        where = layout.generation_of(directory, number)
        return Generation(number, where, later[number], read_metadata(where, files))

    every = [*earlier, *storage.each(read, later, directory)]
    for before, after in itertools.pairwise(every[earlier[-1].number :]):
        _check_follows(before, after)
    return every


def _committed(
    directory: str, files: StoredFiles, at: int | None, after: int = 0
) -> dict[int, Mapping[str, int]]:
    """The numbers of the committed generations after one of them, each with the sizes of its files.

    Raises:
        DatasetError, OptionError: as `generations`.
    """
    check_at(at)
    numbers = _numbers(directory, files)
    begun = [number for number in numbers if after < number and (at is None or number <= at)]

    def sizes_of(number: int) -> Mapping[str, int]:
        return files.sizes(layout.generation_of(directory, number))

    sizes = zip(begun, storage.each(sizes_of, begun, directory), strict=True)
    committed = {number: names for number, names in sizes if layout.COMMIT in names}
    earlier = [number for number in numbers if number <= after]
    _check_chain(directory, [0, *earlier, *committed], at)
    return committed


def _numbers(directory: str, files: StoredFiles) -> list[int]:
    """The numbers of the generations with a folder in `appended/`, ascending.

    Raises:
        DatasetError: something else is in the place of such a folder, such as a broken link.
    """
    appended = os.path.join(directory, layout.APPENDED)
    names = storage.names(appended) if storage.is_local(directory) else files.folders(appended)
    numbers = begun_numbers(names)
    if storage.is_local(directory):
        for folder in (appended, *(layout.generation_of(directory, number) for number in numbers)):
            if os.path.lexists(folder) and not os.path.isdir(folder):
                raise DatasetError(
                    f"{folder} holds records of the dataset, but is a file or a link that leads "
                    "nowhere. Put the folder back, or copy it from another copy of the dataset."
                )
    return numbers


def begun_numbers(names: Sequence[str]) -> list[int]:
    """The numbers of the generations with a folder in `appended/`, ascending."""
    numbers = map(layout.generation_number, names)
    return sorted(number for number in numbers if number is not None)


def committed_directories(directory: str, at: int | None = None) -> list[str]:
    """The directories of the committed generations, oldest first, even if they are damaged.

    Raises:
        DatasetError, OptionError: as `generations`.
    """
    return [
        layout.generation_of(directory, n) for n in (0, *_committed(directory, STORED_FILES, at))
    ]


def check_at(at: Any) -> None:
    """Raise an OptionError if `at` cannot be a generation's number."""
    if at is not None:
        require(Whole(0), at=at)


def _check_chain(directory: str, numbers: Sequence[int], at: int | None) -> None:
    """Refuse a dataset with a missing generation.

    Args:
        numbers: of the committed generations up to `at`, ascending, including 0.

    Raises:
        DatasetError: one before the last is missing, or there is no generation `at`.
    """
    last = numbers[-1]
    missing = sorted(set(range(last)).difference(numbers))
    if missing:
        lost = layout.generation_of(directory, missing[0])
        earlier = missing[0] - 1
        raise DatasetError(
            f"{lost} is missing or not committed, but generation {last} is there. Copy it again; "
            f"until then, `at={earlier}` reads the generations before it."
        )
    if at is not None and last < at:
        has = "only generation 0" if last == 0 else f"generations 0 to {last}"
        raise DatasetError(f"`at={at}`: {directory} has {has}.")


def _check_follows(earlier: Generation, later: Generation) -> None:
    before = later.metadata.get("before")
    if before is None or before["plan"] != earlier.metadata["plan"]:
        raise DatasetError(
            f"{later.directory} was not appended to what {earlier.directory} holds: one of the two "
            "was copied from another dataset. Copy both again."
        )


def own_metadata(
    directory: str, sizes: Mapping[str, int], files: StoredFiles
) -> dict[str, Any] | None:
    """The metadata of generation 0; None if the dataset is not committed, or of another tool.

    Args:
        sizes: of the files in the directory, by name.

    Raises:
        DatasetError: as `read_metadata`.
    """
    if layout.COMMIT not in sizes:
        return None
    try:
        return read_metadata(directory, files)
    except DatasetError:
        if is_own(directory, sizes, files):
            raise
        return None


def is_own(directory: str, names: Iterable[str], files: StoredFiles) -> bool:
    """True if what is left in a directory shows that this package wrote it.

    Args:
        names: of the files in it.
    """
    names = set(names)
    return (
        (layout.FEATURES in names and any(map(layout.parse_shard, names)))
        or layout.PRIVATE in files.folders(directory)
        or bool(begun_numbers(files.folders(os.path.join(directory, layout.APPENDED))))
    )


def read_metadata(directory: str, files: StoredFiles) -> dict[str, Any]:
    """The metadata of a committed generation.

    Raises:
        DatasetError: it is missing, cannot be read, or is damaged.
    """
    path = os.path.join(directory, layout.METADATA)
    try:
        return parse_metadata(files.read(path), path)
    except storage.UnreadableError as error:
        raise _no_metadata(directory, error) from error
    except ValueError as error:
        raise _no_metadata(directory, f"is damaged: {error}") from error


def _no_metadata(directory: str, fault: storage.UnreadableError | str) -> DatasetError:
    access = ""
    if isinstance(fault, storage.UnreadableError):
        is_missing = fault.code == "not_found"
        access = "" if is_missing else " If you may not read it, ask for access; otherwise"
        fault = "is missing" if is_missing else f"cannot be read: {fault}"
    return DatasetError(
        f"{os.path.join(directory, layout.METADATA)} {fault}. It says which records the dataset "
        f"has.{access} `{command('repair', layout.grown_of(directory))}` writes it again."
    )


def before_next(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan says about the generations before it, whose newest has this metadata."""
    before = metadata.get("before", {"rows": 0})
    return {
        "plan": metadata["plan"],
        "rows": before["rows"] + metadata["source_rows"],
        "image_shapes": metadata["image_shapes"],
        "image_sides": metadata["image_sides"],
    }
