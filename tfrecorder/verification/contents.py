"""One record of a stated schema: do its classes, boxes, images and masks hold together?"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfrecorder.dataset.example import Values
from tfrecorder.images import jpeg, png
from tfrecorder.images.header import Header
from tfrecorder.images.rejects import Reject
from tfrecorder.plan.plan import Plan, PlannedRow
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field, image_of, primary_image
from tfrecorder.schema.kinds import Boxes, Image, Mask
from tfrecorder.verification.boxes import boxes_against_plan, check_boxes
from tfrecorder.verification.record import Finding, Record
from tfrecorder.writing.rows import converters

_SIZES = ("height", "width", "channels")


def check_typed(record: Record, plan: Plan) -> Iterator[Finding]:
    """Where a record of a stated schema contradicts itself or the vocabularies."""
    fields, values = plan.fields or (), record.values or {}
    first = primary_image(fields)
    for field in fields:
        if field.label_key is not None:
            yield from _check_classes(field, values)
        if isinstance(field.kind, Boxes):
            yield from check_boxes(field, values)
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
    boxes = [field for field in plan.fields or () if isinstance(field.kind, Boxes)]
    of_boxes = {one.key for field in boxes for one in field.features}
    for key, given in (planned.values or {}).items():
        if key in of_boxes:
            continue
        if key not in convert:
            yield "row", f"row {record.row}: {key!r} was planned, which no column makes"
            continue
        found = values[key]
        try:
            differs = not _same(found, convert[key](given))
        except (OverflowError, TypeError, ValueError):  # a value that the plan's type cannot be
            differs = True
        if differs:
            words = f"{key} is {_shown(found)}, but {_shown(given)} was planned"
            yield "row", f"row {record.row}: {words}"
    for field in boxes:
        for words in boxes_against_plan(field, record, planned, plan):
            yield "row", f"row {record.row}: {words}"
    if values[keys.SOURCE_ID] != [str(planned.row).encode()]:
        yield "row", f"row {record.row}: another row, {planned.row}, was planned"


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


def check_label(record: Record, plan: Plan) -> Iterator[Finding]:
    """Where a record contradicts the dataset's vocabulary."""
    if plan.fields is not None:
        yield from check_typed(record, plan)
    elif plan.label_kind == "none":
        if record.label != keys.NO_LABEL or record.text:
            yield (
                "label",
                f"label {record.label} and text {record.text!r} in a dataset without labels",
            )
    elif not 0 <= record.label < plan.num_classes:
        yield "label", f"label {record.label} is none of the {plan.num_classes} classes"
    else:
        name = str(record.label) if plan.class_names is None else plan.class_names[record.label]
        if record.text != name:
            yield "label", f"label {record.label} is {name!r}, but the text is {record.text!r}"


def check_image(record: Record, plan: Plan) -> tuple[Header | None, list[Finding]]:
    """The header of a record's image, if it can be read, and where the record contradicts it."""
    if plan.fields is not None and not record.format:
        return None, []  # a table without images
    if record.format == "raw" and plan.options.get("image_format") == "raw":
        due, there = math.prod(record.shape), len(record.encoded)
        words = f"{due:,} bytes of pixels are due, {there:,} are there"
        return None, [] if due == there else [("shape", words)]
    read_header = {"jpeg": jpeg.read_header, "png": png.read_header}.get(record.format)
    if read_header is None:
        words = f"{keys.FORMAT} is {record.format!r}, neither 'jpeg' nor 'png'"
        return None, [("format", words)]
    try:
        header = read_header(record.encoded, None)
    except Reject as reject:
        # verify="none" keeps what cannot be read, and says so by the shape (0, 0, 0).
        if plan.options.get("verify") == "none" and record.shape == (0, 0, 0):
            return None, []
        return None, [("format", f"the image is no readable {record.format}: {reject}")]
    found = (header.height, header.width, header.channels)
    if found == record.shape:
        return header, []
    says, shows = (" x ".join(map(str, shape)) for shape in (record.shape, found))
    words = f"height x width x channels are {says}, but the image's are {shows}"
    return header, [("shape", words)]


def check_against_plan(record: Record, planned: PlannedRow, plan: Plan) -> Iterator[Finding]:
    """Where a record is not what was planned for its row."""
    if record.values is not None:
        yield from typed_against_plan(record, planned, plan)
        return
    pairs = (
        (keys.FILENAME, record.filename, planned.image_uri),
        (keys.LABEL, record.label, planned.label),
        (keys.TEXT, record.text, planned.text),
    )
    for key, found, wanted in pairs:
        if found != wanted:
            yield "row", f"row {record.row}: {key} is {found!r}, but {wanted!r} was planned"
