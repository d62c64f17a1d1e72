"""Boxes of a source: each checked, with its row named, and the rows of one image gathered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.errors import refuse_missing
from tfrecorder.images.boxes_and_masks import as_segmentation
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Boxes, Kind, Number, columns_of
from tfrecorder.sources.finding import Finding, conflicts, flag
from tfrecorder.sources.table import ROUNDED, as_objects, in_lists, is_list
from tfrecorder.validation.columns import (
    Outcome,
    as_lists,
    flatten,
    has_faults,
    is_missing,
    list_in,
    numbered_classes,
)


@dataclass(frozen=True)
class BoxRows:
    """The boxes of a source, one after the other in the order of their images.

    Attributes:
        frame: the edges and labels; its index is the source's row of each box.
        sizes: how many boxes each image has.
        gathered: True if each box was a separate row.
    """

    frame: pd.DataFrame
    sizes: np.ndarray
    gathered: bool


def gather(
    source: pd.DataFrame,
    kind: Boxes,
    image: str,
    of_each_box: Mapping[str, Kind] = MappingProxyType({}),
    numbers: pd.Series | None = None,
) -> tuple[pd.DataFrame, BoxRows, list[Finding]]:
    """One row for each image, and its boxes.

    Args:
        source: has the columns of the schema; its index is the row's number.
        image: the column of the image.
        of_each_box: the kinds of the columns of other values, of which each box has one.
        numbers: of the rows of a dataset that these are, which may have an image twice; -1 for
            none.

    Returns:
        The rows without the columns of the boxes, each with the number of its image's first row,
        and with lists of these other values; the boxes; and what is wrong.
    """
    names = [*columns_of("", kind)]
    boxes = pd.DataFrame({name: as_objects(source[name]) for name in names}, index=source.index)
    others = source.drop(columns=names)
    # Polygons are lists, also of a single box.
    without_masks = [name for name in names if name != kind.masks]
    has_lists = boxes[without_masks].map(is_list).any(axis=None)
    if has_lists or boxes[[*kind.columns]].map(_is_written_list).any(axis=None):
        of_boxes, findings = _from_lists(boxes, names)
        if not has_faults(findings):
            findings += [_check_number(others[name], of_boxes.sizes) for name in of_each_box]
        return others, of_boxes, findings
    codes, _ = pd.factorize(as_objects(source[image]).fillna(""))
    if numbers is not None:  # a box without a number is of the first row of its image
        known = numbers.where(numbers >= 0)
        known = known.fillna(known.groupby(codes).transform("first")).fillna(-1)
        codes, _ = pd.factorize(pd.MultiIndex.from_arrays([codes, known]))
    order = np.argsort(codes, kind="stable")
    first = np.unique(codes, return_index=True)[1]
    columns = others.drop(columns=[*of_each_box]).items()
    findings = [conflicts(as_objects(column), codes, "image") for _, column in columns]
    present = ~boxes.map(is_missing).all(axis=1).to_numpy(dtype=bool)
    kept = order[present[order]]
    sizes = np.bincount(codes[present], minlength=len(first)).astype(np.int64)
    rows = others.iloc[first]
    for name, of in of_each_box.items():
        cells = in_lists(_typed(as_objects(source[name]).iloc[kept], of), sizes)
        rows = rows.assign(**{name: cells.set_axis(rows.index)})
    return rows, BoxRows(boxes.iloc[kept], sizes, gathered=True), findings


def _typed(values: pd.Series, kind: Kind) -> np.ndarray:
    """Numbers as numbers, also if a CSV has them as texts."""
    numbers = pd.to_numeric(values, errors="coerce") if isinstance(kind, Number) else values
    return (numbers if numbers.notna().all() else values).to_numpy()


def _check_number(column: pd.Series, sizes: np.ndarray) -> Finding:
    """Lists with more or fewer values than there are boxes."""
    counts = as_objects(column).map(lambda cell: len(_as_list(cell)))
    wrong = column[(counts != sizes).to_numpy(dtype=bool)]
    return Finding(
        "bad_box",
        [*wrong.index],
        str(column.name),
        [*map(str, wrong)],
        "there is not a value for each box",
    )


def _from_lists(boxes: pd.DataFrame, names: list[str]) -> tuple[BoxRows, list[Finding]]:
    columns = {name: boxes[name].map(_as_list) for name in names}
    lengths = [[*map(len, column)] for column in columns.values()]
    sizes = np.array(lengths, np.int64)
    counts = sizes[0]
    uneven = (sizes != counts).any(axis=0)
    if not uneven.any():
        flat = {name: flatten(column, counts) for name, column in columns.items()}
        return BoxRows(pd.DataFrame(flat), counts, gathered=False), []
    lengths_of_rows = [*map(str, sizes.T.tolist())]
    shown = pd.Series(lengths_of_rows, boxes.index, object, names[0])
    message = f"the lists {', '.join(names)} have different lengths: {{value}}"
    no_boxes = BoxRows(boxes.iloc[:0], np.zeros_like(counts), gathered=False)
    return no_boxes, [flag("bad_box", uneven, shown, message)]


def _is_written_list(value: Any) -> bool:
    """True for a list as a CSV has it."""
    return isinstance(value, str) and value.startswith("[") and list_in(value) is not None


def _as_list(value: Any) -> Any:
    if is_list(value):
        return value if isinstance(value, np.ndarray) and value.ndim == 1 else list(value)
    if _is_written_list(value):
        return list_in(value)
    return [] if is_missing(value) else [value]


def check_boxes(field: Field, rows: BoxRows) -> Outcome:
    """Check that edges are numbers, in range, ordered and non-empty; and check the labels."""
    kind = field.kind
    assert isinstance(kind, Boxes)
    field = replace(field, gathered=rows.gathered)
    edges = _numbers(kind, rows.frame)
    findings = _check_edges(kind, rows.frame, edges)
    if kind.unit == "pixel":
        findings.append(_in_fractions(kind, rows, edges))
    stored = _as_stored(edges)
    values = {
        key: as_lists(rows.sizes, pa.array(edge))
        for key, edge in zip(field.edges, np.ascontiguousarray(stored.T), strict=True)
    }
    if kind.label is not None:
        classes = numbered_classes(field, rows.frame[kind.label], rows.sizes)
        field = classes.field
        values |= classes.values
        findings += classes.findings
    if field.masks_key is not None:
        refuse_missing("pycocotools")
        given = rows.frame[kind.masks]
        masks = given.map(as_segmentation)
        wrong = given[masks.isna()].map(str)
        findings.append(
            flag(
                "bad_box",
                np.ones(len(wrong), bool),
                wrong,
                "the mask is neither COCO's polygons nor its RLE: {value}",
            )
        )
        values[field.masks_key] = as_lists(rows.sizes, pa.array(masks, pa.large_string()))
    return Outcome(field, {} if has_faults(findings) else values, findings)


def _in_fractions(
    kind: Boxes,
    rows: BoxRows,
    edges: np.ndarray,
) -> Finding:
    """The images of which all boxes are within a pixel, by the first box of each."""
    images = pd.Series(np.repeat(np.arange(len(rows.sizes)), rows.sizes))
    farthest = pd.Series(edges.max(axis=1)).groupby(images).transform("max")
    found = np.asarray((farthest <= 1) & ~images.duplicated())
    words = "all boxes of the image are within its first pixel, as if they were fractions: {value}"
    return flag("fraction_boxes", found, shown_edges(kind, rows.frame), words)


def _numbers(kind: Boxes, boxes: pd.DataFrame) -> np.ndarray:
    """The left, upper, right and lower edge of each box; NaN for what is not a number.

    What is beyond the image by less than a pixel is put on its edge, as far as that is known here.
    """
    columns = boxes[list(kind.columns)].apply(pd.to_numeric, errors="coerce")
    edges = columns.to_numpy(dtype=np.float64, copy=True)
    end, slack = (1.0, ROUNDED) if kind.unit == "fraction" else (np.inf, 1.0)
    edges[(edges < 0) & (edges >= -slack)] = 0
    edges[(edges > end) & (edges <= end + slack)] = end
    return edges


def _as_stored(edges: np.ndarray) -> np.ndarray:
    return edges.clip(-3e38, 3e38).astype(np.float32)


def sound_edges(kind: Boxes, boxes: pd.DataFrame) -> np.ndarray:
    """The edges of each box as they are stored; NaN for a box that has a fault."""
    edges = _numbers(kind, boxes)
    faulty = np.logical_or.reduce(_faulty(kind, edges))
    return np.where(faulty[:, None], np.float32("nan"), _as_stored(edges))


def shown_edges(kind: Boxes, boxes: pd.DataFrame) -> pd.Series:
    """The edges of each box as a report shows them, under its column."""
    rows = boxes[list(kind.columns)].to_numpy(dtype=object)
    shown = [", ".join(map(str, row)) for row in rows]
    return pd.Series(
        shown,
        index=boxes.index,
        dtype=object,
        name=kind.columns[0],
    )


def _faulty(kind: Boxes, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which boxes are not four numbers, which are out of range, and which are empty."""
    wrong = ~np.isfinite(edges).all(axis=1)
    end = 1.0 if kind.unit == "fraction" else np.inf
    outside = ~wrong & ((edges < 0) | (edges > end)).any(axis=1)
    # Compare the edges as stored: two may differ by less than float32 can resolve.
    left, upper, right, lower = _as_stored(edges).T
    empty = ~wrong & ~outside & ((left >= right) | (upper >= lower))
    return wrong, outside, empty


def _check_edges(
    kind: Boxes,
    boxes: pd.DataFrame,
    edges: np.ndarray,
) -> list[Finding]:
    faults = np.stack(_faulty(kind, edges))
    places = np.flatnonzero(faults.any(axis=0))
    shown = shown_edges(kind, boxes.iloc[places])
    wrong, outside, empty = faults[:, places]
    words = ", ".join(kind.columns)
    limits = "from 0 to 1" if kind.unit == "fraction" else "0 or more"
    hint = " (or give Boxes(unit='pixel'))" if kind.unit == "fraction" else ""
    return [
        flag("bad_box", wrong, shown, f"{words} are not four numbers: {{value}}"),
        flag("bad_box", outside, shown, f"{words} must be {limits}{hint}: {{value}}"),
        flag(
            "bad_box",
            empty,
            shown,
            f"the box is empty: the right edge must be beyond the left one, and the lower edge "
            f"below the upper one: {words} = {{value}}",
        ),
    ]
