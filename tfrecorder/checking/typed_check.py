"""One record of a stated schema: do its classes, boxes, images and masks hold together?"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrecorder import schema
from tfrecorder.checking.record_form import Finding, Record
from tfrecorder.examples import Values
from tfrecorder.images import jpeg, png
from tfrecorder.images.rejects import Reject
from tfrecorder.images.transform import transform_of
from tfrecorder.kinds.columns import Boxes, Image, Mask
from tfrecorder.kinds.fields import Field, image_of, primary_image
from tfrecorder.kinds.records import converters
from tfrecorder.plan import Plan, PlannedRow

_SIZES = ("height", "width", "channels")


def check_typed(record: Record, plan: Plan) -> Iterator[Finding]:
    """Where a record of a stated schema contradicts itself or the vocabularies."""
    fields, values = plan.fields or (), record.values or {}
    first = primary_image(fields)
    for field in fields:
        if field.label_key is not None:
            yield from _check_classes(field, values)
        if isinstance(field.kind, Boxes):
            yield from _check_boxes(field, values)
        elif isinstance(field.kind, Image) and field is not first:
            yield from _check_image(field, values, plan)
        elif isinstance(field.kind, Mask):
            yield from _check_mask(field, image_of(field, fields), values)


def stored_images(record: Record, plan: Plan) -> Iterator[tuple[bytes, tuple[int, int, int]]]:
    """Every encoded image of a record with its shape; not those that are stored as pixels."""
    if record.values is None:
        if record.format != "raw":
            yield record.encoded, record.shape
        return
    for field in plan.fields or ():
        if isinstance(field.kind, Image) and _text(record.values[f"{field.key}/format"]) != "raw":
            sizes = (int(record.values[f"{field.key}/{name}"][0]) for name in _SIZES)
            height, width, channels = sizes
            yield bytes(record.values[f"{field.key}/encoded"][0]), (height, width, channels)


def _check_classes(field: Field, values: Any) -> Iterator[Finding]:
    assert field.label_key is not None
    numbers = values[field.label_key]
    texts = [text.decode() for text in values[field.label_key.replace("/label", "/text")]]
    if len(numbers) != len(texts):
        yield "label", f"{field.column}: {len(numbers)} classes have {len(texts)} texts"
        return
    for number, text in zip(map(int, numbers), texts, strict=True):
        if not 0 <= number < field.num_classes:
            count = field.num_classes
            yield "label", f"{field.column}: label {number} is none of the {count} classes"
            continue
        name = str(number) if field.names is None else field.names[number]
        if text != name:
            words = f"{field.column}: label {number} is {name!r}, but the text is {text!r}"
            yield "label", words


def _check_boxes(field: Field, values: Any) -> Iterator[Finding]:
    lengths = {len(values[one.key]) for one in field.features}
    if len(lengths) > 1:
        yield "boxes", f"{field.column}: its lists have different lengths: {sorted(lengths)}"
        return
    edges = np.stack([np.asarray(values[key], np.float64) for key in field.edges], 1)
    wrong = (edges < 0).any(1) | (edges > 1).any(1)
    wrong |= (edges[:, 0] >= edges[:, 2]) | (edges[:, 1] >= edges[:, 3])
    for number in np.flatnonzero(wrong | ~np.isfinite(edges).all(1)):
        shown = ", ".join(f"{edge:g}" for edge in edges[number])
        yield "boxes", f"{field.column}: box {number} ({shown}) is no box within 0 to 1"


def _text(values: Values) -> str:
    value = values[0]
    return value.decode() if isinstance(value, bytes) else str(value)


def _check_image(field: Field, values: Any, plan: Plan) -> Iterator[Finding]:
    form, data = _text(values[f"{field.key}/format"]), values[f"{field.key}/encoded"][0]
    sizes = [int(values[f"{field.key}/{name}"][0]) for name in _SIZES]
    if form == "raw" and plan.options.get("image_format") == "raw":
        if len(data) != math.prod(sizes):
            yield "shape", f"{field.column}: {len(data):,} bytes are not {sizes} pixels"
        return
    read_header = {"jpeg": jpeg.read_header, "png": png.read_header}.get(form)
    if read_header is None:
        yield "format", f"{field.column}: the format is {form!r}, neither 'jpeg' nor 'png'"
        return
    try:
        header = read_header(data, None)
    except Reject as reject:
        if plan.options.get("verify") != "none" or any(sizes):
            yield "format", f"{field.column}: the image is no readable {form}: {reject}"
        return
    found = [header.height, header.width, header.channels]
    if found != sizes:
        yield "shape", f"{field.column}: the record says {sizes}, the image has {found}"


def _check_mask(field: Field, image: Field, values: Any) -> Iterator[Finding]:
    from PIL import Image as Pictures

    wanted = [int(values[f"{image.key}/{name}"][0]) for name in ("height", "width")]
    if not any(wanted):  # verify="none" kept an image that cannot be read
        return
    try:
        with Pictures.open(io.BytesIO(values[f"{field.key}/encoded"][0])) as opened:
            opened.load()
            found, form, mode = [opened.height, opened.width], opened.format, opened.mode
    except (OSError, ValueError, SyntaxError) as error:
        yield "format", f"{field.column}: the mask is no readable PNG: {error}"
        return
    if form != "PNG" or mode not in ("1", "L"):
        yield "format", f"{field.column}: the mask is {form} of mode {mode}, no PNG of classes"
    if found != wanted:
        yield "shape", f"{field.column}: the mask has {found} pixels, the image {wanted}"


def typed_against_plan(record: Record, planned: PlannedRow, plan: Plan) -> Iterator[Finding]:
    """Where a record is not what was planned for its row."""
    values = record.values or {}
    convert = converters(plan.fields or ())
    moved = _moved(plan)
    for key, wanted in (planned.values or {}).items():
        if key in moved:
            wanted = _in_fractions(key, wanted, record, plan)
            if wanted is None:
                continue
        else:
            wanted = convert[key](wanted)
        found = values[key]
        if not _same(found, wanted):
            words = f"{key} is {_shown(found)}, but {_shown(wanted)} was planned"
            yield "row", f"row {record.row}: {words}"
    if values[schema.SOURCE_ID] != [str(planned.row).encode()]:
        yield "row", f"row {record.row}: another row, {planned.row}, was planned"


def _moved(plan: Plan) -> set[str]:
    """The keys of boxes that a worker computes from the plan and the image's size."""
    boxes = [field for field in plan.fields or () if isinstance(field.kind, Boxes)]
    if transform_of(plan.options) is not None:
        return {one.key for field in boxes for one in field.features}
    in_pixels = [f for f in boxes if isinstance(f.kind, Boxes) and f.kind.unit == "pixel"]
    return {key for field in in_pixels for key in field.edges}


def _in_fractions(key: str, wanted: Sequence[float], record: Record, plan: Plan) -> Any:
    """Planned edges in pixels as fractions; None after a transform, where the size is lost."""
    if transform_of(plan.options) is not None:
        return None
    side = record.shape[1] if "/bbox/x" in key else record.shape[0]
    return (np.asarray(wanted, np.float64) / side).astype(np.float32)


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, np.ndarray):
        wanted = np.asarray(wanted, found.dtype).ravel()
        # Bytes, so that a NaN in an array is equal to itself.
        return len(found) == len(wanted) and found.tobytes() == wanted.tobytes()
    wanted = [wanted] if isinstance(wanted, (str, bytes)) else list(wanted)
    return found == [one.encode() if isinstance(one, str) else one for one in wanted]


def _shown(values: Any) -> str:
    if isinstance(values, np.ndarray):
        values = values.ravel().tolist()
    text = repr(values)
    return text if len(text) <= 80 else text[:79] + "…"
