"""Objects on images, as files of annotations list them, as columns with a list for each image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.schema.keys import BOX_COLUMNS, LABEL_COLUMN, URI_COLUMN
from tfrecorder.sources.file_sums import in_threads
from tfrecorder.sources.table import Fault, in_lists

#: The column with the polygons or RLE of each object.
MASKS = "segmentation"


@dataclass(frozen=True)
class Objects:
    """Objects one after the other.

    Attributes:
        rows: the row of the image of each, int64.
        labels: the name of the class of each, objects.
        edges: left, upper, right and lower edge, float64 of [n, 4].
        beside: other values of each, by column.
    """

    rows: np.ndarray
    labels: np.ndarray
    edges: np.ndarray
    beside: Mapping[str, np.ndarray]

    def only(self, kept: np.ndarray) -> Objects:
        """Some of them: a mask, or their places in another order."""
        beside = {name: values[kept] for name, values in self.beside.items()}
        return Objects(self.rows[kept], self.labels[kept], self.edges[kept], beside)


def joined(several: Sequence[Objects]) -> Objects:
    """Objects of several files, one after the other."""
    return Objects(
        np.concatenate([one.rows for one in several]),
        np.concatenate([one.labels for one in several]),
        np.concatenate([one.edges for one in several]),
        {name: np.concatenate([one.beside[name] for one in several]) for name in several[0].beside},
    )


def object_columns(
    objects: Objects, uris: Sequence[str], sizes: np.ndarray, slack: float
) -> tuple[dict[str, pd.Series], list[Fault]]:
    """Columns with a list for each image, and what is wrong.

    Edges that are beyond the image by rounding are put on its edge.  Boxes without an area are left
    out.

    Args:
        uris: of the images.
        sizes: width and height of each image in the unit of the edges, float64 of [n, 2]; NaN for
            one that is not known.
        slack: how far an edge may be beyond the image.
    """
    edges, end = objects.edges, np.tile(sizes[objects.rows], 2)
    far = ((edges < -slack) | (edges > end + slack)).any(axis=1)
    inner = np.minimum(np.maximum(edges, 0), np.where(np.isnan(end), np.inf, end))
    inner = inner.astype(np.float32)
    empty = ~far & ((inner[:, 0] >= inner[:, 2]) | (inner[:, 1] >= inner[:, 3]))
    empty |= (edges[:, 0] >= edges[:, 2]) | (edges[:, 1] >= edges[:, 3])
    faults = [
        *_faults("box_outside", far & ~empty, objects, uris, sizes),
        *_faults("empty_box", empty, objects, uris, sizes),
    ]
    kept = np.flatnonzero(~empty)
    kept = kept[np.argsort(objects.rows[kept], kind="stable")]
    objects = Objects(objects.rows, objects.labels, inner, objects.beside).only(kept)
    counts = np.bincount(objects.rows, minlength=len(uris))
    flat = {
        LABEL_COLUMN: objects.labels,
        **dict(zip(BOX_COLUMNS, objects.edges.T.copy(), strict=True)),
        **objects.beside,
    }
    return {name: in_lists(values, counts) for name, values in flat.items()}, faults


def _faults(
    code: str, wrong: np.ndarray, objects: Objects, uris: Sequence[str], sizes: np.ndarray
) -> Iterator[Fault]:
    for place in np.flatnonzero(wrong).tolist():
        row = int(objects.rows[place])
        shown = ", ".join(f"{edge:g}" for edge in objects.edges[place].tolist())
        of = f"the box ({shown}) of {objects.labels[place]!r} on {uris[row]!r}"
        width, height = sizes[row].tolist()
        words = "has no area" if code == "empty_box" else f"is beyond its {width:g} x {height:g}"
        yield Fault(code, row, URI_COLUMN, shown, f"{of} {words}")


def texts_of(paths: Sequence[str]) -> list[str | None]:
    """The texts of small files; None for one that is not there."""

    def read(path: str) -> str | None:
        try:
            return storage.read_bytes(path).decode("utf-8-sig", errors="replace")
        except storage.UnreadableError as error:
            if error.code == "not_found":
                return None
            raise

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
