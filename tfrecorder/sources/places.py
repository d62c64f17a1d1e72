"""Where images are: two rows are of the same images if all of these are in the same places.

Uris are compared neither as the sources spell them nor by what they are relative to.
"""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.option import is_text
from tfrecorder.format.layout import NOWHERE
from tfrecorder.sources.table import Source, as_texts

#: How many texts are hashed together: as objects of Python, they take much memory.
_TOGETHER = 2**14


def places(
    uris: pa.Array,
    base: str | pa.Array,
    files: pa.Array | None = None,
) -> pa.LargeStringArray:
    """The place of each uri: an absolute path without "." and "..", or a uri on a store.

    Links are followed only where a ".." leads out of one, as the system does that opens the file.

    Args:
        uris: texts; a null has no place.
        base: the folder that relative uris start from, or that of each.
        files: for each image that came as bytes, the name made from its content, which is its
            place; "" for all others.
    """
    text = pa.large_string()
    if isinstance(base, str):
        base = pa.repeat(pa.scalar(base, text), len(uris))
    start = pc.utf8_rtrim(base, "/")
    whole = pc.binary_join_element_wise(start, uris, pa.scalar("/", text))
    whole = pc.if_else(pc.starts_with(uris, "/"), uris, whole)
    odd = pc.fill_null(_are_odd(uris), False)
    if pc.any(odd).as_py():
        of_odd = _places_of_odd(uris.filter(odd), base.filter(odd))
        whole = pc.replace_with_mask(whole, odd, of_odd)
    return whole if files is None else pc.if_else(pc.equal(files, ""), whole, files)


def known_places(
    uris: pa.Array,
    bases: pa.Array,
    files: pa.Array | None = None,
) -> pa.Array:
    """`places` of rows of a dataset; null where a repair could not tell it.

    Args:
        bases: "" for a row whose folder nobody noted.
    """
    folder = NOWHERE * 99  # no ".." of a uri leads out of it
    found = places(uris, pc.if_else(pc.equal(bases, ""), folder, bases), files)
    return pc.if_else(pc.starts_with(found, NOWHERE), None, found)


def column_places(source: Source, column: str) -> pa.LargeStringArray:
    """The place of each image of a source's column; null where a cell has none."""
    cells = source.frame[column]
    contents = source.contents.get(column)
    files = None if contents is None else contents.files.take(cells.index.to_numpy())
    return places(_texts(cells), source.base, files)


def column_uris(source: Source, column: str) -> pa.LargeStringArray:
    """The uri of each row of a source's column, as it is spelled; null where a cell has none."""
    return _texts(source.frame[column])


def place_numbers(source: Source, column: str) -> pd.Series:
    """For each cell of a source's column, a number that only the same place has; -1 without one.

    All of them are below the number of rows.
    """
    uris = as_texts(source.frame[column])
    if uris is None or column in source.contents or not _are_alike(uris):
        uris = column_places(source, column)
    return pd.Series(_numbered(uris), index=source.frame.index)


def _numbered(texts: pa.LargeStringArray) -> np.ndarray:
    """A number for each text that only equal texts have; -1 for a null.

    A dictionary of fifty million uris would take twice their memory, so only those go into one
    whose hash comes again.
    """
    if texts.null_count:
        return pc.fill_null(texts.dictionary_encode().indices, -1).to_numpy()
    hashes = np.empty(len(texts), np.int64)
    for start in range(0, len(texts), _TOGETHER):
        block = texts.slice(start, _TOGETHER).cast(pa.large_binary()).to_pylist()
        hashes[start : start + len(block)] = np.fromiter(map(hash, block), np.int64, len(block))
    numbers = np.arange(len(texts))
    ordered = np.sort(hashes)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(again):
        rows = np.flatnonzero(np.isin(hashes, again))
        same = texts.take(rows).dictionary_encode().indices.to_numpy()
        first_of_same = np.unique(same, return_index=True)[1]
        numbers[rows] = rows[first_of_same][same]
    return numbers


def _are_alike(uris: pa.Array) -> bool:
    """True if two uris have one place only if they are one text, so that no place need be made."""
    if kind := storage.scheme(uris[0].as_py()):
        return bool(pc.all(pc.starts_with(uris, f"{kind}://")).as_py())
    from_root = pc.starts_with(uris, "/")
    return len(pc.unique(from_root)) == 1 and not pc.any(_are_odd(uris)).as_py()


def _are_odd(uris: pa.Array) -> pa.BooleanArray:
    """True for each uri that is not simply a path below its folder, or from the root."""
    return pc.match_substring_regex(uris, r"//|/\.|\A[.~]")


def _places_of_odd(uris: pa.Array, bases: pa.Array) -> pa.Array:
    """`places`, by a function of Python that is called once for each folder."""
    # In a uri of the scheme file, any character of the name may be escaped.
    escaped = pc.starts_with(uris, "file:", ignore_case=True)
    plain = [storage.resolve(uri, "") for uri in uris.filter(escaped).to_pylist()]
    uris = pc.replace_with_mask(uris, escaped, pa.array(plain, pa.large_string()))
    folders = pc.replace_substring_regex(uris, "[^/]*$", "")
    both = pc.binary_join_element_wise(folders, bases, pa.scalar("\0", pa.large_string()))
    both = both.dictionary_encode()
    distinct = [_place_of_folder(*pair.split("\0")) for pair in both.dictionary.to_pylist()]
    wholes = pa.array(distinct, pa.large_string()).take(both.indices)
    names = pc.replace_substring_regex(uris, "(?s)^.*/", "")
    return pc.binary_join_element_wise(wholes, names, pa.scalar("", pa.large_string()))


def _place_of_folder(folder: str, base: str) -> str:
    """The place of a folder, with a "/" at its end."""
    path = storage.resolve(folder, base)
    if kind := storage.scheme(path):
        return kind + path[len(kind) :]
    plain = os.path.normpath(path)
    if ".." in path and os.path.realpath(plain) != (real := os.path.realpath(path)):
        plain = real
    return f"/{plain.strip('/')}/" if plain.strip("/") else "/"


def _texts(column: pd.Series) -> pa.LargeStringArray:
    """The uris of a column; null for a cell that holds none."""
    if (texts := as_texts(column)) is not None:
        return texts
    cells = (os.fspath(cell) if isinstance(cell, os.PathLike) else cell for cell in column)
    sound = [cell if is_text(cell) else None for cell in cells]
    return pa.array(sound, pa.large_string())
