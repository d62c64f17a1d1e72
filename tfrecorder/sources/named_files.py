"""The files that rows name: a name for each that came as bytes, and size and CRC32C of the others.

An image that came as bytes is named by the hash of its content; a uri loses its signature.  Of all
other files their stores tell the size; of some the bytes are read.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.schema.kinds import FILES
from tfrecorder.sources.cells import (
    AHEAD,
    TOGETHER,
    Cells,
    Content,
    Contents,
    Rows,
    content_in,
    is_data_uri,
)
from tfrecorder.sources.places import column_places
from tfrecorder.sources.table import Source, as_texts

#: How many rows have their names as Python values before the names go to Arrow.
BLOCK = 2**13

#: Stands for a cell without an image.
_NO_CONTENT = Content("", "", -1, -1)

#: From so many files of a folder on, a store is asked for its listing instead of for each of them.
LISTED = 1000

#: How many local files a thread looks at together.
_TOGETHER = 32

T = TypeVar("T")
R = TypeVar("R")


def with_contents(source: Source) -> Source:
    """A source in which each image that came as bytes has its content's name as its uri."""
    frame = source.frame
    contents = {}
    for name in source.schema.of(*FILES):
        if name not in frame:
            continue
        cells = source.cells.get(name)
        if cells is None and not _may_hold_images(frame[name]):
            continue
        column, of_column = _look(cells or partial(_cells_in, frame[name].array), frame[name])
        frame = frame.assign(**{name: column})
        if of_column is not None:
            contents[name] = of_column
    return replace(
        source,
        frame=frame,
        contents=contents,
        cells={},
    )


def without_signatures(source: Source) -> Source:
    """A source whose uris are whole, without signatures, which are put aside for the readers."""
    frame = source.frame
    for name in source.schema.of(*FILES):
        if name not in frame:
            continue
        texts = as_texts(frame[name])
        if texts is None or pc.any(pc.match_substring_regex(texts, storage.CHANGED)).as_py():
            cells = frame[name].tolist()
            plain = [
                storage.put_aside(cell) if isinstance(cell, (str, os.PathLike)) else cell
                for cell in cells
            ]
            if plain != cells:
                dtype = object if texts is None else frame[name].dtype
                frame = frame.assign(**{name: pd.Series(plain, frame.index, dtype)})
    return replace(source, frame=frame)


def _may_hold_images(column: pd.Series) -> bool:
    """False if all cells of a column are certainly uris, or empty."""
    if (texts := as_texts(column)) is not None:
        return bool(pc.any(pc.starts_with(texts, "data:", ignore_case=True)).as_py())
    if pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty"):
        return any(isinstance(cell, str) and is_data_uri(cell) for cell in column)
    return True


def _cells_in(array: Any, rows: Rows) -> Iterator[Any]:
    """The cells of a frame's column."""
    return (array[int(row)] for row in rows)


def _look(cells: Cells, column: pd.Series) -> tuple[pd.Series, Contents | None]:
    """A column with only uris, and what is known about the images in its cells."""
    uris = []
    files = []
    names = []
    sums = [np.empty((0, 2), np.int64)]
    with ThreadPool() as pool:
        groups = _in_lists(cells(range(len(column))), TOGETHER)
        looked_at = map_ahead(pool, lambda group: list(map(content_in, group)), groups, AHEAD)
        every = itertools.chain.from_iterable(looked_at)
        for block in _in_lists(every, BLOCK):
            contents = [cell if isinstance(cell, Content) else _NO_CONTENT for cell in block]
            sums.append(np.array([content[2:] for content in contents]))
            of_block = pa.array([content.file for content in contents], pa.large_string())
            named = any(content.name != content.file for content in contents)
            # If only the hashes are known, keep them in memory only once.
            files.append(of_block)
            names.append(_texts([content.name for content in contents]) if named else of_block)
            uris.append(of_block if _NO_CONTENT not in contents else _texts(block))
    whole = _joined(uris, column)
    sizes, crcs = np.concatenate(sums).T
    if not (sizes >= 0).any():
        return whole, None
    by_hash = pa.concat_arrays(files)
    same = all(map(operator.is_, files, names))
    return whole, Contents(
        by_hash,
        by_hash if same else pa.concat_arrays(names),
        sizes,
        crcs,
        cells,
    )


def _in_lists(values: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while some := list(itertools.islice(values, size)):
        yield some


def _texts(block: Sequence[Any]) -> Any:
    """What the column holds for some cells: in Arrow, if all of them are texts."""
    uris = [cell.file if isinstance(cell, Content) else cell for cell in block]
    try:
        return pa.array(uris, pa.large_string(), from_pandas=False)
    except (pa.ArrowException, UnicodeError, TypeError):
        return uris


def _joined(blocks: Sequence[Any], column: pd.Series) -> pd.Series:
    if all(isinstance(block, pa.Array) and not block.null_count for block in blocks):
        whole = pa.chunked_array(blocks, pa.large_string()).to_pandas()
    else:
        parts = (block if isinstance(block, list) else block.to_pylist() for block in blocks)
        whole = pd.Series(list(itertools.chain.from_iterable(parts)), dtype=object)
    return whole.set_axis(column.index).rename(column.name)


@dataclass(frozen=True)
class FileSums:
    """The files of one column of some rows, each looked at once, however many rows have it.

    A file that is not there, or that may not be read, has neither size nor checksum: -1.

    Attributes:
        places: of the rows, as `places` makes them; null for none.
        sizes: by row.
        files: the paths of those that did not come as bytes.
        of_rows: for each row the place of its checksum; -1 for a row without a file.
        told: the checksums that are known already: of `files`, then of images that came as bytes.
    """

    places: pa.LargeStringArray
    sizes: np.ndarray
    files: list[str]
    of_rows: np.ndarray
    told: np.ndarray

    def crcs(self, rows: np.ndarray) -> np.ndarray:
        """The checksums of the files of some rows, a mask; -1 for all others.

        Raises:
            UnreachableError: a store does not answer.
        """
        crcs = self.told.copy()
        wanted = np.unique(self.of_rows[rows & (self.sizes >= 0)])
        unread = wanted[crcs[wanted] < 0].tolist()
        crcs[unread] = [*in_threads(_crc, [self.files[number] for number in unread])]
        return np.where(rows, crcs[self.of_rows], -1)


def file_sums(
    places: pa.LargeStringArray,
    came: np.ndarray | None = None,
    web: bool = True,
) -> FileSums:
    """The files in some places, whose stores are asked for their sizes.

    Args:
        came: the size and CRC32C of each image that came as bytes, by row; -1 for all others.
        web: also ask for the sizes of what is on http(s), which may take as long as reading.

    Raises:
        UnreachableError: a store does not answer.
    """
    came = np.full((2, len(places)), -1) if came is None else came
    is_known = came[0] >= 0
    encoded = pc.if_else(pa.array(is_known), None, places).dictionary_encode()
    files = encoded.dictionary.to_pylist()
    describe = describing(files)

    def told(path: str) -> tuple[int, int]:
        with contextlib.suppress(storage.UnreadableError):
            file = describe(path) if web or not storage.is_web(path) else None
            if file is not None:
                return file.size, -1 if file.crc32c is None else file.crc32c
        return -1, -1

    flat = itertools.chain.from_iterable(in_threads(told, files))
    of_files = np.fromiter(flat, np.int64).reshape(-1, 2)
    sizes, crcs = np.concatenate([of_files, came.T[is_known], [(-1, -1)]]).T
    of_rows = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    of_rows[is_known] = np.arange(len(files), len(sizes) - 1)
    return FileSums(places, sizes[of_rows], files, of_rows, crcs)


def file_sums_of(
    table: Source,
    column: str,
    web: bool = True,
) -> FileSums:
    """`file_sums` of a column of a table."""
    rows = table.frame.index.to_numpy()
    contents = table.contents.get(column)
    came = None if contents is None else np.stack([contents.sizes, contents.crcs])[:, rows]
    return file_sums(column_places(table, column), came, web)


def _crc(path: str) -> int:
    with contextlib.suppress(storage.UnreadableError):
        return storage.sums(path)[1]
    return -1


def describing(paths: Iterable[str]) -> Callable[[str], storage.Description | None]:
    """`storage.describe` for these files, of which one listing may tell a whole folder."""
    stored = (path for path in paths if not (storage.is_local(path) or storage.is_web(path)))
    listings = {}
    for folder, files in Counter(map(storage.parent, stored)).items():
        if files >= LISTED:
            with contextlib.suppress(storage.UnreadableError):  # which files may still allow
                listings[folder] = storage.descriptions(folder)

    def describe(path: str) -> storage.Description | None:
        folder, _, name = path.rpartition("/")
        return listings[folder].get(name) if folder in listings else storage.describe(path)

    return describe


def in_threads(
    work: Callable[[T], R],
    files: Sequence[T],
    path: Callable[[T], str] = str,
) -> Iterator[R]:
    """The results of `work` for some files, in order, each as soon as it can be had.

    Args:
        path: of a file.
    """
    local = all(storage.is_local(path(file)) for file in files)
    together = max(1, min(_TOGETHER, len(files) // storage.REMOTE_THREADS)) if local else 1
    groups = [files[start : start + together] for start in range(0, len(files), together)]
    if len(groups) < 2:
        yield from map(work, files)
        return
    with ThreadPool(storage.REMOTE_THREADS) as pool:
        ahead = 2 * storage.REMOTE_THREADS
        made = map_ahead(pool, lambda group: [*map(work, group)], groups, ahead)
        yield from itertools.chain.from_iterable(made)
