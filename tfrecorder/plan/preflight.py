"""Checks before the launch: of the images, and of what the place of the dataset lets us do.

A disk that is not mounted must not produce an empty dataset, and a bucket that lets nobody delete
must say so before the work, not after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.option import spelled
from tfrecorder.display.messages import warn
from tfrecorder.display.tables import counted
from tfrecorder.errors import ImagesUnreachableError, OutputError, UnreachableError
from tfrecorder.format import layout
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.plan.make_plan import SAMPLE_ROWS, sample_rows
from tfrecorder.schema.fields import primary_file
from tfrecorder.schema.keys import URI_COLUMN
from tfrecorder.sources.files import IMAGE_ENDINGS
from tfrecorder.sources.named_files import in_threads
from tfrecorder.validation.rules import Checked

#: How many rows have their images opened, and the share of these that may be missing.
OPENED_ROWS = 100
MISSING_SHARE = 0.5


def open_some(
    checked: Checked,
    base: str,
    options: ConvertOptions,
) -> None:
    """Open the images and masks of some rows, a seeded sample.

    Raises:
        ImagesUnreachableError: none of the images of a column can be read, or too many cannot: more
            than half, and more than may be rejected.  Or their store does not answer.
    """
    columns = checked.files
    rows = sample_rows(len(checked.frame), OPENED_ROWS, options.seed)
    uris = [list(in_files(column.iloc[rows], checked)) for column in columns]
    with before_the_launch():
        # Check all at once, so that waiting for a remote store takes as long as for one column.
        every = [storage.resolve(uri, base) for of_column in uris for uri in of_column]
        faults = iter([*in_threads(_fault, every)])
    allowed = max(MISSING_SHARE, options.max_reject_fraction)
    beside = storage.Beside(base, IMAGE_ENDINGS)
    for column, opened in zip(columns, uris, strict=True):
        # Not strict: the faults of the next column follow.
        pairs = zip(opened, faults, strict=False)
        failed = [_failed(uri, *fault, beside) for uri, fault in pairs if fault]
        are_all = len(failed) == len(opened)
        are_too_many = len(failed) > allowed * len(opened)
        where = f"column {str(column.name)!r}: " if len(columns) > 1 else ""
        images = counted(len(opened), "image")
        words = f"{where}{len(failed)} of {images} opened before the launch cannot be read:"
        if failed and (are_all or are_too_many):
            raise ImagesUnreachableError(
                f"{words}{_examples([one.words for one in failed])}\n"
                f"Nothing was written.{_remedy(failed, base)}"
            )
        explained = [one for one in failed if one.near or one.code == "pointer"]
        if explained:
            told = _examples([one.words for one in explained])
            warn(f"{words}{told}\n{_remedy(explained, base).strip()}".rstrip())


def ask_rights(output_dir: str) -> None:
    """Write, replace and remove a small file, as an operation will; on a disk nothing is asked.

    Raises:
        OutputError: the store does not let us.
        UnreachableError: it does not answer.
    """
    if storage.is_local(output_dir):
        return
    try:
        with contextlib.suppress(storage.OtherStandsError):  # of a probe at the same time
            version = storage.publish_over(output_dir, layout.PROBE, b"1", "")
            storage.publish_over(output_dir, layout.PROBE, b"2", version)
        storage.remove_files(output_dir, [layout.PROBE])
    except OSError as error:
        raise OutputError(
            f"{output_dir} cannot be written: {error}. Nothing else was written."
        ) from error


class _Failed(NamedTuple):
    """A file that cannot be read.

    Attributes:
        code: as in `storage.UnreadableError`, or "pointer" for one of Git LFS.
        words: with its path.
        near: what lies there instead.
    """

    uri: str
    code: str
    words: str
    near: storage.Near | None


def _failed(
    uri: str,
    code: str,
    words: str,
    beside: storage.Beside,
) -> _Failed:
    path = storage.resolve(uri, beside.base)
    near = beside.near(path) if code == "not_found" else None
    return _Failed(uri, code, words + beside.hint(path, code), near)


_DISK = "Is a disk not mounted?"


def _remedy(failed: Sequence[_Failed], base: str) -> str:
    """What to look at if files cannot be read, in words that fit their uris."""
    sentences = dict[str, str]()
    for one in failed:
        uri = one.uri
        near = one.near
        path = storage.resolve(uri, base)
        if uri != uri.strip():
            sentences.setdefault("blanks", f"Remove the blanks around paths, such as {uri!r}.")
        elif uri.startswith("~"):
            sentences["~"] = "Write whole paths: in a table, ~ is not the home folder."
        elif near is not None and near.differs == "place" and near.path.endswith(f"/{uri}"):
            folder = near.path.removesuffix(f"/{uri}")
            sentences["base"] = f"Give {spelled('base', folder)}."
            sentences["disk"] = ""  # the files are here, though elsewhere
        elif near is not None and near.differs != "link":
            spelling = ascii if near.differs == "form" else repr
            names = f"{spelling(near.shown)} for {spelling(uri)}"
            words = f"Write paths as the files have them: {names}."
            sentences.setdefault("near", words)
            if near.differs == "place":  # it may be another file
                sentences["disk"] = _DISK
        elif near is not None and "/annex/" in near.path:
            sentences["link"] = "`git annex get` brings the files that such links lead to."
        elif one.code == "not_found":
            if storage.is_local(path):
                sentences.setdefault("disk", _DISK)
            if near is None and path != storage.resolve(uri, ""):
                words = f"Relative paths are taken from {base!r}; {spelled('base')} names another"
                sentences.setdefault("base", f"{words} folder.")
    return "".join(f" {sentence}" for sentence in sentences.values() if sentence)


def in_files(column: pd.Series[str], checked: Checked) -> pd.Series[str]:
    """The uris of a column, without those for images that came as bytes."""
    contents = checked.contents.get(str(column.name))
    return column if contents is None else column[~contents.holds(column.index.to_numpy())]


@contextlib.contextmanager
def before_the_launch() -> Iterator[None]:
    """A block that adds, if a store does not answer, that nothing was written."""
    try:
        yield
    except UnreachableError as error:
        raise ImagesUnreachableError(f"{error} Nothing was written.") from error


def _fault(path: str) -> tuple[str, str] | None:
    """The code and the words of what keeps a file from being read; None if nothing does."""
    try:
        data, _ = storage.read_source(path, storage.FoldersRead())
    except storage.UnreadableError as error:
        return error.code, f"{path}: {error.detail}"
    if data.startswith(storage.LFS_POINTER):
        return "pointer", f"{path} is {storage.LFS_WORDS}"
    return None


def _examples(faults: Sequence[str]) -> str:
    return "".join(f"\n  {fault}" for fault in faults[:3])


#: Faults of a store, which may be gone another day; all others are faults of the one file.
_OF_STORES = frozenset(("read_failed", *storage.OF_THE_READER))


def sizes_of_some(
    checked: Checked,
    base: str,
    options: ConvertOptions,
) -> list[int]:
    """File sizes in bytes of the images of some rows, a seeded sample.

    Images that are missing or not permitted have no size, today or tomorrow, and are left out.

    Args:
        checked: a table without errors.
        base: the folder that relative uris start from.

    Raises:
        ImagesUnreachableError: a store does not answer, or does not give all sizes: otherwise the
            number of shards might come out different.
    """
    if URI_COLUMN not in checked.frame:
        return []
    rows = sample_rows(len(checked.frame), SAMPLE_ROWS, options.seed)
    image = primary_file(checked.fields)
    assert image is not None
    column = next(uris for uris in checked.files if uris.name == image.column)
    column = column.iloc[rows]
    paths = [storage.resolve(uri, base) for uri in in_files(column, checked)]
    with before_the_launch():
        sizes = [*in_threads(_size, paths)]
    if faults := [fault for fault in sizes if isinstance(fault, str)]:
        share = f"{len(faults):,} of {counted(len(paths), 'image')}"
        raise ImagesUnreachableError(
            f"the sizes of {share}, on which the number of shards depends, cannot be read:"
            f"{_examples(faults)}\n"
            f"Nothing was written. Try again, or give {spelled('num_shards')}."
        )
    known = [size for size in sizes if isinstance(size, int)]
    contents = checked.contents.get(image.column)
    if contents is not None:  # some images came as bytes
        of_bytes = contents.sizes[column.index.to_numpy()]
        known += map(int, of_bytes[of_bytes >= 0])
    return known


def _size(path: str) -> int | str | None:
    """The size of a file; the fault of its store, in words; None for a fault of the file.

    Also None on the web, where each may have another host, if it is not told at once.
    """
    if storage.is_web(path):
        with storage.impatient():
            return storage.size_or_none(path)
    try:
        return storage.size(path)
    except storage.UnreadableError as error:
        return f"{path}: {error.detail}" if error.code in _OF_STORES else None
