"""The boxes of a record: are they boxes within the image, and those that were planned?

A worker moves boxes with their image's pixels, and no record keeps the source's size or its
orientation.  So of a transformed image they are compared with all that the plan's boxes may have
become; where that depends on the source's size (cut, padded, or given in pixels and resized), only
their classes and number are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfrecorder.images.transform import Transform, geometry_of, transform_of
from tfrecorder.plan.plan import Plan, PlannedRow
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Boxes
from tfrecorder.verification.record import Finding, Record

#: How far a moved edge may be from where it was computed again: some of float32's last digits.
_CLOSE = 1e-6

#: Areas, of the image and in pixels, below which a box may have been too small to be kept.
_TINY = {"fraction": 1e-11, "pixel": 1e-3}

#: Boxes as rows of edges, and for each of those that were planned whether it is still there.
_Outcome = tuple[np.ndarray, np.ndarray]


def check_boxes(field: Field, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Boxes that are out of range, out of order or empty."""
    lengths = {len(values[one.key]) for one in field.features}
    if len(lengths) > 1:
        yield "boxes", f"{field.column}: its lists have different lengths: {sorted(lengths)}"
        return
    edges = _edges(field, values)
    wrong = (edges < 0).any(1) | (edges > 1).any(1)
    wrong |= (edges[:, 0] >= edges[:, 2]) | (edges[:, 1] >= edges[:, 3])
    for number in np.flatnonzero(wrong | ~np.isfinite(edges).all(1)).tolist():
        words = f"box {number} {_shown(edges[number])} is no box within 0 to 1"
        yield "boxes", f"{field.column}: {words}"


def boxes_against_plan(
    field: Field, record: Record, planned: PlannedRow, plan: Plan
) -> Iterator[str]:
    """Where a record's boxes cannot be those that were planned, in words."""
    keys = [one.key for one in field.features]
    values = record.values or {}
    wanted = {key: (planned.values or {}).get(key) or () for key in keys}
    if len({len(values[key]) for key in keys}) > 1:
        return  # which is a fault already
    lengths = {len(lists) for lists in wanted.values()}
    if len(lengths) > 1:
        yield f"{field.column}: the planned lists have different lengths: {sorted(lengths)}"
        return
    found, due = _edges(field, values), _edges(field, wanted)
    classes, due_classes = _classes(field, values), _classes(field, wanted)
    transform = transform_of(plan.options)
    outcomes = _outcomes(field, due, record, transform)
    if not outcomes:
        some = _may_leave(field, due, transform)
        if classes != due_classes and not (some and _in_order(classes, due_classes)):
            yield f"{field.column}: {_differ(classes, due_classes)}"
        return
    tolerance = 0 if transform is None else _CLOSE
    faults = []
    for edges, kept in outcomes:
        faults.append(_compare(found, edges, classes, _kept(due_classes, kept), tolerance))
    number, words = min(faults)  # of the one that it is most like
    if number:
        yield f"{field.column}: {words}"


def _edges(field: Field, values: Mapping[str, Any]) -> np.ndarray:
    """Boxes as rows of the left, upper, right and lower edge."""
    columns = [np.asarray(values[key], np.float64).ravel() for key in field.edges]
    return np.stack(columns, 1)


def _classes(field: Field, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The label and the text of each box; of boxes without classes as many empty tuples."""
    keys = [one.key for one in field.features[len(field.edges) :]]
    if not keys:
        return [()] * len(values[field.edges[0]])
    return list(zip(*(map(_plain, values[key]) for key in keys), strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.item() if isinstance(value, np.generic) else value


def _kept(classes: Sequence[Any], kept: np.ndarray) -> list[Any]:
    return [one for one, stays in zip(classes, kept.tolist(), strict=True) if stays]


def _outcomes(
    field: Field, edges: np.ndarray, record: Record, transform: Transform | None
) -> list[_Outcome]:
    """What the planned boxes may have become; none where the source's size would tell."""
    assert isinstance(field.kind, Boxes)
    in_pixels = field.kind.unit == "pixel"
    height, width = record.shape[:2]
    with np.errstate(all="ignore"):  # a damaged plan or record may hold any numbers
        if transform is None:
            fractions = edges / ([width, height] * 2) if in_pixels else edges
            return [(fractions.astype(np.float32), np.ones(len(edges), bool))]
        unknown = _is_cut_or_padded(transform) or (in_pixels and transform.size is not None)
        if unknown or _tiny(field.kind, edges).any() or min(height, width) < 1:
            return []
        made = []
        # Of what is neither cut nor padded, fractions do not depend on the size; and what is not
        # resized has the record's own.
        for orientation in range(1, 9) if transform.upright else (1,):
            size = (height, width) if orientation >= 5 else (width, height)
            geometry = geometry_of(*size, orientation, transform)
            made.append(geometry.boxes(edges / (size * 2) if in_pixels else edges))
        return made


def _is_cut_or_padded(transform: Transform) -> bool:
    return isinstance(transform.size, tuple) and transform.fit in ("crop", "pad")


def _tiny(kind: Boxes, edges: np.ndarray) -> np.ndarray:
    areas = (edges[:, 2] - edges[:, 0]) * (edges[:, 3] - edges[:, 1])
    return ~(areas >= _TINY[kind.unit])


def _may_leave(field: Field, edges: np.ndarray, transform: Transform | None) -> bool:
    """Whether a box may be missing: outside of the part that was kept, or too small."""
    assert isinstance(field.kind, Boxes)
    if transform is None:
        return False
    is_cut = isinstance(transform.size, tuple) and transform.fit == "crop"
    return is_cut or bool(_tiny(field.kind, edges).any())


def _in_order(some: Sequence[Any], all_of_them: Sequence[Any]) -> bool:
    """True if the one are among the other, in the same order."""
    rest = iter(all_of_them)
    return all(one in rest for one in some)


def _compare(
    found: np.ndarray,
    due: np.ndarray,
    classes: Sequence[Any],
    due_classes: Sequence[Any],
    tolerance: float,
) -> tuple[int, str]:
    """How many boxes differ from an outcome, and the words for it."""
    if classes != due_classes:
        return len(classes) + 1, _differ(classes, due_classes)
    with np.errstate(all="ignore"):
        wrong = np.flatnonzero(~(np.abs(found - due) <= tolerance).all(1)).tolist()
    if not wrong:
        return 0, ""
    box, planned = _shown(found[wrong[0]]), _shown(due[wrong[0]])
    return len(wrong), f"box {wrong[0]} is {box}, but {planned} was planned"


def _differ(classes: Sequence[Any], due: Sequence[Any]) -> str:
    """Other boxes than planned: more or fewer, or of other classes."""
    if not any(classes) or len(classes) > len(due):
        return f"it has {len(classes)} boxes, but {len(due)} were planned"
    found, wanted = ([text for _, text in some] for some in (classes, due))
    return f"the classes of its boxes are {_cut(found)}, but {_cut(wanted)} were planned"


def _cut(texts: Sequence[str]) -> str:
    shown = repr(texts)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def _shown(box: np.ndarray) -> str:
    return f"({', '.join(f'{edge:g}' for edge in box.tolist())})"
