"""Objects on images, and all rows of one image, as one row with a list for each column.

Files of annotations list objects one after the other; and several rows may say something about the
same image, such as a caption each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.errors import OptionError
from tfrecorder.schema.keys import BOX_COLUMNS, LABEL_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Schema
from tfrecorder.sources.finding import Finding, conflicts
from tfrecorder.sources.named_files import in_threads
from tfrecorder.sources.table import as_objects, in_lists

#: The column with the polygons or RLE of each object.
MASKS = "segmentation"

#: The column with the row of the image of each object.
ROW = "row"


def objects_of(
    rows: np.ndarray,
    labels: np.ndarray,
    edges: np.ndarray,
    beside: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """Objects one after the other, as a frame.

    Args:
        rows: the row of the image of each, int64.
        labels: the name of the class of each, objects.
        edges: left, upper, right and lower edge, float64 of [n, 4].
        beside: other values of each, by column.
    """
    columns = {LABEL_COLUMN: labels, **dict(zip(BOX_COLUMNS, edges.T, strict=True)), **beside}
    # Not as pandas' own text, which holds no bad text: validation reports it.
    of_types = {name: pd.Series(values, dtype=values.dtype) for name, values in columns.items()}
    return pd.DataFrame({ROW: rows, **of_types})


def object_columns(
    objects: pd.DataFrame,
    uris: Sequence[str],
    sizes: np.ndarray,
    slack: float,
) -> tuple[dict[str, pd.Series], list[Finding]]:
    """Columns with a list for each image, and what is wrong.

    Edges that are beyond the image by rounding are put on its edge.  Boxes without an area are left
    out.

    Args:
        objects: as `objects_of` makes them.
        uris: of the images.
        sizes: width and height of each image in the unit of the edges, float64 of [n, 2]; NaN for
            one that is not known.
        slack: how far an edge may be beyond the image.
    """
    edges = objects[[*BOX_COLUMNS]].to_numpy()
    end = np.tile(sizes[objects[ROW]], 2)
    far = ((edges < -slack) | (edges > end + slack)).any(axis=1)
    inner = np.minimum(np.maximum(edges, 0), np.where(np.isnan(end), np.inf, end))
    inner = inner.astype(np.float32)
    empty = ~far & ((inner[:, 0] >= inner[:, 2]) | (inner[:, 1] >= inner[:, 3]))
    empty |= (edges[:, 0] >= edges[:, 2]) | (edges[:, 1] >= edges[:, 3])
    findings = [
        *_beyond_or_empty("box_outside", objects[far & ~empty], uris, sizes),
        *_beyond_or_empty("empty_box", objects[empty], uris, sizes),
    ]
    stored = objects.assign(**dict(zip(BOX_COLUMNS, inner.T, strict=True)))
    kept = stored[~empty].sort_values(ROW, kind="stable")
    counts = np.bincount(kept.pop(ROW), minlength=len(uris))
    return {str(name): in_lists(of.to_numpy(), counts) for name, of in kept.items()}, findings


def grouped(
    table: pd.DataFrame,
    schema: Schema,
    by: str,
) -> tuple[pd.DataFrame, np.ndarray, list[Finding]]:
    """One row for each value of a column, in the order in which they first come.

    Returns:
        The rows, with lists of the values that columns of lists have in the rows of a group; which
        of the given rows was the first of each; and where others differ within a group.

    Raises:
        OptionError: there is no such column, or its cells cannot be compared.
    """
    if by not in table:
        raise OptionError.of("group_by", by, f"give one of the columns {[*table.columns]}.")
    try:
        codes, _ = pd.factorize(as_objects(table[by]).fillna(""))
    except TypeError:
        raise OptionError.of("group_by", by, "its cells are neither texts nor numbers.") from None
    first = np.unique(codes, return_index=True)[1]
    order = np.argsort(codes, kind="stable")
    rows = table.iloc[first].reset_index(drop=True)
    findings = []
    for name in table.columns.drop(by):
        column = as_objects(table[name])
        if getattr(schema.columns.get(name), "shape", ()) == (None,):
            present = column.map(
                lambda cell: cell is not None and not (isinstance(cell, str) and not cell)
            )
            kept = order[present.to_numpy(dtype=bool)[order]]
            sizes = np.bincount(codes[kept], minlength=len(first))
            rows[name] = in_lists(column.to_numpy()[kept], sizes)
        else:
            findings.append(conflicts(column.set_axis(codes), codes, repr(by)))
    return rows, first, findings


def _beyond_or_empty(
    code: str,
    wrong: pd.DataFrame,
    uris: Sequence[str],
    sizes: np.ndarray,
) -> Iterator[Finding]:
    values = wrong[[ROW, LABEL_COLUMN, *BOX_COLUMNS]]
    for row, label, *edges in values.itertuples(index=False, name=None):
        shown = ", ".join(f"{edge:g}" for edge in edges)
        of = f"the box ({shown}) of {label!r} on {uris[row]!r}"
        width, height = sizes[row].tolist()
        words = "has no area" if code == "empty_box" else f"is beyond its {width:g} x {height:g}"
        yield Finding(code, [row], URI_COLUMN, [shown], f"{of} {words}")


def texts_of(paths: Sequence[str]) -> list[str | None]:
    """The texts of small files; None for one that is not there."""

    def read(path: str) -> str | None:
        data = storage.unless_missing(lambda: storage.read_bytes(path))
        return None if data is None else data.decode("utf-8-sig", errors="replace")

    return [*in_threads(read, paths)]


def as_numbers(values: Sequence[Any], *shape: int) -> np.ndarray:
    """Numbers, or lists of as many as the shape says, as float64; NaN for what is not one."""
    try:
        made = np.array(values, np.float64)
        if made.shape == (len(values), *shape):
            return made
    except (TypeError, ValueError, OverflowError):
        pass
    nothing = np.full(shape, np.nan)
    return np.array([_numbers_of(value, nothing) for value in values]).reshape(-1, *shape)


def _numbers_of(value: Any, nothing: np.ndarray) -> np.ndarray:
    try:
        made = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        return nothing
    return made if made.shape == nothing.shape and np.isfinite(made).all() else nothing
