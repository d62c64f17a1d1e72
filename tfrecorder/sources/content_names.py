"""What names an image: the hash of one that came as bytes; of a uri no signature."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.schema.kinds import FILES
from tfrecorder.sources.cells import Content, content_in, is_data_uri
from tfrecorder.sources.contents import AHEAD, TOGETHER, Cells, Contents, FrameCells
from tfrecorder.sources.table import Source, as_texts

#: How many rows have their names as Python values before the names go to Arrow.
BLOCK = 2**13

#: Stands for a cell without an image.
_NO_CONTENT = Content("", "", -1, -1)


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
        column, of_column = _look(cells or FrameCells(frame[name]), frame[name])
        frame = frame.assign(**{name: column})
        if of_column is not None:
            contents[name] = of_column
    return replace(source, frame=frame, contents=contents, cells={})


def without_signatures(source: Source) -> Source:
    """A source whose uris have no signatures, which are put aside for whoever reads the images."""
    frame = source.frame
    for name in source.schema.of(*FILES):
        texts = as_texts(frame[name]) if name in frame else pa.array([], pa.large_string())
        if texts is None or pc.any(pc.match_substring_regex(texts, storage.SIGNED)).as_py():
            cells = frame[name].tolist()
            plain = [storage.put_aside(cell) if isinstance(cell, str) else cell for cell in cells]
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


def _look(cells: Cells, column: pd.Series) -> tuple[pd.Series, Contents | None]:
    """A column with only uris, and what is known about the images in its cells."""
    uris = []
    files = []
    names = []
    sums = [np.empty((0, 2), np.int64)]
    with ThreadPool() as pool:
        groups = _in_lists(cells.read(range(len(cells))), TOGETHER)
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
        by_hash, by_hash if same else pa.concat_arrays(names), sizes, crcs, cells
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
